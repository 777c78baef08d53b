"""SIGTERM: everything that was accepted is served, within limits."""

import os
import signal
import socket
import subprocess
import time

import pytest

from client import Cut
from pod import ok
from waiting import DEADLINE, ROUTER_BIN, SLOW, wait_until


def pair(start, **options):
    pod = start.pod()
    return pod, start.router({"m": [pod]}, session_boost_inflight_per_pod=1, **options)


def test_idle_router_ends_soon(start):
    _, router = pair(start)
    idle = router.client()
    idle.request("GET", "/healthz")
    idle.answer()
    begun = time.monotonic()
    router.signal(signal.SIGTERM)
    assert router.wait_exit() == 0
    assert time.monotonic() - begun < 1.0 * SLOW
    assert idle.wait_closed() == b""


def test_sigint_is_the_same(start):
    _, router = pair(start)
    router.signal(signal.SIGINT)
    assert router.wait_exit() == 0


def test_running_and_queued_requests_are_served(start):
    pod, router = pair(start)
    running = router.start_chat(stream=True, session="s")
    q = pod.next()
    q.start().event("one")
    queued = router.queue_chat(1)
    router.signal(signal.SIGTERM)
    router.stderr.wait_for_line("(?i)drain|shut")
    q.event("two").event("[DONE]").end()
    r = running.answer()
    assert r.clean and b"two" in r.body
    pod.next().reply(body=b"queued one")
    assert queued.answer().body == b"queued one"
    assert router.wait_exit() == 0


def test_answers_while_draining_close_their_connections(start):
    pod, router = pair(start)
    c = router.start_chat()
    q = pod.next()
    router.signal(signal.SIGTERM)
    router.stderr.wait_for_line("(?i)drain|shut")
    q.reply()
    r = c.answer()
    assert r.status == 200 and (r.header("Connection") or "").lower() == "close"
    assert router.wait_exit() == 0
    assert c.wait_closed() == b""


@pytest.mark.parametrize("closed", ["at once", "later"])
def test_requests_that_have_arrived_are_served(start, closed):
    """The router does not run while they arrive, until the port is to close: one on an idle connection, others on connections
    that were not accepted yet."""
    pod = start.pod(script=ok)
    delay = 0 if closed == "at once" else 1.0 * SLOW
    router = start.router({"m": [pod]}, drain_delay="%dms" % (1000 * delay))
    kept = router.client()
    assert kept.chat().answer().status == 200
    if delay:
        router.signal(signal.SIGTERM)
        router.stderr.wait_for_line("draining")
    router.signal(signal.SIGSTOP)
    kept.chat()
    fresh = [router.client().chat() for _ in range(150)]  # more than are accepted in one turn
    if delay:
        time.sleep(delay)  # its end comes with the next turn
    else:
        router.signal(signal.SIGTERM)
    router.signal(signal.SIGCONT)
    for c in [kept, *fresh]:
        r = c.answer()
        assert r.status == 200 and r.header("Connection") == "close" and c.wait_closed() == b""
    assert router.wait_exit() == 0
    assert router.stderr.find("stopped requests_cut=0")


def test_what_has_arrived_when_an_idle_connection_is_to_close(start):
    pod = start.pod(script=ok)
    router = start.router({"m": [pod]})
    clients = [router.client(), router.client()]
    assert clients[0].chat().answer().status == 200
    router.wait_metric("kthena_router_downstream_connections", 2)
    router.signal(signal.SIGTERM)
    router.stderr.wait_for_line("draining")
    router.signal(signal.SIGSTOP)
    for c in clients:
        c.chat()
    time.sleep(0.7)  # longer than idle connections have
    router.signal(signal.SIGCONT)
    assert all(c.answer().header("Connection") == "close" for c in clients)
    assert router.wait_exit() == 0


def test_answers_in_the_delay_close_their_connections(start):
    """A client of a kept connection learns from an answer that it has to go elsewhere, and never from a reset."""
    pod = start.pod(script=ok)
    router = start.router({"m": [pod]}, drain_delay="60s")
    kept, probe = router.client(), router.client()
    assert kept.chat().answer().header("Connection") != "close"
    probe.request("GET", "/healthz").answer()
    router.signal(signal.SIGTERM)
    router.stderr.wait_for_line("draining")
    for c, r in ((kept, kept.chat().answer()), (probe, probe.request("GET", "/healthz").answer())):
        assert r.status == 200 and r.header("Connection") == "close"
        assert c.wait_closed() == b""
    assert router.chat().header("Connection") == "close"
    router.signal(signal.SIGTERM)
    assert router.wait_exit() == 0


@pytest.mark.parametrize("ahead", [False, True])
def test_a_promised_connection_is_kept_for_one_more_request(start, ahead):
    """The answer began before the drain and did not say that the connection closes. The next request comes at its end, or ahead."""
    pod, router = pair(start)
    c = router.start_chat(stream=True)
    q = pod.next().start()
    q.event("one")
    r = c.head()
    pieces = c.read_until(r, b"one")
    if ahead:
        c.chat()
    router.signal(signal.SIGTERM)
    router.stderr.wait_for_line("draining")
    q.event("[DONE]").end()
    list(pieces)
    assert r.clean and r.header("Connection") != "close"
    if not ahead:
        c.chat()
    pod.next().reply()
    r = c.answer()
    assert r.status == 200 and r.header("Connection") == "close"
    assert router.wait_exit() == 0


