"""The simulated pod itself: what other tests rely on. Standard library only; the binary is build/vllm-sim
or the one named by VLLM_SIM."""

import base64
import http.client
import json
import os
import re
import socket
import struct
import subprocess
import time

import pytest

BINARY = os.environ.get("VLLM_SIM", "build/vllm-sim")
DEADLINE_S = 10


class Sim:
    def __init__(self, *options):
        self.process = subprocess.Popen(
            [BINARY, "--port", "0", "--control-port", "0", *options], stdout=subprocess.PIPE, text=True
        )
        self.port = self.read_port("listening on 127.0.0.1:")
        self.control = self.read_port("control on 127.0.0.1:")

    def read_port(self, start):
        line = self.process.stdout.readline().strip()
        assert line.startswith(start), line
        return int(line[len(start) :])

    def stop(self):
        self.process.terminate()
        assert self.process.wait(DEADLINE_S) == 0
        self.process.stdout.close()

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)

    def ask(self, method, path, body=None, headers=None, port=None):
        """Status, headers and body of one request on its own connection."""
        conn = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=DEADLINE_S)
        try:
            conn.request(method, path, body if body is None else json.dumps(body), headers or {})
            answer = conn.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        finally:
            conn.close()

    def chat(self, text, headers=None, **more):
        status, _, body = self.ask("POST", "/v1/chat/completions", chat(text, **more), headers)
        assert status == 200, body
        return json.loads(body)

    def config(self, **settings):
        status, _, body = self.ask("POST", "/sim/config", settings, port=self.control)
        assert status == 200, body

    def state(self):
        return json.loads(self.ask("GET", "/sim/state", port=self.control)[2])

    def until(self, condition):
        """The first state for which the condition holds."""
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            state = self.state()
            if condition(state):
                return state
            time.sleep(0.002)
        raise AssertionError(f"never came: {state}")

    def metrics(self):
        """{name{labels}: value} of /metrics."""
        text = self.ask("GET", "/metrics")[2]
        samples = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, value in samples}


def chat(text, **more):
    messages = text if isinstance(text, list) else [{"role": "user", "content": text}]
    return {"model": "sim", "messages": messages, **more}


def start_stream(sim, text, **more):
    """A connection and its answer, whose head has been read."""
    conn = sim.connect()
    conn.request("POST", "/v1/chat/completions", json.dumps(chat(text, stream=True, **more)))
    return conn, conn.getresponse()


def read_events(answer):
    parts = answer.read().decode().split("\n\n")
    assert parts.pop() == ""
    assert all(part.startswith("data: ") for part in parts)
    return [part[6:] for part in parts]


@pytest.fixture
def make_sim():
    started = []

    def make(*options):
        started.append(Sim(*options))
        return started[-1]

    yield make
    for sim in started:
        sim.stop()


@pytest.fixture
def sim(make_sim):
    return make_sim()


def test_chat_stream_has_the_shape_clients_expect(sim):
    conn, answer = start_stream(sim, "hi", max_tokens=3, stream_options={"include_usage": True})
    events = read_events(answer)
    conn.close()
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["x-sim-pod"] == str(sim.port)
    assert events[-1] == "[DONE]"
    first, *tokens, usage = [json.loads(event) for event in events[:-1]]
    assert first["object"] == "chat.completion.chunk" and first["model"] == "sim"
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert first["sim"]["pod"] == str(sim.port) and first["sim"]["seq"] == 0
    assert [t["choices"][0]["finish_reason"] for t in tokens] == [None, None, "length"]
    assert all(len(t["choices"][0]["delta"]["content"]) == 4 for t in tokens)
    assert {e["id"] for e in (first, *tokens, usage)} == {first["id"]}
    assert usage["choices"] == [] and usage["usage"]["completion_tokens"] == 3


def test_plain_answer_is_the_same_text_as_the_stream(sim):
    plain = sim.chat("same", {"X-Session-ID": "s-1", "X-Request-ID": "r-1"}, max_tokens=5)
    conn, answer = start_stream(sim, "same", max_tokens=5)
    deltas = [json.loads(e)["choices"][0]["delta"] for e in read_events(answer)[:-1]]
    conn.close()
    assert plain["choices"][0]["message"]["content"] == "".join(d["content"] for d in deltas)
    assert plain["sim"]["session"] == "s-1"
    assert plain["usage"]["total_tokens"] == plain["usage"]["prompt_tokens"] + 5
    entry = sim.state()["log"][0]
    assert (entry["request_id"], entry["session"], entry["outcome"]) == ("r-1", "s-1", "finished")


