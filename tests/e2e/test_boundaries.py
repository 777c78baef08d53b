"""Messages that end at, before and behind the places where buffers end: of a read, a TLS record, a kept head, a first body. In
both directions, sized and chunked, alone and with others sent ahead, plain and through TLS on either side."""

import hashlib
import json

import pytest

from certs import Authority
from pod import ok
from tlsfront import Front
from waiting import SLOW

EDGES = [1024, 4096, 16384, 65536, 131072, 262144]
AROUND = [-2, -1, 0, 1, 2]


def body_of(n, answer, how):
    frame = json.dumps({"model": "m", "answer": answer, "how": how, "pad": ""})
    return json.dumps({"model": "m", "answer": answer, "how": how, "pad": "x" * max(0, n - len(frame))}).encode()


def answer_bytes(n):
    return (b"0123456789abcdef" * (n // 16 + 1))[:n]


def echo(q):
    """Answers with as many bytes as wanted, and with a digest of what came."""
    wish = q.json()
    headers = [("X-Digest", hashlib.sha256(q.body).hexdigest())]
    data = answer_bytes(wish["answer"])
    if wish["how"] == "sized":
        q.reply(body=data, headers=headers)
        return
    q.start(content_type="application/json", headers=headers, chunked=wish["how"] != "close")
    step = {"chunked": 65536, "pieces": 1000, "close": 65536}[wish["how"]]
    for at in range(0, len(data), step):
        q.chunk(data[at:at + step])
    q.end()


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    a = Authority(tmp_path_factory.mktemp("ca"))
    a.files = a.issue("ip", "IP:127.0.0.1")
    return a


@pytest.fixture(scope="module", params=["plain", "tls", "tls-pod"])
def router(request, start_module, authority):
    pod = start_module.pod(script=echo)
    if request.param == "plain":
        yield start_module.router({"m": [pod]})
    elif request.param == "tls":
        cert, key = authority.files
        yield start_module.router({"m": [pod]}, tls=authority.client(), router_tls_cert=cert, router_tls_key=key)
    else:
        front = Front(pod, authority.files)
        yield start_module.router(ini="[model-server s]\npods = %s\nprotocol = https\n[model-route m]\ntarget = s\n" % front.authority,
                                  upstream_tls_ca=authority.file)
        front.stop()


def check(c, body, n, how):
    r = c.answer()
    assert r.status == 200 and r.header("X-Digest") == hashlib.sha256(body).hexdigest()
    assert len(r.body) == n and r.body == answer_bytes(n), (len(body), n, how)


def raw(c, body, chunk=None):
    if chunk is None:
        return c.request(body=body, send=False)
    return c.request(chunks=[body[i:i + chunk] for i in range(0, len(body), chunk)], send=False)


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("framing", ["sized", "chunked"])
def test_whole_request_at_an_edge(router, edge, framing):
    """Head and body together have that many bytes, and so has the answer's body."""
    c = router.client()
    for delta in AROUND:
        chunk = None if framing == "sized" else 5000
        frame = len(raw(c, body_of(0, edge + delta, "sized"), chunk))
        body = body_of(max(0, edge + delta - frame) + len(body_of(0, edge + delta, "sized")), edge + delta, "sized")
        c.send(raw(c, body, chunk))
        check(c, body, edge + delta, framing)


@pytest.mark.parametrize("how", ["sized", "chunked", "pieces", "close"])
@pytest.mark.parametrize("edge", EDGES)
def test_answer_at_an_edge(router, how, edge):
    c = router.client()
    for delta in AROUND:
        body = body_of(100, edge + delta, how)
        c.send(raw(c, body))
        check(c, body, edge + delta, how)


@pytest.mark.parametrize("edge", EDGES)
def test_requests_sent_ahead_whose_ends_are_at_an_edge(router, edge):
    """The first one ends there, and others follow in the same bytes."""
    for delta in AROUND:
        c = router.client()
        bodies = [body_of(max(0, edge + delta - 190), 10, "sized"), body_of(100, edge + delta, "chunked"), body_of(5000, 3, "pieces"),
                  body_of(100, edge, "sized")]
        sent = b"".join(raw(c, body, chunk) for body, chunk in zip(bodies, (None, 7, 1024, None)))
        c.send_while_reading(sent)
        for body in bodies:
            wish = json.loads(body)
            check(c, body, wish["answer"], wish["how"])


@pytest.mark.parametrize("cut", [1, 2, 100, 4095, 4096, 4097, 16383, 16384, 16385, 65535, 65536, 65537])
def test_two_requests_cut_anywhere(router, cut):
    """The bytes of three requests in two packets."""
    c = router.client()
    bodies = [body_of(30000, 10, "sized"), body_of(30000, 20, "chunked"), body_of(30000, 30, "sized")]
    sent = b"".join(raw(c, body, chunk) for body, chunk in zip(bodies, (None, 999, None)))
    c.send(sent[:cut])
    c.silent_for(0.03 * SLOW)
    c.send(sent[cut:])
    for body, n in zip(bodies, (10, 20, 30)):
        check(c, body, n, "cut")


@pytest.mark.parametrize("framing", ["sized", "chunked"])
def test_bodies_of_every_size_up_to_a_mib(start, framing):
    """Powers of two and their neighbours: no buffer on the way has a limit of its own."""
    pod = start.pod(script=ok)
    router = start.router({"m": [pod]}, max_body_bytes=1 << 20)
    c = router.client()
    for k in range(6, 21):
        for n in ((1 << k) - 1, 1 << k, (1 << k) + 1):
            body = json.dumps({"model": "m", "pad": "x" * (n - len('{"model": "m", "pad": ""}'))}).encode()
            c.request(**({"body": body} if framing == "sized" else {"chunks": [body[:n // 3], body[n // 3:]]}))
            r = c.answer()
            assert r.status == (200 if n <= 1 << 20 else 413), (n, r)
            if r.status == 200:
                assert pod.requests[-1].body == body
