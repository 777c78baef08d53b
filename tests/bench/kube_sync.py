#!/usr/bin/env python3
"""A large cluster: how long the router takes to know it, what its longest turn of the loop is, what it costs in memory,
and whether streams that run meanwhile are delayed.

    tests/bench/kube_sync.py [--pods 5000] [--routes 1000] [--relists 3]

An API server stand-in (tests/sim/kube_api.py) holds the objects with all that real ones carry; pods are addresses of the
loopback network behind one listener. ROUTER_BIN names the router."""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(os.path.dirname(HERE), "sim"), os.path.join(os.path.dirname(HERE), "e2e")]

from client import Client  # noqa: E402
from daemon import Router  # noqa: E402
from kube_api import KubeApi, model_route, model_server, pod as pod_object  # noqa: E402
from kube_world import kubeconfig  # noqa: E402
from pod import Pod  # noqa: E402
from waiting import wait_until  # noqa: E402


def fill(api, pods, routes, port):
    for i in range(routes):
        labels = {"app": "m%d" % i}
        api.put("modelservers", model_server("m%d" % i, labels, port, model="org/model-%d" % i))
        api.put("modelroutes", model_route("m%d" % i, "m%d" % i, ["m%d" % i]))
    for i in range(pods):
        api.put("pods", pod_object("m%d-%d" % (i % routes, i), "127.%d.%d.%d" % (1 + i // 62500, i // 250 % 250, 1 + i % 250),
                                   {"app": "m%d" % (i % routes)}))


def show_turns(router):
    """The page itself is a long turn where there are many pods: it counts in the next one."""
    m, name = router.metrics(), "kthena_router_loop_turn_seconds"
    above = [int(m.get(name + "_count") - m.get(name + "_bucket", le=bound)) for bound in ("0.005", "0.01", "0.025")]
    print("  longest turn of the loop %.1f ms; turns above 5 / 10 / 25 ms: %d / %d / %d" %
          (1000 * m.get("kthena_router_loop_turn_longest_seconds"), *above))


def stream():
    """In a process of its own: an event every 10 ms through the router to a pod here. Says the pod's port, is told the
    router's, and for each further line tells the gaps between events since the last one."""
    pod, gaps = Pod(), []
    print(pod.port, flush=True)
    client = Client(int(sys.stdin.readline())).chat(model="own", stream=True)
    request = pod.next()
    request.start()

    def run():
        head, last = client.head(), None
        while True:
            request.event("x")
            client.read_until(head, b"x")
            now = time.monotonic()
            if last:
                gaps.append(1000 * (now - last))
            last = now
            time.sleep(0.01)
    threading.Thread(target=run, daemon=True).start()
    for _ in sys.stdin:
        seen = sorted(gaps)
        gaps.clear()
        print("%.1f / %.1f / %.1f ms" % (seen[len(seen) // 2], seen[len(seen) * 99 // 100], seen[-1]), flush=True)
    os._exit(0)


class Stream:
    def __init__(self):
        self.process = subprocess.Popen([sys.executable, __file__, "--stream"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())

    def tell(self, line):
        self.process.stdin.write("%s\n" % line)
        self.process.stdin.flush()

    def gaps(self):
        self.tell("")
        return self.process.stdout.readline().strip()

    def stop(self):
        self.process.stdin.close()
        self.process.wait(10)


def run(args, d):
    api, pods, own, other = KubeApi(), Pod(host="0.0.0.0"), Stream(), Pod()
    fill(api, args.pods, args.routes, pods.port)
    empty = Router({"x": [other]}, tmp_path=d)
    rss_empty = empty.rss_bytes()
    empty.stop()
    began = time.monotonic()
    r = Router(wait=False, tmp_path=d, kubeconfig=kubeconfig(d, api), router_kubernetes="true", metrics_scrape_interval=args.scrape,
               ini="[model-server own]\npods = 127.0.0.1:%d\n[model-route own]\ntarget = own\n" % own.port)
    wait_until(lambda: r.get("/readyz").status == 200, "the first synchronisation", 120)
    synced = time.monotonic() - began
    print("first synchronisation: %d pods, %d routes known and in force after %.2f s" % (args.pods, args.routes, synced))
    show_turns(r)
    print("  memory %.1f MB (a router with one pod: %.1f MB)" % (r.rss_bytes() / 1e6, rss_empty / 1e6))
    own.tell(r.port)
    time.sleep(2)
    own.gaps()
    time.sleep(2)
    print("an event stream of one event every 10 ms, gaps p50 / p99 / longest")
    print("  nothing happens: %s" % own.gaps())
    for _ in range(args.relists):
        lists = len(api.asked("list"))
        api.error_in_watches(410)
        wait_until(lambda: api.watching() == 3 and len(api.asked("list")) > lists, "a new list", 60)
        time.sleep(0.7)
    print("  during %d new lists of everything: %s" % (args.relists, own.gaps()))
    began = time.monotonic()
    api.put("modelroutes", model_route("late", "late", ["m0"]))
    wait_until(lambda: re.search(b'"late"', r.get("/v1/models").body), "the new route", 20)
    print("one more route is in force after %.0f ms; the stream meanwhile: %s" % (1000 * (time.monotonic() - began), own.gaps()))
    show_turns(r)
    own.stop()
    r.idle_check = False
    r.stop()
    api.stop()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--pods", type=int, default=5000)
    p.add_argument("--routes", type=int, default=1000)
    p.add_argument("--relists", type=int, default=3)
    p.add_argument("--scrape", default="10s", help="METRICS_SCRAPE_INTERVAL")
    p.add_argument("--stream", action="store_true", help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.stream:
        stream()
    with tempfile.TemporaryDirectory() as d:
        run(args, d)


if __name__ == "__main__":
    main()
