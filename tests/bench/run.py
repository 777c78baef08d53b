#!/usr/bin/python3
"""make bench: the router beside HAProxy, nginx and others, in interleaved rounds on one machine.

In each round every contender serves the same load from the same load generator, freshly started, alone on its core.
"router" has session boost, metrics and the access log on and does not read token usage, a feature of its own as no other proxy
has it (make bench-features says what that costs); "router-tokens" does, as is the default. "relay" looks at none of the bytes:
what it costs is the kernel's.
Ratios are taken within a round, then the median over the rounds. `--help` lists the options.
"""
import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import gates
import harness


class Case:
    """One load. goal: the largest ratio to the reference's CPU time."""

    def __init__(self, name, title, body_bytes=1024, mode="closed", connections=64, interval_ms=0, rate=0, goal=None,
                 contenders=("router", "haproxy", "nginx"), active=0, n_pods=1, options=None, syscalls=False, quick=True,
                 reference="haproxy", for_peers=False):
        self.name, self.title, self.body_bytes, self.mode, self.connections = name, title, body_bytes, mode, connections
        self.interval_ms, self.rate, self.goal, self.contenders = interval_ms, rate, goal, contenders
        self.active, self.n_pods, self.options, self.syscalls = active, n_pods, options or {}, syscalls
        self.quick = quick  # part of --quick
        self.reference = reference
        self.for_peers = for_peers  # only with --peer

    @property
    def stream(self):
        return self.mode == "sse"

    def arguments(self, setup):
        a = ["--port", setup.port, "--body", setup.log("body"), "--mode", self.mode, "--connections", self.connections]
        if self.rate:
            a += ["--rate", self.rate]
        return a + (["--active", self.active] if self.active else [])


DEPTH = 10000
DEPTH_OPTIONS = {"MAX_CONNECTIONS": str(DEPTH + 100), "QUEUE_MAX_REQUESTS": str(DEPTH + 100)}

CASES = [
    Case("1k", "1 KB POST, 64 connections", goal=0.75, syscalls=True,
         contenders=("router", "router-tokens", "haproxy", "haproxy-nolog", "nginx", "relay", "direct")),
    Case("1k-1000", "1 KB POST, 1,000 connections", connections=1000, goal=0.50,
         contenders=("router", "haproxy", "nginx", "relay")),
    Case("64k", "64 KB chat body, `model` last, 64 connections", body_bytes=65536, goal=0.60,
         contenders=("router", "haproxy", "haproxy-whole", "nginx", "relay")),
    Case("1m", "1 MB chat body, 16 connections", body_bytes=1 << 20, connections=16, goal=1.0, reference="haproxy-whole",
         contenders=("router", "haproxy", "haproxy-whole", "nginx")),
    Case("16m", "16 MB chat body, 4 connections", body_bytes=16 << 20, connections=4, goal=1.0, reference="haproxy-whole",
         contenders=("router", "haproxy", "haproxy-whole", "nginx")),
    Case("sse-1000", "SSE chunk of 200 B, 1,000 streams x 50 ms", mode="sse", connections=1000, interval_ms=50, goal=0.85,
         syscalls=True, contenders=("router", "router-tokens", "haproxy", "nginx", "relay")),
    Case("sse-9900", "SSE chunk of 200 B, 9,900 streams x 500 ms", mode="sse", connections=harness.MAX_STREAMS,
         interval_ms=500, goal=0.85, quick=False),
    Case("latency", "1 KB POST at 10,000 requests/s", mode="open", connections=256, rate=10000,
         contenders=("router", "haproxy", "nginx", "direct")),
    Case("latency-10", "1 KB POST at 10 requests/s, which slow routers reach as well", mode="open", connections=16, rate=10,
         for_peers=True, contenders=("router", "haproxy", "nginx", "direct")),
    # The same connections, the same 64 requests at the pods; behind them nothing or a queue.
    Case("depth-0", f"1 KB POST, {DEPTH + 64:,} connections, none queued", connections=DEPTH + 64, active=64, n_pods=4,
         contenders=("router", "haproxy"), options=dict(DEPTH_OPTIONS, SESSION_BOOST_INFLIGHT_PER_POD="16")),
    Case("depth-10000", f"1 KB POST, {DEPTH + 64:,} connections, {DEPTH:,} queued", connections=DEPTH + 64, n_pods=4,
         contenders=("router", "haproxy"), options=dict(DEPTH_OPTIONS, SESSION_BOOST_INFLIGHT_PER_POD="16")),
]


