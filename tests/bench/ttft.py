#!/usr/bin/env python3
"""bench-ttft: what the order of the queue does to first tokens, with real programs and with queue_sim.

For each regime of workload.h and each policy: simulated pods, the router and the clients (turns) are started on 127.0.0.1,
the sessions are played for the regime's time, and the same sessions are played in queue_sim. All durations, those of the
router's options too, are divided by the regime's scale; the tables are in model time. Seeds are fixed: repetition n has
seed n, and queue_sim, which takes no time, plays ten times as many. A policy whose real runs differ much is repeated
more often. Rows go to BUILD/bench/ttft.json, tables to BUILD/bench/ttft.md, plots (plots.py) beside them.

    ttft.py [--quick] [--repetitions N] [--jobs N] [--regimes A,B] [--policies "A;B"] [--no-real] [--no-plots]
"""
import argparse
import concurrent.futures
import datetime
import itertools
import json
import math
import os
import re
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import harness

QUEUE_SIM = os.path.join(harness.BENCH, "queue_sim")
TURNS = os.path.join(harness.BENCH, "turns")
VLLM_SIM = os.path.join(harness.BUILD, "vllm-sim")

# What workload.h says of the pods; the rest of a regime is known to turns and queue_sim alone.
PODS, SLOTS, KV_BLOCKS, PREFILL_TOKENS_PER_S, CHUNK_S, CHUNK_BYTES = 4, 16, 25000, 6000, 0.4, 80
SCALES = {"long-above": 20, "long-below": 20, "short-above": 20, "short-below": 20, "agents": 5}
WARMUP_S = {"agents": 30}
REGIMES = {
    "long-above": "200 sessions, contexts 4k to 12k tokens, above saturation",
    "long-below": "50 sessions, contexts 4k to 12k tokens, below saturation",
    "short-above": "250 sessions, contexts 0.2k to 3k tokens, above saturation",
    "short-below": "80 sessions, contexts 0.2k to 3k tokens, below saturation",
    "agents": "40 agents without think time and with 3 parallel calls, 40 chats, contexts 2k to 8k tokens",
}


class Policy:
    """A way to run both programs. Seconds are model time."""

    def __init__(self, name, kind, wait=None, grace=0, bound=16, timeout=0, only=None, quick=False):
        self.name, self.kind, self.wait, self.grace = name, kind, wait, grace
        self.bound, self.timeout, self.only, self.quick = bound, timeout, only, quick

    def sim_arguments(self):
        arguments = ["--policy", self.kind, "--grace", self.grace, "--max-overtakes", self.bound,
                     "--timeout", self.timeout]
        if self.wait is not None:
            arguments += ["--sticky-wait", self.wait]
        return [str(a) for a in arguments]

    def router_options(self, scale):
        def scaled(seconds):
            return f"{seconds / scale * 1e6:.0f}us"

        options = {
            "enable_session_boost": "true",
            "session_boost_timeout": scaled(self.timeout) if self.timeout else "0",
            "session_boost_grace_period": scaled(self.grace),
            "session_boost_max_overtakes": self.bound,
            "session_boost_inflight_per_pod": SLOTS,
            "session_sticky": "off" if self.kind == "off" else "prefer",
            "session_sticky_wait": scaled(self.wait or 0),
            "metrics_scrape_interval": scaled(1),
        }
        if self.kind == "noqueue":
            options["session_boost_inflight_per_pod"] = 100000
        return options


