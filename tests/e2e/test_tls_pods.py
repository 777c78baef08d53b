"""Pods that speak TLS: `protocol = https` of a model-server."""

import os
import signal
import socket
import time

import pytest

from certs import Authority
from daemon import run_router
from pod import ok
from tlsfront import Front
from waiting import SLOW, wait_until


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    a = Authority(tmp_path_factory.mktemp("ca"))
    a.ip = a.issue("ip", "IP:127.0.0.1")
    a.name = a.issue("name", "DNS:chat-pods.llm.svc,DNS:localhost")
    a.other = Authority(tmp_path_factory.mktemp("other"))
    return a


@pytest.fixture
def fronts():
    made = []
    yield lambda *args, **options: made.append(Front(*args, **options)) or made[-1]
    for f in made:
        f.stop()


def ini(places, more=""):
    return "[model-server s]\n%s\nprotocol = https\n%s\n[model-route m]\ntarget = s\n" % (places, more)


def secure(start, fronts, authority, files=None, script=None, more="", front=None, **options):
    pod = start.pod(script)
    f = fronts(pod, files or authority.ip, **(front or {}))
    options.setdefault("upstream_tls_ca", authority.file)
    router = start.router(ini=ini("pods = " + f.authority, more), **options)
    return pod, f, router


def test_turns_share_a_connection_and_metrics_come_the_same_way(start, fronts, authority):
    pod, front, router = secure(start, fronts, authority, script=ok)
    router.wait_metric("kthena_router_pod_metrics_stale", 0.0, pod=front.authority)
    assert pod.scrapes > 0
    for _ in range(5):
        assert router.chat(session="s").body == b'{"ok":true}'
    assert len({r.conn.number for r in pod.requests}) == 1
    assert pod.requests[0].header("Host") == front.authority
    assert "http/1.1" in front.protocols and "h2" not in front.protocols
    assert front.names[0] is None, "an address is no name for SNI"
    assert router.dump("modelservers")["modelservers"][0]["spec"]["protocol"] == "https"


def test_large_bodies_both_ways_and_slow_readers(start, fronts, authority):
    pod, _, router = secure(start, fronts, authority, front={"slow": True})
    body = os.urandom(1 << 20).hex()
    c = router.client(rcvbuf=8192)
    c.chat(pad=body)
    q = pod.next()
    assert q.json()["pad"] == body
    q.start(content_type="application/json")
    for i in range(64):
        q.chunk(b"%d:" % i + body[:50000].encode())
    q.end()
    r = c.head()
    time.sleep(0.1)  # the router stops reading from the pod
    c.body(r)
    assert r.body == b"".join(b"%d:" % i + body[:50000].encode() for i in range(64))


def test_events_come_one_by_one(start, fronts, authority):
    pod, _, router = secure(start, fronts, authority)
    c = router.start_chat(stream=True)
    pod.next().stream_to(c, 10)


@pytest.mark.parametrize("places, more", [("pods = 127.0.0.1:%d", "tls_name = chat-pods.llm.svc"), ("pods = localhost:%d", ""),
                                          ("dns = localhost:%d", "")])
def test_the_name_in_the_certificate(start, fronts, authority, places, more):
    pod = start.pod(ok)
    front = fronts(pod, authority.name)
    router = start.router(ini=ini(places % front.port, more), upstream_tls_ca=authority.file)
    assert router.chat().status == 200
    wait_until(lambda: pod.scrapes, "metrics over TLS")
    assert set(front.names) == {"chat-pods.llm.svc" if more else "localhost"}


def refused(router, front, text):
    r = router.chat()
    assert r.status == 503 and r.json()["error"]["code"] == "connect_failed"
    assert router.stderr.wait_for_line("cannot connect to a pod.*%s" % text)
    assert router.metric("kthena_router_upstream_connect_failures_total", pod=front.authority) >= 1


def test_another_name_is_refused(start, fronts, authority):
    pod, front, router = secure(start, fronts, authority, files=authority.name)
    refused(router, front, "IP address mismatch")
    assert not pod.requests and not pod.scrapes
    assert router.stderr.wait_for_line("cannot read a pod's metrics.*(SSL|cert)")


