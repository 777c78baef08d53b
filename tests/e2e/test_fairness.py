"""Fairness between users: who goes first, who a user is, the limits, and what is said of it."""

from daemon import fields_of
from pod import ok
from test_errors import check_error
from waiting import SLOW, wait_until

ALL = {"model": "m", "user_id": "_all"}
SIZE = "kthena_router_fairness_queue_size"


def usage(prompt, completion):
    return {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion,
                                     "total_tokens": prompt + completion}}


class Stage:
    """One router that is fair, in front of a pod that holds every request; slots are freed by hand."""

    def __init__(self, start, per_pod=1, **options):
        self.pod = start.pod()
        options.setdefault("fairness_max_concurrent", 1000)
        self.router = start.router({"m": [self.pod]}, boost=False, enable_fairness_scheduling="true",
                                   session_boost_inflight_per_pod=per_pod, **options)
        self.queued, self.clients = 0, {}

    def chat(self, tag, user_id, **extra):
        headers = [("X-User-ID", user_id)] if user_id is not None else []
        self.clients[tag] = self.router.start_chat(headers=headers, tag=tag, **extra)
        return self.clients[tag]

    def use(self, user, prompt, completion=0):
        """The user has a turn that costs so much."""
        c = self.chat("used", user)
        self.pod.next().reply(body=usage(prompt, completion))
        assert c.answer().status == 200
        c.close()

    def occupy(self):
        self.chat("occupant", "occupant")
        return self.pod.next()

    def queue(self, *specs):
        for tag, user in specs:
            self.queued += 1
            self.chat(tag, user)
            self.wait_queued(self.queued)

    def wait_queued(self, n):
        self.router.wait_metric(SIZE, n, **ALL)

    def drain(self, held):
        """Frees one slot after the other; returns the tags in the order in which the pod got them."""
        order = []
        for _ in range(self.queued):
            held.reply(body={})
            held = self.pod.next()
            order.append(held.tag)
            self.queued -= 1
        held.reply(body={})
        return order


def test_least_used_first(start):
    st = Stage(start)
    st.use("heavy", 1000, 500)
    st.use("light", 10, 5)
    held = st.occupy()
    st.queue(("h", "heavy"), ("l", "light"), ("n", "new"), ("l2", "light"))
    assert st.drain(held) == ["n", "l", "l2", "h"]


def test_output_counts_twice_by_default(start):
    st = Stage(start)
    st.use("reader", 190)
    st.use("writer", 0, 100)
    held = st.occupy()
    st.queue(("w", "writer"), ("r", "reader"))
    assert st.drain(held) == ["r", "w"]


def test_inside_a_user_and_between_equals_by_arrival(start):
    st = Stage(start)
    held = st.occupy()
    # What waits is ranked; each that runs counts with its estimate, so that users of one rank take turns.
    st.queue(("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b"))
    order = []
    for _ in range(4):
        held.reply(body=usage(10, 0))
        held = st.pod.next()
        order.append(held.tag)
    st.queued = 0
    held.reply(body=usage(10, 0))
    assert order == ["a1", "b1", "a2", "b2"]


def test_usage_counts_while_requests_wait(start):
    st = Stage(start, per_pod=2)
    st.use("a", 10)
    st.use("b", 20)
    first = st.occupy()
    st.chat("a-running", "a")
    running = st.pod.next()
    st.queue(("a", "a"), ("b", "b"))
    running.reply(body=usage(500, 0))  # now a has had more than b
    got = st.pod.next()
    assert got.tag == "b"
    got.reply(body={})
    st.pod.next().reply(body={})
    first.reply(body={})


def test_anonymous_is_one_user_last_among_equals(start):
    st = Stage(start)
    held = st.occupy()
    st.queue(("x1", None), ("x2", ""), ("a", "a"), ("b", "b"))
    assert st.drain(held) == ["a", "b", "x1", "x2"]


def test_user_of_the_body(start):
    st = Stage(start)
    for tag, user, body in (("u", None, {"user": "body-\u00e4"}), ("v", "head", {"user": "body"}), ("w", None, {"user": 7})):
        st.chat(tag, user, **body)
        st.pod.next().reply(body=usage(1, 1))
        st.clients[tag].answer()
        entry = st.router.access(st.clients[tag].id)
        assert entry.get("user") == {"u": "body-\u00e4", "v": "head", "w": None}[tag]
    users = {u["user"]: u for u in st.router.dump("users")["users"][0]["users"]}
    assert set(users) == {"body-\u00e4", "head", ""}
    assert users["head"]["inputTokens"] == users["head"]["outputTokens"] == users["head"]["requests"] == 1
    assert users["head"]["priority"] == 3


