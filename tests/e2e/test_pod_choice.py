"""How a pod is chosen, with simulated pods that behave as engines do: one policy alone, sums of scores, pods with too
many waiting, and pods that have an adapter. The tests named e26 to e31 play the Go router's own end-to-end scenarios of
these numbers, with its shares."""

import collections
import json
import threading

import pytest

from pod import ok, vllm_metrics
from waiting import wait_until

MODEL = "m"


def route(pods, *lines):
    return "[model-server s]\npods = %s\n[model-route m]\ntarget = s\n%s\n" % (
        ", ".join(p.authority for p in pods), "\n".join(lines))


def ask(router, n, threads=4, prompt=lambda i: "probe %d" % i, max_tokens=4, model=MODEL):
    """n requests, a few at one time; how many each pod got."""
    ids, lock = [], threading.Lock()
    todo = list(range(n))

    def work():
        c = router.client()
        while True:
            with lock:
                if not todo:
                    return
                i = todo.pop()
            r = c.chat(model=model, messages=[{"role": "user", "content": prompt(i)}], max_tokens=max_tokens).answer()
            assert r.status == 200, r
            with lock:
                ids.append(c.id)
    workers = [threading.Thread(target=work) for _ in range(threads)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert len(ids) == n
    return collections.Counter(router.access(i)["selected_pod"] for i in ids)


def sims(start, n, *args):
    return [start.sim("--model", MODEL, *args) for _ in range(n)]


def wait_pods(router, condition):
    """Until the router has scraped numbers of its pods that fit."""
    wait_until(lambda: condition({p["name"]: p["metrics"] for p in router.dump("pods")["pods"]}) or None, "scraped numbers")


def occupy(start, sim, n, tokens=100000):
    """Long streams straight to the pod, past the router."""
    from client import Client
    clients = []
    for _ in range(n):
        c = Client(sim.port)
        c.chat(model=MODEL, stream=True, max_tokens=tokens)
        clients.append(c)
    start.things.extend(Closer(c) for c in clients)


class Closer:
    def __init__(self, client):
        self.client = client

    def stop(self):
        self.client.close()


def test_e26_prefix_sends_one_prompt_to_one_pod(start):
    pods = sims(start, 3)
    router = start.router(ini=route(pods, "policy = prefix"), boost=False)
    prompt = "You are a helpful assistant. " * 40
    ask(router, 30, threads=1, prompt=lambda _: prompt)
    counts = ask(router, 200, prompt=lambda _: prompt)
    assert max(counts.values()) >= 180, counts


def test_prefix_keeps_conversations_apart(start):
    pods = sims(start, 3)
    router = start.router(ini=route(pods, "score = prefix:2, least-request:1"), boost=False)
    topics = ["%d, a topic with a long beginning. " % i * 20 for i in range(6)]
    for i in range(6):
        ask(router, 1, prompt=lambda _, i=i: topics[i])
    homes = [ask(router, 5, threads=1, prompt=lambda _, i=i: topics[i] + "more") for i in range(6)]
    assert all(len(h) == 1 for h in homes)


def test_e27_least_request_and_max_waiting_find_the_idle_pod(start):
    pods = sims(start, 3, "--max-num-seqs", 2, "--inter-token-ms", 20)
    router = start.router(ini=route(pods, "policy = least-request", "max_waiting = 1"), boost=False)
    for p in pods[:2]:
        occupy(start, p, 20)
    wait_pods(router, lambda m: all((m[p.authority]["requestWaitingNum"] or 0) > 0 for p in pods[:2]))
    counts = ask(router, 200, threads=2, max_tokens=1)
    assert counts[pods[2].authority] >= 180, counts


def test_e28_kv_usage_finds_the_empty_pod(start):
    pods = sims(start, 3)
    for p, kv in zip(pods, (0.5, 0.1, 0.02)):
        p.config(force_kv=kv)
    router = start.router(ini=route(pods, "policy = kv-usage"), boost=False)
    wait_pods(router, lambda m: m[pods[0].authority]["gpuCacheUsage"] == 0.5 and m[pods[2].authority]["gpuCacheUsage"] == 0.02)
    counts = ask(router, 200)
    assert counts[pods[2].authority] >= 180, counts


def test_e29_least_latency_finds_the_fast_pods(start):
    fast = sims(start, 3, "--inter-token-ms", 2, "--prefill-tokens-per-second", 5000)
    slow = start.sim("--model", MODEL, "--inter-token-ms", 20, "--prefill-tokens-per-second", 100)
    router = start.router(ini=route([*fast, slow], "policy = least-latency"), boost=False)
    for _ in range(2):
        ask(router, 8, threads=4, prompt=lambda i: "priming request number %d with some words in it" % i)
    wait_pods(router, lambda m: all(m[p.authority]["timeToFirstTokenMs"] for p in [*fast, slow]))
    counts = ask(router, 200, prompt=lambda i: "probe number %d with some words in it" % i)
    assert sum(counts[p.authority] for p in fast) >= 180, counts
    # Not all three: one that the machine held up while it was tried counts as slow until its numbers are old.
    assert sum(counts[p.authority] > 0 for p in fast) >= 2, counts


def histograms(ttft_s, tpot_s, n):
    """vLLM's, after n answers of one pace."""
    return vllm_metrics() + "".join(
        "# TYPE %s histogram\n%s_sum %f\n%s_count %d\n" % (name, name, seconds * n, name, n)
        for name, seconds in (("vllm:time_to_first_token_seconds", ttft_s), ("vllm:inter_token_latency_seconds", tpot_s)))


def test_least_latency_tries_a_pod_without_numbers_once(start):
    fast, slow, silent = start.pod(ok, metrics=histograms(.1, .01, 9)), start.pod(ok, metrics=histograms(1, .1, 9)), start.pod(ok)
    router = start.router(ini=route([fast, slow, silent], "policy = least-latency"), boost=False)
    wait_pods(router, lambda m: m[fast.authority]["timeToFirstTokenMs"] and m[slow.authority]["timeToFirstTokenMs"])
    assert ask(router, 30, threads=1) == {silent.authority: 1, fast.authority: 29}


def lists(router, name):
    """The pods of which the router knows that they have it."""
    return {p["name"] for p in router.dump("pods")["pods"] if name in p["models"]}


def lora(sim, verb, name="lora-A"):
    status, body = sim.call("POST", "/v1/%s_lora_adapter" % verb, {"lora_name": name, "lora_path": "/adapters/" + name})
    assert status == 200, body


ADAPTER = "lora = lora-A"


@pytest.mark.parametrize("strategy", ["none", "boost", "fairness"])
def test_e30_adapter_is_asked_of_the_pod_that_has_it(start, strategy):
    pods = sims(start, 3)
    lora(pods[1], "load")
    router = start.router(ini=route(pods, "policy = random", ADAPTER), boost=strategy == "boost",
                          enable_fairness_scheduling=str(strategy == "fairness").lower())
    wait_until(lambda: lists(router, "lora-A") == {pods[1].authority}, "the pods' lists")
    assert ask(router, 200, model="lora-A") == {pods[1].authority: 200}
    assert len(ask(router, 60)) == 3, "the model itself goes everywhere"


def test_adapter_moves_between_pods(start):
    """Known within ten scrape intervals; while nobody has it every pod is asked, and what the pod says is the answer."""
    pods = sims(start, 2)
    lora(pods[0], "load")
    router = start.router(ini=route(pods, ADAPTER))
    wait_until(lambda: lists(router, "lora-A") == {pods[0].authority}, "the pods' lists")
    assert ask(router, 20, model="lora-A") == {pods[0].authority: 20}
    lora(pods[1], "load")
    lora(pods[0], "unload")
    wait_until(lambda: lists(router, "lora-A") == {pods[1].authority}, "the pods' lists")
    assert ask(router, 20, model="lora-A") == {pods[1].authority: 20}
    lora(pods[1], "unload")
    wait_until(lambda: not lists(router, "lora-A"), "the pods' lists")
    assert router.chat(model="lora-A").status == 404


def test_adapter_waits_for_its_pod_under_session_boost(start):
    """The pod that has it is full: the request does not go to one that has not, and others pass it."""
    pods = [start.pod(), start.pod()]
    pods[0].models, pods[1].models = ["m", "lora-A"], ["m"]
    router = start.router(ini=route(pods, ADAPTER), session_boost_inflight_per_pod=1)
    wait_until(lambda: lists(router, "lora-A") == {pods[0].authority}, "the pods' lists")
    first = router.start_chat(model="lora-A")
    held = pods[0].next()
    second = router.queue_chat(1, model="lora-A")
    other = router.start_chat()
    pods[1].next().reply()
    assert other.answer().status == 200
    held.reply()
    pods[0].next().reply()
    assert [c.answer().status for c in (first, second)] == [200, 200] and len(pods[1].requests) == 1


def test_adapter_of_a_dead_pod_is_asked_of_the_others(start):
    """Once the pod that had it is set aside."""
    pods = [start.pod(script=ok), start.pod(script=ok)]
    pods[0].models, pods[1].models = ["m", "lora-A"], ["m"]
    router = start.router(ini=route(pods, ADAPTER))
    wait_until(lambda: lists(router, "lora-A") == {pods[0].authority}, "the pods' lists")
    pods[0].stop()
    wait_until(lambda: router.chat(model="lora-A").status == 200, "an answer of the other pod")
    assert len(pods[1].requests) > 0


def test_list_is_forgotten_when_three_reads_have_failed(start):
    pods = [start.pod(script=ok), start.pod(script=ok)]
    pods[0].models, pods[1].models = ["m", "lora-A"], ["m"]
    router = start.router(ini=route(pods, ADAPTER))
    wait_until(lambda: lists(router, "lora-A") == {pods[0].authority}, "the pods' lists")
    wanted, pods[0].failing_model_reads = pods[0].model_reads + 3, 2
    wait_until(lambda: router.chat(model="lora-A").status == 200 and pods[0].model_reads >= wanted, "two failed reads and a good one")
    assert not pods[1].requests
    pods[0].failing_model_reads = 1000000
    wait_until(lambda: router.chat(model="lora-A").status == 200 and pods[1].requests, "the other pod to be asked")


def test_adapter_of_one_target_of_two(start):
    """The weights of targets are for those whose pods have it."""
    pods = sims(start, 2)
    lora(pods[1], "load")
    router = start.router(ini="[model-server a]\npods = %s\n[model-server b]\npods = %s\n[model-route m]\ntarget = a:9, b:1\n%s\n" % (
        pods[0].authority, pods[1].authority, ADAPTER))
    wait_until(lambda: lists(router, "lora-A") == {pods[1].authority}, "the pods' lists")
    assert ask(router, 30, model="lora-A") == {pods[1].authority: 30}
    assert ask(router, 30) == {pods[0].authority: 27, pods[1].authority: 3}


def test_lists_are_read_only_where_there_are_adapters(start):
    pod = start.pod(script=ok)
    pod.models = ["m", "lora-A"]
    router = start.router(ini=route([pod]))
    wait_until(lambda: pod.scrapes >= 15, "reads of the metrics")
    assert not lists(router, "lora-A") and pod.model_reads == 0


def test_e31_random_is_even_enough(start):
    pods = sims(start, 3)
    router = start.router(ini=route(pods, "policy = random"), boost=False)
    counts = ask(router, 600)
    assert all(140 <= counts[p.authority] <= 260 for p in pods), counts


def test_round_robin_takes_turns(start):
    pods = sims(start, 3)
    router = start.router(ini=route(pods, "policy = round-robin"), boost=False)
    assert ask(router, 90, threads=1) == {p.authority: 30 for p in pods}


def test_policy_under_session_boost_follows_limits(start):
    """Two slots: the third request does not go where the policy likes it best."""
    pods = [start.pod(metrics=vllm_metrics(kv=0.1)), start.pod(metrics=vllm_metrics(kv=0.9))]
    router = start.router(ini=route(pods, "policy = kv-usage"), session_boost_inflight_per_pod=2)
    wait_pods(router, lambda m: m[pods[1].authority]["gpuCacheUsage"] == 0.9)
    clients = [router.start_chat() for _ in range(2)]
    held = [pods[0].next(), pods[0].next()]
    clients.append(router.start_chat())
    held.append(pods[1].next())
    for h in held:
        h.reply()
    assert [c.answer().status for c in clients] == [200] * 3


def test_too_many_waiting_everywhere_is_a_wait_with_an_end(start):
    pods = [start.pod(script=ok, metrics=vllm_metrics(waiting=5)) for _ in range(2)]
    router = start.router(ini=route(pods, "max_waiting = 5"), boost=False, session_boost_timeout="400ms")
    wait_pods(router, lambda m: all(m[p.authority]["requestWaitingNum"] == 5 for p in pods))
    r = router.chat()
    assert r.status == 504 and r.json()["error"]["code"] == "queue_timeout", r
    c = router.start_chat()
    pods[1].metrics_text = vllm_metrics(waiting=4)
    assert c.answer().status == 200 and len(pods[1].requests) == 1 and not pods[0].requests


def test_without_a_strategy_no_session_waits_for_its_pod(start):
    """max_waiting makes requests wait for any pod, not for their session's."""
    pods = [start.pod(script=ok, metrics=vllm_metrics(waiting=0)) for _ in range(2)]
    sticky = ("session_sticky = header:X-Key", "sticky_mode = wait:20s", "max_waiting = 1")
    router = start.router(ini=route(pods, *sticky), boost=False)
    router.stderr.wait_for_line("sticky_mode has no effect here: .*nobody waits for the pod of its session")
    assert router.chat(headers=[("X-Key", "a")]).status == 200
    home, other = pods if pods[0].requests else pods[::-1]
    home.metrics_text = vllm_metrics(waiting=1)
    wait_pods(router, lambda m: m[home.authority]["requestWaitingNum"] == 1)
    r = router.chat(headers=[("X-Key", "a")])
    assert r.status == 200 and len(other.requests) == 1
    entry = router.access(r.id)
    assert entry["sticky"] == "spill" and entry["queue_ms"] < 1000


def test_dump_shows_policies(start):
    pods = sims(start, 1)
    router = start.router(ini=route(pods, "score = prefix:2, least-request:1", "max_waiting = 10"))
    spec = router.dump("modelroutes")["modelroutes"][0]["spec"]
    assert spec["policy"] == "score" and spec["maxWaiting"] == 10
    assert spec["scores"] == {"prefix": 2, "least-request": 1}
    assert json.dumps(spec)