ABOVE = ("long-above",)
# What the router does when it is told nothing else, and what its lanes are measured against.
DEFAULT, NO_LANES = "wait 10s, bound 32", "boost, sticky off"
POLICIES = [
    Policy("direct round robin", "direct", quick=True),
    Policy("no queue, sticky", "noqueue"),
    Policy("FIFO", "fifo", quick=True),
    Policy(NO_LANES, "off", quick=True),
    Policy("prefer, wait 0", "prefer", 0),
    Policy("prefer, wait 1s", "prefer", 1),
    Policy("prefer, wait 2s", "prefer", 2),
    Policy("prefer, wait 5s", "prefer", 5),
    Policy("prefer, wait 10s", "prefer", 10, quick=True),
    Policy("wait 10s, bound 4", "prefer", 10, bound=4, only=("long-above", "agents")),
    Policy(DEFAULT, "prefer", 10, bound=32, quick=True),
    Policy("wait 10s, bound 64", "prefer", 10, bound=64, only=("long-above", "agents")),
    Policy("wait 10s, no bound", "prefer", 10, bound=1000000, only=("long-above", "agents")),
    Policy("sticky off, grace 20ms", "off", grace=0.02, only=("agents",)),
    Policy("wait 10s, grace 20ms", "prefer", 10, grace=0.02, only=("agents",)),
    Policy("FIFO, limit 30s", "fifo", timeout=30, only=ABOVE),
    Policy("sticky off, limit 30s", "off", timeout=30, only=ABOVE),
    Policy("wait 10s, limit 30s", "prefer", 10, timeout=30, only=ABOVE),
]


# ---- the simulated run ----

SIM_TIMES = 10  # as many repetitions as the real run has: of two medians that are compared one at least is without noise


def sim_seeds(repetitions):
    return range(1, SIM_TIMES * repetitions + 1)


def run_sim(regime, policy, seed, more=()):
    out = subprocess.run([QUEUE_SIM, "--regime", regime, "--seed", str(seed), *policy.sim_arguments(), *more],
                         stdout=subprocess.PIPE, text=True, check=True).stdout
    return json.loads(out)


# ---- how often ----

# A median of turns/s is worth a comparison when its standard error is this share of it at most; so often a real run is
# repeated for that.
SETTLED, MOST_REPETITIONS = 0.04, 12


def is_settled(found):
    """A median's standard error is 1.25 times the mean's."""
    return 1.25 * statistics.stdev(found) / math.sqrt(len(found)) <= SETTLED * statistics.median(found)


def unsettled(rows):
    """One more job for each policy that needs it."""
    found = {}
    for row in rows:
        if row["run"] == "real":
            found.setdefault((row["regime"], row["policy"]), []).append(row["turns_per_s"])
    policies = {p.name: p for p in POLICIES}
    return [("real", regime, policies[name], len(turns) + 1) for (regime, name), turns in found.items()
            if 1 < len(turns) < MOST_REPETITIONS and not is_settled(turns)]


# ---- the real run ----

# Timers of the clients that fire later than this (p99) mean that other programs took the machine's time: the run is
# repeated.
LATE_S, ATTEMPTS = 0.005, 5
running = []
ports_lock = threading.Lock()
port_numbers = itertools.count(os.getpid() * 16)


def start(command, **more):
    """A process that goes before others where we may ask for that: a simulated pod must keep its times."""
    process = subprocess.Popen(command, **more)
    running.append(process)
    try:
        os.sched_setscheduler(process.pid, os.SCHED_RR, os.sched_param(1))
    except PermissionError:
        pass
    return process


def is_free(port):
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_ports(n):
    """Below the range that connections take their ports from, so that none of the clients' is in the way."""
    found = []
    with ports_lock:
        while len(found) < n:
            port = 20000 + next(port_numbers) % 10000
            if is_free(port):
                found.append(port)
    return found


def wait_for(port, path):
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=2) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.02)
    harness.fail(f"nothing answers at port {port}{path}")


def start_pods(ports, scale):
    return [start([VLLM_SIM, "--port", str(port), "--model", "m", "--max-num-seqs", str(SLOTS),
                   "--kv-blocks", str(KV_BLOCKS), "--inter-token-ms", str(CHUNK_S * 1000 / scale),
                   "--token-bytes", str(CHUNK_BYTES), "--keep-alive-timeout", "0",
                   "--prefill-tokens-per-second", str(PREFILL_TOKENS_PER_S * scale)],
                  stdout=subprocess.DEVNULL) for port in ports]


