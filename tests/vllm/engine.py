"""One vLLM instance on the loopback interface: started on a free port, its counters read directly, ended with all its children."""

import contextlib
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import time

START_S = 300
STOP_S = 30
_SAMPLE = re.compile(r"^([a-z_:A-Z0-9]+)(?:\{(.*)\})? (\S+)$")

ENVIRONMENT = {
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    # One thread each, and no pinning: two engines would else share the same core.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Engine:
    def __init__(self, model, name, work, *args):
        self.port = free_port()
        self.authority = "127.0.0.1:%d" % self.port
        self.log = os.path.join(work, "engine-%s.log" % name)
        home = os.path.join(work, "home")
        os.makedirs(home, exist_ok=True)
        env = {"PATH": os.path.dirname(sys.executable) + ":/usr/bin:/bin", "HOME": home, **ENVIRONMENT}
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1", "--port", str(self.port),
                   "--model", model, "--load-format", "dummy", "--enforce-eager", "--dtype", "float32",
                   "--enable-prefix-caching", "--enable-log-requests", *[str(a) for a in args]]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            start_new_session=True)

    def get(self, path, timeout=10):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            c.request("GET", path, headers={"Connection": "close"})
            r = c.getresponse()
            return r.status, r.read().decode()
        finally:
            c.close()

    def wait_ready(self):
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            try:
                if self.get("/health")[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(0.2)
        with open(self.log, encoding="utf-8", errors="replace") as log:
            raise RuntimeError("vLLM did not start (status %s); the end of %s:\n%s" %
                               (self.process.poll(), self.log, "".join(log.readlines()[-30:])))

    def metric(self, name, **labels):
        """The sum of the series of this name that have these labels."""
        total, seen = 0.0, False
        for line in self.get("/metrics")[1].split("\n"):
            m = _SAMPLE.match(line)
            if m and m.group(1) == name:
                have = dict(re.findall(r'(\w+)="([^"]*)"', m.group(2) or ""))
                if labels.items() <= have.items():
                    total, seen = total + float(m.group(3)), True
        if not seen:
            raise KeyError("vLLM has no series %s %s" % (name, labels))
        return total

    def aborts(self):
        return self.metric("vllm:request_success_total", finished_reason="abort")

    @contextlib.contextmanager
    def held(self):
        """The model stands still while the HTTP server goes on: what it was asked is neither begun nor ended, for as long as
        needed, and /metrics is answered."""
        os.killpg(self.process.pid, signal.SIGSTOP)
        self.process.send_signal(signal.SIGCONT)  # the server is the first process of the group
        try:
            yield
        finally:
            os.killpg(self.process.pid, signal.SIGCONT)

    def kill(self):
        """Ends it at once, as a crash would."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                pass
        self.kill()
