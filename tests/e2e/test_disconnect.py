"""A client that goes away, by FIN or RST, in every state of its request."""

import threading
import time

import pytest

from test_retry import INI_NO_SCRAPE, BlackHole
from waiting import DEADLINE, SLOW, wait_until

LEAVE = ["fin", "rst", "close"]


def leave(client, how):
    at = time.monotonic()
    getattr(client, how)()
    return at


def aborts(router, phase=None):
    m = router.metrics()
    return m.total("kthena_router_client_aborts_total", **({"phase": phase} if phase else {}))


def wait_aborts(router, n):
    wait_until(lambda: aborts(router) == n, "%d client aborts" % n)


@pytest.mark.parametrize("how", LEAVE)
def test_while_reading_head(start, how):
    router = start.router({"m": [start.pod()]})
    c = router.client()
    c.send(b"POST /v1/x HTTP/1.1\r\nHost")
    router.wait_metric("kthena_router_downstream_connections", 1)
    leave(c, how)
    router.wait_metric("kthena_router_downstream_connections", 0)


@pytest.mark.parametrize("how", LEAVE)
def test_while_reading_body(start, how):
    pod = start.pod()
    router = start.router({"m": [pod]})
    c = router.client()
    c.send(b"POST /v1/x HTTP/1.1\r\nHost: a\r\nX-Request-ID: rb\r\nContent-Length: 100\r\n\r\n{\"model\":")
    router.wait_metric("kthena_router_active_requests", 1)
    leave(c, how)
    router.wait_metric("kthena_router_active_requests", 0)
    entry = router.access("rb")
    assert entry["error"]["type"] == "client_gone" and entry["closed_by"].startswith("client:")
    wait_aborts(router, 1)
    assert pod.requests == []


@pytest.mark.parametrize("how", LEAVE)
def test_while_queued(start, how):
    pod = start.pod()
    router = start.router({"m": [pod]}, session_boost_inflight_per_pod=1)
    running = router.start_chat()
    held = pod.next()
    gone = router.queue_chat(1, session="s", tag="gone")
    stays = router.queue_chat(2, tag="stays")
    at = leave(gone, how)
    router.wait_queued(1)
    assert time.monotonic() - at < 0.1 * SLOW + 0.1
    held.reply()
    q = pod.next()
    assert q.tag == "stays"
    q.reply()
    assert running.answer().status == stays.answer().status == 200
    assert len(pod.requests) == 2
    assert router.metric("kthena_router_session_boost_queue_cancelled_total", model="m") == 1
    entry = router.access(gone.id)
    assert entry["error"]["type"] == "client_gone" and entry["closed_by"].startswith("client:")
    assert router.stderr.wait_for_line(r"session boost.*session=s\b.*")


@pytest.mark.parametrize("how", LEAVE)
def test_while_connecting(start, how):
    hole = BlackHole()
    router = start.router(ini=INI_NO_SCRAPE % hole.authority, upstream_connect_timeout="20s")
    c = router.start_chat()
    router.wait_metric("kthena_router_pod_inflight_requests", 1, pod=hole.authority)
    leave(c, how)
    router.wait_metric("kthena_router_pod_inflight_requests", 0, pod=hole.authority)
    assert router.access(c.id)["error"]["type"] == "client_gone"
    hole.close()


@pytest.mark.parametrize("how", LEAVE)
def test_while_the_pod_works(start, how):
    pod = start.pod()
    router = start.router({"m": [pod]})
    c = router.start_chat(session="s")
    q = pod.next()
    at = leave(c, how)
    assert q.wait_gone() - at < 0.1 * SLOW
    router.wait_metric("kthena_router_pod_inflight_requests", 0, pod=pod.authority)
    wait_aborts(router, 1)
    entry = router.access(c.id)
    assert entry["error"]["type"] == "client_gone" and entry["closed_by"].startswith("client:") and entry["status_code"] in (0, 499)
    # Not marked: the next turn is not boosted.
    c = router.start_chat(session="s")
    pod.next().reply()
    assert c.answer().status == 200 and router.access(c.id)["boosted"] is False


