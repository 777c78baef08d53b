"""A pod under full control: it records what it receives and does what the test says, byte by byte.

By default every request is held: the test takes it with next() and decides. A script (a function of the request)
may answer at once; what it leaves unanswered is held. Scrapes (/metrics, GET /v1/models) are served on the side."""

import collections
import json
import select
import socket
import threading
import time

from client import Message, reset
from waiting import DEADLINE, wait_until

VLLM_METRICS = """# HELP vllm:num_requests_running Running.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="m"}} {running}
# HELP vllm:num_requests_waiting Waiting.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{{engine="0",model_name="m"}} {waiting}
# HELP vllm:kv_cache_usage_perc KV use.
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{{engine="0",model_name="m"}} {kv}
"""


def vllm_metrics(waiting=0.0, running=0.0, kv=0.0):
    return VLLM_METRICS.format(waiting=waiting, running=running, kv=kv)


class Request(Message):
    """One request as the pod got it, and the pen to answer it with."""

    def __init__(self, conn, number, head, body, nth):
        self.conn, self.pod, self.sock = conn, conn.pod, conn.sock
        self.number = number  # in order of arrival at the pod, from 0
        self.nth = nth        # on its connection, from 0
        self.raw_head, self.body = head, body
        lines = head[:-4].decode("latin-1").split("\r\n")
        self.method, self.path, self.version = lines[0].split(" ")
        assert self.version == "HTTP/1.1", lines[0]
        self.fields = [(n, v.strip()) for n, v in (line.split(":", 1) for line in lines[1:])]
        self.gone = threading.Event()  # the router closed this connection
        self.gone_at = None
        self.finished = threading.Event()
        self.ending = False   # the last bytes are being written: what arrives now is the next request
        self.at = time.monotonic()

    @property
    def tag(self):
        return self.json().get("tag")

    @property
    def session(self):
        return self.header("X-Session-ID")

    # ---- answering ----

    def raw(self, data):
        try:
            self.sock.sendall(data)
        except OSError:
            pass  # the router left; the test sees it in `gone`
        return self

    def _finish(self, last=b""):
        """The slot counts as free before the last bytes leave: the router may use it at once."""
        self.pod._active(-1, self)
        self.ending = True
        self.raw(last)
        self.finished.set()
        self.conn.wake()

    def reply(self, status=200, body=b'{"ok":true}', headers=(), content_type="application/json", close=False):
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        if isinstance(body, str):
            body = body.encode()
        fields = [("Content-Type", content_type), ("Content-Length", str(len(body)))] + list(headers)
        if close:
            fields.append(("Connection", "close"))
        head = "HTTP/1.1 %d Status\r\n%s\r\n" % (status, "".join("%s: %s\r\n" % f for f in fields))
        self.conn.close_after = close
        self._finish(head.encode() + body)
        return self

    def start(self, status=200, content_type="text/event-stream", headers=(), chunked=True):
        """An answer's head; then chunk() or raw(), then end()."""
        self.chunked = chunked
        fields = [("Content-Type", content_type)] + list(headers)
        fields.append(("Transfer-Encoding", "chunked") if chunked else ("Connection", "close"))
        self.raw(("HTTP/1.1 %d Status\r\n%s\r\n" % (status, "".join("%s: %s\r\n" % f for f in fields))).encode())
        return self

    def chunk(self, data):
        return self.raw(b"%x\r\n%s\r\n" % (len(data), data)) if self.chunked else self.raw(data)

    def stream_to(self, client, n):
        """A whole stream of n events; none is sent before the client has read the one before it."""
        self.start()
        r, pieces = client.head(), None
        for i in range(n):
            self.event("event %d" % i)
            pieces = client.read_until(r, b"event %d\n" % i, pieces)
        self.event("[DONE]").end()
        list(pieces)
        assert r.clean

    def event(self, text):
        return self.chunk(b"data: " + text.encode() + b"\n\n")

    def end(self):
        self.conn.close_after = not self.chunked
        self._finish(b"0\r\n\r\n" if self.chunked else b"")

    def sse(self, *events, done=True):
        """A whole event stream."""
        self.start()
        for e in events or ('{"t":"x"}',):
            self.event(e)
        if done:
            self.event("[DONE]")
        self.end()

    def finish_raw(self, data=b"", close=False):
        """Writes raw bytes as the end of the answer."""
        self.conn.close_after = close
        self._finish(data)

    def reset(self):
        self.pod._active(-1, self)
        self.conn.drop(rst=True)
        self.finished.set()

    def close(self):
        self.pod._active(-1, self)
        self.conn.drop(rst=False)
        self.finished.set()

    def wait_gone(self, timeout=None):
        assert self.gone.wait(DEADLINE if timeout is None else timeout), "the router did not close the pod's connection"
        return self.gone_at


