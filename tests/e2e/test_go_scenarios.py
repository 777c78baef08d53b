"""Scenarios of the Go router's own tests, by our rules, that no file about one behaviour plays. Q1 to Q25 are those of
its fairness queue (the others: tests/unit/test_fairq.c), H those of its request handler."""

import json
import signal
import threading
import time

import pytest

from client import Client
from pod import ok
from test_errors import check_error
from test_fairness import ALL, SIZE, Stage
from waiting import SLOW, wait_until


def test_q5_arrival_on_an_empty_queue_goes_at_once(start):
    pod = start.pod(script=ok)
    router = start.router({"m": [pod]}, boost=False, enable_fairness_scheduling="true")
    c = router.client()
    assert c.chat().answer().status == 200
    assert router.access(c.id)["queue_ms"] < 100 * SLOW


def test_q7_q10_q13_q14_q15_model_that_goes_answers_its_queue(start):
    """Five wait: all are answered, nothing is left; later ones are refused. A second removal changes nothing."""
    pod = start.pod()
    ini = "[model-server s]\npods = %s\nengine = none\n" % pod.authority
    gone = ini + "[model-route other]\ntarget = s\n"
    router = start.router(ini=ini + "[model-route m]\ntarget = s\nlora = ad\n", boost=False, enable_fairness_scheduling="true",
                          session_boost_inflight_per_pod=1)
    first = router.start_chat()
    held = pod.next()
    waiting = []
    for n in range(5):
        waiting.append(router.start_chat(model=("m", "ad")[n % 2], headers=[("X-User-ID", "u%d" % n)]))
        wait_until(lambda n=n: sum(q["length"] for q in router.dump("queues")["queues"]) == n + 1, "it to wait")
    for _ in range(2):
        seen = len(router.stderr.lines)
        router.write_ini(gone)
        router.signal(signal.SIGHUP)
        router.stderr.wait_for_line("reloaded", start=seen)
    for c in waiting:
        check_error(c.answer(), 404, "route_not_found")
    assert [q["model"] for q in router.dump("queues")["queues"]] == ["other"]
    assert router.metric(SIZE, None, **ALL) in (None, 0)
    check_error(router.chat(), 404, "route_not_found")
    held.reply()
    assert first.answer().status == 200


def test_q9_ten_clients_with_a_hundred_requests_each(start):
    pod = start.pod(script=ok)
    router = start.router({"m": [pod]}, boost=False, enable_fairness_scheduling="true", session_boost_inflight_per_pod=4,
                          fairness_max_concurrent=1000)
    statuses, lock = [], threading.Lock()

    def work(user):
        c = router.client()
        mine = [c.chat(headers=[("X-User-ID", user)]).answer().status for _ in range(100)]
        with lock:
            statuses.extend(mine)
    workers = [threading.Thread(target=work, args=("u%d" % i,)) for i in range(10)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert statuses == [200] * 1000 and pod.peak <= 4
    assert router.metric(SIZE, **ALL) == 0
    assert router.metric("kthena_router_fairness_queue_dequeue_total", **ALL) == 1000


def test_q11_q12_who_has_left_or_waited_too_long_is_skipped(start):
    st = Stage(start, fairness_queue_timeout="400ms")
    st.use("c", 100)
    held = st.occupy()
    st.queue(("gone", "a"), ("late", "b"))
    st.clients["gone"].close()
    st.wait_queued(1)
    check_error(st.clients["late"].answer(), 504, "queue_timeout", "server_error", retry_after=True)
    st.queued = 0
    st.queue(("c", "c"))
    assert st.drain(held) == ["c"]


def test_q16_put_back_counts_once(start):
    dead, live = start.pod(listen=False), start.pod()
    router = start.router(ini="[model-server s]\npods = %s, %s\nengine = none\n[model-route m]\ntarget = s\n" % (
        dead.authority, live.authority), boost=False, enable_fairness_scheduling="true", session_boost_inflight_per_pod=1)
    first = router.start_chat()
    held = live.next()
    second = router.start_chat()
    router.stderr.wait_for_line("cannot connect to a pod")
    router.wait_metric(SIZE, 1, **ALL)
    held.reply()
    live.next().reply()
    assert [first.answer().status, second.answer().status] == [200, 200]
    router.wait_metric(SIZE, 0, **ALL)


MODES = {"fairness": {"boost": False, "enable_fairness_scheduling": "true"}, "boost": {}, "none": {"boost": False}}


@pytest.mark.parametrize("mode", MODES)
def test_h_unknown_model_never_reaches_a_queue(start, mode):
    pod = start.pod(script=ok)
    router = start.router({"m": [pod]}, **MODES[mode])
    for _ in range(3):
        check_error(router.chat(model="nobody"), 404, "route_not_found")
    assert not pod.requests and "nobody" not in json.dumps(router.dump("queues"))
    m = router.metrics()
    assert m.total("kthena_router_requests_total", model="unknown", error_type="route_not_found") == 3
    assert m.total("kthena_router_requests_total", model="nobody") == 0


@pytest.mark.parametrize("user", ["u", None])
def test_h_fairness_with_and_without_a_user(start, user):
    pod = start.pod(script=ok)
    router = start.router({"m": [pod]}, **MODES["fairness"])
    assert router.chat(headers=[("X-User-ID", user)] if user else []).status == 200


@pytest.mark.parametrize("mode, option", [("fairness", "fairness_queue_timeout"), ("boost", "session_boost_timeout")])
def test_h_blocked_queue_is_a_504_after_50_ms(start, mode, option):
    pod = start.pod()
    router = start.router({"m": [pod]}, session_boost_inflight_per_pod=1, **{option: "50ms"}, **MODES[mode])
    first = router.start_chat()
    held = pod.next()
    begun = time.monotonic()
    check_error(router.chat(), 504, "queue_timeout", "server_error", retry_after=True)
    assert time.monotonic() - begun < 1 * SLOW
    held.reply()
    assert first.answer().status == 200 and len(pod.requests) == 1


def test_h_first_pod_says_503(start):
    """Not asked again at another pod, whatever the Go router does: who knows how far the first one came."""
    pods = [start.pod(script=lambda q: q.reply(503, {"error": "busy"})) for _ in range(2)]
    router = start.router({"m": pods})
    c = router.client()
    r = c.chat().answer()
    assert r.status == 503 and r.json() == {"error": "busy"} and sum(len(p.requests) for p in pods) == 1
    entry = router.access(c.id)
    assert entry["upstream_attempts"] == 1 and entry["upstream_status_code"] == 503


def test_h_a_time_limit_to_the_head_does_not_cut_a_stream(start):
    pod = start.pod()
    router = start.router({"m": [pod]}, upstream_header_timeout="200ms")
    c = router.start_chat(stream=True)
    q = pod.next().start()
    for _ in range(6):
        q.event('{"choices":[{"delta":{"content":"x"}}]}')
        time.sleep(0.1)  # the stream itself is what takes longer than the limit
    q.event("[DONE]")
    q.end()
    r = c.answer()
    assert r.status == 200 and r.body.count(b"data:") == 7


def test_h_body_that_is_two_values_or_ends_in_space(start):
    pod = start.pod(script=ok)
    router = start.router({"m": [pod]})
    for more, status in ((" \r\n\t", 200), ("{}", 400), (" null", 400)):
        c = Client(router.port)
        c.request("POST", "/v1/chat/completions", body=b'{"model":"m","messages":[]}' + more.encode())
        assert c.answer().status == status, more
        c.close()
