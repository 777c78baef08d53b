#!/usr/bin/env python3
"""Many sessions that come once: N of them (a million), one in a hundred with an id of 10 KB, among 10,000 random names of models.
Memory and series of metrics have to stay what they were after the first tenth.

Usage: sessions.py SINK_BINARY [--sessions 1000000]; ROUTER_BIN names the router. Exit status 1: something grew."""

import argparse
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request

from streams import ROUTER, memory_kib, port_of, start

CONNECTIONS, BATCH, MODEL_NAMES, SLACK_KIB = 8, 50, 10000, 6 * 1024
STATUS = re.compile(rb"HTTP/1\.1 (\d\d\d) ")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def request(session, model=b"m"):
    body = b'{"model":"%s","messages":[{"role":"user","content":"hi"}]}' % model
    return b"POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\nX-Session-ID: %s\r\nContent-Length: %d\r\n\r\n%s" % (session, len(body), body)


def session_id(i):
    return b"s-%d-%s" % (i, b"x" * 10240 if i % 100 == 99 else b"")


def exchange(conns, requests):
    """Sends them over all connections; returns the number of answers by status."""
    statuses = {}
    shares = [requests[k::len(conns)] for k in range(len(conns))]
    for c, share in zip(conns, shares):
        c.sendall(b"".join(share))
    for c, share in zip(conns, shares):
        left, tail = len(share), b""
        while left:
            data = c.recv(1 << 20)
            if not data:
                sys.exit("the router closed a connection")
            data, end = tail + data, 0
            for found in STATUS.finditer(data):
                statuses[found.group(1)] = statuses.get(found.group(1), 0) + 1
                left, end = left - 1, found.end()
            tail = data[max(end, len(data) - 12):]  # a status line that is not whole yet
    return statuses


def series(port):
    with urllib.request.urlopen("http://127.0.0.1:%d/metrics" % port) as r:
        return sum(not line.startswith(b"#") for line in r)


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("sink")
    args.add_argument("--sessions", type=int, default=1000000)
    args = args.parse_args()
    pod = free_port()
    sink = subprocess.Popen([args.sink, "--port", str(pod), "--model", "m"], stdin=subprocess.DEVNULL)
    router, lines = start([ROUTER, "--port", "0", "--metrics-port", "0", "--debug-port", "0"], stream="stderr", env={
        "ROUTER_BIND": "127.0.0.1", "ROUTER_BACKENDS": "m=127.0.0.1:%d" % pod, "ENABLE_SESSION_BOOST": "true", "LOG_LEVEL": "warn"})
    try:
        port, metrics = (port_of(router, lines, "listening.*%s" % what) for what in ("inference", "metrics"))
        conns = [socket.create_connection(("127.0.0.1", port)) for _ in range(CONNECTIONS)]
        begun, answers, seen = time.monotonic(), {}, []
        print("%10s %12s %8s %9s" % ("sessions", "memory KiB", "series", "seconds"))
        step = max(1, args.sessions // 10)
        for first in range(0, args.sessions, CONNECTIONS * BATCH):
            n = min(CONNECTIONS * BATCH, args.sessions - first)
            requests = [request(session_id(i)) for i in range(first, first + n)]
            requests += [request(b"s", b"model-%d-%s" % (i, os.urandom(8).hex().encode()))
                         for i in range(first * MODEL_NAMES // args.sessions, (first + n) * MODEL_NAMES // args.sessions)]
            for status, count in exchange(conns, requests).items():
                answers[status] = answers.get(status, 0) + count
            if (first + n) // step > first // step:
                seen.append((memory_kib(router.pid), series(metrics)))
                print("%10d %12d %8d %9.1f" % (first + n, *seen[-1], time.monotonic() - begun), flush=True)
        print("answers:", {k.decode(): v for k, v in sorted(answers.items())})
        bad = [s for s in seen if s[0] > seen[0][0] + SLACK_KIB or s[1] > seen[0][1]]
        wrong = answers.get(b"200", 0) != args.sessions or answers.get(b"404", 0) != MODEL_NAMES
        print("flat" if not bad and not wrong else "NOT FLAT, OR WRONG ANSWERS")
        return 1 if bad or wrong else 0
    finally:
        for p in (router, sink):
            p.kill()
            p.wait()


if __name__ == "__main__":
    sys.exit(main())
