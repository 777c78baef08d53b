"""make differential: the same bytes through the router, HAProxy and nginx to an echo pod, and pods' odd answers through them back.

Every case says what the router has to do. Where another proxy does something else the difference is listed with the reason why
ours is right; a difference without a reason is a failure. Needs HAProxy and nginx: where they are not installed their Debian
packages are unpacked below the build directory, as for make bench.
"""
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench"))
from harness import ROUTER, peer  # noqa: E402

WAIT_S = 0.4
BODY = b'{"model":"m"}'
POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\n"
SIZED = POST + b"Content-Length: %d\r\n" % len(BODY)
CHUNKS = b"d\r\n" + BODY + b"\r\n0\r\n\r\n"

HAPROXY = """
global
    maxconn 100
defaults
    mode http
    timeout connect 1s
    timeout client 3s
    timeout server 3s
listen all
    bind 127.0.0.1:%(port)d
    server pod 127.0.0.1:%(pod)d
"""
NGINX = """
daemon off; master_process off; pid %(dir)s/nginx.pid; error_log /dev/null;
events { worker_connections 100; }
http {
    access_log off;
    client_body_temp_path %(dir)s/b; proxy_temp_path %(dir)s/p; fastcgi_temp_path %(dir)s/f; uwsgi_temp_path %(dir)s/u; scgi_temp_path %(dir)s/s;
    upstream pod { server 127.0.0.1:%(pod)d; keepalive 4; }
    server {
        listen 127.0.0.1:%(port)d;
        location / { proxy_pass http://pod; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_next_upstream off; }
    }
}
"""

R = "refused"
OK = "relayed"

