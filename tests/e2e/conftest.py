"""Fixtures: routers, pods, simulated pods and API servers that end with their test."""

import os
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "sim"))

from daemon import Router, Sim
from dns_server import DnsServer
from kube_api import KubeApi
from pod import Pod

_running = []


class _Start:
    """Starts things and ends them in reverse order; a test that failed is not judged twice."""

    def __init__(self, tmp_path):
        self.tmp_path, self.things = tmp_path, []

    def router(self, *args, **options):
        r = Router(*args, tmp_path=self.tmp_path, **options)
        self.things.append(r)
        _running.append(r)
        return r

    def pod(self, *args, **options):
        p = Pod(*args, **options)
        self.things.append(p)
        return p

    def kube(self, **options):
        k = KubeApi(**options)
        self.things.append(k)
        return k

    def dns(self):
        d = DnsServer()
        self.things.append(d)
        return d

    def sim(self, *args):
        s = Sim(*args)
        self.things.append(s)
        return s

    def end(self, failed):
        first = None
        # Routers first, while their pods are still there.
        for t in sorted(reversed(self.things), key=lambda t: not isinstance(t, Router)):
            try:
                if failed and isinstance(t, Router):
                    t.kill()
                else:
                    t.stop()
                if not failed and isinstance(t, Pod) and t.errors:
                    raise t.errors[0]
            except Exception as e:
                first = first or e
        _running.clear()
        if first and not failed:
            raise first


@pytest.fixture
def start(request, tmp_path):
    s = _Start(tmp_path)
    yield s
    s.end(getattr(request.node, "failed", False))


@pytest.fixture(scope="module")
def start_module(request, tmp_path_factory):
    """For files whose tests share one router."""
    s = _Start(tmp_path_factory.mktemp("module"))
    before = request.session.testsfailed
    yield s
    s.end(request.session.testsfailed > before)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.failed:
        item.failed = True
        for r in _running:
            report.sections.append(("router log", "\n".join(r.stderr.lines[-40:])))
            report.sections.append(("access log", "\n".join(r.stdout.lines[-20:])))
