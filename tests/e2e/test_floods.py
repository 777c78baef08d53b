"""Much of everything that a client may choose: memory and series stay flat, running streams go on."""

import socket
import threading
import time

from client import Client
from pod import ok
from waiting import wait_until

SLACK_BYTES = 6 * 1024 * 1024
# A sanitizer keeps what was freed, up to a quarter of a GiB.
PLAIN = {"ASAN_OPTIONS": "quarantine_size_mb=1"}


def turns(router, n, batch=100, **options):
    """n turns on one connection, a batch of them sent at a time; options are functions of the turn's number."""
    c = router.client()
    for first in range(0, n, batch):
        numbers = range(first, min(first + batch, n))
        for i in numbers:
            c.chat(**{name: choose(i) for name, choose in options.items()})
        yield [c.answer().status for _ in numbers]


def footprint(router):
    m = router.metrics()
    return m.get("process_resident_memory_bytes"), len(m.samples)


def check_flat(router, before):
    rss, series = footprint(router)
    assert rss - before[0] < SLACK_BYTES and series <= before[1], (before, rss, series)


def test_ten_thousand_model_names(start):
    router = start.router({"m": [start.pod(script=ok)]}, env=PLAIN)
    router.chat()
    for _ in turns(router, 300, model=lambda i: "warm-%d" % i):
        pass
    before = footprint(router)
    for statuses in turns(router, 10000, model=lambda i: "name-%d\n\"%d" % (i, i * i)):
        assert set(statuses) == {404}
    check_flat(router, before)


def test_more_sessions_than_are_remembered(start):
    """Ids of 10 KB among them: only a digest is kept."""
    router = start.router({"m": [start.pod(script=ok)]}, session_boost_max_sessions=100, env=PLAIN)
    for _ in turns(router, 300, session=lambda i: "warm-%d" % i):
        pass
    before = footprint(router)
    for _ in turns(router, 3000, session=lambda i: "s-%d" % i if i % 4 else "s-%d-" % i + "x" * 10240):
        pass
    router.wait_metric("kthena_router_session_boost_tracked_sessions", 100, model="m")
    check_flat(router, before)


def test_connections_that_say_nothing_do_not_hold_a_stream_up(start):
    done = threading.Event()

    def stream(r):
        r.start()
        while not done.is_set():
            r.event("tick %.6f" % time.monotonic())
            time.sleep(0.01)
        r.end()
    router = start.router({"m": [start.pod(script=stream)]}, env=PLAIN)
    c = router.start_chat(stream=True)
    r = c.head()
    gaps = []

    def read():
        last = time.monotonic()
        for _ in c.pieces(r):
            now = time.monotonic()
            gaps.append(now - last)
            last = now
    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(20):
        flood = [socket.create_connection(("127.0.0.1", router.port)) for _ in range(300)]
        for s in flood:
            s.close()
    done.set()
    reader.join()
    assert r.clean and len(gaps) > 10 and max(gaps) < 1, (len(gaps), max(gaps))


def test_requests_sent_ahead_are_all_answered(start):
    """Far more than the router keeps: it reads on as they are answered."""
    router = start.router({"m": [start.pod(script=ok)]}, env=PLAIN)
    n = 400
    for statuses in turns(router, n, batch=n, session=lambda i: "s-%d-" % i + "x" * 2000):
        assert statuses == [200] * n


def test_answers_that_nobody_reads_do_not_pile_up(start):
    """Small requests for large answers, sent ahead: the next one is answered when the last one has left."""
    pod = start.pod(script=ok)
    router = start.router({"%04d-%s" % (i, "x" * 60): [pod] for i in range(500)}, env=PLAIN)
    for path, port, n in (("/v1/models", "inference", 2000), ("/metrics", "metrics", 300)):
        router.get(path, port)
        before = router.rss_bytes()
        c = Client(router.ports[port])
        c.send(b"GET %s HTTP/1.1\r\nHost: a\r\n\r\n" % path.encode() * n)
        grown = []
        wait_until(lambda: grown.append(router.rss_bytes()) or len(grown) > 50, "looks at the memory")
        assert max(grown) - before < 3 * SLACK_BYTES, (path, max(grown) - before)
        for _ in range(n if port == "inference" else 0):
            assert c.answer().status == 200
        c.close()
