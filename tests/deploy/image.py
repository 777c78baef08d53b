#!/usr/bin/env python3
"""Builds the image of deploy/Dockerfile and runs it as a cluster would: another user, no capabilities, a read-only root.

    tests/deploy/image.py DIRECTORY       as root; storage and the base image are kept in DIRECTORY

In place of the registry's debian:bookworm-slim stands a base made by debootstrap. The last line is "N passed, M failed".
"""
import datetime
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/e2e"))

from certs import Authority  # noqa: E402
from daemon import Sim  # noqa: E402
from waiting import wait_until  # noqa: E402

IMAGE, BASE = "localhost/kthena-router:check", "docker.io/library/debian:bookworm-slim"
MAX_BYTES = 40 * 1000 * 1000
PORTS = {"port": 18080, "metrics": 19090, "debug": 15900}
failed = passed = 0


def check(what, good, found=""):
    global failed, passed
    print("%s %s%s" % ("ok  " if good else "FAIL", what, " (%s)" % found if found != "" else ""), flush=True)
    passed, failed = passed + bool(good), failed + (not good)


class Storage:
    def __init__(self, directory):
        self.directory = directory
        self.options = ["--root", directory + "/root", "--runroot", directory + "/run", "--storage-driver",
                        os.environ.get("STORAGE_DRIVER", "overlay")]

    def buildah(self, *args, **options):
        return subprocess.run(["buildah", *self.options, *args], check=True, text=True, **options)

    def lines(self, *args):
        return self.buildah(*args, stdout=subprocess.PIPE).stdout.split("\n")[:-1]

    def make_base(self):
        if BASE in self.lines("images", "--format", "{{.Name}}:{{.Tag}}"):
            return
        tree = self.directory + "/base"
        shutil.rmtree(tree, ignore_errors=True)
        subprocess.run(["debootstrap", "--variant=minbase", "bookworm", tree], check=True, stdout=subprocess.DEVNULL)
        container = self.lines("from", "scratch")[0]
        self.buildah("copy", "-q", container, tree, "/", stdout=subprocess.DEVNULL)
        self.buildah("commit", "-q", container, BASE, stdout=subprocess.DEVNULL)
        self.buildah("rm", container, stdout=subprocess.DEVNULL)
        shutil.rmtree(tree)

    def build(self):
        done = subprocess.run(["buildah", *self.options, "bud", "--isolation", "chroot", "--pull-never", "--layers", "-f",
                               "deploy/Dockerfile", "-t", IMAGE, "."], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, check=False)
        if done.returncode != 0:
            sys.exit(done.stdout[-3000:])


