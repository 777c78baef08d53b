"""Deadlines and the one way to wait: a condition, polled until it holds or the deadline passes."""

import os
import time


def _sanitized(path):
    try:
        with open(path, "rb") as f:
            return b"__asan_init" in f.read()
    except OSError:
        return False


ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ROUTER_BIN = os.environ.get("ROUTER_BIN", os.path.join(ROOT, "build/kthena-router"))
VLLM_SIM = os.environ.get("VLLM_SIM", os.path.join(ROOT, "build/vllm-sim"))
FAIL_ALLOC_LIB = os.environ.get("FAIL_ALLOC_LIB", os.path.join(ROOT, "build/torture-alloc.so"))
SANITIZED = _sanitized(ROUTER_BIN)

# Sanitized builds are several times slower: every deadline grows with them.
SLOW = float(os.environ.get("TEST_SLOW", "5" if SANITIZED else "1"))
DEADLINE = 5.0 * SLOW


def wait_until(condition, what, timeout=None):
    """Returns the first true value of condition(); fails with `what` when the deadline passes."""
    deadline = time.monotonic() + (DEADLINE if timeout is None else timeout)
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError("timed out waiting for: %s (last value %r)" % (what, value))
        time.sleep(0.004)
