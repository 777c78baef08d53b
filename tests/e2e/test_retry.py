"""When a request is sent again, and when never."""

import socket
import threading
import time

import pytest

from pod import ok
from test_errors import check_error
from waiting import SLOW, wait_until


class BlackHole:
    """An address that neither accepts nor refuses: a listener whose backlog is full."""

    def __init__(self):
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(0)
        self.authority = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.fillers = []
        while True:
            s = socket.socket()
            s.settimeout(0.15)
            self.fillers.append(s)
            try:
                s.connect(self.listener.getsockname())
            except (socket.timeout, BlockingIOError):
                return

    def close(self):
        for s in [*self.fillers, self.listener]:
            s.close()


INI_NO_SCRAPE = """
[model-server s]
pods = %s
engine = none
[model-route m]
target = s
"""


def test_refused_connection_goes_to_the_other_pod(start):
    dead, live = start.pod(listen=False), start.pod(script=ok)
    router = start.router({"m": [dead, live]})
    answers = [router.chat(stream=True) for _ in range(20)]
    assert [a.status for a in answers] == [200] * 20
    assert len(live.requests) == 20


@pytest.mark.parametrize("dead_host,live_host", [("127.0.0.1", "localhost"), ("localhost", "127.0.0.1")])
@pytest.mark.parametrize("pad", [0, 15000, 20000])
def test_head_is_made_anew_for_the_other_pod(start, dead_host, live_host, pad):
    """Its Host is longer, or shorter; the body stands behind the head, or elsewhere."""
    dead, live = start.pod(listen=False), start.pod(script=ok)
    pods = "%s:%d, %s:%d" % (dead_host, dead.port, live_host, live.port)
    router = start.router(ini=INI_NO_SCRAPE % (pods + "\nmodel = served/name"))
    for _ in range(6):
        body = {"model": "m", "pad": "x" * pad}
        assert router.client().request(body=body, headers=[("X-Kept", "yes")]).answer().status == 200
        q = live.requests[-1]
        assert (q.method, q.path, q.version) == ("POST", "/v1/chat/completions", "HTTP/1.1")
        assert q.header("X-Kept") == "yes" and int(q.header("Content-Length")) == len(q.body)
        assert q.header("Host") == "%s:%d" % (live_host, live.port)
        assert q.json() == {"model": "served/name", "pad": "x" * pad}
    assert router.metrics().total("kthena_router_upstream_connect_failures_total") > 0


def test_black_hole_is_left_after_the_connect_timeout(start):
    hole, live = BlackHole(), start.pod(script=ok)
    router = start.router(ini=INI_NO_SCRAPE % ("%s, %s" % (hole.authority, live.authority)), upstream_connect_timeout="200ms")
    begun = time.monotonic()
    clients = [router.start_chat() for _ in range(30)]
    assert [c.answer().status for c in clients] == [200] * 30
    assert time.monotonic() - begun < 3 * SLOW
    hole.close()


def test_request_id_and_body_are_the_same_on_the_second_attempt(start):
    pod = start.pod(script=ok)
    router = start.router({"m": [pod]})
    router.chat()
    seen = []

    def close_reused(conn):
        if conn.requests == 0 or seen:
            return False
        seen.append(conn.sock.recv(65536))
        return True
    pod.close_reused = close_reused
    r = router.chat(tag="again")
    assert r.status == 200
    assert ("X-Request-ID: %s" % r.id).encode().lower() in seen[0].lower()
    assert pod.requests[-1].header("X-Request-ID") == r.id and seen[0].endswith(pod.requests[-1].body)


def test_stale_connections_200_times(start):
    """A kept connection that dies when it is used again: the client never notices, and the pod works once for each request."""
    pod = start.pod(script=ok)
    router = start.router({"m": [pod]})
    deaths = []

    def close_reused(conn):
        if conn.requests == 0:
            return False
        deaths.append(conn)
        if len(deaths) % 2:
            conn.sock.recv(65536)  # FIN after the bytes were taken; otherwise RST, they were not
        return True
    pod.close_reused = close_reused
    c = router.client()
    ids = []
    for i in range(200):
        c.chat(tag=i, pad="x" * (100000 if i % 50 == 7 else 10))
        r = c.answer()
        assert r.status == 200, (i, r)
        ids.append(c.id)
    processed = [q.header("X-Request-ID") for q in pod.requests]
    assert processed == ids
    retries = router.metric("kthena_router_upstream_stale_retries_total", pod=pod.authority)
    assert retries == len(deaths) > 0


