"""Pods that break, at every place of an answer."""

import json
import socket
import threading

import pytest

from client import Cut
from pod import ok
from test_errors import check_error


def start_pair(start, **options):
    pod = start.pod()
    return pod, start.router({"m": [pod]}, **options)


def not_marked(router, pod, session):
    """The session's next turn is not boosted."""
    pod.script = ok
    r = router.chat(session=session)
    assert r.status == 200
    return router.access(r.id)["boosted"] is False


@pytest.mark.parametrize("end,chunked", [("reset", True), ("close", True), ("reset", False)])
def test_stream_dies(start, end, chunked):
    """An error event, then an end that is not clean. (FIN is a proper end when close delimits: test_stream_until_close.)"""
    pod, router = start_pair(start)
    c = router.start_chat(session="s", stream=True)
    q = pod.next()
    q.start(chunked=chunked).event("one").event("two")
    r = c.head()
    pieces = c.read_until(r, b"two\n\n")
    getattr(q, end)()
    with pytest.raises(Cut):
        list(pieces)
    assert r.body.startswith(b"data: one\n\ndata: two\n\ndata: {\"error\":") and r.body.endswith(b"}\n\n")
    error = json.loads(r.body.split(b"data: ")[-1])["error"]
    assert error["code"] == "pod_reset" and error["type"] == "server_error"
    entry = router.access(c.id)
    assert entry["error"]["type"] == "pod_reset" and entry["closed_by"].startswith("pod:")
    assert not_marked(router, pod, "s")


def test_stream_dies_inside_an_event(start):
    """The error event must not be glued to half an event."""
    pod, router = start_pair(start)
    c = router.start_chat(stream=True)
    q = pod.next()
    q.start().event("one").chunk(b"data: tw")
    r = c.head()
    pieces = c.read_until(r, b"data: tw")
    q.reset()
    with pytest.raises(Cut):
        list(pieces)
    before, _, event = r.body.rpartition(b"data: {\"error\"")
    assert before == b"data: one\n\ndata: tw\n\n" and event.endswith(b"}\n\n")


def test_stream_dies_inside_a_chunk(start):
    pod, router = start_pair(start)
    c = router.start_chat(session="s", stream=True)
    q = pod.next()
    q.start().event("one").raw(b"100\r\ndata: half")
    r = c.head()
    pieces = c.read_until(r, b"half")
    q.close()
    with pytest.raises(Cut):
        list(pieces)
    assert b"data: {\"error\"" in r.body and r.clean is None
    assert not_marked(router, pod, "s")


def test_stream_until_close(start):
    """Delimited by close: FIN after [DONE] is whole, without it the stream is passed on but the session is not marked."""
    pod, router = start_pair(start)
    c = router.start_chat(session="whole", stream=True)
    pod.next().start(chunked=False).event("x").event("[DONE]").end()
    assert c.answer().clean
    c = router.start_chat(session="cut", stream=True)
    pod.next().start(chunked=False).event("x").end()
    try:
        c.answer()
    except Cut:
        pass
    pod.script = ok
    for session, boosted in (("whole", True), ("cut", False)):
        r = router.chat(session=session)
        assert router.access(r.id)["boosted"] is boosted, session


@pytest.mark.parametrize("end", ["reset", "close"])
@pytest.mark.parametrize("framing", ["sized", "chunked"])
def test_plain_answer_dies(start, end, framing):
    """No error event in a JSON body; the client sees a cut answer."""
    pod, router = start_pair(start)
    c = router.start_chat(session="s")
    q = pod.next()
    if framing == "sized":
        q.raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"half\":")
    else:
        q.start(content_type="application/json").chunk(b"{\"half\":")
    r = c.head()
    pieces = c.read_until(r, b"half\":")
    getattr(q, end)()
    with pytest.raises(Cut):
        list(pieces)
    assert r.body == b'{"half":' and c.wait_closed() == b""
    assert router.access(c.id)["closed_by"].startswith("pod:")
    assert not_marked(router, pod, "s")


def test_plain_answer_until_close_then_reset(start):
    pod, router = start_pair(start)
    c = router.start_chat(session="s")
    q = pod.next()
    q.start(content_type="application/json", chunked=False).chunk(b"{}")
    r = c.head()
    pieces = c.read_until(r, b"{}")
    q.reset()
    with pytest.raises(Cut):
        list(pieces)
    assert not_marked(router, pod, "s")


GARBAGE = [
    b"nonsense\r\n\r\n",
    b"HTTP/1.1 abc OK\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nabc",
    b"HTTP/1.1 200 OK\r\nBad Name: x\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nX: a\r\n fold\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
    b"HTTP/2.0 200 OK\r\n\r\n",
    b"SSH-2.0-OpenSSH_9.2\r\n",
    b"\x15\x03\x01\x00\x02\x02\x46",
]


