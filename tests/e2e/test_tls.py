"""TLS on the inference port: what was true of plain connections stays true, and what only TLS has."""

import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import time

import pytest

from certs import Authority, common_name, encrypt_key
from client import Client, Cut, reset
from daemon import run_router
from pod import ok
from waiting import DEADLINE, SLOW, wait_until

FAILURES = "kthena_router_tls_handshake_failures_total"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    a = Authority(tmp_path_factory.mktemp("ca"))
    a.first = a.issue("first")
    a.second = a.issue("second")
    a.rsa = a.issue("rsa", kind="rsa")
    return a


def secure(start, authority, script=None, files=None, **options):
    cert, key = files or authority.first
    pod = start.pod(script)
    return pod, start.router({"m": [pod]}, tls=authority.client(), router_tls_cert=cert, router_tls_key=key, **options)


class Hand:
    """A TLS client whose records are written by hand: the test decides when which byte goes out."""

    def __init__(self, router, context):
        self.sock = socket.create_connection(("127.0.0.1", router.port), timeout=DEADLINE)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="127.0.0.1")

    def sealed(self, data=b""):
        """What has to be sent: records with these bytes, or what the handshake has to say."""
        if data:
            self.tls.write(data)
        return self.outgoing.read()

    def handshake(self, send=None):
        while True:
            try:
                self.tls.do_handshake()
                (send or self.sock.sendall)(self.outgoing.read())
                return self
            except ssl.SSLWantReadError:
                (send or self.sock.sendall)(self.outgoing.read())
                self.incoming.write(self.sock.recv(65536))

    def read_until(self, text):
        got = b""
        while text not in got:
            try:
                got += self.tls.read(65536)
            except ssl.SSLWantReadError:
                data = self.sock.recv(65536)
                assert data, got
                self.incoming.write(data)
        return got


def chat_bytes(tag, body_bytes=0):
    body = b'{"model":"m","tag":"%s","pad":"%s"}' % (tag.encode(), b"x" * body_bytes)
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\nContent-Length: %d\r\n\r\n" % len(body)
    return head, body


# ---- requests ----

def test_a_turn(start, authority):
    pod, router = secure(start, authority)
    c = router.start_chat(session="s")
    q = pod.next()
    assert q.header("X-Forwarded-Proto") == "https"
    q.reply(body=b'{"a":1}')
    r = c.answer()
    assert r.body == b'{"a":1}' and c.sock.version() == "TLSv1.3" and c.sock.selected_alpn_protocol() == "http/1.1"
    assert router.access(c.id)["status_code"] == 200
    router.start_chat(session="s")
    pod.next().reply()
    router.stderr.wait_for_line("session boost: dequeued.*session=s boosted=true")
    assert router.stderr.wait_for_line('listener=inference.*tls=true')


def test_events_of_a_stream_come_one_by_one(start, authority):
    pod, router = secure(start, authority)
    c = router.start_chat(stream=True)
    pod.next().stream_to(c, 20)


def test_tls_1_2_and_no_protocol_offered(start, authority):
    _, router = secure(start, authority, ok)
    c = router.client(tls=authority.client(alpn=(), maximum_version=ssl.TLSVersion.TLSv1_2))
    assert c.chat().answer().status == 200
    assert c.sock.version() == "TLSv1.2" and c.sock.selected_alpn_protocol() is None


def test_http_1_1_is_chosen_beside_h2(start, authority):
    _, router = secure(start, authority, ok)
    c = router.client(tls=authority.client(alpn=("h2", "http/1.1")))
    assert c.sock.selected_alpn_protocol() == "http/1.1"
    assert c.chat().answer().status == 200


def test_large_bodies_both_ways(start, authority):
    body = os.urandom(3 << 20).hex()
    pod, router = secure(start, authority)
    c = router.client(rcvbuf=8192)
    c.chat(pad=body)
    q = pod.next()
    assert q.json()["pad"] == body
    q.reply(body=q.body)
    r = c.head()
    pieces = c.read_until(r, b"{")
    time.sleep(0.1)  # the router runs into a full socket
    list(pieces)
    assert bytes(r.body) == q.body


def test_many_pipelined_requests(start, authority):
    _, router = secure(start, authority, lambda q: q.reply(body=q.tag.encode()))
    c = router.client()
    c.method = "POST"
    c.send(b"".join(b"".join(chat_bytes("t%d" % i, 400)) for i in range(200)))
    assert [c.answer().body for _ in range(200)] == [b"t%d" % i for i in range(200)]


