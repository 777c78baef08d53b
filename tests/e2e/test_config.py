"""Options from flags, environment and INI; errors that name their place; reload."""

import json
import os
import re
import signal
import socket
import subprocess

import pytest

from daemon import Lines, clean_env, run_router
from pod import ok
from test_errors import check_error
from test_retry import BlackHole
from waiting import DEADLINE, ROUTER_BIN, wait_until

SERVER = "[model-server {name}]\npods = {pods}\n[model-route {name}]\ntarget = {name}\n"


def ini_file(tmp_path, text, name="r.ini"):
    path = tmp_path / name
    path.write_text(text)
    return str(path)


# ---- flags that end at once ----

def test_help_lists_every_option():
    p = run_router("--help")
    assert p.returncode == 0
    for flag in ("--port", "--session-boost-timeout", "--max-body-bytes", "--config", "--check", "--print-config", "--version"):
        assert flag in p.stdout, flag


def test_version():
    p = run_router("--version")
    assert p.returncode == 0 and re.match(r"kthena-router \d+\.\d+", p.stdout)


@pytest.mark.parametrize("args", [["--nope"], ["--port", "x"], ["--port", "70000"], ["--port"], ["--session-boost-timeout", "5"],
                                  ["stray"]])
def test_bad_flags_end_with_an_error(args):
    p = run_router(*args)
    assert p.returncode not in (0, None) and p.returncode > 0
    assert args[0] in p.stderr or args[0].strip("-").replace("-", "_") in p.stderr.lower()


def test_precedence_and_origin(tmp_path):
    path = ini_file(tmp_path, "[router]\nsession_boost_timeout = 11s\nsession_boost_max_sessions = 11\n"
                              "session_boost_inflight_per_pod = 11\n")
    p = run_router("--config", path, "--session-boost-timeout=33s", "--print-config",
                   env={"SESSION_BOOST_TIMEOUT": "22s", "SESSION_BOOST_MAX_SESSIONS": "22"})
    assert p.returncode == 0, p.stderr

    def line(name):
        return next(x for x in p.stdout.splitlines() if name in x.lower()).lower()
    assert "33s" in line("session_boost_timeout") and "flag" in line("session_boost_timeout")
    assert "22" in line("session_boost_max_sessions") and "env" in line("session_boost_max_sessions")
    assert "11" in line("session_boost_inflight_per_pod") and ("ini" in line("session_boost_inflight_per_pod")
                                                              or "r.ini" in line("session_boost_inflight_per_pod"))
    assert "default" in line("session_boost_max_overtakes")


def test_config_from_environment(tmp_path):
    path = ini_file(tmp_path, "[router]\nsession_boost_timeout = 7s\n")
    p = run_router("--print-config", env={"ROUTER_CONFIG": path})
    assert p.returncode == 0 and "7s" in p.stdout


def test_check_ok(tmp_path):
    path = ini_file(tmp_path, SERVER.format(name="m", pods="127.0.0.1:8000, [::1]:8001, pod-0.svc:80"))
    assert run_router("--check", "--config", path).returncode == 0


def test_check_says_what_the_environment_overrides(tmp_path):
    """No fault, but who edits the file sees no effect. What is the same in both is not worth a word."""
    path = ini_file(tmp_path, "[router]\nport = 9000\nqueue_max_requests = 5\n" + SERVER.format(name="m", pods="127.0.0.1:8000"))
    p = run_router("--check", "--config", path, env={"ROUTER_PORT": "8080", "QUEUE_MAX_REQUESTS": "5"})
    assert p.returncode == 0
    assert p.stderr == 'kthena-router: warning: ROUTER_PORT="8080" overrides port = 9000 of the INI file\n'


def test_check_lists_every_problem(tmp_path):
    path = ini_file(tmp_path, "[router]\nsession_boost_timeout = soon\nnonsense = 1\n[model-server s]\npods = nohost\n"
                              "[model-route r]\ntarget = missing\n[strange]\nx = 1\n")
    p = run_router("--check", "--config", path, env={"QUEUE_MAX_REQUESTS": "many"})
    assert p.returncode == 1
    out = p.stdout + p.stderr
    for part in ("soon", "nonsense", "nohost", "missing", "strange", "QUEUE_MAX_REQUESTS", "many"):
        assert part in out, part
    assert re.search(r"r\.ini:2\b", out) and re.search(r"r\.ini:3\b", out)


