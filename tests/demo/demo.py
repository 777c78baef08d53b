#!/usr/bin/env python3
"""A conversation under contention, to see session boost at work: two simulated pods, the router in front of them, sessions that
take their turns while strangers keep the queue full. Stays up until Ctrl-C; --once ends after the conversation."""

import argparse
import collections
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

ROUTER = os.environ.get("ROUTER_BIN", "build/kthena-router")
SIM = os.environ.get("VLLM_SIM", "build/vllm-sim")
MODEL, SESSIONS, TURNS, STRANGERS = "demo-model", 4, 3, 24
WORDS = "every turn of a conversation repeats all that was said before, so its prefix is worth keeping warm; ".split()


class Program:
    """A running program and what it prints, line by line."""

    def __init__(self, command, env=None):
        self.process = subprocess.Popen(command, env={"PATH": "/usr/bin:/bin", **(env or {})}, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.lines = {"stdout": [], "stderr": []}
        for name, lines in self.lines.items():
            stream = getattr(self.process, name)
            threading.Thread(target=lambda s=stream, to=lines: to.extend(iter(s.readline, "")), daemon=True).start()

    def wait_port(self, stream, pattern):
        """The port named by the line that matches."""
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and self.process.poll() is None:
            for line in list(self.lines[stream]):
                found = re.search(pattern, line)
                if found:
                    return int(re.findall(r"[:=](\d+)(?!\d)", line[found.start():])[-1])
            time.sleep(0.01)
        sys.exit("%s did not start:\n%s" % (self.process.args[0], "".join(self.lines["stderr"])))

    def stop(self):
        self.process.terminate()
        self.process.wait(10)


def start_pod(name):
    # Slow on purpose: two answers at a time, and prompt tokens that are not cached cost half a millisecond each.
    return Program([SIM, "--model", MODEL, "--name", name, "--port", "0", "--max-num-seqs", "2",
                    "--prefill-tokens-per-second", "2000", "--inter-token-ms", "10"])


def start_router(pod_ports):
    return Program([ROUTER, "--port", "0", "--metrics-port", "0", "--debug-port", "0"], env={
        "ROUTER_BIND": "127.0.0.1",
        "ROUTER_BACKENDS": "%s=%s" % (MODEL, ",".join("127.0.0.1:%d" % p for p in pod_ports)),
        "ENABLE_SESSION_BOOST": "true",
        "SESSION_BOOST_INFLIGHT_PER_POD": "2",
        "METRICS_SCRAPE_INTERVAL": "100ms",
        "ACCESS_LOG_FORMAT": "json",
    })


def text(seed, n_words):
    return "%s: " % seed + " ".join(WORDS[(i * 7 + len(seed)) % len(WORDS)] for i in range(n_words))


def ask(port, request_id, messages, session=None):
    """One streamed turn; returns the answer's text."""
    headers = {"Content-Type": "application/json", "X-Request-ID": request_id}
    if session:
        headers["X-Session-ID"] = session
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    c.request("POST", "/v1/chat/completions", json.dumps({"model": MODEL, "stream": True, "max_tokens": 12, "messages": messages}), headers)
    answer = ""
    for line in c.getresponse():
        if line.startswith(b"data: {"):
            choices = json.loads(line[6:])["choices"]
            answer += choices[0]["delta"].get("content") or "" if choices else ""
    c.close()
    return answer


def converse(port, session):
    messages = [{"role": "user", "content": text(session, 300)}]
    for turn in range(1, TURNS + 1):
        answer = ask(port, "%s-turn-%d" % (session, turn), messages, session)
        messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": "Go on, turn %d." % (turn + 1)}]


def stranger(port, number, stop):
    """First turns without a session, one after the other: the load that a follow-up has to get past."""
    n = 0
    while not stop.is_set():
        n += 1
        ask(port, "stranger-%d-%d" % (number, n), [{"role": "user", "content": text("stranger %d, %d" % (number, n), 60)}])


def run_conversation(port):
    stop = threading.Event()
    noise = [threading.Thread(target=stranger, args=(port, i, stop)) for i in range(STRANGERS)]
    talks = [threading.Thread(target=converse, args=(port, "session-%d" % (i + 1))) for i in range(SESSIONS)]
    for t in noise + talks:
        t.start()
    for t in talks:
        t.join()
    stop.set()
    for t in noise:
        t.join()


def entries(router):
    """The access log: one entry for each request."""
    return [json.loads(x) for x in list(router.lines["stdout"]) if x.startswith("{")]


def wait_entries(router):
    deadline = time.monotonic() + 5
    while sum(e["request_id"].startswith("session-") for e in entries(router)) < SESSIONS * TURNS and time.monotonic() < deadline:
        time.sleep(0.05)
    return entries(router)


def show(router, log, pods):
    print("\nThe router's log, its lines about one session (\"session boost\"):\n")
    for line in [x for x in router.lines["stderr"] if "session boost" in x and "session=session-1" in x][:3 * TURNS]:
        print("  " + line.rstrip())
    print("\n  %-10s %4s  %-7s %14s %9s  %s" % ("session", "turn", "boosted", "queue wait ms", "TTFT ms", "pod"))
    for e in sorted((e for e in log if e["request_id"].startswith("session-")), key=lambda e: e["request_id"]):
        session, turn = e["request_id"].rsplit("-turn-", 1)
        print("  %-10s %4s  %-7s %14.0f %9.0f  %s" % (session, turn, "yes" if e["boosted"] else "no", e["queue_ms"], e["ttft_ms"],
                                                     pods.get(e["selected_pod"], e["selected_pod"])))
    waits = collections.defaultdict(list)
    for e in log:
        waits["follow-ups (boosted)" if e.get("boosted") else "first turns"].append(e["queue_ms"])
    print()
    for kind, values in sorted(waits.items(), reverse=True):
        print("  %-21s %3d requests, median queue wait %5.0f ms" % (kind, len(values), sorted(values)[len(values) // 2]))


CURL = """
Try it yourself (turn 1, then turn 2 of the same session):

  curl -N http://127.0.0.1:{port}/v1/chat/completions -H 'X-Session-ID: mine' -H 'Content-Type: application/json' \\
    -d '{{"model":"{model}","stream":true,"messages":[{{"role":"user","content":"Hello"}}]}}'
  curl -N http://127.0.0.1:{port}/v1/chat/completions -H 'X-Session-ID: mine' -H 'Content-Type: application/json' \\
    -d '{{"model":"{model}","stream":true,"messages":[{{"role":"user","content":"Hello"}},{{"role":"user","content":"And now?"}}]}}'

The router's numbers: curl http://127.0.0.1:{metrics}/metrics

Up until Ctrl-C; the router's log:
"""

ENDS = "\nThe router ends here; \"make demo\" keeps it and the pods up after the conversation, to be talked to."


def follow(router):
    """Shows new log lines until Ctrl-C."""
    seen = len(router.lines["stderr"])
    while router.process.poll() is None:
        time.sleep(0.1)
        new = router.lines["stderr"][seen:]
        seen += len(new)
        for line in new:
            print("  " + line.rstrip(), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--once", action="store_true", help="end after the conversation; status 1 when no follow-up was boosted")
    once = parser.parse_args().once
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which who is started in the background of a shell lacks
    running = []
    try:
        for name in ("pod-A", "pod-B"):
            running.append(start_pod(name))
        ports = [p.wait_port("stdout", "listening") for p in running]
        router = start_router(ports)
        running.insert(0, router)
        port = router.wait_port("stderr", "listening.*inference")
        metrics = router.wait_port("stderr", "listening.*metrics")
        print("Router on 127.0.0.1:%d, %d sessions of %d turns, %d strangers at the same time; four answers fit on the pods ..."
              % (port, SESSIONS, TURNS, STRANGERS), flush=True)
        run_conversation(port)
        log = wait_entries(router)
        show(router, log, {"127.0.0.1:%d" % p: "pod-" + "AB"[i] for i, p in enumerate(ports)})
        if once:
            print(ENDS, flush=True)
        else:
            print(CURL.format(port=port, metrics=metrics, model=MODEL), flush=True)
            follow(router)
        return 0 if any(e["boosted"] for e in log if "-turn-" in e["request_id"]) else 1
    except KeyboardInterrupt:
        return 0
    finally:
        for program in running:
            program.stop()


if __name__ == "__main__":
    sys.exit(main())
