"""Limits at their edges, and time limits of clients."""

import json
import signal
import socket
import time

import pytest

from pod import ok
from test_errors import check_error
from waiting import DEADLINE, SLOW, wait_until

HEAD, BODY = 4096, 5000


@pytest.fixture(scope="module")
def router(start_module):
    return start_module.router({"m": [start_module.pod(script=ok)]}, max_header_bytes=HEAD, max_body_bytes=BODY)


def sized_body(n):
    frame = json.dumps({"model": "m", "pad": ""})
    return json.dumps({"model": "m", "pad": "x" * (n - len(frame))}).encode()


@pytest.mark.parametrize("delta,status", [(-1, 200), (0, 200), (1, 431)])
def test_head_limit(router, delta, status):
    c = router.client()
    body = b'{"model":"m"}'
    short = c.request(body=body, headers=[("X-Pad", "")], send=False)
    pad = HEAD + delta - (len(short) - len(body))
    c.request(body=body, headers=[("X-Pad", "x" * pad)])
    r = c.answer()
    assert r.status == status
    if status == 431:
        check_error(r, 431, "head_too_large")
        assert c.wait_closed() == b""


@pytest.mark.parametrize("n,status", [(127, 200), (128, 200), (129, 431)])
def test_number_of_fields(router, n, status):
    c = router.client()
    c.request("GET", "/v1/models", headers=[("X-%d" % i, "") for i in range(n - 2)])  # with Host and X-Request-ID
    r = c.answer()
    assert r.status == status
    if status == 431:
        check_error(r, 431, "head_too_large")
        assert c.wait_closed() == b""


@pytest.mark.parametrize("n,status", [(31, 200), (32, 200), (33, 400)])
def test_number_of_connection_options(router, n, status):
    c = router.client()
    c.request("GET", "/v1/models", headers=[("Connection", ",".join("x-%d" % i for i in range(n)))])
    assert c.answer().status == status


@pytest.mark.parametrize("n,status", [(8191, 200), (8192, 200), (8193, 400)])
@pytest.mark.parametrize("where", ["extension", "trailer"])
def test_bytes_beside_a_chunked_body(router, where, n, status):
    body = b'{"model":"m"}'
    extension, trailer = (b"e" * n, b"") if where == "extension" else (b"", b"t:" + b"x" * (n - 2) + b"\r\n")
    c = router.client()
    c.send(b"POST /v1/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n%x;%s\r\n%s\r\n0\r\n%s\r\n"
           % (len(body), extension, body, trailer))
    r = c.answer()
    assert r.status == status
    if status == 400:
        check_error(r, 400, "bad_http")
        assert c.wait_closed() == b""


@pytest.mark.parametrize("framing", ["sized", "chunked"])
@pytest.mark.parametrize("n,status,code", [(1023, 404, "route_not_found"), (1024, 404, "route_not_found"),
                                           (1025, 400, "model_missing")])
def test_length_of_a_model_name(router, framing, n, status, code):
    c = router.client()
    body = json.dumps({"model": "x" * n}).encode()
    c.request(**({"body": body} if framing == "sized" else {"chunks": [body[:9], body[9:]]}))
    check_error(c.answer(), status, code)


@pytest.mark.parametrize("n,status", [(1023, 200), (1024, 200), (1025, 400)])
def test_depth_of_a_body(router, n, status):
    c = router.client()
    c.request(body=b'{"model":"m","deep":' + b"[" * (n - 1) + b"]" * (n - 1) + b"}")
    r = c.answer()
    assert r.status == status
    if status == 400:
        check_error(r, 400, "bad_json")


@pytest.mark.parametrize("n,status,code", [(HEAD - 1, 431, "head_too_large"), (HEAD, 431, "head_too_large"),
                                           (HEAD + 1, 414, "uri_too_long")])
def test_request_line_at_the_head_limit(router, n, status, code):
    """n bytes with CR LF. What has a whole first line is too large as a head, what has none as a target."""
    frame = b"POST /v1/ HTTP/1.1\r\n"
    c = router.client()
    c.send(b"POST /v1/" + b"x" * (n - len(frame)) + b" HTTP/1.1\r\nHost: a\r\n\r\n")
    check_error(c.answer(), status, code)
    assert c.wait_closed() == b""


def test_target_longer_than_the_head_limit(router):
    c = router.client()
    c.send(b"POST /v1/" + b"x" * (HEAD + 10))
    check_error(c.answer(), 414, "uri_too_long")


