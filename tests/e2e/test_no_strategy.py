"""Neither strategy on: a plain proxy that picks the pod with the least in flight."""

from pod import ok, vllm_metrics
from waiting import wait_until


def test_no_limit(start):
    pod = start.pod()
    router = start.router({"m": [pod]}, boost=False, session_boost_inflight_per_pod=1)
    clients = [router.start_chat(session="s") for _ in range(40)]
    held = [pod.next() for _ in clients]
    for q in held:
        q.reply()
    assert [c.answer().status for c in clients] == [200] * 40
    assert pod.peak == 40


def test_waiting_numbers_do_not_close_the_gate(start):
    pod = start.pod(script=ok, metrics=vllm_metrics(waiting=50.0))
    router = start.router({"m": [pod]}, boost=False)
    wait_until(lambda: pod.scrapes >= 2, "scrapes")
    assert router.chat().status == 200


def test_least_in_flight(start):
    pods = [start.pod() for _ in range(3)]
    router = start.router({"m": pods}, boost=False)
    clients, held = [], []
    for n in range(9):
        clients.append(router.start_chat())
        wait_until(lambda: sum(len(p.requests) for p in pods) == n + 1, "the request")
    assert [len(p.requests) for p in pods] == [3, 3, 3]
    for p in pods:
        held += [p.next() for _ in range(3)]
    for q in held:
        if q.pod is pods[1]:
            q.reply()
    wait_until(lambda: router.metric("kthena_router_pod_inflight_requests", pod=pods[1].authority) == 0, "pod 1 to be idle")
    for n in range(3):
        clients.append(router.start_chat())
        pods[1].wait_requests(4 + n)
    for q in held:
        if q.pod is not pods[1]:
            q.reply()
    for _ in range(3):
        pods[1].next().reply()
    assert [c.answer().status for c in clients] == [200] * 12


def test_nothing_is_tracked(start):
    pod = start.pod(script=ok)
    router = start.router({"m": [pod]}, boost=False)
    router.chat(session="s")
    r = router.chat(session="s")
    assert router.access(r.id).get("boosted", False) is False
    assert router.metric("kthena_router_session_boost_tracked_sessions", model="m") == 0
    assert not router.stderr.all("session boost: (queued|dequeued)")


def test_errors_are_the_same(start):
    pod = start.pod(script=ok)
    router = start.router({"m": [pod]}, boost=False)
    assert router.chat(model="x").status == 404
    pod.refuse()
    for c in list(pod.connections):
        c.drop(rst=False)
    wait_until(lambda: router.chat().status == 503, "no pod")
