"""What a proxy must keep, change and drop: bodies byte for byte, fields, framing, time, order, memory."""

import hashlib
import json
import re
import signal
import threading
import time

import pytest


from pod import ok
from waiting import DEADLINE, SANITIZED, SLOW, wait_until

ODD_BODIES = [
    b'{"model":"m"}',
    b'  {"model" : "m" , "x":1e400, "big":123456789012345678901234567890, "neg":-0.0}\r\n ',
    b'{"model":"x","model":"m","stream":false,"u":"\\u00e9\\ud83d\\ude00"}',
    b'{"mod\\u0065l":"m","raw":"\xc3\xa9\xf0\x9f\x98\x80","empty":{},"a":[[],[{}]]}',
    b'{"model":"\\u006d","bad utf8 stays":"\xff\xfe"}',
    b'{"messages":[{"role":"user","content":"{\\"model\\":\\"other\\"}"}],"model":"m"}',
    b'{"nested":{"model":"other"},"model":"m"}',
]


@pytest.fixture(scope="module")
def pod(start_module):
    return start_module.pod()


@pytest.fixture(scope="module")
def router(start_module, pod):
    return start_module.router({"m": [pod]})


def exchange(router, pod, answer=ok, **request):
    """One request on a new connection. Returns (what the pod got, what the client got)."""
    c = router.client()
    c.request(**request)
    got = pod.next()
    answer(got)
    r = c.answer()
    c.close()
    return got, r


# ---- bodies ----

@pytest.mark.parametrize("body", ODD_BODIES)
def test_request_body_bytes_are_kept(router, pod, body):
    got, r = exchange(router, pod, body=body)
    assert got.body == body and r.status == 200
    assert got.header("Content-Length") == str(len(body))


@pytest.mark.parametrize("sizes", [[1] * 13, [5, 1000, 3], [70000, 1]])
def test_chunked_request_reaches_the_pod_whole(router, pod, sizes):
    want = json.dumps({"model": "m", "pad": "x" * (sum(sizes) + 20)}).encode()
    chunks, at = [], 0
    for n in sizes:
        chunks.append(want[at:at + n])
        at += n
    chunks.append(want[at:])
    got, r = exchange(router, pod, chunks=chunks)
    assert got.body == want and r.status == 200
    assert got.header("Content-Length") == str(len(want)) and not got.all("Transfer-Encoding")


def test_request_in_single_bytes(router, pod):
    c = router.client()
    raw = c.request(body={"model": "m"}, send=False)
    for i in range(len(raw)):
        c.send(raw[i:i + 1])
    pod.next().reply()
    assert c.answer().status == 200


def test_answer_body_bytes_are_kept(router, pod):
    body = bytes(range(256)) * 40
    _, r = exchange(router, pod, lambda q: q.reply(body=body, content_type="audio/wav"), body={"model": "m"})
    assert r.body == body and r.header("Content-Type") == "audio/wav"


def test_compressed_answer_is_relayed_as_it_is(router, pod):
    body = b"\x1f\x8b\x08 not really gzip"
    got, r = exchange(router, pod, lambda q: q.reply(body=body, headers=[("Content-Encoding", "gzip")]),
                      body={"model": "m"}, headers=[("Accept-Encoding", "gzip")])
    assert got.header("Accept-Encoding") == "gzip"
    assert r.body == body and r.header("Content-Encoding") == "gzip"


def test_path_and_query_are_kept(router, pod):
    got, _ = exchange(router, pod, path="/v1/anything/at%20all?a=b&c=%2F", body={"model": "m"})
    assert got.path == "/v1/anything/at%20all?a=b&c=%2F"


def test_absolute_target(router, pod):
    got, r = exchange(router, pod, path="http://router.test/v1/completions?x=1", body={"model": "m"})
    assert got.path == "/v1/completions?x=1" and r.status == 200


@pytest.mark.parametrize("framing", ["sized", "chunked", "close"])
@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/1.0"])
def test_framing(router, pod, framing, version):
    body = b"z" * 100000

    def answer(q):
        if framing == "sized":
            q.reply(body=body)
        else:
            q.start(chunked=framing == "chunked", content_type="application/json").chunk(body).end()
    _, r = exchange(router, pod, answer, body={"model": "m"}, version=version)
    assert r.body == body and r.clean
    if framing == "sized":
        assert r.header("Content-Length") == str(len(body))
    elif version == "HTTP/1.1":
        assert r.header("Transfer-Encoding") == "chunked"
    else:
        assert not r.all("Transfer-Encoding") and not r.all("Content-Length")