# What is sent, what the router makes of it, and why that is right where the others do something else.
REQUESTS = [
    ("sized", SIZED + b"\r\n" + BODY, OK, ""),
    ("chunked", POST + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKS, OK, ""),
    ("chunk extensions", POST + b"Transfer-Encoding: chunked\r\n\r\nd;a=b\r\n" + BODY + b"\r\n0;x\r\n\r\n", OK, ""),
    ("trailer fields", POST + b"Transfer-Encoding: chunked\r\n\r\nd\r\n" + BODY + b"\r\n0\r\nX: y\r\n\r\n", OK, ""),
    ("blank line before the request", b"\r\n" + SIZED + b"\r\n" + BODY, OK, ""),
    ("length and chunked", SIZED + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKS, R,
     "two framings are the classic of smuggling; RFC 9112 6.3 lets a server refuse, and no honest client sends both"),
    ("chunked and length", POST + b"Transfer-Encoding: chunked\r\nContent-Length: 13\r\n\r\n" + CHUNKS, R, "as above"),
    ("length twice, equal", SIZED + b"Content-Length: 13\r\n\r\n" + BODY, R,
     "RFC 9112 6.3 allows refusing; whoever merges them trusts that the next hop merges alike"),
    ("length twice, different", SIZED + b"Content-Length: 1\r\n\r\n" + BODY, R, ""),
    ("length as a list", POST + b"Content-Length: 13, 13\r\n\r\n" + BODY, R, "as for lengths given twice"),
    ("length with a plus", POST + b"Content-Length: +13\r\n\r\n" + BODY, R, ""),
    ("length with a minus", POST + b"Content-Length: -13\r\n\r\n" + BODY, R, ""),
    ("length in hexadecimal", POST + b"Content-Length: 0xd\r\n\r\n" + BODY, R, ""),
    ("empty length", POST + b"Content-Length:\r\n\r\n" + BODY, R, ""),
    ("length over 64 bits", POST + b"Content-Length: 99999999999999999999\r\n\r\n" + BODY, R, ""),
    ("gzip, chunked", POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + CHUNKS, R,
     "a transfer coding that is not undone may not be passed on; we undo none but chunked"),
    ("chunked twice", POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n" + CHUNKS, R,
     "RFC 9112 6.1: a sender must not apply chunked more than once"),
    ("chunked in two fields", POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKS, R, "as above"),
    ("identity", POST + b"Transfer-Encoding: identity\r\n\r\n" + BODY, R, "not a coding since RFC 7230; readers differ on where the body ends"),
    ("chunked with a vertical tab", POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n" + CHUNKS, R, ""),
    ("chunked, folded", POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n" + CHUNKS, R,
     "folded fields are obsolete (RFC 9112 5.2): a server must refuse or unfold, and refusing cannot be misread"),
    ("CHUNKED", POST + b"Transfer-Encoding: CHUNKED\r\n\r\n" + CHUNKS, OK, "codings are case-insensitive (RFC 9112 7)"),
    ("blank before the colon", POST + b"Transfer-Encoding : chunked\r\n\r\n" + CHUNKS, R, ""),
    ("underscore for hyphen", SIZED + b"Transfer_Encoding: chunked\r\n\r\n" + BODY, OK,
     "an underscore makes another name, one that means nothing; agents send underscored session headers, which must pass"),
    ("lone CR between fields", SIZED + b"X: a\rY: b\r\n\r\n" + BODY, R,
     "some servers end a field at a lone CR (CVE-2023-30589)"),
    ("lone LF between fields", SIZED + b"X: a\nY: b\r\n\r\n" + BODY, R,
     "RFC 9112 2.2 allows taking a lone LF for a line end; where two hops differ on that, a field can be hidden"),
    ("only LF", b"POST /v1/chat/completions HTTP/1.1\nHost: h\nContent-Length: 13\n\n" + BODY, R, "as above"),
    ("NUL in a value", SIZED + b"X: a\0b\r\n\r\n" + BODY, R,
     "readers in C end the value there (RFC 9110 5.5: refuse or replace)"),
    ("NUL in a name", SIZED + b"X\0: a\r\n\r\n" + BODY, R, ""),
    ("DEL in a value", SIZED + b"X: a\x7fb\r\n\r\n" + BODY, R, "a control byte is no field content (RFC 9110 5.5)"),
    ("control byte in a value", SIZED + b"X: a\x01b\r\n\r\n" + BODY, R, "as above: it would reach logs and pods"),
    ("field without a colon", SIZED + b"nothing\r\n\r\n" + BODY, R, "a line that is no field may be the start of something else for the next reader"),
    ("field without a name", SIZED + b": x\r\n\r\n" + BODY, R, "as above"),
    ("bytes over 127 in a name", SIZED + b"\xc3\xa9: x\r\n\r\n" + BODY, R, "a name is a token (RFC 9110 5.1)"),
    ("bytes over 127 in a value", SIZED + b"X: \xc3\xa9\r\n\r\n" + BODY, OK, ""),
    ("two hosts", SIZED + b"Host: other\r\n\r\n" + BODY, R, "RFC 9112 3.2: must be answered with 400"),
    ("no host", b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 13\r\n\r\n" + BODY, R, "RFC 9112 3.2: must be answered with 400"),
    ("host with a comma", b"POST /v1/chat/completions HTTP/1.1\r\nHost: a,b\r\nContent-Length: 13\r\n\r\n" + BODY, R,
     "a list of hosts is no host"),
    ("absolute target, same host", b"POST http://h/v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Length: 13\r\n\r\n" + BODY, OK, ""),
    ("absolute target, other host", b"POST http://a/v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Length: 13\r\n\r\n" + BODY, R,
     "the next hop may believe the other one"),
    ("LF in chunk size", POST + b"Transfer-Encoding: chunked\r\n\r\nd\n" + BODY + b"\r\n0\r\n\r\n", R,
     "RFC 9112 7.1 wants CR LF; readers that differ disagree on every later chunk"),
    ("LF in a chunk extension", POST + b"Transfer-Encoding: chunked\r\n\r\nd;a\nX\r\n" + BODY + b"\r\n0\r\n\r\n", R,
     "CVE-2025-55315 and its like"),
    ("LF behind chunk data", POST + b"Transfer-Encoding: chunked\r\n\r\nd\r\n" + BODY + b"\n0\r\n\r\n", R, "as above"),
    ("chunk size with 0x", POST + b"Transfer-Encoding: chunked\r\n\r\n0xd\r\n" + BODY + b"\r\n0\r\n\r\n", R, ""),
    ("chunk size with blanks", POST + b"Transfer-Encoding: chunked\r\n\r\nd \r\n" + BODY + b"\r\n0\r\n\r\n", R,
     "blanks are no part of a size (RFC 9112 7.1)"),
    ("chunk size over 64 bits", POST + b"Transfer-Encoding: chunked\r\n\r\n1000000000000000d\r\n" + BODY + b"\r\n0\r\n\r\n", R, ""),
    ("chunk longer than its size", POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\n" + BODY + b"\r\n0\r\n\r\n", R, ""),
    ("two blanks in the request line", b"POST  /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Length: 13\r\n\r\n" + BODY, R,
     "RFC 9112 3 has one blank; lenient readers cut the line in other places"),
    ("tab in the request line", b"POST\t/v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Length: 13\r\n\r\n" + BODY, R,
     "as above: the method is a token, and no token has a tab"),
    ("blank in the target", b"POST /v1/a b HTTP/1.1\r\nHost: h\r\nContent-Length: 13\r\n\r\n" + BODY, R, ""),
    ("fragment in the target", b"POST /v1/a#b HTTP/1.1\r\nHost: h\r\nContent-Length: 13\r\n\r\n" + BODY, R,
     "a fragment is not sent (RFC 9112 3.2); where it is cut off, hops see different paths"),
    ("bytes over 127 in the target", b"POST /v1/\xc3\xa9 HTTP/1.1\r\nHost: h\r\nContent-Length: 13\r\n\r\n" + BODY, R,
     "a URI is ASCII (RFC 3986)"),
    ("HTTP/0.9", b"GET /v1/models\r\n\r\n", R, "0.9 has no status: an answer would look like data"),
    ("HTTP/1.2", b"POST /v1/a HTTP/1.2\r\nHost: h\r\nContent-Length: 13\r\n\r\n" + BODY, R, "no such version"),
    ("HTTP/2.0", b"POST /v1/a HTTP/2.0\r\nHost: h\r\nContent-Length: 13\r\n\r\n" + BODY, R, "another protocol"),
    ("http/1.1", b"POST /v1/a http/1.1\r\nHost: h\r\nContent-Length: 13\r\n\r\n" + BODY, R, "the name is case-sensitive (RFC 9112 2.3)"),
    ("HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", R, "HTTP/2 is not spoken here"),
    ("CONNECT", b"CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n\r\n", R, "would make a tunnel"),
    ("TRACE", b"TRACE /v1/a HTTP/1.1\r\nHost: h\r\n\r\n", R, "would send credentials back"),
    ("upgrade", SIZED + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n" + BODY, OK,
     "relayed without Upgrade: RFC 9110 7.8 lets it be ignored"),
    ("chunked in HTTP/1.0", b"POST /v1/a HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKS, R,
     "RFC 9112 6.1: to be treated as faulty framing"),
    ("Expect: 100-continue", SIZED + b"Expect: 100-continue\r\n\r\n" + BODY, OK, ""),
    ("TLS hello", b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03\r\n\r\n", R, ""),
]

HEAD = b"HTTP/1.1 200 OK\r\n"
ANSWERS = [
    ("sized", HEAD + b"Content-Length: 5\r\n\r\nhello", "whole", ""),
    ("chunked", HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", "whole", ""),
    ("until close", HEAD + b"\r\nhello", "whole", ""),
    ("length and chunked", HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", "502",
     "two framings: whoever reads the other one takes the rest for another answer"),
    ("length twice, different", HEAD + b"Content-Length: 5\r\nContent-Length: 4\r\n\r\nhello", "502",
     "RFC 9112 6.3: must be answered with 502"),
    ("length twice, equal", HEAD + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", "502",
     "RFC 9112 6.3: a proxy must answer 502 unless it repairs them"),
    ("gzip, chunked", HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", "502", "we undo no coding but chunked"),
    ("folded field", HEAD + b"X: a\r\n b\r\nContent-Length: 5\r\n\r\nhello", "502",
     "RFC 9112 5.2: a proxy must answer 502 or unfold"),
    ("lone LF", b"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello", "502", "as for requests"),
    ("NUL in a value", HEAD + b"X: a\0b\r\nContent-Length: 5\r\n\r\nhello", "502", "a control byte is no field content"),
    ("shorter than announced", HEAD + b"Content-Length: 50\r\n\r\nhello", "cut", ""),
    ("cut chunks", HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "cut", ""),
    ("bad chunk", HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n", "cut",
     "the head was good and is on its way at once, so that a stream has no delay; then the connection is cut"),
    ("101 unasked", b"HTTP/1.1 101 Switching Protocols\r\n\r\n", "502", "nobody asked for it: the connection would become a tunnel"),
    ("103, then 200", b"HTTP/1.1 103 Early Hints\r\n\r\n" + HEAD + b"Content-Length: 5\r\n\r\nhello", "whole",
     "interim answers are skipped; nginx 1.22 takes the first for the last"),
    ("status of two digits", b"HTTP/1.1 20 OK\r\nContent-Length: 5\r\n\r\nhello", "502",
     "a status has three digits (RFC 9112 4)"),
    ("status 999", b"HTTP/1.1 999 No\r\nContent-Length: 5\r\n\r\nhello", "502", "not a status (RFC 9110 15): 100 to 599"),
    ("not HTTP", b"hello\r\n\r\n", "502", "what is no answer is no data either (HTTP/0.9)"),
    ("HTTP/2.0", b"HTTP/2.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", "502", "another protocol"),
    ("nothing", b"", "502", ""),
]


class EchoPod(threading.Thread):
    """Keeps what it got, answers what it was told to."""

    def __init__(self):
        super().__init__(daemon=True)
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.got, self.answer = [], None

    def run(self):
        while True:
            connection, _ = self.socket.accept()
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        connection.settimeout(5)
        data = b""
        try:
            while True:
                more = connection.recv(65536)
                if not more:
                    return
                data += more
                head, end, rest = data.partition(b"\r\n\r\n")
                if not end or not self.is_whole(head.lower(), rest):
                    continue
                if head.startswith(b"GET /metrics"):
                    connection.sendall(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n")
                    data = b""
                    continue
                self.got.append(data)
                data = b""
                if self.answer is None:
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                    continue
                connection.sendall(self.answer)
                connection.close()
                return
        except OSError:
            pass
        finally:
            connection.close()

    @staticmethod
    def is_whole(head, rest):
        if b"transfer-encoding" in head:
            return b"0" in rest and rest.endswith(b"\r\n\r\n")
        for line in head.split(b"\r\n"):
            if line.startswith(b"content-length:"):
                return len(rest) >= int(line.split(b":")[1])
        return True


def exchange(port, data):
    """All that comes back, and how it ended: closed, reset, or open."""
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as s:
        got = b""
        try:
            s.sendall(data)
            while True:
                more = s.recv(65536)
                if not more:
                    return got, "closed"
                got += more
        except socket.timeout:
            return got, "open"
        except OSError:
            return got, "reset"


def statuses(got):
    return [int(part[9:12]) for part in got.split(b"HTTP/1.")[1:] for part in [b"HTTP/1." + part]
            if part[9:12].isdigit() and not part[9:12].startswith(b"1")]


def see_request(pod, port, data):
    pod.got.clear()
    got, end = exchange(port, data)
    seen = statuses(got)
    if not pod.got:
        return R if seen or end != "open" else "waits for more"
    return OK if len(pod.got) == 1 and seen == [200] else f"relayed {len(pod.got)}, answered {seen or 'nothing'}"


def see_answer(pod, port):
    got, end = exchange(port, SIZED + b"\r\n" + BODY)
    head, _, body = got.partition(b"\r\n\r\n")
    seen = statuses(got)
    if seen[:1] in ([502], [500], [503]):
        return "502"
    if not seen:
        return "cut" if end == "reset" or not got else "passed on as it was"
    head = head.lower()
    if b"transfer-encoding: chunked" in head:
        return "whole" if body.endswith(b"0\r\n\r\n") else "cut"
    for line in head.split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return "whole" if len(body) >= int(line.split(b":")[1]) else "cut"
    return "cut" if end == "reset" else "whole"


def start(name, pod, where):
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    values = {"port": port, "pod": pod.port, "dir": where}
    config = os.path.join(where, name)
    env = {"PATH": "/usr/bin:/bin"}
    if name == "router":
        env.update(ROUTER_BIND="127.0.0.1", ROUTER_BACKENDS=f"m=127.0.0.1:{pod.port}", METRICS_SCRAPE_INTERVAL="60s")
        command = [ROUTER, "--port", str(port), "--metrics-port", "0", "--debug-port", "0"]
    else:
        with open(config, "w", encoding="ascii") as f:
            f.write((HAPROXY if name == "haproxy" else NGINX) % values)
        command = [peer(name), "-f", config, "-db"] if name == "haproxy" else [peer(name), "-c", config, "-e", "/dev/null"]
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return process, port
        except OSError:
            time.sleep(0.05)
    sys.exit(f"differential: {name} does not listen")


def judge(kind, cases, look, ports):
    failures, rows = [], []
    for name, data, want, why in cases:
        seen = {server: look(port, data) for server, port in ports.items()}
        others = {server: view for server, view in seen.items() if server != "router" and view != seen["router"]}
        if seen["router"] != want:
            failures.append(f"{kind} '{name}': the router {seen['router']}, not {want}")
        if others and not why:
            failures.append(f"{kind} '{name}': no reason for the difference to {others}; the router: {seen['router']}")
        if others:
            rows.append((name, seen["router"], seen["haproxy"], seen["nginx"], why))
    print(f"\n{kind}: {len(cases)} cases, {len(rows)} in which the three differ\n")
    print("| case | router | HAProxy | nginx | why ours is right |\n|---|---|---|---|---|")
    for row in rows:
        print("| " + " | ".join(row) + " |")
    return failures


def main():
    pod = EchoPod()
    pod.start()
    processes, ports = [], {}
    with tempfile.TemporaryDirectory() as where:
        try:
            for name in ("router", "haproxy", "nginx"):
                process, ports[name] = start(name, pod, where)
                processes.append(process)
            failures = judge("requests", REQUESTS, lambda port, data: see_request(pod, port, data), ports)

            def answer(port, data):
                pod.answer = data
                return see_answer(pod, port)
            failures += judge("answers", ANSWERS, answer, ports)
        finally:
            for process in processes:
                process.kill()
                process.wait()
    for text in failures:
        print(f"FAIL {text}")
    print(f"\n{len(REQUESTS) + len(ANSWERS)} cases, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
