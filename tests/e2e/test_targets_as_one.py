"""A public name with several targets: users, their limits and QUEUE_MAX_REQUESTS are the name's, not each target's."""

import time

import pytest

from pod import ok, vllm_metrics
from test_errors import check_error
from test_fairness import ALL, SIZE, usage
from test_routes import reload
from waiting import wait_until

SERVERS = "[model-server a]\npods = %s\nengine = none\n[model-server b]\npods = %s\nengine = none\n"
TO_B = "header = X-To exact:b\ntarget = b\n"
# Three ways to give a name two targets. By weights they take turns, a first: so do all tests here.
ROUTES = {"rules": "[model-route m]\ntarget = a\n[model-route m/rule b]\n" + TO_B,
          "weights": "[model-route m]\ntarget = a:1, b:1\n",
          "routes": "[model-route one]\nmodel = m\n[model-route one/rule b]\n" + TO_B + "[model-route two]\nmodel = m\ntarget = a\n"}
ONE = {"a": "[model-route m]\ntarget = a\n", "b": "[model-route m]\ntarget = b\n"}


class Stage:
    """A router that is fair, in front of two targets whose pods hold every request."""

    def __init__(self, start, kind, script=None, per_pod=100, **options):
        self.a, self.b = start.pod(script), start.pod(script)
        self.servers = SERVERS % (self.a.authority, self.b.authority)
        self.router = start.router(ini=self.servers + ROUTES[kind], boost=False, enable_fairness_scheduling="true",
                                   session_boost_inflight_per_pod=per_pod, **options)
        self.turn, self.clients = 0, []

    def chat(self, tag, user, **extra):
        """To the target whose turn it is."""
        to = "ab"[self.turn % 2]
        self.turn += 1
        self.clients.append(self.router.start_chat(headers=[("X-User-ID", user), ("X-To", to)], tag=tag, **extra))
        return self.a if to == "a" else self.b

    def hold(self, tag, user):
        """A request that runs until it is told what to say."""
        held = self.chat(tag, user).next()
        assert held.tag == tag
        return held

    def use(self, user, tokens):
        self.hold("used", user).reply(body=usage(tokens, 0))
        assert self.clients.pop().answer().status == 200

    def queue(self, *specs):
        for n, (tag, user) in enumerate(specs):
            self.chat(tag, user)
            self.router.wait_metric(SIZE, n + 1, **ALL)

    def go(self, pod, tag):
        """The next one of the pod, which must be that; it costs nothing."""
        held = pod.next()
        assert held.tag == tag
        held.reply(body={})

    def users(self):
        [name] = self.router.dump("users")["users"]
        assert name["model"] == "m"
        return {u["user"]: u for u in name["users"]}, name

    def end(self):
        assert [c.answer().status for c in self.clients] == [200] * len(self.clients)


@pytest.mark.parametrize("kind", ROUTES)
def test_tokens_count_at_every_target(start, kind):
    st = Stage(start, kind, per_pod=1, fairness_max_concurrent=1000)
    st.use("heavy", 1000)  # at a
    st.use("light", 100)    # at b
    held = [st.hold("1", "x"), st.hold("2", "y")]
    st.queue(("h-a", "heavy"), ("h-b", "heavy"), ("l-a", "light"), ("l-b", "light"))
    users, name = st.users()
    assert (name["waiting"], name["running"]) == (4, 2)
    assert (users["heavy"]["inputTokens"], users["heavy"]["waiting"]) == (1000, 2)
    assert sorted((q["modelServer"], q["length"]) for q in st.router.dump("queues")["queues"]) == [("a", 2), ("b", 2)]
    assert st.router.metric("kthena_router_fairness_known_users", model="m") == 4
    for q in held:
        q.reply(body={})
    for pod in (st.a, st.b):
        st.go(pod, "l-" + "ab"[pod is st.b])
        st.go(pod, "h-" + "ab"[pod is st.b])
    st.end()


