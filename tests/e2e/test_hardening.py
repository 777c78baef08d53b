"""The system calls that README.md names are all that the router needs."""

import os
import platform
import re
import signal
import sys

import daemon
from pod import ok
from waiting import ROUTER_BIN, wait_until

HERE = os.path.dirname(os.path.abspath(__file__))


def system_calls():
    with open(os.path.join(HERE, "..", "..", "README.md"), encoding="utf-8") as f:
        return re.search(r"<!-- system calls -->\s*`([a-z0-9_\s]+)`", f.read()).group(1).split()


def confined(tmp_path):
    """A router that is killed for any other call. A sanitizer needs more; the filter knows the numbers of x86-64."""
    with open(ROUTER_BIN, "rb") as f:
        if platform.machine() != "x86_64" or b"__asan_init" in f.read():
            return ROUTER_BIN
    script = tmp_path / "confined"
    script.write_text("#!/bin/sh\nexec %s %s '%s' %s \"$@\"\n" % (
        sys.executable, os.path.join(HERE, "seccomp.py"), " ".join(system_calls()), ROUTER_BIN))
    script.chmod(0o755)
    return str(script)


def test_named_system_calls_are_enough(start, tmp_path, monkeypatch):
    monkeypatch.setattr(daemon, "ROUTER_BIN", confined(tmp_path))
    pod = start.pod(script=ok)
    ini = "[model-server s]\npods = localhost:%d\n[model-route m]\ntarget = s\n" % pod.port
    log = tmp_path / "access.log"
    router = start.router(ini=ini, access_log_output=str(log))
    for stream in (False, True):
        assert router.chat(session="s", stream=stream).status == 200
    large = router.client()
    for _ in range(2):
        large.chat(pad="x" * 50000)
        assert large.answer().status == 200
    assert router.chat(model="nobody").status == 404
    gone = router.start_chat(session="gone")
    gone.close()
    assert router.dump("pods")["pods"] and router.get("/healthz").status == 200
    router.signal(signal.SIGHUP)
    router.wait_metric("kthena_router_config_reloads_total", 1, result="ok")
    assert router.chat().status == 200
    wait_until(lambda: log.read_text().count("\n") >= 4, "lines in the access log")
    router.signal(signal.SIGTERM)
    assert router.wait_exit() == 0
