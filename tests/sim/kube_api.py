"""A stand-in for the Kubernetes API server: it keeps objects, lists them in pages and lets them be watched, with the
semantics that clients rely on (one growing resourceVersion, watches that go on from a version, bookmarks, 410 for what
is forgotten), and with the faults that real ones show. Objects come out as real clusters write them: uid, generation,
managedFields and all. Also enough of discovery for kubectl get, delete and apply (with
--validate=false: there is no OpenAPI here).

Tests drive it directly: put(), delete(), and the knobs in `faults`."""

import base64
import collections
import datetime
import json
import re
import socket
import ssl
import threading
import time
import urllib.parse
import uuid

KINDS = {  # resource: (group, version, kind)
    "pods": ("", "v1", "Pod"),
    "services": ("", "v1", "Service"),
    "endpointslices": ("discovery.k8s.io", "v1", "EndpointSlice"),
    "modelroutes": ("networking.serving.volcano.sh", "v1alpha1", "ModelRoute"),
    "modelservers": ("networking.serving.volcano.sh", "v1alpha1", "ModelServer"),
}
EVENTS_KEPT = 1000


def api_version(resource):
    group, version, _ = KINDS[resource]
    return "%s/%s" % (group, version) if group else version


class Faults:
    """What the server does wrong. All are off."""

    def __init__(self):
        self.refuse = None            # (status, reason, seconds of Retry-After or None): for every list and watch
        self.token = None             # the only bearer token that is let in; None = anybody
        self.missing = set()          # resources that the server does not know
        self.deny = set()             # verbs that are forbidden: "list", "watch"
        self.silent_watches = False   # heads are sent and then nothing, for ever
        self.hang = False             # not even a head
        self.no_bookmarks = False
        self.expire_watches = False   # watches are answered with HTTP 410
        self.expire_pages = 0         # so many requests for a later page of a list are answered with HTTP 410
        self.cut_after = None         # the next answer's connection is cut after so many bytes of body; then None
        self.cut_reset = False        # ... by RST instead of FIN
        self.body_delay = 0.0         # seconds before each chunk of a list
        self.garbage = None           # bytes to send as the next body instead; then None
        self.ignore_timeout = False   # watches do not end by themselves


class Watch:
    def __init__(self, resource, namespace, selector, bookmarks):
        self.resource, self.namespace, self.selector, self.bookmarks = resource, namespace, selector, bookmarks
        self.queue = collections.deque()
        self.known = set()  # uids that this watch shows
        self.closed = False


def matches(selector, labels):
    """Equality only: key=value,key2==value2."""
    for term in filter(None, (selector or "").split(",")):
        key, _, value = term.replace("==", "=").partition("=")
        if (labels or {}).get(key) != value:
            return False
    return True


