"""The chart, rendered by helm for a matrix of values. What it renders is given to the router itself: its environment and its INI
file must mean what the values say."""

import itertools
import json
import os
import re
import subprocess

import pytest
import yaml

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CHART = os.path.join(ROOT, "deploy/helm/kthena-router")
HELM, ROUTER = os.environ["HELM"], os.environ["ROUTER_BIN"]
CLUSTER = ["--kube-version", "1.29.0"]
BOOST = {"sessionBoost": {"enabled": True}}
FAIR = {"fairness": {"enabled": True}}
ROUTES = {"config": "[model-server s]\npods = 10.0.0.1:8000\n[model-route m]\ntarget = s\n"}


def merged(*parts):
    out = {}
    for part in parts:
        for key, value in part.items():
            out[key] = merged(out.get(key) or {}, value) if isinstance(value, dict) and isinstance(out.get(key, {}), dict) else value
    return out


def helm(command, values, tmp_path, *args):
    path = tmp_path / "values.yaml"
    path.write_text(yaml.safe_dump(values))
    return subprocess.run([HELM, *command, CHART, "--values", str(path), *args], capture_output=True, text=True, check=False)


def render(tmp_path, *values):
    done = helm(["template", "r"], merged(*values), tmp_path, "--namespace", "llm", *CLUSTER)
    assert done.returncode == 0, done.stderr
    docs = [d for d in yaml.safe_load_all(done.stdout) if d]
    for d in docs:
        assert d["apiVersion"] and d["kind"] and d["metadata"]["name"], d
    names = [(d["kind"], d["metadata"].get("namespace"), d["metadata"]["name"]) for d in docs]
    assert len(set(names)) == len(names), names
    return docs


def refused(tmp_path, text, *values):
    done = helm(["template", "r"], merged(*values), tmp_path, *CLUSTER)
    assert done.returncode != 0 and text in done.stderr, done.stderr or done.stdout


def of(docs, kind):
    return [d for d in docs if d["kind"] == kind]


def one(docs, kind):
    found = of(docs, kind)
    assert len(found) == 1, (kind, len(found))
    return found[0]


def pod(docs):
    return one(docs, "Deployment")["spec"]["template"]["spec"]


def env(docs):
    entries = pod(docs)["containers"][0]["env"]
    assert len({e["name"] for e in entries}) == len(entries), "a variable is given twice"
    assert all(isinstance(e["value"], str) for e in entries if "value" in e)
    return {e["name"]: e.get("value") for e in entries}


def router_ini(docs):
    texts = [d["data"]["router.ini"] for d in of(docs, "ConfigMap") if "router.ini" in d["data"]]
    assert len(texts) == 1
    return texts[0]


