"""Pages in browsers: preflights and the fields that let a page read an answer."""

import pytest

from pod import ok
from test_errors import check_error

APP = "https://app.example.com"


def preflight(router, origin, path="/v1/chat/completions", headers="authorization,content-type"):
    fields = [("Origin", origin), ("Access-Control-Request-Method", "POST")]
    if headers:
        fields.append(("Access-Control-Request-Headers", headers))
    c = router.client()
    c.request("OPTIONS", path, headers=fields)
    r = c.answer()
    r.id, r.client = c.id, c
    return r


def own_cors(q):
    q.reply(headers=[("Access-Control-Allow-Origin", "*"), ("access-control-expose-headers", "X-Pod"), ("X-Pod", "1"),
                     ("Access-Control", "stays")])


def test_off_by_default(start):
    router = start.router({"m": [start.pod(own_cors)]})
    check_error(preflight(router, APP), 405, "method_not_allowed")
    r = router.chat(headers=[("Origin", APP)])
    assert r.all("Access-Control-Allow-Origin") == ["*"] and r.all("Access-Control-Expose-Headers") == ["X-Pod"]


def test_preflight(start):
    pod = start.pod(ok)
    router = start.router({"m": [pod]}, cors_allow_origins="https://other.example, %s" % APP)
    r = preflight(router, APP)
    assert r.status == 204 and r.body == b"" and r.all("Content-Length") == []
    assert r.header("Access-Control-Allow-Origin") == APP and r.header("Vary") == "Origin"
    assert "POST" in r.header("Access-Control-Allow-Methods").split(", ")
    assert r.header("Access-Control-Allow-Headers") == "authorization,content-type"
    assert int(r.header("Access-Control-Max-Age")) > 0
    assert pod.requests == []
    entry = router.access(r.id)
    assert entry["status_code"] == 204 and "error" not in entry
    # The connection lives on.
    assert r.client.chat().answer().status == 200


def test_answered_before_the_queue(start):
    pod = start.pod()
    router = start.router({"m": [pod]}, session_boost_inflight_per_pod=1, cors_allow_origins="*")
    running = router.start_chat()
    held = pod.next()
    waiting = router.queue_chat(1)
    assert preflight(router, APP).header("Access-Control-Allow-Origin") == "*"
    held.reply()
    pod.next().reply()
    assert running.answer().status == waiting.answer().status == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "https://app.example.com.evil", "null", "http://app.example.com"])
def test_other_origins(start, origin):
    router = start.router({"m": [start.pod(own_cors)]}, cors_allow_origins=APP)
    r = preflight(router, origin)
    check_error(r, 405, "method_not_allowed")
    assert r.all("Access-Control-Allow-Origin") == []
    # What the pod allows is not what the router allows.
    r = router.chat(headers=[("Origin", origin)])
    assert r.status == 200 and [k for k, _ in r.fields if k.lower().startswith("access-control-")] == []
    assert r.header("X-Pod") == "1" and r.header("Access-Control") == "stays"


def test_answers_can_be_read(start):
    router = start.router({"m": [start.pod(own_cors)]}, cors_allow_origins=APP)
    r = router.chat(headers=[("Origin", APP)])
    assert r.all("Access-Control-Allow-Origin") == [APP] and r.header("Access-Control-Expose-Headers") == "*"
    assert r.header("X-Pod") == "1" and r.header("Access-Control") == "stays"
    # No page asks: nothing is said.
    assert router.chat().all("Access-Control-Allow-Origin") == []


def test_caches_are_told_that_answers_differ(start):
    """What one origin got must not be given to another, whichever came first; the pod may have said so."""
    said = [[], [("Vary", "Accept-Encoding, oRigin")], [("Vary", "*")], [("Vary", "X-Origin"), ("vary", "Accept")]]
    want = [["Origin"], ["Accept-Encoding, oRigin"], ["*"], ["X-Origin", "Accept", "Origin"]]

    pod = start.pod(lambda q: q.reply(headers=said[int(q.tag)]))
    router = start.router({"m": [pod]}, cors_allow_origins=APP)
    for origin in ([("Origin", APP)], [("Origin", "https://evil.example")], []):
        for i in range(len(said)):
            assert router.chat(headers=origin, tag=str(i)).all("Vary") == want[i]
        assert router.chat(model="unknown", headers=origin).all("Vary") == ["Origin"]
        c = router.client()
        c.request("GET", "/v1/models", headers=origin)
        assert c.answer().all("Vary") == ["Origin"]
    for origin in (APP, "https://evil.example"):
        assert preflight(router, origin).all("Vary") == ["Origin"]


def test_without_origins_vary_is_the_pods(start):
    router = start.router({"m": [start.pod(lambda q: q.reply(headers=[("Vary", "Accept")]))]})
    assert router.chat(headers=[("Origin", APP)]).all("Vary") == ["Accept"]
    assert router.chat(model="unknown", headers=[("Origin", APP)]).all("Vary") == []


def test_errors_and_model_list_can_be_read(start):
    router = start.router({"m": [start.pod(ok)]}, cors_allow_origins="*")
    r = router.chat(model="unknown", headers=[("Origin", APP)])
    check_error(r, 404, "route_not_found")
    assert r.header("Access-Control-Allow-Origin") == "*"
    c = router.client()
    c.request("GET", "/v1/models", headers=[("Origin", APP)])
    assert c.answer().header("Access-Control-Allow-Origin") == "*"


def test_many_headers_asked_for(start):
    router = start.router({"m": [start.pod(ok)]}, cors_allow_origins="*")
    r = preflight(router, APP, headers=",".join(["x-header"] * 500))
    assert r.status == 204 and r.all("Access-Control-Allow-Headers") == []
