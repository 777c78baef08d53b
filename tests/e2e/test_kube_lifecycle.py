"""What comes and goes under load: pods, routes, the API server, the router itself. No request is lost, and none goes to a
pod after the turn that removed it."""

import collections
import datetime
import json
import os
import random
import signal
import threading
import time

import pytest

from client import Client
from kube_load import Load
from kube_world import KthenaWorld
from waiting import SLOW, wait_until


@pytest.fixture
def world(start, tmp_path):
    return lambda **options: KthenaWorld(start, tmp_path, **options)


def host(n, pod):
    return "127.0.0.%d:%d" % (n, pod.port)


def slow_ok(seconds):
    def script(q):
        threading.Timer(seconds, q.reply).start()
    return script


class Cluster(KthenaWorld):
    """Numbered pods behind one listener; remembers when the router knew that one was gone."""

    def __init__(self, start, tmp_path, script, **options):
        super().__init__(start, tmp_path, **{"session_boost_inflight_per_pod": "4", **options})
        self.backend = self.pod(script)
        self.there, self.gone_at = set(), collections.defaultdict(list)
        self.put_server(port=self.backend.port)
        self.put_route()

    def add(self, n, **more):
        self.gone_at[n].append((time.monotonic(), "back"))
        self.put_pod("pod-%d" % n, "127.0.0.%d" % n, **more)
        self.there.add(n)

    def remove(self, n, how):
        if how == "delete":
            self.api.delete("pods", "pod-%d" % n)
        else:
            self.put_pod("pod-%d" % n, "127.0.0.%d" % n, ready=how != "unready", deleting=how == "terminating")
        self.there.discard(n)

    def settle(self):
        """The router knows what there is: these pods and not others that had their addresses before."""
        def known():
            return {(p["name"], p["uid"]) for p in self.router.dump("pods")["pods"] if not p["leaving"]} == {
                (host(n, self.backend), self.api.objects["pods"][("default", "pod-%d" % n)]["metadata"]["uid"]) for n in self.there}
        wait_until(known, "the router to know the pods", 20)

    def note_gone(self, n):
        self.settle()
        self.gone_at[n].append((time.monotonic(), "gone"))

    def late(self):
        """Requests that were sent when their pod was known to be gone, and reached it before it came back."""
        late = []
        for q in self.backend.requests:
            n, sent = int(q.header("Host").split(":")[0].rpartition(".")[2]), q.json()["sent"]
            before = [what for at, what in self.gone_at[n] if at < sent]
            between = [what for at, what in self.gone_at[n] if sent <= at < q.at]
            if before and before[-1] == "gone" and "back" not in between:
                late.append((n, sent))
        return late


@pytest.mark.parametrize("seed", range(1, 1 + int(os.environ.get("SEEDS", "3"))))
def test_random_programs(start, tmp_path, seed):
    """Pods and routes change at random while eight clients talk, and the API server fails in every way meanwhile."""
    rng = random.Random(seed)
    c = Cluster(start, tmp_path, slow_ok(0.002), router_kubernetes_watch_timeout="1s")
    for n in (1, 2, 3):
        c.add(n)
    r = c.run()
    load = Load(r.port, seed=seed)
    for step in range(40):
        what = rng.random()
        away = sorted(set(range(1, 9)) - c.there)
        if what < 0.3 and away:
            c.add(rng.choice(away))
        elif what < 0.6 and len(c.there) > 1:
            n = rng.choice(sorted(c.there))
            c.settle()  # else it may be news that n is there
            c.remove(n, rng.choice(["delete", "terminating", "unready"]))
            c.note_gone(n)
        elif what < 0.7 and len(c.there) > 1:
            n = rng.choice(sorted(c.there))  # replaced by another pod at the same address
            c.api.delete("pods", "pod-%d" % n)
            c.add(n)
            c.settle()
        elif what < 0.8:
            c.put_route(model="m", servers=[("chat", rng.randint(1, 100))])
        elif what < 0.85:
            c.put_server(port=c.backend.port, trafficPolicy={"timeout": "%ds" % rng.randint(20, 60)})
        elif what < 0.9:
            c.api.error_in_watches(410)
        elif what < 0.95:
            c.api.faults.cut_after, c.api.faults.cut_reset = rng.randint(1, 3000), rng.random() < 0.5
        else:
            c.api.close()
            c.api.forget()
            c.api.open()
        load.wait(rng.randint(5, 25))
    c.settle()
    load.stop()
    load.tell("random program %d, %d late" % (seed, len(c.late())))
    assert load.lost == [] and len(load.answers) > 400
    assert c.late() == []


