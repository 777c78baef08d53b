"""`ROUTER_KUBERNETES=true`: Kthena's ModelServers, ModelRoutes and the pods they select, without an INI file."""

import json
import os
import shutil
import subprocess

import pytest

from kube_api import model_route
from kube_world import KthenaWorld
from pod import ok
from test_errors import check_error
from test_fairness import usage
from waiting import DEADLINE, ROOT, wait_until


@pytest.fixture
def world(start, tmp_path):
    return lambda **options: KthenaWorld(start, tmp_path, **options)


def at(pod, address="127.0.0.1"):
    return "%s:%d" % (address, pod.port)


def wait_status(router, status, **options):
    wait_until(lambda: router.chat(**options).status == status, "status %d" % status)


def test_no_ini(world):
    """A server, its pods, a route: that is all."""
    w = world()
    pod = w.pod()
    w.put_pod("a", "127.0.0.1")
    w.put_pod("b", "127.0.0.2")
    w.put_pod("other", "127.0.0.3", labels={"app": "x"})
    w.put_pod("elsewhere", "127.0.0.4", namespace="kube-system")
    w.put_server(port=pod.port, model="Qwen/Qwen2.5-7B-Instruct")
    w.put_route()
    r = w.run()
    assert w.pods() == [at(pod), at(pod, "127.0.0.2")]
    assert r.chat().status == 200
    assert pod.requests[0].json()["model"] == "Qwen/Qwen2.5-7B-Instruct"
    assert json.loads(r.get("/v1/models").body)["data"][0]["id"] == "m"
    assert not r.stderr.find("WARN|ERROR")


def test_namespace_of_a_route(world):
    """A route's targets are servers of its own namespace, a server's pods those of its own."""
    w = world()
    one, two = w.pod(), w.pod()
    for ns, pod in (("one", one), ("two", two)):
        w.put_pod("p", "127.0.0.1", namespace=ns)
        w.put_server(port=pod.port, namespace=ns)
        w.put_route(model="m-" + ns, namespace=ns)
    r = w.run()
    assert r.chat(model="m-one").status == r.chat(model="m-two").status == 200
    assert len(one.requests) == len(two.requests) == 1
    assert [x["name"] for x in r.dump("modelservers")["modelservers"]] == ["one/chat", "two/chat"]


def test_one_namespace(world):
    w = world(router_kubernetes_namespace="one")
    pod = w.pod()
    for ns in ("one", "two"):
        w.put_pod("p", "127.0.0.1", namespace=ns)
        w.put_server(port=pod.port, namespace=ns)
        w.put_route(model="m-" + ns, namespace=ns)
    r = w.run()
    assert r.chat(model="m-one").status == 200 and r.chat(model="m-two").status == 404


def test_pods_that_are_used(world):
    """Ready, with an address, not on their way out; a change counts at once, and running requests finish."""
    w = world()
    pod = w.pod(None)
    w.put_server(port=pod.port)
    w.put_route()
    w.put_pod("a", "127.0.0.1")
    w.put_pod("starting", "127.0.0.2", ready=False)
    w.put_pod("leaving", "127.0.0.3", deleting=True)
    w.put_pod("placeless", "")
    r = w.run()
    assert w.pods() == [at(pod)]
    c = r.start_chat(stream=True)
    running = pod.next()
    running.start().event("one")
    w.put_pod("starting", "127.0.0.2")
    w.put_pod("a", "127.0.0.1", deleting=True)
    w.wait_pods(at(pod, "127.0.0.2"))
    running.event("[DONE]").end()
    assert c.answer().status == 200
    w.api.delete("pods", "starting")
    w.wait_pods()
    assert r.chat().status == 503


def test_labels_come_and_go(world):
    w = world()
    w.put_server(labels={"app": "chat", "tier": "gpu"})
    w.put_route()
    w.put_pod("a", "127.0.0.1")
    w.run()
    assert w.pods() == []
    w.put_pod("a", "127.0.0.1", labels={"app": "chat", "tier": "gpu"})
    w.wait_pods("127.0.0.1:8000")
    w.put_server(labels={"app": "chat"}, port=9000)
    w.put_pod("b", "127.0.0.2")
    w.wait_pods("127.0.0.1:9000", "127.0.0.2:9000")
    w.api.delete("modelservers", "chat")
    w.wait_pods()