class KubeApi:
    def __init__(self, tls=None, port=0, bookmark_every=1.0, host="127.0.0.1"):
        """tls: (certificate file, key file)."""
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.version = 100
        self.objects = {r: {} for r in KINDS}         # (namespace, name) -> object
        self.events = {r: collections.deque(maxlen=EVENTS_KEPT) for r in KINDS}  # (version, type, object)
        self.forgotten = {r: 0 for r in KINDS}        # versions up to this one have no events any more
        self.faults = Faults()
        self.watches = []
        self.requests = []                            # (time, verb, resource, query, token)
        self.bookmark_every = bookmark_every
        self.context = None
        if tls:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(*tls)
        self.connections = set()
        self.listener = None
        self.host, self.port = host, port
        self.open()

    # ---- being there or not ----

    def open(self):
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind((self.host, self.port))
        self.listener.listen(128)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self.listener,), daemon=True).start()

    def close(self):
        """Gone: connects are refused, open connections die."""
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.drop_connections()

    stop = close

    def drop_connections(self):
        with self.lock:
            for c in list(self.connections):
                try:
                    c.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
            self.changed.notify_all()

    @property
    def url(self):
        return "%s://127.0.0.1:%d" % ("https" if self.context else "http", self.port)

    # ---- objects ----

    def put(self, resource, obj, uid=None):
        """Creates or replaces; returns what is stored."""
        with self.lock:
            meta = obj.setdefault("metadata", {})
            namespace = meta.setdefault("namespace", "default")
            key = (namespace, meta["name"])
            old = self.objects[resource].get(key)
            self.version += 1
            stored = json.loads(json.dumps(obj))
            stored["apiVersion"], stored["kind"] = api_version(resource), KINDS[resource][2]
            m = stored["metadata"]
            m["uid"] = uid or m.get("uid") or (old["metadata"]["uid"] if old else str(uuid.uuid4()))
            m["resourceVersion"] = str(self.version)
            m["generation"] = old["metadata"]["generation"] + 1 if old else 1
            m.setdefault("creationTimestamp", old["metadata"]["creationTimestamp"] if old else
                         datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"))
            m["managedFields"] = [{
                "manager": "kube-api", "operation": "Update", "apiVersion": stored["apiVersion"], "time": m["creationTimestamp"],
                "fieldsType": "FieldsV1",
                "fieldsV1": {"f:metadata": {"f:labels": {".": {}, **{"f:" + k: {} for k in m.get("labels") or {}}}},
                             "f:spec": {"f:" + k: {} for k in stored.get("spec", {})}, "k:{\"a\":\"}]\"}": {"[": {}}}}]
            if old and old["metadata"]["uid"] != m["uid"]:
                self._event(resource, "DELETED", {**old, "metadata": {**old["metadata"], "resourceVersion": str(self.version)}})
                self.version += 1
                m["resourceVersion"] = str(self.version)
                old = None
            self.objects[resource][key] = stored
            self._event(resource, "MODIFIED" if old else "ADDED", stored)
            return stored

    def delete(self, resource, name, namespace="default"):
        with self.lock:
            obj = self.objects[resource].pop((namespace, name), None)
            if obj is None:
                return None
            self.version += 1
            gone = json.loads(json.dumps(obj))
            gone["metadata"]["resourceVersion"] = str(self.version)
            self._event(resource, "DELETED", gone)
            return gone

    def forget(self):
        """Compaction: watches cannot go on from any version before now."""
        with self.lock:
            for r in KINDS:
                self.events[r].clear()
                self.forgotten[r] = self.version

    def error_in_watches(self, code=410, message="too old resource version"):
        """An ERROR event inside every open watch, which then ends."""
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
                  "reason": "Expired" if code == 410 else "InternalError", "code": code}
        with self.lock:
            for w in self.watches:
                w.queue.append(json.dumps({"type": "ERROR", "object": status}).encode() + b"\n")
                w.queue.append(None)
            self.changed.notify_all()

    def raw_in_watches(self, data):
        with self.lock:
            for w in self.watches:
                w.queue.append(data)
            self.changed.notify_all()

    def _event(self, resource, kind, obj):
        log = self.events[resource]
        if len(log) == log.maxlen:
            self.forgotten[resource] = log[0][0]
        log.append((self.version, kind, obj))
        for w in self.watches:
            if w.resource == resource:
                self._tell(w, kind, obj)
        self.changed.notify_all()

    def _tell(self, w, kind, obj):
        """As this watch sees it: what stops matching its selector is deleted for it."""
        m = obj["metadata"]
        if w.namespace and m["namespace"] != w.namespace:
            return
        fits = kind != "DELETED" and matches(w.selector, m.get("labels"))
        if not fits and m["uid"] not in w.known:
            return
        kind = "DELETED" if not fits else "MODIFIED" if m["uid"] in w.known else "ADDED"
        (w.known.discard if kind == "DELETED" else w.known.add)(m["uid"])
        w.queue.append(json.dumps({"type": kind, "object": obj}, separators=(",", ":")).encode() + b"\n")

    # ---- what tests ask ----

    def asked(self, verb=None, resource=None):
        with self.lock:
            return [r for r in self.requests if (verb is None or r[1] == verb) and (resource is None or r[2] == resource)]

    def watching(self, resource=None):
        with self.lock:
            return len([w for w in self.watches if resource is None or w.resource == resource])

    # ---- HTTP ----

    def _accept(self, listener):
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock):
        try:
            if self.context:
                sock = self.context.wrap_socket(sock, server_side=True)
            with self.lock:
                self.connections.add(sock)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            f = sock.makefile("rb")
            while True:
                line = f.readline().decode("latin-1").split(" ")
                if len(line) < 3:
                    return
                fields = {}
                while True:
                    h = f.readline().decode("latin-1").strip()
                    if not h:
                        break
                    k, _, v = h.partition(":")
                    fields[k.lower()] = v.strip()
                body = f.read(int(fields.get("content-length", 0)))
                if not self._answer(sock, line[0], line[1], fields, body):
                    return
        except (OSError, ValueError):
            pass
        finally:
            with self.lock:
                self.connections.discard(sock)
            try:
                sock.close()
            except OSError:
                pass

    def _send_body(self, sock, data):
        """One chunk, or as much of it as a fault lets through."""
        f = self.faults
        if f.cut_after is not None:
            if len(data) >= f.cut_after:
                data, f.cut_after = data[:f.cut_after], None
                sock.sendall(b"%x\r\n%s" % (len(data) + 10, data))
                if f.cut_reset:
                    raw = sock
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
                raise OSError("cut")
            f.cut_after -= len(data)
        if data:
            sock.sendall(b"%x\r\n%s\r\n" % (len(data), data))

    def _head(self, sock, status, fields=(), content_type="application/json"):
        sock.sendall(("HTTP/1.1 %d Status\r\nContent-Type: %s\r\nTransfer-Encoding: chunked\r\n%s\r\n" %
                      (status, content_type, "".join("%s: %s\r\n" % x for x in fields))).encode())

    def _reply(self, sock, status, obj, fields=()):
        data = json.dumps(obj).encode()
        self._head(sock, status, fields)
        for i in range(0, len(data), 65536):
            if self.faults.body_delay:
                time.sleep(self.faults.body_delay)
            self._send_body(sock, data[i:i + 65536])
        sock.sendall(b"0\r\n\r\n")
        return True

    def _fail(self, sock, code, reason, message, fields=()):
        return self._reply(sock, code, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                                        "message": message, "reason": reason, "code": code}, fields)

    def _answer(self, sock, method, target, fields, body):
        path, _, query = target.partition("?")
        query = {k: v[-1] for k, v in urllib.parse.parse_qs(query, keep_blank_values=True).items()}
        token = fields.get("authorization", "").partition("Bearer ")[2] or None
        where = self._resource(path)
        if where is None:
            return self._discovery(sock, path)
        resource, namespace, name = where
        verb = method if name or method != "GET" else "watch" if query.get("watch") in ("true", "1") else "list"
        with self.lock:
            self.requests.append((time.monotonic(), verb, resource, query, token))
        f = self.faults
        if resource in f.missing:
            return self._fail(sock, 404, "NotFound", "the server could not find the requested resource")
        if f.hang:
            with self.lock:
                while self.faults.hang and sock in self.connections:
                    self.changed.wait(0.1)
            return False
        if f.token is not None and token != f.token:
            return self._fail(sock, 401, "Unauthorized", "Unauthorized")
        if verb in f.deny:
            return self._fail(sock, 403, "Forbidden", '%s is forbidden: User "x" cannot %s resource "%s"' % (resource, verb, resource))
        if f.refuse and verb in ("list", "watch"):
            status, reason, after = f.refuse
            return self._fail(sock, status, reason, reason, [("Retry-After", after)] if after else ())
        if f.garbage is not None and verb in ("list", "watch"):
            data, f.garbage = f.garbage, None
            self._head(sock, 200)
            self._send_body(sock, data)
            sock.sendall(b"0\r\n\r\n")
            return True
        if verb == "list":
            return self._list(sock, resource, namespace, query)
        if verb == "watch":
            return self._watch(sock, resource, namespace, query)
        return self._object(sock, method, resource, namespace, name, query, fields, body)

    def _resource(self, path):
        m = re.fullmatch(r"/(?:api/(v1)|apis/([^/]+)/([^/]+))(?:/namespaces/([^/]+))?/([a-z]+)(?:/([^/]+))?", path)
        if not m or m.group(5) not in KINDS:
            return None
        group, version, _ = KINDS[m.group(5)]
        if (m.group(2) or "", m.group(1) or m.group(3)) != (group, version):
            return None
        return m.group(5), m.group(4), m.group(6)

    def _list(self, sock, resource, namespace, query):
        f = self.faults
        more = query.get("continue")
        if more and f.expire_pages > 0:
            f.expire_pages -= 1
            return self._fail(sock, 410, "Expired", "The provided continue parameter is too old")
        with self.lock:
            # A list is a picture of one moment, also when it is read in pages.
            version, after = json.loads(base64.b64decode(more)) if more else (self.version, ["", ""])
            if version < self.forgotten[resource]:
                return self._fail(sock, 410, "Expired", "The provided continue parameter is too old")
            then = self._as_of(resource, version)
            keys = sorted(k for k, o in then.items()
                          if (not namespace or k[0] == namespace) and matches(query.get("labelSelector"), o["metadata"].get("labels")))
            keys = [k for k in keys if list(k) > after]
            limit = int(query.get("limit") or 0) or len(keys)
            items = []
            for k in keys[:limit]:
                o = dict(then[k])
                del o["kind"], o["apiVersion"]
                items.append(o)
            meta = {"resourceVersion": str(version)}
            if len(keys) > limit:
                meta["continue"] = base64.b64encode(json.dumps([version, keys[limit - 1]]).encode()).decode()
                meta["remainingItemCount"] = len(keys) - limit
        return self._reply(sock, 200, {"kind": KINDS[resource][2] + "List", "apiVersion": api_version(resource),
                                       "metadata": meta, "items": items})

    def _watch(self, sock, resource, namespace, query):
        f = self.faults
        start = int(query.get("resourceVersion") or 0)
        w = Watch(resource, namespace, query.get("labelSelector"), query.get("allowWatchBookmarks") in ("true", "1"))
        with self.lock:
            if f.expire_watches or start < self.forgotten[resource]:
                return self._fail(sock, 410, "Expired", "too old resource version: %d (%d)" % (start, self.forgotten[resource]))
            if start > self.version:
                return self._fail(sock, 504, "Timeout", "Timeout: Too large resource version: %d, current: %d" % (start, self.version))
            w.known = {o["metadata"]["uid"] for k, o in self._as_of(resource, start).items()
                       if (not namespace or k[0] == namespace) and matches(w.selector, o["metadata"].get("labels"))}
            for version, kind, obj in self.events[resource]:
                if version > start:
                    self._tell(w, kind, obj)
            self.watches.append(w)
        try:
            return self._run_watch(sock, w, float(query.get("timeoutSeconds") or 3600))
        finally:
            with self.lock:
                self.watches.remove(w)

    def _as_of(self, resource, version):
        """The objects as they were at a version, by undoing the events after it."""
        now = dict(self.objects[resource])
        for v, kind, obj in reversed(self.events[resource]):
            if v <= version:
                break
            key = (obj["metadata"]["namespace"], obj["metadata"]["name"])
            if kind == "ADDED":
                now.pop(key, None)
            else:
                now[key] = obj
        return now

    def _run_watch(self, sock, w, seconds):
        self._head(sock, 200)
        end = time.monotonic() + seconds
        bookmark = time.monotonic() + self.bookmark_every
        while True:
            with self.lock:
                now = time.monotonic()
                quiet = self.faults.silent_watches
                if sock not in self.connections or (now >= end and not (quiet or self.faults.ignore_timeout)):
                    break
                if not w.queue or quiet:
                    self.changed.wait(max(0.005, min(bookmark, end) - now) if min(bookmark, end) > now else 0.05)
                data = [] if quiet else list(w.queue)
                if not quiet:
                    w.queue.clear()
                if not data and not quiet and w.bookmarks and not self.faults.no_bookmarks and now >= bookmark:
                    bookmark = now + self.bookmark_every
                    data = [json.dumps({"type": "BOOKMARK", "object": {
                        "kind": KINDS[w.resource][2], "apiVersion": api_version(w.resource),
                        "metadata": {"resourceVersion": str(self.version), "creationTimestamp": None},
                        "spec": {}, "status": {}}}).encode() + b"\n"]
            last = None in data
            joined = b"".join(d for d in data if d is not None)
            if joined:
                self._send_body(sock, joined)
            if last:
                break
        sock.sendall(b"0\r\n\r\n")
        return True

    # ---- single objects and discovery, for kubectl ----

    def _object(self, sock, method, resource, namespace, name, query, fields, body):
        namespace = namespace or "default"
        with self.lock:
            old = self.objects[resource].get((namespace, name)) if name else None
            if method == "POST" and not name:
                obj = json.loads(body)
                name = obj["metadata"]["name"]
                if (namespace, name) in self.objects[resource]:
                    return self._fail(sock, 409, "AlreadyExists", '%s "%s" already exists' % (resource, name))
                obj["metadata"]["namespace"] = namespace
                return self._reply(sock, 201, self.put(resource, obj))
            if old is None:
                return self._fail(sock, 404, "NotFound", '%s "%s" not found' % (resource, name))
            if method == "GET":
                return self._reply(sock, 200, old)
            if method == "DELETE":
                return self._reply(sock, 200, self.delete(resource, name, namespace))
            if method == "PUT":
                return self._reply(sock, 200, self.put(resource, json.loads(body)))
            if method == "PATCH":
                return self._reply(sock, 200, self.put(resource, merge(json.loads(json.dumps(old)), json.loads(body))))
        return self._fail(sock, 405, "MethodNotAllowed", method)

    def _discovery(self, sock, path):
        groups = sorted({(g, v) for g, v, _ in KINDS.values() if g})
        if path == "/version":
            return self._reply(sock, 200, {"major": "1", "minor": "27", "gitVersion": "v1.27.0"})
        if path == "/api":
            return self._reply(sock, 200, {"kind": "APIVersions", "versions": ["v1"]})
        if path == "/apis":
            return self._reply(sock, 200, {"kind": "APIGroupList", "apiVersion": "v1", "groups": [
                {"name": g, "versions": [{"groupVersion": g + "/" + v, "version": v}],
                 "preferredVersion": {"groupVersion": g + "/" + v, "version": v}} for g, v in groups]})
        m = re.fullmatch(r"/api/(v1)|/apis/([^/]+)/([^/]+)", path)
        found = [r for r, (g, v, _) in KINDS.items() if m and (g, v) == (m.group(2) or "", m.group(1) or m.group(3))]
        if not found:
            return self._fail(sock, 404, "NotFound", "the server could not find the requested resource")
        return self._reply(sock, 200, {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": path.split("/", 2)[2], "resources": [
            {"name": r, "singularName": KINDS[r][2].lower(), "namespaced": True, "kind": KINDS[r][2],
             "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"]} for r in found]})