@pytest.mark.parametrize("text,line", [
    ("[router]\nport = x\n", 2),
    ("[router]\n\nunknown_key = 1\n", 3),
    ("no section\n", 1),
    ("[router]\nsession_sticky = maybe\n", 2),
    ("[model-server a]\npods = h:1\nengine = unknown\n", 3),
    ("[model-server a]\npods = h:99999\n", 2),
    ("[model-server a]\npods = h:1\ndns = d:1\n", None),
    ("[model-server a]\nengine = vllm\n", None),
    ("[model-route a]\ntarget = none\n", 2),
    ("[model-server a]\npods = h:1\ntimeout = -1s\n", 3),
])
def test_ini_errors_are_fatal_with_file_and_line(tmp_path, text, line):
    p = run_router("--config", ini_file(tmp_path, text))
    assert p.returncode > 0
    assert re.search(r"r\.ini:%s" % (line if line else r"\d+"), p.stderr), p.stderr


def test_missing_ini(tmp_path):
    p = run_router("--config", str(tmp_path / "absent.ini"))
    assert p.returncode > 0 and "absent.ini" in p.stderr


def test_long_pod_lines_are_read_whole(start):
    pod = start.pod(script=ok)
    pods = ", ".join(["127.0.0.1:%d" % p for p in range(20001, 20400)])
    p = run_router("--check", "--backends", "m=" + pods.replace(" ", ""))
    assert p.returncode == 0, p.stderr
    again = pod.authority.replace("127.0.0.1", "localhost")
    router = start.router(ini=SERVER.format(name="m", pods=pod.authority + "," + " " * 5000 + again))
    assert router.chat().status == 200


# ---- environment ----

def test_bad_environment_values_are_warnings_and_defaults(start):
    router = start.router({"m": [start.pod(script=ok)]}, session_boost_timeout="soon", session_boost_max_sessions="0",
                          session_boost_max_overtakes="0", max_body_bytes="-1")
    for name, value in (("SESSION_BOOST_TIMEOUT", "soon"), ("SESSION_BOOST_MAX_SESSIONS", "0"), ("SESSION_BOOST_MAX_OVERTAKES", "0"),
                        ("MAX_BODY_BYTES", "-1")):
        line = router.stderr.wait_for_line(name)
        assert value in line, line
    assert router.chat().status == 200
    p = run_router("--print-config", env={"SESSION_BOOST_TIMEOUT": "soon"})
    assert p.returncode == 0 and re.search(r"session_boost_timeout\s*=?\s*\"?30s", p.stdout, re.I)


def test_unknown_names_are_warned_of_with_the_nearest(start):
    router = start.router({"m": [start.pod(script=ok)]}, env={"SESSION_BOOST_TIMOUT": "3s", "ROUTER_PROT": "1"})
    assert "SESSION_BOOST_TIMEOUT" in router.stderr.wait_for_line("SESSION_BOOST_TIMOUT")
    assert "ROUTER_PORT" in router.stderr.wait_for_line("ROUTER_PROT")


def test_both_strategies_are_an_error():
    p = run_router(env={"ENABLE_SESSION_BOOST": "true", "ENABLE_FAIRNESS_SCHEDULING": "true"})
    assert p.returncode > 0 and "ENABLE_SESSION_BOOST" in p.stderr and "ENABLE_FAIRNESS_SCHEDULING" in p.stderr


def test_port_in_use_is_a_clear_error(start):
    pod = start.pod()
    p = run_router("--port", str(pod.port), "--metrics-port", "0", "--debug-port", "0", env={"ROUTER_BIND": "127.0.0.1"})
    assert p.returncode > 0 and str(pod.port) in p.stderr


# ---- reload ----

def reload(router, text, result):
    before = router.metrics().get("kthena_router_config_reloads_total", 0, result=result)
    router.write_ini(text)
    router.signal(signal.SIGHUP)
    router.wait_metric("kthena_router_config_reloads_total", before + 1, result=result)


def two(a, b=None):
    return SERVER.format(name="m", pods=a.authority) + (SERVER.format(name="n", pods=b.authority) if b else "")


def test_reload_adds_and_removes(start):
    a, b = start.pod(script=ok), start.pod(script=ok)
    router = start.router(ini=two(a))
    assert router.chat(model="n").status == 404
    reload(router, two(a, b), "ok")
    assert router.chat(model="n").status == 200 and len(b.requests) == 1
    reload(router, two(b), "ok")
    assert router.chat(model="n").status == 404
    before = len(a.requests)
    for _ in range(4):
        assert router.chat(model="m").status == 200
    assert len(a.requests) == before


