"""Rows DS7, DS9, DS15, DS16 and DS17 of what operators of other routers report; the others are with the kinds of discovery
they are about (test_kube_service.py, test_kube_lifecycle.py, test_dns.py, test_clients.py, test_shutdown.py)."""

import socket
import time

import pytest

from client import Client
from pod import ok, vllm_metrics
from waiting import SLOW, wait_until

ASLEEP = vllm_metrics() + "".join(
    'vllm:engine_sleep_state{engine="0",model_name="m",sleep_state="%s"} %s\n' % x
    for x in (("awake", 0.0), ("weights_offloaded", 1.0), ("discard_all", 0.0)))
AWAKE = ASLEEP.replace('"awake"} 0.0', '"awake"} 1.0').replace('"weights_offloaded"} 1.0', '"weights_offloaded"} 0.0')


def test_ds7_names_in_place_of_addresses(start):
    """A mesh wants names: they are resolved, sent as Host, and shown everywhere."""
    pod = start.pod(script=ok)
    name = "localhost:%d" % pod.port
    router = start.router({"m": [name]})
    assert router.chat().status == 200
    assert pod.requests[0].header("Host") == name
    assert [p["name"] for p in router.dump("pods")["pods"]] == [name]
    assert router.metric("kthena_router_pod_inflight_requests", pod=name) == 0


def test_ds9_dead_pods(start):
    """One of two pods dies: nobody sees it, and after three connects it is left alone. When both are dead: 503 at once."""
    dead, alive = start.pod(script=ok), start.pod(script=ok)
    router = start.router({"m": [dead, alive]})
    assert {router.chat().status for _ in range(4)} == {200}
    dead.stop()
    assert {router.chat().status for _ in range(30)} == {200}
    failures = router.metric("kthena_router_upstream_connect_failures_total", pod=dead.authority)
    assert 3 <= failures <= 6  # and one for each pause that is over
    assert router.stderr.wait_for_line("pod set aside.* pod=" + dead.authority)
    alive.stop()
    begun = time.monotonic()
    assert router.chat().status == 503
    assert time.monotonic() - begun < 1 * SLOW


def test_ds15_a_thousand_at_once(start):
    pod = start.pod(script=ok)
    router = start.router({"m": [pod]}, session_boost_timeout="60s")
    clients = []
    try:
        for _ in range(1000):
            s = socket.socket()
            s.setblocking(False)
            assert s.connect_ex(("127.0.0.1", router.port)) in (0, 115)
            clients.append(s)
        body = b'{"model":"m"}'
        for s in clients:
            s.setblocking(True)
            s.settimeout(60)
            s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        assert {s.recv(12) for s in clients} == {b"HTTP/1.1 200"}
    finally:
        for s in clients:
            s.close()
    assert len(pod.requests) == 1000


@pytest.mark.parametrize("body", [None, b"", b'{"model":"m"}'])
def test_ds16_requests_without_a_body(start, body):
    """The model list is the router's own answer, with and without a body; what needs a model says so."""
    pod = start.pod(script=ok)
    router = start.router({"m": [pod]})
    c = Client(router.port)
    c.request("GET", "/v1/models", body=body)
    assert [x["id"] for x in c.answer().json()["data"]] == ["m"]
    c.request("GET", "/v1/models/m")
    assert c.answer().status == 400
    c.request("POST", "/v1/chat/completions", body=b"")
    r = c.answer()
    assert r.status == 400 and "no body" in r.json()["error"]["message"]
    c.close()
    assert pod.requests == []


@pytest.mark.parametrize("boost", ["true", "false"])
def test_ds17_sleeping_engine(start, boost):
    """vLLM's sleep mode: the pod answers, its engine does not. It gets nothing while it sleeps, and at once when it wakes."""
    sleepy, other = start.pod(script=ok, metrics=AWAKE), start.pod(script=ok)
    router = start.router({"m": [sleepy, other]}, metrics_scrape_interval="100ms", enable_session_boost=boost)

    def asleep(value):
        router.wait_metric("kthena_router_pod_asleep", value, pod=sleepy.authority)
    assert {router.chat().status for _ in range(6)} == {200} and sleepy.requests
    sleepy.metrics_text = ASLEEP
    asleep(1)
    router.stderr.wait_for_line("a pod's engine sleeps.* pod=" + sleepy.authority)
    before = len(sleepy.requests)
    assert {router.chat().status for _ in range(10)} == {200}
    assert len(sleepy.requests) == before
    assert [p["room"] for p in router.dump("pods")["pods"] if p["name"] == sleepy.authority] == ["no_usable_pod"]
    sleepy.metrics_text = AWAKE
    asleep(0)
    router.stderr.wait_for_line("a pod's engine is awake again.* pod=" + sleepy.authority)
    wait_until(lambda: router.chat().status == 200 and len(sleepy.requests) > before, "the pod to get requests again")


def test_ds17_all_asleep(start):
    """Nobody is there: 503 for arrivals; what waits already is served when the engine wakes."""
    pod = start.pod(metrics=AWAKE)
    router = start.router({"m": [pod]}, metrics_scrape_interval="100ms", session_boost_inflight_per_pod="1")
    running = router.start_chat()
    q = pod.next()
    waiting = router.queue_chat(1)
    pod.metrics_text = ASLEEP
    router.wait_metric("kthena_router_pod_asleep", 1, pod=pod.authority)
    q.reply()
    assert running.answer().status == 200
    r = router.chat()
    assert r.status == 503 and r.json()["error"]["code"] == "no_usable_pod"
    assert router.queue_len() == 1
    pod.metrics_text = AWAKE
    pod.next().reply()
    assert waiting.answer().status == 200