@pytest.mark.parametrize("kind", ROUTES)
def test_max_concurrent_is_of_all_targets_and_the_first_in_rank_goes(start, kind):
    st = Stage(start, kind, fairness_max_concurrent=1)
    st.use("heavy", 1000)
    st.use("light", 100)
    held = st.hold("1", "x")  # at a; b's pod has nothing to do
    st.queue(("h-b", "heavy"), ("l-a", "light"), ("l-b", "light"), ("new-a", "new"), ("new-b", "new"), ("h-a", "heavy"))
    wait_until(lambda: {q["closedReason"] for q in st.router.dump("queues")["queues"]} == {"max_concurrent"}, "both to wait for the limit")
    assert (st.a.active, st.b.active) == (1, 0)
    held.reply(body={})
    for tag in ("new-a", "new-b", "l-a", "l-b", "h-b", "h-a"):
        st.go(st.a if tag.endswith("a") else st.b, tag)
    assert st.a.peak == st.b.peak == 1
    st.end()


@pytest.mark.parametrize("kind", ROUTES)
def test_qps_is_of_all_targets(start, kind):
    st = Stage(start, kind, script=ok, fairness_max_qps=4)
    began = time.monotonic()
    for i in range(8):
        st.chat(str(i), "u%d" % i)
    st.end()
    assert len(st.a.requests) == len(st.b.requests) == 4
    # 7 / 4 s after the first. Two limits would let the last one go after 0.75 s; one that counts double, after 3.5 s.
    assert 1.7 < max(q.at for q in st.a.requests + st.b.requests) - began < 3.4


def test_overtake_bound_is_over_all_targets(start):
    """A heavy user's request at one target is not passed without end by light users' at another."""
    st = Stage(start, "rules", fairness_max_concurrent=1, session_boost_max_overtakes=2)
    st.use("heavy", 1000)
    st.turn = 1
    held = st.hold("1", "x")
    st.queue(("heavy", "heavy"))
    for i in range(4):
        st.turn = 1
        st.chat("b%d" % i, "new%d" % i)
        st.router.wait_metric(SIZE, 2 + i, **ALL)
    held.reply(body={})
    for pod, tag in ((st.b, "b0"), (st.b, "b1"), (st.a, "heavy"), (st.b, "b2"), (st.b, "b3")):
        st.go(pod, tag)
    assert st.router.metric("kthena_router_fairness_queue_forced_dequeue_total", model="m") == 1
    st.end()


def test_evictions_and_rank_changes_count_once(start):
    st = Stage(start, "weights", per_pod=1, fairness_max_users=2, fairness_max_concurrent=1000)
    held = [st.hold("1", "heavy"), st.hold("2", "heavy")]
    st.queue(("a", "heavy"), ("b", "heavy"))
    held[0].reply(body=usage(50, 0))
    held[0] = st.a.next()
    # The end of one and the start of the next one, whatever the number of queues it waits in.
    assert st.router.metric("kthena_router_fairness_queue_priority_refresh_total", model="m") == 2
    for q in held:
        q.reply(body={})
    st.go(st.b, "b")
    for user in ("p", "q", "r"):
        st.use(user, 5)
    users, _ = st.users()
    assert set(users) == {"q", "r"}
    assert st.router.metric("kthena_router_fairness_evicted_users_total", model="m") == 2
    st.end()


def wait_full(router, c, n):
    wait_until(lambda: sum(q["length"] for q in router.dump("queues")["queues"] if q["model"] == "m") == n, "%d to wait" % n)
    return c


