#!/usr/bin/python3
"""bench-fairness: one greedy user beside nine modest ones, in order of arrival and with user fairness.

Two simulated pods with four slots each, an answer takes a tenth of a second: 80 requests a second at most. Each modest user
asks 6 times a second, the greedy one 60 times: more than there is, although the modest ones alone would fit. Arrivals are the
same in both runs (seeded, open loop). From the access log: the p95 of the time that each modest user's requests wait in the
queue, the greedy user's share of what was served, and Jain's index of served to entitled over the ten users. Entitled is the
max-min fair share: nobody gets more than it asks for, and what is left is shared evenly.

    fairness.py [--seconds S] [--seed N]
"""
import argparse
import asyncio
import json
import os
import random
import tempfile

import harness

PODS, SLOTS, TOKENS, TOKEN_MS = 2, 4, 20, 5
CAPACITY = PODS * SLOTS * 1000 / (TOKENS * TOKEN_MS)
MODEST, GREEDY = 6, 60
USERS = {"greedy": GREEDY, **{f"modest-{i}": MODEST for i in range(1, 10)}}
WARMUP_S = 5
STRATEGIES = {
    "order of arrival": {"ENABLE_SESSION_BOOST": "true", "SESSION_BOOST_TIMEOUT": "0"},
    "user fairness": {"ENABLE_SESSION_BOOST": "false", "ENABLE_FAIRNESS_SCHEDULING": "true",
                      "FAIRNESS_MAX_CONCURRENT": "1000", "FAIRNESS_WINDOW_SIZE": "1m", "FAIRNESS_QUEUE_TIMEOUT": "1h"},
}


def arrivals(seconds, seed):
    """(when, user), in order."""
    dice, out = random.Random(seed), []
    for user, rate in USERS.items():
        at = dice.expovariate(rate)
        while at < seconds:
            out.append((at, user))
            at += dice.expovariate(rate)
    return sorted(out)


async def ask(port, user, number):
    body = json.dumps({"model": harness.MODEL, "max_tokens": TOKENS, "messages": [{"role": "user", "content": "Hello"}]}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\nConnection: close\r\nContent-Type: application/json\r\n"
                     b"X-User-ID: %s\r\nX-Request-ID: %s.%d\r\nContent-Length: %d\r\n\r\n%s"
                     % (user.encode(), user.encode(), number, len(body), body))
        await reader.read()
    finally:
        writer.close()


async def play(port, plan, seconds):
    loop, tasks = asyncio.get_running_loop(), []
    start = loop.time()
    for number, (at, user) in enumerate(plan):
        await asyncio.sleep(max(0, start + at - loop.time()))
        tasks.append(asyncio.create_task(ask(port, user, number)))
    await asyncio.sleep(max(0, start + seconds - loop.time()))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def run(name, plan, seconds):
    """The access log's entries."""
    with tempfile.TemporaryDirectory() as directory:
        options = dict(STRATEGIES[name], SESSION_BOOST_INFLIGHT_PER_POD=str(SLOTS), ACCESS_LOG_FORMAT="json", LOG_LEVEL="warn")
        setup = harness.Setup(directory, harness.free_ports(PODS), options=options)
        pods = [harness.Process("vllm-sim", [os.path.join(harness.BUILD, "vllm-sim"), "--port", str(p), "--model", harness.MODEL,
                                             "--max-num-seqs", str(SLOTS), "--inter-token-ms", str(TOKEN_MS)],
                                harness.LOAD_CORE, setup.log(f"pod-{p}.log")) for p in setup.pods]
        for pod in pods:
            pod.__enter__()
        try:
            for pod, port in zip(pods, setup.pods):
                pod.wait_for(port, "/v1/models")
            with harness.start_router(setup):
                asyncio.run(play(setup.port, plan, seconds))
        finally:
            for pod in pods:
                pod.__exit__(None, None, None)
        with open(setup.log("router-access.log")) as f:
            return [json.loads(line) for line in f]


def percentile(values, p):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * p))] if values else float("nan")


def entitled(demand, capacity):
    """Max-min fair shares."""
    shares, left, open_users = {}, capacity, dict(demand)
    while open_users:
        even = left / len(open_users)
        modest = {u: d for u, d in open_users.items() if d <= even}
        if not modest:
            shares.update({u: even for u in open_users})
            return shares
        for user, d in modest.items():
            shares[user] = d
            left -= d
            del open_users[user]
    return shares


def jain(values):
    return sum(values) ** 2 / (len(values) * sum(v * v for v in values))


def judge(name, plan, entries, seconds):
    when = {f"{user}.{number}": at for number, (at, user) in enumerate(plan)}
    waits, served = {u: [] for u in USERS}, {u: 0 for u in USERS}
    for e in entries:
        if e["request_id"] not in when:
            continue
        user = e["request_id"].split(".")[0]
        at = when[e["request_id"]]
        if at >= WARMUP_S and "queue_ms" in e:
            waits[user].append(e["queue_ms"] / 1000)
        if e["status_code"] == 200 and at + e["duration_total"] / 1000 >= WARMUP_S:
            served[user] += 1
    total, time_s = sum(served.values()), seconds - WARMUP_S
    shares = entitled(USERS, total / time_s)
    p95 = {u: percentile(waits[u], 0.95) for u in USERS if u != "greedy"}
    modest = list(p95.values())
    print(f"{name:18} {total / time_s:7.1f} {percentile(waits['greedy'], 0.5):9.2f} {min(modest):11.2f} {max(modest):9.2f} "
          f"{served['greedy'] / total:11.0%} {shares['greedy'] * time_s / total:10.0%} "
          f"{jain([served[u] / time_s / shares[u] for u in USERS]):8.3f}", flush=True)
    return p95


def print_users(rows):
    """The p95 of each modest user's waits, under each strategy."""
    print("\nmodest user, p95 wait" + "".join(f"{name:>20}" for name in rows))
    for user in USERS:
        if user != "greedy":
            print(f"{user:21}" + "".join(f"{p95[user]:20.2f}" for p95 in rows.values()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    plan = arrivals(options.seconds, options.seed)
    print(f"offered {len(plan) / options.seconds:.0f}/s, capacity {CAPACITY:.0f}/s, {options.seconds:.0f} s, the first {WARMUP_S} s not counted; waits in s")
    print("                     served    greedy   modest p95 wait      greedy    of that   Jain's")
    print("                         /s  p50 wait   best user  worst user  share   entitled    index")
    print_users({name: judge(name, plan, run(name, plan, options.seconds), options.seconds) for name in STRATEGIES})


if __name__ == "__main__":
    main()
