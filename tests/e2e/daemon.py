"""The processes under test: the router and vllm-sim, started on free ports, their output collected line by line."""

import http.client
import json
import os
import re
import signal
import subprocess
import threading

from client import Client, Response
from prom import Metrics
from waiting import DEADLINE, ROUTER_BIN, VLLM_SIM, wait_until

REPORT = re.compile(r"(ERROR: (Address|Leak)Sanitizer|runtime error:|Sanitizer: )")


class Lines(threading.Thread):
    """Collects one output stream."""

    def __init__(self, stream):
        super().__init__(daemon=True)
        self.stream, self.lines = stream, []

    def run(self):
        for line in self.stream:
            self.lines.append(line.decode("utf-8", "backslashreplace").rstrip("\n"))

    def find(self, regex, start=0):
        for line in self.lines[start:]:
            if re.search(regex, line):
                return line
        return None

    def all(self, regex, start=0):
        return [line for line in self.lines[start:] if re.search(regex, line)]

    def wait_for_line(self, regex, timeout=None, start=0):
        return wait_until(lambda: self.find(regex, start), "output line matching %r" % regex, timeout)


def fields_of(line):
    """key=value pairs of a text log line; quoted values are unescaped."""
    out = {}
    for m in re.finditer(r'([A-Za-z_][A-Za-z0-9_.]*)=("(?:[^"\\]|\\.)*"|\S*)', line):
        value = m.group(2)
        out[m.group(1)] = json.loads(value) if value.startswith('"') else value
    return out


def clean_env(extra):
    env = {"PATH": "/usr/bin:/bin"}
    for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS"):
        if name in os.environ:
            env[name] = os.environ[name]
    env.update({k: str(v) for k, v in extra.items()})
    return env


def run_router(*args, env=None, timeout=None):
    """Runs the router to its end (flags such as --check). Returns the finished process, texts decoded."""
    return subprocess.run([ROUTER_BIN, *args], env=clean_env(env or {}), capture_output=True, text=True,
                          timeout=DEADLINE if timeout is None else timeout)