def start(name, setup, peers, peer_start_s):
    if name == "router":
        setup.options = {"COUNT_TOKENS": "false", **setup.options}
    if name in ("router", "router-tokens"):
        return harness.start_router(setup)
    if name.startswith("haproxy"):
        return harness.start_haproxy(setup, logs=name != "haproxy-nolog", whole_bodies=name == "haproxy-whole")
    if name == "nginx":
        return harness.start_nginx(setup)
    if name == "relay":
        return harness.start_relay(setup)
    return harness.start_peer(name, peers[name], setup, peer_start_s)


def system_calls(arguments, process):
    """Load of a fixed size while perf counts the system calls, else strace, which slows the proxy; (calls, figures)."""
    pids = harness.descendants(process.child.pid)
    out = process.log + ".calls"
    perf = ["perf", "stat", "-x", ",", "-e", "raw_syscalls:sys_enter", "-o", out, "-p", ",".join(map(str, pids)), "--"]
    seen = None
    if os.path.isdir("/sys/kernel/tracing/events/raw_syscalls") and shutil.which("perf"):
        seen = harness.load(arguments, perf)
        with open(out) as f:
            counts = [line.split(",")[0] for line in f if "raw_syscalls" in line and line[0].isdigit()]
        if seen and counts:
            return int(counts[0]), seen
    strace = harness.Process("strace", [harness.need("strace", "strace"), "-f", "-c", "-U", "calls,name", "-o", out,
                                        *[w for p in pids for w in ("-p", str(p))]], None, out + ".log")
    time.sleep(0.3)
    seen = harness.load(arguments)
    strace.child.send_signal(2)
    strace.child.wait(10)
    with open(out) as f:
        rows = [line.split() for line in f]
    return sum(int(r[0]) for r in rows if len(r) == 2 and r[0].isdigit() and r[1] != "total"), seen


# The two loads whose difference is counted.
CALLS_OF = {"request": (10000, 50000), "chunk": (20, 60)}


