"""Pods by name: /etc/hosts, and a name server with its TTLs and faults."""

import pytest

from pod import ok
from waiting import wait_until

NAME = "pods.llm.svc.cluster.local"


class World:
    def __init__(self, start, tmp_path):
        self.start, self.dns = start, start.dns()
        self.conf = tmp_path / "resolv.conf"
        self.conf.write_text("nameserver 127.0.0.1:%d\nsearch llm.svc.cluster.local\noptions ndots:2\n" % self.dns.port)

    def set(self, v4=(), v6=()):
        self.dns.names[NAME] = {"A": list(v4), "AAAA": list(v6)}

    def run(self, port, name=NAME, key="dns", **options):
        ini = "[model-server s]\n%s = %s:%d\nengine = none\n[model-route m]\ntarget = s\n" % (key, name, port)
        options = {"router_resolv_conf": str(self.conf), "router_dns_ttl_min": "50ms", **options}
        self.router = self.start.router(ini=ini, **options)
        return self.router

    def pods(self):
        return sorted(p["name"].rpartition(":")[0] for p in self.router.dump("pods")["pods"] if not p["leaving"])

    def wait_pods(self, *addresses):
        wait_until(lambda: self.pods() == sorted(addresses), "the pods to be %s" % (addresses,))


@pytest.fixture
def world(start, tmp_path):
    return World(start, tmp_path)


def test_both_families(world, start):
    pod = start.pod(script=ok, host="::")
    world.set(["127.0.0.1", "127.0.0.2"], ["::1"])
    r = world.run(pod.port)
    assert world.pods() == ["127.0.0.1", "127.0.0.2", "[::1]"]
    for _ in range(6):
        assert r.chat().status == 200
    assert {q.header("Host") for q in pod.requests} == {"%s:%d" % (a, pod.port) for a in ("127.0.0.1", "127.0.0.2", "[::1]")}


def test_addresses_come_and_go(world):
    """DS8: a vanished address gets nothing new; a new order of the same ones is no change."""
    world.dns.ttl = 0
    world.set(["127.0.0.1", "127.0.0.2"])
    r = world.run(8000)
    assert world.pods() == ["127.0.0.1", "127.0.0.2"]
    world.set(["127.0.0.2", "127.0.0.1"])
    n = len(world.dns.asked)
    wait_until(lambda: len(world.dns.asked) >= n + 4, "two more look-ups")
    assert len(r.stderr.all("pod in use")) == 2 and not r.stderr.find("pod leaves")
    world.set(["127.0.0.2", "127.0.0.3"])
    world.wait_pods("127.0.0.2", "127.0.0.3")


def test_ttl_within_its_bounds(world):
    """The TTL says when to ask again, but not sooner than the floor and not later than the ceiling."""
    world.set(["127.0.0.1"])
    world.dns.ttl = 0
    world.run(8000, router_dns_ttl_min="300ms")
    wait_until(lambda: len(world.dns.times()) >= 4, "four look-ups")
    gaps = [b - a for a, b in zip(world.dns.times(), world.dns.times()[1:])]
    assert all(0.29 < g < 1 for g in gaps), gaps
    world.router.stop()
    world.dns.asked.clear()
    world.dns.ttl = 3600
    world.run(8000, router_dns_ttl_max="200ms")
    wait_until(lambda: len(world.dns.times()) >= 3, "three look-ups")
    world.router.stop()
    world.dns.asked.clear()
    world.dns.ttl = 1
    world.run(8000)
    wait_until(lambda: len(world.dns.times()) >= 2, "two look-ups")
    assert 0.99 < world.dns.times()[1] - world.dns.times()[0] < 2


@pytest.mark.parametrize("rcode", [2, 3, 5])
def test_last_good_answer_stays(world, rcode):
    world.dns.ttl = 0
    world.set(["127.0.0.1"], ["::1"])
    r = world.run(8000)
    world.dns.rcode = {"A": rcode, "AAAA": rcode}
    line = r.stderr.wait_for_line("cannot resolve a pod's name; the last good answer stays in use")
    assert "endpoints=2" in line and NAME in line
    n = len(world.dns.asked)
    wait_until(lambda: len(world.dns.asked) >= n + 4, "two more look-ups")
    assert world.pods() == ["127.0.0.1", "[::1]"]
    assert len(r.stderr.all("cannot resolve")) == 1
    world.dns.rcode = {}
    world.set(["127.0.0.4"])
    world.wait_pods("127.0.0.4")


