"""Routes and rules: which requests go to which model-server, weights, adapters, reloads."""

import signal

import pytest

from pod import ok
from test_errors import check_error
from waiting import wait_until

SERVERS = """
[model-server big]
pods = %s
engine = none
model = org/big
[model-server small]
pods = %s
engine = none
model = org/small
"""


@pytest.fixture
def two(start):
    """big, small, and a start of a router with these servers and the given routes."""
    big, small = start.pod(script=ok), start.pod(script=ok)

    def run(routes, **options):
        return start.router(ini=SERVERS % (big.authority, small.authority) + routes, **options)
    return big, small, run


def reload(router, ini, line="reloaded"):
    seen = len(router.stderr.lines)
    router.write_ini(ini)
    router.signal(signal.SIGHUP)
    router.stderr.wait_for_line(line, start=seen)


def sent(*pods):
    return tuple(len(p.requests) for p in pods)


RULES = """
[model-route m]
target = small
[model-route m/rule premium]
header = user-type exact:premium
target = big
[model-route m/rule late]
header = user-type regex:^(premium|late)$
target = small
[model-route m/rule embeddings]
uri = exact:/v1/embeddings
target = big
"""


def test_header_rules(two):
    big, small, run = two
    router = run(RULES)
    for value, place in (("premium", big), ("basic", small), ("", small), (None, small), ("late", small), ("PREMIUM", small),
                         ("premium", big)):
        before = len(place.requests)
        r = router.chat(headers=[("User-Type", value)] if value is not None else [])
        assert r.status == 200 and len(place.requests) == before + 1, value
        assert place.requests[-1].json()["model"] == ("org/big" if place is big else "org/small")


def test_access_log_and_metrics_name_route_and_server(two):
    big, _, run = two
    router = run(RULES)
    entry = router.access(router.chat(headers=[("user-type", "premium")]).id)
    assert (entry["model_name"], entry["model_route"], entry["model_server"], entry["selected_pod"]) == (
        "m", "m", "big", big.authority)
    assert router.metrics().total("kthena_router_requests_total", model="m", backend_name="big", upstream_model="org/big") == 1


def test_uri_rule_looks_at_the_path_alone(two):
    big, small, run = two
    router = run(RULES)
    for path, place in (("/v1/embeddings", big), ("/v1/embeddings?x=1", big), ("/v1/embeddings2", small), ("/v1/completions", small),
                        ("/v1/%65mbedding%73", big), ("/v1//embeddings", small), ("/v1/./embeddings", small)):
        before = len(place.requests)
        c = router.client()
        c.request("POST", path, body=b'{"model":"m","input":"x"}')
        assert c.answer().status == 200 and len(place.requests) == before + 1, path
        assert place.requests[-1].path == path


def test_no_rule_fits(two):
    _, _, run = two
    router = run("""
[model-route m]
[model-route m/rule premium]
header = user-type exact:premium
target = big
""")
    r = router.chat()
    assert r.status == 404
    check_error(r, 404, "route_not_found")
    assert "no rule" in r.json()["error"]["message"]
    assert router.chat(headers=[("user-type", "premium")]).status == 200


def test_oldest_route_of_a_model_comes_first(two):
    big, small, run = two
    first = "[model-route old]\nmodel = m\ntarget = small\n"
    second = "[model-route new]\nmodel = m\ntarget = big\n"
    router = run(first + second)
    assert router.stderr.wait_for_line(r'model-route ."new." gets no request')
    assert router.chat().status == 200 and sent(big, small) == (0, 1)
    reload(router, SERVERS % (big.authority, small.authority) + second)
    assert router.chat().status == 200 and sent(big, small) == (1, 1)


def weights(a, b):
    return "[model-route m]\ntarget = big:%d, small:%d\n" % (a, b)


def test_weights_and_a_live_update(two):
    big, small, run = two
    router = run(weights(70, 30), boost=False)
    c = router.client()
    for n, shares in ((100, (70, 30)), (100, (140, 60)), (300, (350, 150))):
        for _ in range(n):
            assert c.chat().answer().status == 200
        assert sent(big, small) == shares
    reload(router, SERVERS % (big.authority, small.authority) + weights(50, 30))
    for _ in range(400):
        assert c.chat().answer().status == 200
    assert sent(big, small) == (350 + 250, 150 + 150)