def test_another_dns_name_is_refused(start, fronts, authority):
    pod, front, router = secure(start, fronts, authority, files=authority.name, more="tls_name = pods.llm.svc")
    refused(router, front, "[Hh]ostname mismatch")
    assert not pod.requests and not pod.scrapes


def test_another_authority_is_refused(start, fronts, authority):
    pod, front, router = secure(start, fronts, authority, upstream_tls_ca=authority.other.file)
    refused(router, front, "certificate verify failed: ")
    assert not pod.requests and not pod.scrapes


def test_a_plain_pod_is_refused(start, authority):
    pod = start.pod()
    pod.close_reused = lambda conn: conn.sock.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n") or True
    router = start.router(ini=ini("pods = " + pod.authority), upstream_tls_ca=authority.file)
    refused(router, pod, "wrong version number")
    assert not pod.requests


def test_a_silent_handshake_ends_with_the_connect_time(start, fronts, authority):
    good = start.pod()
    front = fronts(good, authority.ip)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        router = start.router(ini=ini("pods = 127.0.0.1:%d, %s" % (silent.getsockname()[1], front.authority)),
                              upstream_tls_ca=authority.file, upstream_connect_timeout="%dms" % (300 * SLOW))
        first, second = router.start_chat(session="a"), router.start_chat(session="b")
        for c in (good.next(), good.next()):
            c.reply()
        assert first.answer().status == second.answer().status == 200
        router.stderr.wait_for_line("cannot connect to a pod.*UPSTREAM_CONNECT_TIMEOUT")


@pytest.mark.parametrize("truncate", [False, True])
def test_only_close_notify_ends_an_answer_that_ends_with_its_connection(start, fronts, authority, truncate):
    pod, _, router = secure(start, fronts, authority, front={"truncate": truncate})
    c = router.start_chat(session="s")
    q = pod.next()
    q.start(content_type="text/plain", chunked=False).chunk(b"some text")
    q.end()
    if truncate:
        assert c.read_cut().body == b"some text"
        assert router.access(c.id)["error"]["type"] == "pod_reset"
    else:
        assert c.answer().body == b"some text"


def test_a_kept_connection_that_died_is_replaced(start, fronts, authority):
    pod, front, router = secure(start, fronts, authority)
    pod.close_reused = lambda conn: conn.requests > 0
    for _ in range(4):
        c = router.start_chat()
        pod.next().reply()
        assert c.answer().status == 200


def test_a_client_that_leaves_ends_the_work(start, fronts, authority):
    pod, _, router = secure(start, fronts, authority)
    c = router.start_chat(stream=True)
    q = pod.next().start()
    q.event("one")
    c.read_until(c.head(), b"one")
    c.close()
    q.wait_gone()


def test_a_reload_changes_the_protocol(start, fronts, authority):
    pod = start.pod(ok)
    front = fronts(pod, authority.ip)
    router = start.router(ini=ini("pods = " + front.authority).replace("https", "http"), upstream_tls_ca=authority.file)
    assert router.chat().status == 502
    router.write_ini(ini("pods = " + front.authority))
    router.signal(signal.SIGHUP)
    router.stderr.wait_for_line("reloaded")
    assert router.chat().status == 200
    router.write_ini(ini("pods = " + front.authority).replace("https", "http"))
    router.signal(signal.SIGHUP)
    wait_until(lambda: len(router.stderr.all("INFO reloaded")) == 2, "the second reload")
    assert router.chat().status == 502


def test_authorities_that_cannot_be_read(tmp_path):
    path = tmp_path / "router.ini"
    path.write_text(ini("pods = 127.0.0.1:1"))
    for extra in (["--check"], ["--port", "0", "--metrics-port", "0", "--debug-port", "0"]):
        done = run_router("--config", str(path), *extra, env={"UPSTREAM_TLS_CA": str(tmp_path / "none.pem")})
        assert done.returncode == 1
        assert "cannot use the authorities %s: No such file or directory" % (tmp_path / "none.pem") in done.stderr