def test_completions_embeddings_models_and_errors(sim):
    status, _, body = sim.ask("POST", "/v1/completions", {"model": "sim", "prompt": "abc", "max_tokens": 2})
    assert status == 200 and json.loads(body)["choices"][0]["finish_reason"] == "length"
    _, _, body = sim.ask("POST", "/v1/embeddings", {"model": "sim", "input": ["a", "b"]})
    vectors = [d["embedding"] for d in json.loads(body)["data"]]
    question = {"model": "sim", "input": ["a", "b"], "encoding_format": "base64"}
    _, _, body = sim.ask("POST", "/v1/embeddings", question)
    packed = [struct.unpack("<8f", base64.b64decode(d["embedding"])) for d in json.loads(body)["data"]]
    assert [pytest.approx(v) for v in vectors] == packed
    assert json.loads(sim.ask("GET", "/v1/models")[2])["data"][0]["id"] == "sim"
    status, _, body = sim.ask("POST", "/v1/chat/completions", {"model": "other", "messages": []})
    assert status == 404 and json.loads(body)["error"]["type"] == "NotFoundError"
    assert sim.ask("POST", "/v1/chat/completions", [1])[0] == 400
    assert sim.ask("POST", "/v1/chat/completions", chat("x", max_tokens=0))[0] == 400
    assert sim.ask("GET", "/v1/chat/completions")[0] == 405


def test_adapters_come_and_go(sim):
    def names():
        return [m["id"] for m in json.loads(sim.ask("GET", "/v1/models")[2])["data"]]

    for name in ("a", "b"):
        assert sim.ask("POST", "/v1/load_lora_adapter", {"lora_name": name, "lora_path": "/x"})[0] == 200
    assert names() == ["sim", "a", "b"]
    assert sim.ask("POST", "/v1/chat/completions", chat("x", model="a"))[0] == 200
    assert sim.ask("POST", "/v1/load_lora_adapter", {"lora_name": "a", "lora_path": "/x"})[0] == 400
    assert sim.ask("POST", "/v1/load_lora_adapter", {"lora_name": "c"})[0] == 400
    assert sim.ask("POST", "/v1/unload_lora_adapter", {"lora_name": "a"})[0] == 200
    assert sim.ask("POST", "/v1/unload_lora_adapter", {"lora_name": "a"})[0] == 404
    assert names() == ["sim", "b"]
    assert sim.ask("POST", "/v1/chat/completions", chat("x", model="a"))[0] == 404
    assert sim.ask("GET", "/health")[0] == 200


def read_events_after_first(answer):
    return [part[6:] for part in answer.read().decode().lstrip("\n").split("\n\n")[:-1]]


def test_second_turn_is_cached_answer_included(make_sim):
    sim = make_sim("--prefill-tokens-per-second", "2500")
    question = {"role": "user", "content": "q" * 4000}
    start = time.monotonic()
    conn, answer = start_stream(sim, [question], max_tokens=64)
    first = json.loads(answer.readline()[6:])["sim"]
    cold_s = time.monotonic() - start
    chunks = read_events_after_first(answer)
    conn.close()
    text = "".join(json.loads(c)["choices"][0]["delta"]["content"] for c in chunks if c != "[DONE]")
    assert first["cached_tokens"] == 0 and len(text) == 256

    turns = [question, {"role": "assistant", "content": text}, {"role": "user", "content": "and?"}]
    start = time.monotonic()
    conn, answer = start_stream(sim, turns, max_tokens=4)
    second = json.loads(answer.readline()[6:])["sim"]
    warm_s = time.monotonic() - start
    answer.read()
    conn.close()
    assert second["cached_tokens"] > 4000 // 4 + 32, "the answer's blocks are cached too"
    assert second["prompt_tokens"] - second["cached_tokens"] <= 32
    assert cold_s > 0.39 and warm_s < cold_s / 2
    metrics = sim.metrics()
    labels = '{engine="0",model_name="sim"}'
    assert metrics["vllm:prefix_cache_hits_total" + labels] == second["cached_tokens"]