def test_weights_hold_under_boost_and_sessions_stay(two):
    big, small, run = two
    router = run(weights(70, 30))
    for i in range(100):
        assert router.chat(session="s%d" % i).status == 200
    assert sent(big, small) == (70, 30)
    homes = {r.session: p for p in (big, small) for r in p.requests}
    for i in range(100):
        assert router.chat(session="s%d" % i).status == 200
        assert homes["s%d" % i].requests[-1].session == "s%d" % i
    assert router.metric("kthena_router_session_boost_queue_boosted_dequeue_total", model="m") == 100
    assert router.metric("kthena_router_session_boost_queue_dequeue_total", model="m") == 200


LORA = """
[model-route m]
target = big
lora = lora-A, org/lora-B, lora-A
"""


def test_adapters_keep_their_name(two):
    big, _, run = two
    router = run(LORA.replace(", lora-A\n", "\n"))
    for name in ("lora-A", "org/lora-B"):
        assert router.chat(model=name).status == 200
        assert big.requests[-1].json()["model"] == name
    assert router.chat(model="m").status == 200 and big.requests[-1].json()["model"] == "org/big"
    check_error(router.chat(model="lora-NonExistent"), 404, "route_not_found")
    assert [m["id"] for m in router.get("/v1/models").json()["data"]] == ["lora-A", "m", "org/lora-B"]


def test_models_before_adapters(two):
    big, small, run = two
    router = run("[model-route m]\ntarget = big\nlora = n\n[model-route n]\ntarget = small\n")
    assert router.chat(model="n").status == 200 and sent(big, small) == (0, 1)
    assert router.stderr.wait_for_line(r'adapter ."n." gets no request')


def test_target_without_pods_falls_to_the_next(start):
    live = start.pod(script=ok)
    router = start.router(ini="""
[model-server gone]
dns = nowhere.invalid:80
engine = none
[model-server live]
pods = %s
engine = none
[model-route m]
target = gone:90, live:10
[model-route n]
target = gone
""" % live.authority, wait=False)
    wait_until(lambda: router.get("/readyz").status == 200, "ready", timeout=30)
    for _ in range(10):
        assert router.chat().status == 200
    assert sent(live) == (10,)
    check_error(router.chat(model="n"), 503, "no_usable_pod", kind="server_error")


def test_target_that_cannot_be_connected_to(start):
    dead, live = start.pod(listen=False), start.pod(script=ok)
    for boost in (True, False):
        router = start.router(ini=SERVERS % (dead.authority, live.authority) + weights(90, 10), boost=boost)
        before = len(live.requests)
        assert [router.chat().status for _ in range(20)] == [200] * 20
        assert len(live.requests) == before + 20
        assert router.metrics().total("kthena_router_requests_total", model="m", status_code="200") == 20


CHAIN = """
[model-server a]
pods = %s
engine = none
[model-server b]
pods = %s
engine = none
[model-server c]
pods = %s
engine = none
[model-route m]
target = a:80, b:15, c:5
"""


@pytest.mark.parametrize("strategy", ["boost", "fairness", "none"])
def test_dead_pods_of_two_targets_leave_the_third(start, strategy):
    """However many pods of a target are dead, they do not use up what a request may try elsewhere."""
    dead = [[start.pod(listen=False) for _ in range(n)] for n in (3, 5)]
    live = start.pod(script=ok)
    router = start.router(ini=CHAIN % (*(", ".join(p.authority for p in pods) for pods in dead), live.authority),
                          boost=strategy == "boost", enable_fairness_scheduling=str(strategy == "fairness").lower())
    c = router.client()
    r = c.chat().answer()
    entry = router.access(c.id)
    assert r.status == 200 and entry["upstream_attempts"] == 3 + 3 + 1 and entry["model_server"] == "c"
    assert [router.chat().status for _ in range(20)] == [200] * 20 and sent(live) == (21,)


def test_dead_pods_everywhere_are_a_503_after_each_target_was_tried_once(start):
    dead = [[start.pod(listen=False) for _ in range(3)] for _ in range(3)]
    router = start.router(ini=CHAIN % tuple(", ".join(p.authority for p in pods) for pods in dead))
    c = router.client()
    check_error(c.chat().answer(), 503, "connect_failed", kind="server_error")
    assert router.access(c.id)["upstream_attempts"] == 9


