"""`service = ...`: EndpointSlices by list and watch, and every way in which that goes wrong. The rows DS1 to DS10 of
what operators of other routers report are here; lists and watches of any kind of object run through the same client."""

import json
import os
import subprocess

import pytest

from daemon import run_router
from kube_api import endpoint, slice_of
from kube_world import ServiceWorld
from pod import ok
from waiting import DEADLINE, wait_until

INI = "[model-server s]\nservice = %s\nengine = %s\n[model-route m]\ntarget = s\n"


@pytest.fixture
def world(start, tmp_path):
    return lambda **options: ServiceWorld(start, tmp_path, **options)


def at(pod, address="127.0.0.1"):
    return "%s:%d" % (address, pod.port)


# ---- the set ----

def test_pods_come_and_go(world):
    w = world()
    pod = w.pod()
    w.put(endpoint("127.0.0.1"), port=pod.port)
    r = w.run()
    assert r.chat().status == 200
    assert w.pods() == [at(pod)]
    w.put(endpoint("127.0.0.1"), endpoint("127.0.0.2"), port=pod.port)
    w.wait_pods(at(pod), at(pod, "127.0.0.2"))
    w.put(endpoint("127.0.0.2"), port=pod.port)
    w.wait_pods(at(pod, "127.0.0.2"))
    w.api.delete("endpointslices", "chat-1")
    w.wait_pods()
    assert r.chat().status == 503


def test_conditions(world):
    """DS5: a pod that is not ready or terminates gets nothing new, and finishes what it runs."""
    w = world()
    pod = w.pod(None)
    w.put(endpoint("127.0.0.1"), endpoint("127.0.0.2", ready=False), endpoint("127.0.0.3", terminating=True), port=pod.port)
    r = w.run()
    assert w.pods() == [at(pod)]
    c = r.start_chat(stream=True)
    running = pod.next()
    running.start().event("one")
    w.put(endpoint("127.0.0.1", ready=False, serving=True, terminating=True), endpoint("127.0.0.2"), port=pod.port)
    w.wait_pods(at(pod, "127.0.0.2"))
    other = r.start_chat()
    pod.next().reply()
    assert other.answer().status == 200
    running.event("[DONE]").end()
    assert c.answer().status == 200
    assert running.header("Host") == at(pod)


def test_named_port_and_both_families(world, start):
    w = world(service="llm/chat:api")
    pod = start.pod(script=ok, host="::")
    w.api.put("endpointslices", slice_of("chat", "v4", [endpoint("127.0.0.1")], ports=(("metrics", 1), ("api", pod.port)), namespace="llm"))
    w.api.put("endpointslices", slice_of("chat", "v6", [endpoint("::1")], ports=(("api", pod.port),), kind="IPv6", namespace="llm"))
    w.api.put("endpointslices", slice_of("chat", "other", [endpoint("127.0.0.9")], ports=(("api", pod.port),), namespace="default"))
    r = w.run()
    assert w.pods() == sorted([at(pod), "[::1]:%d" % pod.port])
    hosts = set()
    for _ in range(4):
        assert r.chat().status == 200
    for q in pod.requests:
        hosts.add(q.header("Host"))
    assert hosts == {at(pod), "[::1]:%d" % pod.port}


def test_slice_without_the_port_is_said(world):
    w = world(service="chat:grpc")
    w.put(endpoint("127.0.0.1"))
    r = w.run()
    assert "no such port" in r.stderr.wait_for_line("an EndpointSlice is not used")
    assert r.chat().status == 503


def test_number_that_no_slice_has_is_said(world):
    """The Service's port where the pods have another one: used as written, and not without a word."""
    w = world(service="chat:1")
    w.put(endpoint("127.0.0.1"))
    r = w.run()
    assert "no port of the EndpointSlice has the number" in r.stderr.wait_for_line("an EndpointSlice is used, and may be wrong")
    assert w.pods() == ["127.0.0.1:1"]


def test_service_that_does_not_exist_is_said(world):
    """Once for each time that it has no slices."""
    w = world(service="chat")
    pod = w.pod()
    r = w.run()
    said = "a Service has no EndpointSlices: does it exist"
    assert 'service=chat' in r.stderr.wait_for_line(said)
    assert r.chat().status == 503
    w.put(endpoint("127.0.0.1"), port=pod.port)
    w.wait_pods(at(pod))
    assert len(r.stderr.all(said)) == 1
    w.put(endpoint("127.0.0.1"), name="chat-2", port=pod.port)
    w.api.delete("endpointslices", "chat-1")
    w.api.delete("endpointslices", "chat-2")
    wait_until(lambda: len(r.stderr.all(said)) == 2, "the second warning")


