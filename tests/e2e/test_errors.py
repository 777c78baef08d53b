"""Every error the router itself answers: status, body, request id, Retry-After, and what becomes of the connection."""

import json
import re

import pytest

from client import Cut
from pod import ok


def check_error(r, status, code, kind="invalid_request_error", retry_after=False):
    """The one shape of all errors."""
    assert r.status == status, r
    assert r.header("Content-Type").startswith("application/json")
    assert list(r.json()) == ["error"]
    error = r.json()["error"]
    assert set(error) == {"message", "type", "code", "param"}
    assert error["param"] is None and error["code"] == code and error["type"] == kind, error
    assert isinstance(error["message"], str) and error["message"]
    if retry_after:
        assert 1 <= int(r.header("Retry-After")) <= 30
    else:
        assert r.header("Retry-After") is None
    return error["message"]


@pytest.fixture(scope="module")
def router(start_module):
    return start_module.router({"m": [start_module.pod(script=ok)]}, max_header_bytes="4096", max_body_bytes="10000")


def send(router, *args, **options):
    c = router.client()
    c.request(*args, **options)
    return c, c.answer()


def still_usable(c):
    c.chat()
    assert c.answer().status == 200


BAD_JSON = [b"{", b"[1]x", b'{"model":"m"} {}', b'{"model":"m",}', b"{'model':'m'}", b'{"model":"m"', b'{"model":"m\n"}',
            b'{"model":01}', b'\xef\xbb\xbf{"model":"m"}', b'{"model":"m"}\x00', b'{"a":"\\x","model":"m"}']


@pytest.mark.parametrize("body", BAD_JSON, ids=range(len(BAD_JSON)))
def test_bad_json(router, body):
    c, r = send(router, body=body)
    check_error(r, 400, "bad_json")
    assert router.access(c.id)["status_code"] == 400
    still_usable(c)


@pytest.mark.parametrize("body", [b"[]", b'"m"', b"1", b"null", b"true"])
def test_not_an_object(router, body):
    c, r = send(router, body=body)
    assert r.status == 400 and r.json()["error"]["code"] in ("bad_json", "model_missing")
    still_usable(c)


@pytest.mark.parametrize("body", [{}, {"model": ""}, {"model": "  "}, {"model": None}, {"model": 1}, {"model": ["m"]}, {"Model": "m"},
                                  {"model": "x" * 5000}])
def test_no_model(router, body):
    c, r = send(router, body=body)
    check_error(r, 400, "model_missing")
    still_usable(c)


def test_no_body(router):
    c, r = send(router, body=b"")
    check_error(r, 400, r.json()["error"]["code"])
    assert r.json()["error"]["code"] in ("bad_json", "model_missing")
    still_usable(c)


def test_the_last_model_counts(router):
    _, r = send(router, body=b'{"model":"m","model":"unknown"}')
    check_error(r, 404, "route_not_found")
    _, r = send(router, body=b'{"model":"m","mod\\u0065l":1}')
    check_error(r, 400, "model_missing")


def test_unknown_model(router):
    c, r = send(router, body={"model": "unknown"})
    assert "route not found" in check_error(r, 404, "route_not_found")
    entry = router.access(c.id)
    assert entry["error"]["type"] == "route_not_found" and entry["model_name"] in ("unknown", "")
    assert router.metrics().total("kthena_router_requests_total", error_type="route_not_found", status_code="404") >= 1
    still_usable(c)


@pytest.mark.parametrize("method,path", [("GET", "/"), ("GET", "/nope"), ("POST", "/v2/chat"), ("POST", "/v1x"), ("GET", "/metrics"),
                                         ("GET", "/debug/config_dump/pods")])
def test_unknown_path(router, method, path):
    c, r = send(router, method, path)
    check_error(r, 404, "path_not_found")
    still_usable(c)


def test_bodies_of_refused_requests_do_not_become_requests(router):
    """The body of a 404 must be swallowed or the connection closed; never read as the next request."""
    inner = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    c = router.client()
    c.request("POST", "/nope", body=inner)
    check_error(c.answer(), 404, "path_not_found")
    try:
        c.request("POST", "/v1/x", body={"model": "unknown"})
        r = c.answer()
    except (Cut, OSError):
        return  # closed: fine as well
    check_error(r, 404, "route_not_found")


