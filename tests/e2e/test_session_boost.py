"""Who goes first, on which pod, and when: the queue's rules seen from outside."""

import signal
import threading
import time

import pytest

from daemon import fields_of
from pod import ok, vllm_metrics
from test_errors import check_error
from waiting import DEADLINE, SLOW, wait_until


class Stage:
    """One router in front of pods that hold every request; slots are freed by hand."""

    def __init__(self, start, pods=1, per_pod=1, **options):
        self.pods = [start.pod() for _ in range(pods)]
        options.setdefault("session_sticky_wait", "60s")
        self.router = start.router({"m": self.pods}, session_boost_inflight_per_pod=per_pod, **options)
        self.queued = 0
        self.clients = {}

    def warm(self, *sessions, pod=0):
        """Each session finishes a turn, in this order, on the given pod."""
        for s in sessions:
            c, wrong = self.router.start_chat(session=s), None
            q = self.any_held()
            if q.pod is not self.pods[pod]:  # stays where it is, so that the next one goes to the other pod
                wrong = (c, q)
                c = self.router.start_chat(session=s)
                q = self.pods[pod].next()
            q.reply()
            assert c.answer().status == 200
            c.close()
            if wrong:
                wrong[1].reply(500)  # not marked
                wrong[0].answer()

    def any_held(self):
        wait_until(lambda: any(not p.nothing_held() for p in self.pods), "a request")
        return next(p for p in self.pods if not p.nothing_held()).next()

    def occupy(self, pod=0, n=1):
        """Fills n slots; returns the held requests."""
        out = []
        for _ in range(n):
            c = self.router.start_chat(tag="occupant")
            self.clients[len(self.clients)] = c
            out.append(self.pods[pod].next())
        return out

    def queue(self, *specs):
        """Queues requests one after the other. A spec is a tag, or (tag, session)."""
        for spec in specs:
            tag, session = spec if isinstance(spec, tuple) else (spec, None)
            self.queued += 1
            self.clients[tag] = self.router.queue_chat(self.queued, session=session, tag=tag)

    def drain(self, held):
        """Frees one slot after the other; returns the tags in the order in which the pod got them."""
        order = []
        for _ in range(self.queued):
            held.reply()
            held = self.pods[0].next()
            order.append(held.tag)
            self.queued -= 1
        held.reply()
        return order

    def access(self, tag):
        return self.router.access(self.clients[tag].id)


def test_follow_up_goes_before_a_waiting_first_turn(start):
    st = Stage(start)
    st.warm("conv")
    [held] = st.occupy()
    st.queue("plain", ("next", "conv"))
    assert st.drain(held) == ["next", "plain"]
    assert st.access("next")["boosted"] is True and st.access("plain")["boosted"] is False
    assert st.access("next")["session"] == "conv"
    assert st.access("next")["queue_ms"] >= 0


def test_follow_up_sent_ahead_goes_before_a_waiting_first_turn(start):
    """It is ranked with all that wait when the slot is free, though it is read only when the turn before it has ended."""
    st = Stage(start)
    c = st.router.start_chat(session="conv")
    held = st.pods[0].next()
    st.queue("plain")
    c.chat(session="conv", tag="next")
    st.router.get("/healthz")  # the router has it by now
    held.reply()
    for tag in ("next", "plain"):
        q = st.pods[0].next()
        assert q.tag == tag
        q.reply()
    assert [r.answer().status for r in (c, c, st.clients["plain"])] == [200] * 3


def test_first_turns_by_arrival(start):
    st = Stage(start)
    [held] = st.occupy()
    st.queue("a", ("b", "new-session"), "c", "d")
    assert st.drain(held) == ["a", "b", "c", "d"]


def test_most_recently_completed_session_first(start):
    st = Stage(start)
    st.warm("A", "B")
    [held] = st.occupy()
    st.queue(("x", "X"), ("a", "A"), ("b", "B"), "none")
    assert st.drain(held) == ["b", "a", "x", "none"]