def start_router(where, policy, scale, pod_ports, ports):
    lines = ["[router]", "bind = 127.0.0.1", f"port = {ports[0]}", f"metrics_port = {ports[1]}",
             f"debug_port = {ports[2]}", "log_level = error", f"access_log_output = {where}/access.log"]
    lines += [f"{key} = {value}" for key, value in policy.router_options(scale).items()]
    # With neither strategy on the router knows no sessions, so "no queue" is boost with a limit that is never
    # reached, and with pods whose own queues are not heeded.
    lines += ["[model-server m]", "engine = " + ("none" if policy.kind == "noqueue" else "vllm"),
              "pods = " + ", ".join(f"127.0.0.1:{p}" for p in pod_ports), "[model-route m]", "target = m"]
    with open(f"{where}/router.ini", "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")
    process = start([harness.ROUTER, "--config", f"{where}/router.ini"])
    wait_for(ports[0], "/readyz")
    return process


def queue_waits(path, from_wall, scale):
    """Of the requests that were answered in full and arrived in the window, in model seconds, sorted."""
    waits = []
    line_of = re.compile(r"^\[(\S+)Z\] .* 200 .* queue_ms=(\d+) ")
    with open(path, encoding="utf-8") as f:
        for line in f:
            match = line_of.match(line)
            if match and " closed_by=" not in line:
                wall = datetime.datetime.fromisoformat(match[1] + "+00:00").timestamp()
                if wall >= from_wall:
                    waits.append(int(match[2]) / 1000 * scale)
    return sorted(waits)


def quantile(values, q):
    return values[int(q * (len(values) - 1) + 0.5)] if values else 0


def forced_share(port):
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5).read().decode()
    name = "kthena_router_session_boost_queue_"
    forced = re.search(rf"^{name}forced_dequeue_total\S* (\S+)", text, re.M)
    total = re.search(rf"^{name}dequeue_total\S* (\S+)", text, re.M)
    return float(forced[1]) / max(float(total[1]), 1) if forced and total else 0


def run_clients(regime, policy, seed, ports):
    command = [TURNS, "--ports", ",".join(map(str, ports)), "--regime", regime, "--model", "m", "--seed", str(seed),
               "--scale", str(SCALES[regime])]
    if policy.kind in ("fifo", "direct"):
        command.append("--no-session")
    clients = start(command, stdout=subprocess.PIPE, text=True)
    out = clients.communicate()[0]
    if clients.returncode != 0:
        harness.fail(f"turns ended with status {clients.returncode}")
    return json.loads(out)


def try_real(regime, policy, seed):
    scale, ports = SCALES[regime], free_ports(PODS + 3)
    with tempfile.TemporaryDirectory() as where:
        processes = start_pods(ports[:PODS], scale)
        try:
            for port in ports[:PODS]:
                wait_for(port, "/health")
            if policy.kind == "direct":
                return run_clients(regime, policy, seed, ports[:PODS])
            processes.append(start_router(where, policy, scale, ports[:PODS], ports[PODS:]))
            from_wall = time.time() + WARMUP_S.get(regime, 60) / scale
            row = run_clients(regime, policy, seed, ports[PODS:PODS + 1])
            row["forced_share"] = forced_share(ports[PODS + 1])
            waits = queue_waits(f"{where}/access.log", from_wall, scale)
            row["queue"] = {"n": len(waits), "p50": quantile(waits, 0.5), "p90": quantile(waits, 0.9),
                            "p99": quantile(waits, 0.99)}
            return row
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait()


def run_real(regime, policy, seed):
    for attempt in range(1, ATTEMPTS + 1):
        row = try_real(regime, policy, seed)
        row["attempt"] = attempt
        if row["late"]["p99"] < LATE_S:
            break
        print(f"{regime} {policy.name}: timers {row['late']['p99'] * 1000:.0f} ms late, other programs took the machine's "
              f"time (attempt {attempt})", file=sys.stderr)
    return row


