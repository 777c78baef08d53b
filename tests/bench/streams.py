#!/usr/bin/env python3
"""2,000 event streams at once through the router to two simulated pods, every byte checked, memory watched.

Usage: streams.py STREAMS_BINARY [--seconds 60] [--streams 2000]; ROUTER_BIN and VLLM_SIM name the programs. Exit status 0 when every
byte of every stream came, and the router's memory and descriptors are back where they were (memory within 10 %)."""

import argparse
import http.client
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time

ROUTER = os.environ.get("ROUTER_BIN", "build/kthena-router")
SIM = os.environ.get("VLLM_SIM", "build/vllm-sim")
PROMPTS, INTER_TOKEN_MS, WARM_UP_TOKENS = 32, 100, 10


def start(command, env=None, stream="stdout"):
    """The process and its output as a growing list of lines."""
    p = subprocess.Popen(command, env={"PATH": "/usr/bin:/bin", **(env or {})}, stdin=subprocess.DEVNULL, text=True,
                         **{stream: subprocess.PIPE}, **({"stdout": subprocess.DEVNULL} if stream == "stderr" else {}))
    lines = []
    threading.Thread(target=lambda: lines.extend(iter(getattr(p, stream).readline, "")), daemon=True).start()
    return p, lines


def port_of(p, lines, pattern, seconds=10):
    """The port that a line of output names, once it has come."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and p.poll() is None:
        for line in list(lines):
            found = re.search(pattern, line)
            if found:
                return int(re.findall(r"[:=](\d+)(?!\d)", line[found.start():])[-1])
        time.sleep(0.01)
    sys.exit("no line %r:\n%s" % (pattern, "".join(lines)))


def answer_text(port, prompt, tokens, inter_token_ms):
    """The whole text a pod gives to a prompt, asked for without a stream and without pauses."""
    c = http.client.HTTPConnection("127.0.0.1", port)
    c.request("POST", "/sim/config", json.dumps({"inter_token_ms": 0}))
    c.getresponse().read()
    body = {"model": "m", "max_tokens": tokens, "messages": [{"role": "user", "content": prompt}]}
    c.request("POST", "/v1/chat/completions", json.dumps(body))
    text = json.loads(c.getresponse().read())["choices"][0]["message"]["content"]
    c.request("POST", "/sim/config", json.dumps({"inter_token_ms": inter_token_ms}))
    c.getresponse().read()
    return text


def memory_kib(pid):
    with open("/proc/%d/status" % pid, encoding="ascii") as f:
        return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1))


def usage(pid):
    return memory_kib(pid), len(os.listdir("/proc/%d/fd" % pid))


def cpu_seconds(pid):
    with open("/proc/%d/stat" % pid, encoding="ascii") as f:
        fields = f.read().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def settle(pid, want_fds, seconds=10):
    """Waits until the descriptors are back; returns the usage then."""
    deadline = time.monotonic() + seconds
    while usage(pid)[1] > want_fds and time.monotonic() < deadline:
        time.sleep(0.05)
    return usage(pid)


def run_client(binary, router_port, streams, tokens, reference, watch):
    client = subprocess.Popen([binary, str(router_port), str(streams), str(tokens), reference], stdout=subprocess.PIPE, text=True)
    peak = (0, 0)
    while client.poll() is None:
        peak = tuple(map(max, peak, usage(watch)))
        time.sleep(0.2)
    print(client.stdout.read().strip())
    return client.returncode, peak


def show(when, numbers):
    print("%-22s rss %7.1f MiB   fds %5d" % (when, numbers[0] / 1024, numbers[1]), flush=True)


def measure(binary, streams, tokens, sim_ports, router, inference):
    """Fresh, warmed up, under load, afterwards; true when all is as it should be."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as short, tempfile.NamedTemporaryFile("w", suffix=".txt") as full:
        for i in range(PROMPTS):
            prompt = "prompt number %d" % i
            text = answer_text(sim_ports[0], prompt, tokens, INTER_TOKEN_MS)
            assert text == answer_text(sim_ports[1], prompt, tokens, INTER_TOKEN_MS), "the pods answer differently"
            full.write("%s\t%s\n" % (prompt, text))
            short.write("%s\t%s\n" % (prompt, answer_text(sim_ports[0], prompt, WARM_UP_TOKENS, INTER_TOKEN_MS)))
        full.flush()
        short.flush()
        fresh = usage(router.pid)
        show("fresh", fresh)
        warm_status, _ = run_client(binary, inference, streams, WARM_UP_TOKENS, short.name, router.pid)
        before = settle(router.pid, fresh[1])
        show("before (warmed up)", before)
        begun, cpu = time.monotonic(), cpu_seconds(router.pid)
        status, peak = run_client(binary, inference, streams, tokens, full.name, router.pid)
        cpu = cpu_seconds(router.pid) - cpu
        seconds = time.monotonic() - begun
        show("during", peak)
        after = settle(router.pid, before[1])
        show("after", after)
        print("router: %.1f s of CPU in %.1f s, %.1f KiB for each stream" % (
            cpu, seconds, (peak[0] - fresh[0]) / streams))
    good = {"every byte came": warm_status == 0 and status == 0,
            "memory is back within 10 %": after[0] <= before[0] * 1.1,
            "descriptors are back": after[1] <= before[1]}
    for what, ok in good.items():
        print("%-4s %s" % ("ok" if ok else "FAIL", what))
    return all(good.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("binary")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--streams", type=int, default=2000)
    args = parser.parse_args()
    tokens = max(1, int(args.seconds * 1000 / INTER_TOKEN_MS))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4 * args.streams)), hard))
    processes = []
    try:
        sims = [start([SIM, "--model", "m", "--port", "0", "--max-num-seqs", str(args.streams), "--kv-blocks", "0",
                       "--keep-alive-timeout", "0", "--inter-token-ms", str(INTER_TOKEN_MS)]) for _ in range(2)]
        processes += [p for p, _ in sims]
        sim_ports = [port_of(p, lines, "listening") for p, lines in sims]
        router, log = start([ROUTER, "--port", "0", "--metrics-port", "0", "--debug-port", "0"], stream="stderr", env={
            "ROUTER_BIND": "127.0.0.1", "ROUTER_BACKENDS": "m=" + ",".join("127.0.0.1:%d" % p for p in sim_ports),
            "ENABLE_SESSION_BOOST": "true", "SESSION_BOOST_INFLIGHT_PER_POD": str((args.streams + 1) // 2),
            "UPSTREAM_KEEPALIVE": "1s"})
        processes.append(router)
        inference = port_of(router, log, "listening.*inference")
        port_of(router, log, "listening.*debug")
        return 0 if measure(args.binary, args.streams, tokens, sim_ports, router, inference) else 1
    finally:
        for p in processes:
            p.terminate()
        for p in processes:
            p.wait(10)


if __name__ == "__main__":
    sys.exit(main())