@pytest.mark.parametrize("raw", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_is_a_502(start, raw):
    pod, router = start_pair(start)
    c = router.start_chat(session="s")
    pod.next().finish_raw(raw, close=True)
    r = c.answer()
    code = r.json()["error"]["code"]
    assert code in ("pod_protocol_error", "pod_reset")
    check_error(r, 502, code, "server_error")
    assert len(pod.requests) == 1
    assert not_marked(router, pod, "s")


@pytest.mark.parametrize("delta,status", [(-1, 200), (0, 200), (1, 502)])
@pytest.mark.parametrize("framing", [b"Content-Length: 2\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n"])
def test_limit_of_the_pods_head(start, framing, delta, status):
    pod, router = start_pair(start, max_header_bytes=8192)
    start_line, body = b"HTTP/1.1 200 OK\r\nX: ", b"ok" if b"Length" in framing else b"2\r\nok\r\n0\r\n\r\n"
    pad = b"x" * (8192 + delta - len(start_line) - len(framing) - 2)
    c = router.start_chat()
    pod.next().finish_raw(start_line + pad + b"\r\n" + framing + body)
    r = c.answer()
    assert r.status == status
    if status == 502:
        check_error(r, 502, "pod_protocol_error", "server_error")
    else:
        assert r.body == b"ok"


@pytest.mark.parametrize("n,status", [(7, 200), (8, 200), (9, 502)])
def test_limit_of_interim_answers(start, n, status):
    pod, router = start_pair(start)
    c = router.start_chat()
    q = pod.next()
    for _ in range(n):
        q.raw(b"HTTP/1.1 102 Processing\r\n\r\n")
    q.reply()
    r = c.answer()
    assert r.status == status
    if status == 502:
        check_error(r, 502, "pod_protocol_error", "server_error")


def test_bad_chunk_in_mid_answer(start):
    pod, router = start_pair(start)
    c = router.start_chat(session="s", stream=True)
    q = pod.next()
    q.start().event("one")
    r = c.head()
    pieces = c.read_until(r, b"one\n\n")
    q.finish_raw(b"zzz\r\nbad\r\n", close=True)
    with pytest.raises(Cut):
        list(pieces)
    assert b'"code":"pod_protocol_error"' in r.body.replace(b" ", b"")
    assert not_marked(router, pod, "s")


def test_bytes_behind_the_answer_close_the_pods_connection(start):
    pod, router = start_pair(start)
    c = router.start_chat()
    q = pod.next()
    q.finish_raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged")
    assert c.answer().body == b"ok"
    c.chat()
    q2 = pod.next()
    assert q2.conn is not q.conn
    q2.reply(body=b"mine")
    assert c.answer().body == b"mine"


@pytest.mark.parametrize("status", [400, 401, 404, 422, 429, 500, 502, 503])
@pytest.mark.parametrize("stream", [False, True])
def test_pod_errors_pass_untouched_and_only_one_pod_is_asked(start, status, stream):
    body = b'{"object":"error","message":"maximum context length is 4096 tokens","code":%d}' % status
    pods = [start.pod(script=lambda q: q.reply(status, body, headers=[("Retry-After", "7")])) for _ in range(2)]
    router = start.router({"m": pods})
    c = router.start_chat(session="s", stream=stream)
    r = c.answer()
    assert (r.status, r.body, r.header("Retry-After")) == (status, body, "7")
    assert sum(len(p.requests) for p in pods) == 1
    assert router.access(c.id)["upstream_status_code"] == status
    for p in pods:
        p.script = ok
    r = router.chat(session="s")
    assert router.access(r.id)["boosted"] is False


def test_head_timeout(start):
    pod, router = start_pair(start, upstream_header_timeout="150ms")
    c = router.start_chat()
    q = pod.next()
    check_error(c.answer(), 504, "pod_head_timeout", "server_error")
    q.wait_gone()
    router.wait_metric("kthena_router_pod_inflight_requests", 0, pod=pod.authority)


def test_head_timeout_of_a_server(start):
    pod = start.pod()
    router = start.router(ini="[model-server s]\npods = %s\ntimeout = 150ms\n[model-route m]\ntarget = s\n" % pod.authority)
    c = router.start_chat()
    pod.next()
    check_error(c.answer(), 504, "pod_head_timeout", "server_error")


def test_body_timeout(start):
    pod, router = start_pair(start, upstream_body_timeout="200ms")
    c = router.start_chat(session="s", stream=True)
    q = pod.next()
    q.start().event("one")
    r = c.head()
    with pytest.raises(Cut):
        c.body(r)
    assert b'"code":"pod_body_timeout"' in r.body.replace(b" ", b"")
    q.wait_gone()
    assert router.access(c.id)["closed_by"].startswith("router:")
    assert not_marked(router, pod, "s")


def test_pod_answers_before_it_read_the_body(start):
    """An early 400 and close while we still send: the answer counts."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(5)

    def serve():
        s, _ = listener.accept()
        s.recv(1000)
        s.sendall(b"HTTP/1.1 400 Bad\r\nContent-Length: 5\r\nConnection: close\r\n\r\nearly")
        s.shutdown(socket.SHUT_WR)
        while s.recv(1 << 20):
            pass
        s.close()
    threading.Thread(target=serve, daemon=True).start()
    router = start.router(ini="[model-server s]\npods = 127.0.0.1:%d\nengine = none\n[model-route m]\ntarget = s\n"
                          % listener.getsockname()[1])
    c = router.start_chat(pad="x" * 8_000_000)
    r = c.answer()
    assert (r.status, r.body) == (400, b"early")
    listener.close()


@pytest.mark.parametrize("framing", ["sized", "chunked"])
def test_cut_answer_to_an_http10_client_does_not_look_whole(start, framing):
    """Close ends an answer to such a client: a cut one must end with a reset."""
    pod, router = start_pair(start)
    c = router.client()
    c.request(body={"model": "m"}, version="HTTP/1.0")
    q = pod.next()
    if framing == "sized":
        q.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
    else:
        q.start(content_type="application/json").chunk(b"half")
    r = c.head()
    pieces = c.read_until(r, b"half")
    q.close()
    with pytest.raises(Cut):
        list(pieces)


def test_sized_event_stream_dies(start):
    """No error event behind an announced length: it would be cut there, and the answer would look whole."""
    pod, router = start_pair(start)
    c = router.start_chat(stream=True)
    pod.next().raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 30\r\n\r\ndata: 1\n\n").close()
    r = c.head()
    with pytest.raises(Cut):
        c.body(r)
    assert bytes(r.body) == b"data: 1\n\n"
