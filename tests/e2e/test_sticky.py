"""Sessions that stay with their pod, as their route says: where the session is found, for how long, and what happens when
its pod is full or gone."""

import collections
import time

import pytest

from pod import ok
from test_routes import reload
from waiting import SLOW, wait_until

ROUTE = """
[model-server s]
pods = %s
engine = none
[model-route m]
target = s
"""
STICKY = "session_sticky = header:X-Key, cookie:sid, query:session\n"


def ini(pods, route=STICKY):
    return ROUTE % ", ".join(p.authority for p in pods) + route


@pytest.fixture(params=[True, False], ids=["boost", "plain"])
def boost(request):
    return request.param


def turn(router, key=None, cookie=None, query=None, headers=()):
    """Where the turn went, and its access log entry."""
    headers = list(headers)
    if key is not None:
        headers.append(("X-Key", key))
    if cookie is not None:
        headers.append(("Cookie", "a=b; sid=%s; c=d" % cookie))
    c = router.client()
    c.request("POST", "/v1/chat/completions" + ("" if query is None else "?x=1&session=" + query), body=b'{"model":"m"}', headers=headers)
    assert c.answer().status == 200
    entry = router.access(c.id)
    c.close()
    return entry["selected_pod"], entry


def homes(router, n):
    return {i: turn(router, key="s%d" % i)[0] for i in range(n)}


def test_same_key_same_pod_and_keys_apart(start, boost):
    pods = [start.pod(script=ok) for _ in range(3)]
    router = start.router(ini=ini(pods), boost=boost)
    first = homes(router, 12)
    assert collections.Counter(first.values()) == {p.authority: 4 for p in pods}
    for _ in range(3):
        assert homes(router, 12) == first
    assert router.metric("kthena_router_session_sticky_total", model="m", result="new") == 12
    assert router.metric("kthena_router_session_sticky_total", model="m", result="hit") == 36
    pod, entry = turn(router, key="s3")
    assert entry["session"] == "s3" and entry["sticky"] == "hit"
    assert sum(q["pinnedSessions"] for q in router.dump("queues")["queues"]) == 12


def test_requests_without_a_key_or_a_route_that_says_so_spread(start, boost):
    pods = [start.pod(script=ok) for _ in range(3)]
    router = start.router(ini=ini(pods), boost=boost)
    assert {turn(router)[0] for _ in range(6)} == {p.authority for p in pods}
    assert "sticky" not in turn(router)[1]
    reload(router, ini(pods, ""))
    assert {turn(router, key="same")[0] for _ in range(6)} == {p.authority for p in pods}


@pytest.mark.parametrize("source", ["key", "cookie", "query"])
def test_each_source(start, boost, source):
    pods = [start.pod(script=ok) for _ in range(3)]
    router = start.router(ini=ini(pods), boost=boost)
    for value in ("a", "b", "c"):
        assert len({turn(router, **{source: value})[0] for _ in range(4)}) == 1
    assert turn(router, **{source: "a"})[1]["session"] == "a"


def test_first_source_with_a_value_counts(start, boost):
    pods = [start.pod(script=ok) for _ in range(3)]
    router = start.router(ini=ini(pods), boost=boost)
    home = turn(router, key="k")[0]
    for i in range(5):
        pod, entry = turn(router, key="k", cookie="c%d" % i, query="q%d" % i)
        assert pod == home and entry["session"] == "k"
    assert turn(router, key="", cookie="c", query="q")[1]["session"] == "c"


def test_ttl_allows_another_pod(start, boost):
    pods = [start.pod(script=ok) for _ in range(2)]
    ttl = 1 * SLOW
    router = start.router(ini=ini(pods, STICKY + "sticky_ttl = %ds\n" % ttl), boost=boost)
    assert turn(router, key="a")[1]["sticky"] == "new"
    end = time.monotonic() + 1.5 * ttl
    while time.monotonic() < end:  # every use starts the time anew
        assert turn(router, key="a")[1]["sticky"] == "hit"
        time.sleep(0.05)
    time.sleep(1.2 * ttl)
    assert turn(router, key="a")[1]["sticky"] == "new"


def test_pod_that_leaves_loses_its_sessions_and_no_other(start, boost):
    pods = [start.pod(script=ok) for _ in range(3)]
    router = start.router(ini=ini(pods), boost=boost)
    before = homes(router, 30)
    reload(router, ini(pods[1:]))
    after = homes(router, 30)
    moved = {i for i in before if after[i] != before[i]}
    assert moved == {i for i in before if before[i] == pods[0].authority} and len(moved) == 10
    assert homes(router, 30) == after
    assert router.metric("kthena_router_session_sticky_total", model="m", result="gone") == 10


def test_pods_that_come_take_no_session(start, boost):
    pods = [start.pod(script=ok) for _ in range(4)]
    router = start.router(ini=ini(pods[:2]), boost=boost)
    before = homes(router, 30)
    reload(router, ini(pods))
    assert homes(router, 30) == before
    assert {turn(router, key="n%d" % i)[0] for i in range(8)} == {p.authority for p in pods}


def test_failed_pod_is_left_and_the_session_stays_with_the_next(start, boost):
    pods = [start.pod(script=ok) for _ in range(2)]
    router = start.router(ini=ini(pods), boost=boost)
    home = turn(router, key="a")[0]
    dead = next(p for p in pods if p.authority == home)
    dead.refuse()
    for c in list(dead.connections):
        c.drop(rst=False)
    other = turn(router, key="a")[0]
    assert other != home
    dead.listen()
    assert [turn(router, key="a")[0] for _ in range(5)] == [other] * 5