def test_removed_pod_finishes_what_it_runs(start):
    a, b = start.pod(), start.pod(script=ok)
    router = start.router(ini=two(a))
    c = router.start_chat(stream=True)
    q = a.next()
    q.start().event("one")
    reload(router, two(b), "ok")
    assert router.chat().status == 200
    q.event("two").event("[DONE]").end()
    r = c.answer()
    assert r.clean and b"two" in r.body
    wait_until(lambda: not any(x["name"] == a.authority for x in pods_of(router)), "the pod to be forgotten")


def pods_of(router):
    dump = router.dump("pods")
    return dump["pods"] or []


def test_reload_keeps_queued_requests_and_sessions(start):
    a, b = start.pod(), start.pod(script=ok)
    router = start.router(ini=two(a), session_boost_inflight_per_pod=1)
    c = router.start_chat(session="s")
    a.next().reply()
    c.answer()
    running = router.start_chat()
    held = a.next()
    waiting = [router.queue_chat(1, tag="plain"), router.queue_chat(2, session="s", tag="follow")]
    reload(router, two(a, b), "ok")
    assert router.queue_len() == 2
    held.reply()
    order = []
    for _ in range(2):
        q = a.next()
        order.append(q.tag)
        q.reply()
    assert order == ["follow", "plain"]
    assert [x.answer().status for x in [running, *waiting]] == [200] * 3


def test_added_pod_serves_the_queue_at_once(start):
    a, b = start.pod(), start.pod()
    router = start.router(ini=two(a), session_boost_inflight_per_pod=1)
    running = router.start_chat()
    held = a.next()
    waiting = router.queue_chat(1)
    reload(router, SERVER.format(name="m", pods="%s, %s" % (a.authority, b.authority)), "ok")
    b.next().reply()
    assert waiting.answer().status == 200
    held.reply()
    assert running.answer().status == 200


def test_queued_request_whose_model_vanished(start):
    a, b = start.pod(), start.pod(script=ok)
    router = start.router(ini=two(a), session_boost_inflight_per_pod=1)
    running = router.start_chat()
    held = a.next()
    waiting = router.queue_chat(1, session="s")
    reload(router, SERVER.format(name="n", pods=b.authority), "ok")
    check_error(waiting.answer(), 404, "route_not_found")
    held.reply()
    assert running.answer().status == 200
    assert router.chat(model="n").status == 200


def test_scale_up_moves_no_session(start):
    """Sessions keep their pods when one is added; when one goes, only its own move."""
    pods = [start.pod(script=ok) for _ in range(3)]

    def ini(*some):
        return SERVER.format(name="m", pods=", ".join(p.authority for p in some))
    router = start.router(ini=ini(*pods[:2]))

    def homes():
        return {s: router.access(router.chat(session="s%d" % s).id)["selected_pod"] for s in range(30)}
    before = homes()
    assert len(set(before.values())) == 2
    reload(router, ini(*pods), "ok")
    assert homes() == before
    reload(router, ini(*pods[1:]), "ok")
    after = homes()
    assert {s for s in before if before[s] == pods[1].authority} <= {s for s in after if after[s] == pods[1].authority}
    assert pods[0].authority not in after.values()


def test_lane_of_a_removed_pod_empties_at_once(start):
    a, b = start.pod(), start.pod()
    router = start.router(ini=SERVER.format(name="m", pods="%s, %s" % (a.authority, b.authority)), session_boost_inflight_per_pod=1,
                          session_sticky_wait="60s")
    first = router.start_chat(session="s")
    wait_until(lambda: not (a.nothing_held() and b.nothing_held()), "the first turn")
    warm, other = (b, a) if a.nothing_held() else (a, b)
    warm.next().reply()
    assert first.answer().status == 200
    blockers = [router.start_chat(tag="x"), router.start_chat(tag="x")]
    held, free = warm.next(), other.next()
    follow = router.queue_chat(1, session="s", tag="follow")
    free.reply()
    assert router.queue_len() == 1 and other.nothing_held()
    reload(router, SERVER.format(name="m", pods=other.authority), "ok")
    q = other.next()
    assert q.tag == "follow"
    q.reply()
    held.reply()
    assert [c.answer().status for c in [*blockers, follow]] == [200] * 3


def test_reload_without_a_file_is_harmless(start):
    router = start.router({"m": [start.pod(script=ok)]})
    router.signal(signal.SIGHUP)
    wait_until(lambda: router.metrics().total("kthena_router_config_reloads_total") >= 1 or router.stderr.find("(?i)reload"), "the reload")
    assert router.chat().status == 200