@pytest.mark.parametrize("how", LEAVE)
@pytest.mark.parametrize("silent", [False, True])
def test_while_streaming(start, how, silent):
    pod = start.pod()
    router = start.router({"m": [pod]})
    c = router.start_chat(session="s", stream=True)
    q = pod.next()
    q.start().event("one")
    r = c.head()
    c.read_until(r, b"one\n\n")
    at = leave(c, how)
    if not silent:
        q.event("two")
    assert q.wait_gone() - at < 0.1 * SLOW
    entry = router.access(c.id)
    assert entry["error"]["type"] == "client_gone" and entry["closed_by"].startswith("client:") and entry["status_code"] in (200, 499)
    router.wait_idle()
    c = router.start_chat(session="s")
    pod.next().reply()
    assert c.answer().status == 200 and router.access(c.id)["boosted"] is False


@pytest.mark.parametrize("how", LEAVE)
def test_slot_is_free_before_the_pod_looks(start, how):
    """Its next request is not one too many: the one before was cut, which a busy pod sees later."""
    busy = threading.Event()
    pod = start.pod(script=lambda q: busy.wait(DEADLINE) if q.number == 0 else q.reply())
    router = start.router({"m": [pod]}, session_boost_inflight_per_pod=1)
    gone = router.start_chat()
    pod.wait_requests(1)
    stays = router.queue_chat(1)
    leave(gone, how)
    assert stays.answer().status == 200
    assert pod.peak == 1
    busy.set()


def test_cancelled_connections_are_not_reused(start):
    pod = start.pod()
    router = start.router({"m": [pod]})
    for _ in range(5):
        c = router.start_chat()
        q = pod.next()
        c.rst()
        q.wait_gone()
        assert not q.conn.requests > 1
    c = router.start_chat()
    pod.next().reply()
    assert c.answer().status == 200


def test_many_random_departures(start):
    """Clients leave at any moment; afterwards every counter is zero and the pod never had more than its share."""
    import random
    rng = random.Random(7)
    pod = start.pod(script=lambda q: q.reply() if q.number % 3 else q.sse("a", "b"))
    router = start.router({"m": [pod]}, session_boost_inflight_per_pod=3)
    for batch in range(20):
        clients = [router.start_chat(session="s%d" % rng.randrange(8), stream=rng.random() < 0.5) for _ in range(15)]
        rng.shuffle(clients)
        for c in clients:
            if rng.random() < 0.6:
                leave(c, rng.choice(LEAVE))
            else:
                assert c.answer().status == 200
        router.clients.clear()
    router.wait_idle()
    assert router.metric("kthena_router_pod_inflight_requests", pod=pod.authority) == 0
    assert pod.peak <= 3


def test_pipelined_bytes_are_no_departure(start):
    """More requests behind the running one are no reason to stop it."""
    pod = start.pod()
    router = start.router({"m": [pod]})
    c = router.start_chat(tag=1)
    q = pod.next()
    c.chat(tag=2)
    q.reply(body=b"one")
    assert c.answer().body == b"one"
    pod.next().reply(body=b"two")
    assert c.answer().body == b"two"


@pytest.mark.parametrize("end", ["fin", "rst"])
def test_departure_behind_many_pipelined_bytes(start, end):
    """The router stops reading ahead, and still sees the client go."""
    pod = start.pod()
    router = start.router({"m": [pod]}, session_boost_inflight_per_pod=1)
    running = router.start_chat()
    held = pod.next()
    c = router.queue_chat(1)
    c.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 90000)
    getattr(c, end)()
    wait_until(lambda: router.queue_len() == 0, "the queue is empty", timeout=0.5 * SLOW)
    held.reply()
    assert running.answer().status == 200