def test_neither_arrival_nor_its_reverse(start):
    st = Stage(start)
    st.warm("A", "B", "C")
    [held] = st.occupy()
    st.queue(("b", "B"), ("c", "C"), ("a", "A"))
    assert st.drain(held) == ["c", "b", "a"]


def test_request_without_session_is_never_boosted(start):
    st = Stage(start)
    st.warm("conv", "")
    [held] = st.occupy()
    st.queue("first", "second")
    assert st.drain(held) == ["first", "second"]
    assert st.access("second")["boosted"] is False


def test_least_recently_completed_session_is_forgotten(start):
    st = Stage(start, session_boost_max_sessions=2)
    st.warm("a", "b", "a", "c")
    m = st.router.metrics()
    assert m.get("kthena_router_session_boost_tracked_sessions", model="m") == 2
    assert m.get("kthena_router_session_boost_evicted_sessions_total", model="m") == 1
    [held] = st.occupy()
    st.queue(("b", "b"), ("a", "a"), ("c", "c"))
    assert st.drain(held) == ["c", "a", "b"]


def test_looking_up_does_not_refresh(start):
    st = Stage(start, session_boost_max_sessions=2)
    st.warm("a", "b")
    [held] = st.occupy()
    st.queue(("a2", "a"))  # looked up, and its turn will fail
    held.reply()
    st.pods[0].next().reply(500)
    st.queued = 0
    st.warm("c")  # pushes the oldest completion out: a, though it was looked up last
    [held] = st.occupy()
    st.queue(("a3", "a"), ("b2", "b"))
    assert st.drain(held) == ["b2", "a3"]


def test_promotion_while_waiting(start):
    """Turn 2 waits already when turn 1 completes."""
    st = Stage(start)
    running = st.router.start_chat(session="s", tag="turn 1")
    held = st.pods[0].next()
    st.queue("x", "y", ("turn 2", "s"))
    assert st.drain(held) == ["turn 2", "x", "y"]
    assert running.answer().status == 200
    assert st.access("turn 2")["boosted"] is True
    assert st.router.metric("kthena_router_session_boost_queue_promotions_total", model="m") == 1


@pytest.mark.parametrize("split", [0, 3, 13, 14])
def test_client_that_closes_at_done_has_a_whole_answer(start, split):
    """The official OpenAI client closes when it reads data: [DONE]; the pod's last chunk may still be on its way."""
    pod = start.pod()
    router = start.router({"m": [pod]})
    c = router.client()
    c.chat(session="s", stream=True)
    q = pod.next()
    q.start().event('{"t":"x"}')
    r, pieces = c.head(), None
    done = b"data: [DONE]\n\n"
    for part in (done[:split], done[split:]):
        if part:
            q.chunk(part)
            pieces = c.read_until(r, part, pieces)
    follow = router.start_chat(session="s", tag="follow")  # on another connection, before the last chunk
    p = pod.next()
    p.reply()
    assert follow.answer().status == 200
    c.close()
    q.wait_gone()
    entry = router.access(c.id)
    assert entry["status_code"] == 200 and "error" not in entry and "closed_by" not in entry
    assert router.access(follow.id)["boosted"] is True
    assert router.metrics().total("kthena_router_client_aborts_total") == 0


@pytest.mark.parametrize("how", ["sized", "chunked", "sse"])
def test_turn_two_on_the_last_byte_is_boosted(start, how):
    """A client that answers at once finds its session marked: 100 of 100, with others always waiting."""
    def answer(q):
        if how == "sized":
            q.reply()
        elif how == "chunked":
            q.start(content_type="application/json").chunk(b"{}").end()
        else:
            q.sse("a")
    pod = start.pod(script=answer)
    router = start.router({"m": [pod]}, session_boost_inflight_per_pod=1, session_boost_timeout="0")
    stop = threading.Event()

    def noise():
        c = router.client()
        while not stop.is_set():
            c.chat(tag="noise")
            c.answer()
    threads = [threading.Thread(target=noise, daemon=True) for _ in range(3)]
    for t in threads:
        t.start()
    try:
        ids = []
        for i in range(100):
            c = router.client()
            c.chat(session="s%d" % i)
            assert c.answer().status == 200
            c.chat(session="s%d" % i)  # on the last byte
            assert c.answer().status == 200
            ids.append(c.id)
            c.close()
    finally:
        stop.set()
        for t in threads:
            t.join(DEADLINE)
    entries = [router.access(i) for i in ids]
    assert sum(e["boosted"] for e in entries) == 100


