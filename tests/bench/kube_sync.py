"""A large cluster: how long the router takes to know it, what its longest turn of the loop is, what it costs in memory,
and whether streams that run meanwhile are delayed.

    tests/bench/kube_sync.py [--pods 5000] [--routes 1000] [--relists 3]

An API server stand-in (tests/sim/kube_api.py) holds the objects with all that real ones carry; pods are addresses of the
loopback network behind one listener. ROUTER_BIN names the router."""

import argparse
import os
import re
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(os.path.dirname(HERE), "sim"), os.path.join(os.path.dirname(HERE), "e2e")]

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


def turns(metrics):
    """Longest turn in ms, and how many were above 5, 10 and 25 ms."""
    def above(bound):
        name = "kthena_router_loop_turn_seconds"
        return int(metrics.get(name + "_count") - metrics.get(name + "_bucket", le=bound))
    return metrics.get("kthena_router_loop_turn_longest_seconds") * 1000, above("0.005"), above("0.01"), above("0.025")


class Stream(threading.Thread):
    """One event stream through the router, an event every 10 ms; remembers the gaps between events."""

    def __init__(self, router, pod):
        super().__init__(daemon=True)
        self.client, self.gaps, self.running = router.start_chat(model="own", stream=True), [], True
        self.request = pod.next()
        self.request.start()

    def run(self):
        head = self.client.head()
        last = None
        while self.running:
            self.request.event("x")
            self.client.read_until(head, b"x")
            now = time.monotonic()
            if last:
                self.gaps.append(now - last)
            last = now
            time.sleep(0.01)
        self.request.event("[DONE]").end()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--pods", type=int, default=5000)
    p.add_argument("--routes", type=int, default=1000)
    p.add_argument("--relists", type=int, default=3)
    p.add_argument("--scrape", default="10s", help="METRICS_SCRAPE_INTERVAL")
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as d:
        api, pods, own = KubeApi(), Pod(host="0.0.0.0"), Pod()
        fill(api, args.pods, args.routes, pods.port)
        base = {"kubeconfig": kubeconfig(d, api), "router_kubernetes": "true", "metrics_scrape_interval": args.scrape, "tmp_path": d,
                "ini": "[model-server own]\npods = %s\n[model-route own]\ntarget = own\n" % own.authority}
        empty = Router({"x": [own]}, tmp_path=d)
        rss_empty = empty.rss_bytes()
        empty.stop()
        began = time.monotonic()
        r = Router(wait=False, **base)
        wait_until(lambda: r.get("/readyz").status == 200, "the first synchronisation", 120)
        synced = time.monotonic() - began
        longest, *above = turns(r.metrics())
        print("first synchronisation: %d pods, %d routes known and in force after %.2f s" % (args.pods, args.routes, synced))
        print("  longest loop turn %.1f ms; turns above 5 / 10 / 25 ms: %d / %d / %d" % (longest, *above))
        print("  memory %.1f MB (a router with one pod: %.1f MB)" % (r.rss_bytes() / 1e6, rss_empty / 1e6))
        time.sleep(2)
        s = Stream(r, own)
        s.start()
        time.sleep(1)
        quiet = sorted(s.gaps)
        s.gaps = []
        lists = len(api.asked("list"))
        for n in range(args.relists):
            api.error_in_watches(410)
            wait_until(lambda: api.watching() == 3 and len(api.asked("list")) > lists, "a new list", 60)
            time.sleep(1)
            lists = len(api.asked("list"))
        during = sorted(s.gaps)
        s.running = False
        s.join()
        print("a stream of an event every 10 ms, gap p50 / p99 / longest: %.1f / %.1f / %.1f ms when nothing happens, %.1f / %.1f / %.1f ms "
              "during %d new lists of everything" % (*[1000 * quiet[int(len(quiet) * q)] for q in (.5, .99)], 1000 * quiet[-1],
                                                    *[1000 * during[int(len(during) * q)] for q in (.5, .99)], 1000 * during[-1], args.relists))
        longest, *above = turns(r.metrics())
        print("  longest loop turn %.1f ms; turns above 5 / 10 / 25 ms: %d / %d / %d; memory %.1f MB" % (longest, *above, r.rss_bytes() / 1e6))
        began = time.monotonic()
        api.put("modelroutes", model_route("late", "late", ["m0"]))
        wait_until(lambda: re.search(b'"late"', r.get("/v1/models").body), "the new route", 20)
        print("one more route in force after %.0f ms" % (1000 * (time.monotonic() - began)))
        longest, *above = turns(r.metrics())
        print("  longest loop turn %.1f ms" % longest)
        r.idle_check = False
        r.stop()
        api.stop()


if __name__ == "__main__":
    main()