def test_least_recently_used_blocks_go_first(make_sim):
    sim = make_sim("--kv-blocks", "40")
    for name in "abc":  # 17 blocks each: only two fit
        sim.chat(name * 1000, max_tokens=1)
    assert sim.chat("c" * 1000, max_tokens=1)["sim"]["cached_tokens"] > 200
    assert sim.chat("a" * 1000, max_tokens=1)["sim"]["cached_tokens"] < 200
    assert sim.state()["kv"]["resident_blocks"] <= 40


def test_prefills_share_the_rate(make_sim):
    sim = make_sim("--prefill-tokens-per-second", "5000")
    start = time.monotonic()
    streams = [start_stream(sim, name * 2000, max_tokens=1) for name in "ab"]
    times = []
    for conn, answer in streams:
        answer.read()
        times.append(time.monotonic() - start)
        conn.close()
    assert times[0] > 0.09 and times[1] > 0.19


def test_more_than_max_num_seqs_wait(make_sim):
    sim = make_sim("--max-num-seqs", "2", "--inter-token-ms", "1000")
    streams = [start_stream(sim, f"n{i}", max_tokens=100) for i in range(5)]
    state = sim.until(lambda s: s["running"] == 2 and s["waiting"] == 3)
    assert state["peak_running"] == 2
    metrics = sim.metrics()
    assert metrics['vllm:num_requests_running{engine="0",model_name="sim"}'] == 2
    assert metrics['vllm:num_requests_waiting{engine="0",model_name="sim"}'] == 3
    streams[0][0].close()
    streams[0][1].close()
    sim.until(lambda s: s["running"] == 2 and s["waiting"] == 2)
    sim.config(max_num_seqs=10)
    sim.until(lambda s: s["running"] == 4 and s["waiting"] == 0)
    for conn, answer in streams[1:]:
        answer.close()
        conn.close()


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("stream", [True, False])
def test_abort_is_counted(make_sim, how, stream):
    sim = make_sim("--inter-token-ms", "1000", "--max-num-seqs", "1")
    sockets = []
    for _ in range(2):  # one runs, one waits
        body = json.dumps(chat("x", stream=stream, max_tokens=100)).encode()
        sock = socket.create_connection(("127.0.0.1", sim.port))
        sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        sockets.append(sock)
    sim.until(lambda s: s["running"] == 1 and s["waiting"] == 1)
    for sock in sockets:
        if how == "rst":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()
    state = sim.until(lambda s: s["running"] == 0 and s["waiting"] == 0)
    assert state["requests"]["aborted"] == 2 and state["connections"]["open"] == 0
    assert [entry["outcome"] for entry in state["log"]] == ["aborted", "aborted"]
    assert state["kv"]["usage"] == 0
    name = 'vllm:request_success_total{engine="0",finished_reason="abort",model_name="sim"}'
    assert sim.metrics()[name] == 2