def test_recreated_pod(world):
    """The same name and address, another uid: another pod."""
    w = world()
    pod = w.pod(None)
    w.put_server(port=pod.port)
    w.put_route()
    w.put_pod("a-0", "127.0.0.1")
    r = w.run()
    c = r.start_chat()
    first = pod.next()
    w.api.put("pods", json.loads(json.dumps(w.api.objects["pods"][("default", "a-0")])), uid="another")
    wait_until(lambda: len(r.dump("pods")["pods"]) == 2, "both pods to be known")
    first.reply()
    assert c.answer().status == 200
    wait_until(lambda: len(r.dump("pods")["pods"]) == 1, "the first pod to be gone")


@pytest.mark.parametrize("same", [True, False])
def test_session_of_a_pod_that_was_replaced(world, same):
    """A session goes back to its pod, but not to another one that has that pod's address now: its prefix is not there."""
    w = world()
    pod = w.pod(None)
    w.put_server(port=pod.port)
    w.put_route()
    w.put_pod("a", "127.0.0.1")
    r = w.run()
    c = r.start_chat(session="s")
    pod.next().reply()
    assert c.answer().status == 200
    if not same:
        w.api.put("pods", json.loads(json.dumps(w.api.objects["pods"][("default", "a")])), uid="another")
    w.put_pod("b", "127.0.0.2")
    w.wait_pods(at(pod), at(pod, "127.0.0.2"))
    busy = [r.start_chat() for _ in range(2)]
    running = {q.header("Host"): q for q in (pod.next(), pod.next())}
    running.pop(at(pod, "127.0.0.2")).reply()
    wait_until(lambda: [p["inFlight"] for p in r.dump("pods")["pods"] if p["name"] == at(pod, "127.0.0.2")] == [0], "b to be idle")
    second = r.start_chat(session="s")
    q = pod.next()
    assert q.header("Host") == (at(pod) if same else at(pod, "127.0.0.2"))
    q.reply()
    for q in running.values():
        q.reply()
    assert second.answer().status == 200 and [x.answer().status for x in busy] == [200, 200]


def test_routes_come_and_go(world):
    w = world()
    pod = w.pod()
    w.put_pod("a", "127.0.0.1")
    w.put_server(port=pod.port)
    r = w.run()
    assert r.chat().status == 404
    w.put_route()
    wait_status(r, 200)
    w.put_route(model="n")
    wait_status(r, 200, model="n")
    wait_status(r, 404)
    w.api.delete("modelroutes", "chat")
    wait_status(r, 404, model="n")


def test_route_without_its_server(world):
    """Known, but nobody is there: 503, as for a server without pods. What waits when its server goes waits on for it."""
    w = world(session_boost_inflight_per_pod="1")
    pod = w.pod(None)
    w.put_pod("a", "127.0.0.1")
    w.put_route()
    r = w.run()
    answer = r.chat()
    assert answer.status == 503 and answer.json()["error"]["code"] == "no_usable_pod"
    assert r.metrics().total("kthena_router_requests_total", status_code="503", model="m", model_route="default/chat",
                             backend_name="default/chat") == 1
    w.put_server(port=pod.port)
    w.wait_pods(at(pod))
    one = r.start_chat()
    running = pod.next()
    two = r.queue_chat(1)
    w.api.delete("modelservers", "chat")
    w.wait_pods()
    assert r.chat().status == 503 and r.queue_len() == 1
    running.reply()
    assert one.answer().status == 200
    w.put_server(port=pod.port)
    pod.next().reply()
    assert two.answer().status == 200


def test_other_targets_stand_in_for_a_missing_server(world):
    w = world()
    pod = w.pod()
    w.put_pod("a", "127.0.0.1")
    w.put_server(port=pod.port)
    w.put_route(servers=[("gone", 90), ("chat", 10)])
    r = w.run()
    assert [r.chat().status for _ in range(5)] == [200] * 5