def test_a_request_behind_a_body_in_one_record(start, authority):
    """The body is read to its last byte; what is left in the session makes no socket readable."""
    _, router = secure(start, authority, lambda q: q.reply(body=q.tag.encode()))
    c = router.client()
    c.method = "POST"
    head, body = chat_bytes("one", 3000)
    c.send(head + body[:1000])
    c.silent_for(0.05)
    c.send(body[1000:] + b"".join(chat_bytes("two")) + b"".join(chat_bytes("three")))
    assert [c.answer().body for _ in range(3)] == [b"one", b"two", b"three"]


def test_records_byte_by_byte(start, authority):
    _, router = secure(start, authority, ok)

    def dribble(data):
        for i in range(len(data)):
            hand.sock.sendall(data[i:i + 1])

    hand = Hand(router, authority.client())
    hand.handshake(dribble)
    for tag in ("one", "two"):
        dribble(hand.sealed(b"".join(chat_bytes(tag))))
        assert hand.read_until(b'{"ok":true}').startswith(b"HTTP/1.1 200 ")
    hand.sock.close()


def test_request_in_the_packet_that_ends_the_handshake(start, authority):
    _, router = secure(start, authority, ok)
    hand = Hand(router, authority.client())
    while True:
        try:
            hand.tls.do_handshake()
            break
        except ssl.SSLWantReadError:
            hand.sock.sendall(hand.outgoing.read())
            hand.incoming.write(hand.sock.recv(65536))
    hand.sock.sendall(hand.outgoing.read() + hand.sealed(b"".join(chat_bytes("t"))))
    assert hand.read_until(b'{"ok":true}').startswith(b"HTTP/1.1 200 ")
    hand.sock.close()


def test_many_at_once(start, authority):
    _, router = secure(start, authority, ok, session_boost_inflight_per_pod=8)
    clients = [router.client() for _ in range(60)]
    for turn in range(3):
        for i, c in enumerate(clients):
            c.chat(session="s%d" % i, tag=str(turn))
        assert all(c.answer().status == 200 for c in clients)


# ---- leaving ----

def test_close_notify_alone_is_leaving(start, authority):
    """The socket stays open: only the record says so."""
    pod, router = secure(start, authority)
    hand = Hand(router, authority.client()).handshake()
    hand.sock.sendall(hand.sealed(b"".join(chat_bytes("t"))))
    q = pod.next()
    with pytest.raises(ssl.SSLWantReadError):
        hand.tls.unwrap()
    hand.sock.sendall(hand.outgoing.read())
    q.wait_gone()
    hand.sock.close()
    router.wait_metric("kthena_router_client_aborts_total", 1.0, phase="HEAD")


@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_client_that_drops_the_socket_has_left(start, authority, how):
    pod, router = secure(start, authority)
    c = router.start_chat(stream=True)
    q = pod.next().start()
    q.event("one")
    c.read_until(c.head(), b"one")
    if how == "close":
        c.sock.close()
    else:
        c.rst()
    q.event("two")
    q.wait_gone()


def test_an_answer_that_ends_with_its_connection(start, authority):
    pod, router = secure(start, authority)
    c = router.client()
    c.request(body={"model": "m"}, version="HTTP/1.0")
    q = pod.next()
    q.start(content_type="text/plain").chunk(b"all of it")
    q.end()
    assert c.answer().body == b"all of it"  # the client takes nothing but close_notify for an end
    c = router.client()
    c.request(body={"model": "m"}, version="HTTP/1.0")
    q = pod.next()
    q.start(content_type="text/plain").chunk(b"a part")
    r = c.head()
    pieces = c.read_until(r, b"a part")
    q.reset()
    with pytest.raises(Cut):
        list(pieces)


def test_drain_says_goodbye(start, authority):
    pod, router = secure(start, authority)
    idle = router.client()
    c = router.start_chat()
    q = pod.next()
    half = socket.create_connection(("127.0.0.1", router.port))
    wait_until(lambda: router.metric("kthena_router_downstream_connections") >= 3, "three connections")
    router.signal(signal.SIGTERM)
    assert idle.fill() is False
    q.reply()
    assert c.answer().header("Connection") == "close" and c.fill() is False
    half.close()
    assert router.wait_exit() == 0