@pytest.mark.parametrize("status", [200, 201, 204, 304, 400, 418, 500, 503])
def test_status_passes_through(router, pod, status):
    body = b"" if status in (204, 304) else b'{"error":{"message":"from the pod"}}'

    def answer(q):
        if status in (204, 304):
            q.finish_raw(b"HTTP/1.1 %d Nothing\r\nX-Pod: 1\r\n\r\n" % status)
        else:
            q.reply(status, body, headers=[("X-Pod", "1")])
    _, r = exchange(router, pod, answer, body={"model": "m"})
    assert r.status == status and r.header("X-Pod") == "1" and r.body == body
    if status == 204:
        assert not r.all("Content-Length") and not r.all("Transfer-Encoding")


def test_head_request(router, pod):
    c = router.client()
    c.request("HEAD", "/v1/things", body={"model": "m"})
    q = pod.next()
    assert q.method == "HEAD"
    q.finish_raw(b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\nContent-Type: text/plain\r\n\r\n")
    r = c.answer()
    assert r.status == 200 and r.header("Content-Length") == "1234" and r.body == b""
    # The connection is in step: no body was expected or sent.
    c.chat()
    pod.next().reply(body=b"next")
    assert c.answer().body == b"next"


def test_interim_answers_do_not_end_the_request(router, pod):
    def answer(q):
        q.raw(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
        q.reply(body=b"real")
    c = router.client()
    c.chat()
    answer(pod.next())
    r = c.head()
    if r.status == 103:
        r = c.head()
    assert c.body(r).body == b"real"


# ---- fields ----

def test_credentials_go_to_the_pod_of_the_request_and_nowhere_else(start):
    """As they are, on each attempt; not with scrapes, not to the log, and a client without any gets none of another's."""
    first, second, other = start.pod(listen=False), start.pod(script=ok), start.pod(script=ok)
    asked = []
    second.metrics_script = lambda conn: asked.append(bytes(conn.received)) or conn.drop(rst=False)
    router = start.router({"m": [first, second], "other": [other]}, log_level="debug")
    c = router.client()
    for secret in ("Bearer sk-secret-1", "Basic c2VjcmV0LTI=", None):
        for _ in range(2):
            c.chat(headers=[("Authorization", secret), ("X-Api-Key", "secret-3")] if secret else [])
            assert c.answer().status == 200
            got = second.requests[-1]
            assert got.header("Authorization") == secret and got.header("X-Api-Key") == ("secret-3" if secret else None)
    c.chat(model="other")
    assert c.answer().status == 200 and other.requests[-1].header("Authorization") is None
    wait_until(lambda: len(asked) >= 3, "scrapes")
    assert not any(b"uthorization" in head or b"secret" in head for head in asked)
    router.wait_idle()
    assert not [line for line in router.stdout.lines + router.stderr.lines if "secret" in line or "c2VjcmV0" in line]


def test_hop_by_hop_fields_are_removed_on_the_way_to_the_pod(router, pod):
    got, _ = exchange(router, pod, body={"model": "m"}, headers=[
        ("Connection", "keep-alive, X-Secret, x-other"), ("X-Secret", "1"), ("x-OTHER", "2"), ("Keep-Alive", "timeout=5"),
        ("Proxy-Connection", "keep-alive"), ("Proxy-Authorization", "Basic xyz"), ("TE", "trailers"), ("Trailer", "X-T"),
        ("Upgrade", "websocket"), ("Authorization", "Bearer key"), ("Cookie", "a=b"), ("X-Mine", "kept")])
    names = {n.lower() for n, _ in got.fields}
    for gone in ("x-secret", "x-other", "keep-alive", "proxy-connection", "proxy-authorization", "te", "trailer", "upgrade"):
        assert gone not in names, gone
    assert "x-secret" not in (got.header("Connection") or "").lower()
    assert got.header("Authorization") == "Bearer key" and got.header("Cookie") == "a=b" and got.header("X-Mine") == "kept"


def test_hop_by_hop_fields_are_removed_on_the_way_back(router, pod):
    def answer(q):
        q.reply(headers=[("Connection", "X-Pod-Secret"), ("X-Pod-Secret", "1"), ("Keep-Alive", "timeout=5"),
                         ("Proxy-Authenticate", "Basic"), ("Upgrade", "h2c"), ("Trailer", "X"), ("Set-Cookie", "a=1"),
                         ("Set-Cookie", "b=2"), ("X-Kept", "yes")])
    _, r = exchange(router, pod, answer, body={"model": "m"})
    names = {n.lower() for n, _ in r.fields}
    for gone in ("x-pod-secret", "keep-alive", "proxy-authenticate", "upgrade", "trailer"):
        assert gone not in names, gone
    assert r.all("Set-Cookie") == ["a=1", "b=2"] and r.header("X-Kept") == "yes"


def test_host_is_the_pods_authority(router, pod):
    got, _ = exchange(router, pod, body={"model": "m"}, headers=[("Host", "public.example")])
    assert got.raw_head.startswith(b"POST /v1/chat/completions HTTP/1.1\r\nHost: %s\r\nContent-Length: 14\r\n" % pod.authority.encode())
    assert got.header("Host") == pod.authority


def test_forwarded_fields(router, pod):
    got, _ = exchange(router, pod, body={"model": "m"})
    assert got.header("X-Forwarded-For") == "127.0.0.1" and got.header("X-Forwarded-Proto") == "http"
    got, _ = exchange(router, pod, body={"model": "m"}, headers=[("X-Forwarded-For", "1.2.3.4, 5.6.7.8"),
                                                               ("X-Forwarded-Proto", "https")])
    assert got.header("X-Forwarded-For") == "1.2.3.4, 5.6.7.8, 127.0.0.1"
    assert got.header("X-Forwarded-Proto") == "https"


UUID4 = re.compile(r"^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$")


@pytest.mark.parametrize("given", ["abc", "a" * 128, "x/y:z=!#$%&()*+-.^_|~;<>?@[]{}\\"])
def test_good_request_id_is_kept(router, pod, given):
    got, r = exchange(router, pod, body={"model": "m"}, headers=[("X-Request-ID", given)])
    assert got.header("X-Request-ID") == given == r.header("X-Request-ID")


@pytest.mark.parametrize("given", [None, "", "a" * 129, "two words", 'quo"te', "com,ma", "caf\xe9", "tab\tbed"])
def test_other_request_id_is_replaced(router, pod, given):
    fields = [] if given is None else [("X-Request-ID", given)]
    got, r = exchange(router, pod, body={"model": "m"}, headers=fields, id=False)
    assert UUID4.match(got.header("X-Request-ID")), got.header("X-Request-ID")
    assert r.header("X-Request-ID") == got.header("X-Request-ID")
    assert router.access(got.header("X-Request-ID"))["status_code"] == 200


def test_the_pods_own_request_id_does_not_show(router, pod):
    got, r = exchange(router, pod, lambda q: q.reply(headers=[("X-Request-ID", "pods-own")]), body={"model": "m"})
    assert r.header("X-Request-ID") == got.header("X-Request-ID") != "pods-own"


def test_event_streams_ask_not_to_be_buffered(router, pod):
    _, r = exchange(router, pod, lambda q: q.sse(), body={"model": "m"})
    assert r.header("X-Accel-Buffering") == "no"

    def own_wish(q):
        q.start(headers=[("X-Accel-Buffering", "yes")]).end()
    _, r = exchange(router, pod, own_wish, body={"model": "m"})
    assert r.header("X-Accel-Buffering") == "yes"
    _, r = exchange(router, pod, ok, body={"model": "m"})
    assert r.header("X-Accel-Buffering") is None


# ---- time ----

def test_head_and_events_are_relayed_at_once(router, pod):
    c = router.client()
    c.chat(stream=True)
    q = pod.next()
    wrote = time.monotonic()
    q.start()
    r = c.head()
    late = [r.at - wrote]
    pieces = c.pieces(r)
    for i in range(20):
        wrote = time.monotonic()
        q.event("event %d" % i)
        pieces = c.read_until(r, b"event %d\n\n" % i, pieces)
        late.append(time.monotonic() - wrote)
    q.end()
    assert list(pieces) == [] and r.clean
    assert max(late) < 0.05 * SLOW, late


def test_gaps_between_events_are_kept(router, pod):
    c = router.client()
    c.chat(stream=True)
    q = pod.next()
    q.start()
    r = c.head()
    reader = threading.Thread(target=c.body, args=(r,))
    reader.start()
    sent = []
    due = time.monotonic()
    for i in range(100):
        due += 0.005
        time.sleep(max(0, due - time.monotonic()))  # the pod's pace, not a wait for something
        sent.append(time.monotonic())
        q.event("%d" % i)
    q.end()
    reader.join(DEADLINE)
    assert r.body == b"".join(b"data: %d\n\n" % i for i in range(100))
    # Not clumped: the gaps at the client are those of the pod, whatever pace the machine let it keep.
    assert len(r.chunks) >= 60
    median = lambda times: sorted(b - a for a, b in zip(times, times[1:]))[len(times) // 2]
    assert abs(median([c[0] for c in r.chunks]) - median(sent)) < 0.003 * SLOW


def test_expect_100_continue(router, pod):
    c = router.client()
    body = json.dumps({"model": "m", "pad": "x" * 3000}).encode()
    raw = c.request(body=body, headers=[("Expect", "100-continue")], send=False)
    i = raw.index(b"\r\n\r\n") + 4
    asked = time.monotonic()
    c.send(raw[:i])
    r = c.head()
    assert r.status == 100 and time.monotonic() - asked < 0.05 * SLOW
    c.send(raw[i:])
    got = pod.next()
    assert got.body == body and not got.all("Expect")
    got.reply()
    assert c.answer().status == 200


def test_large_body_does_not_wait_for_a_100_from_the_pod(router, pod):
    started = time.monotonic()
    got, r = exchange(router, pod, body={"model": "m", "pad": "x" * (2 << 20)})
    assert r.status == 200 and not got.all("Expect")
    assert time.monotonic() - started < 0.5 * SLOW


# ---- connections ----

def test_http10_closes_unless_asked(router, pod):
    c = router.client()
    c.request(body={"model": "m"}, version="HTTP/1.0")
    pod.next().reply()
    r = c.answer()
    assert r.status == 200
    assert c.wait_closed() == b""


def test_http10_keep_alive(router, pod):
    c = router.client()
    for i in range(3):
        c.request(body={"model": "m"}, version="HTTP/1.0", headers=[("Connection", "Keep-Alive")])
        pod.next().reply(body=b"n%d" % i)
        r = c.answer()
        assert r.body == b"n%d" % i and r.header("Connection").lower() == "keep-alive"


def test_http10_keep_alive_ends_when_the_length_is_unknown(router, pod):
    c = router.client()
    c.request(body={"model": "m"}, version="HTTP/1.0", headers=[("Connection", "Keep-Alive")])
    pod.next().sse()
    r = c.answer()
    assert r.body.endswith(b"[DONE]\n\n") and (r.header("Connection") or "close").lower() == "close"


def test_connection_close_is_honoured(router, pod):
    c = router.client()
    c.request(body={"model": "m"}, headers=[("Connection", "close")])
    pod.next().reply()
    r = c.answer()
    assert r.header("Connection").lower() == "close"
    assert c.wait_closed() == b""


def test_bytes_behind_the_last_request_do_not_reset_its_answer(router, pod):
    """They arrive with the pod's answer, which is looked at first."""
    c = router.client()
    c.request(body={"model": "m"}, headers=[("Connection", "close")])
    q = pod.next()
    router.signal(signal.SIGSTOP)
    q.reply(body=b"whole")
    c.send(b"GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n")
    router.signal(signal.SIGCONT)
    assert c.answer().body == b"whole"
    assert not c.fill()  # FIN, no RST


def test_keep_alive_many_requests(router, pod):
    c = router.client()
    before = len(pod.connections)
    for i in range(50):
        c.chat(tag=i)
        q = pod.next()
        q.reply(body=b"%d" % i)
        assert c.answer().body == b"%d" % i
    assert len(pod.connections) - before <= 1


def test_pipelined_requests_are_answered_in_order(router, pod):
    c = router.client()
    raw = b"".join(c.request(body={"model": "m", "tag": i}, send=False) for i in range(5))
    c.send(raw)
    for i in range(5):
        q = pod.next()
        assert q.tag == i
        q.reply(body=b"answer %d" % i)
    for i in range(5):
        assert c.answer().body == b"answer %d" % i


def test_pipelining_mixes_local_and_proxied(router, pod):
    c = router.client()
    c.send(c.request(body={"model": "m"}, send=False) + c.request("GET", "/healthz", send=False)
           + c.request(body={"model": "nope"}, send=False) + c.request(body={"model": "m"}, send=False))
    pod.next().reply(body=b"one")
    pod.next().reply(body=b"four")
    c.method = "POST"
    answers = [c.answer() for _ in range(4)]
    assert [a.status for a in answers] == [200, 200, 404, 200]
    assert answers[0].body == b"one" and answers[3].body == b"four"


def test_blank_lines_before_a_request_are_tolerated(router, pod):
    c = router.client()
    c.send(b"\r\n\r\n")
    c.chat()
    pod.next().reply()
    assert c.answer().status == 200


def test_pods_get_no_pipelined_requests(start):
    pod = start.pod()
    router = start.router({"m": [pod]}, session_boost_inflight_per_pod=100)
    clients = [router.start_chat(tag=i) for i in range(20)]
    held = [pod.next() for _ in clients]
    assert len({q.conn for q in held}) == 20
    for q in held:
        q.reply(body=str(q.tag))
    for i, c in enumerate(clients):
        assert c.answer().body == b"%d" % i


# ---- memory and back-pressure ----

def test_large_answer_does_not_grow_the_router(start):
    block, count = b"\xa5" * (1 << 20), 64

    def answer(q):
        q.raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (len(block) * count))
        for _ in range(count - 1):
            q.raw(block)
        q.finish_raw(block)
    pod = start.pod(script=answer)
    router = start.router({"m": [pod]})
    router.chat()  # warm up
    before = router.rss_bytes()
    c = router.start_chat()
    r = c.head()
    digest, peak = hashlib.sha256(), before
    for i, piece in enumerate(c.pieces(r)):
        digest.update(piece)
        r.body, r.chunks = bytearray(), []
        if i % 32 == 0:
            peak = max(peak, router.rss_bytes())
    want = hashlib.sha256()
    for _ in range(count):
        want.update(block)
    assert digest.digest() == want.digest()
    assert peak - before < (32 if SANITIZED else 4) * (1 << 20)


def test_slow_reader_holds_the_pod_back(start):
    block, sent = b"\x5a" * 65536, []

    def answer(q):
        q.raw(b"HTTP/1.1 200 OK\r\nContent-Type: x/y\r\nContent-Length: %d\r\n\r\n" % (len(block) * 1600))
        for i in range(1600):
            q.raw(block)
            sent.append(i)
        q.finish_raw()
    pod = start.pod(script=answer)
    router = start.router({"m": [pod]})
    c = router.client(rcvbuf=8192)
    before = router.rss_bytes()
    c.chat()
    r = c.head()
    pieces = c.pieces(r)
    next(pieces)
    # The client stops reading: the pod must come to a halt, well before its 100 MiB.
    def halted():
        n = len(sent)
        time.sleep(0.15)
        return n and len(sent) == n
    wait_until(halted, "the pod to be held back")
    assert len(sent) < 800
    assert router.rss_bytes() - before < (32 if SANITIZED else 4) * (1 << 20)
    total = len(r.body)
    for p in pieces:
        total += len(p)
        r.body, r.chunks = bytearray(), []
    assert total == len(block) * 1600 and r.clean


# ---- renaming ----

INI = """
[model-server big]
pods = %s
model = served/name-7B
[model-route public]
model = m
target = big
"""


@pytest.mark.parametrize("body,want", [
    (b'{"model":"m","x":[1,2]}', b'{"model":"served/name-7B","x":[1,2]}'),
    (b'{"x":"m", "model" :\t"m" }', b'{"x":"m", "model" :\t"served/name-7B" }'),
    (b'{"model":"zzz","y":{"model":"m"},"model":"\\u006d"}', b'{"model":"zzz","y":{"model":"m"},"model":"served/name-7B"}'),
    (b'{"mod\\u0065l":"m","n":1e999}', b'{"mod\\u0065l":"served/name-7B","n":1e999}'),
])
def test_rename_replaces_the_model_value_only(start, body, want):
    pod = start.pod()
    router = start.router(ini=INI % pod.authority)
    got, r = exchange(router, pod, body=body)
    assert r.status == 200
    assert got.body == want and got.header("Content-Length") == str(len(want))


def test_ipv6_pod_and_listener(start):
    pod = start.pod(script=ok, host="::1")
    router = start.router({"m": [pod]}, router_bind="::1", wait=False)
    c = router.client(host="::1")
    c.chat()
    r = c.answer()
    assert r.status == 200
    got = pod.requests[0]
    assert got.header("Host") == "[::1]:%d" % pod.port and got.header("X-Forwarded-For") == "::1"
    router.idle_check = False  # the metrics listener is on ::1 as well


def test_proxy_variables_do_not_reroute_pod_traffic(start):
    pod = start.pod(script=ok)
    router = start.router({"m": [pod]}, env={"http_proxy": "http://127.0.0.1:1", "ALL_PROXY": "http://127.0.0.1:1"})
    assert router.chat().status == 200
    wait_until(lambda: pod.scrapes > 0, "a scrape")


def test_connections_at_once(start):
    """A thousand clients at the same moment: nobody is refused."""
    pod = start.pod(script=ok)
    router = start.router({"m": [pod]})
    clients = [router.client() for _ in range(1000)]
    for c in clients:
        c.chat()
    assert sum(c.answer().status == 200 for c in clients) == 1000