def readable(*socks):
    """Waits for the first of them to be readable (or closed by the other side). Poll, since select ends at 1024."""
    poller = select.poll()
    for s in socks:
        if s.fileno() < 0:
            raise EOFError  # closed on our side
        poller.register(s, select.POLLIN)
    ready = {fd for fd, _ in poller.poll()}
    return [s for s in socks if s.fileno() in ready]


class Connection(threading.Thread):
    def __init__(self, pod, sock, number):
        super().__init__(daemon=True)
        self.pod, self.sock, self.number = pod, sock, number
        self.received = b""  # every byte, in order
        self.buf = b""
        self.close_after = False
        self.open = True
        self.pipelined = False
        self.requests = 0
        self._wake_r, self._wake_w = socket.socketpair()
        self._wake_w.setblocking(False)
        self._lock = threading.Lock()

    def wake(self):
        try:
            self._wake_w.send(b"x")
        except OSError:
            pass  # full: awake already; closed: over

    def drop(self, rst):
        with self._lock:
            if not self.open:
                return
            self.open = False
            self.wake()
            if rst:
                reset(self.sock)
            else:
                try:
                    self.sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # the other side was first
                self.sock.close()
        self.wake()

    def cut(self):
        """Has the router closed it? Known at once, while the thread of the connection may be elsewhere."""
        with self._lock:
            if not self.open:
                return True
            poller = select.poll()
            poller.register(self.sock, select.POLLRDHUP)
            return bool(poller.poll(0))

    def _recv(self):
        try:
            data = self.sock.recv(262144)
        except OSError:
            return b""
        self.received += data
        self.buf += data
        return data

    def _read(self, enough):
        while not enough():
            if not self._recv():
                raise EOFError
        return True

    def _read_request(self):
        self._read(lambda: b"\r\n\r\n" in self.buf)
        i = self.buf.index(b"\r\n\r\n") + 4
        head, self.buf = self.buf[:i], self.buf[i:]
        lower = head.lower()
        if b"\r\ntransfer-encoding:" in lower:
            self._read(lambda: b"0\r\n\r\n" in self.buf)
            raise AssertionError("the router sent a chunked request: it keeps bodies whole and sizes them")
        n = 0
        for line in lower.split(b"\r\n"):
            if line.startswith(b"content-length:"):
                n = int(line.split(b":")[1])
        self._read(lambda: len(self.buf) >= n)
        body, self.buf = self.buf[:n], self.buf[n:]
        return head, body

    def run(self):
        try:
            while self.open:
                if not self.pod._on_idle(self):
                    return
                head, body = self._read_request()
                target = head.split(b" ", 2)[1]
                if target == b"/metrics" or head.startswith(b"GET /v1/models "):
                    self.pod._scrape(self, target.decode())
                else:
                    self._serve(head, body)
                if self.close_after:
                    self.drop(rst=False)
        except (EOFError, OSError):
            pass  # over, from one side or the other
        except Exception as e:  # a broken test script must not hang its test
            self.pod.errors.append(e)
        finally:
            if self.open:
                self.drop(rst=False)
            self.pod._conn_closed(self)
            self._wake_r.close()
            self._wake_w.close()

    def _serve(self, head, body):
        nth, self.requests = self.requests, self.requests + 1
        r = self.pod._new_request(self, head, body, nth)
        if self.pod.script:
            self.pod.script(r)
        if not r.finished.is_set():
            self.pod._hold(r)
            self._watch(r)
        if not self.open:
            raise EOFError

    def _watch(self, r):
        """While the test decides: notices the router leaving."""
        while not r.finished.is_set():
            ready = readable(self.sock, self._wake_r)
            if r.ending:
                r.finished.wait(DEADLINE)
                return
            if self._wake_r in ready:
                self._wake_r.recv(4096)
                continue
            if not self.open:
                return
            if self._recv():
                self.pipelined = True
                self.pod.errors.append(AssertionError("the router sent bytes before the answer was complete"))
                continue
            if not self.open:
                return
            r.gone_at = time.monotonic()
            self.pod._active(-1, r)
            r.gone.set()
            r.finished.set()
            raise EOFError


