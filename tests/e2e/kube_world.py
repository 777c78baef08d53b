"""An API server, pods and a router that finds its pods there."""

import os

from kube_api import endpoint, model_route, model_server, pod as pod_object, slice_of
from pod import ok
from waiting import wait_until


def kubeconfig(tmp_path, api, user="{token: t0k3n}", cluster=""):
    path = os.path.join(str(tmp_path), "kubeconfig")
    with open(path, "w", encoding="utf-8") as f:
        f.write("apiVersion: v1\nkind: Config\ncurrent-context: c\n"
                "contexts: [{name: c, context: {cluster: c, user: u, namespace: default}}]\n"
                "clusters: [{name: c, cluster: {server: '%s'%s}}]\n"
                "users: [{name: u, user: %s}]\n" % (api.url, cluster, user))
    return path


class World:
    """options: of the router. user, cluster: of the kubeconfig, as YAML."""

    def __init__(self, start, tmp_path, api=None, user="{token: t0k3n}", cluster="", **options):
        self.start, self.tmp_path = start, tmp_path
        self.api = api or start.kube()
        self.options = {"kubeconfig": kubeconfig(tmp_path, self.api, user, cluster),
                        "router_kubernetes_watch_timeout": "5s", **options}
        self.ini = None

    def pod(self, script=ok):
        """Reached by every address of the loopback network."""
        return self.start.pod(script=script, host="0.0.0.0")

    def run(self, **options):
        self.router = self.start.router(ini=self.ini, **{**self.options, **options})
        return self.router

    def pods(self):
        return sorted(p["name"] for p in self.router.dump("pods")["pods"] if not p["leaving"])

    def wait_pods(self, *names, timeout=None):
        wait_until(lambda: self.pods() == sorted(names), "the pods to be %s" % (names,), timeout)


class ServiceWorld(World):
    """Pods by the Service "chat"; the model is m."""

    resource = "endpointslices"

    def __init__(self, start, tmp_path, service="chat", engine="none", **options):
        super().__init__(start, tmp_path, **options)
        self.ini = "[model-server s]\nservice = %s\nengine = %s\n[model-route m]\ntarget = s\n" % (service, engine)

    def put(self, *endpoints, name="chat-1", port=8000, **more):
        return self.api.put("endpointslices", slice_of("chat", name, list(endpoints), ports=(("http", port),), **more))

    def up(self, value, timeout=None):
        self.router.wait_metric("kthena_router_kubernetes_up", value, resource="endpointslices", timeout=timeout)


class KthenaWorld(World):
    """Pods by ModelServers and ModelRoutes."""

    def __init__(self, start, tmp_path, **options):
        super().__init__(start, tmp_path, **{"router_kubernetes": "true", **options})

    def put_pod(self, name, ip, labels=(("app", "chat"),), **more):
        return self.api.put("pods", pod_object(name, ip, dict(labels), **more))

    def put_server(self, name="chat", labels=(("app", "chat"),), port=8000, **more):
        return self.api.put("modelservers", model_server(name, dict(labels), port, **more))

    def put_route(self, name="chat", model="m", servers=("chat",), **more):
        return self.api.put("modelroutes", model_route(name, model, servers, **more))


__all__ = ["KthenaWorld", "ServiceWorld", "endpoint"]