def test_a_pod_of_two_targets_is_not_tried_twice_while_another_is_left(start):
    shared, dead, live = start.pod(listen=False), start.pod(listen=False), start.pod(script=ok)
    router = start.router(ini=CHAIN % ("%s, %s" % (shared.authority, dead.authority),
                                       "%s, %s" % (shared.authority, live.authority), dead.authority))
    c = router.client()
    assert c.chat().answer().status == 200 and router.access(c.id)["upstream_attempts"] == 3


def test_reload_moves_what_waits_to_the_target_that_is_left(start):
    big, small = start.pod(), start.pod()
    servers = SERVERS % (big.authority, small.authority)
    router = start.router(ini=servers + weights(1, 1), session_boost_inflight_per_pod=1)
    running = [router.start_chat(), router.start_chat()]
    held = [big.next(), small.next()]
    waiting = [router.queue_chat(i + 1) for i in range(4)]
    reload(router, servers + "[model-route m]\ntarget = small\n")
    router.wait_queued(4)
    held[0].reply()
    held[1].reply()
    for _ in waiting:
        small.next().reply()
    assert [c.answer().status for c in running + waiting] == [200] * 6
    assert sent(big, small) == (1, 5)
    assert router.metric("kthena_router_session_boost_queue_timeouts_total", model="m") == 0


def test_pods_that_vanish_hand_their_queue_to_the_other_target(start):
    big, small = start.pod(), start.pod()
    router = start.router(ini=SERVERS % (big.authority, small.authority) + weights(1, 1), session_boost_inflight_per_pod=1)
    running = [router.start_chat(), router.start_chat()]
    held = [big.next(), small.next()]
    waiting = [router.queue_chat(i + 1) for i in range(4)]
    # big's only pod leaves: its name cannot be resolved from now on.
    reload(router, (SERVERS % ("PODS", small.authority)).replace("pods = PODS", "dns = nowhere.invalid:80") + weights(1, 1))
    wait_until(lambda: not router.dump("modelservers")["modelservers"][0]["associatedPods"], "big to lose its pod", timeout=30)
    for h in held:
        h.reply()
    for _ in waiting:
        small.next().reply()
    assert [c.answer().status for c in running + waiting] == [200] * 6


def test_bad_rule_is_refused_on_reload_with_its_line(two):
    big, small, run = two
    router = run(RULES)
    reload(router, SERVERS % (big.authority, small.authority) + RULES.replace("exact:premium", "regex:(premium"),
           r'router\.ini:14: header = NAME MATCH: regex .*\( has no \)')
    router.stderr.wait_for_line("reload refused")
    assert router.chat(headers=[("user-type", "premium")]).status == 200 and sent(big, small) == (1, 0)


def test_dump_shows_rules(two):
    _, _, run = two
    router = run(RULES + LORA.replace("[model-route m]", "[model-route l]").replace(", lora-A\n", "\n").replace("big", "big:3"))
    first, second = router.dump("modelroutes")["modelroutes"]
    assert first["spec"]["rules"][0] == {
        "name": "premium", "modelMatch": {"headers": {"user-type": {"exact": "premium"}}},
        "targetModels": [{"modelServerName": "big"}]}
    assert first["spec"]["rules"][3]["targetModels"] == [{"modelServerName": "small"}]
    assert second["spec"]["loraAdapters"] == ["lora-A", "org/lora-B"]
    assert second["spec"]["rules"][0]["targetModels"] == [{"modelServerName": "big", "weight": 3}]
    assert {(q["model"], q["modelServer"]) for q in router.dump("queues")["queues"]} == {
        ("m", "big"), ("m", "small"), ("l", "big"), ("lora-A", "big"), ("org/lora-B", "big")}


def test_hostile_values_take_no_time(two):
    _, small, run = two
    router = run("""
[model-route m]
target = small
[model-route m/rule slow]
header = x-slow regex:([ab]*a[ab]*)[cd]
target = big
""")
    for _ in range(20):
        assert router.chat(headers=[("x-slow", "ab" * 4000)]).status == 200
    assert sent(small) == (20,)