def test_turn_two_is_boosted_whatever_the_client_saw_of_turn_one_last(start):
    """A follow-up that is queued between [DONE] and the last byte goes first."""
    st = Stage(start)
    c = st.router.start_chat(session="s", stream=True)
    q = st.pods[0].next()
    q.start().event("x").event("[DONE]")
    r = c.head()
    pieces = c.read_until(r, b"[DONE]\n\n")
    st.queue("plain", ("turn 2", "s"))
    q.end()
    list(pieces)
    q = st.pods[0].next()
    assert q.tag == "turn 2"
    q.reply()
    st.pods[0].next().reply()


@pytest.mark.parametrize("status", [301, 400, 404, 429, 500, 503])
def test_other_than_2xx_does_not_mark(start, status):
    st = Stage(start)
    c = st.router.start_chat(session="s")
    st.pods[0].next().reply(status)
    assert c.answer().status == status
    [held] = st.occupy()
    st.queue("plain", ("s", "s"))
    assert st.drain(held) == ["plain", "s"]


def test_any_2xx_marks(start):
    st = Stage(start)
    c = st.router.start_chat(session="s")
    st.pods[0].next().reply(201)
    assert c.answer().status == 201
    [held] = st.occupy()
    st.queue("plain", ("s", "s"))
    assert st.drain(held) == ["s", "plain"]


def test_cut_turn_does_not_mark(start):
    st = Stage(start)
    c = st.router.start_chat(session="s", stream=True)
    st.pods[0].next().start().event("half").close()
    c.read_cut()
    [held] = st.occupy()
    st.queue("plain", ("s", "s"))
    assert st.drain(held) == ["plain", "s"]


# ---- limits ----

def test_per_pod_limit(start):
    st = Stage(start, per_pod=2)
    held = st.occupy(n=2)
    st.queue("third")
    assert st.pods[0].nothing_held() and st.pods[0].peak == 2
    assert st.router.metric("kthena_router_session_boost_queue_inflight", model="m") == 2
    held[0].reply()
    q = st.pods[0].next()
    assert q.tag == "third"
    q.reply()
    held[1].reply()
    assert st.pods[0].peak == 2


def test_slot_is_held_to_the_last_byte(start):
    """Heads and first tokens free nothing."""
    st = Stage(start, per_pod=1)
    c = st.router.start_chat(stream=True)
    q = st.pods[0].next()
    q.start().event("first")
    c.read_until(c.head(), b"first")
    st.queue("waits")
    assert st.pods[0].nothing_held()
    q.end()
    st.pods[0].next().reply()


def test_limit_is_never_exceeded_on_any_pod(start):
    def answer(q):
        time.sleep(0.002 * (q.number % 3))  # the pod's pace
        q.reply()
    pods = [start.pod(script=answer) for _ in range(3)]
    router = start.router({"m": pods}, session_boost_inflight_per_pod=2)
    clients = [router.client() for _ in range(30)]
    for turn in range(10):
        for i, c in enumerate(clients):
            c.chat(session="s%d" % i)
        for c in clients:
            assert c.answer().status == 200
    assert max(p.peak for p in pods) == 2
    assert sum(len(p.requests) for p in pods) == 300