@pytest.mark.parametrize("strategy", ["boost", "fairness", "none"])
def test_moved_request_times_out_at_its_own_limit(start, strategy):
    """Not at that of those who stood in the other queue before it, but came later."""
    a, b = (start.pod(metrics=vllm_metrics(waiting=3)) for _ in range(2))
    servers = (SERVERS % (a.authority, b.authority)).replace("engine = none", "engine = vllm")
    both, only_b = ((servers + r).replace("\ntarget = ", "\nmax_waiting = 1\ntarget = ", 1) for r in (ROUTES["rules"], ONE["b"]))
    router = start.router(ini=both, boost=strategy == "boost", session_boost_timeout="4s", fairness_queue_timeout="4s",
                          enable_fairness_scheduling=str(strategy == "fairness").lower(), metrics_scrape_interval="60s")
    wait_until(lambda: all(p["metrics"]["requestWaitingNum"] == 3 for p in router.dump("pods")["pods"]), "the pods' numbers")
    began = time.monotonic()
    moved = wait_full(router, router.start_chat(headers=[("X-To", "a")]), 1)
    wait_until(lambda: time.monotonic() >= began + 2, "half of its wait")
    there = wait_full(router, router.start_chat(headers=[("X-To", "b")]), 2)
    reload(router, only_b)
    assert [(q["modelServer"], q["length"]) for q in router.dump("queues")["queues"]] == [("b", 2)]
    check_error(moved.answer(), 504, "queue_timeout", "server_error", retry_after=True)
    wait_full(router, there, 1)
    assert time.monotonic() - began >= 4
    check_error(there.answer(), 504, "queue_timeout", "server_error", retry_after=True)
    assert time.monotonic() - began >= 6


@pytest.mark.parametrize("kind", ROUTES)
@pytest.mark.parametrize("strategy", ["boost", "fairness", "none"])
def test_queue_max_requests_is_of_all_targets(start, strategy, kind):
    """Two wait, at two targets: no more, at neither. Another name has its own two."""
    a, b = (start.pod(metrics=vllm_metrics(waiting=3)) for _ in range(2))
    servers = (SERVERS % (a.authority, b.authority)).replace("engine = none", "engine = vllm")
    other = "[model-route n]\ntarget = a, b\n"
    # Without a strategy it is max_waiting alone that makes requests wait.
    routes = (ROUTES[kind] + other).replace("\ntarget = a", "\nmax_waiting = 1\ntarget = a")
    if kind == "routes":
        routes = routes.replace("model = m\n[", "model = m\nmax_waiting = 1\n[")
    router = start.router(ini=servers + routes, boost=strategy == "boost", queue_max_requests=2, metrics_scrape_interval="1s",
                          enable_fairness_scheduling=str(strategy == "fairness").lower())
    wait_until(lambda: all(p["metrics"]["requestWaitingNum"] == 3 for p in router.dump("pods")["pods"]), "the pods' numbers")
    clients = []
    for n, to in enumerate("ab"):
        clients.append(router.start_chat(headers=[("X-To", to)]))
        wait_full(router, clients[-1], n + 1)
    for to in "ab":
        check_error(router.chat(headers=[("X-To", to)]), 429, "queue_full", "rate_limit_error", retry_after=True)
    clients.append(router.start_chat(model="n"))
    wait_until(lambda: sum(q["length"] for q in router.dump("queues")["queues"]) == 3, "the other name's to wait")
    clients[0].close()
    wait_full(router, None, 1)
    clients[0] = router.start_chat(headers=[("X-To", "a")])
    wait_full(router, None, 2)
    a.metrics_text = b.metrics_text = vllm_metrics(waiting=0)
    for _ in range(3):
        wait_until(lambda: not (a.nothing_held() and b.nothing_held()), "the next one")
        (b if a.nothing_held() else a).next().reply()
    assert [c.answer().status for c in clients] == [200] * 3


