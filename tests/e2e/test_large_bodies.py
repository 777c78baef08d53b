"""Large bodies on a kept connection. The router expects the next request to look like the last one and reads head and
body in one go, each to its place. Whatever comes instead, not a byte may be lost, doubled or moved."""

import random
import signal

import pytest

from certs import Authority
from test_errors import check_error
from waiting import SANITIZED

LARGE = 40000
BODY_LIMIT = 150000


@pytest.fixture(scope="module")
def pod(start_module):
    return start_module.pod()


@pytest.fixture(scope="module")
def router(start_module, pod):
    return start_module.router({"m": [pod]}, max_body_bytes=BODY_LIMIT)


def body_of(n, salt=0):
    """A body of n bytes in which no part looks like another."""
    rest = random.Random(n * 1000 + salt).randbytes(n).hex()
    start = '{"model":"m","pad":"'
    return (start + rest[:n - len(start) - 2] + '"}').encode()


def answered(pod, c, body):
    q = pod.next()
    assert q.body == body
    q.reply(body=b"%d" % len(body))
    assert c.answer().body == b"%d" % len(body)
    return q


@pytest.fixture
def client(router, pod):
    """Its first request had a large body."""
    c = router.client()
    c.request(body=body_of(LARGE))
    answered(pod, c, body_of(LARGE))
    return c