def test_idle_connections_have_a_moment(start):
    """For a request that is on its way, on a connection that was kept or is new."""
    pod = start.pod(script=ok)
    router = start.router({"m": [pod]})
    silent, late, kept = (router.client() for _ in range(3))
    assert kept.chat().answer().status == 200
    router.wait_metric("kthena_router_downstream_connections", 3)
    router.signal(signal.SIGTERM)
    router.stderr.wait_for_line("draining")
    assert late.silent_for(0.1)
    for c in (late, kept):
        assert c.chat().answer().header("Connection") == "close"
    begun = time.monotonic()
    assert router.wait_exit() == 0
    assert time.monotonic() - begun < 1.0 * SLOW
    assert silent.wait_closed() == b""


def test_not_ready_while_draining(start):
    pod, router = pair(start, drain_delay="%ds" % (2 * SLOW))
    probe = router.client()
    probe.request("GET", "/readyz")
    assert probe.answer().status == 200
    c = router.start_chat()
    q = pod.next()
    router.signal(signal.SIGTERM)
    wait_until(lambda: router.get("/readyz").status == 503, "not ready")
    assert router.get("/readyz").json() == {"message": "router is not ready"}
    assert router.get("/healthz").status == 200
    # During the delay new requests are still taken.
    late = router.queue_chat(1)
    q.reply()
    pod.next().reply()
    assert c.answer().status == late.answer().status == 200
    assert router.metric("kthena_router_draining") == 1
    assert router.wait_exit(20 * SLOW) == 0


def test_drain_timeout_cuts_and_counts(start):
    pod, router = pair(start, drain_timeout="300ms")
    running = router.start_chat(stream=True)
    q = pod.next()
    q.start().event("one")
    queued = router.queue_chat(1)
    begun = time.monotonic()
    router.signal(signal.SIGTERM)
    assert router.wait_exit() == 0
    assert 0.29 <= time.monotonic() - begun < 2 * SLOW
    try:
        r = running.read_cut()
        assert b"one" in r.body
    except Cut:
        pass
    try:
        assert queued.answer().status == 503
    except Cut:
        pass
    line = router.stderr.find(r"(?i)(cut|drain).*\b2\b")
    assert line, router.stderr.lines[-5:]


def test_second_signal_ends_at_once(start):
    pod, router = pair(start, drain_timeout="60s")
    router.start_chat()
    pod.next()
    router.signal(signal.SIGTERM)
    router.stderr.wait_for_line("(?i)drain|shut")
    begun = time.monotonic()
    router.signal(signal.SIGTERM)
    router.wait_exit()
    assert time.monotonic() - begun < 1.0 * SLOW


def test_hundred_idle_connections_do_not_hold_it_up(start):
    pod = start.pod(script=ok)
    router = start.router({"m": [pod]})
    clients = [router.client() for _ in range(100)]
    for c in clients:
        c.chat()
        assert c.answer().status == 200
    router.signal(signal.SIGTERM)
    assert router.wait_exit() == 0
    assert all(c.wait_closed() == b"" for c in clients)


def test_closed_standard_descriptors_are_no_sockets(start):
    """Without stdout and stderr the next socket would get their numbers, and log lines would go to a client."""
    pod = start.pod(script=ok)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    env = {"ROUTER_BIND": "127.0.0.1", "ROUTER_PORT": str(port), "ROUTER_METRICS_PORT": "0", "ROUTER_DEBUG_PORT": "0",
           "ENABLE_SESSION_BOOST": "true", "ROUTER_BACKENDS": "m=%s" % pod.authority}
    process = subprocess.Popen([ROUTER_BIN], env=env, preexec_fn=lambda: os.closerange(0, 3))
    try:
        def reachable():
            try:
                return socket.create_connection(("127.0.0.1", port))
            except ConnectionRefusedError:
                return None
        sock = wait_until(reachable, "the router")
        body = b'{"model":"m"}'
        sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Session-ID: s\r\nConnection: close\r\n"
                     b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        answer = b"".join(iter(lambda: sock.recv(65536), b""))
        assert answer.startswith(b"HTTP/1.1 200 ") and b"session boost" not in answer
    finally:
        process.terminate()
    assert process.wait(DEADLINE) == 0


def test_second_signal_inside_the_delay_starts_nothing_new(start):
    """Pipelined requests behind the ones that are cut are not begun any more."""
    pod, router = pair(start, drain_delay="60s")
    clients = [router.client() for _ in range(3)]
    for c in clients:
        for _ in range(3):
            c.chat(session="s")
    pod.next()
    router.wait_queued(2)
    router.signal(signal.SIGTERM)
    router.stderr.wait_for_line("draining")
    router.signal(signal.SIGTERM)
    assert router.wait_exit() == 0
    router.stderr.join(DEADLINE)
    [stopped] = router.stderr.all("stopped")
    assert "requests_cut=3" in stopped
    assert not router.stderr.all("session boost", start=router.stderr.lines.index(stopped))
