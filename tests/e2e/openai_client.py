#!/usr/bin/env python3
"""The official OpenAI client through the router to a simulated pod: plain and streamed, errors, models, embeddings.

Not collected by pytest: it needs the `openai` package (make e2e-openai makes an environment for it)."""

import sys

import openai

sys.path.insert(0, __file__.rsplit("/", 1)[0])
from daemon import Router, Sim  # noqa: E402


def check(what, good):
    print("%-4s %s" % ("ok" if good else "FAIL", what))
    if not good:
        sys.exit(1)


def talk(client, router):
    messages = [{"role": "user", "content": "hello " * 50}]
    session = {"X-Session-ID": "openai"}
    plain = client.chat.completions.create(model="m", messages=messages, max_tokens=8, extra_headers=session)
    check("plain answer", plain.choices[0].message.content and plain.usage.completion_tokens == 8)
    messages += [{"role": "assistant", "content": plain.choices[0].message.content}, {"role": "user", "content": "and?"}]
    raw = client.chat.completions.with_raw_response.create(model="m", messages=messages, max_tokens=8, extra_headers=session)
    check("follow-up is boosted", router.access(raw.headers["x-request-id"])["boosted"] is True)
    stream = client.chat.completions.create(model="m", messages=messages, max_tokens=8, stream=True, extra_headers=session,
                                            stream_options={"include_usage": True})
    chunks = list(stream)
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    check("streamed answer is the plain one", text == raw.parse().choices[0].message.content)
    check("usage of the stream", chunks[-1].usage.completion_tokens == 8)
    check("completion", client.completions.create(model="m", prompt="a b c", max_tokens=3).choices[0].text)
    check("embedding", len(client.embeddings.create(model="m", input=["a", "b"]).data) == 2)
    check("models", [m.id for m in client.models.list()] == ["m"])
    with client.chat.completions.create(model="m", messages=messages, max_tokens=100000, stream=True) as left:
        next(iter(left))
    router.wait_idle()
    check("a stream that is left ends at the pod", True)


def errors(client):
    try:
        client.chat.completions.create(model="unknown", messages=[])
        check("unknown model is an error", False)
    except openai.NotFoundError as e:
        check("unknown model: NotFoundError, code %s" % e.code, e.code == "route_not_found" and "route not found" in str(e))


def main():
    sim = Sim("--model", "m", "--inter-token-ms", "1")
    router = Router({"m": [sim]})
    try:
        client = openai.OpenAI(base_url="http://127.0.0.1:%d/v1" % router.port, api_key="none", max_retries=0)
        talk(client, router)
        errors(client)
        client.close()
    finally:
        router.stop()
        sim.stop()
    print("openai %s: all good" % openai.__version__)


if __name__ == "__main__":
    main()