@pytest.mark.parametrize("n", [LARGE, LARGE + 1, LARGE - 1, LARGE * 5 // 4, LARGE * 5 // 4 + 1, LARGE * 3, LARGE // 3, 100])
def test_next_body(pod, client, n):
    for salt in range(3):
        client.request(body=body_of(n, salt))
        answered(pod, client, body_of(n, salt))


@pytest.mark.parametrize("field", [("A", "b"), ("X-Long", "y" * 20000)])
def test_next_head_is_longer_or_shorter(pod, client, field):
    for headers in ([field], [], [field]):
        client.request(body=body_of(LARGE, 1), headers=headers)
        answered(pod, client, body_of(LARGE, 1))


def test_next_head_is_as_long_and_has_more_for_the_pod(pod, client):
    """What goes before the body in its block has no place there then."""
    for name in ("Keep-Alive", "X-For-Pods", "Keep-Alive"):
        client.request(body=body_of(LARGE, 1), headers=[(name, "y" * 3000)])
        q = answered(pod, client, body_of(LARGE, 1))
        assert q.header("X-For-Pods") == ("y" * 3000 if name == "X-For-Pods" else None)


@pytest.mark.parametrize("n", [LARGE, 20000, 200])
def test_several_requests_in_one_write(pod, client, n):
    bodies = [body_of(n, salt) for salt in range(4)]
    client.send_while_reading(b"".join(client.request(body=b, send=False) for b in bodies))
    for b in bodies:
        answered(pod, client, b)


def test_next_request_is_chunked(pod, client):
    body = body_of(LARGE, 2)
    client.request(chunks=[body[:30000], body[30000:]])
    answered(pod, client, body)


def test_next_request_has_no_body(pod, client):
    client.request("GET", "/healthz")
    assert client.answer().status == 200
    client.request(body=body_of(LARGE, 3))
    answered(pod, client, body_of(LARGE, 3))


def test_next_body_is_too_large(client):
    client.request(body=body_of(BODY_LIMIT + 1))
    check_error(client.answer(), 413, "body_too_large")


def test_next_client_waits_for_its_100(pod, client):
    body = body_of(LARGE, 4)
    client.request(headers=[("Expect", "100-continue"), ("Content-Length", str(LARGE))])
    assert client.head().status == 100
    client.send(body)
    answered(pod, client, body)


def test_next_client_asks_for_a_100_and_does_not_wait(pod, client):
    body = body_of(LARGE, 6)
    for _ in range(2):
        client.request(body=body, headers=[("Expect", "100-continue")])
        q = pod.next()
        assert q.body == body
        q.reply()
        assert client.answer().status == 200


def test_client_leaves_in_the_next_body(router, pod, client):
    client.send(client.request(body=body_of(LARGE), send=False)[:LARGE // 2])
    client.close()
    c = router.client()
    c.request(body=body_of(LARGE, 5))
    answered(pod, c, body_of(LARGE, 5))


def test_small_bodies_do_not_keep_the_place_of_large_ones(start):
    """Their heads are as long as those of the large ones were. Groups use the memory of the group before, if it is free."""
    pod, groups, n, small = start.pod(), 8, 40, body_of(16500)
    router = start.router({"m": [pod]}, session_boost_inflight_per_pod=groups * n)
    held, all_clients = [], [[router.client() for _ in range(n)] for _ in range(groups)]
    router.get("/healthz")
    empty = router.rss_bytes()
    for clients in all_clients:
        for c in clients:
            c.request(body=body_of(76000), id=False)
        for q in [pod.next() for _ in clients]:
            q.reply()
        for c in clients:
            assert c.answer().status == 200
            c.request(body=small, id=False)
        held += [pod.next() for _ in clients]
    assert SANITIZED or router.rss_bytes() - empty < 5 * n * 76000  # a sanitizer keeps what is free
    for q in held:
        q.reply()
    for clients in all_clients:
        for c in clients:
            assert c.answer().status == 200


@pytest.mark.parametrize("length", [90000, 3 << 20, 5 << 20])
def test_heads_alone_take_no_memory_for_their_bodies(start, length):
    """Huge pages are taken whole when one byte of them is touched: see /sys/kernel/mm/transparent_hugepage/enabled."""
    n = 50
    router = start.router({"m": [start.pod()]})
    clients = [router.client() for _ in range(n)]
    router.get("/healthz")
    before = router.rss_bytes()
    for c in clients:
        c.request(headers=[("Expect", "100-continue"), ("Content-Length", str(length))])
    for c in clients:
        assert c.head().status == 100
    assert SANITIZED or router.rss_bytes() - before < n * 100000
    for c in clients:
        c.close()


@pytest.mark.parametrize("seed", range(8))
def test_any_requests_cut_anywhere(router, pod, seed):
    """Requests of all kinds in random order, in pieces that end anywhere."""
    any_of = random.Random(seed)
    c = router.client()
    for i in range(30):
        n = any_of.choice([LARGE, LARGE, LARGE + any_of.randrange(20000), any_of.randrange(60, 140000), 300])
        body = body_of(n, i)
        headers = [("X-Pad", "z" * any_of.choice([5, 5, 5, any_of.randrange(60)]))]
        raw = c.request(body=body, headers=headers, send=False) if any_of.random() < 0.8 else \
            c.request(chunks=[body[:50], body[50:]], headers=headers, send=False)
        cuts = sorted(any_of.choice([raw.index(b"\r\n\r\n") + 4, any_of.randrange(len(raw)), any_of.randrange(400)])
                      for _ in range(any_of.choice([0, 0, 1, 2])))
        for start, end in zip([0, *cuts], [*cuts, len(raw)]):
            c.send(raw[start:end])
        answered(pod, c, body)


# ---- a large body that is sent before the turn of the loop is over takes nobody's turn ----

SIZES = pytest.mark.parametrize("n_bytes", [100, LARGE])


def taken_up(router, n=1, **options):
    """Clients whose connections the router knows, in this order."""
    clients = [router.client(**options) for _ in range(n)]
    for c in clients:
        c.request("GET", "/healthz")
        assert c.answer().status == 200
    return clients


def finish_turn(router, pod, **options):
    """So that the session's next request is a follow-up."""
    c = router.start_chat(session="s", **options)
    pod.next().reply()
    assert c.answer().status == 200


def check_ranking_in_one_turn(router, pod, n_bytes):
    """The stranger is looked at first, and the follow-up goes first."""
    finish_turn(router, pod)
    stranger, follow_up = taken_up(router, 2)
    router.signal(signal.SIGSTOP)
    stranger.chat(tag="stranger", pad="x" * n_bytes)
    follow_up.chat(session="s", tag="follow-up", pad="x" * n_bytes)
    router.signal(signal.SIGCONT)
    for tag in ("follow-up", "stranger"):
        q = pod.next()
        assert q.tag == tag
        q.reply()
    assert stranger.answer().status == follow_up.answer().status == 200


@SIZES
def test_who_comes_in_one_turn_is_ranked(start, n_bytes):
    """Also when bodies are large, which go at once where that changes nothing."""
    pod = start.pod()
    check_ranking_in_one_turn(start.router({"m": [pod]}, session_boost_inflight_per_pod=1), pod, n_bytes)


@SIZES
@pytest.mark.parametrize("shared", [True, False])
def test_large_body_beside_the_queue_of_another_model(start, shared, n_bytes):
    """All three come in one turn; the first request of the other model must not go before that one's follow-up."""
    pod = start.pod()
    other_pod = pod if shared else start.pod()
    router = start.router({"m": [pod], "other": [other_pod]}, session_boost_inflight_per_pod=2)
    finish_turn(router, other_pod, model="other")
    clients = stranger, large, follow_up = taken_up(router, 3)
    if not shared:  # one slot is left, and two on the large one's pod
        clients += (router.start_chat(model="other"),)
        occupant = other_pod.next()
    router.signal(signal.SIGSTOP)
    stranger.chat(model="other", tag="stranger", pad="x" * n_bytes)
    large.chat(tag="large", pad="x" * n_bytes)
    follow_up.chat(model="other", session="s", tag="follow-up", pad="x" * n_bytes)
    router.signal(signal.SIGCONT)
    first = [p.next() for p in (pod, other_pod)]
    assert {q.tag for q in first} == {"large", "follow-up"}
    for q in first + ([] if shared else [occupant]):
        q.reply()
    q = other_pod.next()
    assert q.tag == "stranger"
    q.reply()
    assert [c.answer().status for c in clients] == [200] * len(clients)


@SIZES
def test_large_body_that_was_sent_ahead(start, n_bytes):
    """Behind other requests on the same connections; these end in one turn, and a third client takes one of their slots."""
    pod = start.pod()
    router = start.router({"m": [pod]}, session_boost_inflight_per_pod=2)
    finish_turn(router, pod)
    clients, held = taken_up(router, 2), []
    for c in clients:
        c.chat()
        held.append(pod.next())
    stranger, follow_up = clients
    stranger.chat(tag="stranger", pad="x" * n_bytes)
    follow_up.chat(session="s", tag="follow-up", pad="x" * n_bytes)
    third = router.queue_chat(1, tag="third")
    router.signal(signal.SIGSTOP)
    for q in held:
        q.reply()
    router.signal(signal.SIGCONT)
    held = [pod.next(), pod.next()]
    assert {q.tag for q in held} == {"third", "follow-up"}
    for q in held:
        q.reply()
    q = pod.next()
    assert q.tag == "stranger"
    q.reply()
    assert [c.answer().status for c in (*clients, *clients, third)] == [200] * 5


@pytest.mark.parametrize("n_bytes", [100, 17000])
def test_large_body_over_tls(start, tmp_path, n_bytes):
    """The last bytes of 17,000 come with the record before and are looked at before any other connection."""
    authority = Authority(tmp_path)
    cert, key = authority.issue("router")
    pod = start.pod()
    router = start.router({"m": [pod]}, session_boost_inflight_per_pod=1, tls=authority.client(), router_tls_cert=cert, router_tls_key=key)
    check_ranking_in_one_turn(router, pod, n_bytes)
