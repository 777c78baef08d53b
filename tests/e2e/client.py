"""A raw HTTP client with exact control over bytes, and what it reads checked strictly."""

import itertools
import json
import os
import select
import socket
import ssl
import struct
import time

from waiting import DEADLINE

_ids = itertools.count(1)


def request_id():
    return "t%d-%d" % (os.getpid(), next(_ids))


def reset(sock):
    """Closes with RST."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    try:
        # A thread that is inside recv would keep the socket open, and take the next bytes for itself.
        sock.shutdown(socket.SHUT_RD)
    except OSError:
        pass  # the other side was first
    sock.close()


class Cut(Exception):
    """The connection ended (EOF or RST) before the message was whole."""

    def __init__(self, what, data=b""):
        super().__init__("%s; got %r" % (what, data[-300:]))
        self.data = data


class Message:
    """What an answer and a request that a pod got have in common: `fields` and `body`."""

    def all(self, name):
        return [v for n, v in self.fields if n.lower() == name.lower()]

    def header(self, name):
        values = self.all(name)
        assert len(values) <= 1, "%s given %d times" % (name, len(values))
        return values[0] if values else None

    def json(self):
        return json.loads(self.body)


class Response(Message):
    def __init__(self, raw):
        self.raw = raw
        lines = raw[:-4].split(b"\r\n")
        self.version, status, self.reason = (lines[0].decode("latin-1") + " ").split(" ", 2)
        assert self.version in ("HTTP/1.1", "HTTP/1.0"), raw
        self.status = int(status)
        self.fields = []
        for line in lines[1:]:
            name, colon, value = line.decode("latin-1").partition(":")
            assert colon and name and name == name.strip(), raw
            self.fields.append((name, value.strip()))
        self.body = bytearray()
        self.chunks = []  # (monotonic time, bytes) as they came off the socket
        self.clean = None  # the body ended as its framing says
        self.at = time.monotonic()

    def __repr__(self):
        return "<%s %d %r>" % (self.version, self.status, self.body[:200])


class Client:
    """One connection to the router."""

    def __init__(self, port, host="127.0.0.1", rcvbuf=None, timeout=None, tls=None):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.sock = socket.socket(family, socket.SOCK_STREAM)
        if rcvbuf:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        self.sock.settimeout(DEADLINE if timeout is None else timeout)
        self.sock.connect((host, port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls:  # an ssl.SSLContext; an end without close_notify counts as a reset
            self.sock = tls.wrap_socket(self.sock, server_hostname=host, suppress_ragged_eofs=False)
        self.buf = b""
        self.eof = False
        self.method = "GET"
        self.id = None

    # ---- sending ----

    def send(self, data):
        self.sock.sendall(data)
        return self

    def send_while_reading(self, data):
        """For more than fits between the two: keeps what comes meanwhile for the answers. One thread does both, because
        a TLS session of Python's must not be used by two."""
        patience, rest = self.sock.gettimeout(), memoryview(data)
        self.sock.setblocking(False)
        while rest:
            readable, writable, _ = select.select([self.sock], [self.sock], [], patience)
            assert readable or writable, "nothing goes on"
            for step in (self._take_some, lambda: self.sock.send(rest)):
                try:
                    rest = rest[step() or 0:]
                except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    pass
        self.sock.settimeout(patience)
        return self

    def _take_some(self):
        self.buf += self.sock.recv(262144)

    def request(self, method="POST", path="/v1/chat/completions", body=None, headers=(), version="HTTP/1.1", chunks=None,
                send=True, id=True):
        """Builds and sends one request; `chunks` sends a chunked body. Returns self (or the bytes)."""
        self.method = method
        fields = list(headers.items() if isinstance(headers, dict) else headers)
        names = [n.lower() for n, _ in fields]
        if "host" not in names:
            fields.insert(0, ("Host", "router.test"))
        if id and "x-request-id" not in names:
            self.id = request_id()
            fields.append(("X-Request-ID", self.id))
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        if isinstance(body, str):
            body = body.encode()
        data = b""
        if chunks is not None:
            fields.append(("Transfer-Encoding", "chunked"))
            data = b"".join(b"%x\r\n%s\r\n" % (len(c), c) for c in chunks) + b"0\r\n\r\n"
        elif body is not None:
            if "content-length" not in names:
                fields.append(("Content-Length", str(len(body))))
            data = body
        head = "%s %s %s\r\n%s\r\n" % (method, path, version, "".join("%s: %s\r\n" % f for f in fields))
        raw = head.encode("latin-1") + data
        if not send:
            return raw
        return self.send(raw)

    def chat(self, model="m", session=None, stream=False, headers=(), **extra):
        """One chat turn; `tag` and the like go into the body."""
        body = {"model": model, "messages": [{"role": "user", "content": "hi"}]}
        if stream:
            body["stream"] = True
        body.update(extra)
        fields = list(headers) + [("Content-Type", "application/json")]
        if session is not None:
            fields.append(("X-Session-ID", session))
        return self.request(body=body, headers=fields)

    # ---- receiving ----

    def fill(self):
        """One read from the socket. False at EOF."""
        try:
            data = self.sock.recv(262144)
        except (ConnectionResetError, ssl.SSLEOFError):
            self.eof = True
            raise Cut("connection reset", self.buf) from None
        if not data:
            self.eof = True
            return False
        self.buf += data
        return True

    def _take_until(self, mark):
        while mark not in self.buf:
            if not self.fill():
                raise Cut("closed while waiting for %r" % mark, self.buf)
        i = self.buf.index(mark) + len(mark)
        data, self.buf = self.buf[:i], self.buf[i:]
        return data

    def head(self):
        """The next answer's head; 1xx included."""
        r = Response(self._take_until(b"\r\n\r\n"))
        if r.status >= 200:
            framing = len(r.all("Content-Length")) + len(r.all("Transfer-Encoding"))
            assert framing <= 1, "two framing fields: %r" % r.raw
            assert len(r.all("X-Request-ID")) == 1, "X-Request-ID missing or twice: %r" % r.raw
        return r

    def _body_piece(self, n):
        """Up to n body bytes, n > 0."""
        if not self.buf and not self.fill():
            return b""
        data, self.buf = self.buf[:n], self.buf[n:]
        return data

    def pieces(self, r):
        """Yields body bytes as they arrive; sets r.clean at a proper end, raises Cut otherwise."""
        def note(data):
            r.body += data
            r.chunks.append((time.monotonic(), data))
            return data
        if self.method == "HEAD" or r.status in (204, 304):
            r.clean = True
        elif r.all("Content-Length"):
            left = int(r.header("Content-Length"))
            while left:
                data = self._body_piece(left)
                if not data:
                    raise Cut("body cut, %d bytes missing" % left, r.body)
                left -= len(data)
                yield note(data)
            r.clean = True
        elif r.all("Transfer-Encoding"):
            assert r.header("Transfer-Encoding") == "chunked" and r.version == "HTTP/1.1", r.raw
            try:
                yield from (note(d) for d in self._chunks())
            except Cut as e:
                raise Cut(str(e), r.body) from None
            r.clean = True
        else:
            while True:
                data = self._body_piece(1 << 20)
                if not data:
                    break
                yield note(data)
            r.clean = True

    def _chunks(self):
        while True:
            size = int(self._take_until(b"\r\n")[:-2], 16)
            left = size
            while left:
                data = self._body_piece(left)
                if not data:
                    raise Cut("cut inside a chunk")
                left -= len(data)
                yield data
            assert self._take_until(b"\r\n") == b"\r\n", "no CRLF after a chunk"
            if size == 0:
                return

    def body(self, r):
        for _ in self.pieces(r):
            pass
        r.body = bytes(r.body)
        return r

    def read_until(self, r, text, pieces=None):
        """Reads body bytes until `text` has come. Returns the generator to go on with."""
        pieces = pieces or self.pieces(r)
        while text not in r.body:
            try:
                next(pieces)
            except StopIteration:
                raise AssertionError("body ended without %r: %r" % (text, r.body[-300:])) from None
        return pieces

    def answer(self):
        """Head and body of the next answer."""
        return self.body(self.head())

    def read_cut(self):
        """Reads an answer that must end in an unclean way; returns it with the body so far."""
        r = self.head()
        try:
            self.body(r)
        except Cut:
            r.clean = False
            return r
        raise AssertionError("the answer ended cleanly: %r" % r)

    def wait_closed(self):
        """Waits until the router closes; returns leftover bytes."""
        try:
            while self.fill():
                pass
        except Cut:
            pass
        return self.buf

    def silent_for(self, seconds):
        """True when nothing arrives for that long. For checks that something does NOT happen."""
        self.sock.settimeout(seconds)
        try:
            data = self.sock.recv(262144)
            self.buf += data
            return False
        except socket.timeout:
            return True
        finally:
            self.sock.settimeout(DEADLINE)

    # ---- leaving ----

    def fin(self):
        self.sock.shutdown(socket.SHUT_WR)

    def rst(self):
        reset(self.sock)

    def close(self):
        self.sock.close()