def test_rules(world):
    """Headers, weights, adapters: as the Go router has them."""
    w = world()
    pods = {name: w.pod() for name in ("plain", "premium", "canary")}
    for name, pod in pods.items():
        w.put_pod(name, "127.0.0.1", labels={"app": name})
        w.put_server(name, labels={"app": name}, port=pod.port, model="base")
    w.api.put("modelroutes", {"metadata": {"name": "r"}, "spec": {
        "modelName": "m", "loraAdapters": ["lora-a"],
        "rules": [{"name": "premium", "modelMatch": {"headers": {"user-type": {"exact": "premium"}}},
                   "targetModels": [{"modelServerName": "premium", "weight": 100}]},
                  {"name": "rest", "targetModels": [{"modelServerName": "plain", "weight": 90},
                                                    {"modelServerName": "canary", "weight": 10}]}]}})
    r = w.run()
    assert r.chat(headers=[("User-Type", "premium")]).status == 200
    assert len(pods["premium"].requests) == 1
    for _ in range(20):
        assert r.chat().status == 200
    assert (len(pods["plain"].requests), len(pods["canary"].requests)) == (18, 2)
    assert r.chat(model="lora-a").status == 200
    last = [q for p in pods.values() for q in p.requests if q.json()["model"] == "lora-a"]
    assert len(last) == 1  # the adapter's name is the pods' business


def test_oldest_route_first(world):
    w = world()
    pods = {name: w.pod() for name in ("old", "new")}
    for name, pod in pods.items():
        w.put_pod(name, "127.0.0.1", labels={"app": name})
        w.put_server(name, labels={"app": name}, port=pod.port)
    for name, when in (("new", "2026-02-01T00:00:00Z"), ("old", "2026-01-01T00:00:00Z")):
        route = model_route(name, "m", [name])
        route["metadata"]["creationTimestamp"] = when
        w.api.put("modelroutes", route)
    r = w.run()
    assert r.chat().status == 200
    assert len(pods["old"].requests) == 1
    w.api.delete("modelroutes", "old")
    wait_until(lambda: r.chat().status == 200 and pods["new"].requests, "the other route")


def test_beside_the_ini_file(world, start):
    w = world()
    pod, own = w.pod(), start.pod(script=ok)
    w.ini = "[model-server s]\npods = %s\n[model-route own]\ntarget = s\n" % own.authority
    w.put_pod("a", "127.0.0.1")
    w.put_server(port=pod.port)
    w.put_route()
    r = w.run()
    assert r.chat().status == r.chat(model="own").status == 200
    r.write_ini(w.ini.replace("own]", "owned]"))
    r.signal(1)
    wait_status(r, 200, model="owned")
    assert r.chat().status == 200 and r.chat(model="own").status == 404


def test_unsupported_fields(world):
    """Said once by name, shown in the dump, and the rest of the object counts."""
    w = world()
    pod = w.pod()
    w.put_pod("a", "127.0.0.1")
    for name in ("chat", "other"):
        w.put_server(name, port=pod.port, trafficPolicy={"timeout": "20s", "retry": {"attempts": 3}}, kvConnector={"type": "nixl"})
    w.put_route(rateLimit={"inputTokensPerUnit": 10, "unit": "minute"})
    w.api.put("modelroutes", {"metadata": {"name": "ext"}, "spec": {"modelName": "e", "futureField": 1, "rules": [
        {"targetModels": [{"externalModelProviderName": "openai"}]}]}})
    w.put_route("gateway", model="g", parentRefs=[{"name": "gw"}])
    r = w.run()
    assert r.chat().status == 200
    for kind, field in (("ModelServer", "spec.trafficPolicy.retry"), ("ModelServer", "spec.kvConnector"), ("ModelRoute", "spec.rateLimit"),
                        ("ModelRoute", "spec.rules.targetModels.externalModelProviderName"), ("ModelRoute", "spec.futureField")):
        said = "a field is not supported.* kind=%s field=%s object=default/" % (kind, field)
        assert r.stderr.wait_for_line(said) and len(r.stderr.all(said)) == 1, field
    assert "Gateway" in r.stderr.wait_for_line("an object is not used.*default/gateway")
    objects = {(o["kind"], o["name"]): o for o in r.dump("kubernetes")["kubernetes"] if "kind" in o}
    assert objects["ModelServer", "default/other"]["unsupported"] == ["spec.trafficPolicy.retry", "spec.kvConnector"]
    assert objects["ModelRoute", "default/chat"]["used"] and not objects["ModelRoute", "default/gateway"]["used"]
    assert r.chat(model="g").status == 404
    resources = {o["resource"]: o for o in r.dump("kubernetes")["kubernetes"] if "resource" in o}
    assert resources["modelservers"] == {"resource": "modelservers", "objects": 2, "synced": True, "up": True}
    timeouts = [s["spec"]["timeoutMs"] for s in r.dump("modelservers")["modelservers"]]
    assert timeouts == [20000, 20000]