# ---- tables ----

COLUMNS = [
    ("turns/s", "turns_per_s", None, 2), ("warm", "warm", None, 2),
    ("first p50", "first", "p50", 2), ("p90", "first", "p90", 2), ("p99", "first", "p99", 2),
    ("follow-up p50", "follow", "p50", 2), ("p90", "follow", "p90", 2), ("p99", "follow", "p99", 2),
    ("queue p50", "queue", "p50", 2), ("p99", "queue", "p99", 2),
    ("504", "failed", None, 0), ("forced", "forced_share", None, 2),
]


def values(rows, key, part):
    found = [row.get(key, 0) for row in rows]
    return [(v or {}).get(part, 0) if part else v for v in found]


# With half of their range behind their median.
SPREAD = (("turns_per_s", None), ("first", "p50"), ("follow", "p50"))


def cell(rows, key, part, digits):
    """The median of the repetitions, and their spread."""
    found = values(rows, key, part)
    text = f"{statistics.median(found):.{digits}f}"
    if (key, part) in SPREAD and len(found) > 1:
        text += f" ±{(max(found) - min(found)) / 2:.2f}"
    return text


def select(rows, run, regime, policy):
    return [r for r in rows if (r["run"], r["regime"], r["policy"]) == (run, regime, policy.name)]


def policies_of(regime, chosen):
    return [p for p in chosen if p.only is None or regime in p.only]


def table(rows, run, regime, chosen):
    lines = ["| policy | " + " | ".join(c[0] for c in COLUMNS) + " |", "|---|" + "---|" * len(COLUMNS)]
    for policy in policies_of(regime, chosen):
        found = select(rows, run, regime, policy)
        if found:
            lines.append(f"| {policy.name} | " + " | ".join(cell(found, *c[1:]) for c in COLUMNS) + " |")
    return "\n".join(lines)


def spread(found):
    return f"{min(found):.2f} to {max(found):.2f}"


def agreement(rows, regimes, chosen):
    differences = []
    lines = ["| regime | policy | runs | turns/s real | sim | sim / real | warm real | sim |", "|---|---|---|---|---|---|---|---|"]
    for regime in regimes:
        for policy in policies_of(regime, chosen):
            real, sim = select(rows, "real", regime, policy), select(rows, "sim", regime, policy)
            if not real or not sim:
                continue
            a, b = (values(r, "turns_per_s", None) for r in (real, sim))
            warm = [statistics.median(values(r, "warm", None)) for r in (real, sim)]
            lines.append(f"| {regime} | {policy.name} | {len(a)} | {spread(a)} | {spread(b)} | "
                         f"{statistics.median(b) / statistics.median(a):.2f} | {warm[0]:.2f} | {warm[1]:.2f} |")
            differences.append((abs(statistics.median(b) / statistics.median(a) - 1), f"{regime}, {policy.name}"))
    if differences:
        most, where = max(differences)
        lines += ["", f"Largest difference in turns/s: {most:.0%} ({where}); goal 10 %: "
                      + ("reached." if most <= 0.1 else "MISSED.")]
    return "\n".join(lines)


# The goals of lanes: in the regime that they are for, so many times the turns/s and at most this share of the median
# time to the first token of follow-ups; elsewhere no more than a tenth behind.
LANES_GAIN, LANES_TTFT, MOST_BEHIND = 2.5, 0.25, 0.1