BAD_HTTP = [
    b"BLAH\r\n\r\n",
    b"GET / HTTP/1.1\r\nBad Header: x\r\n\r\n",
    b"GET / HTTP/1.1\r\n: x\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\n folded: x\r\n\r\n",
    b"POST /v1/x HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /v1/x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    b"POST /v1/x HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
    b"POST /v1/x HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\nhello",
    b"POST /v1/x HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999999\r\n\r\n",
    b"POST /v1/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;a\nX\r\nhello\r\n0\r\n\r\n",
    b"POST /v1/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n",
    b"GET /\x00 HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\x00b\r\n\r\n",
    b"GET / HTTP/1.1\nHost: a\n\n",
    b"GET / HTTP/2.0\r\nHost: a\r\n\r\n",
    b"GET /v1/models HTTP/1.1\r\n\r\n",
    b"GET /v1/models HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 40 + b"\r\n\r\n",
]


@pytest.mark.parametrize("raw", BAD_HTTP, ids=range(len(BAD_HTTP)))
def test_bad_http_is_answered_and_closed(router, raw):
    c = router.client()
    c.send(raw)
    r = c.head()
    c.method = "GET"
    check_error(c.body(r), 400, "bad_http")
    assert (r.header("Connection") or "").lower() == "close"
    assert c.wait_closed() == b"", "bytes behind the error answer"


@pytest.mark.parametrize("raw", [
    b"POST /v1/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    b"POST /v1/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n",
    b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n",
    b"TRACE /v1/x HTTP/1.1\r\nHost: a\r\n\r\n",
])
def test_unsupported_http(router, raw):
    c = router.client()
    c.send(raw)
    r = c.answer()
    assert r.status in (400, 405, 501), r
    assert set(r.json()["error"]) == {"message", "type", "code", "param"}
    assert c.wait_closed() == b""


def test_multipart_gets_a_plain_answer(router):
    c, r = send(router, path="/v1/audio/transcriptions", headers=[("Content-Type", "multipart/mixed; boundary=b")],
                body=b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n--b--\r\n')
    assert r.status == 400 and r.json()["error"]["code"] == "unsupported"
    still_usable(c)


def test_too_large(router):
    _, r = send(router, body={"model": "m", "pad": "x" * 20000})
    check_error(r, 413, "body_too_large")
    _, r = send(router, "GET", "/v1/models", headers=[("X-Pad", "x" * 8000)])
    check_error(r, 431, "head_too_large")
    _, r = send(router, "GET", "/v1/" + "x" * 8000)
    check_error(r, 414, "uri_too_long")


def test_get_without_body_and_model(router):
    _, r = send(router, "GET", "/v1/files")
    assert r.status in (400, 404) and "error" in r.json()


def test_no_pod_can_be_reached(start):
    dead = start.pod(listen=False)
    router = start.router({"m": [dead]})
    c = router.client().chat()
    r = c.answer()
    check_error(r, 503, r.json()["error"]["code"], "server_error", retry_after=bool(r.all("Retry-After")))
    assert r.json()["error"]["code"] in ("connect_failed", "no_usable_pod")
    c.chat()
    assert c.answer().status == 503  # the connection is still good


def test_queue_full_and_queue_timeout(start):
    pod = start.pod()
    router = start.router({"m": [pod]}, session_boost_inflight_per_pod=1, queue_max_requests=1, session_boost_timeout="300ms")
    running = router.start_chat()
    held = pod.next()
    waiting = router.queue_chat(1)
    full = router.client().chat()
    check_error(full.answer(), 429, "queue_full", "rate_limit_error", retry_after=True)
    message = check_error(waiting.answer(), 504, "queue_timeout", "server_error", retry_after=True)
    assert message == "Request processing timed out in queue"
    held.reply()
    assert running.answer().status == 200
    for c in (full, waiting):
        c.chat()
        pod.next().reply()
        assert c.answer().status == 200


def test_pod_errors(start):
    pod = start.pod()
    router = start.router({"m": [pod]}, upstream_header_timeout="200ms")
    c = router.start_chat()
    pod.next().finish_raw(b"no http at all\r\n\r\n", close=True)
    check_error(c.answer(), 502, "pod_protocol_error", "server_error")
    c.chat()
    pod.next().reset()
    check_error(c.answer(), 502, "pod_reset", "server_error")
    c.chat()
    q = pod.next()
    check_error(c.answer(), 504, "pod_head_timeout", "server_error")
    q.wait_gone()
    c.chat()
    pod.next().reply()
    assert c.answer().status == 200


def test_every_error_code_is_in_log_and_metrics_alike(router):
    c, r = send(router, body=b"{")
    entry = router.access(c.id)
    assert entry["error"]["type"] == r.json()["error"]["code"] == "bad_json"
    assert router.metrics().total("kthena_router_requests_total", error_type="bad_json") >= 1


def test_error_messages_cannot_be_forged(router):
    """What the client sent comes back escaped, if at all."""
    _, r = send(router, body=json.dumps({"model": 'a","code":"forged\u0001\n'}))
    check_error(r, 404, "route_not_found")
    assert not re.search(rb"[\x00-\x1f]", r.body.rstrip(b"\n"))