def effective(docs, tmp_path):
    """What the router makes of it, option -> value, and what it had to say."""
    ini = tmp_path / "router.ini"
    ini.write_text(router_ini(docs))
    variables = {k: v for k, v in env(docs).items() if v is not None}
    done = subprocess.run([ROUTER, "--print-config", "--config", str(ini)], env=variables, capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    return dict(re.findall(r"^(\w+) = (.*?) *; (?:default|ini|environment|flag)$", done.stdout, re.M)), done.stderr


def matrix():
    strategies = [{}, BOOST, FAIR]
    discovery = [ROUTES, {"backends": "m=10.0.0.1:8000"}, {"discovery": {"services": {"enabled": True, "namespaces": ["a", "b"]}},
                                                           "config": ROUTES["config"].replace("pods = 10.0.0.1:8000", "service = a/s:http")},
                 {"kubernetes": {"enabled": True}}, {"kubernetes": {"enabled": True, "namespace": "models"}}]
    extras = [{}, {"tls": {"enabled": True, "dnsName": "llm.example.org", "issuerRef": {"name": "ca", "kind": "ClusterIssuer"}},
                   "upstreamTLS": {"configMap": "pods-ca"}, "networkPolicy": {"enabled": True}, "replicas": 3,
                   "metrics": {"serviceMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}, "dashboard": {"enabled": True}},
                   "priorityClassName": "high", "tolerations": [{"key": "gpu"}], "nodeSelector": {"a": "b"},
                   "podLabels": {"team": "llm"}, "imagePullSecrets": [{"name": "x"}]}]
    return list(itertools.product(strategies, discovery, extras))


@pytest.mark.parametrize("strategy, discovery, extra", matrix())
def test_every_rendering_is_sound(tmp_path, strategy, discovery, extra):
    values = merged(strategy, discovery, extra)
    assert helm(["lint"], values, tmp_path, "--strict").returncode == 0
    docs = render(tmp_path, values)
    spec = pod(docs)
    container = spec["containers"][0]
    # Pod Security "restricted", and a read-only root.
    assert spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
    assert container["securityContext"] == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                                            "capabilities": {"drop": ["ALL"]}}
    assert all(set(v) - {"name"} <= {"configMap", "secret"} for v in spec["volumes"])
    assert {v["name"] for v in spec["volumes"]} == {m["name"] for m in container["volumeMounts"]}
    assert not spec["enableServiceLinks"] and container["resources"]["limits"]["memory"]
    scheme = "HTTPS" if values.get("tls") else "HTTP"
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["scheme"] == scheme
    # Selectors find the pod.
    labels = one(docs, "Deployment")["spec"]["template"]["metadata"]["labels"]
    selectors = [one(docs, "Deployment")["spec"]["selector"]["matchLabels"], one(docs, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"]]
    selectors += [s["spec"]["selector"] for s in of(docs, "Service")] + [n["spec"]["podSelector"]["matchLabels"] for n in of(docs, "NetworkPolicy")]
    assert all(s.items() <= labels.items() for s in selectors)
    for monitor in of(docs, "ServiceMonitor"):
        picked = [s for s in of(docs, "Service") if monitor["spec"]["selector"]["matchLabels"].items() <= s["metadata"]["labels"].items()]
        assert [s["metadata"]["name"] for s in picked] == ["kthena-router-metrics"]
    # Least privilege.
    rules = [(d["kind"], d["metadata"].get("namespace"), r["apiGroups"], r["resources"], r["verbs"])
             for kind in ("Role", "ClusterRole") for d in of(docs, kind) for r in d["rules"]]
    read = ["list", "watch"]
    expected = []
    if values.get("discovery"):
        expected += [("Role", ns, ["discovery.k8s.io"], ["endpointslices"], read) for ns in ("a", "b")]
    if values.get("kubernetes"):
        where = ("Role", "models") if values["kubernetes"].get("namespace") else ("ClusterRole", None)
        expected += [(*where, ["networking.serving.volcano.sh"], ["modelroutes", "modelservers"], read), (*where, [""], ["pods"], read)]
    assert rules == expected
    assert spec["automountServiceAccountToken"] is bool(expected)
    for binding in of(docs, "RoleBinding") + of(docs, "ClusterRoleBinding"):
        assert any(d["metadata"]["name"] == binding["roleRef"]["name"] and d["metadata"].get("namespace") == binding["metadata"].get("namespace")
                   for d in of(docs, binding["roleRef"]["kind"]))
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": spec["serviceAccountName"], "namespace": "llm"}]
    # The router takes it without a word.
    _, said = effective(docs, tmp_path)
    assert "error" not in said and ("warning" not in said or "no models are configured" in said), said


def effective_value(docs, tmp_path, name):
    out, said = effective(docs, tmp_path)
    assert not said, said
    return out[name]


@pytest.mark.parametrize("value, means", [(0, "0s"), ("0", "0s"), ("0s", "0s"), ("", "30s"), (None, "30s"), ("1m30s", "1m30s"), ("-1s", "-1s")])
def test_the_wait_limit_can_be_switched_off(tmp_path, value, means):
    docs = render(tmp_path, BOOST, ROUTES, {"sessionBoost": {"timeout": value}})
    assert effective_value(docs, tmp_path, "session_boost_timeout") == means


@pytest.mark.parametrize("path, value, option, means", [
    ("sessionBoost.gracePeriod", 0, "session_boost_grace_period", "0s"),
    ("sessionBoost.stickyWait", 0, "session_sticky_wait", "0s"),
    ("sessionBoost.sticky", "off", "session_sticky", "off"),
    ("sessionBoost.maxSessions", 10000000, "session_boost_max_sessions", "10000000"),
    ("accessLog.enabled", False, "access_log_enabled", "false"),
    ("drainDelay", 0, "drain_delay", "0s"),
    ("port", 18080, "port", "18080"),
    ("fairness.maxConcurrent", 0, "fairness_max_concurrent", "0"),
    ("fairness.inputTokenWeight", 0, "fairness_input_token_weight", "0"),
    ("fairness.outputTokenWeight", 0.25, "fairness_output_token_weight", "0.25"),
    ("fairness.windowSize", "1m", "fairness_window_size", "1m"),
    ("env.QUEUE_MAX_BYTES", 1073741824, "queue_max_bytes", "1GiB"),
])
def test_falsy_and_large_values_arrive(tmp_path, path, value, option, means):
    for key in reversed(path.split(".")):
        value = {key: value}
    docs = render(tmp_path, FAIR if path.startswith("fairness") else BOOST, ROUTES, value)
    assert effective_value(docs, tmp_path, option) == means


@pytest.mark.parametrize("values, text", [
    ({"sessionBoost": {"enabled": True}, "fairness": {"enabled": True}}, "sessionBoost.enabled and fairness.enabled are both true"),
    ({"env": {"ENABLE_FAIRNESS_SCHEDULING": "true"}}, "env.ENABLE_FAIRNESS_SCHEDULING: the chart has a value of its own"),
    ({**BOOST, "env": {"SESSION_BOOST_HEADER": "X"}}, "env.SESSION_BOOST_HEADER: the chart has a value of its own"),
    ({"extraEnv": [{"name": "ENABLE_SESSION_BOOST", "value": "true"}]}, "extraEnv: ENABLE_SESSION_BOOST is set by another value"),
    ({"terminationGracePeriodSeconds": 300}, "it must be more than drainDelay + drainTimeout, 305 s"),
    ({"drainTimeout": "1h0.5m", "terminationGracePeriodSeconds": 3000}, "drainDelay + drainTimeout, 3635 s"),
    ({"drainTimeout": "", "terminationGracePeriodSeconds": 30}, "drainDelay + drainTimeout, 305 s"),
    ({"drainTimeout": None, "terminationGracePeriodSeconds": 30}, "drainDelay + drainTimeout, 305 s"),
    ({"drainTimeout": "-5m"}, "drainTimeout is -5m: it cannot be negative"),
    ({"drainDelay": "-5s"}, "drainDelay is -5s: it cannot be negative"),
    ({"drainTimeout": 0}, "drainTimeout is 0"),
    ({"drainTimeout": "0s"}, "drainTimeout is 0"),
    ({"config": "[router]\nport = 9000\n"}, "config: port in [router] would have no effect, for the chart sets ROUTER_PORT"),
    ({"config": "[router]\n  port: 9000\n"}, "config: port in [router] would have no effect, for the chart sets ROUTER_PORT"),
    ({"config": "[model-server s]\nservice : chat:http\n"}, "service = chat:http needs discovery.services.enabled"),
    ({"config": "; x\n[ router ]\nsession_boost_timeout=5s\n[model-server s]\npods = a:1\n", **BOOST},
     "session_boost_timeout in [router] would have no effect, for the chart sets SESSION_BOOST_TIMEOUT"),
    ({"config": "[router]\nqueue_max_requests = 1\n", "env": {"QUEUE_MAX_REQUESTS": 2}}, "for the chart sets QUEUE_MAX_REQUESTS"),
    ({"config": "[router]\nbind = ::\n", "extraEnv": [{"name": "ROUTER_BIND", "value": "x"}]}, "for the chart sets ROUTER_BIND"),
    ({"port": 9090}, "port and metrics.port are both 9090"),
    ({"metrics": {"port": 15000}}, "metrics.port and debugPort are both 15000"),
    ({"debugPort": 8080}, "port and debugPort are both 8080"),
    ({"metrics": {"exposeOnRouterPort": True}}, "scrape metrics.port"),
    (merged(FAIR, {"fairness": {"queueTimeout": "0s"}}), "fairness.queueTimeout is 0s: the wait limit of fairness cannot be switched off"),
    (merged(FAIR, {"fairness": {"queueTimeout": "-1s"}}), "fairness.queueTimeout is -1s"),
    (merged(FAIR, {"fairness": {"windowSize": 0}}), "fairness.windowSize is 0: expected 1m to 1h"),
    (merged(FAIR, {"fairness": {"windowSize": "59.5s"}}), "fairness.windowSize is 59.5s: expected 1m to 1h"),
    (merged(FAIR, {"fairness": {"windowSize": "1h0.5s"}}), "fairness.windowSize is 1h0.5s: expected 1m to 1h"),
    ({"config": ROUTES["config"].replace("pods = 10.0.0.1:8000", "service = chat")}, "service = chat needs discovery.services.enabled"),
    ({"config": ROUTES["config"].replace("pods = 10.0.0.1:8000", "service = c/s"), "kubernetes": {"enabled": True}},
     "service = c/s needs discovery.services.enabled"),
    ({"config": ROUTES["config"].replace("pods = 10.0.0.1:8000", "service = c/s"), "discovery": {"services": {"enabled": True, "namespaces": ["a"]}}},
     "in the namespace c, which is not in discovery.services.namespaces"),
    ({"config": "[router]\nkubernetes = true\n"}, "use kubernetes.enabled"),
    ({"env": {"ROUTER_KUBERNETES": True}}, "use kubernetes.enabled"),
    ({"extraEnv": [{"name": "ROUTER_KUBERNETES", "value": "true"}]}, "use kubernetes.enabled"),
    ({"accessLog": {"output": "/var/log/access.log"}}, "accessLog.output is /var/log/access.log: the container's root is read-only"),
    (merged(BOOST, {"autoscaling": {"enabled": True, "minReplicas": 7}}), "autoscaling.minReplicas is 7: it cannot be more than"),
    (merged(BOOST, {"autoscaling": {"enabled": True, "targetQueueSize": 0}}), "autoscaling.targetQueueSize is 0: expected a quantity above 0"),
    (merged(BOOST, {"autoscaling": {"enabled": True, "targetQueueSize": "-5"}}), "autoscaling.targetQueueSize is -5"),
    ({"autoscaling": {"enabled": True}}, "without a strategy nothing is queued"),
    ({"sessionBoost": {"inflightPerPod": 0}}, "sessionBoost.inflightPerPod"),
    ({"sessionBoost": {"timeout": 30}}, "sessionBoost.timeout"),
    ({"sessionBoost": {"timeOut": "30s"}}, "timeOut"),
    ({"sessionBoost": {"timeout": "30 s"}}, "sessionBoost.timeout"),
    ({"accessLog": {"format": "xml"}}, "accessLog.format"),
    ({"tls": {"enabled": True, "issuerRef": {"name": "x"}}}, "tls.issuerRef needs tls.dnsName"),
])
def test_what_would_not_work_is_refused(tmp_path, values, text):
    refused(tmp_path, text, values)


@pytest.mark.parametrize("values", [
    {"drainTimeout": "", "drainDelay": None, "terminationGracePeriodSeconds": 301},
    {"fairness": {"enabled": True, "windowSize": "", "queueTimeout": None}},
    {"fairness": {"enabled": True, "windowSize": "60m", "queueTimeout": "1ms"}},
    {"autoscaling": {"enabled": True, "minReplicas": 3, "maxReplicas": 3, "targetQueueSize": "0.5k"}, **BOOST},
    {"metrics": {"exposeOnRouterPort": False}, "accessLog": {"output": "stderr"}, "env": {"TZ": "UTC"}},
    {"config": "[router]\nqueue_max_requests = 5\n[model-server s]\nservice = s\n",
     "discovery": {"services": {"enabled": True}}},
], ids=str)
def test_what_works_renders(tmp_path, values):
    render(tmp_path, values)


def test_autoscaling_by_the_queue(tmp_path):
    docs = render(tmp_path, BOOST, {"autoscaling": {"enabled": True, "targetQueueSize": 20, "targetCPUUtilizationPercentage": 80}})
    assert "replicas" not in one(docs, "Deployment")["spec"]
    metrics = one(docs, "HorizontalPodAutoscaler")["spec"]["metrics"]
    assert metrics[0]["pods"]["metric"]["name"] == "kthena_router_session_boost_queue_size"
    assert metrics[0]["pods"]["target"] == {"type": "AverageValue", "averageValue": "20"}
    assert metrics[1]["resource"]["target"]["averageUtilization"] == 80


def test_autoscaling_by_the_queue_of_fairness(tmp_path):
    docs = render(tmp_path, FAIR, {"autoscaling": {"enabled": True}})
    assert one(docs, "HorizontalPodAutoscaler")["spec"]["metrics"][0]["pods"]["metric"]["name"] == "kthena_router_fairness_queue_size"


def test_a_changed_configuration_rolls_the_deployment(tmp_path):
    def check_sum(config):
        return one(render(tmp_path, {"config": config}), "Deployment")["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
    assert check_sum("[router]") == check_sum("[router]") != check_sum("[router]\nqueue_max_requests = 5")


def test_alerts_and_dashboard_are_passed_on_untouched(tmp_path):
    docs = render(tmp_path, {"metrics": {"prometheusRule": {"enabled": True}, "dashboard": {"enabled": True}}})
    with open(CHART + "/files/alerts.yaml", encoding="utf-8") as f:
        assert one(docs, "PrometheusRule")["spec"] == yaml.safe_load(f)
    with open(CHART + "/files/dashboard.json", encoding="utf-8") as f:
        assert [json.loads(d["data"]["kthena-router.json"]) for d in of(docs, "ConfigMap") if "kthena-router.json" in d["data"]] == [json.load(f)]


def test_network_policy(tmp_path):
    def ports(part):
        return [p["port"] for p in part["ports"]]
    policy = one(render(tmp_path, {"networkPolicy": {"enabled": True, "clients": [{"podSelector": {}}], "podPorts": [8000, 30000]}}), "NetworkPolicy")["spec"]
    assert [ports(i) for i in policy["ingress"]] == [[8080], [9090]]
    assert policy["ingress"][0]["from"] == [{"podSelector": {}}] and "from" not in policy["ingress"][1]
    assert [ports(e) for e in policy["egress"]] == [[53, 53], [8000, 30000]]
    policy = one(render(tmp_path, {"networkPolicy": {"enabled": True}, "kubernetes": {"enabled": True}}), "NetworkPolicy")["spec"]
    assert [ports(e) for e in policy["egress"]] == [[53, 53], [8000], [443, 6443]]


def test_the_plain_form_is_what_the_chart_makes():
    made = subprocess.run([os.path.join(ROOT, "deploy/helm/plain"), HELM], capture_output=True, text=True, check=True).stdout
    with open(os.path.join(ROOT, "deploy/kubernetes.yaml"), encoding="utf-8") as f:
        assert f.read() == made, 'run "make generate-deploy"'
    docs = [d for d in yaml.safe_load_all(made) if d]
    assert "[model-server chat]" in router_ini(docs) and "helm" not in made.split("\n\n", 1)[1].lower()