def test_warnings(world):
    """What is wrong in an object is said once for each generation and shown in the dump as long as it is so."""
    w = world()
    w.put_pod("a", "127.0.0.1")
    w.put_pod("bad", "127.0.0.0.1")
    w.put_server(engine="TGI")
    w.put_route(servers=[("chat", 1), ("gone", -5)])
    w.put_route("none", model="n", servers=())
    r = w.run()
    said = {"no IP address": "Pod default/bad", "expected vLLM or SGLang": "ModelServer default/chat",
            r"targetModels\[1\].weight is -5: expected a whole number": "ModelRoute default/chat",
            "takes no request: there is no target": "ModelRoute default/none", "names a ModelServer that does not exist.*default/gone": "default/chat"}
    for text, who in said.items():
        assert who.rpartition(" ")[2] in r.stderr.wait_for_line("WARN.*" + text), text
    wait_until(lambda: w.api.watching() == 3, "three watches")
    w.api.error_in_watches(410)
    wait_until(lambda: len(w.api.asked("list")) >= 6 and w.api.watching() == 3, "everything to be listed again")
    for text in said:
        assert len(r.stderr.all(text)) == 1, text

    def shown():
        return {"%s %s" % (o["kind"], o["name"]): o for o in r.dump("kubernetes")["kubernetes"] if "kind" in o}
    objects = shown()
    assert objects["Pod default/bad"]["problem"] and len([k for k in objects if k.startswith("Pod")]) == 1
    assert len(objects["ModelServer default/chat"]["warnings"]) == 1 and objects["ModelServer default/chat"]["unsupported"] == []
    assert objects["ModelRoute default/chat"]["warnings"][1] == "there is no ModelServer default/gone"
    w.put_server("gone")
    wait_until(lambda: len(shown()["ModelRoute default/chat"]["warnings"]) == 1, "the server to be there")
    w.put_route(servers=[("chat", 1), ("gone", -6)])
    r.stderr.wait_for_line("weight is -6")


def test_pod_of_two_servers_that_differ(world):
    """One pod is spoken to in one way: as its first server says, which is said once, and as the other one when that goes."""
    w = world()
    pod = w.pod()
    w.put_pod("a", "127.0.0.1")
    w.put_server(port=pod.port, engine="SGLang")
    r = w.run()
    w.put_server("other", port=pod.port)
    w.put_route(servers=("other",))
    wait_status(r, 200)
    line = r.stderr.wait_for_line("two model-servers say different things of one pod")
    assert "model_server=default/other first=default/chat differs=engine" in line

    def as_known():
        return [(p["engine"], p["setBy"], p["leaving"]) for p in r.dump("pods")["pods"]]
    assert as_known() == [("SGLang", "default/chat", False)]
    w.put_pod("b", "127.0.0.2")
    w.wait_pods(at(pod), at(pod, "127.0.0.2"))
    assert len(r.stderr.all("two model-servers say")) == 1
    w.api.delete("modelservers", "chat")
    wait_until(lambda: as_known() == [("vLLM", "default/other", False)] * 2, "the other server to have the pods")
    assert r.chat().status == 200
    assert not r.stderr.find("pod leaves")
    w.api.delete("modelservers", "other")
    w.wait_pods()


def test_not_ready_before_everything_is_known(world):
    """Part of what the cluster has is never in force: no 404 for a route that is still being read."""
    w = world()
    pod = w.pod()
    w.put_pod("a", "127.0.0.1")
    w.put_server(port=pod.port)
    w.put_route()
    w.api.faults.token = "right"
    r = w.run(wait=False)
    r.stderr.wait_for_line("Kubernetes API fails")
    assert r.get("/readyz").status == 503 and r.get("/healthz").status == 200
    w.api.faults.token = None
    wait_until(lambda: r.get("/readyz").status == 200, "the router to be ready", 10)
    assert r.chat().status == 200


def test_missing_definitions(world):
    """A cluster without Kthena: the server's words, once for each kind."""
    w = world()
    w.api.faults.missing = {"modelroutes", "modelservers"}
    r = w.run(wait=False)
    for kind in w.api.faults.missing:
        assert "status 404 the server could not find" in r.stderr.wait_for_line("Kubernetes API fails.*" + kind)
    assert r.get("/readyz").status == 503


