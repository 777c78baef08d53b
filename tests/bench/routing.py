#!/usr/bin/python3
"""What each way of routing costs: instructions of the router per 1 KB request (callgrind), beside a plain route.

As in gates.py each figure is the difference of two runs of different length, so start and end cancel out; session boost,
metrics and the access log are on, pods are scraped once a minute. Every request belongs to a session and goes to one of
four pods.
"""
import os
import signal
import sys
import tempfile

import gates
import harness

REQUESTS = (1000, 3000)
SERVERS = """[model-server a]
pods = {0}, {1}
engine = none
[model-server b]
pods = {2}, {3}
engine = none
[model-server all]
pods = {0}, {1}, {2}, {3}
engine = none
"""
PLAIN = "[model-route bench]\ntarget = all\n"


def rules(match, n):
    return "[model-route bench]\ntarget = all\n" + "".join(
        f"[model-route bench/rule {i}]\nheader = content-type {match % i}\ntarget = a\n" for i in range(n))


# In groups, each beside its first. A session's own pod comes before any policy: to see what choosing costs, sessions are
# tied to no pod there.
STICKY = [
    ("a plain route", PLAIN),
    ("1 rule: a header's exact value", rules("exact:text/%d", 1)),
    ("10 rules: a header's exact value", rules("exact:text/%d", 10)),
    ("1 rule: a header by regex", rules("regex:^text/(plain|html|%d)$", 1)),
    ("2 weighted targets, known sessions", "[model-route bench]\ntarget = a:70, b:30\n"),
    ("session_sticky = header", PLAIN + "session_sticky = header:X-Session-ID\n"),
    ("session_sticky = header, 2 weighted targets",
     "[model-route bench]\ntarget = a:70, b:30\nsession_sticky = header:X-Session-ID\n"),
]
FREE = [("a plain route, SESSION_STICKY=off", PLAIN)] + [(line, PLAIN + line + "\n") for line in (
    "policy = least-request", "policy = round-robin", "policy = random", "policy = least-latency", "policy = kv-usage",
    "policy = prefix", "score = prefix:2, least-request:1", "max_waiting = 10")]


def run_once(route, sticky, n):
    with tempfile.TemporaryDirectory() as directory:
        setup = harness.Setup(directory, harness.free_ports(4))
        ini = setup.file("router.ini", SERVERS.format(*(f"127.0.0.1:{p}" for p in setup.pods)) + route)
        setup.options = {"ROUTER_BACKENDS": "", "ROUTER_CONFIG": ini, "METRICS_SCRAPE_INTERVAL": "60s",
                         "COUNT_TOKENS": "false", "SESSION_STICKY": sticky}
        with open(setup.log("body"), "wb") as f:
            f.write(harness.chat_body(1024))
        with harness.start_sink(setup), \
                harness.start_router(setup, prefix=gates.callgrind_prefix(directory), seconds=60) as router:
            seen = harness.load(["--port", setup.port, "--body", setup.log("body"), "--connections", gates.CONNECTIONS,
                                 "--requests", n])
            os.kill(harness.descendants(router.child.pid)[-1], signal.SIGTERM)
            router.child.wait(30)
        if not seen or seen["errors"]:
            harness.fail(f"the run failed: {seen}\n{router.output()}")
        return gates.callgrind_counts(directory)["instructions"], seen["requests"]


def measure(route, sticky):
    (a, n_a), (b, n_b) = (run_once(route, sticky, n) for n in REQUESTS)
    return (b - a) / (n_b - n_a)


def main():
    harness.no_arguments(__doc__)
    for group, sticky in ((STICKY, "prefer"), (FREE, "off")):
        plain = None
        for name, route in group:
            value = measure(route, sticky)
            plain = value if plain is None else plain
            print(f"{name:46} {value:8,.0f} {value - plain:+8,.0f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