def test_drain_serves_what_has_arrived(start, authority):
    """A request on an idle connection, one whose handshake is still to come, and one behind half a handshake."""
    _, router = secure(start, authority, ok)
    kept = router.client()
    assert kept.chat().answer().status == 200
    half = Hand(router, authority.client())
    with pytest.raises(ssl.SSLWantReadError):
        half.tls.do_handshake()
    half.sock.sendall(half.outgoing.read())
    half.incoming.write(half.sock.recv(65536))
    router.signal(signal.SIGSTOP)
    kept.chat()
    fresh = Hand(router, authority.client())
    with pytest.raises(ssl.SSLWantReadError):
        fresh.tls.do_handshake()
    fresh.sock.sendall(fresh.outgoing.read())
    router.signal(signal.SIGTERM)
    router.signal(signal.SIGCONT)
    assert kept.answer().header("Connection") == "close" and kept.fill() is False
    for hand in (half, fresh):
        hand.handshake()
        hand.sock.sendall(hand.sealed(b"".join(chat_bytes("t"))))
        assert b"Connection: close" in hand.read_until(b'{"ok":true}')
        hand.sock.close()
    assert router.wait_exit() == 0


# ---- handshakes that fail ----

def failed(router, reason):
    router.wait_metric(FAILURES, 1.0, reason=reason)
    assert router.stderr.wait_for_line("a TLS handshake failed peer=127.0.0.1 reason=%s error=" % reason)
    wait_until(lambda: router.metric("kthena_router_downstream_connections") == 0, "the connection to be closed")


@pytest.mark.parametrize("bytes_sent", [0, 100])
def test_slow_handshake(start, authority, bytes_sent):
    _, router = secure(start, authority, client_header_timeout="300ms")
    hand = Hand(router, authority.client())
    with pytest.raises(ssl.SSLWantReadError):
        hand.tls.do_handshake()
    hand.sock.sendall(hand.outgoing.read()[:bytes_sent])
    begun = time.monotonic()
    assert hand.sock.recv(1) == b""
    assert 0.2 < time.monotonic() - begun < 1.5 * SLOW
    failed(router, "timeout")
    hand.sock.close()


def test_an_idle_client_after_the_handshake_has_the_idle_time(start, authority):
    _, router = secure(start, authority, ok, client_header_timeout="%dms" % (100 * SLOW))
    c = router.client()
    assert c.silent_for(0.4 * SLOW)
    assert c.chat().answer().status == 200


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_plain_http_is_told(start, authority, method):
    _, router = secure(start, authority)
    c = router.client(tls=None)
    c.method = method
    c.send(method[:2].encode())
    c.silent_for(0.05)
    c.send(method[2:].encode() + b" /v1/models HTTP/1.1\r\nHost: r\r\n\r\n")
    r = c.answer()
    assert r.status == 400 and "https://" in r.json()["error"]["message"]
    assert c.wait_closed() == b""
    wait_until(lambda: router.metrics().total("kthena_router_requests_total", error_type="bad_http") == 1, "one bad_http")


def test_no_common_protocol(start, authority):
    _, router = secure(start, authority)
    with pytest.raises(ssl.SSLError):
        Client(router.port, tls=authority.client(alpn=("h2",)))
    failed(router, "alpn")