def gains(rows, regimes):
    """The default beside boost without lanes."""
    lines = ["| regime | run | turns/s: default / without lanes | goal | follow-up TTFT p50 | goal | |",
             "|---|---|---|---|---|---|---|"]
    for regime, run in itertools.product(regimes, ("real", "sim")):
        default, without = ([r for r in rows if (r["run"], r["regime"], r["policy"]) == (run, regime, p)]
                            for p in (DEFAULT, NO_LANES))
        if not default or not without:
            continue
        turns, ttft = (statistics.median(values(default, *key)) / statistics.median(values(without, *key))
                       for key in (("turns_per_s", None), ("follow", "p50")))
        least, most = (LANES_GAIN, LANES_TTFT) if regime in ABOVE else (1 - MOST_BEHIND, 1 + MOST_BEHIND)
        verdict = "reached" if turns >= least and ttft <= most else "MISSED"
        lines.append(f"| {regime} | {run} | {turns:.2f} | >= {least:.2f} | {ttft:.2f} | <= {most:.2f} | {verdict} |")
    return "\n".join(lines)


# ---- what queue_sim alone can play ----

# Who goes first among the boosted: the router has one order, queue_sim can tell its queue another. In caches that hold half of
# the long sessions, all, and twice as many.
ORDERS = ("newest", "oldest", "dropped-next")
ORDER_CACHES = (KV_BLOCKS // 2, KV_BLOCKS, 2 * KV_BLOCKS)
ORDER_BOUNDS = (4, 16, 32, 64, 1000000)
ORDER_COLUMNS = [("turns/s", "turns_per_s", None), ("warm", "warm", None), ("first p50", "first", "p50"),
                 ("follow-up p50", "follow", "p50"), ("p99", "follow", "p99")]


def order_row(regime, blocks, bound, repetitions):
    policy = Policy("", "prefer", 10, bound=bound)
    rows = [[run_sim(regime, policy, seed, ["--kv-blocks", str(blocks), "--warm-order", order])
             for seed in sim_seeds(repetitions)] for order in ORDERS]
    cells = [" / ".join(f"{statistics.median(values(r, *key)):.2f}" for r in rows) for _, *key in ORDER_COLUMNS]
    times = [b["turns_per_s"] / a["turns_per_s"] for a, b in zip(*rows[:2])]
    return [regime, str(blocks), "none" if bound == 1000000 else str(bound), *cells, spread(times)]


def order_table(regimes, repetitions):
    lines = ["| regime | blocks a pod | bound | " + " | ".join(c[0] for c in ORDER_COLUMNS) + " | turns/s: oldest / newest |",
             "|---|---|---|" + "---|" * (len(ORDER_COLUMNS) + 1)]
    lines += ["| " + " | ".join(order_row(*case, repetitions)) + " |"
              for case in itertools.product(regimes, ORDER_CACHES, ORDER_BOUNDS)]
    return "\n".join(lines)


SIZES = [(4, 200), (100, 5000), (1000, 50000), (1000, 1000000)]


def size_table():
    """How long queue_sim takes for a large cluster; every session is tracked."""
    lines = ["| pods | sessions | turns/s | CPU seconds | events |", "|---|---|---|---|---|"]
    default = next(p for p in POLICIES if p.name == DEFAULT)
    for pods, sessions in SIZES:
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        row = run_sim("long-above", default, 1, ["--pods", str(pods), "--sessions", str(sessions), "--tracked", str(sessions),
                                                 "--turn-us", "1000"])
        took = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
        lines.append(f"| {pods:,} | {sessions:,} | {row['turns_per_s']:,.1f} | {took:.2f} | {row['events']:,} |")
    return "\n".join(lines)


def report(rows, regimes, chosen, repetitions):
    parts = ["# First tokens by queue order", "",
             f"{PODS} pods, {SLOTS} slots each, prefill {PREFILL_TOKENS_PER_S} tokens/s, 20 tokens in {CHUNK_S} s. Medians "
             f"of {repetitions} repetitions or more ({SIM_TIMES * repetitions} in queue_sim), ± half of their range. Seconds of model time; warm: share of prompt tokens "
             "found in the pods' caches; forced: share of admissions that went out of order."]
    for regime in regimes:
        for run, title in (("real", "router and pods"), ("sim", "queue_sim")):
            if any(r["run"] == run and r["regime"] == regime for r in rows):
                parts += ["", f"## {regime}, {title}", "", REGIMES[regime], "", table(rows, run, regime, chosen)]
    parts += ["", f"## The default ({DEFAULT}) beside boost without lanes", "", gains(rows, regimes)]
    parts += ["", f"## The order of the boosted: {' / '.join(ORDERS)} completed turn first (queue_sim)", "",
              order_table(regimes, repetitions), "", "## queue_sim by size of the cluster (long-above)", "", size_table()]
    if any(r["run"] == "real" for r in rows):
        parts += ["", "## queue_sim beside the real run", "", agreement(rows, regimes, chosen)]
    return "\n".join(parts) + "\n"


# ---- main ----


def names(parser, what, text, separator, known):
    found = [name.strip() for name in text.split(separator) if name.strip()]
    for name in found:
        if name not in known:
            parser.error(f"no such {what}: {name}; there are: {(separator + ' ').join(known)}")
    return found


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="fewer policies and regimes, one repetition")
    parser.add_argument("--repetitions", type=harness.count)
    parser.add_argument("--jobs", type=harness.count, default=1, help="real runs at one time")
    parser.add_argument("--regimes", default="", help="only these, separated by commas: " + ", ".join(REGIMES))
    parser.add_argument("--policies", default="", help="only these, separated by semicolons, named as in the tables")
    parser.add_argument("--no-real", action="store_true")
    parser.add_argument("--no-plots", action="store_true")
    a = parser.parse_args()
    a.regimes = names(parser, "regime", a.regimes, ",", REGIMES)
    a.policies = names(parser, "policy", a.policies, ";", [p.name for p in POLICIES])
    if a.quick and not a.regimes:
        a.regimes = ["long-above", "short-above", "agents"]
    for policy in POLICIES:
        if policy.name in a.policies and policy.only and a.regimes and not set(policy.only) & set(a.regimes):
            parser.error(f"policy {policy.name} is played in {', '.join(policy.only)} alone")
    return a