def look_inside(storage):
    found = json.loads("\n".join(storage.lines("inspect", "--type", "image", IMAGE)))
    config = found["OCIv1"]["config"]
    check("user", config["User"] == "65532:65532", config["User"])
    check("entry point without a shell", config["Entrypoint"] == ["/usr/local/bin/kthena-router"])
    container = storage.lines("from", IMAGE)[0]
    tree = storage.lines("mount", container)[0]
    files = [os.path.join(folder, name) for folder, _, names in os.walk(tree) for name in names]
    files = [f for f in files if os.path.isfile(f) and not os.path.islink(f)]
    size = sum(os.lstat(f).st_size for f in files)
    check("at most %d MB" % (MAX_BYTES // 1000000), size <= MAX_BYTES, "%.1f MB in %d files" % (size / 1e6, len(files)))
    modes = [f for f in files if os.lstat(f).st_mode & 0o6002]
    check("no file with other rights or for all to write", not modes, " ".join(modes))
    programs = [f[len(tree):] for f in files if os.access(f, os.X_OK) and ".so" not in f]
    check("one program", programs == ["/usr/local/bin/kthena-router"], " ".join(programs))
    records = os.listdir(tree + "/var/lib/dpkg/status.d")
    check("records of the packages inside", {"libc6", "libssl3", "libcurl4", "libevent-2.1-7"} <= set(records), len(records))
    storage.buildah("umount", container, stdout=subprocess.DEVNULL)
    storage.buildah("rm", container, stdout=subprocess.DEVNULL)


def ask(path, port="port", body=None, headers=None, tls=None):
    c = (http.client.HTTPSConnection("127.0.0.1", PORTS[port], timeout=5, context=tls) if tls else
         http.client.HTTPConnection("127.0.0.1", PORTS[port], timeout=5))
    try:
        c.request("POST" if body else "GET", path, json.dumps(body) if body else None, headers or {})
        r = c.getresponse()
        return r.status, r.read().decode()
    finally:
        c.close()


def answers(path, tls):
    try:
        return ask(path, tls=tls)[0] == 200
    except OSError:
        return False


class Container:
    """Rights, root and limits as deploy/kubernetes.yaml has them."""

    def __init__(self, storage, env, mounts=()):
        env = {"ROUTER_BIND": "127.0.0.1", "ROUTER_PORT": PORTS["port"], "ROUTER_METRICS_PORT": PORTS["metrics"],
               "ROUTER_DEBUG_PORT": PORTS["debug"], **env}
        limit = min(10000, int(subprocess.check_output(["sh", "-c", "ulimit -Hn"])))
        command = ["podman", *storage.options, "--cgroup-manager", "cgroupfs", "--runtime", "runc", "run", "--rm", "--network", "host",
                   "--read-only", "--read-only-tmpfs=false", "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
                   "--ulimit", "nofile=%d:%d" % (limit, limit), "--ulimit", "nproc=1000:1000", "--cidfile", storage.directory + "/id",
                   *[a for m in mounts for a in ("--volume", m)], *[a for k, v in env.items() for a in ("--env", "%s=%s" % (k, v))], IMAGE]
        if os.path.exists(storage.directory + "/id"):
            os.unlink(storage.directory + "/id")
        self.storage, self.log = storage, open(storage.directory + "/log", "w+", encoding="utf-8")
        self.begun = time.monotonic()
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT)

    def pid(self):
        with open(self.storage.directory + "/id", encoding="ascii") as f:
            name = f.read()
        return int(subprocess.check_output(["podman", *self.storage.options, "inspect", "--format", "{{.State.Pid}}", name]))

    def text(self):
        self.log.flush()
        with open(self.log.name, encoding="utf-8") as f:
            return f.read()

    def end(self):
        os.kill(self.pid(), signal.SIGTERM)
        status = self.process.wait(30)
        self.log.close()
        return status


def start_time_ms(pid, log):
    """From the program's start, as the kernel has it (in steps of 10 ms), to the log line that says that it listens."""
    with open("/proc/%d/stat" % pid, encoding="ascii") as f:
        started = int(f.read().rsplit(")", 1)[1].split()[19]) / os.sysconf("SC_CLK_TCK")
    line = re.search(r"(?m)^(\S+)Z INFO listening listener=inference", log)
    listening = datetime.datetime.fromisoformat(line[1][:26].ljust(26, "0") + "+00:00").timestamp()
    return (listening - time.time() + time.clock_gettime(time.CLOCK_BOOTTIME) - started) * 1000


def run(storage, sims, env=None, mounts=(), tls=None):
    backends = "chat=" + ",".join(s.authority for s in sims)
    c = Container(storage, {"ROUTER_BACKENDS": backends, "ENABLE_SESSION_BOOST": "true", **(env or {})}, mounts)
    try:
        wait_until(lambda: answers("/readyz", tls), "the container to be ready", 30)
        whole = (time.monotonic() - c.begun) * 1000
        pid = c.pid()
        check("ready", True, "%.0f ms from podman run; the program listens %.0f ms after its start" % (whole, start_time_ms(pid, c.text())))
        turn = {"model": "chat", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
        first = ask("/v1/chat/completions", body=turn, headers={"X-Session-ID": "s"}, tls=tls)
        second = ask("/v1/chat/completions", body={**turn, "stream": True}, headers={"X-Session-ID": "s"}, tls=tls)
        check("two turns", first[0] == second[0] == 200 and second[1].rstrip().endswith("data: [DONE]"), "%d %d" % (first[0], second[0]))
        metrics = ask("/metrics", "metrics")[1]
        check("the second is boosted", 'session_boost_queue_boosted_dequeue_total{model="chat"} 1' in metrics)
        check("debug dumps", ask("/debug/config_dump/pods", "debug")[0] == 200)
        with open("/proc/%d/status" % pid, encoding="ascii") as f:
            status = dict(line.split(":\t", 1) for line in f.read().splitlines() if ":\t" in line)
        check("runs as 65532", status["Uid"].split()[:2] == ["65532", "65532"] and status["Gid"].split()[0] == "65532", status["Uid"])
        check("without any capability, and never with one", int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0 and status["NoNewPrivs"].strip() == "1")
        with open("/proc/%d/mountinfo" % pid, encoding="ascii") as f:
            root = [line.split() for line in f if line.split()[4] == "/"]
        check("read-only root", "ro" in root[0][5].split(","), root[0][5])
        check("memory", True, "%d KiB" % int(status["VmRSS"].split()[0]))
    finally:
        code = c.end() if c.process.poll() is None else c.process.returncode
    check("SIGTERM ends it with status 0", code == 0, code)


def main():
    directory = os.path.abspath(sys.argv[1])
    os.makedirs(directory, exist_ok=True)
    storage = Storage(directory)
    storage.make_base()
    begun = time.monotonic()
    storage.build()
    check("built", True, "%.0f s" % (time.monotonic() - begun))
    look_inside(storage)
    sims = [Sim("--model", "chat"), Sim("--model", "chat")]
    try:
        run(storage, sims)
        authority = Authority(directory + "/tls")
        cert, key = authority.issue("tls")
        for path in (directory + "/tls", cert):
            os.chmod(path, 0o755)
        os.chown(key, 65532, 65532)
        print("with TLS:")
        run(storage, sims, {"ROUTER_TLS_CERT": "/tls/tls.pem", "ROUTER_TLS_KEY": "/tls/tls.key"}, [directory + "/tls:/tls:ro"],
            authority.client())
    finally:
        for s in sims:
            s.stop()
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
