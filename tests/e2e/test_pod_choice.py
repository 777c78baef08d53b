"""How a pod is chosen, with simulated pods that behave as engines do: one policy alone, sums of scores, and pods
with too many waiting."""

import collections
import json
import threading

from pod import ok, vllm_metrics
from waiting import wait_until

MODEL = "m"


def route(pods, *lines):
    return "[model-server s]\npods = %s\n[model-route m]\ntarget = s\n%s\n" % (
        ", ".join(p.authority for p in pods), "\n".join(lines))


def ask(router, n, threads=4, prompt=lambda i: "probe %d" % i, max_tokens=4):
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
            r = c.chat(model=MODEL, messages=[{"role": "user", "content": prompt(i)}], max_tokens=max_tokens).answer()
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


def test_prefix_sends_one_prompt_to_one_pod(start):
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


def test_least_request_and_max_waiting_find_the_idle_pod(start):
    pods = sims(start, 3, "--max-num-seqs", 2, "--inter-token-ms", 20)
    router = start.router(ini=route(pods, "policy = least-request", "max_waiting = 1"), boost=False)
    for p in pods[:2]:
        occupy(start, p, 20)
    wait_pods(router, lambda m: all((m[p.authority]["requestWaitingNum"] or 0) > 0 for p in pods[:2]))
    counts = ask(router, 200, threads=2, max_tokens=1)
    assert counts[pods[2].authority] >= 180, counts


def test_kv_usage_finds_the_empty_pod(start):
    pods = sims(start, 3)
    for p, kv in zip(pods, (0.5, 0.1, 0.02)):
        p.config(force_kv=kv)
    router = start.router(ini=route(pods, "policy = kv-usage"), boost=False)
    wait_pods(router, lambda m: m[pods[0].authority]["gpuCacheUsage"] == 0.5 and m[pods[2].authority]["gpuCacheUsage"] == 0.02)
    counts = ask(router, 200)
    assert counts[pods[2].authority] >= 180, counts


def test_least_latency_finds_the_fast_pods(start):
    fast = sims(start, 3, "--inter-token-ms", 2, "--prefill-tokens-per-second", 5000)
    slow = start.sim("--model", MODEL, "--inter-token-ms", 20, "--prefill-tokens-per-second", 100)
    router = start.router(ini=route([*fast, slow], "policy = least-latency"), boost=False)
    for _ in range(2):
        ask(router, 8, threads=4, prompt=lambda i: "priming request number %d with some words in it" % i)
    wait_pods(router, lambda m: all(m[p.authority]["timeToFirstTokenMs"] for p in [*fast, slow]))
    counts = ask(router, 200, prompt=lambda i: "probe number %d with some words in it" % i)
    assert sum(counts[p.authority] for p in fast) >= 180, counts
    assert all(counts[p.authority] > 0 for p in fast), counts


def test_random_is_even_enough(start):
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


def test_dump_shows_policies(start):
    pods = sims(start, 1)
    router = start.router(ini=route(pods, "score = prefix:2, least-request:1", "max_waiting = 10"))
    spec = router.dump("modelroutes")["modelroutes"][0]["spec"]
    assert spec["policy"] == "score" and spec["maxWaiting"] == 10
    assert spec["scores"] == {"prefix": 2, "least-request": 1}
    assert json.dumps(spec)