def run_one(job):
    run, regime, policy, seed = job
    row = (run_real if run == "real" else run_sim)(regime, policy, seed)
    row.update(run=run, regime=regime, policy=policy.name, seed=seed)
    if run == "real":
        print(f"{regime:12} {policy.name:24} seed {seed}: {row['turns_per_s']:6.2f} turns/s, "
              f"{row['errors']} errors, timers {row['late']['p99'] * 1000:.1f} ms late", file=sys.stderr)
    return row


def write_rows(rows):
    with open(os.path.join(harness.BENCH, "ttft.json"), "w", encoding="utf-8") as f:
        json.dump(rows, f)


def stop_all(_signal, _frame):
    for process in running:
        if process.poll() is None:
            process.terminate()
    os._exit(1)


def main():
    signal.signal(signal.SIGTERM, stop_all)
    signal.signal(signal.SIGINT, stop_all)
    a = arguments()
    regimes = [r for r in REGIMES if not a.regimes or r in a.regimes]
    chosen = [p for p in POLICIES if (p.name in a.policies if a.policies else p.quick or not a.quick)]
    repetitions = a.repetitions or (1 if a.quick else 3)
    runs = ["sim"] if a.no_real else ["sim", "real"]
    seeds = {"sim": sim_seeds(repetitions), "real": range(1, repetitions + 1)}
    jobs = [(run, regime, policy, seed) for run in runs for seed in seeds[run] for regime in regimes
            for policy in policies_of(regime, chosen)]
    rows = []
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        while jobs:
            for done in concurrent.futures.as_completed([pool.submit(run_one, job) for job in jobs]):
                rows.append(done.result())
                if rows[-1]["run"] == "real":
                    write_rows(rows)
            jobs = unsettled(rows)
    write_rows(rows)
    text = report(rows, regimes, chosen, repetitions)
    with open(os.path.join(harness.BENCH, "ttft.md"), "w", encoding="utf-8") as f:
        f.write(text)
    print(text)
    if not a.no_plots:
        import plots
        plots.main()


if __name__ == "__main__":
    main()