def test_models_share_a_pods_limit(start):
    pod = start.pod()
    router = start.router({"m": [pod], "n": [pod]}, session_boost_inflight_per_pod=1)
    a = router.start_chat(model="m")
    held = pod.next()
    others = [router.queue_chat(1, model="n", tag="n1"), router.queue_chat(1, model="m", tag="m1"),
              router.queue_chat(2, model="n", tag="n2"), router.queue_chat(2, model="m", tag="m2")]
    order = []
    for _ in range(4):
        held.reply()
        held = pod.next()
        order.append(held.tag)
    held.reply()
    assert {tag[0] for tag in order[:2]} == {"m", "n"}, "the models take turns: %s" % order
    assert [c.answer().status for c in [a, *others]] == [200] * 5
    assert pod.peak == 1


def test_queue_timeout_at_the_limit_and_not_after_admission(start):
    st = Stage(start, session_boost_timeout="%dms" % (300 * SLOW))
    running = st.router.start_chat(session="r")
    held = st.pods[0].next()
    begun = time.monotonic()
    waiting = st.router.start_chat(session="w", tag="w")
    r = waiting.answer()
    took = time.monotonic() - begun
    assert check_error(r, 504, "queue_timeout", "server_error", retry_after=True) == "Request processing timed out in queue"
    assert 0.295 * SLOW <= took < 0.6 * SLOW
    # The running one is far over that limit and still answered.
    wait_until(lambda: time.monotonic() - begun > 0.5 * SLOW, "time to pass")
    held.reply()
    assert running.answer().status == 200
    assert st.router.metric("kthena_router_session_boost_queue_timeouts_total", model="m") == 1
    entry = st.router.access(waiting.id)
    assert entry["status_code"] == 504 and entry["error"]["type"] == "queue_timeout" and entry["queue_ms"] >= 290 * SLOW
    assert st.router.stderr.wait_for_line(r"session boost.*time.*session=w")


def test_stream_that_waits_in_vain_gets_a_status(start):
    """Nothing is sent while it waits, so that the end can still be a 504 in JSON, with when to come again."""
    pod = start.pod()
    router = start.router({"m": [pod]}, session_boost_inflight_per_pod=1, session_boost_timeout="%dms" % (400 * SLOW))
    running = router.start_chat()
    held = pod.next()
    c = router.queue_chat(1, stream=True)
    assert c.silent_for(0.2 * SLOW)
    r = c.answer()
    check_error(r, 504, "queue_timeout", "server_error", retry_after=True)
    held.reply()
    assert running.answer().status == 200


def test_no_wait_limit(start):
    st = Stage(start, session_boost_timeout="-1s")
    [held] = st.occupy()
    st.queue("patient")
    assert st.drain(held) == ["patient"]


# ---- grace ----

def test_grace_gives_the_slot_to_the_follow_up(start):
    st = Stage(start, session_boost_grace_period="%dms" % (400 * SLOW))
    c = st.router.start_chat(session="s", tag="turn 1")
    held = st.pods[0].next()
    st.queue("plain")
    held.reply()
    freed = time.monotonic()
    assert c.answer().status == 200
    st.queue(("turn 2", "s"))
    q = st.pods[0].next()
    took = time.monotonic() - freed
    assert q.tag == "turn 2" and 0.39 * SLOW <= took < 0.7 * SLOW
    q.reply()
    st.pods[0].next().reply()


def test_grace_ends(start):
    st = Stage(start, session_boost_grace_period="200ms")
    [held] = st.occupy()
    st.queue("plain")
    held.reply()
    freed = time.monotonic()
    q = st.pods[0].next()
    assert 0.19 <= time.monotonic() - freed < 0.5 * SLOW
    q.reply()


def test_grace_holds_one_slot_of_two(start):
    st = Stage(start, per_pod=2, session_boost_grace_period="%dms" % (1000 * SLOW))
    first, _second = None, None
    c = st.router.start_chat(tag="turn 1")
    first = st.pods[0].next()
    first.reply()
    freed = time.monotonic()
    assert c.answer().status == 200
    # One of the two slots is held, the other takes an arrival at once.
    a = st.router.start_chat(tag="a")
    qa = st.pods[0].next()
    assert qa.tag == "a" and time.monotonic() - freed < 0.5 * SLOW
    b = st.router.queue_chat(1, tag="b")
    qb = st.pods[0].next()
    assert qb.tag == "b" and time.monotonic() - freed >= 0.99 * SLOW
    qa.reply()
    qb.reply()
    assert a.answer().status == b.answer().status == 200