def test_pod_that_closes_idle_connections(start):
    """The race itself: the pod closes at about the moment the next request is sent."""
    pod = start.pod(script=lambda q: q.reply(close=False))
    router = start.router({"m": [pod]})
    c = router.client()
    for i in range(200):
        c.chat()
        assert c.answer().status == 200, i
        conn = pod.requests[-1].conn
        threading.Timer(0.0005 * (i % 5), conn.drop, args=(i % 2 == 0,)).start()
    assert len(pod.requests) >= 200


def test_no_retry_after_a_fresh_connection_died(start):
    pod, other = start.pod(), start.pod()
    router = start.router({"m": [pod, other]})
    for end in ("reset", "close"):
        for p in (pod, other):
            p.refused = len(p.requests)
        c = router.start_chat()
        wait_until(lambda: not pod.nothing_held() or not other.nothing_held(), "the request")
        p = other if pod.nothing_held() else pod
        getattr(p.next(), end)()
        check_error(c.answer(), 502, "pod_reset", "server_error")
        assert router.access(c.id)["upstream_attempts"] == 1
    assert len(pod.requests) + len(other.requests) == 2


def test_no_second_retry_on_a_dead_connection(start):
    """The second, fresh connection dies too: 502, no third one."""
    pod = start.pod(script=ok)
    router = start.router({"m": [pod]})
    router.chat()
    pod.script = lambda q: q.close()
    before = len(pod.requests)
    pod.close_reused = lambda conn: conn.requests > 0
    r = router.chat()
    assert r.status == 502 and len(pod.requests) == before + 1


def test_no_retry_once_answer_bytes_came(start):
    pod = start.pod(script=ok)
    router = start.router({"m": [pod]})
    router.chat()  # a connection to reuse
    pod.script = None
    c = router.start_chat()
    q = pod.next()
    q.raw(b"HTTP/1.1 200 OK\r\nContent-Le")
    q.close()
    assert c.answer().status == 502
    assert len(pod.requests) == 2


def test_set_aside_after_three_failures_and_back(start):
    bad, good = start.pod(listen=False), start.pod(script=ok)
    router = start.router(ini=INI_NO_SCRAPE % ("%s, %s" % (bad.authority, good.authority)))
    entries = []
    for _ in range(12):
        r = router.chat()
        assert r.status == 200
        entries.append(router.access(r.id))
    assert sum(e["upstream_attempts"] - 1 for e in entries) == 3
    assert router.metric("kthena_router_upstream_connect_failures_total", pod=bad.authority) == 3
    assert router.metric("kthena_router_pod_set_aside", pod=bad.authority) == 1
    bad.script = ok
    bad.listen()
    router.wait_metric("kthena_router_pod_set_aside", 0, pod=bad.authority)
    wait_until(lambda: router.chat().status == 200 and bad.requests, "the pod to be used again")


def test_never_all_are_set_aside(start):
    pods = [start.pod(listen=False) for _ in range(2)]
    router = start.router(ini=INI_NO_SCRAPE % ", ".join(p.authority for p in pods))
    for _ in range(10):
        begun = time.monotonic()
        assert router.chat().status == 503
        assert time.monotonic() - begun < 1.0 * SLOW
    assert all(router.metric("kthena_router_pod_set_aside", pod=p.authority) == 1 for p in pods)  # for models with others
    pods[0].script = ok
    pods[0].listen()
    assert router.chat().status == 200  # tried at once: no pause, since there is nothing else


def test_at_most_three_attempts(start):
    dead = [start.pod(listen=False) for _ in range(5)]
    router = start.router(ini=INI_NO_SCRAPE % ", ".join(p.authority for p in dead))
    r = router.chat()
    assert r.status == 503
    assert router.access(r.id)["upstream_attempts"] == 3


def test_failed_connect_waits_for_a_full_pod(start):
    """Every untried pod is full: the request goes back to the queue, in front, and is served by the next free slot."""
    bad, good = start.pod(listen=False), start.pod()
    router = start.router(ini=INI_NO_SCRAPE % ("%s, %s" % (bad.authority, good.authority)), session_boost_inflight_per_pod=1)
    blocker = router.start_chat(tag="blocker")
    held = good.next()
    late = router.start_chat(tag="late")
    router.wait_metric("kthena_router_upstream_connect_failures_total", lambda n: n >= 1, pod=bad.authority)
    router.wait_queued(1)
    held.reply()
    q = good.next()
    assert q.tag == "late"
    q.reply()
    assert blocker.answer().status == late.answer().status == 200
