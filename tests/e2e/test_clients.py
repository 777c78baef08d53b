"""Clients people use, each through the router to simulated pods."""

import http.client
import json
import os
import re
import shutil
import subprocess

import pytest

from waiting import DEADLINE, SLOW

BODY = json.dumps({"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hello"}]})
STREAM = json.dumps({"model": "m", "max_tokens": 5, "stream": True, "messages": [{"role": "user", "content": "hello"}]})


@pytest.fixture(scope="module")
def router(start_module):
    sims = [start_module.sim("--model", "m") for _ in range(2)]
    return start_module.router({"m": sims})


def url(router, path="/v1/chat/completions"):
    return "http://127.0.0.1:%d%s" % (router.port, path)


def run(*command, stdin=None):
    assert shutil.which(command[0]), "%s is not installed: make deps-test" % command[0]
    p = subprocess.run([str(c) for c in command], input=stdin, capture_output=True, text=True, timeout=6 * DEADLINE)
    assert p.returncode == 0, p.stdout + p.stderr
    return p.stdout


def test_curl(router):
    out = run("curl", "-sS", "-i", url(router), "-H", "Content-Type: application/json", "-d", BODY)
    head, _, body = out.partition("\n\n") if "\r\n\r\n" not in out else out.partition("\r\n\r\n")
    assert " 200 " in head.splitlines()[0] and re.search("(?i)x-request-id:", head)
    assert json.loads(body)["usage"]["completion_tokens"] == 5


def test_curl_stream(router):
    out = run("curl", "-sS", "-N", url(router), "-H", "X-Session-ID: s", "-d", STREAM)
    events = [line for line in out.splitlines() if line.startswith("data: ")]
    assert events[-1] == "data: [DONE]" and len(events) >= 6


def test_curl_large_body_with_expect(router):
    body = json.dumps({"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "x" * 3_000_000}]})
    out = run("curl", "-sS", "-w", "\n%{http_code} %{time_total}", url(router), "-H", "Expect: 100-continue",
              "--data-binary", "@-", stdin=body)
    status, seconds = out.splitlines()[-1].split()
    assert status == "200" and float(seconds) < 1.0 * SLOW


def test_curl_http10(router):
    out = run("curl", "-sS", "-0", "-N", url(router), "-d", STREAM)
    assert out.rstrip().endswith("data: [DONE]")


def test_curl_two_requests_on_one_connection(router):
    out = run("curl", "-sS", "-v", "--stderr", "-", url(router), url(router), "-d", BODY)
    assert re.search("(?i)re-?using existing connection", out)


def test_curl_head_and_models(router):
    assert " 200 " in run("curl", "-sS", "-I", url(router, "/v1/models")).splitlines()[0]
    assert json.loads(run("curl", "-sS", url(router, "/v1/models")))["data"][0]["id"] == "m"


@pytest.mark.parametrize("keep", [[], ["-k"]])
def test_ab(router, tmp_path, keep):
    path = tmp_path / "body.json"
    path.write_text(BODY)
    n = 1000 if SLOW == 1 else 200
    out = run("ab", "-q", "-n", n, "-c", 8, *keep, "-p", path, "-T", "application/json", url(router))
    assert re.search(r"Complete requests:\s+%d\b" % n, out), out
    assert re.search(r"Failed requests:\s+0\b", out) or "Length:" in out, out
    assert "Non-2xx" not in out, out
    if keep:
        assert int(re.search(r"Keep-Alive requests:\s+(\d+)", out).group(1)) == n


def test_pods_that_close_connections_often(start):
    """Three requests for each connection, under load: no request is lost (they are sent again on a fresh connection)."""
    sims = [start.sim("--model", "m", "--max-requests-per-connection", "3") for _ in range(2)]
    router = start.router({"m": sims})
    script = start.tmp_path / "post.lua"
    script.write_text("wrk.method = 'POST'\nwrk.body = [[%s]]\n" % BODY)
    out = run("wrk", "-t1", "-c8", "-d1s", "-s", script, url(router))
    assert "Non-2xx" not in out and "Socket errors" not in out, out


def test_wrk(router, tmp_path):
    script = tmp_path / "post.lua"
    script.write_text("wrk.method = 'POST'\nwrk.body = [[%s]]\nwrk.headers['Content-Type'] = 'application/json'\n" % BODY)
    out = run("wrk", "-t1", "-c16", "-d1s", "-s", script, url(router))
    assert int(re.search(r"(\d+) requests in", out).group(1)) > 20
    assert "Non-2xx" not in out and "Socket errors" not in out, out


def test_http_client(router):
    c = http.client.HTTPConnection("127.0.0.1", router.port, timeout=DEADLINE)
    first = None
    for turn in range(3):
        c.request("POST", "/v1/chat/completions", BODY, {"X-Session-ID": "py"})
        r = c.getresponse()
        body = json.loads(r.read())
        assert r.status == 200 and r.getheader("X-Request-ID")
        first = first or body["sim"]["pod"]
        assert body["sim"]["pod"] == first and body["sim"]["session"] == "py"
    c.request("POST", "/v1/chat/completions", STREAM)
    lines = c.getresponse().read().decode().split("\n\n")
    assert lines[-2] == "data: [DONE]"
    c.request("POST", "/v1/chat/completions", iter([BODY[:10].encode(), BODY[10:].encode()]), encode_chunked=True,
              headers={"Transfer-Encoding": "chunked"})
    assert c.getresponse().status == 200
    c.close()


def test_warm_turns_hit_the_prefix_cache(router):
    """The reason for it all: turn 2 of a session finds its prefix on its pod."""
    c = http.client.HTTPConnection("127.0.0.1", router.port, timeout=DEADLINE)
    messages = [{"role": "user", "content": "word " * 500}]
    cached = []
    for turn in range(4):
        body = json.dumps({"model": "m", "max_tokens": 4, "messages": messages})
        c.request("POST", "/v1/chat/completions", body, {"X-Session-ID": "warm"})
        body = json.loads(c.getresponse().read())
        cached.append(body["sim"]["cached_tokens"] / body["sim"]["prompt_tokens"])
        messages += [body["choices"][0]["message"], {"role": "user", "content": "go on"}]
    assert cached[0] == 0 and min(cached[1:]) > 0.9, cached
    c.close()


def test_openai_script_is_there():
    """The official client needs a package of its own: "make e2e-openai" runs it."""
    assert os.access(os.path.join(os.path.dirname(__file__), "openai_client.py"), os.R_OK)