class Bench:
    def __init__(self, options):
        self.options = options
        self.peers = dict(p.split("=", 1) for p in options.peer)
        self.bodies = {}
        self.configs = {}

    def setup(self, case, directory):
        setup = harness.Setup(directory, harness.free_ports(case.n_pods), case.body_bytes, case.stream, case.options)
        key = (case.body_bytes, case.stream)
        if key not in self.bodies:
            self.bodies[key] = harness.chat_body(*key)
        with open(setup.log("body"), "wb") as f:
            f.write(self.bodies[key])
        return setup

    def times(self, case):
        warmup, seconds = (0.2, 0.6) if self.options.quick else (0.7, 2.0)
        if case.connections > 5000:
            warmup, seconds = warmup + 0.7, seconds + 0.5
            if case.stream:  # one stall of the machine is 1 % of two seconds, and its p99 would be that
                seconds *= 2
        if case.rate and case.rate < 100:
            seconds *= 5
        return ["--warmup", warmup, "--seconds", seconds]

    def once(self, case, name):
        """Figures of one contender in one round, or None."""
        with tempfile.TemporaryDirectory() as directory:
            setup = self.setup(case, directory)
            sink = harness.start_sink(setup, case.interval_ms or 50)
            with sink:
                if name == "direct":
                    setup.port = setup.pods[0]
                    seen = harness.load(case.arguments(setup) + self.times(case) + ["--watch", f"sink={sink.child.pid}"])
                    return self.figures(case, seen)
                with start(name, setup, self.peers, self.options.peer_start) as proxy:
                    watched = ["--watch", f"sink={sink.child.pid}"]
                    for pid in harness.descendants(proxy.child.pid):
                        watched += ["--watch", f"proxy={pid}"]
                    seen = harness.load(case.arguments(setup) + self.times(case) + watched)
                    self.keep_config(name, setup)
                    return self.figures(case, seen)

    def keep_config(self, name, setup):
        file = {"haproxy": "haproxy.cfg", "nginx": "nginx.conf"}.get(name)
        if file and name not in self.configs:
            with open(setup.log(file)) as f:
                self.configs[name] = f.read()
        elif name == "router" and name not in self.configs:
            command, environment = harness.router_command(setup)
            self.configs[name] = "\n".join(f"{k}={v}" for k, v in environment.items()) + "\n" + " ".join(command) + "\n"

    def figures(self, case, seen):
        if not seen or not (seen["chunks"] if case.stream else seen["requests"]):
            return None
        units = seen["chunks"] if case.stream else seen["requests"]
        cpu = {w: sum(p["cpu_ns"] for p in seen["watched"] if p["name"] == w) / 1000 / units for w in ("proxy", "sink")}
        rss = sum(p["rss_kb"] - p["rss_start_kb"] for p in seen["watched"] if p["name"] == "proxy")
        timed = seen["delay_us" if case.stream else "latency_us"]
        return {"per_s": units / seen["seconds"], "cpu_us": cpu["proxy"],
                "peer_us": cpu["sink"] + seen["load_cpu_ns"] / 1000 / units, "segments": seen["segments"] / units,
                "p50_us": timed["p50"], "p99_us": timed["p99"], "errors": seen["errors"],
                "reads": seen["reads"] / units, "busy": seen["cores_busy"][harness.PROXY_CORE],
                "rss_kb": rss / case.connections, "rss_mb": sum(
                    p["rss_kb"] for p in seen["watched"] if p["name"] == "proxy") / 1024}

    def calls_in(self, case, name, n):
        """(system calls, requests or chunks) of n requests, or of all streams with n chunks each."""
        with tempfile.TemporaryDirectory() as directory:
            setup = self.setup(case, directory)
            with harness.start_sink(setup, case.interval_ms or 50, chunks=n if case.stream else 0), \
                    start(name, setup, self.peers, self.options.peer_start) as proxy:
                calls, seen = system_calls(
                    case.arguments(setup) + ["--requests", case.connections if case.stream else n], proxy)
            return (calls, seen["chunks"] if case.stream else seen["requests"]) if seen else None

    def count_calls(self, case, name):
        """For one more request or chunk: what opening connections and streams takes is not theirs."""
        short, long = (self.calls_in(case, name, n) for n in CALLS_OF["chunk" if case.stream else "request"])
        return (long[0] - short[0]) / (long[1] - short[1]) if short and long else None

    def contenders(self, case):
        """The case's, as far as they are wanted: a quick run has one HAProxy, no relay, and the direct way only for latency."""
        names = [n for n in case.contenders if not self.options.only or n in self.options.only.split(",")]
        if self.options.quick:
            names = [n for n in names if n == case.reference or not n.startswith(("haproxy", "relay")) and (n != "direct" or case.rate)]
        return names + (list(self.peers) if len(case.contenders) > 1 else [])

    def run(self, cases):
        results = {c.name: {n: [] for n in self.contenders(c)} for c in cases}
        for number in range(self.options.rounds):
            for case in cases:
                names = self.contenders(case)
                # Nobody always runs first.
                for name in names[number % len(names):] + names[:number % len(names)]:
                    print(f"  round {number + 1}/{self.options.rounds}: {case.name}, {name}   ", end="\r", file=sys.stderr)
                    results[case.name][name].append(self.once(case, name))
        calls = {c.name: {n: self.count_calls(c, n) for n in self.contenders(c) if n in c.contenders and n != "direct"}
                 for c in cases if c.syscalls}
        return results, calls


# ---- the report ----


def median(values):
    values = [v for v in values if v is not None]
    return statistics.median(values) if values else None


def column(rounds, key):
    return [r[key] if r else None for r in rounds]


def ratios(rounds, reference, key="cpu_us"):
    return [a[key] / b[key] for a, b in zip(rounds, reference) if a and b and b[key]]


def added(rounds, direct, key):
    """Added latency: median over the rounds of the difference to the direct way in that round."""
    return median([a[key] - b[key] for a, b in zip(rounds, direct) if a and b])


