"""Health, readiness, model list, metrics and debug dumps."""

import email.utils
import json
import re
import socket
import time

import pytest

from pod import ok, vllm_metrics
from waiting import wait_until


def test_health_and_readiness(start):
    router = start.router({"m": [start.pod(script=ok)]})
    r = router.get("/healthz")
    assert r.status == 200 and r.json() == {"message": "ok"}
    r = router.get("/readyz")
    assert r.status == 200 and r.json() == {"message": "router is ready"}


def test_not_ready_before_the_first_discovery(start):
    """A name that does not resolve yet."""
    router = start.router(ini="[model-server s]\ndns = does-not-exist.invalid:80\n[model-route m]\ntarget = s\n", wait=False)
    assert router.get("/healthz").status == 200
    # Whether the lookup has failed already is up to the resolver: both answers are well formed.
    r = router.get("/readyz")
    assert (r.status, r.json()["message"]) in ((503, "router is not ready"), (200, "router is ready"))


def test_model_list(start):
    pod = start.pod(script=ok)
    router = start.router({"zeta": [pod], "alpha": [pod]})
    r = router.get("/v1/models")
    assert r.status == 200 and r.header("Content-Type").startswith("application/json")
    body = r.json()
    assert body["object"] == "list"
    assert [m["id"] for m in body["data"]] == ["alpha", "zeta"]
    assert all(m["object"] == "model" and m["owned_by"] == "kthena" and m["created"] == 0 for m in body["data"])
    assert pod.requests == []


def test_model_list_of_the_pods(start):
    """MODELS_FROM_PODS: names the pods list join the public ones, each once; a pod that is gone delays nothing."""
    first, second = start.pod(script=ok), start.pod(script=ok)
    first.models, second.models = ["base", "lora-\u00e9", "", "m"], ["base", "lora-2"]
    router = start.router({"m": [first, second]}, env={"MODELS_FROM_PODS": "true"})

    def names():
        return [m["id"] for m in router.get("/v1/models").json()["data"]]

    wait_until(lambda: names() == ["base", "lora-2", "lora-\u00e9", "m"], "the names of the pods")
    second.stop()
    assert router.get("/v1/models").status == 200


def test_model_list_without_asking_pods(start):
    pod = start.pod(script=ok)
    pod.models = ["base"]
    router = start.router({"m": [pod]})
    wait_until(lambda: pod.scrapes >= 3, "three reads of the metrics")
    assert [m["id"] for m in router.get("/v1/models").json()["data"]] == ["m"]


def test_model_list_with_a_body_and_head(start):
    router = start.router({"m": [start.pod(script=ok)]})
    c = router.client()
    c.request("GET", "/v1/models", body=b"ignored")
    assert c.answer().status == 200
    c = router.client()
    c.request("HEAD", "/v1/models")
    r = c.answer()
    assert r.status == 200 and r.body == b"" and int(r.header("Content-Length")) > 0
    c.request("GET", "/v1/models?limit=1")
    assert c.answer().status == 200


def own_answers(router):
    """One answer of each kind that the router writes itself."""
    for path in ("/healthz", "/readyz", "/v1/models", "/nowhere"):
        yield router.get(path)
    yield router.chat(model="unknown")
    yield router.client().request("OPTIONS", headers={"Origin": "http://a", "Access-Control-Request-Method": "POST"}).answer()
    yield router.client().send(b"nonsense\r\n\r\n").answer()
    yield router.get("/metrics", port="metrics")
    yield router.get("/debug/config_dump/pods", port="debug")


def test_date(start):
    """RFC 9110 6.6.1: who has a clock dates its answers. A pod's answer keeps its own date, and there is no second one."""
    pod = start.pod(script=ok)
    router = start.router({"m": [pod]}, cors_allow_origins="http://a")
    before = int(time.time())
    for r in own_answers(router):
        date = email.utils.parsedate_to_datetime(r.header("Date"))
        assert before <= date.timestamp() <= time.time(), r
        assert r.header("Date") == email.utils.format_datetime(date, usegmt=True)
    pod.script = lambda q: q.reply(headers=[("Date", "Sun, 06 Nov 1994 08:49:37 GMT")])
    assert router.chat().header("Date") == "Sun, 06 Nov 1994 08:49:37 GMT"


def test_no_models(start):
    router = start.router(boost=True)
    assert router.get("/v1/models").json() == {"object": "list", "data": []}
    assert router.get("/readyz").status == 200


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/v1/models"])
def test_methods(start_router, path):
    c = start_router.client()
    c.request("HEAD", path)
    assert c.answer().status == 200
    c.request("DELETE", path, body=b"{}")
    r = c.answer()
    assert r.status in (400, 404, 405)


@pytest.fixture(scope="module")
def start_router(start_module):
    return start_module.router({"m": [start_module.pod(script=ok)]})


FAMILIES = {
    "requests_total": "counter", "request_duration_seconds": "histogram", "request_prefill_duration_seconds": "histogram",
    "request_decode_duration_seconds": "histogram", "active_requests": "gauge", "active_downstream_requests": "gauge",
    "active_upstream_requests": "gauge", "session_boost_queue_size": "gauge", "session_boost_queue_duration_seconds": "histogram",
    "session_boost_queue_cancelled_total": "counter", "session_boost_queue_dequeue_total": "counter",
    "session_boost_queue_inflight": "gauge", "session_boost_queue_boosted_dequeue_total": "counter",
    "session_boost_queue_forced_dequeue_total": "counter", "session_boost_queue_promotions_total": "counter",
    "session_boost_queue_timeouts_total": "counter", "session_boost_overtakes": "histogram",
    "session_boost_tracked_sessions": "gauge", "session_boost_evicted_sessions_total": "counter",
    "session_boost_gate_closed_seconds_total": "counter", "pod_inflight_requests": "gauge", "pod_waiting_requests": "gauge",
    "pod_metrics_stale": "gauge", "pod_set_aside": "gauge", "upstream_stale_retries_total": "counter",
    "client_aborts_total": "counter", "time_to_first_token_seconds": "histogram", "log_lines_dropped_total": "counter",
}


