"""What the machine lacks: memory, descriptors, room on a disk, somebody who reads the logs. Never a hang, and never an end
without words."""

import os
import resource
import select
import signal
import struct
import subprocess
import time

import pytest

from client import Client
from daemon import clean_env, run_router
from pod import ok
from test_errors import check_error
from waiting import DEADLINE, FAIL_ALLOC_LIB, ROUTER_BIN, SANITIZED, wait_until

ANY_PORTS = ("--port", "0", "--metrics-port", "0", "--debug-port", "0")
FOR_EVER = 1 << 60


class Allocator:
    """Makes allocations of the processes it is loaded into fail, by their number."""

    def __init__(self, path):
        self.path = str(path)
        self.env = {"LD_PRELOAD": FAIL_ALLOC_LIB, "FAIL_ALLOC": self.path}
        self.fail(0, 0)

    def fail(self, first, n, count=0):
        with open(self.path, "r+b" if os.path.exists(self.path) else "wb") as f:
            f.write(struct.pack("qqq", count, first, n))

    def count(self):
        with open(self.path, "rb") as f:
            return struct.unpack("qqq", f.read())[0]


@pytest.fixture
def allocator(tmp_path):
    return Allocator(tmp_path / "allocations")


def ends_or_listens(env, args=ANY_PORTS, preexec_fn=None):
    """Starts a router. Its exit code, None: it listens; and what it said. It has ended when this returns."""
    p = subprocess.Popen([ROUTER_BIN, *args], env=clean_env({"ROUTER_BIND": "127.0.0.1", **env}), stdin=subprocess.DEVNULL,
                         stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, preexec_fn=preexec_fn)
    said, code, deadline = b"", None, time.monotonic() + DEADLINE
    try:
        while said.count(b" listening ") < 3:
            assert time.monotonic() < deadline, "it hangs: %r" % said
            if select.select([p.stderr], [], [], 0.1)[0]:
                more = os.read(p.stderr.fileno(), 65536)
                said += more
                if not more:
                    code = p.wait(DEADLINE)
                    break
    finally:
        p.kill()
        p.wait()
        p.stderr.close()
    return code, said.decode(errors="replace")


def spread(n, most):
    """Some numbers of 1..n, and all of the last ones, which are the listeners'."""
    return sorted({1 + i * n // most for i in range(most)} | set(range(max(1, n - 20), n + 1)))


# ---- memory ----

def ini_of_many(tmp_path):
    path = tmp_path / "many.ini"
    path.write_text("".join("[model-server s%d]\npods = 127.0.0.1:%d, 127.0.0.1:9\n[model-route r%d]\nmodel = m%d\n"
                            "target = s%d\n[model-route r%d/rule a]\nheader = x-a regex:^%d$\ntarget = s%d\n"
                            % (i, i + 10, i, i, i, i, i, i) for i in range(20)))
    return str(path)


@pytest.mark.parametrize("how", ["start", "check", "print"])
@pytest.mark.parametrize("failing", [1, FOR_EVER])
def test_no_memory(allocator, tmp_path, how, failing):
    """Wherever it runs out: it does without, or it ends and says why. A sanitizer has an allocator of its own."""
    args = ("--config", ini_of_many(tmp_path)) + {"start": ANY_PORTS, "check": ("--check",), "print": ("--print-config",)}[how]
    env = {} if SANITIZED else allocator.env
    assert ends_or_listens(env, args)[0] == (None if how == "start" else 0)
    total = 1 if SANITIZED else allocator.count()
    silent, aborted = [], 0
    for n in spread(total, 60):
        allocator.fail(n, failing)
        code, said = ends_or_listens(env, args)
        aborted += code == -signal.SIGABRT and "out of memory" in said
        if code not in (None, 0) and not any(words in said for words in ("out of memory", "error", "ERROR")):
            silent.append((n, code, said))
    assert not silent
    assert SANITIZED or aborted > 30


def test_memory_runs_out_during_a_reload(start, allocator):
    """The process ends with a line: nothing goes on half made."""
    pod = start.pod(script=ok)
    ini = "[model-server s]\npods = %s\n[model-route m]\ntarget = s\n" % pod.authority
    router = start.router(ini=ini, env={} if SANITIZED else allocator.env)
    assert router.chat().status == 200
    if SANITIZED:
        return
    allocator.fail(allocator.count() + 40, FOR_EVER, allocator.count())
    router.signal(signal.SIGHUP)
    assert router.wait_exit() == -signal.SIGABRT
    assert router.stderr.find("out of memory")


def test_little_address_space():
    """RLIMIT_AS instead of a failing allocator; the dynamic linker may be the first to say something."""
    if SANITIZED:  # it reserves terabytes
        return
    for mib in (8, 24, 32, 40, 48, 64):
        code, said = ends_or_listens({}, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (mib << 20, mib << 20)))
        assert code is None or (code != 0 and said), (mib, code, said)


# ---- descriptors ----

@pytest.mark.parametrize("n", range(3, 20))
def test_hardly_any_descriptor(n):
    if SANITIZED and n < 6:
        return  # the sanitizer's own start needs some, and says nothing
    code, said = ends_or_listens({}, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (n, n)))
    assert code is None or (code > 0 and said), (code, said)
    assert code is not None or "RLIMIT_NOFILE" in said