def merge(target, patch):
    """JSON merge patch."""
    for k, v in patch.items():
        if v is None:
            target.pop(k, None)
        elif isinstance(v, dict) and isinstance(target.get(k), dict):
            merge(target[k], v)
        else:
            target[k] = v
    return target


# ---- objects as controllers write them ----

def endpoint(address, ready=True, serving=None, terminating=False, uid=None):
    e = {"addresses": [address], "nodeName": "node-1", "zone": "a",
         "conditions": {"ready": ready, "serving": ready if serving is None else serving, "terminating": terminating}}
    if uid != "":
        e["targetRef"] = {"kind": "Pod", "namespace": "default", "name": "pod-" + address.replace(":", "-"), "uid": uid or "uid-" + address}
    return e


def slice_of(service, name, endpoints, ports=(("http", 8000),), kind="IPv4", namespace="default"):
    return {"metadata": {"name": name, "namespace": namespace, "generateName": service + "-",
                         "labels": {"kubernetes.io/service-name": service,
                                    "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"},
                         "ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": service, "uid": "svc-" + service,
                                              "controller": True, "blockOwnerDeletion": True}]},
            "addressType": kind, "endpoints": endpoints,
            "ports": [{"name": n, "port": p, "protocol": "TCP"} for n, p in ports]}