def test_no_grace_on_arrival(start):
    st = Stage(start, session_boost_grace_period="10s")
    begun = time.monotonic()
    st.router.start_chat()
    st.pods[0].next().reply()
    assert time.monotonic() - begun < 1 * SLOW


# ---- waking ----

def test_fresh_numbers_wake_the_queue(start):
    """Foreign load keeps the pod full, nothing of ours runs: the scrape that shows room admits."""
    pod = start.pod(metrics=vllm_metrics(waiting=5.0))
    router = start.router({"m": [pod]}, metrics_scrape_interval="100ms")
    router.wait_metric("kthena_router_pod_waiting_requests", 5, pod=pod.authority)
    c = router.queue_chat(1)
    assert router.metric("kthena_router_pod_inflight_requests", pod=pod.authority) == 0
    pod.metrics_text = vllm_metrics(waiting=0.0)
    at = time.monotonic()
    pod.next().reply()
    assert time.monotonic() - at < 0.3 * SLOW
    assert c.answer().status == 200


def test_stale_numbers_are_no_opinion(start):
    pod = start.pod(metrics=vllm_metrics(waiting=5.0))
    router = start.router({"m": [pod]}, metrics_scrape_interval="100ms", session_boost_inflight_per_pod=1)
    router.wait_metric("kthena_router_pod_waiting_requests", 5, pod=pod.authority)
    c = router.queue_chat(1, tag="first")

    def broken(conn):
        conn.sock.sendall(b"HTTP/1.1 500 Broken\r\nContent-Length: 0\r\n\r\n")
    pod.metrics_script = broken
    held = pod.next()  # after three intervals
    assert held.tag == "first"
    assert router.metric("kthena_router_pod_metrics_stale", pod=pod.authority) == 1
    second = router.queue_chat(1, tag="second")  # the in-flight limit still counts
    assert pod.nothing_held()
    held.reply()
    pod.next().reply()
    assert c.answer().status == second.answer().status == 200


# ---- lanes ----

def occupy_pod(st, index):
    """One request held on that pod; the others are free afterwards."""
    extra = []
    while True:
        c = st.router.start_chat(tag="occupant")
        held = st.any_held()
        if held.pod is st.pods[index]:
            break
        extra.append((c, held))
    for other, h in extra:
        h.reply()
        other.answer()
    return held


def test_follow_up_waits_for_its_warm_pod_and_nobody_else_does(start):
    st = Stage(start, pods=2)
    st.warm("s", pod=0)
    held = occupy_pod(st, 0)
    follow = st.router.queue_chat(1, session="s", tag="follow")
    plain = st.router.start_chat(tag="plain")
    q = st.pods[1].next()
    assert q.tag == "plain"
    q.reply()
    assert plain.answer().status == 200
    assert st.router.queue_len() == 1 and st.pods[0].nothing_held()
    held.reply()
    q = st.pods[0].next()
    assert q.tag == "follow"
    q.reply()
    assert follow.answer().status == 200
    assert st.router.access(follow.id)["selected_pod"] == st.pods[0].authority


def test_follow_ups_return_to_their_pods(start):
    """Eight sessions on two pods: every later turn on the pod of the first."""
    pods = [start.pod(script=ok), start.pod(script=ok)]
    router = start.router({"m": pods}, session_boost_inflight_per_pod=4)
    home = {}
    for turn in range(4):
        for s in range(8):
            r = router.chat(session="s%d" % s)
            pod = router.access(r.id)["selected_pod"]
            assert home.setdefault(s, pod) == pod
    assert len(set(home.values())) == 2