def test_any_text_is_a_user_in_header_and_body(start):
    """Long ids, control bytes and halves of characters: who sends one is not anonymous, and the pod judges its JSON."""
    st = Stage(start)
    long = "u" * 5000
    sent = [("header", long, {}), ("body", None, {"user": long}), ("nul", None, {"user": "a\0b"}), ("half", None, {"user": "\ud800"}),
            ("other half", None, {"user": "\udc00"})]
    for tag, user, body in sent:
        st.chat(tag, user, **body)
        q = st.pod.next()
        assert q.json().get("user") == body.get("user")
        q.reply(body=usage(1, 0))
        assert st.clients[tag].answer().status == 200
    users = st.router.dump("users")["users"][0]["users"]
    assert len(users) == 4 and "" not in {u["user"] for u in users}
    assert [u["inputTokens"] for u in users if u["user"] == long[:64]] == [2]
    assert st.router.access(st.clients["nul"].id)["user"] == "a\0b"


def test_what_of_a_users_id_is_longer_than_a_header_may_be_does_not_count(start):
    st = Stage(start, max_header_bytes="4KiB")
    for more in ("x", "y"):
        st.chat(more, None, user="u" * 4096 + more)
        st.pod.next().reply(body=usage(1, 0))
        assert st.clients[more].answer().status == 200
    assert [u["inputTokens"] for u in st.router.dump("users")["users"][0]["users"]] == [2]


def test_user_header_can_be_named(start):
    st = Stage(start, fairness_user_header="X-Tenant, X-User-ID")
    c = st.router.start_chat(headers=[("X-Tenant", "t"), ("X-User-ID", "u")])
    st.pod.next().reply(body={})
    c.answer()
    assert st.router.access(c.id)["user"] == "t"


def test_stream_without_usage_costs_its_events(start):
    st = Stage(start)
    c = st.chat("s", "streamer", stream=True, messages=[{"role": "user", "content": "hello world"}])
    q = st.pod.next().start()
    for _ in range(7):
        q.event('{"choices":[{"delta":{"content":"x"}}]}')
    q.end()
    c.answer()
    [user] = st.router.dump("users")["users"][0]["users"]
    assert (user["inputTokens"], user["outputTokens"]) == (10, 7)
    assert st.router.access(c.id).get("output_tokens") is None


def test_failed_requests_cost_nothing(start):
    st = Stage(start)
    c = st.chat("e", "unlucky")
    st.pod.next().reply(500, usage(50, 50))
    c.answer()
    assert st.router.dump("users")["users"][0]["users"] == []


def test_greedy_user_does_not_starve_others(start):
    """A greedy user's burst of long answers leaves every other slot to the modest one."""
    st = Stage(start, per_pod=2)
    st.chat("g0", "greedy")
    st.chat("g1", "greedy")
    held = [st.pod.next(), st.pod.next()]
    st.queue(("g2", "greedy"), ("g3", "greedy"), ("m1", "modest"), ("m2", "modest"))
    order = []
    for _ in range(4):
        held.pop(0).reply(body=usage(100, 100))
        held.append(st.pod.next())
        order.append(held[-1].tag)
    assert order[:2] == ["m1", "m2"]
    for q in held:
        q.reply(body={})


def test_overtake_bound(start):
    st = Stage(start, session_boost_max_overtakes=2)
    st.use("heavy", 1000)
    held = st.occupy()
    st.queue(("h", "heavy"), ("a", "a"), ("b", "b"), ("c", "c"))
    assert st.drain(held) == ["a", "b", "h", "c"]
    assert st.router.access(st.clients["h"].id)["user"] == "heavy"
    assert st.router.metric("kthena_router_fairness_queue_forced_dequeue_total", model="m") == 1


def test_queue_timeout(start):
    st = Stage(start, fairness_queue_timeout="200ms")
    held = st.occupy()
    c = st.chat("late", "u")
    r = c.answer()
    check_error(r, 504, "queue_timeout", "server_error", retry_after=True)
    st.router.stderr.wait_for_line(r"fairness: timed out in the queue .*user=u")
    assert st.router.metric("kthena_router_fairness_queue_timeouts_total", model="m") == 1
    held.reply(body={})


def test_client_that_leaves_is_gone_at_once(start):
    st = Stage(start)
    held = st.occupy()
    st.queue(("a", "a"), ("b", "b"))
    st.clients["a"].close()
    st.wait_queued(1)
    st.router.stderr.wait_for_line(r"fairness: abandoned, the client left .*user=a")
    held.reply(body={})
    held = st.pod.next()
    assert held.tag == "b"
    held.reply(body={})
    m = st.router.metrics()
    assert m.get("kthena_router_fairness_queue_cancelled_total", **ALL) == 1
    assert m.get("kthena_router_fairness_queue_dequeue_total", **ALL) == 2


def test_client_that_leaves_before_the_answer_pays_for_the_input(start):
    """The pod has worked on it; a request that only waited, or that the pod refused, costs nothing."""
    st = Stage(start)
    st.chat("a", "a", messages=[{"role": "user", "content": "x" * 400}])
    held = st.pod.next()
    st.queue(("w", "waits"))
    st.clients["w"].close()
    st.wait_queued(0)
    st.clients["a"].close()
    assert held.gone.wait(SLOW)
    c = st.chat("r", "refused")
    st.pod.next().reply(status=400, body={"error": {}})
    assert c.answer().status == 400
    users = {u["user"]: u for u in st.router.dump("users")["users"][0]["users"]}
    assert list(users) == ["a"]
    assert 100 <= users["a"]["inputTokens"] < 130 and users["a"]["outputTokens"] == 0