def test_reload_that_is_asked_for_while_the_router_starts():
    def ask():  # it is pending when main begins
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
        os.kill(os.getpid(), signal.SIGHUP)
    with subprocess.Popen([ROUTER_BIN, "--port", "0", "--metrics-port", "0", "--debug-port", "0"], env=clean_env({"ROUTER_BIND": "127.0.0.1"}),
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, preexec_fn=ask) as p:
        log = Lines(p.stderr)
        log.start()
        try:
            log.wait_for_line("INFO reloaded")
            p.terminate()
            assert p.wait(DEADLINE) == 0
        finally:
            p.kill()
            log.join(DEADLINE)


def test_broken_ini_changes_nothing(start):
    a = start.pod(script=ok)
    router = start.router(ini=two(a))
    reload(router, "[router]\nsession_boost_timeout = soon\n", "refused")
    line = router.stderr.wait_for_line("soon")
    assert "router.ini:2" in line
    assert router.chat().status == 200
    reload(router, two(a), "ok")


def test_reload_changes_limits(start):
    a = start.pod()
    router = start.router(ini=two(a) + "[router]\nsession_boost_inflight_per_pod = 1\n")
    c1 = router.start_chat()
    q1 = a.next()
    c2 = router.queue_chat(1)
    reload(router, two(a) + "[router]\nsession_boost_inflight_per_pod = 2\n", "ok")
    q2 = a.next()
    q1.reply()
    q2.reply()
    assert c1.answer().status == c2.answer().status == 200


def test_reload_names_options_that_need_a_restart(start):
    a = start.pod(script=ok)
    router = start.router(ini=two(a) + "[router]\naccess_log_output = stdout\n")
    reload(router, two(a) + "[router]\naccess_log_output = /nowhere/x.log\n", "ok")
    assert "restart" in router.stderr.wait_for_line("(?i)access_log_output.*restart|restart.*access_log_output")
    assert router.chat().status == 200


def test_ini_takes_every_option_name(tmp_path):
    """The sample file is a valid one."""
    sample = run_router("--print-example")
    assert sample.returncode == 0
    assert run_router("--check", "--config", ini_file(tmp_path, sample.stdout)).returncode == 0


def test_model_that_goes_and_comes_while_its_requests_run(start):
    """Three generations of one model: the last request of each ends after its generation was removed."""
    a, b = start.pod(), start.pod(script=ok)
    with_m, without_m = two(a), SERVER.format(name="n", pods=b.authority)
    router = start.router(ini=with_m)
    held, clients = [], []
    for _ in range(3):
        clients.append(router.start_chat(session="s"))
        held.append(a.next())
        reload(router, without_m, "ok")
        reload(router, with_m, "ok")
    reload(router, without_m, "ok")
    for q, c in zip(held, clients):
        q.reply()
        assert c.answer().status == 200
    assert router.chat(model="n").status == 200


def test_longer_model_name_between_two_attempts(start):
    """The first pod does not answer the connect; a reload meanwhile gives the model a longer name at the pods."""
    hole, live = BlackHole(), start.pod(script=ok)
    ini = "[model-server s]\npods = %s\nengine = none\nmodel = %s\n[model-route m]\ntarget = s\n"
    router = start.router(ini=ini % (hole.authority, "x"), upstream_connect_timeout="500ms")
    c = router.start_chat()
    wait_until(lambda: router.dump("requests")["requests"][0]["state"] == "CONNECT", "the connect")
    name = "long-" * 30
    reload(router, ini % ("%s, %s" % (hole.authority, live.authority), name), "ok")
    assert c.answer().status == 200
    assert json.loads(live.requests[0].body)["model"] == name
    hole.close()


def test_ports_that_clash_and_a_log_that_cannot_be_written_are_found_by_check(tmp_path):
    done = run_router("--check", "--port", "8080", "--metrics-port", "8080", "--access-log-output", str(tmp_path / "no" / "log"))
    assert done.returncode == 1
    assert "ROUTER_PORT and ROUTER_METRICS_PORT are both 8080" in done.stderr
    assert "ACCESS_LOG_OUTPUT: cannot write" in done.stderr


@pytest.mark.parametrize("family,address", [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_port_that_is_taken_in_one_family_is_an_error(family, address):
    with socket.socket(family) as s:
        s.bind((address, 0))
        s.listen()
        done = run_router("--port", str(s.getsockname()[1]), "--metrics-port", "0", "--debug-port", "0")
    assert done.returncode == 1 and "Address already in use" in done.stderr