def test_sticky_wait_ends(start):
    st = Stage(start, pods=2, session_sticky_wait="300ms")
    st.warm("s", pod=0)
    held = occupy_pod(st, 0)
    begun = time.monotonic()
    follow = st.router.start_chat(session="s", tag="follow")
    q = st.pods[1].next()
    took = time.monotonic() - begun
    assert q.tag == "follow" and 0.29 <= took < 3 * SLOW
    q.reply()
    held.reply()
    assert follow.answer().status == 200
    assert st.router.metric("kthena_router_session_boost_queue_forced_dequeue_total", model="m") == 1


@pytest.mark.parametrize("option", [{"session_sticky": "off"}, {"session_sticky_wait": "0"}])
def test_no_stickiness(start, option):
    st = Stage(start, pods=2, **option)
    st.warm("s", pod=0)
    held = occupy_pod(st, 0)
    follow = st.router.start_chat(session="s", tag="follow")
    q = st.pods[1].next()
    assert q.tag == "follow"
    q.reply()
    held.reply()
    assert follow.answer().status == 200


def test_warm_pod_with_room_is_preferred(start):
    """Also when it has more in flight than the other."""
    st = Stage(start, pods=2, per_pod=4)
    st.warm("s", pod=0)
    held = [occupy_pod(st, 0)]
    follow = st.router.start_chat(session="s", tag="follow")
    q = st.pods[0].next()
    assert q.tag == "follow"
    q.reply()
    for h in held:
        h.reply()
    assert follow.answer().status == 200


def test_forced_after_the_overtake_bound(start):
    st = Stage(start, session_boost_max_overtakes=3)
    st.warm("v", "b1", "b2", "b3", "b4", "b5")
    [held] = st.occupy()
    st.queue(("v", "v"), ("b1", "b1"), ("b2", "b2"), ("b3", "b3"), ("b4", "b4"), ("b5", "b5"))
    assert st.drain(held) == ["b5", "b4", "b3", "v", "b1", "b2"]
    assert st.access("v")["overtaken"] == 3
    assert st.router.metric("kthena_router_session_boost_queue_forced_dequeue_total", model="m") >= 1


def test_first_turn_is_not_starved_by_a_closed_loop(start):
    """Eight sessions that always come back keep four slots busy; a first turn waits, but gets through."""
    def answer(q):
        time.sleep(0.003)  # the pod's pace
        q.reply()
    pod = start.pod(script=answer)
    router = start.router({"m": [pod]}, session_boost_inflight_per_pod=4, session_boost_timeout="0", session_boost_max_overtakes=8)
    stop = threading.Event()

    def converse(i):
        c = router.client()
        while not stop.is_set():
            c.chat(session="s%d" % i)
            c.answer()
    threads = [threading.Thread(target=converse, args=(i,), daemon=True) for i in range(8)]
    for t in threads:
        t.start()
    try:
        wait_until(lambda: router.metric("kthena_router_session_boost_queue_boosted_dequeue_total", model="m") > 20, "a busy loop")
        before = len(pod.requests)
        assert router.chat(tag="fresh").status == 200
        served = next(q.number for q in pod.requests[before:] if q.header("X-Session-ID") is None) - before
    finally:
        stop.set()
        for t in threads:
            t.join(DEADLINE)
    # The bound of 8, what ran already, and what was on its way while we looked.
    assert served <= 8 + 4 + 8, served


# ---- the session header ----

def test_first_non_empty_header_of_the_list_wins(start):
    pod = start.pod(script=ok)
    router = start.router({"m": [pod]}, session_boost_header="X-First, session_id ,X-Third")

    def session_of(*fields):
        c = router.client()
        c.chat(headers=list(fields))
        c.answer()
        return router.access(c.id).get("session") or None
    assert session_of(("X-Third", "3"), ("X-First", "1")) == "1"
    assert session_of(("X-First", ""), ("session_id", "2"), ("X-Third", "3")) == "2"
    assert session_of(("x-THIRD", "3")) == "3"
    assert session_of(("X-Session-ID", "default is off")) is None
    assert session_of() is None