def test_same_address_other_pod(world):
    """Pods are known by uid: a new pod at an old address is a new pod, with a count of its own."""
    w = world(session_boost_inflight_per_pod="1")
    pod = w.pod(None)
    w.put(endpoint("127.0.0.1", uid="first"), port=pod.port)
    r = w.run()
    one = r.start_chat()
    first = pod.next()
    w.put(endpoint("127.0.0.1", uid="second"), port=pod.port)
    wait_until(lambda: len(r.dump("pods")["pods"]) == 2, "both pods to be known")
    two = r.start_chat()
    pod.next().reply()
    assert two.answer().status == 200
    assert one.silent_for(0.05)
    first.reply()
    assert one.answer().status == 200
    wait_until(lambda: len(r.dump("pods")["pods"]) == 1, "the first pod to be gone")
    assert r.metric("kthena_router_pod_inflight_requests", None, pod=at(pod)) == 0


def test_queued_request_goes_to_a_pod_that_arrives(world):
    w = world(session_boost_inflight_per_pod="1")
    pod = w.pod(None)
    w.put(endpoint("127.0.0.1"), port=pod.port)
    r = w.run()
    one = r.start_chat()
    first = pod.next()
    two = r.queue_chat(1)
    w.put(endpoint("127.0.0.1"), endpoint("127.0.0.2"), port=pod.port)
    second = pod.next()
    assert second.header("Host") == at(pod, "127.0.0.2")
    for q in (first, second):
        q.reply()
    assert one.answer().status == two.answer().status == 200


# ---- lists and watches ----

