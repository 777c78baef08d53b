#!/usr/bin/python3
"""bench-shares: what targets by weight get of 100, 1,000 and 10,000 requests, and which sessions move when pods come and go.

The real router in front of vllm-sim pods; who got what is read from the access log.
"""
import argparse
import json
import os
import signal
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))

from daemon import Router, Sim  # noqa: E402
from waiting import wait_until  # noqa: E402

WEIGHTS = {"a": 70, "b": 30}
SESSIONS = 300


def servers(pods):
    return "".join("[model-server %s]\npods = %s\nengine = none\n" % (name, ", ".join(p.authority for p in some))
                   for name, some in pods.items())


def ask(router, n, key, headers=lambda i: []):
    """What the access log says of n requests under this key, in their order."""
    seen, c = len(router.stdout.lines), router.client()
    for i in range(n):
        assert c.chat(model="m", max_tokens=1, headers=headers(i)).answer().status == 200
    c.close()
    wait_until(lambda: len(router.stdout.lines) >= seen + n, "the access log")
    return [json.loads(line)[key] for line in router.stdout.lines[seen:]]


def show_weights(pods, directory):
    router = Router(ini=servers({"a": pods[:1], "b": pods[1:2]}) + "[model-route m]\ntarget = a:70, b:30\n", boost=False,
                    tmp_path=directory)
    print("weights 70 and 30, each line after the one before")
    print(f"{'requests':>10} {'a':>7} {'b':>7}   in any 100 in a row: a")
    for n in (100, 1000, 10000):
        got = [name == "a" for name in ask(router, n, "model_server")]
        rows = [sum(got[i:i + 100]) for i in range(n - 99)]
        print(f"{n:10,} {sum(got):7,} {n - sum(got):7,}   {min(rows)} to {max(rows)}", flush=True)
    router.stop()


def show_moves(pods, directory):
    ini = "[model-route m]\ntarget = s\nsession_sticky = header:X-Session-ID\n"
    router = Router(ini=servers({"s": pods[:2]}) + ini, boost=False, tmp_path=directory)

    def homes():
        return ask(router, SESSIONS, "selected_pod", lambda i: [("X-Session-ID", "s%d" % i)])

    def scale(some):
        seen = len(router.stderr.lines)
        router.write_ini(servers({"s": some}) + ini)
        router.signal(signal.SIGHUP)
        router.stderr.wait_for_line("reloaded", start=seen)

    before = homes()
    print(f"\n{SESSIONS} sessions on 2 pods")
    for what, some in (("2 pods more", pods), ("the first pod goes", pods[1:]), ("as before", pods)):
        scale(some)
        after = homes()
        moved = [i for i in range(SESSIONS) if after[i] != before[i]]
        gone = [i for i in range(SESSIONS) if before[i] not in {p.authority for p in some}]
        print(f"{what:20} {len(moved):4} moved; {len(gone):4} had to; others that moved: {len(set(moved) - set(gone))}", flush=True)
        before = after
    router.stop()


def main():
    argparse.ArgumentParser(description=__doc__).parse_args()
    pods = [Sim("--model", "m", "--inter-token-ms", 0) for _ in range(4)]
    with tempfile.TemporaryDirectory() as directory:
        show_weights(pods, directory)
        show_moves(pods, directory)
    for p in pods:
        p.stop()


if __name__ == "__main__":
    main()