@pytest.mark.parametrize("framing", ["sized", "chunked"])
@pytest.mark.parametrize("delta,status", [(-1, 200), (0, 200), (1, 413)])
def test_body_limit(router, framing, delta, status):
    body = sized_body(BODY + delta)
    assert len(body) == BODY + delta
    c = router.client()
    if framing == "sized":
        c.request(body=body)
    else:
        c.request(chunks=[body[:1000], body[1000:]])
    r = c.answer()
    assert r.status == status
    if status == 413:
        check_error(r, 413, "body_too_large")


def test_body_limit_is_told_before_the_body_is_sent(router):
    """Expect: 100-continue with a body too large gets its 413 without a 100."""
    c = router.client()
    c.send(b"POST /v1/x HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % (BODY + 1))
    check_error(c.answer(), 413, "body_too_large")


def test_endless_chunked_body_is_stopped(router):
    c = router.client()
    c.send(b"POST /v1/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
    try:
        for _ in range(2000):
            c.send(b"400\r\n" + b"x" * 1024 + b"\r\n")
    except OSError:
        pass
    check_error(c.answer(), 413, "body_too_large")


def test_default_body_limit_takes_large_bodies(start):
    pod = start.pod(script=ok)
    router = start.router({"m": [pod]})
    for n in (1 << 20, (9 << 20) + 1):
        c = router.client()
        c.request(body=sized_body(n))
        assert c.answer().status == 200
        assert len(pod.requests[-1].body) == n


# ---- queue limits ----

def test_queue_bytes(start):
    pod = start.pod()
    router = start.router({"m": [pod]}, session_boost_inflight_per_pod=1, queue_max_bytes=15000)
    running = router.start_chat()
    held = pod.next()
    first = router.client()
    first.request(body=sized_body(10000))
    router.wait_queued(1)
    assert router.metric("kthena_router_queued_bytes") >= 10000
    second = router.client()
    second.request(body=sized_body(10000))
    refused = second.answer()
    check_error(refused, 429, "queue_bytes_full", "rate_limit_error", retry_after=True)
    assert refused.header("Connection") == "close"  # its body was not read
    assert second.wait_closed() == b""
    held.reply()
    pod.next().reply()
    assert running.answer().status == first.answer().status == 200
    assert router.metric("kthena_router_queued_bytes") == 0
    again = router.client()
    again.request(body=sized_body(10000))
    pod.next().reply()
    assert again.answer().status == 200


@pytest.mark.parametrize("framing", ["sized", "chunked"])
@pytest.mark.parametrize("delta,status", [(-1, 200), (0, 200), (1, 429)])
def test_queue_bytes_at_the_edge(start, framing, delta, status):
    pod = start.pod()
    router = start.router({"m": [pod]}, session_boost_inflight_per_pod=1, queue_max_bytes=12000)
    running = router.client()
    running.request(body=sized_body(5000))
    held = pod.next()
    body = sized_body(7000 + delta)
    c = router.client()
    c.request(**({"body": body} if framing == "sized" else {"chunks": [body[:3000], body[3000:]]}))
    if status == 200:
        router.wait_queued(1)
    else:
        check_error(c.answer(), 429, "queue_bytes_full", "rate_limit_error", retry_after=True)
    held.reply()
    assert running.answer().status == 200
    if status == 200:
        pod.next().reply()
        assert c.answer().status == 200
    assert router.metric("kthena_router_queued_bytes") == 0


def test_queue_full_counts_waiting_requests_only(start):
    pod = start.pod()
    router = start.router({"m": [pod], "other": [pod]}, session_boost_inflight_per_pod=2, queue_max_requests=2)
    clients = [router.start_chat() for _ in range(2)]
    held = [pod.next(), pod.next()]
    clients += [router.queue_chat(1), router.queue_chat(2)]
    refused = router.start_chat()
    check_error(refused.answer(), 429, "queue_full", "rate_limit_error", retry_after=True)
    clients.append(router.queue_chat(1, model="other"))  # per model
    for q in held:
        q.reply()
    for _ in range(3):
        pod.next().reply()
    assert [c.answer().status for c in clients] == [200] * 5


@pytest.mark.parametrize("strategy,served", [("none", 30), ("boost", 5), ("fairness", 5)])
def test_queue_full_only_when_somebody_has_to_wait(start, strategy, served):
    """So many at once that the router finds them all in one turn of its loop: who can go at once waits for nobody."""
    pod = start.pod()
    router = start.router({"m": [pod]}, boost=strategy == "boost", enable_fairness_scheduling=str(strategy == "fairness").lower(),
                          fairness_max_concurrent=1000, session_boost_inflight_per_pod=3, queue_max_requests=2)
    clients = [router.client() for _ in range(30)]
    router.wait_metric("kthena_router_downstream_connections", 30)
    router.signal(signal.SIGSTOP)
    for c in clients:
        c.chat()
    router.signal(signal.SIGCONT)
    for _ in range(served):
        pod.next().reply()
    assert sorted(c.answer().status for c in clients) == [200] * served + [429] * (30 - served)


# ---- time ----

def test_head_timeout(start):
    router = start.router({"m": [start.pod(script=ok)]}, client_header_timeout="200ms")
    begun = time.monotonic()
    c = router.client()
    c.send(b"POST /v1/x HTTP/1.1\r\nHost: a\r\n")
    r = c.answer()
    assert time.monotonic() - begun >= 0.19
    check_error(r, 408, "client_timeout")
    assert c.wait_closed() == b""


def test_head_timeout_is_not_pushed_out_by_a_trickle(start):
    router = start.router({"m": [start.pod(script=ok)]}, client_header_timeout="300ms")
    c = router.client()
    begun = time.monotonic()
    c.send(b"POST /v1/x HTTP/1.1\r\n")
    try:
        while time.monotonic() - begun < DEADLINE:
            c.send(b"X")
            if not c.silent_for(0.05):
                break
    except OSError:
        pass
    check_error(c.answer(), 408, "client_timeout")
    assert time.monotonic() - begun < DEADLINE


def test_time_in_which_the_router_stood_still_is_nobodys_fault(start):
    """What came meanwhile was in time."""
    pod, limit = start.pod(), 1 + 0.5 * SLOW
    router = start.router({"m": [pod]}, **dict.fromkeys(("client_body_timeout", "upstream_body_timeout"), "%dms" % (1000 * limit)))
    c = router.client()
    raw = c.request(body={"model": "m", "stream": True}, send=False)
    c.send(raw[:-1])
    router.wait_metric("kthena_router_active_requests", 1)

    def say_while_it_stands_still(say):
        router.signal(signal.SIGSTOP)
        say()
        time.sleep(limit + 0.5)
        router.signal(signal.SIGCONT)
    say_while_it_stands_still(lambda: c.send(raw[-1:]))
    q = pod.next().start().event("one")
    r = c.head()
    pieces = c.read_until(r, b"one\n\n")
    say_while_it_stands_still(lambda: q.event("[DONE]").end())
    list(pieces)
    assert r.status == 200 and r.clean


def test_body_timeout_is_between_bytes(start):
    pod = start.pod(script=ok)
    router = start.router({"m": [pod]}, client_body_timeout="1500ms")
    body = sized_body(30000)
    c = router.client()
    raw = c.request(body=body, send=False)
    cut = len(raw) - len(body)
    c.send(raw[:cut])
    for i in range(cut, len(raw), 4000):
        time.sleep(0.25)  # the client's pace: longer than the limit in all, far shorter between two pieces
        c.send(raw[i:i + 4000])
    assert c.answer().status == 200
    c.send(raw[:-3])
    check_error(c.answer(), 408, "client_timeout")
    assert c.wait_closed() == b""


@pytest.mark.parametrize("framing", [b"Content-Length: 10", b"Transfer-Encoding: chunked"])
def test_body_that_does_not_begin(start, framing):
    router = start.router({"m": [start.pod(script=ok)]}, client_body_timeout="200ms")
    c = router.client()
    begun = time.monotonic()
    c.send(b"POST /v1/x HTTP/1.1\r\nHost: a\r\n%s\r\n\r\n" % framing)
    check_error(c.answer(), 408, "client_timeout")
    assert time.monotonic() - begun >= 0.19
    assert c.wait_closed() == b""


@pytest.mark.parametrize("framing", ["sized", "chunked"])
def test_body_that_trickles_has_an_end(start, framing):
    """Never silent for CLIENT_BODY_TIMEOUT, and yet it ends."""
    router = start.router({"m": [start.pod(script=ok)]}, client_body_timeout="%dms" % (300 * SLOW))
    c = router.client()
    c.send(b"POST /v1/x HTTP/1.1\r\nHost: a\r\n%s\r\n\r\n" % (
        b"Content-Length: 100000" if framing == "sized" else b"Transfer-Encoding: chunked"))
    begun = time.monotonic()
    try:
        while c.silent_for(0.05):  # the client's pace
            c.send(b"x" if framing == "sized" else b"1\r\nx\r\n")
            assert time.monotonic() - begun < 3 * DEADLINE, "still read"
    except OSError:
        pass  # cut while it sent
    assert time.monotonic() - begun >= 0.3
    check_error(c.answer(), 408, "client_timeout")
    assert c.wait_closed() == b""


def test_idle_connections_are_closed_in_silence(start):
    router = start.router({"m": [start.pod(script=ok)]}, client_idle_timeout="1s")
    fresh, used = router.client(), router.client()
    begun = time.monotonic()
    used.chat()
    assert used.answer().status == 200
    assert used.wait_closed() == b""
    assert time.monotonic() - begun >= 0.99
    left = fresh.wait_closed()
    assert left == b"" or b" 408 " in left
    router.wait_metric("kthena_router_downstream_connections", 0)


def endless(q):
    q.raw(b"HTTP/1.1 200 OK\r\nContent-Type: x/y\r\nContent-Length: 200000000\r\n\r\n")
    for _ in range(2000):
        q.raw(b"x" * 100000)
    q.finish_raw(close=True)


def test_client_that_does_not_read_is_cut(start):
    router = start.router({"m": [start.pod(script=endless)]}, client_write_timeout="300ms")
    c = router.client(rcvbuf=8192)
    c.chat()
    c.head()
    entry = router.access(c.id)
    assert entry["error"]["type"] == "client_stalled" and entry["closed_by"].startswith("router:")
    router.wait_idle()


def test_slow_steady_reader_is_not_cut(start):
    size = 3_000_000
    pod = start.pod(script=lambda q: q.reply(body=b"y" * size))
    router = start.router({"m": [pod]}, client_write_timeout="1500ms")
    c = router.client(rcvbuf=4096)
    c.chat()
    r = c.head()
    begun, total = time.monotonic(), 0
    while time.monotonic() - begun < 3 and total < size // 2:
        total += len(c._body_piece(4000))
        time.sleep(0.02)  # the reader's pace
    while total < size:
        piece = c._body_piece(size - total)
        assert piece, "cut after %d bytes" % total
        total += len(piece)
    assert r.status == 200


def test_reader_that_takes_hardly_anything_is_cut(start):
    """The kernel says every 2 s that it took 1 KiB: that is some progress, and yet it ends."""
    router = start.router({"m": [start.pod(script=endless)]}, client_write_timeout="4s")
    c = router.client(rcvbuf=2304)
    c.chat()
    c.head()
    begun = time.monotonic()
    while not router.stdout.find(c.id):
        c.sock.recv(30)
        time.sleep(0.05)  # the reader's pace
        assert time.monotonic() - begun < 3 * DEADLINE, "still served"
    assert router.access(c.id)["error"]["type"] == "client_stalled"
    router.wait_idle()


def forever(framing):
    """A pod that sends as long as somebody takes it; `bytes` = one byte in each chunk."""
    head, piece = {"sized": (b"Content-Length: 1000000000\r\n", b"x" * 65536),
                   "chunked": (b"Transfer-Encoding: chunked\r\n", b"8000\r\n" + b"x" * 0x8000 + b"\r\n"),
                   "bytes": (b"Transfer-Encoding: chunked\r\n", b"1\r\nx\r\n" * 10000),
                   "until close": (b"Connection: close\r\n", b"x" * 65536)}[framing]

    def script(q):
        q.raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n%s\r\n" % head)
        for _ in range(500):
            q.raw(piece)
        q.finish_raw(close=True)
    return script


@pytest.mark.parametrize("framing", ["sized", "chunked", "bytes", "until close"])
def test_slow_readers_hold_less_than_a_mib_each(start, framing):
    readers = 30
    router = start.router({"m": [start.pod(script=forever(framing))]}, session_boost_inflight_per_pod=readers,
                          env={"ASAN_OPTIONS": "quarantine_size_mb=1"})
    router.get("/healthz")
    before, grown = router.rss_bytes(), []
    clients = [router.client(rcvbuf=4096) for _ in range(readers)]
    for c in clients:
        c.chat(stream=True)
    for c in clients:
        c.head()

    def settled():
        grown.append(router.rss_bytes() - before)
        return max(grown) >= readers * 1024 * 1024 or (len(grown) > 130 and max(grown[-125:]) <= max(grown[:-125]))
    wait_until(settled, "the memory to stand still, or to be too much", 6 * DEADLINE)
    assert max(grown) < readers * 1024 * 1024, max(grown) // readers
    for c in clients:
        c.rst()
    router.wait_idle()


# ---- connections ----

def test_max_connections_pauses_accepting(start):
    router = start.router({"m": [start.pod(script=ok)]}, max_connections=4, wait=False)
    clients = [router.client() for _ in range(4)]
    for c in clients:
        c.chat()
        assert c.answer().status == 200
    assert router.metric("kthena_router_downstream_connections") == 4
    late = router.client()
    late.chat()
    assert late.silent_for(0.2)
    clients[0].close()
    assert late.answer().status == 200


def test_many_idle_connections(start):
    router = start.router({"m": [start.pod(script=ok)]})
    clients = [router.client() for _ in range(500)]
    router.wait_metric("kthena_router_downstream_connections", 500)
    assert router.chat().status == 200
    for c in clients:
        c.close()
    wait_until(lambda: router.metric("kthena_router_downstream_connections") == 0, "connections to be gone")


def times_asleep(router):
    with open("/proc/%d/status" % router.pid, encoding="ascii") as f:
        return int(next(line for line in f if line.startswith("voluntary_ctxt_switches")).split()[1])


def test_an_idle_router_sleeps(start):
    """Limits are pending on a connection, but none is near: nothing wakes it up but its scrapes (here one in the whole time)."""
    router = start.router({"m": [start.pod(script=ok)]}, metrics_scrape_interval="60s")
    client = router.client()
    client.chat()
    assert client.answer().status == 200
    time.sleep(0.3)  # what the request left: its log lines
    before = times_asleep(router)
    time.sleep(1.5)
    assert times_asleep(router) - before < 15


def test_few_descriptors(start):
    """MAX_CONNECTIONS follows RLIMIT_NOFILE: too many clients wait, pods and metrics can still be reached."""
    router = start.router({"m": [start.pod(script=ok)]}, nofile=256)
    clients = [router.client() for _ in range(300)]
    wait_until(lambda: router.metric("kthena_router_downstream_connections") > 20, "connections")
    clients[0].chat()
    assert clients[0].answer().status == 200
    assert 20 < router.metric("kthena_router_downstream_connections") < 128
    clients[-1].chat()
    for c in clients[:-1]:
        c.close()
    assert clients[-1].answer().status == 200


def test_idle_connections_make_room_for_needed_ones(start):
    """40 connections to one model's pod lie idle when 40 requests for another model come: 128 descriptors are not enough for
    both and the clients."""
    a, b = start.pod(), start.pod()
    router = start.router({"a": [a], "b": [b]}, nofile=128, session_boost_inflight_per_pod=100, upstream_keepalive="60s")
    clients = [router.client() for _ in range(40)]
    for model, pod in (("a", a), ("b", b)):
        for c in clients:
            c.chat(model=model)
        held = [pod.next() for _ in clients]
        for q in held:
            q.reply()
        assert [c.answer().status for c in clients] == [200] * 40
    assert router.metrics().get("process_open_fds") < 128


def test_kept_connection_takes_the_limit_of_a_reload(start):
    """Its buffers were made for smaller heads."""
    pod = start.pod(script=ok)
    ini = "[router]\nmax_header_bytes = %s\n[model-server s]\npods = " + pod.authority + "\n[model-route m]\ntarget = s\n"
    router = start.router(ini=ini % "1KiB")
    c = router.client()
    c.chat()
    assert c.answer().status == 200
    router.write_ini(ini % "2MiB")
    router.signal(signal.SIGHUP)
    router.wait_metric("kthena_router_config_reloads_total", 1, result="ok")
    fields = [("X-%d" % i, ("%d-" % i) * 8000) for i in range(60)]
    raw = c.request(body={"model": "m"}, headers=fields, send=False)
    for at in range(0, len(raw), 50000):
        c.send(raw[at:at + 50000])
    assert len(raw) > 1000000 and c.answer().status == 200
    got = pod.requests[-1]
    assert [got.header(name) for name, _ in fields] == [value for _, value in fields]
    # The same on the way back.
    pod.script = lambda q: q.reply(headers=fields)
    c.chat()
    r = c.answer()
    assert r.status == 200 and [r.header(name) for name, _ in fields] == [value for _, value in fields]