class Router:
    """A running router. Options are environment names in lower case: Router(session_boost_timeout="1s")."""

    def __init__(self, backends=None, ini=None, args=(), boost=True, env=None, tmp_path=None, wait=True, nofile=None, read_stdout=True,
                 tls=None, **options):
        settings = {"ROUTER_BIND": "127.0.0.1", "ACCESS_LOG_FORMAT": "json", "METRICS_SCRAPE_INTERVAL": "50ms"}
        if boost:
            settings["ENABLE_SESSION_BOOST"] = "true"
        if backends:
            settings["ROUTER_BACKENDS"] = ";".join(
                "%s=%s" % (model, ",".join(p if isinstance(p, str) else p.authority for p in pods))
                for model, pods in backends.items())
        settings.update({k.upper(): v for k, v in options.items()})
        settings.update(env or {})
        settings = {k: v for k, v in settings.items() if v is not None}
        command = [ROUTER_BIN, "--port", "0", "--metrics-port", "0", "--debug-port", "0", *args]
        if ini is not None:
            self.ini = os.path.join(str(tmp_path), "router.ini")
            self.write_ini(ini)
            command += ["--config", self.ini]
        self.clients = []
        self.tls = tls  # an ssl.SSLContext: the inference port speaks TLS
        self.idle_check = True
        self.stopped = False
        if nofile:
            command = ["/bin/sh", "-c", 'ulimit -n %d; exec "$@"' % nofile, "sh", *command]
        self.process = subprocess.Popen(command, env=clean_env(settings), stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.stdout, self.stderr = Lines(self.process.stdout), Lines(self.process.stderr)
        if read_stdout:
            self.stdout.start()
        self.stderr.start()
        self.ports = {}
        try:
            self._wait_ports()
            if wait:
                wait_until(lambda: self.get("/readyz").status == 200, "the router to be ready")
        except BaseException:
            self.kill()
            raise

    def _wait_ports(self):
        def found():
            for line in list(self.stderr.lines):
                where = line.partition("listening")[2]
                for role in ("inference", "metrics", "debug"):
                    if re.search(r"\b%s\b" % role, where):
                        self.ports[role] = int(re.findall(r"[:=](\d+)(?!\d)", where)[-1])
            assert self.process.poll() is None, "the router ended with %s:\n%s" % (
                self.process.returncode, "\n".join(self.stderr.lines))
            return len(self.ports) == 3
        wait_until(found, "three \"listening\" lines")

    def write_ini(self, text):
        with open(self.ini, "w", encoding="utf-8") as f:
            f.write(text)

    @property
    def port(self):
        return self.ports["inference"]

    @property
    def pid(self):
        return self.process.pid

    # ---- asking ----

    def client(self, **options):
        c = Client(self.port, **{"tls": self.tls, **options})
        self.clients.append(c)
        return c

    def get(self, path, port="inference", method="GET"):
        c = Client(self.ports[port], tls=self.tls if port == "inference" else None)
        try:
            c.request(method, path, headers=[("Connection", "close")])
            raw = c.wait_closed()
        finally:
            c.close()
        head, _, body = raw.partition(b"\r\n\r\n")
        r = Response(head + b"\r\n\r\n")
        if r.all("Transfer-Encoding"):
            raise AssertionError("admin answers are sized")
        r.body = body
        return r

    def chat(self, **options):
        """One whole turn on a connection of its own."""
        c = self.client()
        r = c.chat(**options).answer()
        r.id = c.id
        c.close()
        return r

    def start_chat(self, **options):
        """Sends a turn; the caller reads the answer later."""
        return self.client().chat(**options)

    def metrics(self):
        r = self.get("/metrics", "metrics")
        assert r.status == 200, r
        return Metrics(r.body.decode())

    def metric(self, name, default=0.0, **labels):
        return self.metrics().get(name, default, **labels)

    def wait_metric(self, name, value, timeout=None, **labels):
        def holds():
            m = self.metrics()
            got = m.get(name, 0.0, **labels)
            return (value(got) if callable(value) else got == value) or None
        wait_until(holds, "%s%r to be %r" % (name, labels, value), timeout)

    def queue_len(self, model="m"):
        return self.metric("kthena_router_session_boost_queue_size", model=model)

    def wait_queued(self, n, model="m"):
        self.wait_metric("kthena_router_session_boost_queue_size", n, model=model)

    def queue_chat(self, n, **options):
        """Sends a turn and waits until n requests wait in the model's queue."""
        c = self.start_chat(**options)
        self.wait_queued(n, options.get("model", "m"))
        return c

    def dump(self, kind):
        r = self.get("/debug/config_dump/" + kind, "debug")
        assert r.status == 200 and r.header("Content-Type").startswith("application/json"), r
        return json.loads(r.body)

    # ---- logs ----

    def access(self, request_id, timeout=None):
        """The access log entry of a request (JSON format)."""
        line = self.stdout.wait_for_line(r'"request_id":\s*"%s"' % re.escape(request_id), timeout)
        return json.loads(line)

    def rss_bytes(self):
        with open("/proc/%d/statm" % self.pid, encoding="ascii") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    def fds(self):
        return len(os.listdir("/proc/%d/fd" % self.pid))

    # ---- ending ----

    def wait_idle(self):
        """Every counter of running things is back at zero."""
        busy = {}

        def idle():
            m = self.metrics()
            names = ("kthena_router_active_requests", "kthena_router_active_downstream_requests",
                     "kthena_router_active_upstream_requests", "kthena_router_session_boost_queue_size",
                     "kthena_router_session_boost_queue_inflight", "kthena_router_fairness_queue_size",
                     "kthena_router_fairness_queue_inflight")
            busy.clear()
            busy.update({name: m.total(name) for name in names if m.total(name) != 0})
            return not busy
        try:
            wait_until(idle, "all running counters to be 0")
        except AssertionError:
            raise AssertionError("still counted: %s" % busy) from None

    def signal(self, number):
        self.process.send_signal(number)

    def wait_exit(self, timeout=None):
        code = self.process.wait(DEADLINE if timeout is None else timeout)
        self._join_readers()
        self.stopped = True
        self.check_report()
        return code

    def check_report(self):
        bad = self.stderr.all(REPORT.pattern)
        assert not bad, "sanitizer report:\n" + "\n".join(self.stderr.lines[-60:])

    def stop(self):
        """SIGTERM; exit status 0 and no sanitizer report."""
        if self.stopped:
            return
        try:
            for c in self.clients:
                c.close()
            if self.idle_check and self.process.poll() is None:
                self.wait_idle()
            assert self.process.poll() is None, "the router died with %s:\n%s" % (
                self.process.returncode, "\n".join(self.stderr.lines[-60:]))
            self.signal(signal.SIGTERM)
            code = self.wait_exit()
            assert code == 0, "exit status %s" % code
        finally:
            self.kill()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for c in self.clients:
            c.close()
        self._join_readers()
        for lines in (self.stdout, self.stderr):
            lines.stream.close()

    def _join_readers(self):
        for lines in (self.stdout, self.stderr):
            if lines.ident:  # started
                lines.join(DEADLINE)


class Sim:
    """A vllm-sim process."""

    def __init__(self, *args):
        self.process = subprocess.Popen([VLLM_SIM, "--port", "0", *[str(a) for a in args]], env=clean_env({}),
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.out = Lines(self.process.stdout)
        self.out.start()
        line = self.out.wait_for_line(r"[:=]\d+")
        self.port = int(re.findall(r"[:=](\d+)(?!\d)", line)[-1])
        self.authority = "127.0.0.1:%d" % self.port

    def call(self, method, path, body=None):
        """Status and body of one request past the router."""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
        try:
            c.request(method, path, body=json.dumps(body) if body is not None else None)
            r = c.getresponse()
            return r.status, r.read()
        finally:
            c.close()

    def ask(self, method, path, body=None):
        status, data = self.call(method, path, body)
        assert status == 200, (status, data)
        return json.loads(data)

    def config(self, **settings):
        return self.ask("POST", "/sim/config", settings)

    def state(self):
        return self.ask("GET", "/sim/state")

    def stop(self):
        self.process.terminate()
        self.process.wait(DEADLINE)
        self.out.join(DEADLINE)
        self.process.stdout.close()