def test_queue_of_a_model_survives_its_objects(world):
    """A spec that changes keeps queue and sessions of the model; a route that goes ends its queue with 404."""
    w = world(session_boost_inflight_per_pod="1")
    pod = w.pod(None)
    w.put_pod("a", "127.0.0.1")
    w.put_server(port=pod.port)
    w.put_route()
    r = w.run()
    one = r.start_chat(session="s")
    first = pod.next()
    two = r.queue_chat(1, session="s")
    w.put_server(port=pod.port, model="renamed")
    wait_until(lambda: [s["spec"]["model"] for s in r.dump("modelservers")["modelservers"]] == ["renamed"], "the new spec")
    assert r.queue_len() == 1
    first.reply()
    second = pod.next()
    assert one.answer().status == 200
    assert r.dump("queues")["queues"][0]["trackedSessions"] == 1
    three = r.queue_chat(1)
    w.api.delete("modelroutes", "chat")
    assert three.answer().status == 404
    second.reply()
    assert two.answer().status == 200


def test_users_and_limits_outlive_the_targets_of_a_model(world):
    """A ModelRoute gets a second target and loses the first one: one window, one limit, whatever runs and waits."""
    w = world(boost=False, enable_fairness_scheduling="true", fairness_max_concurrent="1")
    a, b = w.pod(None), w.pod(None)
    for name, pod in (("a", a), ("b", b)):
        w.put_pod(name, "127.0.0.1", labels={"app": name})
        w.put_server(name, labels={"app": name}, port=pod.port)
    w.put_route(servers=["a"])
    r = w.run()
    clients = []

    def chat(user, tag):
        clients.append(r.start_chat(headers=[("X-User-ID", user)], tag=tag))

    def wait_queues(**lengths):
        want = {"default/" + name: n for name, n in lengths.items()}
        wait_until(lambda: {q["modelServer"]: q["length"] for q in r.dump("queues")["queues"]} == want, want)

    chat("heavy", "used")
    a.next().reply(body=usage(1000, 0))
    assert clients[0].answer().status == 200
    chat("x", "running")
    held = a.next()
    chat("heavy", "heavy")
    wait_queues(a=1)
    w.put_route(servers=[("a", 1), ("b", 1)])
    wait_queues(a=1, b=0)
    chat("light", "light-a")
    wait_queues(a=2, b=0)
    chat("light", "light-b")
    wait_queues(a=2, b=1)
    w.put_route(servers=[("b", 1)])
    wait_queues(b=3)
    [name] = r.dump("users")["users"]
    assert (name["waiting"], name["running"], b.active) == (3, 1, 0)
    held.reply(body={})
    for tag in ("light-b", "light-a", "heavy"):
        held = b.next()
        assert held.tag == tag and b.active == 1
        held.reply(body={})
    assert [c.answer().status for c in clients[1:]] == [200] * 4


def test_rules_that_are_not_understood_do_not_match_everything(world):
    """A uri that is a text, as one may write it by hand: its rule is left out, and said; the others count. Many labels are no hindrance."""
    w = world()
    pod = w.pod()
    w.put_pod("p1", "127.0.0.1", labels=[("l%02d" % i, "x") for i in range(200)] + [("zapp", "chat")])
    w.put_server(labels=(("zapp", "chat"),), port=pod.port)
    w.put_server("nothing", labels=(("zapp", "none"),), port=pod.port)
    w.put_route(servers=("chat",), rules=[
        {"modelMatch": {"uri": "/v1/nothing"}, "targetModels": [{"modelServerName": "nothing"}]},
        {"targetModels": [{"modelServerName": "chat"}]}])
    w.put_route("other", "n", rules=[{"modelMatch": "x", "targetModels": [{"modelServerName": "chat"}]}])
    r = w.run()
    assert r.chat().status == 200
    assert "spec.rules[0].modelMatch.uri is not an object; the rule is left out" in r.stderr.wait_for_line("an object is not as it should be")
    assert r.chat(model="n").status == 404
    assert "none of its spec.rules is understood" in r.stderr.wait_for_line("an object is not used")


KUBECTL = shutil.which("kubectl")


