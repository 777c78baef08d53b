"""Token usage read from answers in passing, and asked for where clients did not ask."""

import json
import zlib

import pytest

from client import Cut

CHAT = "/v1/chat/completions"
LABELS = {"model": "m", "path": CHAT, "model_route": "m", "backend_type": "model_server", "backend_name": "m",
          "upstream_model": "m"}


def event(choices, usage=None, **more):
    e = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices, **more}
    if usage:
        e["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}
    return json.dumps(e)


def delta(text):
    return [{"index": 0, "delta": {"content": text}}]


def usage_json(prompt, completion):
    return {"choices": [{"message": {"content": 'a "usage": {"prompt_tokens": 99}'}}],
            "usage": {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}}


def tokens(router, path=CHAT):
    m = router.metrics()
    return tuple(m.get("kthena_router_tokens_total", 0.0, **{**LABELS, "path": path}, token_type=t)
                 for t in ("input", "output"))


def unknown(router, reason):
    return router.metric("kthena_router_usage_unknown_total", model="m", reason=reason)


def logged(router, r):
    entry = router.access(r.id)
    return entry.get("input_tokens", 0), entry.get("output_tokens", 0)


def test_json_answer(start):
    router = start.router({"m": [start.pod(lambda q: q.reply(body=usage_json(12, 8)))]})
    body = json.dumps(usage_json(12, 8)).encode()
    r = router.chat()
    assert r.body == body and logged(router, r) == (12, 8)
    r = router.chat()
    assert tokens(router) == (24, 16) and unknown(router, "missing") == 0


def test_stream_in_pieces(start):
    pod = start.pod()
    router = start.router({"m": [pod]})
    text = "".join("data: %s\r\n\r\n" % e for e in
                   (event(delta("a"), (5, 1)), event(delta("b"), (5, 2)), event([], (5, 3)), "[DONE]")).encode()
    for step in (1, 7, len(text)):
        c = router.start_chat(stream=True)
        q = pod.next().start()
        for at in range(0, len(text), step):
            q.chunk(text[at:at + step])
        q.end()
        r = c.answer()
        assert r.body == text
        r.id = c.id
        assert logged(router, r) == (5, 3), step
    assert tokens(router) == (15, 9)


def test_text_line_has_tokens(start):
    router = start.router({"m": [start.pod(lambda q: q.reply(body=usage_json(9, 16)))]}, access_log_format="text")
    router.chat()
    line = router.stdout.wait_for_line("tokens=")
    assert " upstream_attempts=1 tokens=9/16 " in line


def test_other_apis(start):
    def script(q):
        if q.path == "/v1/messages":
            q.start()
            q.event('{"type":"message_start","message":{"usage":{"input_tokens":25,"cache_read_input_tokens":5,"output_tokens":1}}}')
            q.event('{"type":"message_delta","usage":{"output_tokens":15}}')
            q.event('{"type":"message_stop"}')
            q.end()
        else:
            q.sse('{"type":"response.created","response":{"usage":null}}',
                  '{"type":"response.completed","response":{"usage":{"input_tokens":4,"output_tokens":6,"total_tokens":10}}}')
    router = start.router({"m": [start.pod(script)]})
    for path, want in (("/v1/messages", (30, 15)), ("/v1/responses", (4, 6))):
        c = router.client()
        c.request("POST", path, body={"model": "m", "stream": True, "input": "x"})
        c.answer()
        assert tokens(router, path) == want


def test_no_usage_gives_an_estimate(start):
    router = start.router({"m": [start.pod(lambda q: q.sse(event(delta("x"))))]})
    r = router.chat(stream=True, messages=[{"role": "user", "content": "hello world"}])
    assert logged(router, r) == (10, 0)
    assert tokens(router) == (10, 0) and unknown(router, "missing") == 1


@pytest.mark.parametrize("reported", [{"completion_tokens": 7}, {"prompt_tokens": 10 ** 20, "completion_tokens": 7},
                                      {"prompt_tokens": -1, "completion_tokens": 7}])
@pytest.mark.parametrize("stream", [False, True])
def test_input_that_no_usage_tells_is_estimated(start, reported, stream):
    pod = start.pod()
    router = start.router({"m": [pod]})
    c = router.start_chat(stream=stream, messages=[{"role": "user", "content": "hello world"}])
    q = pod.next()
    if stream:
        q.start().event(json.dumps({"choices": [], "usage": reported}))
        q.end()
    else:
        q.reply(body={"choices": [], "usage": reported})
    r = c.answer()
    assert r.status == 200 and logged(router, c) == (10, 7)
    assert tokens(router) == (10, 7) and unknown(router, "missing") == 0


@pytest.mark.parametrize("usage, want", [
    ({"total_tokens": 18}, "10/-"), ({"prompt_tokens": 11}, "11/-"), ({"prompt_tokens": 11, "total_tokens": 18}, "11/7"),
    ({"prompt_tokens": 11, "total_tokens": 11}, "11/0"), ({"completion_tokens": 0}, "10/0"), (None, "10/-")])
def test_text_line_tells_no_output_from_an_unknown_one(start, usage, want):
    router = start.router({"m": [start.pod(lambda q: q.reply(body={"usage": usage}))]}, access_log_format="text")
    router.chat(messages=[{"role": "user", "content": "hello world"}])
    assert " tokens=%s " % want in router.stdout.wait_for_line("tokens=")
    assert tokens(router)[1] == int(want.split("/")[1].replace("-", "0"))


def test_compressed_answer_is_unknown(start):
    body = zlib.compress(json.dumps(usage_json(12, 8)).encode())
    router = start.router({"m": [start.pod(lambda q: q.reply(body=body, headers=[("Content-Encoding", "gzip")]))]})
    r = router.chat(headers=[("Accept-Encoding", "gzip")], messages=[{"role": "user", "content": "Hello"}])
    assert r.body == body and logged(router, r) == (9, 0)
    assert unknown(router, "encoded") == 1


def test_errors_and_other_kinds_count_nothing(start):
    def script(q):
        if q.tag == "error":
            q.reply(400, usage_json(1, 1))
        else:
            q.reply(200, b"\x00binary", content_type="audio/mpeg")
    router = start.router({"m": [start.pod(script)]})
    for tag in ("error", "binary"):
        assert logged(router, router.chat(tag=tag)) == (0, 0)
    assert router.metrics().series("kthena_router_tokens_total") == []
    assert unknown(router, "missing") == unknown(router, "encoded") == 0


def test_cut_answer_keeps_what_was_reported(start):
    pod = start.pod()
    router = start.router({"m": [pod]})
    c = router.start_chat(stream=True)
    q = pod.next().start()
    q.event(event(delta("a"), (7, 1)))
    r = c.head()
    pieces = c.read_until(r, b'"usage"')
    q.reset()
    with pytest.raises(Cut):
        for _ in pieces:
            pass
    entry = router.access(c.id)
    assert (entry["input_tokens"], entry["output_tokens"]) == (7, 1)
    assert unknown(router, "missing") == 0


def test_off_reads_nothing(start):
    router = start.router({"m": [start.pod(lambda q: q.reply(body=usage_json(12, 8)))]}, count_tokens="false")
    assert logged(router, router.chat()) == (0, 0)
    assert router.metrics().series("kthena_router_tokens_total") == []


# ---- asking for it ----

def vllm(q):
    """Usage when asked, as vLLM has it: one more event without choices."""
    body = q.json()
    events = [event(delta("a")), event(delta("b"))]
    if (body.get("stream_options") or {}).get("include_usage") is True:
        events.append(event([], (5, 2)))
    if body.get("stream"):
        q.sse(*events)
    else:
        q.reply(body=usage_json(5, 2))


PLAIN = "".join("data: %s\n\n" % e for e in (event(delta("a")), event(delta("b")), "[DONE]")).encode()
FULL = "".join("data: %s\n\n" % e for e in (event(delta("a")), event(delta("b")), event([], (5, 2)), "[DONE]")).encode()


@pytest.mark.parametrize("extra, sent, got, known", [
    ({}, {"include_usage": True}, PLAIN, (5, 2)),
    ({"stream_options": None}, {"include_usage": True}, PLAIN, (5, 2)),
    ({"stream_options": {}}, {"include_usage": True}, PLAIN, (5, 2)),
    ({"stream_options": {"continuous": 7}}, {"continuous": 7, "include_usage": True}, PLAIN, (5, 2)),
    ({"stream_options": {"include_usage": True}}, {"include_usage": True}, FULL, (5, 2)),
    ({"stream_options": {"include_usage": False}}, {"include_usage": False}, PLAIN, (8, 0)),
])
def test_streams_are_asked_for_usage(start, extra, sent, got, known):
    pod = start.pod(vllm)
    router = start.router({"m": [pod]}, inject_stream_usage="true")
    r = router.chat(stream=True, **extra)
    assert r.body == got and r.status == 200
    assert pod.requests[0].json()["stream_options"] == sent
    assert logged(router, r) == known


def test_only_streams_of_the_two_apis_are_changed(start):
    pod = start.pod(vllm)
    router = start.router({"m": [pod]}, inject_stream_usage="true")
    for path, body in ((CHAT, {"model": "m"}), ("/v1/responses", {"model": "m", "stream": True}),
                       (CHAT, {"model": "m", "stream": False, "stream_options": {}})):
        raw = json.dumps(body).encode()
        c = router.client()
        c.request("POST", path, body=raw)
        c.answer()
        assert pod.requests[-1].body == raw


def test_wish_beside_a_renamed_model(start):
    pod = start.pod(vllm)
    ini = """
[model-server s]
pods = %s
model = served/name
[model-route r]
model = m
target = s
""" % pod.authority
    router = start.router(ini=ini, inject_stream_usage="true")
    for raw, want in (
            (b'{ "model":"m" , "stream":true}',
             b'{"stream_options":{"include_usage":true}, "model":"served/name" , "stream":true}'),
            (b'{"stream":true,"stream_options":{"a":1},"model":"m","x":1}',
             b'{"stream":true,"stream_options":{"include_usage":true,"a":1},"model":"served/name","x":1}'),
            (b'{"model":"m","stream_options":{ },"stream":true}',
             b'{"model":"served/name","stream_options":{"include_usage":true },"stream":true}')):
        c = router.client()
        c.request("POST", CHAT, body=raw)
        assert c.answer().body == PLAIN
        assert pod.requests[-1].body == want


@pytest.mark.parametrize("step", [1, 50])
def test_hidden_event_in_pieces(start, step):
    pod = start.pod()
    router = start.router({"m": [pod]}, inject_stream_usage="true")
    c = router.start_chat(stream=True)
    q = pod.next().start()
    for at in range(0, len(FULL), step):
        q.chunk(FULL[at:at + step])
    q.end()
    assert c.answer().body == PLAIN


def test_whole_events_are_not_held_back(start):
    pod = start.pod()
    router = start.router({"m": [pod]}, inject_stream_usage="true")
    c = router.start_chat(stream=True)
    q = pod.next().start()
    q.event(event(delta("a")))
    r = c.head()
    pieces = c.read_until(r, b'"a"')
    q.chunk(b"data: " + event(delta("b")).encode())
    assert c.silent_for(0.1)
    q.chunk(b"\n\n")
    c.read_until(r, b'"b"', pieces)
    q.event("[DONE]")
    q.end()
    c.read_until(r, b"[DONE]", pieces)


def test_sized_stream_with_a_hidden_event(start):
    def script(q):
        q.reply(200, FULL, content_type="text/event-stream")
    router = start.router({"m": [start.pod(script)]}, inject_stream_usage="true")
    r = router.chat(stream=True)
    assert r.body == PLAIN and r.header("Transfer-Encoding") == "chunked"


def test_encoding_is_not_offered_when_usage_is_wanted(start):
    pod = start.pod(vllm)
    router = start.router({"m": [pod]}, inject_stream_usage="true")
    router.chat(stream=True, headers=[("Accept-Encoding", "gzip")])
    assert pod.requests[0].all("Accept-Encoding") == []


def test_follow_up_on_the_last_event_is_boosted_with_a_hidden_event_before_it(start):
    router = start.router({"m": [start.pod(vllm)]}, inject_stream_usage="true")
    router.chat(stream=True, session="s")
    r = router.chat(stream=True, session="s")
    assert router.access(r.id)["boosted"] is True