def test_objects_made_again(start, tmp_path):
    """A ModelServer, a ModelRoute, or both, deleted and made again at once (`kubectl replace --force`), and a route that moves to a
    new server: nobody notices, and sessions stay where they are."""
    c = Cluster(start, tmp_path, slow_ok(0.002))
    for n in (1, 2):
        c.add(n)
    r = c.run()
    load = Load(r.port)
    load.wait(50)

    def in_force(timeout):
        return {"chat", "blue"} & {s["name"].partition("/")[2] for s in r.dump("modelservers")["modelservers"]
                                   if s["spec"]["timeoutMs"] == timeout * 1000}
    for i in range(12):
        name = "blue" if i % 4 == 3 else "chat"
        if i % 4 != 1:
            c.api.delete("modelservers", "blue" if i % 4 == 0 and i else "chat")
        if i % 4 != 0:
            c.api.delete("modelroutes", "chat")
        c.put_server(name, port=c.backend.port, trafficPolicy={"timeout": "%ds" % (20 + i)})
        c.put_route(servers=(name,))
        wait_until(lambda: in_force(20 + i) == {name}, "the new objects to be in force")
        load.wait(30)
    load.stop()
    load.tell("objects deleted and made again 12 times")
    assert load.lost == [] and c.late() == []
    assert r.dump("queues")["queues"][0]["trackedSessions"] > 0


def test_pod_that_goes_with_its_server(start, tmp_path):
    """Its server goes first and is in force for a moment more; the pod is out at once all the same."""
    c = Cluster(start, tmp_path, slow_ok(0.002))
    for n in (1, 2):
        c.add(n)
    r = c.run()
    c.api.delete("modelservers", "chat")
    c.remove(2, "delete")

    def left(n):
        line = r.stderr.wait_for_line("pod leaves.* pod=" + host(n, c.backend))
        return datetime.datetime.fromisoformat(line.split("Z ")[0][:26].ljust(26, "0"))
    assert left(1) - left(2) > datetime.timedelta(milliseconds=50)


def test_scaling_moves_no_session(start, tmp_path):
    """DS11: a third pod takes no session from the two; one that goes gives up its own, and only those."""
    c = Cluster(start, tmp_path, lambda q: q.reply(), session_sticky_wait="60s")
    for n in (1, 2):
        c.add(n)
    r = c.run()
    client = Client(r.port)

    def turn():
        before = len(c.backend.requests)
        for i in range(100):
            assert client.chat(session="s%d" % i, sent=time.monotonic()).answer().status == 200
        return {q.session: q.header("Host") for q in c.backend.requests[before:]}
    first = turn()
    assert sorted(collections.Counter(first.values()).values()) == [50, 50]
    c.add(3)
    c.settle()
    assert turn() == first  # 0 moved
    c.remove(1, "terminating")
    c.note_gone(1)
    third = turn()
    moved = {s for s in first if third[s] != first[s]}
    assert moved == {s for s in first if first[s] == host(1, c.backend)}
    client.close()


def test_scale_up_and_down_under_load(start, tmp_path):
    c = Cluster(start, tmp_path, slow_ok(0.005))
    c.add(1)
    r = c.run()
    load = Load(r.port, n=16)
    load.wait(50)
    for n in range(2, 7):
        c.add(n)
    c.settle()
    load.wait(200)
    for n in range(1, 6):
        c.remove(n, "terminating")
    c.settle()
    for n in range(1, 6):
        c.gone_at[n].append((time.monotonic(), "gone"))
    load.wait(100)
    load.stop()
    load.tell("1 to 6 pods and back to 1, %d late" % len(c.late()))
    assert load.lost == [] and c.late() == []
    assert len({q.header("Host") for q in c.backend.requests}) == 6


