"""Numbers from the pods: names of both engines, ranks, odd values, slow and broken pods. Numbers are of no use when they
are three intervals old: where they have to count, the interval is long."""

import math
import signal
import threading

import pytest

from pod import ok, vllm_metrics
from waiting import DEADLINE, wait_until

SGLANG = """# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="llama",tp_rank="0"} 5.0
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{engine_type="unified",model_name="llama",tp_rank="0"} %s
# TYPE sglang:token_usage gauge
sglang:token_usage{engine_type="unified",model_name="llama",tp_rank="0"} 0.37
"""
RANKS = """vllm:num_requests_waiting{engine="0",model_name="m"} %s
vllm:num_requests_waiting{engine="1",model_name="m"} 7.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.10
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.97
vllm:lora_requests_info{max_lora="4",running_lora_adapters="a,b",waiting_lora_adapters=""} 1.788555301e+09
foo{path="C:\\\\x\\"y{z} 9"} 1
"""
OLD = """# TYPE vllm:gpu_cache_usage_perc gauge
vllm:gpu_cache_usage_perc{model_name="m"} 0.25
vllm:num_requests_swapped{model_name="m"} 0.0
vllm:num_requests_waiting{model_name="m"} 2.0
vllm:cpu_cache_usage_perc{model_name="m"} NaN
"""
BY_REASON = """vllm:num_requests_running{engine="0",model_name="m"} 11.0
vllm:num_requests_waiting{engine="0",model_name="m"} 3.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 1.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="deferred"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.6431870669745958
"""


def ini(pod, engine):
    return "[model-server s]\npods = %s\nengine = %s\n[model-route m]\ntarget = s\n" % (pod.authority, engine)


def wait_read(router, pod):
    """A page of the pod has been worked through."""
    wait_until(lambda: router.metric("kthena_router_pod_metrics_stale", None, pod=pod.authority) == 0, "a page to be read")


@pytest.mark.parametrize("text,engine,waiting,running,kv", [
    (vllm_metrics(waiting=3.0, running=11.0, kv=0.5), "vllm", 3, 11, 0.5),
    (BY_REASON, "vllm", 3, 11, 0.6431870669745958),
    (RANKS % "0.0", "vllm", 7, math.nan, 0.97),
    (OLD, "vllm", 2, math.nan, 0.25),
    (SGLANG % "2.0", "sglang", 2, 5, 0.37),
    ("other_metric 1\n", "vllm", math.nan, math.nan, math.nan),
    (vllm_metrics(waiting="NaN"), "vllm", math.nan, 0, 0),
], ids=["vllm", "by-reason", "two-ranks", "old-names", "sglang", "nothing", "nan"])
def test_numbers(start, text, engine, waiting, running, kv):
    pod = start.pod(metrics=text)
    router = start.router(ini=ini(pod, engine), metrics_scrape_interval="60s")

    def same(name, want):
        got = router.metric(name, None, pod=pod.authority)
        return got is not None and (got == want or (math.isnan(want) and math.isnan(got)))
    wait_read(router, pod)
    wait_until(lambda: same("kthena_router_pod_waiting_requests", waiting), "waiting %s" % waiting)
    wait_until(lambda: same("kthena_router_pod_running_requests", running), "running %s" % running)
    wait_until(lambda: same("kthena_router_pod_kv_cache_usage_ratio", kv), "kv %s" % kv)


@pytest.mark.parametrize("text,engine,room", [
    (vllm_metrics(waiting=0.0), "vllm", True),
    (vllm_metrics(waiting=1.0), "vllm", False),
    (RANKS % "0.0", "vllm", True),
    (RANKS % "1.0", "vllm", False),
    (SGLANG % "0.0", "sglang", True),
    (SGLANG % "4.0", "sglang", False),
    ("nothing 1\n", "vllm", True),
    (vllm_metrics(waiting="NaN"), "vllm", True),
    (vllm_metrics(waiting=9.0), "none", True),
], ids=["vllm-0", "vllm-1", "a-rank-with-0", "no-rank-with-0", "sglang-0", "sglang-4", "nothing", "nan", "engine-none"])
def test_room(start, text, engine, room):
    pod = start.pod(script=ok, metrics=text)
    router = start.router(ini=ini(pod, engine), metrics_scrape_interval="1s")
    if engine != "none":
        wait_read(router, pod)
    c = router.start_chat()
    if room:
        assert c.answer().status == 200
    else:
        router.wait_queued(1)
        scrapes = pod.scrapes
        wait_until(lambda: pod.scrapes >= scrapes + 2, "scrapes")
        assert router.queue_len() == 1 and pod.requests == []
        assert router.metrics().total("kthena_router_session_boost_gate_closed_seconds_total", model="m") > 0
        pod.metrics_text = text.replace(" 1.0\n", " 0.0\n").replace(" 4.0\n", " 0.0\n")
        assert c.answer().status == 200


