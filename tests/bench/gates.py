#!/usr/bin/python3
"""Deterministic gates: instructions (callgrind) and system calls (strace) of the router per 1 KB request and per SSE chunk.

Each figure is the difference of two runs of different length divided by the difference in requests or chunks, so start and
end cancel out. Session boost, metrics and the access log to a file are on; reading token usage is a feature of its own
and off. Pods are scraped once a minute only: what a scrape costs belongs to a second, not to a request. Exits with 1
when a figure is above its guard.
"""
import os
import re
import shutil
import signal
import sys
import tempfile

import harness

CONNECTIONS = 64
REQUESTS = (1000, 4000)
CHUNKS = (10, 60)
# Chunks arrive in bursts of 16 of the 64 streams, as from an engine's step, slowly enough that each is relayed alone.
STREAM_INTERVAL_MS, STREAM_PHASES = 80, 4
# Else the machine was busy with something else and the run is repeated.
MOST_JOINED = 0.02

# Of each: the goal, and the guard above which the run fails. Guards are what was reached, with room for what differs
# between machines: how many events share one epoll_wait is a matter of load.
GATES = {("request", "instructions"): (11000, 10800), ("chunk", "instructions"): (1000, 1000),
         ("request", "system calls"): (4.2, 4.6), ("chunk", "system calls"): (2.3, 2.9)}


def callgrind_prefix(directory):
    return [harness.need("valgrind", "valgrind"), "--tool=callgrind", f"--callgrind-out-file={directory}/callgrind.out"]


def callgrind_counts(directory):
    with open(f"{directory}/callgrind.out") as f:
        return {"instructions": int(re.search(r"^(?:summary|totals): (\d+)", f.read(), re.M).group(1))}


def strace_prefix(directory):
    return [harness.need("strace", "strace"), "-f", "-c", "-U", "calls,name", "-o", f"{directory}/strace.out"]


def strace_counts(directory):
    with open(f"{directory}/strace.out") as f:
        rows = [line.split() for line in f]
    return {r[1]: int(r[0]) for r in rows if len(r) == 2 and r[0].isdigit() and r[1] != "total"}


TOOLS = {"instructions": (callgrind_prefix, callgrind_counts), "system calls": (strace_prefix, strace_counts)}


def run_once(what, tool, n, keep=None, tries=3, options=None):
    """Counts of one run of the router under a tool, and how many requests or chunks the client saw. keep: a file that
    receives callgrind's output."""
    prefix, counts = TOOLS[tool]
    stream = what == "chunk"
    with tempfile.TemporaryDirectory() as directory:
        setup = harness.Setup(directory, harness.free_ports(1), stream=stream,
                              options={"METRICS_SCRAPE_INTERVAL": "60s", "COUNT_TOKENS": "false", **(options or {})})
        with open(setup.log("body"), "wb") as f:
            f.write(harness.chat_body(1024, stream))
        arguments = ["--port", setup.port, "--body", setup.log("body"), "--connections", CONNECTIONS]
        arguments += ["--mode", "sse", "--requests", CONNECTIONS] if stream else ["--requests", n]
        with harness.start_sink(setup, STREAM_INTERVAL_MS, STREAM_PHASES, n if stream else 0), \
                harness.start_router(setup, prefix=prefix(directory), seconds=60) as router:
            seen = harness.load(arguments)
            os.kill(harness.descendants(router.child.pid)[-1], signal.SIGTERM)
            router.child.wait(30)
        if not seen or seen["errors"]:
            harness.fail(f"{what}: the run failed: {seen}\n{router.output()}")
        if keep:
            shutil.copy(f"{directory}/callgrind.out", keep)
        joined = 1 - seen["reads"] / seen["chunks"] if stream else 0
        if joined > MOST_JOINED and tries > 1:
            return run_once(what, tool, n, keep, tries - 1, options)
        if joined > MOST_JOINED:
            print(f"note: {joined:.0%} of the chunks were joined on their way; the machine is busy")
        return counts(directory), seen["chunks"] if stream else seen["requests"]


def measure(what, tool, options=None):
    short, long = CHUNKS if what == "chunk" else REQUESTS
    a, n_a = run_once(what, tool, short, options=options)
    b, n_b = run_once(what, tool, long, options=options)
    each = {name: (b[name] - a.get(name, 0)) / (n_b - n_a) for name in b}
    return sum(each.values()), {name: v for name, v in each.items() if abs(v) >= 0.005}


def main():
    harness.no_arguments(__doc__)
    failed = False
    for (what, tool), (goal, guard) in GATES.items():
        value, parts = measure(what, tool)
        verdict = "ABOVE THE GUARD" if value > guard else "reached" if value <= goal else "missed"
        failed |= value > guard
        names = ", ".join(f"{n} {v:.2f}" for n, v in sorted(parts.items(), key=lambda p: -p[1])) if len(parts) > 1 else ""
        figure = f"{value:,.0f}" if tool == "instructions" else f"{value:.2f}"
        print(f"{tool + ' per ' + ('1 KB request' if what == 'request' else 'SSE chunk'):32} {figure:>8}   goal "
              f"{goal:>6}   guard {guard:>6}   {verdict}" + (f"   ({names})" if names else ""), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