class Pod:
    def __init__(self, script=None, metrics=None, models=("m",), host="127.0.0.1", listen=True):
        self.script = script
        self.metrics_text = vllm_metrics() if metrics is None else metrics
        self.metrics_script = None  # function(connection): answers the scrape itself
        self.models = models
        self.host = host
        self.requests = []  # all of them, in order of arrival
        self.connections = []
        self.errors = []
        self.scrapes = self.model_reads = self.failing_model_reads = 0
        self.active = self.peak = 0  # requests neither answered nor cut by the router
        self.close_reused = None  # function(connection) -> bool: called before each request of a connection is read
        self._held = collections.deque()
        self._cond = threading.Condition()
        self._counted = set()
        self.port = 0
        self.listener = None
        self._bind()
        if listen:
            self.listen()

    def _bind(self):
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        self.listener = socket.socket(family, socket.SOCK_STREAM)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind((self.host, self.port))
        self.port = self.listener.getsockname()[1]

    @property
    def authority(self):
        return ("[%s]:%d" if ":" in self.host else "%s:%d") % (self.host, self.port)

    def listen(self):
        """From here on connections are accepted; before they are refused."""
        self.listener.listen(512)
        threading.Thread(target=self._accept, args=(self.listener,), daemon=True).start()

    def refuse(self):
        """New connections are refused from now on (the port stays ours)."""
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self._bind()

    def _accept(self, listener):
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._cond:
                conn = Connection(self, sock, len(self.connections))
                self.connections.append(conn)
                self._cond.notify_all()
            conn.start()

    # ---- called by connections ----

    def _on_idle(self, conn):
        # drop() wakes it: a thread inside poll or recv would keep a closed socket open, and take a request with it.
        while not conn.buf:
            ready = readable(conn.sock, conn._wake_r)
            if not conn.open:
                return False
            if conn.sock in ready:
                break
            conn._wake_r.recv(4096)
        return self.close_reused is None or not self.close_reused(conn)

    def _new_request(self, conn, head, body, nth):
        with self._cond:
            r = Request(conn, len(self.requests), head, body, nth)
            self.requests.append(r)
            self._cond.notify_all()
        self._active(+1, r)
        return r

    def _active(self, step, r):
        with self._cond:
            if step > 0:
                self._counted.add(r)
            else:
                self._counted.discard(r)
            self.active = sum(not counted.conn.cut() for counted in self._counted)
            self.peak = max(self.peak, self.active)
            self._cond.notify_all()

    def _hold(self, r):
        with self._cond:
            self._held.append(r)
            self._cond.notify_all()

    def _conn_closed(self, _conn):
        with self._cond:
            self._cond.notify_all()

    def _scrape(self, conn, target):
        self.scrapes += 1
        self.model_reads += target != "/metrics"
        if target == "/metrics" and self.metrics_script:
            self.metrics_script(conn)
            return
        if target == "/metrics":
            body, kind = self.metrics_text.encode(), "text/plain; version=0.0.4"
        else:
            if self.failing_model_reads > 0:
                self.failing_model_reads -= 1
                conn.sock.sendall(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n")
                return
            body = json.dumps({"object": "list", "data": [{"id": m, "object": "model"} for m in self.models]}).encode()
            kind = "application/json"
        conn.sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s"
                          % (kind.encode(), len(body), body))

    # ---- for tests ----

    def next(self, timeout=None):
        """The next held request."""
        with self._cond:
            ok = self._cond.wait_for(lambda: self._held or self.errors, DEADLINE if timeout is None else timeout)
            if self.errors:
                raise self.errors[0]
            assert ok, "no request reached the pod (%d so far)" % len(self.requests)
            return self._held.popleft()

    def nothing_held(self):
        with self._cond:
            return not self._held

    def wait_requests(self, n, timeout=None):
        wait_until(lambda: len(self.requests) >= n, "%d requests at the pod" % n, timeout)

    def stop(self):
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()
        for c in list(self.connections):
            c.drop(rst=False)


def ok(request):
    """The script that answers everything at once."""
    request.reply()