def test_pages(world):
    w = world()
    for i in range(1203):
        w.put(endpoint("127.1.%d.%d" % (i // 250, i % 250 + 1)), name="chat-%04d" % i)
    w.run()
    assert len(w.pods()) == 1203
    lists = w.api.asked("list", "endpointslices")
    assert len(lists) == 3 and all(q[3]["limit"] == "500" for q in lists)
    assert lists[0][3]["labelSelector"] == "kubernetes.io/service-name=chat"


def test_page_expires(world):
    """410 in the middle of a list: from the beginning, and nothing is lost."""
    w = world()
    for i in range(700):
        w.put(endpoint("127.1.%d.%d" % (i // 250, i % 250 + 1)), name="chat-%04d" % i)
    w.api.faults.expire_pages = 1
    w.run()
    assert len(w.pods()) == 700


def test_watch_goes_on_from_its_version(world):
    """A watch that ends in good order goes on without a list, and misses nothing."""
    w = world(router_kubernetes_watch_timeout="1s")
    w.put(endpoint("127.0.0.1"))
    w.run()
    w.wait_pods("127.0.0.1:8000")
    wait_until(lambda: len(w.api.asked("watch")) >= 3, "a third watch")
    w.put(endpoint("127.0.0.2"))
    w.wait_pods("127.0.0.2:8000")
    w.api.forget()  # everything before that event
    n = len(w.api.asked("watch"))
    wait_until(lambda: len(w.api.asked("watch")) >= n + 2, "two more watches")
    assert len(w.api.asked("list")) == 1
    assert w.router.stderr.find("Kubernetes API (fails|answers)") is None


@pytest.mark.parametrize("reset", [False, True])
def test_dropped_watch_loses_no_deletion(world, reset):
    """DS1, DS2: what was deleted while no watch stood is gone."""
    w = world()
    w.put(endpoint("127.0.0.1"), name="a")
    w.put(endpoint("127.0.0.2"), name="b")
    w.run()
    wait_until(lambda: w.api.watching() == 1, "a watch")
    w.api.close()
    w.api.delete("endpointslices", "a")
    if reset:
        w.api.forget()
    w.api.open()
    w.wait_pods("127.0.0.2:8000")
    w.up(1)


@pytest.mark.parametrize("inside", [True, False])
def test_expired_watch(world, inside):
    """DS3: 410 as an event, and as a status."""
    w = world(router_kubernetes_watch_timeout="1s")
    w.put(endpoint("127.0.0.1"), name="a")
    w.run()
    wait_until(lambda: w.api.watching() == 1, "a watch")
    if inside:
        w.api.error_in_watches(410)
    else:
        w.api.faults.expire_watches = True
    wait_until(lambda: len(w.api.asked("list")) >= 2, "a second list")
    w.api.faults.expire_watches = False
    w.put(endpoint("127.0.0.3"), name="a")
    w.wait_pods("127.0.0.3:8000")
    assert len(w.api.asked("list")) < 6
    assert w.router.stderr.find("Kubernetes API fails") is None  # it is in the nature of the API


def test_410_for_ever_is_no_storm(world):
    """DS3: a server that never lets a watch stand is asked ever less often."""
    w = world()
    w.api.faults.expire_watches = True
    w.run()
    wait_until(lambda: len(w.api.asked("list")) >= 4, "four lists", 10)
    times = [q[0] for q in w.api.asked("list")]
    assert times[-1] - times[0] > 0.7


def test_error_event(world):
    w = world()
    w.put(endpoint("127.0.0.1"), name="a")
    w.run()
    wait_until(lambda: w.api.watching() == 1, "a watch")
    w.api.error_in_watches(500, "etcd leader changed")
    assert "etcd leader changed" in w.router.stderr.wait_for_line("Kubernetes API fails")
    w.up(1)
    assert len(w.api.asked("list")) == 2


def test_silent_watch(world):
    """DS4: a watch that stands and says nothing, not even bookmarks, past its end is dead: list anew."""
    w = world(router_kubernetes_watch_timeout="1s")
    w.put(endpoint("127.0.0.1"), name="a")
    w.api.faults.silent_watches = True
    w.run()
    w.put(endpoint("127.0.0.2"), name="a")
    w.wait_pods("127.0.0.2:8000", timeout=20)
    assert w.router.stderr.wait_for_line("Kubernetes API fails; what was last known stays in use")
    w.api.faults.silent_watches = False
    w.up(1, timeout=20)
    w.put(endpoint("127.0.0.3"), name="a")
    w.wait_pods("127.0.0.3:8000")


def test_watch_without_an_end(world):
    """A server that minds no timeoutSeconds but sends bookmarks: the router ends the watch itself and goes on."""
    w = world(router_kubernetes_watch_timeout="1s", api=None)
    w.api.faults.ignore_timeout = True
    w.api.bookmark_every = 0.2
    w.put(endpoint("127.0.0.1"), name="a")
    w.run()
    wait_until(lambda: len(w.api.asked("watch")) >= 2, "a second watch", 8)
    assert len(w.api.asked("list")) == 1


def test_cut_at_any_byte(world):
    """A list or a watch that breaks off anywhere, in good order or not."""
    w = world()
    w.put(endpoint("127.0.0.1"), name="a")
    whole = 1100
    for i, cut in enumerate(range(1, whole, 275)):
        w.api.faults.cut_after, w.api.faults.cut_reset = cut, i % 2 == 1
        r = w.run()
        w.wait_pods("127.0.0.1:8000", timeout=10)
        r.stop()
    w.run()
    for i, cut in enumerate((1, 400, 900)):
        wait_until(lambda: w.api.watching() == 1, "a watch", 10)
        w.api.faults.cut_after, w.api.faults.cut_reset = cut, i % 2 == 1
        w.put(endpoint("127.0.0.%d" % (i + 2)), name="a")
        w.wait_pods("127.0.0.%d:8000" % (i + 2), timeout=10)


@pytest.mark.parametrize("garbage", [b"<html>502</html>", b'{"kind":"List"}', b'{"items":[{"metadata":}],"metadata":{}}', b"", b"[1]",
                                     b'{"metadata":{"resourceVersion":"1"},"items":[{"a"'])
def test_garbage(world, garbage):
    w = world()
    w.put(endpoint("127.0.0.1"), name="a")
    w.api.faults.garbage = garbage
    r = w.run()
    assert w.pods() == ["127.0.0.1:8000"]
    assert r.stderr.wait_for_line("Kubernetes API fails; nothing is known yet")


EVENT = (b'{"type":"MODIFIED","object":{"metadata":{"name":"a","namespace":"default","uid":"u","resourceVersion":"9"},'
         b'"endpoints":[{"addresses":["127.0.0.9"],"note":"}]"}]}}')


def watch_breaks(w, data, address):
    """The bytes stand in the watch; then the pods change, and the router must come to know it. The server may not have
    noticed yet that the watch before is over: each of them gets the bytes."""
    wait_until(lambda: w.api.watching() > 0, "a watch")
    lists = len(w.api.asked("list"))
    w.api.raw_in_watches(data)
    w.put(endpoint(address), name="a")
    w.wait_pods(address + ":8000")
    assert len(w.api.asked("list")) == lists + 1
    w.up(1)


@pytest.mark.parametrize("at", range(1, len(EVENT), 19))
def test_event_that_breaks_off(world, at):
    """An event that ends with its line, or runs into the next one, wherever it breaks off: said, and listed anew at once."""
    w = world(router_kubernetes_watch_timeout="60s")  # no watch ends by itself meanwhile
    w.put(endpoint("127.0.0.1"), name="a")
    w.run()
    watch_breaks(w, EVENT[:at] + b"\n", "127.0.0.2")
    watch_breaks(w, EVENT[:at], "127.0.0.3")
    watch_breaks(w, EVENT[:at] + b"\0\xff{]" + EVENT[at:] + b"\n", "127.0.0.4")
    why = w.router.stderr.all("Kubernetes API fails; what was last known stays in use")
    assert len(why) == 3 and all(" of the watch " in x for x in why)


@pytest.mark.parametrize("data", [b"{}\n", b"{}{}\n", b"\xff\n", b'{"type":"ADDED"}\n', b'{"type":"MODIFIED","object":{"metadata":{}}}\n',
                                  b'{"type":"SOMETHING","object":{"metadata":{"uid":"u","name":"n"}}}\n'])
def test_line_that_is_no_event(world, data):
    w = world(router_kubernetes_watch_timeout="60s")
    w.put(endpoint("127.0.0.1"), name="a")
    w.run()
    watch_breaks(w, data, "127.0.0.2")
    assert len(w.router.stderr.all("Kubernetes API fails; what was last known stays in use")) == 1


def test_half_event_then_silence(world):
    """What stands half there for 5 s is not coming any more, and the watch is of no use, long before it would have ended."""
    w = world(router_kubernetes_watch_timeout="60s")
    w.put(endpoint("127.0.0.1"), name="a")
    w.api.bookmark_every = 60
    w.run()
    wait_until(lambda: w.api.watching() == 1, "a watch")
    w.api.raw_in_watches(EVENT[:70])
    assert "half an event, and then silence" in w.router.stderr.wait_for_line("Kubernetes API fails; what was last known", timeout=20)
    w.put(endpoint("127.0.0.2"), name="a")
    w.wait_pods("127.0.0.2:8000")
    w.up(1)


def test_slow_event_is_whole(world):
    """An event that comes in pieces is an event."""
    w = world(router_kubernetes_watch_timeout="60s")
    w.put(endpoint("127.0.0.1"), name="a")
    w.run()
    wait_until(lambda: w.api.watching() == 1, "a watch")
    event = json.dumps({"type": "MODIFIED", "object": dict(w.api.objects["endpointslices"]["default", "a"], endpoints=[endpoint("127.0.0.2")])})
    for i in range(0, len(event), 100):
        w.api.raw_in_watches(event[i:i + 100].encode())
        wait_until(lambda: not any(x.queue for x in w.api.watches), "the piece to be sent")
    w.api.raw_in_watches(b"\r\n")
    w.wait_pods("127.0.0.2:8000")
    assert len(w.api.asked("list")) == 1


def test_odd_objects(world):
    """Objects that make no sense are passed over, the others count."""
    w = world()
    w.api.put("endpointslices", {"metadata": {"name": "odd", "labels": {"kubernetes.io/service-name": "chat"}}, "addressType": 7,
                                 "endpoints": "x"})
    w.api.put("endpointslices", slice_of("chat", "fqdn", [endpoint("a.example")], kind="FQDN"))
    w.put(endpoint("127.0.0.1"), name="a")
    w.run()
    assert w.pods() == ["127.0.0.1:8000"]
    w.put(endpoint("127.0.0.2"), name="a")
    w.wait_pods("127.0.0.2:8000")
    assert len(w.api.asked("list")) == 1


# ---- refusals, outages ----

def test_token_rotates(world, tmp_path):
    """401 after a rotation: the token is read anew, nothing is said, nothing is lost."""
    token = tmp_path / "token"
    token.write_text("old\n")
    w = world(user="{tokenFile: token}", router_kubernetes_watch_timeout="1s")
    w.api.faults.token = "old"
    w.put(endpoint("127.0.0.1"), name="a")
    w.run()
    wait_until(lambda: w.api.watching() == 1, "a watch")
    token.write_text("new\n")
    w.api.faults.token = "new"
    w.api.drop_connections()
    w.put(endpoint("127.0.0.2"), name="a")
    w.wait_pods("127.0.0.2:8000")
    assert w.router.stderr.find("Kubernetes API fails") is None


def test_wrong_token_is_said_once(world):
    w = world()
    w.api.faults.token = "right"
    r = w.run(wait=False)
    line = r.stderr.wait_for_line("Kubernetes API fails; nothing is known yet")
    assert "401" in line and "endpointslices" in line and w.api.url in line
    wait_until(lambda: len(w.api.asked("list")) >= 4, "more attempts", 10)
    assert len(r.stderr.all("Kubernetes API fails")) == 1
    assert r.get("/readyz").status == 503
    w.api.faults.token = None
    wait_until(lambda: r.get("/readyz").status == 200, "the router to be ready", 10)
    w.up(1)
    assert r.stderr.wait_for_line("Kubernetes API answers again")


@pytest.mark.parametrize("verb", ["list", "watch"])
def test_missing_right(world, verb):
    """RBAC: what is forbidden is said in the server's words, once, though the other verb works."""
    w = world()
    w.put(endpoint("127.0.0.1"), name="a")
    w.api.faults.deny = {verb}
    r = w.run(wait=False)
    assert "cannot %s resource" % verb in r.stderr.wait_for_line("Kubernetes API fails")
    wait_until(lambda: len(w.api.asked(verb)) >= 3, "three attempts", 10)
    assert len(r.stderr.all("Kubernetes API (fails|answers)")) == 1
    w.up(0)
    assert r.get("/readyz").status == (503 if verb == "list" else 200)
    assert r.metric("kthena_router_kubernetes_failures_total", resource="endpointslices", reason="denied") >= 2


def test_retry_after(world):
    w = world()
    w.api.faults.refuse = (429, "TooManyRequests", 2)
    r = w.run(wait=False)
    r.stderr.wait_for_line("Kubernetes API fails")
    w.api.faults.refuse = None
    wait_until(lambda: r.get("/readyz").status == 200, "the router to be ready", 10)
    times = [q[0] for q in w.api.asked("list")]
    assert times[1] - times[0] >= 1.9


def test_sync_timeout(world):
    w = world()
    w.api.faults.hang = True
    r = w.run(wait=False, router_sync_timeout="2s")
    assert r.get("/readyz").status == 503
    wait_until(lambda: r.get("/readyz").status == 200, "the limit to be over")
    w.api.faults.hang = False


def test_outage(world):
    """The API is gone for as long as it likes: the last set serves, the gauge and one line say so, and what changed
    meanwhile counts when it is back."""
    w = world()
    pod = w.pod()
    w.put(endpoint("127.0.0.1"), name="a", port=pod.port)
    r = w.run()
    wait_until(lambda: w.api.watching() == 1, "a watch")
    w.api.close()
    w.up(0)
    for _ in range(20):
        assert r.chat().status == 200
    assert r.get("/readyz").status == 200
    r.stderr.wait_for_line("Kubernetes API fails; what was last known stays in use")
    assert len(r.stderr.all("Kubernetes API fails; what was last known stays in use")) == 1
    w.put(endpoint("127.0.0.2"), name="a", port=pod.port)
    w.api.forget()
    w.api.open()
    w.up(1, timeout=30)
    w.wait_pods(at(pod, "127.0.0.2"))
    r.stderr.wait_for_line("Kubernetes API answers again")
    assert len(r.stderr.all("Kubernetes API answers again")) == 1
    assert r.chat().status == 200


# ---- TLS ----

@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    d = str(tmp_path_factory.mktemp("tls"))

    def openssl(*args):
        subprocess.run(["openssl", *args], cwd=d, check=True, capture_output=True, timeout=DEADLINE * 4)

    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=ca",
            "-keyout", "ca.key", "-out", "ca.crt")
    for name, san in (("ip", "IP:127.0.0.1"), ("name", "DNS:kubernetes")):
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=" + name,
                "-keyout", name + ".key", "-out", name + ".csr")
        with open(os.path.join(d, name + ".ext"), "w", encoding="ascii") as f:
            f.write("subjectAltName=%s\n" % san)
        openssl("x509", "-req", "-days", "2", "-in", name + ".csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
                "-extfile", name + ".ext", "-out", name + ".crt")
    return lambda name: os.path.join(d, name)


def tls_api(start, certificates, name):
    return start.kube(tls=(certificates(name + ".crt"), certificates(name + ".key")))


def test_tls_verified(world, start, certificates):
    w = world(api=tls_api(start, certificates, "ip"), cluster=", certificate-authority: '%s'" % certificates("ca.crt"))
    w.put(endpoint("127.0.0.1"), name="a")
    w.run()
    assert w.pods() == ["127.0.0.1:8000"]
    assert w.api.requests[0][4] == "t0k3n"
    assert w.router.stderr.find("not verified") is None


@pytest.mark.parametrize("name,ca", [("ip", None), ("name", "ca.crt")])
def test_tls_not_trusted(world, start, certificates, name, ca):
    """An unknown CA, and a certificate of another name: nothing is sent, not even the token."""
    cluster = ", certificate-authority: '%s'" % certificates(ca) if ca else ""
    w = world(api=tls_api(start, certificates, name), cluster=cluster)
    r = w.run(wait=False)
    assert "certificate" in r.stderr.wait_for_line("Kubernetes API fails")
    assert w.api.requests == []
    assert r.get("/readyz").status == 503


def test_tls_server_name(world, start, certificates):
    w = world(api=tls_api(start, certificates, "name"),
              cluster=", certificate-authority: '%s', tls-server-name: kubernetes" % certificates("ca.crt"))
    w.put(endpoint("127.0.0.1"), name="a")
    w.run()
    assert w.pods() == ["127.0.0.1:8000"]


def test_insecure_is_asked_for_and_said(world, start, certificates):
    w = world(api=tls_api(start, certificates, "name"))
    w.put(endpoint("127.0.0.1"), name="a")
    w.run(router_kubernetes_insecure="true")
    assert w.pods() == ["127.0.0.1:8000"]
    assert w.router.stderr.wait_for_line("certificate of the Kubernetes API server is not verified")


def test_as_a_pod(world, start, certificates, tmp_path):
    """In the cluster: the service account's files and the two variables."""
    api = tls_api(start, certificates, "ip")
    account = tmp_path / "account"
    account.mkdir()
    (account / "token").write_text("in-cluster")
    (account / "namespace").write_text("llm")
    (account / "ca.crt").write_text(open(certificates("ca.crt"), encoding="ascii").read())
    api.faults.token = "in-cluster"
    w = world(api=api)
    w.put(endpoint("127.0.0.1"), name="a", namespace="llm")
    w.run(kubeconfig=None, router_kubernetes_account=str(account),
          env={"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(api.port)})
    assert w.pods() == ["127.0.0.1:8000"]


# ---- configuration ----

def test_no_api_is_an_error(tmp_path):
    ini = tmp_path / "r.ini"
    ini.write_text(INI % ("chat", "vllm"))
    done = run_router("--port", "0", "--metrics-port", "0", "--debug-port", "0", "--config", str(ini))
    assert done.returncode == 1 and "KUBERNETES_SERVICE_HOST is not set" in done.stderr
    done = run_router("--port", "0", "--metrics-port", "0", "--debug-port", "0", "--config", str(ini), "--kubeconfig", "/no/such")
    assert done.returncode == 1 and "/no/such: No such file" in done.stderr


@pytest.mark.parametrize("user, what", [("{exec: {command: aws, args: [eks, get-token]}}", "exec"), ("{auth-provider: {name: gcp}}", "auth-provider"),
                                        ("{username: u, password: p}", "username"), ("{token: t, as: root}", "as")])
def test_kubeconfig_that_is_refused(tmp_path, user, what):
    """Who we are by way of a program, a password or as somebody else: said with the file, the word and what to do, at the start."""
    ini, config = tmp_path / "r.ini", tmp_path / "kubeconfig"
    ini.write_text(INI % ("chat", "vllm"))
    config.write_text("current-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"
                      "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\nusers: [{name: u, user: %s}]\n" % user)
    done = run_router("--port", "0", "--metrics-port", "0", "--debug-port", "0", "--config", str(ini), "--kubeconfig", str(config))
    assert done.returncode == 1
    assert "%s: %s of a user is not supported; expected token, tokenFile or a client certificate" % (config, what) in done.stderr


POD = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"}
FILE = ("current-context: c\ncontexts: [{name: c, context: {cluster: c, user: %s}}]\n"
        "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'%s}}]\nusers: [{name: u, user: %s}]\n")


@pytest.mark.parametrize("text, env, said", [
    (None, {"KUBECONFIG": "/nonexist"}, "/nonexist: No such file"),
    (None, {"KUBECONFIG": "/tmp"}, "/tmp: Is a directory"),
    (None, {}, "KUBERNETES_SERVICE_HOST is not set"),
    (None, {**POD, "ROUTER_KUBERNETES_ACCOUNT": "/nonexist"}, "/nonexist/ca.crt: No such file"),
    ("", {}, "there is no current-context"),
    (FILE % ("u", "", "{exec: {command: x}}"), {}, "exec of a user is not supported"),
    (FILE % ("u", ", proxy-url: 'http://x'", "{}"), {}, "proxy-url of a cluster is not supported"),
    (FILE % ("zz", "", "{}"), {}, 'user "zz" is not in the file'),
    (FILE % ("u", ", certificate-authority-data: '***'", "{}"), {}, "certificate-authority-data is not the base64"),
    (FILE % ("u", ", certificate-authority: nope", "{}"), {}, "nope: No such file"),
    (FILE % ("u", "", "{tokenFile: /nope}"), {}, "/nope: No such file"),
    (FILE % ("u", "", "{token: x}"), {"ROUTER_KUBERNETES_NAMESPACE": "Bad/NS"}, 'ROUTER_KUBERNETES_NAMESPACE is "Bad/NS"'),
    (FILE % ("u", "", "{token: x}"), {}, None),
], ids=str)
@pytest.mark.parametrize("how", ["objects", "service", "nothing"])
def test_check_reads_the_way_to_the_api(tmp_path, how, text, env, said):
    """With the other problems, and without the network. Where nothing comes from the API it is not read."""
    ini, config = tmp_path / "r.ini", tmp_path / "kubeconfig"
    ini.write_text(INI % ("chat", "none") if how == "service" else "[model-server s]\npods = 127.0.0.1:1\n[model-route m]\ntarget = s\n")
    env = {**env, "ROUTER_KUBERNETES": str(how == "objects").lower(), "QUEUE_MAX_REQUESTS": "x"}
    if text is not None:
        config.write_text(text)
        env["KUBECONFIG"] = str(config)
    done = run_router("--check", "--config", str(ini), env=env)
    assert done.returncode == 1 and "QUEUE_MAX_REQUESTS" in done.stderr
    if said and (how != "nothing" or "NAMESPACE is" in said):
        assert said in done.stderr and "2 problem(s)" in done.stderr
    else:
        assert "1 problem(s)" in done.stderr


def test_server_under_another_name_keeps_its_path(world, tmp_path):
    """tls-server-name and a server behind a path, as managers of several clusters have it."""
    path = tmp_path / "other"
    path.write_text(FILE.replace("127.0.0.1:1", "127.0.0.1:1/k8s/c-1") % ("u", ", tls-server-name: api.example", "{token: x}"))
    w = world(kubeconfig=str(path))
    r = w.run(router_sync_timeout="100ms")
    assert "https://api.example:1/k8s/c-1" in r.stderr.wait_for_line("Kubernetes API")


def test_reload(world, start, tmp_path):
    """A reload may bring the first Service; one that has no way to the API is refused."""
    w = world()
    pod = w.pod()
    w.put(endpoint("127.0.0.1"), port=pod.port)
    r = w.router = start.router({"m": [pod]}, ini="", **w.options)
    r.write_ini("[model-server s]\nservice = chat\nengine = none\n[model-route n]\ntarget = s\n")
    r.signal(1)
    r.stderr.wait_for_line(" reloaded")
    wait_until(lambda: r.chat(model="n").status == 200, "the Service's pods")
    assert r.chat(model="m").status == 200
    assert at(pod) in w.pods()