def spread(values):
    values = [v for v in values if v is not None]
    form = "{:.0f}-{:.0f}" if values and max(values) >= 1000 else "{:.2f}-{:.2f}"
    return form.format(min(values), max(values)) if values else ""


def show(value, form="{:.2f}"):
    return "-" if value is None else form.format(value)


def report_case(case, by_name, calls):
    unit = "chunk" if case.stream else "request"
    print(f"\n{case.title}")
    print(f"  {'':16}{'CPU us/' + unit:>16}{'spread':>15}{'ratio':>7}{'spread':>12}{unit + 's/s':>12}{'p50 us':>11}{'p99 us':>11}"
          f"{'peers us':>10}{'segments':>10}{'core 0':>8}{'KB/conn':>9}{'RSS MB':>8}{'errors':>8}{'syscalls':>10}")
    reference = by_name.get(case.reference, [])
    for name, rounds in by_name.items():
        r = ratios(rounds, reference)
        cpu = column(rounds, "cpu_us")
        print(f"  {name:16}{show(median(cpu)):>16}{spread(cpu):>15}{show(median(r)):>7}{spread(r):>12}"
              f"{show(median(column(rounds, 'per_s')), '{:,.0f}'):>12}{show(median(column(rounds, 'p50_us')), '{:,.0f}'):>11}"
              f"{show(median(column(rounds, 'p99_us')), '{:,.0f}'):>11}{show(median(column(rounds, 'peer_us'))):>10}"
              f"{show(median(column(rounds, 'segments'))):>10}{show(median(column(rounds, 'busy')), '{:.0%}'):>8}"
              f"{show(median(column(rounds, 'rss_kb'))):>9}{show(median(column(rounds, 'rss_mb')), '{:.1f}'):>8}"
              f"{sum(e or 0 for e in column(rounds, 'errors')):>8}{show(calls.get(case.name, {}).get(name)):>10}")


# As much as HAProxy's, within what two runs differ: work that moves to the peers shows here.
AS_HAPROXY = 1.05
QUEUE_GOALS_NS = {("push+admit, each its own session", 1000): 150, ("push+admit, each its own session", 100000): 500,
                  ("push+admit, each its own session", 1000000): 1200, ("completion of a tracked session", 4096): 60,
                  ("completion of a tracked session", 1000000): 250}


def report_added(case, by_name):
    if "direct" not in by_name or not case.rate:
        return
    print(f"  {'added over direct':48}{'p50 us':>11}{'p99 us':>11}")
    for name, rounds in by_name.items():
        if name != "direct":
            print(f"  {name:48}" + "".join(f"{show(added(rounds, by_name['direct'], key), '{:,.0f}'):>11}"
                                           for key in ("p50_us", "p99_us")))