def test_outage_under_load(start, tmp_path):
    """The API server is gone, then back with another set of pods."""
    c = Cluster(start, tmp_path, slow_ok(0.002))
    for n in (1, 2):
        c.add(n)
    r = c.run()
    load = Load(r.port)
    load.wait(50)
    c.api.close()
    load.wait(500)
    assert r.get("/readyz").status == 200
    c.add(3)
    c.remove(1, "delete")
    c.api.forget()
    c.api.open()
    c.note_gone(1)
    load.wait(100)
    load.stop()
    load.tell("the API away and back with another set, %d late" % len(c.late()))
    assert load.lost == [] and c.late() == []
    for resource in ("pods", "modelservers", "modelroutes"):
        r.wait_metric("kthena_router_kubernetes_up", 1, resource=resource, timeout=10)
    assert len(r.stderr.all("the Kubernetes API fails")) <= 3  # once for each kind


@pytest.mark.parametrize("delay_ms", [0, 300 * SLOW])
def test_drain_under_load(start, tmp_path, delay_ms):
    """SIGTERM: not ready at once, the delay serves on, then what was accepted is finished; exit 0 and nothing cut. The clients go
    on as if nothing were until nobody listens: whoever could connect, or was promised a kept connection, is served."""
    c = Cluster(start, tmp_path, slow_ok(0.01), drain_delay="%dms" % delay_ms)
    for n in (1, 2):
        c.add(n)
    r = c.run()
    load = Load(r.port, n=12, until_refused=True)
    load.wait(50)
    stream = r.start_chat(stream=True, sent=time.monotonic())
    r.signal(signal.SIGTERM)
    if delay_ms:
        wait_until(lambda: r.get("/readyz").status == 503, "the router not to be ready")
        load.wait(30)
    load.join()
    assert stream.answer().status == 200
    assert r.wait_exit() == 0
    load.tell("SIGTERM under load")
    assert load.lost == []
    assert r.stderr.find("stopped requests_cut=0")


def test_second_signal_ends_at_once(start, tmp_path):
    c = Cluster(start, tmp_path, None)
    c.add(1)
    r = c.run()
    one = r.start_chat(sent=0)
    c.backend.next()
    r.signal(signal.SIGTERM)
    r.stderr.wait_for_line("draining")
    r.signal(signal.SIGTERM)
    assert one.answer().status == 503
    assert r.wait_exit() == 0
    assert r.stderr.find("stopped requests_cut=1")


def test_arriving_pod_takes_the_queue(start, tmp_path):
    """No pod at all, requests wait as the route is known; the first pod takes as many as it may at once."""
    c = Cluster(start, tmp_path, None)
    c.add(1)
    r = c.run()
    running = [r.start_chat(sent=0) for _ in range(4)]
    held = [c.backend.next() for _ in range(4)]
    c.remove(1, "unready")
    c.settle()
    assert r.chat(sent=0).status == 503
    c.add(1)
    c.settle()
    waiting = [r.start_chat(sent=0) for _ in range(6)]
    r.wait_queued(6)
    c.add(2)
    arrived = [c.backend.next() for _ in range(4)]
    assert {q.header("Host") for q in arrived} == {host(2, c.backend)}
    for q in held + arrived:
        q.reply()
    for q in (c.backend.next(), c.backend.next()):
        q.reply()
    assert [x.answer().status for x in running + waiting] == [200] * 10


def test_large_answer_does_not_stall_streams(start, tmp_path):
    """A list of 2,000 pods is read while an event stream runs: its events keep their pace, and no turn was long."""
    c = Cluster(start, tmp_path, None, metrics_scrape_interval="10s")
    for i in range(2000):
        c.put_pod("big-%d" % i, "127.1.%d.%d" % (i // 250, i % 250 + 1), labels={"app": "other"})
    c.add(1)
    r = c.run(wait=False)
    wait_until(lambda: r.get("/readyz").status == 200, "the router to know the 2,001 pods", 20 * SLOW)
    wait_until(lambda: c.api.watching() == 3, "the watches", 20)
    before = r.metrics()
    c.api.error_in_watches(410)
    wait_until(lambda: len(c.api.asked("list", "pods")) >= 10, "a second list in five pages", 20)
    wait_until(lambda: c.api.watching() == 3, "new watches", 20)
    after = r.metrics()
    name = "kthena_router_loop_turn_seconds"
    long_turns = [m.get(name + "_count") - m.get(name + "_bucket", le="0.1") for m in (before, after)]
    assert long_turns[1] == long_turns[0]
    assert json.loads(r.get("/debug/config_dump/kubernetes", "debug").body)["kubernetes"][0]["objects"] == 2001