def test_long_and_odd_session_ids(start):
    pod = start.pod(script=ok)
    router = start.router({"m": [pod]})
    for session in ("x" * 256, "x" * 257, "x" * 3000, "with space", "caf\xe9", 'quote"back\\slash=', "/uuid:1;a"):
        router.chat(session=session)
        r = router.chat(session=session)
        assert router.access(r.id)["boosted"] is True, session
    # Long ids are told apart by all of their bytes.
    r = router.chat(session="x" * 2999 + "y")
    assert router.access(r.id)["boosted"] is False


def test_sessions_of_models_are_apart(start):
    pod = start.pod(script=ok)
    router = start.router({"m": [pod], "n": [pod]})
    router.chat(session="s", model="m")
    r = router.chat(session="s", model="n")
    assert router.access(r.id)["boosted"] is False
    r = router.chat(session="s", model="m")
    assert router.access(r.id)["boosted"] is True


# ---- log and metrics ----

def test_log_lines(start):
    st = Stage(start)
    running = st.router.start_chat(session="s", tag="turn 1")
    held = st.pods[0].next()
    st.queue("plain", ("turn 2", "s"))
    assert st.drain(held) == ["turn 2", "plain"]
    running.answer()
    st.router.stderr.wait_for_line("dequeued req=%s " % st.clients["turn 2"].id)  # the last one
    lines = [fields_of(line) for line in st.router.stderr.all("session boost") if "session=s" in line]
    assert lines and all(f["model"] == "m" and f["session"] == "s" for f in lines)
    enqueued = [f for f in lines if "queue_len" in f]
    dequeued = [f for f in lines if "wait_ms" in f]
    assert len(enqueued) >= 2 and len(dequeued) >= 2
    assert any(f.get("boosted") == "true" for f in dequeued) and any(f.get("boosted") == "false" for f in dequeued)
    words = " ".join(st.router.stderr.all("session boost"))
    assert "promoted" in words and "dequeued" in words and "queued" in words


def test_what_pods_say_is_looked_at_before_what_clients_say(start):
    """Both came while the router did not look, the client's request first: it is a follow-up from the beginning."""
    pod = start.pod()
    router = start.router({"m": [pod]})
    first, follow_up = router.start_chat(session="s"), router.client()
    held = pod.next()
    router.get("/healthz")  # the second connection is taken up as well
    router.signal(signal.SIGSTOP)
    follow_up.chat(session="s")
    held.reply()
    router.signal(signal.SIGCONT)
    line = router.stderr.wait_for_line("session boost: queued .*req=%s " % follow_up.id)
    assert fields_of(line)["boosted"] == "true"
    pod.next().reply()
    assert first.answer().status == follow_up.answer().status == 200


def test_log_values_are_escaped(start):
    pod = start.pod(script=ok)
    router = start.router({"m": [pod]})
    router.chat(session='x" boosted=true session=forged')
    line = router.stderr.wait_for_line("session boost.*dequeue")
    assert fields_of(line)["session"] == 'x" boosted=true session=forged' and fields_of(line)["boosted"] == "false"


def test_queue_metrics(start):
    st = Stage(start)
    st.warm("s")
    [held] = st.occupy()
    st.queue("plain", ("s", "s"))
    assert st.router.queue_len() == 2
    st.drain(held)
    for tag in ("plain", "s"):
        assert st.clients[tag].answer().status == 200
    st.router.wait_idle()
    m = st.router.metrics()
    prefix = "kthena_router_session_boost_"
    assert m.get(prefix + "queue_dequeue_total", model="m") == 4
    assert m.get(prefix + "queue_boosted_dequeue_total", model="m") == 1
    assert m.get(prefix + "queue_duration_seconds_count", model="m") == 4
    assert m.get("kthena_router_time_to_first_token_seconds_count", model="m", boosted="true") == 1
    assert m.get("kthena_router_time_to_first_token_seconds_count", model="m", boosted="false") == 3