def test_engine_none_is_not_scraped(start):
    pod = start.pod(script=ok)
    router = start.router(ini=ini(pod, "none"))
    for _ in range(20):
        assert router.chat().status == 200
    assert pod.scrapes == 0


def test_a_shorter_interval_does_not_wait_for_the_old_one(start):
    pod = start.pod(script=ok)
    text = "[router]\nmetrics_scrape_interval = %s\n" + ini(pod, "vllm")
    router = start.router(ini=text % "1h", metrics_scrape_interval=None)
    wait_read(router, pod)
    assert pod.scrapes == 1
    router.write_ini(text % "50ms")
    router.signal(signal.SIGHUP)
    wait_until(lambda: pod.scrapes >= 4, "scrapes at the new interval")


def test_slow_pod_delays_no_other(start):
    slow, quick = start.pod(script=ok), start.pod(script=ok)
    over = threading.Event()
    slow.metrics_script = lambda conn: over.wait(4 * DEADLINE)
    router = start.router({"m": [slow, quick]}, metrics_scrape_interval="50ms", metrics_scrape_timeout="60s")
    wait_until(lambda: slow.scrapes == 1 and quick.scrapes >= 8, "the quick pod's scrapes")
    assert router.chat().status == 200
    assert slow.scrapes == 1  # still the first one
    over.set()


def test_slow_scrape_ends_at_its_timeout(start):
    pod = start.pod(script=ok)
    pod.metrics_script = lambda conn: conn.sock.settimeout(DEADLINE) or conn.sock.recv(1)
    router = start.router({"m": [pod]}, metrics_scrape_interval="50ms", metrics_scrape_timeout="100ms")
    router.wait_metric("kthena_router_pod_scrapes_failed_total", lambda n: n >= 2, pod=pod.authority)
    assert router.chat().status == 200


@pytest.mark.parametrize("answer", [
    b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n\x00\x01garbage\n{{",
    b"HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nno",
    b"",
], ids=["500", "garbage", "404", "closed"])
def test_broken_metrics_do_not_stop_requests(start, answer):
    pod = start.pod(script=ok)

    def scrape(conn):
        conn.sock.sendall(answer)
        conn.close_after = True
    pod.metrics_script = scrape
    router = start.router({"m": [pod]})
    wait_until(lambda: pod.scrapes >= 4, "scrapes")
    assert router.chat().status == 200


def test_endless_metrics_page_is_bounded(start):
    pod = start.pod(script=ok)

    def scrape(conn):
        conn.sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        line = b"filler{x=\"%s\"} 1\n" % (b"y" * 2000)
        for _ in range(20000):
            conn.sock.sendall(line)
        conn.close_after = True
    pod.metrics_script = scrape
    router = start.router({"m": [pod]}, metrics_scrape_timeout="1s")
    wait_until(lambda: pod.scrapes >= 2, "scrapes")
    before = router.rss_bytes()
    scrapes = pod.scrapes
    wait_until(lambda: pod.scrapes >= scrapes + 2, "scrapes", 3 * DEADLINE)
    assert router.rss_bytes() - before < 40 * (1 << 20)
    assert router.chat().status == 200


def test_least_loaded_pod_is_chosen_by_scraped_waiting(start):
    """Our own in-flight counts are equal: the smaller waiting number decides, then the lower KV use."""
    busy, idle = start.pod(script=ok, metrics=vllm_metrics(kv=0.9)), start.pod(script=ok, metrics=vllm_metrics(kv=0.1))
    router = start.router({"m": [busy, idle]}, metrics_scrape_interval="60s")
    router.wait_metric("kthena_router_pod_kv_cache_usage_ratio", 0.9, pod=busy.authority)
    router.wait_metric("kthena_router_pod_kv_cache_usage_ratio", 0.1, pod=idle.authority)
    for _ in range(10):
        assert router.chat().status == 200
    assert len(idle.requests) == 10