class Goals:
    """Figures by what was measured: results and calls by case, instructions by unit, queue_ns by (case, depth)."""

    def __init__(self, results, calls, instructions, queue_ns):
        self.results, self.calls, self.instructions, self.queue_ns = results, calls, instructions, queue_ns

    def line(self, title, value, limit, form="{:.2f}"):
        if value is None:
            return
        if limit is None:
            print(f"  {title:78}{form.format(value):>10}{'-':>10}")
            return
        verdict = "reached" if value <= limit else "MISSED"
        print(f"  {title:78}{form.format(value):>10}{form.format(limit):>10}{value / limit:>8.2f}  {verdict}")

    def median(self, case, name, key):
        return median(column(self.results.get(case, {}).get(name, []), key))

    def ratio(self, case, key="cpu_us", name="router"):
        by_name = self.results.get(case.name, {})
        return median(ratios(by_name.get(name, []), by_name.get(case.reference, []), key))

    def added(self, name, key):
        by_name = self.results.get("latency", {})
        return added(by_name.get(name, []), by_name.get("direct", []), key)

    def print(self, cases):
        print(f"\n{'Goals':80}{'figure':>10}{'at most':>10}{'ratio':>8}")
        for case in cases:
            if case.goal:
                whole = " with whole bodies" if case.reference == "haproxy-whole" else ""
                self.line(f"CPU against HAProxy{whole}: {case.title}", self.ratio(case), case.goal)
                self.line("    the bare relay's", self.ratio(case, name="relay"), None)
            if case.stream:
                self.line("    p50 of the added delay in us, against HAProxy's", self.median(case.name, "router", "p50_us"),
                          self.median(case.name, "haproxy", "p50_us"), "{:.0f}")
                self.line("    p99 of the added delay in us, against HAProxy's", self.median(case.name, "router", "p99_us"),
                          self.median(case.name, "haproxy", "p99_us"), "{:.0f}")
                self.line("    segments per chunk, against HAProxy", self.ratio(case, "segments"), AS_HAPROXY)
                self.line("    CPU of load and pods per chunk, against HAProxy", self.ratio(case, "peer_us"), AS_HAPROXY)
                # With 1,000 streams a good part of it is what any number of them needs.
                self.line("    RSS per stream in KB", self.median(case.name, "router", "rss_kb"),
                          1.5 if case.connections > 5000 else None)
        for key in ("p50_us", "p99_us"):
            self.line(f"added latency at 10,000 requests/s, {key[:3]} in us, against HAProxy's", self.added("router", key),
                      self.added("haproxy", key), "{:.1f}")
        for case, unit, limit in (("1k", "1 KB request", 4.2), ("sse-1000", "chunk, 1,000 streams", 2.3)):
            self.line(f"system calls per {unit}", self.calls.get(case, {}).get("router"), limit)
        for unit, value in self.instructions.items():
            self.line(f"instructions per {unit} (make bench-gates)", value, gates.GATES[unit, "instructions"][0], "{:,.0f}")
        for name, limit in (("router", 1.05), ("haproxy", None)):
            deep, flat = (self.results.get(c, {}).get(name, []) for c in ("depth-10000", "depth-0"))
            self.line(f"CPU per request, 10,000 queued against none, {name}", median(ratios(deep, flat)), limit)
        for (case, depth), limit in QUEUE_GOALS_NS.items():
            self.line(f"ns per {case}, {depth:,}", self.queue_ns.get((case, depth)), limit, "{:,.0f}")


def first_line(command):
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return (done.stdout.splitlines() or ["?"])[0].strip()
    except OSError as e:
        return str(e)


def report_machine(options):
    with open("/proc/cpuinfo") as f:
        cpu = next((line.split(":")[1].strip() for line in f if line.startswith("model name")), platform.machine())
    print(f"machine: {os.cpu_count()} x {cpu}, Linux {platform.release()}, load average {os.getloadavg()[0]:.2f} at the start")
    with open("/proc/sys/net/ipv4/tcp_congestion_control") as f:
        print(f"TCP congestion control: {f.read().strip()}; proxy on core {harness.PROXY_CORE}, load and sink on core "
              f"{harness.LOAD_CORE}")
    print(f"router: {first_line([harness.ROUTER, '--version'])}")
    print(f"{first_line([harness.peer('haproxy'), '-v'])}; {first_line([harness.peer('nginx'), '-v'])}")
    print(f"{options.rounds} interleaved rounds{' (quick: short rounds, rough figures)' if options.quick else ''}; "
          "medians; ratio: CPU against HAProxy in the same round, from 1 MB on against HAProxy with buffers for whole bodies")


WRK_POST = """wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
local f = io.open("{body}", "rb")
wrk.body = f:read("*a")
f:close()
"""


def report_cross_check():
    """The same load by wrk, a generator that is not ours."""
    wrk = harness.need("wrk", "wrk")
    with tempfile.TemporaryDirectory() as directory:
        setup = harness.Setup(directory, harness.free_ports(1))
        with open(setup.log("body"), "wb") as f:
            f.write(harness.chat_body(1024))
        script = setup.file("post.lua", WRK_POST.replace("{body}", setup.log("body")))
        with harness.start_sink(setup), harness.start_router(setup):
            ours = harness.load(["--port", setup.port, "--body", setup.log("body"), "--warmup", 0.5, "--seconds", 2])
            done = subprocess.run([wrk, "-t1", "-c64", "-d2s", "-s", script,
                                   f"http://127.0.0.1:{setup.port}/v1/chat/completions"], stdout=subprocess.PIPE, text=True,
                                  preexec_fn=lambda: os.sched_setaffinity(0, {harness.LOAD_CORE}))
    theirs = re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)
    bad = re.search(r"Non-2xx.*", done.stdout)
    print(f"\nCross-check, 1 KB POST through the router, 64 connections: load {ours['requests'] / ours['seconds']:,.0f} "
          f"requests/s, wrk {float(theirs[1]) if theirs else 0:,.0f}" + (f" ({bad[0]})" if bad else ""), flush=True)