def test_abort_is_seen_behind_unread_bytes(make_sim):
    sim = make_sim("--inter-token-ms", "1000")
    body = json.dumps(chat("x", max_tokens=100)).encode()
    sock = socket.create_connection(("127.0.0.1", sim.port))
    request = b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    sock.sendall(request)
    sim.until(lambda s: s["running"] == 1)
    # The pod reads 256 KiB ahead; the rest fits into the kernel, so that the FIN behind it arrives.
    sock.sendall(request * (272 * 1024 // len(request)))
    sock.close()
    assert sim.until(lambda s: s["running"] == 0)["requests"]["aborted"] == 1


# ---- HTTP ----


def talk(sim, data, count):
    """Sends raw bytes and reads `count` answers from the one connection."""
    with socket.create_connection(("127.0.0.1", sim.port), timeout=DEADLINE_S) as sock:
        sock.sendall(data)
        bodies = []
        for _ in range(count):
            answer = http.client.HTTPResponse(sock)
            answer.begin()
            bodies.append((answer.status, answer.read()))
        return bodies


def test_pipelined_requests_are_answered_in_order(sim):
    parts = []
    for text in ("one", "two", "three"):
        body = json.dumps(chat(text, max_tokens=1)).encode()
        parts.append(b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: %d\r\nX-Session-ID: %s\r\n\r\n%s"
                     % (len(body), text.encode(), body))
    with socket.create_connection(("127.0.0.1", sim.port), timeout=DEADLINE_S) as sock:
        sock.sendall(b"".join(parts))
        text = b""
        while text.count(b'"session"') < 3:
            text += sock.recv(65536)
    assert re.findall(rb'"session":"(\w+)"', text) == [b"one", b"two", b"three"]


def test_chunked_body_byte_by_byte(sim):
    body = json.dumps(chat("chunky", max_tokens=1)).encode()
    data = b"POST /v1/chat/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    data += b"".join(b"1;x=y\r\n%c\r\n" % byte for byte in body) + b"0\r\nTrailer: t\r\n\r\n"
    with socket.create_connection(("127.0.0.1", sim.port), timeout=DEADLINE_S) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for i in range(len(data)):
            sock.sendall(data[i : i + 1])
        answer = http.client.HTTPResponse(sock)
        answer.begin()
        assert answer.status == 200
        answer.read()
    entry = sim.state()["log"][0]
    assert entry["body_bytes"] == len(body)
    fnv = 0xCBF29CE484222325
    for byte in body:
        fnv = (fnv ^ byte) * 0x100000001B3 % 2**64
    assert entry["body_fnv64"] == f"{fnv:016x}"
    assert entry["headers"] == ["Transfer-Encoding: chunked"]


def test_expect_continue(sim):
    body = json.dumps(chat("wait", max_tokens=1)).encode()
    with socket.create_connection(("127.0.0.1", sim.port), timeout=DEADLINE_S) as sock:
        head = b"POST /v1/chat/completions HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
        sock.sendall(head % len(body))
        assert sock.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(body)
        assert sock.recv(100).startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize(
    "request_head",
    [
        b"GET /health HTTP/1.1\nHost: x\n\r\n\r\n",
        b"GET  /health HTTP/1.1\r\n\r\n",
        b"GET /health HTTP/2.0\r\n\r\n",
        b"GET /health HTTP/1.1\r\nBad Name: x\r\n\r\n",
        b"GET /health HTTP/1.1\r\nA: b\r\n folded\r\n\r\n",
        b"POST /v1/x HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
        b"POST /v1/x HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/x HTTP/1.1\r\nContent-Length: +1\r\n\r\nx",
        b"POST /v1/x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_bad_http_is_refused(sim, request_head):
    assert talk(sim, request_head, 1)[0][0] == 400


def test_connections_are_closed_when_idle_or_used_up(make_sim):
    sim = make_sim("--keep-alive-timeout", "0.05", "--max-requests-per-connection", "2")
    conn = sim.connect()
    conn.request("GET", "/health")
    conn.getresponse().read()
    assert conn.sock.recv(1) == b""
    conn.close()
    with socket.create_connection(("127.0.0.1", sim.port), timeout=DEADLINE_S) as sock:
        sock.sendall(b"GET /health HTTP/1.1\r\n\r\n" * 3)
        text = b""
        while part := sock.recv(65536):
            text += part
    assert text.count(b"200 OK") == 2 and text.count(b"connection: close") == 1


def test_http_1_0_stream_ends_with_the_connection(sim):
    body = json.dumps(chat("old", stream=True, max_tokens=2)).encode()
    with socket.create_connection(("127.0.0.1", sim.port), timeout=DEADLINE_S) as sock:
        sock.sendall(b"POST /v1/chat/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        text = b""
        while part := sock.recv(65536):
            text += part
    assert b"transfer-encoding" not in text and text.endswith(b"data: [DONE]\n\n")


def test_slow_reader_gets_every_byte(make_sim):
    sim = make_sim("--token-bytes", "200")
    conn, answer = start_stream(sim, "long", max_tokens=30000)
    sim.until(lambda s: s["requests"]["finished"] == 1)  # the engine does not wait for the reader
    events = read_events(answer)
    conn.close()
    assert len(events) == 30000 + 2 and events[-1] == "[DONE]"


# ---- faults ----


def fault(sim, kind, **more):
    sim.config(fault={"kind": kind, **more})


def one_chat(sim, **more):
    return sim.ask("POST", "/v1/chat/completions", chat("x", max_tokens=4, **more))


def test_refuse(make_sim):
    sim = make_sim("--keep-alive-timeout", "0")
    conn = sim.connect()
    conn.request("GET", "/health")
    conn.getresponse().read()
    fault(sim, "refuse")
    assert conn.sock.recv(1) == b"", "idle connections are closed"
    conn.close()
    with pytest.raises(ConnectionRefusedError):
        one_chat(sim)
    fault(sim, "none")
    assert one_chat(sim)[0] == 200


def test_hang(sim):
    fault(sim, "hang", count=1)
    conn = sim.connect()
    conn.request("POST", "/v1/chat/completions", json.dumps(chat("x")))
    sim.until(lambda s: s["requests"]["received"] == 1)
    assert one_chat(sim)[0] == 200, "count=1: the next one is served"
    conn.close()
    assert sim.until(lambda s: s["log"][0]["outcome"] == "aborted")


def test_reset_and_fin_before(sim):
    fault(sim, "reset_before", count=1)
    with pytest.raises(ConnectionResetError):
        one_chat(sim)
    fault(sim, "fin_before", count=1, delay_ms=5)
    with pytest.raises(http.client.RemoteDisconnected):
        one_chat(sim)
    assert one_chat(sim)[0] == 200
    assert [e["outcome"] for e in sim.state()["log"]] == ["reset_before", "fin_before", "finished"]


@pytest.mark.parametrize(
    "kind, error", [("reset_mid", ConnectionResetError), ("fin_mid", http.client.IncompleteRead)]
)
def test_cut_in_the_middle(sim, kind, error):
    fault(sim, kind, after_tokens=2, delay_ms=20)
    conn, answer = start_stream(sim, "x", max_tokens=100)
    lines = []
    with pytest.raises(error):
        while line := answer.readline():
            lines += [line] if line.startswith(b"data: ") else []
        answer.read()  # at the end of the file inside a chunked body
        raise http.client.IncompleteRead(b"")
    conn.close()
    assert len(lines) == 3 and b'"role"' in lines[0]
    with pytest.raises(error):
        one_chat(sim)  # half of a plain answer's body
    fault(sim, kind, after_bytes=10, delay_ms=20)
    with socket.create_connection(("127.0.0.1", sim.port), timeout=DEADLINE_S) as sock:
        body = json.dumps(chat("x")).encode()
        sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        assert sock.recv(100) == b"HTTP/1.1 2"
    assert {e["outcome"] for e in sim.until(lambda s: s["connections"]["open"] == 0)["log"]} == {kind}


def test_close_idle_comes_without_a_warning(sim):
    fault(sim, "close_idle", count=1, delay_ms=10)
    conn = sim.connect()
    conn.request("POST", "/v1/chat/completions", json.dumps(chat("x")))
    answer = conn.getresponse()
    answer.read()
    assert answer.headers["connection"] is None
    assert conn.sock.recv(1) == b""
    conn.close()


def test_status_and_slow_head_and_garbage(sim):
    fault(sim, "status", status=429, count=1)
    status, _, body = one_chat(sim)
    assert status == 429 and json.loads(body)["error"]["code"] == 429
    fault(sim, "slow_head", delay_ms=100, count=1)
    start = time.monotonic()
    assert one_chat(sim, stream=True)[0] == 200
    assert time.monotonic() - start > 0.09
    fault(sim, "garbage", count=1)
    with pytest.raises(http.client.BadStatusLine):
        one_chat(sim)
    fault(sim, "garbage", raw="HTTP/1.1 299 Odd\r\nContent-Length: 2\r\n\r\nok", count=1)
    assert one_chat(sim)[0::2] == (299, "ok")


def test_settings_are_checked_and_reset(sim):
    status, _, body = sim.ask("POST", "/sim/config", {"ranks": 3, "max_num_seqs": 0}, port=sim.control)
    assert status == 400 and "max-num-seqs" in body
    assert sim.ask("POST", "/sim/config", {"nonsense": 1})[0] == 400
    assert sim.ask("POST", "/sim/config", {"fault": {"kind": "nonsense"}})[0] == 400
    assert sim.state()["config"]["ranks"] == 1, "all or nothing"
    sim.config(ranks=2, fault="hang")
    assert sim.ask("POST", "/sim/reset", {})[0] == 200
    state = sim.state()
    assert state["config"]["ranks"] == 1 and state["log"] == []
    assert one_chat(sim)[0] == 200


@pytest.mark.parametrize("arguments", [["--nonsense", "1"], ["--ranks", "0"], ["--port"], ["--engine", "x"], ["y"]])
def test_bad_arguments(arguments):
    done = subprocess.run([BINARY, *arguments], capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 2 and done.stderr.startswith("vllm-sim: ") and done.stdout == ""


# ---- metrics ----


def test_vllm_names_types_and_label_order(sim):
    sim.chat("x", max_tokens=2)
    text = sim.ask("GET", "/metrics")[2]
    for line in (
        "# HELP vllm:num_requests_running Number of requests in model execution batches.",
        "# TYPE vllm:num_requests_running gauge",
        'vllm:num_requests_running{engine="0",model_name="sim"} 0.0',
        'vllm:num_requests_waiting_by_reason{engine="0",model_name="sim",reason="capacity"} 0.0',
        "# TYPE vllm:prefix_cache_queries_total counter",
        'vllm:request_success_total{engine="0",finished_reason="length",model_name="sim"} 1.0',
        "# TYPE vllm:time_to_first_token_seconds histogram",
        'vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="sim"} 1.0',
        'vllm:inter_token_latency_seconds_count{engine="0",model_name="sim"} 1.0',
        'vllm:generation_tokens_total{engine="0",model_name="sim"} 2.0',
        'vllm:kv_cache_usage_perc{engine="0",model_name="sim"} 0.0',
    ):
        assert line + "\n" in text
    assert "gpu_cache_usage_perc" not in text


def test_old_names_ranks_and_sglang(make_sim):
    sim = make_sim("--metrics-names", "old", "--model", "m")
    text = sim.ask("GET", "/metrics")[2]
    assert 'vllm:gpu_cache_usage_perc{model_name="m"} 0.0\n' in text and "vllm:kv_cache" not in text
    sim.config(metrics_names="both", ranks=2, force_waiting=7, force_kv=0.5)
    metrics = sim.metrics()
    assert metrics['vllm:num_requests_waiting{engine="0",model_name="m"}'] == 7
    assert metrics['vllm:num_requests_waiting{engine="1",model_name="m"}'] == 0
    assert metrics['vllm:gpu_cache_usage_perc{engine="1",model_name="m"}'] == 0.5
    assert metrics['vllm:kv_cache_usage_perc{engine="1",model_name="m"}'] == 0.5
    labels = '{engine_type="unified",model_name="s",moe_ep_rank="0",pp_rank="0",tp_rank="0"}'
    metrics = make_sim("--engine", "sglang", "--model", "s").metrics()
    for name in ("num_running_reqs", "num_queue_reqs", "token_usage", "cached_tokens_total"):
        assert metrics[f"sglang:{name}{labels}"] == 0


def test_metrics_faults(sim):
    name = 'vllm:num_requests_waiting{engine="0",model_name="sim"}'
    sim.config(force_waiting=3)
    assert sim.metrics()[name] == 3
    sim.config(force_waiting=None, metrics_fault="nan")
    assert str(sim.metrics()[name]) == "nan"
    sim.config(metrics_fault="missing")
    assert name not in sim.metrics()
    sim.config(metrics_fault={"kind": "status", "status": 500, "count": 1})
    assert sim.ask("GET", "/metrics")[0] == 500
    assert sim.ask("GET", "/metrics")[0] == 200
    sim.config(metrics_fault="garbage")
    assert "{{{" in sim.ask("GET", "/metrics")[2]
    sim.config(metrics_fault="reset")
    with pytest.raises(ConnectionResetError):
        sim.metrics()
    sim.config(metrics_fault={"kind": "slow", "delay_ms": 100})
    start = time.monotonic()
    assert name in sim.metrics()
    assert time.monotonic() - start > 0.09
    sim.config(metrics_fault="hang")
    conn = sim.connect()
    scrapes = sim.state()["scrapes"]
    conn.request("GET", "/metrics")
    sim.until(lambda s: s["scrapes"] == scrapes + 1)
    conn.sock.settimeout(0.1)
    with pytest.raises(TimeoutError):
        conn.getresponse()
    conn.close()