def test_queue_bounds(start):
    st = Stage(start, queue_max_requests=1)
    held = st.occupy()
    st.queue(("a", "a"))
    check_error(st.router.chat(headers=[("X-User-ID", "b")]), 429, "queue_full", "rate_limit_error", retry_after=True)
    assert st.drain(held) == ["a"]


def test_max_concurrent(start):
    st = Stage(start, per_pod=100, fairness_max_concurrent=2)
    for tag in ("1", "2"):
        st.chat(tag, tag)
    held = [st.pod.next(), st.pod.next()]
    st.queue(("3", "3"), ("4", "4"))
    assert st.pod.active == 2
    wait_until(lambda: st.router.metric("kthena_router_fairness_gate_closed_seconds_total", model="m",
                                        reason="max_concurrent") > 0, "the gate to be closed")
    assert st.router.dump("queues")["queues"][0]["closedReason"] == "max_concurrent"
    for q in held:
        q.reply(body={})
    for _ in range(2):
        st.pod.next().reply(body={})
    assert st.pod.peak == 2


def test_per_pod_limit_holds_too(start):
    st = Stage(start, per_pod=1, fairness_max_concurrent=5)
    held = st.occupy()
    st.queue(("a", "a"))
    assert st.pod.active == 1
    assert st.drain(held) == ["a"]


def test_qps(start):
    pod = start.pod(ok)
    router = start.router({"m": [pod]}, boost=False, enable_fairness_scheduling="true", fairness_max_qps=20,
                          session_boost_inflight_per_pod=100)
    clients = [router.start_chat(headers=[("X-User-ID", str(i))]) for i in range(5)]
    for c in clients:
        assert c.answer().status == 200
    times = [q.at for q in pod.requests]
    # The clock of the test starts late by what the machine needs; the rate is the router's.
    assert times[4] - times[0] > 0.15
    assert times[4] - times[0] < 0.4 * SLOW + 0.6
    assert router.metric("kthena_router_fairness_gate_closed_seconds_total", model="m", reason="max_qps") > 0.1


def test_request_whose_pod_is_dead_keeps_its_turn(start):
    dead, pod = start.pod(listen=False), start.pod()
    router = start.router({"m": [dead, pod]}, boost=False, enable_fairness_scheduling="true", fairness_max_qps=2,
                          session_boost_inflight_per_pod=100)
    clients = [router.start_chat() for _ in range(3)]
    held = [pod.next() for _ in clients]
    assert router.metric("kthena_router_upstream_connect_failures_total", pod=dead.authority) == 3
    # Three turns, not six: each of them went to the dead pod first, which has less to do.
    assert 0.9 < held[2].at - held[0].at < 1.7
    for q in held:
        q.reply()
    assert [c.answer().status for c in clients] == [200] * 3


def test_reload_changes_ranks_at_once(start):
    pod = start.pod()
    ini = "[router]\nenable_fairness_scheduling = true\nfairness_max_concurrent = 9\nsession_boost_inflight_per_pod = 1\n%s" \
          "[model-server s]\npods = %s\n[model-route r]\nmodel = m\ntarget = s\n"
    router = start.router(ini=ini % ("", pod.authority), boost=False)
    for user, n in (("reader", (100, 0)), ("writer", (0, 60))):
        c = router.start_chat(headers=[("X-User-ID", user)])
        pod.next().reply(body=usage(*n))
        c.answer()
    occupant = router.start_chat()
    held = pod.next()
    for i, user in enumerate(("reader", "writer")):
        router.start_chat(headers=[("X-User-ID", user)], tag=user)
        router.wait_metric(SIZE, i + 1, **ALL)
    before = router.metrics().get("kthena_router_config_reloads_total", 0, result="ok")
    router.write_ini(ini % ("fairness_output_token_weight = 0.5\n", pod.authority))
    router.signal(1)
    router.wait_metric("kthena_router_config_reloads_total", before + 1, result="ok")
    held.reply(body={})
    occupant.answer()
    held = pod.next()
    assert held.tag == "writer"
    held.reply(body={})
    pod.next().reply(body={})


def test_lines_and_families(start):
    st = Stage(start)
    held = st.occupy()
    st.queue(("a", "a b"))
    assert st.drain(held) == ["a"]
    st.clients["a"].answer()
    line = st.router.stderr.wait_for_line(r"fairness: dequeued .*user=\"a b\"")
    fields = fields_of(line)
    assert fields["model"] == "m" and fields["pod"] == st.pod.authority and float(fields["wait_ms"]) >= 0
    m = st.router.metrics()
    assert m.get("kthena_router_fairness_queue_duration_seconds_count", **ALL) == 2
    assert m.get("kthena_router_fairness_queue_inflight", model="m") == 0
    assert "kthena_router_session_boost_queue_size{" not in m.text
    assert st.router.dump("requests")["requests"] == []
