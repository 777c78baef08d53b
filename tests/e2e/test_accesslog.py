"""The access log: one line for each request, in both formats, that nobody can forge."""

import json
import os
import re
import resource
import signal
import subprocess
import threading
import time

import pytest

from client import Client
from daemon import clean_env, fields_of
from pod import ok
from waiting import DEADLINE, ROUTER_BIN, wait_until

TEXT = re.compile(r'^\[(\S+)\] "(\S+) (\S+) (HTTP/1\.[01])" (\d+)( .*)? timings=(\d+)ms\((\d+)\+(\d+)\+(\d+)\)')


def pair(start, script=ok, **options):
    pod = start.pod(script=script)
    return pod, start.router({"m": [pod]}, **options)


def refuses(port):
    try:
        Client(port).close()
    except ConnectionError:
        return True
    return False


def test_json(start):
    pod, router = pair(start)
    r = router.chat(session="s")
    entry = router.access(r.id)
    assert entry["method"] == "POST" and entry["path"] == "/v1/chat/completions" and entry["protocol"] == "HTTP/1.1"
    assert entry["status_code"] == 200 and entry["model_name"] == "m" and entry["selected_pod"] == pod.authority
    assert entry["backend_type"] == "model_server" and entry["upstream_status_code"] == 200 and entry["upstream_attempts"] == 1
    assert entry["session"] == "s" and entry["boosted"] is False and entry["overtaken"] == 0
    assert "error" not in entry
    for key in ("duration_total", "duration_request_processing", "duration_upstream_processing", "duration_response_processing"):
        assert isinstance(entry[key], int)
    assert entry["queue_ms"] >= 0 and entry["ttft_ms"] >= 0
    assert re.match(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$", entry["timestamp"])
    assert list(entry)[:5] == ["timestamp", "method", "path", "protocol", "status_code"]


def test_text(start):
    pod, router = pair(start, access_log_format="text")
    r = router.chat(session="s")
    line = router.stdout.wait_for_line(r.id)
    m = TEXT.match(line)
    assert m, line
    assert m.group(2, 3, 4, 5) == ("POST", "/v1/chat/completions", "HTTP/1.1", "200")
    f = fields_of(line)
    assert f["model_name"] == "m" and f["selected_pod"] == pod.authority and f["request_id"] == r.id
    assert f["upstream_status_code"] == "200" and f["upstream_attempts"] == "1"
    assert f["session"] == "s" and f["boosted"] == "false" and f["overtaken"] == "0"
    assert float(f["queue_ms"]) >= 0 and float(f["ttft_ms"]) >= 0
    total, parts = int(m.group(7)), [int(x) for x in m.group(8, 9, 10)]
    assert sum(parts) <= total + 3


def write_calls(router):
    """Sockets are not among them."""
    with open("/proc/%d/io" % router.pid) as f:
        return int(re.search(r"^syscw: (\d+)$", f.read(), re.M).group(1))


def test_lines_share_a_write(start):
    """One at most in ten milliseconds."""
    router = start.router({"m": ["127.0.0.1:1"]}, access_log_format="text")
    c, n = router.client(), 300
    before, since = write_calls(router), time.monotonic()
    for i in range(n):
        c.request("GET", "/v1/models", headers=[("X-Request-ID", "shared-%d" % i)])
        assert c.answer().status == 200
    router.stdout.wait_for_line("shared-%d" % (n - 1))
    most = (time.monotonic() - since) / 0.01 + 2
    assert 1 <= write_calls(router) - before <= most
    assert most < n, "too slow to tell"
    assert len(router.stdout.all("shared-")) == n


def test_one_output_for_both_logs(start):
    """A request's access line stands behind what the router's log has of it, also when they share a write."""
    _, router = pair(start, access_log_output="stderr")
    ids = [router.chat(session="s").id for _ in range(20)]
    for i in ids:
        router.stderr.wait_for_line('"request_id":"%s"' % i)
        mine = [line for line in router.stderr.lines if i in line]
        assert ["queued" in mine[0], "dequeued" in mine[1], mine[2][0]] == [True, True, "{"] and len(mine) == 3


def test_text_error(start):
    _, router = pair(start, access_log_format="text")
    r = router.chat(model="nope")
    line = router.stdout.wait_for_line(r.id)
    assert TEXT.match(line).group(5) == "404" and "error=route_not_found:" in line


def test_times_tell_where_it_was_spent(start):
    pod, router = pair(start, script=None, session_boost_inflight_per_pod=1)
    first = router.start_chat()
    held = pod.next()
    second = router.queue_chat(1)
    time.sleep(0.15)  # time in the queue
    held.reply()
    q = pod.next()
    time.sleep(0.1)  # time at the pod
    q.reply()
    first.answer()
    second.answer()
    e = router.access(second.id)
    assert e["queue_ms"] >= 150 and e["ttft_ms"] >= 250 and e["duration_total"] >= 250
    assert 95 <= e["duration_upstream_processing"] <= e["duration_total"]


def test_one_line_for_each_request(start):
    _, router = pair(start)
    c = router.client()
    ids = []
    for body in (b'{"model":"m"}', b"{", b'{"model":"x"}', b"{}"):
        c.request(body=body)
        c.answer()
        ids.append(c.id)
    c.request("GET", "/v1/models")
    c.answer()
    ids.append(c.id)
    c.request("GET", "/nope")  # refused, outside /v1/: logged, it has a request line
    c.answer()
    ids.append(c.id)
    for path in ("/healthz", "/readyz"):
        c.request("GET", path)
        c.answer()
        ids_probe = c.id
        router.get(path)
    router.get("/metrics", "metrics")
    c.chat()
    c.answer()
    ids.append(c.id)
    for i in ids:
        router.access(i)
        assert len(router.stdout.all(re.escape('"%s"' % i))) == 1, i
    assert not router.stdout.all('"path": ?"/(healthz|readyz|metrics)') and not router.stdout.all(re.escape('"%s"' % ids_probe))
    assert len(router.stdout.lines) == len(ids)


def test_refused_heads_are_logged(start):
    _, router = pair(start, max_header_bytes=2048)
    for raw, status in ((b"GET /v1/models HTTP/1.1\r\nHost: a\r\nBad Name: x\r\n\r\n", 400),
                        (b"GET /v1/models HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 4000 + b"\r\n\r\n", 431)):
        c = router.client()
        c.send(raw)
        assert c.answer().status == status
        line = router.stdout.wait_for_line('"status_code": ?%d' % status)
        assert json.loads(line)["path"] in ("/v1/models", "")


@pytest.mark.parametrize("form", ["text", "json"])
def test_nobody_forges_lines(start, form):
    _, router = pair(start, access_log_format=form)
    evil = 'x" status=1\\n{"request_id":"forged"} session=y'
    c = router.client()
    c.request(path='/v1/a"b\\c', body={"model": "m"}, headers=[("X-Session-ID", evil)])
    c.answer()
    c.request(body={"model": 'q"\n\r\u0000[forged] "GET / HTTP/1.1" 200'})
    c.answer()
    last = router.chat()
    router.stdout.wait_for_line(last.id)
    assert len(router.stdout.lines) == 3
    if form == "json":
        entries = [json.loads(line) for line in router.stdout.lines]
        assert entries[0]["session"] == evil and entries[0]["path"] == '/v1/a"b\\c'
    else:
        assert all(TEXT.match(line.replace('\\"', "")) for line in router.stdout.lines), router.stdout.lines
        assert fields_of(router.stdout.lines[0])["session"] == evil


def test_query_is_not_logged(start):
    _, router = pair(start)
    c = router.client()
    c.request(path="/v1/completions?api_key=secret", body={"model": "m"})
    c.answer()
    assert router.access(c.id)["path"] == "/v1/completions"
    assert not router.stdout.all("secret") and not router.stderr.all("secret")


def test_off(start):
    _, router = pair(start, access_log_enabled="false")
    for _ in range(3):
        assert router.chat().status == 200
    router.wait_idle()
    assert router.stdout.lines == []


def test_file(start, tmp_path):
    path = tmp_path / "access.log"
    path.write_text("kept\n")
    _, router = pair(start, access_log_output=str(path))
    r = router.chat()
    router.wait_idle()
    router.stop()
    lines = path.read_text().splitlines()
    assert lines[0] == "kept" and json.loads(lines[1])["request_id"] == r.id
    assert router.stdout.lines == []


def test_lines_lost_at_the_end_are_told(start):
    """Also when signals come while they are waited for."""
    _, router = pair(start, read_stdout=False)
    c, n = router.client(), 2000  # more than a pipe holds, less than a buffer does beside it
    for _ in range(n // 100):
        c.send(b"".join(c.request("GET", "/v1/models", send=False) for _ in range(100)))
        for _ in range(100):
            assert c.answer().status == 200
    router.signal(signal.SIGTERM)
    wait_until(lambda: refuses(router.ports["metrics"]), "the end")  # then its reader has a second
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        router.signal(number)
    line = router.stderr.wait_for_line("WARN log lines were lost.* log=access ")
    assert router.wait_exit() == 0
    whole = router.stdout.stream.read().count(b"\n")
    assert whole > 0 and int(fields_of(line)["lines"]) == n - whole


def test_stderr(start):
    _, router = pair(start, access_log_output="stderr")
    r = router.chat()
    router.stderr.wait_for_line('"request_id": ?"%s"' % r.id)


def test_unusable_file_is_an_error(tmp_path):
    from daemon import run_router
    p = run_router("--port", "0", "--metrics-port", "0", "--debug-port", "0",
                   env={"ROUTER_BIND": "127.0.0.1", "ACCESS_LOG_OUTPUT": str(tmp_path / "no" / "dir.log")})
    assert p.returncode > 0 and "dir.log" in p.stderr


def test_log_in_json(start):
    _, router = pair(start, log_format="json", session_boost_max_sessions="bad")
    router.chat(session="s")
    line = router.stderr.wait_for_line("session boost.*dequeue")
    entry = json.loads(line)
    assert entry["level"].lower() == "info" and entry["session"] == "s" and entry["model"] == "m"
    for other in router.stderr.lines:
        json.loads(other)


def test_log_level(start):
    _, router = pair(start, log_level="info")
    router.chat(session="s")
    router.stderr.wait_for_line("session boost")


def test_ports_that_the_system_chose_are_told_at_every_level(start):
    _, router = pair(start, log_level="error")
    assert len(router.stderr.all("INFO listening .*port=")) == 3 and len(router.stderr.lines) == 3


def test_output_that_nobody_reads_does_not_hold_requests_up(start):
    """Lines are dropped and counted; the router goes on."""
    _, router = pair(start, read_stdout=False)
    c = router.client()
    asked = 0
    while router.metric("kthena_router_log_lines_dropped_total", log="access") == 0:
        c.send(b"".join(c.request("GET", "/v1/models", send=False) for _ in range(100)))
        for _ in range(100):
            assert c.answer().status == 200
        asked += 100
        assert asked < 20000, "nothing was dropped"
    assert router.chat().status == 200


# ---- both logs in one file, and rotation ----

class Redirected:
    """A router whose outputs a shell sent somewhere, as in `kthena-router >> F 2>&1`; the shell's text may use $F. `text` returns
    what its log has so far."""

    def __init__(self, redirect, text, path, access="stdout", **env):
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", 'exec "$@" ' + redirect, "sh", ROUTER_BIN, "--port", "0", "--metrics-port", "0", "--debug-port", "0"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env=clean_env({"ROUTER_BIND": "127.0.0.1", "F": path, "ACCESS_LOG_OUTPUT": access, "ROUTER_BACKENDS": "m=127.0.0.1:1", **env}))
        found = wait_until(lambda: re.search(r"listener=inference .*port=(\d+)", text()), "the port")
        self.port = int(found.group(1))

    def ask(self, ids):
        c = Client(self.port)
        for i in ids:
            c.request("GET", "/v1/models", headers=[("X-Request-ID", i)])
            assert c.answer().status == 200
        c.close()

    def stop(self):
        self.process.terminate()
        assert self.process.wait(DEADLINE) == 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class StuckPipe:
    """A named pipe that takes what fits; `text` empties it and returns all that came."""

    def __init__(self, path):
        os.mkfifo(path)
        self.path, self.fd, self.got = path, os.open(path, os.O_RDWR | os.O_NONBLOCK), b""

    def text(self):
        try:
            self.got += os.read(self.fd, 1 << 20)
        except BlockingIOError:
            pass
        return self.got.decode()


@pytest.fixture
def stuck_pipe(tmp_path):
    pipe = StuckPipe(tmp_path / "F")
    yield pipe
    os.close(pipe.fd)


def ids_of(text):
    """Those of the access lines; each line must be a whole one."""
    lines = text.split("\n")
    assert lines.pop() == ""
    for line in lines:
        assert re.match(r'\[20\S+Z\] "GET /v1/models HTTP/1.1" 200 .*ms\(\d+\+\d+\+\d+\)$|20\S+Z (INFO|WARN) [a-z]', line), line
    return [m.group(1) for m in (re.search(r"request_id=(\S+)", line) for line in lines) if m]


@pytest.mark.parametrize("access,redirect", [
    ("F", '2> "$F"'), ("F", '2>> "$F"'), ("F", '> "$F" 2>&1'), ("stdout", '> "$F" 2>&1'), ("stdout", '> "$F" 2> "$F"'),
    ("/dev/stdout", '> "$F" 2>&1'), ("stdout", '>> "$F" 2> "$F"')])
def test_both_logs_in_one_file(tmp_path, access, redirect):
    """Neither log writes over the lines of the other."""
    path = tmp_path / "F"
    path.touch()
    ids = ["both-%d" % i for i in range(30)]
    with Redirected(redirect, path.read_text, str(path), str(path) if access == "F" else access) as router:
        for i in ids:
            router.ask([i])
        wait_until(lambda: ids[-1] in path.read_text(), "the last line")
        router.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "reloaded" in path.read_text(), "the reload")
        router.ask(["both-last"])
        router.stop()
    text = path.read_text()
    assert ids_of(text) == ids + ["both-last"]
    for word in ("starting", "listener=metrics", "listener=inference", "reloaded", "draining", "stopped"):
        assert len(re.findall(" INFO %s| INFO listening %s" % (word, word), text)) == 1, (word, text)


def test_rotation_while_lines_flow(tmp_path):
    """Both logs in one file, which is moved away twice: every line is somewhere, whole, and once."""
    path = tmp_path / "F"
    path.touch()
    sent, stop = [], threading.Event()
    with Redirected('2>> "$F"', path.read_text, str(path), str(path)) as router:
        def keep_asking():
            while not stop.is_set():
                ids = ["flow-%d" % (len(sent) + k) for k in range(20)]
                router.ask(ids)
                sent.extend(ids)
        asking = threading.Thread(target=keep_asking, daemon=True)
        asking.start()
        try:
            for n in (1, 2):
                before = len(sent)
                wait_until(lambda: len(sent) > before + 100, "lines to flow")
                os.rename(path, "%s.%d" % (path, n))
                router.process.send_signal(signal.SIGHUP)
                wait_until(lambda: path.exists() and "flow-" in path.read_text(), "lines in the new file")
        finally:
            stop.set()
            asking.join(DEADLINE)
        assert not asking.is_alive()
        router.stop()
    texts = [(tmp_path / name).read_text() for name in ("F.1", "F.2", "F")]
    assert [len(ids_of(text)) > 0 for text in texts] == [True, True, True]
    assert [i for text in texts for i in ids_of(text)] == sent
    assert texts[0].count(" INFO reloaded ") == 2 and " INFO stopped " in texts[0]  # the shell opened that file


def test_rotation_away_from_a_stuck_pipe(stuck_pipe):
    """The log that got a file of its own does not wait for the pipe, and the other one's next line is on a line of its own."""
    path = stuck_pipe.path
    with Redirected('2> "$F"', stuck_pipe.text, str(path), str(path)) as router:
        n = 2000  # more than a pipe holds
        router.ask(["stuck-%d" % i for i in range(n)])
        os.rename(path, "%s.1" % path)
        router.process.send_signal(signal.SIGHUP)
        wait_until(path.exists, "the new file")
        router.ask(["free"])
        wait_until(lambda: "request_id=free " in path.read_text(), "the line in the new file")
        wait_until(lambda: " INFO reloaded " in stuck_pipe.text(), "the pipe's next line")
        router.stop()
        wait_until(lambda: " INFO stopped " in stuck_pipe.text(), "the last line")
    lines = stuck_pipe.text().split("\n")
    torn = [line for line in lines[:-1] if not re.match(r"\[20.*ms\(\d+\+\d+\+\d+\)$|20\S+Z (INFO|WARN) [a-z]", line)]
    new = ids_of(path.read_text())
    lost = stuck_pipe.text().count(" log=access lines=1\n")
    ids = ids_of("".join(line + "\n" for line in lines[:-1] if line not in torn))
    assert len(set(ids + new)) == len(ids + new) and new[-1] == "free"
    # A line of which only its end is missing is one that was lost, and looks whole.
    assert len(torn) <= lost <= 1 and n + 1 - lost <= len(ids + new) <= n + 1 - len(torn)


def test_file_that_may_not_grow(start, tmp_path):
    """At its limit of size a log loses lines, which is told; the router goes on."""
    path = tmp_path / "access.log"
    _, router = pair(start, access_log_output=str(path))
    resource.prlimit(router.pid, resource.RLIMIT_FSIZE, (1000, 1000))
    n = 20
    for _ in range(n):
        assert router.chat().status == 200
    router.signal(signal.SIGTERM)
    line = router.stderr.wait_for_line("log lines were lost.*log=access")
    assert router.wait_exit() == 0
    assert 0 < path.read_text().count("\n") == n - int(fields_of(line)["lines"])


def test_rotation_that_fails(start, tmp_path):
    """It is said why, and the old file stays in use."""
    directory, path = tmp_path / "logs", tmp_path / "logs" / "access.log"
    directory.mkdir()
    _, router = pair(start, access_log_output=str(path))
    directory.rename(tmp_path / "gone")
    router.signal(signal.SIGHUP)
    assert str(path) in router.stderr.wait_for_line("WARN the access log cannot be opened anew")
    r = router.chat()
    wait_until(lambda: r.id in (tmp_path / "gone" / "access.log").read_text(), "the line")


def test_the_log_tells_what_it_lost_itself(start, stuck_pipe):
    """Its reader comes back when the router ends: first what waited, then how much did not."""
    path, pod = stuck_pipe.path, start.pod(script=ok)
    with Redirected('2> "$F"', stuck_pipe.text, str(path), "/dev/full", ENABLE_SESSION_BOOST="true",
                    ROUTER_BACKENDS="m=" + pod.authority) as router:
        metrics = int(re.search(r"listener=metrics .*port=(\d+)", stuck_pipe.text()).group(1))
        n, c = 1000, Client(router.port)
        for i in range(n):  # short ones at the end: what is left of the buffer has room for no line at all
            assert c.chat(session="s" * (1000 if i < n - 50 else 1)).answer().status == 200
        c.close()
        router.process.terminate()
        wait_until(lambda: refuses(metrics), "the end")  # then its reader has a second
        found = wait_until(lambda: re.search(r"WARN log lines were lost.* log=router lines=(\d+)\n", stuck_pipe.text()), "the last word")
        assert router.process.wait(DEADLINE) == 0
    queue_lines = len(re.findall(" session boost: (?:de)?queued ", stuck_pipe.text()))
    assert queue_lines < 2 * n <= queue_lines + int(found.group(1)) <= 2 * n + 3  # "draining", "stopped", a line's end
    assert stuck_pipe.text().endswith(found.group(0))
    assert len(re.findall("WARN log lines were lost.* log=access lines=%d\n" % n, stuck_pipe.text())) == 1
