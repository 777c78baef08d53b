"""Large bodies on a kept connection. The router expects the next request to look like the last one and reads head and
body in one go, each to its place. Whatever comes instead, not a byte may be lost, doubled or moved."""

import random

import pytest

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
    pod, groups, n, small = start.pod(), 8, 40, b'{"model":"m"}'
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
            c.request(body=small, headers=[("Content-Length", "00013")], id=False)
        held += [pod.next() for _ in clients]
    assert SANITIZED or router.rss_bytes() - empty < 3 * n * 76000  # a sanitizer keeps what is free
    for q in held:
        q.reply()
    for clients in all_clients:
        for c in clients:
            assert c.answer().status == 200


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