def kubectl(w, *args, stdin=None):
    done = subprocess.run([KUBECTL, "--kubeconfig", w.options["kubeconfig"], "--cache-dir", str(w.tmp_path / "cache"), *args], input=stdin,
                          capture_output=True, text=True, timeout=DEADLINE * 4, env={"HOME": str(w.tmp_path), "PATH": os.environ["PATH"]})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_kubectl_apply(world):
    """Upstream's quick start by kubectl: apply a ModelServer and a ModelRoute, and the follow-up turn is boosted."""
    w = world()
    pod = w.pod()
    w.put_pod("deepseek-r1-1-5b-abc", "127.0.0.1", labels={"app": "deepseek-r1-1-5b"})
    r = w.run()
    manifest = """
apiVersion: networking.serving.volcano.sh/v1alpha1
kind: ModelServer
metadata:
  name: deepseek-r1-1-5b
  namespace: default
spec:
  workloadSelector:
    matchLabels:
      app: deepseek-r1-1-5b
  workloadPort:
    port: %d
  model: "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B"
  inferenceEngine: "vLLM"
  trafficPolicy:
    timeout: 10s
---
apiVersion: networking.serving.volcano.sh/v1alpha1
kind: ModelRoute
metadata:
  name: deepseek-simple
  namespace: default
spec:
  modelName: "deepseek-r1"
  rules:
  - name: "default"
    targetModels:
    - modelServerName: "deepseek-r1-1-5b"
""" % pod.port
    out = kubectl(w, "apply", "--validate=false", "-f", "-", stdin=manifest)
    assert "deepseek-simple created" in out and "deepseek-r1-1-5b created" in out
    wait_status(r, 200, model="deepseek-r1", session="alice")
    assert r.chat(model="deepseek-r1", session="alice").status == 200
    assert r.stderr.wait_for_line("session boost: dequeued.* model=deepseek-r1 session=alice boosted=true .*pod=127.0.0.1:%d" % pod.port)
    assert pod.requests[-1].json()["model"] == "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B"
    out = kubectl(w, "apply", "--validate=false", "-f", "-", stdin=manifest.replace('"deepseek-r1"', '"deepseek-r2"'))
    assert "deepseek-simple configured" in out and "deepseek-r1-1-5b unchanged" in out
    wait_status(r, 200, model="deepseek-r2")
    listed = json.loads(kubectl(w, "get", "modelroutes,modelservers", "-o", "json"))
    assert [o["metadata"]["name"] for o in listed["items"]] == ["deepseek-simple", "deepseek-r1-1-5b"]
    assert "deepseek-r1-1-5b-abc" in kubectl(w, "get", "pods", "-o", "name")
    kubectl(w, "delete", "modelroute", "deepseek-simple", "--wait=false")
    wait_status(r, 404, model="deepseek-r2")


def test_manifest_of_the_readme(world):
    """What README "Kthena's objects" applies leads to a boosted follow-up."""
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as f:
        manifest = f.read().partition("kubectl apply -f - <<'END'\n")[2].partition("    END\n")[0].replace("\n    ", "\n").strip(" ")
    w = world()
    pod = w.pod()
    w.put_pod("deepseek-0", "127.0.0.1", labels={"app": "deepseek"})
    r = w.run()
    kubectl(w, "apply", "--validate=false", "-f", "-", stdin=manifest.replace("port: 8000", "port: %d" % pod.port))
    wait_status(r, 200, model="deepseek")
    for boosted in ("false", "true"):
        assert r.chat(model="deepseek", session="alice").status == 200
        assert r.stderr.wait_for_line("session boost: dequeued.* session=alice boosted=%s .*pod=%s" % (boosted, at(pod)))
    assert pod.requests[-1].json()["model"] == "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B"


@pytest.mark.parametrize("limit", ["0s", "300ms"])
def test_no_model_is_denied_before_the_cluster_is_known(world, limit):
    """Also when ROUTER_SYNC_TIMEOUT has made the router ready: who asks for what may exist is told to come again."""
    w = world(router_sync_timeout=limit)
    pod = w.pod()
    w.put_pod("a", "127.0.0.1")
    w.put_server(port=pod.port)
    w.put_route()
    w.ini = "[model-server s]\npods = %s\n[model-route local]\ntarget = s\n" % pod.authority
    w.api.faults.hang = True
    r = w.run(wait=False)
    if limit != "0s":
        wait_until(lambda: r.get("/readyz").status == 200, "the limit to be over")
    for model in ("m", "nobody"):
        check_error(r.chat(model=model), 503, "not_synced", "server_error", retry_after=True)
    assert r.chat(model="local").status == 200
    w.api.faults.hang = False
    wait_status(r, 200, model="m")
    check_error(r.chat(model="nobody"), 404, "route_not_found")
