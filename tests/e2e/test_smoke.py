"""The main job once, end to end: a turn, its follow-up, both boosted as they should be."""

import subprocess

from daemon import fields_of
from pod import ok
from waiting import ROUTER_BIN


def test_two_turns_of_a_session(start):
    pod = start.pod(script=ok)
    router = start.router({"m": [pod]})
    first = router.chat(session="s1")
    second = router.chat(session="s1")
    assert (first.status, second.status) == (200, 200)
    assert first.body == b'{"ok":true}'
    assert router.access(first.id)["boosted"] is False
    assert router.access(second.id)["boosted"] is True
    line = router.stderr.wait_for_line(r"session boost.*dequeue.*boosted=true")
    assert fields_of(line)["session"] == "s1"


def test_streamed_turn(start):
    pod = start.pod(script=lambda r: r.sse('{"t":1}', '{"t":2}'))
    router = start.router({"m": [pod]})
    r = router.chat(stream=True)
    assert r.status == 200 and r.clean
    assert r.body == b'data: {"t":1}\n\ndata: {"t":2}\n\ndata: [DONE]\n\n'


def test_version_names_the_program():
    out = subprocess.run([ROUTER_BIN, "--version"], capture_output=True, text=True, check=True)
    assert "kthena-router" in out.stdout