def test_reload_that_removes_a_target_keeps_users_limits_and_counts(start):
    st = Stage(start, "rules", fairness_max_concurrent=1, queue_max_requests=3)
    st.use("heavy", 1000)
    st.turn = 0
    held = st.hold("1", "x")  # at a, which goes now
    st.queue(("h-b", "heavy"), ("l-a", "light"), ("l-b", "light"))
    reload(st.router, st.servers + ONE["b"])
    assert [(q["modelServer"], q["length"]) for q in st.router.dump("queues")["queues"]] == [("b", 3)]
    users, name = st.users()
    assert (name["waiting"], name["running"], users["heavy"]["inputTokens"]) == (3, 1, 1000)
    check_error(st.router.chat(headers=[("X-User-ID", "late")]), 429, "queue_full", "rate_limit_error", retry_after=True)
    assert st.b.active == 0
    held.reply(body=usage(70, 0))  # of a target that is no more
    for tag in ("l-b", "l-a", "h-b"):  # who moved stands behind those that were there
        st.go(st.b, tag)
    st.end()
    users, name = st.users()
    assert (name["waiting"], name["running"]) == (0, 0)
    assert users["heavy"]["inputTokens"] >= 1000 and users["x"]["inputTokens"] == 70


@pytest.mark.parametrize("strategy", ["session_boost", "fairness"])
def test_what_a_removed_target_runs_is_counted(start, strategy):
    a, b = start.pod(), start.pod()
    servers = SERVERS % (a.authority, b.authority)
    router = start.router(ini=servers + ROUTES["rules"], boost=strategy == "session_boost",
                          enable_fairness_scheduling=str(strategy == "fairness").lower())
    clients = [router.start_chat(headers=[("X-To", to)]) for to in "ab"]
    held = [a.next(), b.next()]
    running = "kthena_router_%s_queue_inflight" % strategy
    assert router.metric(running, model="m") == 2
    reload(router, servers + ONE["a"])
    assert router.metric(running, model="m") == 2
    held[1].reply()
    assert clients[1].answer().status == 200
    router.wait_metric(running, 1, model="m")
    held[0].reply()
    assert clients[0].answer().status == 200
    router.wait_metric(running, 0, model="m")


def test_reload_that_adds_a_target_brings_no_second_window(start):
    st = Stage(start, "rules", fairness_max_concurrent=1)
    reload(st.router, st.servers + ONE["a"])
    st.use("heavy", 1000)
    st.turn = 0
    held = st.hold("1", "x")
    st.turn = 0
    st.queue(("h-a", "heavy"))
    reload(st.router, st.servers + ROUTES["rules"])
    st.turn = 1
    st.chat("h-b", "heavy")
    st.router.wait_metric(SIZE, 2, **ALL)
    st.turn = 1
    st.chat("l-b", "light")
    st.router.wait_metric(SIZE, 3, **ALL)
    assert st.b.active == 0
    held.reply(body={})
    for pod, tag in ((st.b, "l-b"), (st.a, "h-a"), (st.b, "h-b")):
        st.go(pod, tag)
    st.end()


def test_name_that_goes_and_comes_back_counts_what_still_runs(start):
    st = Stage(start, "rules", fairness_max_concurrent=1)
    st.use("heavy", 1000)
    st.turn = 0
    held = st.hold("1", "x")
    reload(st.router, st.servers + ONE["a"].replace("[model-route m]", "[model-route n]"))
    check_error(st.router.chat(), 404, "route_not_found")
    reload(st.router, st.servers + ONE["b"])
    st.queue(("h", "heavy"), ("l", "light"))
    assert st.b.active == 0
    held.reply(body={})
    st.go(st.b, "l")
    st.go(st.b, "h")
    st.end()


def test_name_that_comes_back_has_the_rules_of_now(start):
    """While a request of it still runs the name's users are known, but not by the limits of then."""
    st = Stage(start, "rules")
    with_limit = "[router]\nfairness_max_concurrent = %d\n"
    reload(st.router, with_limit % 1 + st.servers + ONE["a"])
    held = st.hold("1", "x")
    reload(st.router, with_limit % 1 + st.servers + ONE["a"].replace("[model-route m]", "[model-route n]"))
    reload(st.router, with_limit % 2 + st.servers + ONE["a"])
    st.turn = 0
    second = st.hold("2", "y")  # beside the first one
    st.turn = 0
    st.queue(("3", "z"))
    for q in (held, second):
        q.reply(body={})
    st.go(st.a, "3")
    st.end()