@pytest.mark.parametrize("data", [b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n", b"\x00" * 64, b"CONNECT a:443 HTTP/1.1\r\n\r\n", b"OPTICS * HTTP/1.1\r\n\r\n"])
def test_no_tls_at_all(start, authority, data):
    _, router = secure(start, authority)
    with socket.create_connection(("127.0.0.1", router.port)) as s:
        s.sendall(data)
        failed(router, "not_tls")


def test_no_common_cipher(start, authority):
    _, router = secure(start, authority)
    done = subprocess.run(["openssl", "s_client", "-connect", "127.0.0.1:%d" % router.port, "-tls1_2", "-cipher", "AES128-SHA"],
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE, check=False)
    assert done.returncode != 0
    failed(router, "cipher")


def test_old_version(start, authority):
    _, router = secure(start, authority)
    done = subprocess.run(["openssl", "s_client", "-connect", "127.0.0.1:%d" % router.port, "-tls1_1", "-cipher",
                           "ALL@SECLEVEL=0"], stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE, check=False)
    assert done.returncode != 0
    failed(router, "version")


def test_a_client_that_does_not_trust_us(start, authority):
    _, router = secure(start, authority)
    with pytest.raises(ssl.SSLCertVerificationError):
        Client(router.port, tls=ssl.create_default_context())
    failed(router, "alert")


@pytest.mark.parametrize("how", ["close", "reset"])
def test_nothing_but_a_hello(start, authority, how):
    _, router = secure(start, authority)
    hand = Hand(router, authority.client())
    with pytest.raises(ssl.SSLWantReadError):
        hand.tls.do_handshake()
    hand.sock.sendall(hand.outgoing.read())
    if how == "close":
        hand.sock.recv(65536)
        hand.sock.shutdown(socket.SHUT_WR)
    else:
        hand.sock.recv(1)
        reset(hand.sock)
    failed(router, "closed")
    hand.sock.close()


def test_failures_are_all_counted_and_few_logged(start, authority):
    _, router = secure(start, authority, ok)
    for _ in range(60):
        s = socket.create_connection(("127.0.0.1", router.port))
        s.sendall(b"\x00" * 64)
        s.close()
    wait_until(lambda: router.metrics().total(FAILURES) == 60, "60 failures")
    router.stderr.wait_for_line("a TLS handshake failed")
    assert len(router.stderr.all("a TLS handshake failed")) <= 5
    assert router.chat().status == 200


@pytest.mark.parametrize("version, keys, said", [("-tls1_3", "K\n", "KEYUPDATE"), ("-tls1_3", "k\n", "KEYUPDATE"),
                                                 ("-tls1_2", "R\n", "RENEGOTIATING")])
def test_key_update_and_renegotiation(start, authority, version, keys, said):
    """New keys are taken as often as they come; renegotiation (TLS 1.2) ends that connection alone."""
    _, router = secure(start, authority, ok)
    p = subprocess.Popen(["openssl", "s_client", "-connect", "127.0.0.1:%d" % router.port, "-CAfile", authority.file, version,
                          "-crlf", "-servername", "localhost"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True)
    try:
        # s_client takes a command only where it starts a read, and says when it has taken it.
        for text, answer in ((keys, said), (keys, said), ("GET /healthz HTTP/1.1\nHost: r\n\n", "HTTP/1.1 200")):
            try:
                p.stdin.write(text)
                p.stdin.flush()
            except BrokenPipeError:
                assert version == "-tls1_2"
                break
            if not any(answer in line for line in p.stdout):
                assert version == "-tls1_2", "no " + answer
                break
    finally:
        p.kill()
        p.communicate()
    assert router.chat().status == 200


# ---- certificates ----

def served(router):
    c = router.client()
    name = common_name(c.sock)
    c.close()
    return name


def test_sighup_reads_the_certificate_again(start, authority, tmp_path):
    cert, key = (shutil.copy(f, tmp_path) for f in authority.first)
    pod, router = secure(start, authority, files=(cert, key))
    before = router.metric("kthena_router_tls_certificate_expiry_timestamp_seconds")
    assert abs(before - time.time() - 30 * 86400) < 86400
    old = router.start_chat(stream=True)
    q = pod.next().start()
    q.event("one")
    r = old.head()
    pieces = old.read_until(r, b"one")
    shutil.copy(authority.second[0], cert)
    shutil.copy(authority.second[1], key)
    router.signal(signal.SIGHUP)
    router.stderr.wait_for_line("reloaded")
    assert served(router) == "second"
    q.event("two").event("[DONE]").end()
    list(pieces)
    assert r.clean and common_name(old.sock) == "first"
    old.chat()
    pod.next().reply()
    assert old.answer().status == 200, "the connection of before lives on"


def test_changed_files_are_noticed(start, authority, tmp_path):
    """As a mounted Secret changes: a link in the directory above is replaced."""
    for name, files in (("v1", authority.first), ("v2", authority.second)):
        os.mkdir(tmp_path / name)
        for f, to in zip(files, ("tls.crt", "tls.key")):
            shutil.copy(f, tmp_path / name / to)
    os.symlink("v1", tmp_path / "data")
    _, router = secure(start, authority, ok, files=(str(tmp_path / "data/tls.crt"), str(tmp_path / "data/tls.key")))
    c = router.client()
    assert c.chat().answer().status == 200
    os.symlink("v2", tmp_path / "new")
    os.rename(tmp_path / "new", tmp_path / "data")
    wait_until(lambda: router.stderr.all("certificate in use")[1:], "the second certificate", 7 * SLOW)
    assert served(router) == "second"
    assert c.chat().answer().status == 200 and common_name(c.sock) == "first"


def test_a_bad_certificate_refuses_the_reload(start, authority, tmp_path):
    cert, key = (shutil.copy(f, tmp_path) for f in authority.first)
    _, router = secure(start, authority, ok, files=(cert, key))
    shutil.copy(authority.second[1], key)  # not the certificate's
    router.signal(signal.SIGHUP)
    router.stderr.wait_for_line("reload refused")
    assert router.stderr.wait_for_line("ERROR configuration problem=.*key values mismatch")
    router.wait_metric("kthena_router_config_reloads_total", 1.0, result="refused")
    assert router.chat().status == 200 and served(router) == "first"


def test_a_key_of_another_kind_changes_nothing(start, authority, tmp_path):
    """OpenSSL keeps keys of each kind apart: the certificate would be left without a key, and no handshake would succeed."""
    cert, key = (shutil.copy(f, tmp_path) for f in authority.first)
    _, router = secure(start, authority, ok, files=(cert, key))
    expiry = router.metric("kthena_router_tls_certificate_expiry_timestamp_seconds")
    shutil.copy(authority.rsa[1], key)
    router.stderr.wait_for_line("the certificate was changed and cannot be used.*of another kind", timeout=7 * SLOW)
    router.signal(signal.SIGHUP)
    router.stderr.wait_for_line("reload refused")
    assert router.chat().status == 200 and served(router) == "first"
    assert router.metric("kthena_router_tls_certificate_expiry_timestamp_seconds") == expiry
    assert len(router.stderr.all("certificate in use")) == 1


@pytest.mark.parametrize("dates, reason", [(("20200101000000Z", "20200201000000Z"), "has expired"),
                                           (("20500101000000Z", "20600101000000Z"), "is not valid yet")])
def test_a_certificate_outside_its_dates_is_warned_of(start, authority, tmp_path, dates, reason):
    bad = authority.issue_between("dated", *dates)
    done = run_router("--check", "--tls-cert", bad[0], "--tls-key", bad[1])
    assert done.returncode == 0 and re.search("warning: ROUTER_TLS_CERT: the certificate in .*dated.pem %s" % reason, done.stderr)
    done = run_router("--check", "--tls-cert", authority.first[0], "--tls-key", authority.first[1])
    assert done.returncode == 0 and "clients will refuse" not in done.stderr
    cert, key = (shutil.copy(f, tmp_path) for f in authority.first)
    _, router = secure(start, authority, ok, files=(cert, key))
    assert not router.stderr.all("clients will refuse")
    for now, to in zip(bad, (cert, key)):
        shutil.copy(now, to)
    router.signal(signal.SIGHUP)
    assert router.stderr.wait_for_line("WARN clients will refuse the certificate in use.*reason=\"%s\"" % reason)


@pytest.mark.parametrize("what, says", [
    ("cert alone", "ROUTER_TLS_CERT is set and ROUTER_TLS_KEY is not"),
    ("key alone", "ROUTER_TLS_KEY is set and ROUTER_TLS_CERT is not"),
    ("no file", "cannot use the certificate /nonexistent.pem: No such file or directory"),
    ("key of another", "cannot use the key .*second.key: key values mismatch"),
    ("no certificate", "cannot use the certificate .*first.key: no start line"),
    ("passphrase", "cannot use the key .*secret.key: "),
    ("RSA key", "cannot use the key .*rsa.key: it is of another kind than the certificate in .*first.pem"),
    ("EC key", "cannot use the key .*first.key: it is of another kind than the certificate in .*rsa.pem"),
])
def test_unusable_files(authority, tmp_path, what, says):
    cert, key = authority.first
    secret = str(tmp_path / "secret.key")
    encrypt_key(key, secret)
    args = {"cert alone": ["--tls-cert", cert], "key alone": ["--tls-key", key],
            "no file": ["--tls-cert", "/nonexistent.pem", "--tls-key", key],
            "key of another": ["--tls-cert", cert, "--tls-key", authority.second[1]],
            "no certificate": ["--tls-cert", key, "--tls-key", key],
            "passphrase": ["--tls-cert", cert, "--tls-key", secret],
            "RSA key": ["--tls-cert", cert, "--tls-key", authority.rsa[1]],
            "EC key": ["--tls-cert", authority.rsa[0], "--tls-key", key]}[what]
    for extra in (["--check"], ["--port", "0", "--metrics-port", "0", "--debug-port", "0"]):
        done = run_router(*args, *extra)
        assert done.returncode == 1 and re.search(says, done.stderr), done.stderr