def test_metric_families(start):
    pod = start.pod(script=ok)
    router = start.router({"m": [pod]})
    router.chat(session="s")
    router.chat(session="s")
    router.wait_idle()
    m = router.metrics()
    for name, kind in FAMILIES.items():
        assert m.types.get("kthena_router_" + name) == kind, name
    labels, value = m.series("kthena_router_requests_total")[0]
    assert value == 2 and labels == {
        "model": "m", "path": "/v1/chat/completions", "status_code": "200", "error_type": "successful_request",
        "model_route": labels["model_route"], "backend_type": "model_server", "backend_name": labels["backend_name"],
        "upstream_model": labels["upstream_model"]}
    assert m.total("kthena_router_request_duration_seconds_count", model="m", status_code="200") == 2
    for series in ("queue_size", "queue_inflight", "queue_dequeue_total", "queue_cancelled_total"):
        assert m.get("kthena_router_session_boost_" + series, model="m") is not None, series


def test_buckets(start_router):
    start_router.chat()
    start_router.wait_idle()
    m = start_router.metrics()

    def bounds(name):
        found = [labels["le"] for labels, _ in m.series(name + "_bucket")]
        return sorted({float(b.replace("+Inf", "inf")) for b in found})
    a = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, float("inf")]
    assert bounds("kthena_router_request_duration_seconds") == a
    assert set([0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, float("inf")]) <= \
        set(bounds("kthena_router_session_boost_queue_duration_seconds"))


def test_labels_are_not_client_input(start_router):
    """Paths and models of clients make no series of their own."""
    for i in range(5):
        c = start_router.client()
        c.request(path="/v1/made/up/%d" % i, body={"model": "m"})
        c.answer()
        c.request(body={"model": "made-up-%d" % i})
        c.answer()
    m = start_router.metrics()
    assert m.total("kthena_router_requests_total", path="other") >= 5
    assert "made" not in m.text
    assert m.total("kthena_router_requests_total", model="unknown", status_code="404") >= 5


def test_metrics_listener(start_router):
    r = start_router.get("/metrics", "metrics")
    assert r.status == 200 and r.header("Content-Type").startswith("text/plain; version=0.0.4")
    assert start_router.get("/nope", "metrics").status == 404
    assert start_router.get("/v1/models", "metrics").status == 404


def test_probes_do_not_count_as_requests(start):
    router = start.router({"m": [start.pod(script=ok)]})
    for _ in range(5):
        router.get("/healthz")
    assert router.metrics().total("kthena_router_requests_total") == 0


@pytest.mark.parametrize("kind", ["config", "modelroutes", "modelservers", "pods", "queues", "requests"])
def test_dumps_exist(start_router, kind):
    dump = start_router.dump(kind)
    assert list(dump) == [kind]


def test_dumps_tell_what_is_going_on(start):
    a = start.pod(metrics=vllm_metrics(running=2.0))
    router = start.router({"m": [a]}, session_boost_inflight_per_pod=1)
    c = router.start_chat(session="done")
    a.next().reply()
    c.answer()
    running = router.start_chat(session="run", tag="run")
    held = a.next()
    waiting = [router.queue_chat(1, session="new"), router.queue_chat(2, session="done")]
    text = json.dumps(router.dump("queues"))
    [queue] = router.dump("queues")["queues"]
    assert queue["model"] == "m" or queue["name"] == "m"
    order = [text.index('"%s"' % c.id) for c in waiting]
    assert order[1] < order[0], "the queue in its order: boosted first"
    [pod] = router.dump("pods")["pods"]
    assert pod["name"] == a.authority and 1 in pod.values()
    requests = router.dump("requests")["requests"]
    assert len(requests) == 3
    assert {running.id, *[c.id for c in waiting]} == {r["requestID"] for r in requests}
    held.reply()
    for _ in range(2):
        a.next().reply()
    assert [c.answer().status for c in [running, *waiting]] == [200] * 3
    wait_until(lambda: not router.dump("requests")["requests"], "no more requests")


def test_debug_port_is_on_the_loopback_only(start):
    pod = start.pod(script=ok)
    router = start.router({"m": [pod]}, router_bind="0.0.0.0")
    probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        probe.connect(("192.0.2.1", 9))  # sends nothing; names our outward address
        own = probe.getsockname()[0]
    except OSError:
        own = "127.0.0.2"
    finally:
        probe.close()
    if own.startswith("127."):
        own = "127.0.0.2"  # on Linux all of 127/8 is ours: a listener on 127.0.0.1 alone refuses it
    socket.create_connection((own, router.port), 2).close()
    with pytest.raises(OSError):
        socket.create_connection((own, router.ports["debug"]), 2)


def test_debug_unknown(start_router):
    r = start_router.get("/debug/config_dump/nope", "debug")
    assert r.status == 404
    kinds = re.search(r"\{(.*)\}", r.json()["error"]["message"])[1].split(",")
    assert len(kinds) == 7 and all(list(start_router.dump(kind)) == [kind] for kind in kinds)
    assert start_router.get("/", "debug").status == 404