def test_answers_that_fail_keep_the_session(start):
    pods = [start.pod(script=lambda r: r.reply(500) or True) for _ in range(3)]
    router = start.router(ini=ini(pods))
    used = set()
    for _ in range(6):
        c = router.client()
        c.request("POST", "/v1/chat/completions", body=b'{"model":"m"}', headers=[("X-Key", "a")])
        assert c.answer().status == 500
        used.add(router.access(c.id)["selected_pod"])
    assert len(used) == 1


def keyed(router, key, tag):
    c = router.client()
    c.request("POST", "/v1/chat/completions", body=b'{"model":"m","tag":"%s"}' % tag.encode(), headers=[("X-Key", key)])
    return c


def full_home(start, route, **options):
    """A router over two pods of one slot, the session "a" at home on a pod that is full."""
    pods = [start.pod() for _ in range(2)]
    router = start.router(ini=ini(pods, STICKY + route), session_boost_inflight_per_pod=1, **options)
    c = keyed(router, "a", "first")
    home = wait_until(lambda: next((p for p in pods if p.requests), None), "the first turn to arrive")
    home.next().reply()
    assert c.answer().status == 200
    other = pods[1] if home is pods[0] else pods[0]
    # Strangers are sent one after another until one holds the home's slot.
    blocker = keyed(router, "x", "x")
    got = wait_until(lambda: next((p for p in pods if not p.nothing_held()), None), "the stranger to arrive")
    if got is other:
        second = keyed(router, "y", "y")
        wait_until(lambda: not home.nothing_held(), "the second stranger to arrive")
        other.next().reply()
        blocker.answer()
        blocker = second
    return router, home, other, blocker


def test_prefer_spills_at_once(start):
    router, home, other, blocker = full_home(start, "sticky_mode = prefer\n")
    c = keyed(router, "a", "second")
    other.next().reply()
    assert c.answer().status == 200 and router.access(c.id)["sticky"] == "spill"
    assert router.access(c.id)["queue_ms"] < 1000
    home.next().reply()
    blocker.answer()
    router.stderr.wait_for_line("session boost: dequeued .*session=a .*sticky=spill")
    c = keyed(router, "a", "third")  # its newest prefix is where it spilled to
    other.next().reply()
    assert c.answer().status == 200 and router.access(c.id)["sticky"] == "hit"


def test_wait_waits_while_others_pass(start):
    router, home, other, blocker = full_home(start, "sticky_mode = wait:20s\n")
    c = keyed(router, "a", "second")
    router.wait_queued(1)
    for i in range(3):
        stranger = keyed(router, "z%d" % i, "z")
        other.next().reply()
        assert stranger.answer().status == 200
    assert router.queue_len() == 1
    home.next().reply()
    blocker.answer()
    home.next().reply()
    assert c.answer().status == 200 and router.access(c.id)["sticky"] == "waited"
    assert router.metric("kthena_router_session_sticky_total", model="m", result="waited") == 1


def test_wait_has_an_end(start):
    router, home, other, blocker = full_home(start, "sticky_mode = wait:300ms\n")
    begun = time.monotonic()
    c = keyed(router, "a", "second")
    other.next().reply()
    assert time.monotonic() - begun > 0.25
    assert c.answer().status == 200 and router.access(c.id)["sticky"] == "spill"
    home.next().reply()
    blocker.answer()


def test_mode_off_lets_boosted_sessions_go_anywhere(start):
    pods = [start.pod(script=ok) for _ in range(3)]
    router = start.router(ini=ini(pods, "sticky_mode = off\n"))
    used = {router.access(router.chat(session="a").id)["selected_pod"] for _ in range(6)}
    assert len(used) == 3


def test_route_sticks_although_the_router_does_not(start):
    pods = [start.pod(script=ok) for _ in range(3)]
    router = start.router(ini=ini(pods), session_sticky="off")
    assert len({turn(router, key="a")[0] for _ in range(6)}) == 1


def test_weights_and_sticky_sessions(start, boost):
    pods = [start.pod(script=ok) for _ in range(4)]
    text = """
[model-server a]
pods = %s, %s
engine = none
[model-server b]
pods = %s, %s
engine = none
[model-route m]
target = a:70, b:30
""" % tuple(p.authority for p in pods) + STICKY
    router = start.router(ini=text, boost=boost)
    first = homes(router, 50)
    assert sum(first[i] in (pods[0].authority, pods[1].authority) for i in first) == 35
    assert homes(router, 50) == first
    reload(router, text + "sticky_ttl = 1h\n")
    assert homes(router, 50) == first  # a reload forgets nothing


def test_dump_shows_it(start):
    pods = [start.pod(script=ok)]
    router = start.router(ini=ini(pods, STICKY + "sticky_mode = wait:2s\n"))
    spec = router.dump("modelroutes")["modelroutes"][0]["spec"]["sessionSticky"]
    assert spec == {"mode": "wait", "waitMs": 2000, "sessionAffinitySeconds": 10800,
                    "sources": [{"type": "header", "name": "X-Key"}, {"type": "cookie", "name": "sid"}, {"type": "query", "name": "session"}]}