@pytest.mark.parametrize("n", [24, 100])
def test_few_descriptors_serve_and_tell(start, n):
    """More clients than there are descriptors: they wait in the kernel and are served one after the other."""
    pod = start.pod(script=ok)
    router = start.router({"m": [pod]}, nofile=n, metrics_scrape_interval="10s", wait=False)
    assert router.stderr.wait_for_line("RLIMIT_NOFILE.*open_files=%d" % n)
    clients = [Client(router.port) for _ in range(150)]
    for c in clients:
        c.chat(headers=[("Connection", "close")])
    assert [c.answer().status for c in clients] == [200] * len(clients)
    for c in clients:
        c.close()


def test_no_descriptor_for_a_pod_is_not_the_pods_fault(start):
    """The limit falls to what is in use: 503, and as soon as there are descriptors again all is as before."""
    pod = start.pod(script=ok)
    router = start.router({"m": [pod]}, metrics_scrape_interval="10s")
    clients = [router.client() for _ in range(5)]
    for c in clients:
        c.request("GET", "/healthz")
        assert c.answer().status == 200
    hard = resource.prlimit(router.pid, resource.RLIMIT_NOFILE)[1]
    resource.prlimit(router.pid, resource.RLIMIT_NOFILE, (router.fds(), hard))
    for c in clients:
        c.chat()
        check_error(c.answer(), 503, "connect_failed", "server_error")
    resource.prlimit(router.pid, resource.RLIMIT_NOFILE, (hard, hard))
    for c in clients:
        c.chat()
        assert c.answer().status == 200
    assert not router.stderr.find("set aside")
    # A connection that is kept for another pod is given up for the one that is needed.
    other = start.pod(script=ok)
    router = start.router({"m": [pod], "other": [other]}, metrics_scrape_interval="10s")
    c = router.client()
    c.chat()
    assert c.answer().status == 200
    resource.prlimit(router.pid, resource.RLIMIT_NOFILE, (router.fds(), hard))
    c.chat(model="other")
    assert c.answer().status == 200
    resource.prlimit(router.pid, resource.RLIMIT_NOFILE, (hard, hard))


# ---- stdout, stderr, disks ----

@pytest.mark.parametrize("flag", ["--help", "--version", "--print-config", "--print-example", "--print-options-doc", "--check"])
def test_what_cannot_be_printed_is_an_error(flag):
    with open("/dev/full", "w", encoding="ascii") as full:
        p = subprocess.run([ROUTER_BIN, flag], env=clean_env({}), stdout=full, stderr=subprocess.PIPE, text=True, timeout=DEADLINE)
    assert p.returncode == 1 and "cannot write to stdout: No space left on device" in p.stderr, p.stderr


def dropped(router, log="access"):
    return router.metric("kthena_router_log_lines_dropped_total", log=log)


@pytest.mark.parametrize("what", ["nobody", "full"])
def test_access_log_that_cannot_be_written(start, what):
    """Lines are lost and counted; requests are not."""
    options = {"access_log_output": "/dev/full"} if what == "full" else {"read_stdout": False}
    router = start.router({"m": [start.pod(script=ok)]}, **options)
    if what == "nobody":
        router.process.stdout.close()
    for _ in range(5):
        assert router.chat().status == 200
    router.wait_metric("kthena_router_log_lines_dropped_total", 5, log="access")


def test_own_log_that_nobody_reads(start):
    """stderr is a pipe that is full: no request waits for it, the lines are counted."""
    pod = start.pod(script=ok)
    read_end, write_end = os.pipe()
    out, ports = os.fdopen(read_end, "rb", 0), []
    p = subprocess.Popen([ROUTER_BIN, *ANY_PORTS], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=write_end, env=clean_env(
        {"ROUTER_BIND": "127.0.0.1", "ENABLE_SESSION_BOOST": "true", "ROUTER_BACKENDS": "m=" + pod.authority}))
    os.close(write_end)
    try:
        while len(ports) < 3:
            line = out.readline()
            if b" listening " in line:
                ports.append(int(line.partition(b"port=")[2].split()[0]))
        metrics, _, inference = ports
        c = Client(inference)
        for _ in range(1500):  # more than a pipe and a buffer hold
            c.chat(session="s" * 500)
            assert c.answer().status == 200
        with_metrics = Client(metrics)

        def lost():
            with_metrics.send(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
            page = with_metrics._take_until(b"\r\n\r\n")
            n = int(page.lower().partition(b"content-length:")[2].split()[0])
            while len(with_metrics.buf) < n:
                assert with_metrics.fill()
            page, with_metrics.buf = with_metrics.buf[:n], with_metrics.buf[n:]
            return float(page.partition(b'kthena_router_log_lines_dropped_total{log="router"} ')[2].split()[0])
        wait_until(lost, "lost lines to be counted")
        p.send_signal(signal.SIGTERM)
        assert p.wait(DEADLINE) == 0
    finally:
        p.kill()
        p.wait()
        out.close()


def test_bad_input_is_told_although_stdout_is_closed(tmp_path):
    p = run_router("--config", str(tmp_path / "none.ini"), *ANY_PORTS)
    closed = subprocess.run([ROUTER_BIN, "--config", str(tmp_path / "none.ini"), *ANY_PORTS], env=clean_env({}), timeout=DEADLINE,
                            stderr=subprocess.PIPE, preexec_fn=lambda: os.close(1), text=True)
    assert p.returncode == closed.returncode == 1 and "none.ini" in closed.stderr
