"""What the demo says at its end is true: with --once nothing is left to talk to, without it every line can be followed."""

import itertools
import os
import re
import shlex
import signal
import subprocess
import sys
import threading

from waiting import DEADLINE, ROOT, ROUTER_BIN, VLLM_SIM

DEMO = [sys.executable, os.path.join(ROOT, "tests/demo/demo.py")]
ENV = {**os.environ, "ROUTER_BIN": ROUTER_BIN, "VLLM_SIM": VLLM_SIM, "PYTHONUNBUFFERED": "1"}
TALK_S = 12 * DEADLINE  # of the whole conversation; it takes three seconds


def test_once_ends_with_how_to_keep_it_up():
    out = subprocess.run([*DEMO, "--once"], env=ENV, capture_output=True, text=True, timeout=TALK_S)
    assert out.returncode == 0, out
    assert re.search(r"follow-ups \(boosted\) +\d+ requests", out.stdout)
    assert '"make demo" keeps it' in out.stdout.splitlines()[-1]
    assert not re.search(r"curl|http://|Try it", out.stdout)


def test_what_it_says_to_try_works():
    with subprocess.Popen(DEMO, env=ENV, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as demo:
        late = threading.Timer(TALK_S, demo.terminate)
        try:
            late.start()
            said = "".join(itertools.takewhile(lambda line: not line.startswith("Up until Ctrl-C"), demo.stdout))
            commands = [shlex.split(c) for c in re.findall(r"curl (?:.*\\\n)?.*", said)]
            assert len(commands) == 3, said
            first, second, metrics = [subprocess.run(c, capture_output=True, text=True, timeout=DEADLINE) for c in commands]
            assert "data: [DONE]" in first.stdout and "data: [DONE]" in second.stdout
            assert "kthena_router_session_boost_queue_boosted_dequeue_total" in metrics.stdout
            boosted = "dequeued .* session=mine boosted=true"
            assert any(re.search(boosted, line) for line in demo.stdout)
        finally:
            late.cancel()
            demo.send_signal(signal.SIGINT)
            demo.stdout.read()
    assert demo.returncode == 0