def test_one_family_fails(world):
    """A family whose question fails keeps what it had; one that is said to be empty loses it."""
    world.dns.ttl = 0
    world.set(["127.0.0.1"], ["::1"])
    world.run(8000)
    world.dns.rcode = {"AAAA": 2}
    world.set(["127.0.0.2"])
    world.wait_pods("127.0.0.2", "[::1]")
    world.dns.rcode = {}
    world.wait_pods("127.0.0.2")


def test_truncated_answer_is_explained(world):
    world.set(["127.0.0.1"])
    world.dns.truncate = True
    r = world.run(8000)
    assert "512 bytes" in r.stderr.wait_for_line("cannot resolve")
    r.wait_metric("kthena_router_dns_up", 0, authority="%s:8000" % NAME)
    assert "512 bytes" in r.dump("modelservers")["modelservers"][0]["problem"]
    world.dns.truncate = False
    world.wait_pods("127.0.0.1")
    r.wait_metric("kthena_router_dns_up", 1, authority="%s:8000" % NAME)
    assert "problem" not in r.dump("modelservers")["modelservers"][0]


def test_as_many_as_fit(world):
    """28 addresses fit in a message; with more, what was known before stays, whether the server says that it cut them off or sends all."""
    world.dns.ttl = 0
    many = ["127.0.1.%d" % i for i in range(1, 41)]
    world.set(many[:28])
    r = world.run(8000)
    assert world.pods() == sorted(many[:28])
    world.set(many)
    assert "512 bytes" in r.stderr.wait_for_line("cannot resolve a pod's name; the last good answer stays in use")
    r.wait_metric("kthena_router_dns_up", 0, authority="%s:8000" % NAME)
    assert world.pods() == sorted(many[:28])


def test_silent_server(world):
    """Nobody answers: not ready until the question has been given up, then 503, and nothing else suffers."""
    world.set(["127.0.0.1"])
    world.dns.silent = True
    r = world.run(8000, wait=False)
    assert r.get("/readyz").status == 503
    world.dns.silent = False
    world.wait_pods("127.0.0.1")


def test_search_domain_and_single_name(world, start):
    """A name in a list of pods is one pod, called as written."""
    pod = start.pod(script=ok)
    world.set(["127.0.0.1"])
    r = world.run(pod.port, name="pods", key="pods")
    assert r.chat().status == 200
    assert pod.requests[0].header("Host") == "pods:%d" % pod.port


def test_reload_while_a_question_is_open(world, start):
    pod = start.pod(script=ok)
    world.dns.silent = True
    r = world.run(8000, wait=False)
    r.write_ini("[model-server s]\npods = %s\n[model-route m]\ntarget = s\n" % pod.authority)
    r.signal(1)
    r.stderr.wait_for_line(" reloaded")
    wait_until(lambda: r.chat().status == 200, "the new pod")


def test_name_in_etc_hosts(start):
    """Every address of the name is a pod; `localhost` comes from /etc/hosts."""
    pod = start.pod(script=ok)
    router = start.router(ini="[model-server s]\ndns = localhost:%d\n[model-route m]\ntarget = s\n" % pod.port)
    for _ in range(5):
        assert router.chat().status == 200
    assert len(pod.requests) == 5
    names = [p["name"] for p in router.dump("pods")["pods"]]
    assert "127.0.0.1:%d" % pod.port in names


def test_static_name(start):
    pod = start.pod(script=ok)
    router = start.router({"m": ["localhost:%d" % pod.port]})
    for _ in range(5):
        assert router.chat().status == 200
    assert pod.requests[-1].header("Host") == "localhost:%d" % pod.port


def test_name_that_does_not_resolve(start):
    pod = start.pod(script=ok)
    router = start.router(ini="[model-server s]\npods = no-such-host.invalid:80, %s\n[model-route m]\ntarget = s\n" % pod.authority)
    for _ in range(6):
        assert router.chat().status == 200
    assert len(pod.requests) == 6
