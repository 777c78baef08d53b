"""Pods by name."""

from pod import ok


def test_dns_server(start):
    """Every address of the name is a pod; `localhost` comes from /etc/hosts."""
    pod = start.pod(script=ok)
    router = start.router(ini="[model-server s]\ndns = localhost:%d\n[model-route m]\ntarget = s\n" % pod.port)
    for _ in range(5):
        assert router.chat().status == 200
    assert len(pod.requests) == 5
    names = [p["name"] for p in router.dump("pods")["pods"]]
    assert "127.0.0.1:%d" % pod.port in names


def test_static_name(start):
    pod = start.pod(script=ok)
    router = start.router({"m": ["localhost:%d" % pod.port]})
    for _ in range(5):
        assert router.chat().status == 200
    assert pod.requests[-1].header("Host") == "localhost:%d" % pod.port


def test_name_that_does_not_resolve(start):
    pod = start.pod(script=ok)
    router = start.router(ini="[model-server s]\npods = no-such-host.invalid:80, %s\n[model-route m]\ntarget = s\n" % pod.authority)
    for _ in range(6):
        assert router.chat().status == 200
    assert len(pod.requests) == 6