def pod(name, ip, labels, ready=True, deleting=False, namespace="default", phase="Running"):
    o = {"metadata": {"name": name, "namespace": namespace, "generateName": name + "-", "labels": dict(labels, **{"pod-template-hash": "5d4f"}),
                      "annotations": {"kubernetes.io/config.seen": "2026-01-02T03:04:05.678Z"}},
         "spec": {"containers": [{"name": "engine", "image": "vllm/vllm-openai:v0.9.0", "args": ["--model", "m", "--max-num-seqs=16"],
                                  "ports": [{"containerPort": 8000, "protocol": "TCP"}],
                                  "env": [{"name": "HF_HOME", "value": "/models"}, {"name": "BRACKETS", "value": "}]{[\"\\"}],
                                  "resources": {"limits": {"nvidia.com/gpu": "1"}, "requests": {"cpu": "4", "memory": "32Gi"}},
                                  "volumeMounts": [{"name": "models", "mountPath": "/models"}]}],
                  "nodeName": "gpu-1", "restartPolicy": "Always", "serviceAccountName": "default",
                  "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
                  "volumes": [{"name": "models", "persistentVolumeClaim": {"claimName": "models"}}]},
         "status": {"phase": phase, "podIP": ip, "podIPs": [{"ip": ip}], "hostIP": "10.0.0.1", "qosClass": "Burstable",
                    "conditions": [{"type": t, "status": "True" if ok else "False", "lastProbeTime": None,
                                    "lastTransitionTime": "2026-01-02T03:04:05Z"}
                                   for t, ok in (("Initialized", True), ("Ready", ready), ("ContainersReady", ready), ("PodScheduled", True))],
                    "containerStatuses": [{"name": "engine", "ready": ready, "restartCount": 0, "started": True,
                                           "state": {"running": {"startedAt": "2026-01-02T03:04:05Z"}},
                                           "image": "vllm/vllm-openai:v0.9.0", "imageID": "sha256:" + "0" * 64}]}}
    if deleting:
        o["metadata"]["deletionTimestamp"] = "2026-01-02T03:05:05Z"
        o["metadata"]["deletionGracePeriodSeconds"] = 30
    return o


def model_server(name, labels, port=8000, model=None, engine="vLLM", namespace="default", **spec):
    s = {"inferenceEngine": engine, "workloadSelector": {"matchLabels": labels}, "workloadPort": {"port": port}, **spec}
    if model:
        s["model"] = model
    return {"metadata": {"name": name, "namespace": namespace}, "spec": s}


def model_route(name, model, servers, namespace="default", **spec):
    """servers: names, or (name, weight)."""
    targets = [{"modelServerName": s} if isinstance(s, str) else {"modelServerName": s[0], "weight": s[1]} for s in servers]
    return {"metadata": {"name": name, "namespace": namespace},
            "spec": {"modelName": model, "rules": [{"name": "default", "targetModels": targets}], **spec}}