def measure_queue(options):
    """Medians of bench_queue by (case, depth); a quick run has those with a goal alone."""
    seen = {}
    for _ in range(1 if options.quick else options.rounds):
        command = [os.path.join(harness.BENCH, "bench_queue"), *(["goals"] if options.quick else [])]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True,
                              preexec_fn=lambda: os.sched_setaffinity(0, {harness.PROXY_CORE}))
        for case, depth, ns in re.findall(r"^(.+?) +(\d+) +(\d+) ns$", done.stdout, re.M):
            seen.setdefault((case, int(depth)), []).append(int(ns))
    return {key: statistics.median(values) for key, values in seen.items()}


def report_queue(queue_ns):
    print("\nQueue and tracker alone, ns per operation")
    for (case, depth), ns in queue_ns.items():
        print(f"  {case:46}{depth:>10,}{ns:>8.0f}")


def read_arguments():
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("--quick", action="store_true", help="3 short rounds")
    a.add_argument("--rounds", type=harness.count, help="interleaved rounds; default 11, quick 3")
    a.add_argument("--case", action="append", default=[], help="only these cases: " + ", ".join(c.name for c in CASES))
    a.add_argument("--only", help="only these contenders, separated by commas")
    a.add_argument("--peer", action="append", default=[], metavar="'NAME=COMMAND {port} {backend}'",
                   help="another router; {port}: where it listens, {backend}: http://127.0.0.1:PORT of the pod; "
                        "also {backend_port} and {model}")
    a.add_argument("--peer-start", type=float, default=600, metavar="SECONDS",
                   help="how long a peer may take until it answers; default 600")
    a.add_argument("--json", help="file for all figures of all rounds")
    a.add_argument("--no-queue", action="store_true", help="without bench_queue and the count of instructions")
    options = a.parse_args()
    unknown = set(options.case) - {c.name for c in CASES}
    if unknown:
        a.error(f"no such case: {', '.join(sorted(unknown))}; there are: {', '.join(c.name for c in CASES)}")
    for peer in options.peer:
        if not all(peer.partition("=")):
            a.error(f"--peer {peer}: expected NAME=COMMAND")
    known = {n for c in CASES for n in c.contenders} | {p.split("=", 1)[0] for p in options.peer}
    unknown = set(options.only.split(",")) - known if options.only else set()
    if unknown:
        a.error(f"no such contender: {', '.join(sorted(unknown))}; there are: {', '.join(sorted(known))}")
    options.rounds = options.rounds or (3 if options.quick else 11)
    return options


def main():
    options = read_arguments()
    if len(os.sched_getaffinity(0)) < 2:
        harness.fail("needs two cores: one for the proxy, one for load and pods")
    cases = [c for c in CASES if c.name in options.case or not options.case and (c.quick or not options.quick)
             and (options.peer or not c.for_peers)]
    report_machine(options)
    sys.stdout.flush()
    bench = Bench(options)
    results, calls = bench.run(cases)
    queue_ns = {} if options.no_queue else measure_queue(options)
    instructions = {} if options.no_queue else {u: gates.measure(u, "instructions")[0] for u in ("request", "chunk")}
    for case in cases:
        report_case(case, results[case.name], calls)
        report_added(case, results[case.name])
    if queue_ns:
        report_queue(queue_ns)
    Goals(results, calls, instructions, queue_ns).print(cases)
    if not options.quick and not options.case:
        report_cross_check()
    for name, text in bench.configs.items():
        print(f"\n---- {name} ----\n{text.rstrip()}")
    if options.json:
        with open(options.json, "w") as f:
            json.dump({"results": results, "system_calls": calls}, f, indent=1)


if __name__ == "__main__":
    main()
