"""What the benchmark's scripts share: programs, configurations, bodies, starting and stopping.

Everything runs on 127.0.0.1. The proxy gets core 0, load and sink share core 1. Where HAProxy or nginx are not installed,
their Debian packages are unpacked below the build directory, so that no daemon is started on this machine.
"""
import argparse
import functools
import glob
import json
import os
import random
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

MODEL = "bench"
PROXY_CORE, LOAD_CORE = 0, 1
BUILD = os.environ.get("BENCH_BUILD", "build")
BENCH = os.path.join(BUILD, "bench")
ROUTER = os.path.join(BUILD, "kthena-router")
# Both sides of 9,900 streams fit into 20,000 descriptors.
MAX_STREAMS = 9900


def fail(text):
    sys.exit(f"bench: {text}")


def count(text):
    """A command line's number of times."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text}: expected a whole number above 0")
    return int(text)


def no_arguments(about):
    """Of a program that takes none but --help."""
    argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()


# ---- packages ----


def run_quietly(command, **more):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    if done.returncode != 0:
        fail(f"{' '.join(command)} failed:\n{done.stdout}")
    return done.stdout


def as_root(command):
    return command if os.geteuid() == 0 else ["sudo"] + command


def install(packages):
    if not shutil.which("apt-get"):
        fail(f"needs {' '.join(packages)}; they are installed from Debian's packages only where apt-get exists")
    print(f"installing: {' '.join(packages)}", file=sys.stderr)
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    run_quietly(as_root(["apt-get", "update", "-q"]), env=environment)
    run_quietly(as_root(["apt-get", "install", "-q", "-y", "--no-install-recommends", *packages]), env=environment)


def need(program, package):
    """The path of a tool; its package is installed when it is missing."""
    if not shutil.which(program):
        install([package])
    return shutil.which(program)


def unpack(package, to):
    """Unpacks a daemon's package without installing it; the libraries it depends on are installed."""
    with tempfile.TemporaryDirectory() as where:
        run_quietly(["apt-get", "download", "-q", package], cwd=where)
        deb = glob.glob(os.path.join(where, "*.deb"))[0]
        depends = run_quietly(["dpkg-deb", "-f", deb, "Depends"])
        names = [entry.split("|")[0].split("(")[0].strip() for entry in depends.split(",")]
        wanted = [n for n in names if re.match(r"lib|zlib", n)]
        there = subprocess.run(["dpkg-query", "-W", "-f", "${db:Status-Status}:${Package}\n", *wanted],
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout.split()
        missing = [n for n in wanted if f"installed:{n}" not in there]
        if missing:
            install(missing)
        os.makedirs(to, exist_ok=True)
        run_quietly(["dpkg-deb", "-x", deb, to])


def peer(name):
    """The path of haproxy or nginx."""
    places = [os.path.join(BENCH, "peers", "usr/sbin", name), f"/usr/sbin/{name}", shutil.which(name) or ""]
    found = [p for p in places if os.access(p, os.X_OK)]
    if not found:
        if not shutil.which("apt-get"):
            fail(f"needs {name}: install it")
        print(f"unpacking the package {name} into {BENCH}/peers", file=sys.stderr)
        unpack(name, os.path.join(BENCH, "peers"))
        found = [places[0]]
    return os.path.abspath(found[0])


# ---- bodies ----

WORDS = ("the queue holds a request until some pod has room and then sends it there because a session that just ended "
         "its turn still has its prefix in the cache of one engine so the next turn costs less there than anywhere "
         "else we measured this twice and the second run agreed with the first to within a few percent").split()
BITS = ['He said: "that depends on the batch size".\n', "\tfor (int i = 0; i < n; i++)\n\t\tsum += a[i];\n", "\n\n",
        'printf("%d\\n", x); // C:\\temp\\out.txt\n', "Größe – naïve café, 你好, 🙂.\n", "| a | b |\n|---|---|\n| 1 | 2 |\n"]


@functools.lru_cache(None)
def text(n_bytes, seed):
    """Prose with code, quotes, line ends and a few characters beyond ASCII, as in real conversations."""
    choose = random.Random(seed)
    parts, size = [], 0
    while size < n_bytes:
        if choose.random() < 0.06:
            part = choose.choice(BITS)
        else:
            part = choose.choice(WORDS) + choose.choice([" "] * 12 + [", ", ". ", ".\n"])
        parts.append(part)
        size += len(json.dumps(part, ensure_ascii=False).encode()) - 2
    return "".join(parts)


def chat_body(n_bytes, stream=False):
    """A chat request of about n_bytes; model is the last key. stream stands first, where sink looks for it."""
    turn = 700 if n_bytes < 4000 else 2500
    body = {"stream": True} if stream else {}
    body.update(messages=[], temperature=0.7, max_tokens=256)
    size = len(json.dumps(body)) + 20
    while size < n_bytes - 40:
        role = ["user", "assistant"][len(body["messages"]) % 2]
        part = text(min(turn, n_bytes - size - 40), len(body["messages"]) % 100)
        body["messages"].append({"role": role, "content": part})
        size += len(json.dumps(body["messages"][-1], ensure_ascii=False).encode()) + 2
    body["model"] = MODEL
    return json.dumps(body, ensure_ascii=False, separators=(",", ":") if stream else None).encode()


# ---- processes ----


def free_ports(n):
    sockets = [socket.socket() for _ in range(n)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def answers(port, path=None):
    """Is somebody there? With path: and does it say 200?"""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as s:
            if path is None:
                return True
            s.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
            return b" 200 " in s.recv(4096)[:20]
    except OSError:
        return False


def completes(port):
    """Does a chat completion get a 200?"""
    body = chat_body(1024)
    head = (f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n")
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as s:
            s.sendall(head.encode() + body)
            return b" 200 " in s.recv(4096)[:20]
    except OSError:
        return False


def descendants(pid):
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as f:
                    parents.setdefault(int(f.read().rsplit(")", 1)[1].split()[1]), []).append(int(entry))
            except OSError:
                pass
    found = [pid]
    for p in found:
        found.extend(parents.get(p, []))
    return found


class Process:
    """A program on a core of its own, its output in a file. Leaving the block ends it and its children."""

    def __init__(self, name, command, core, log, environment=None):
        self.name, self.log = name, log
        with open(log, "wb") as out:
            self.child = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
                                          env=dict(os.environ, **(environment or {})),
                                          preexec_fn=lambda: core is None or os.sched_setaffinity(0, {core}))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def wait_for(self, port, path=None, seconds=15):
        end = time.monotonic() + seconds
        while not answers(port, path):
            if self.child.poll() is not None or time.monotonic() > end:
                self.stop()
                fail(f"{self.name} did not start:\n{self.output()}")
            time.sleep(0.02)

    def output(self):
        with open(self.log, errors="replace") as f:
            return f.read()[-4000:]

    def stop(self, seconds=10):
        """SIGTERM, then SIGKILL to its session; the exit status."""
        try:
            self.child.terminate()
            self.child.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(self.child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        return self.child.wait()


# ---- contenders ----

HAPROXY = """global
    nbthread 1
    maxconn {max_clients}
{global_more}{log_line}defaults
    mode http
    log global
{log_option}    option http-keep-alive
    option http-buffer-request
{stream_option}    http-reuse always
    timeout connect 5s
    timeout queue 300s
    timeout client 300s
    timeout server 300s
    timeout http-request 60s
    timeout http-keep-alive 75s
frontend in
    bind 127.0.0.1:{port} backlog 65535
    default_backend pods
backend pods
    balance leastconn
{servers}
"""

NGINX = """daemon off;
master_process off;
worker_processes 1;
pid {dir}/nginx.pid;
error_log {dir}/nginx-error.log warn;
events {{ worker_connections {max_sockets}; use epoll; multi_accept on; }}
http {{
    access_log {dir}/nginx-access.log combined buffer=64k flush=1s;
    client_body_temp_path {dir}/nginx-body;
    proxy_temp_path {dir}/nginx-proxy;
    fastcgi_temp_path {dir}/nginx-fastcgi;
    uwsgi_temp_path {dir}/nginx-uwsgi;
    scgi_temp_path {dir}/nginx-scgi;
    client_max_body_size 64m;
    client_body_buffer_size {body_buffer};
    keepalive_requests 1000000000;
    keepalive_timeout 75s;
    upstream pods {{
{servers}
        keepalive {max_clients};
        keepalive_requests 1000000000;
    }}
    server {{
        listen 127.0.0.1:{port} backlog=65535;
        location / {{
            proxy_pass http://pods;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_request_buffering on;
            proxy_buffering {buffering};
            proxy_read_timeout 300s;
        }}
    }}
}}
"""


class Setup:
    """What a contender has to serve: its port, the pods' ports, the size of bodies, streams or not."""

    def __init__(self, directory, pods, body_bytes=1024, stream=False, options=None):
        self.dir, self.pods, self.body_bytes, self.stream = directory, pods, body_bytes, stream
        self.options = options or {}
        self.port, self.metrics_port, self.debug_port = free_ports(3)

    def file(self, name, content):
        path = os.path.join(self.dir, name)
        with open(path, "w") as f:
            f.write(content)
        return path

    def log(self, name):
        return os.path.join(self.dir, name)


def router_command(setup, prefix=()):
    environment = {
        "ENABLE_SESSION_BOOST": "true",
        "SESSION_BOOST_INFLIGHT_PER_POD": "100000",
        "ACCESS_LOG_OUTPUT": setup.log("router-access.log"),
        "ROUTER_BACKENDS": f"{MODEL}=" + ",".join(f"127.0.0.1:{p}" for p in setup.pods),
    }
    environment.update(setup.options)
    return [*prefix, ROUTER, "--port", str(setup.port), "--metrics-port", str(setup.metrics_port), "--debug-port",
            str(setup.debug_port)], environment


def start_router(setup, core=PROXY_CORE, prefix=(), seconds=15):
    command, environment = router_command(setup, prefix)
    p = Process("kthena-router", command, core, setup.log("router.log"), environment)
    p.wait_for(setup.port, "/readyz", seconds)
    return p


def start_haproxy(setup, logs=True, whole_bodies=False):
    """whole_bodies: buffers as large as the body, so that it is kept whole before a pod is chosen, as the router does. It
    queues where the router is told to."""
    per_pod = setup.options.get("SESSION_BOOST_INFLIGHT_PER_POD")
    queue = f" maxconn {per_pod} maxqueue 0" if per_pod else ""
    max_clients = int(setup.options.get("MAX_CONNECTIONS", MAX_STREAMS))
    more = f"    tune.bufsize {setup.body_bytes + 16384}\n" if whole_bodies else ""
    if queue:  # few of its connections have a second one to a pod, and that one shall be kept
        more += f"    ulimit-n {max_clients + 1000}\n    no strict-limits\n"
        more += "    tune.pool-low-fd-ratio 100\n    tune.pool-high-fd-ratio 100\n"
    config = setup.file("haproxy.cfg", HAPROXY.format(
        port=setup.port, max_clients=max_clients + 10, global_more=more,
        # Without it HAProxy holds each chunk back for up to 200 ms.
        stream_option="    option http-no-delay\n" if setup.stream else "",
        log_line="    log stdout format raw daemon\n" if logs else "", log_option="    option httplog\n" if logs else "",
        servers="\n".join(f"    server pod{i} 127.0.0.1:{p}{queue}" for i, p in enumerate(setup.pods))))
    p = Process("haproxy", [peer("haproxy"), "-f", config, "-db"], PROXY_CORE, setup.log("haproxy.log"))
    p.wait_for(setup.port)
    return p


def start_nginx(setup):
    config = setup.file("nginx.conf", NGINX.format(
        # nginx closes idle connections when a sixteenth or less of worker_connections is free.
        dir=setup.dir, port=setup.port, max_clients=MAX_STREAMS + 10, max_sockets=2 * MAX_STREAMS * 16 // 15 + 200,
        body_buffer=max(16384, setup.body_bytes + 4096), buffering="off" if setup.stream else "on",
        servers="\n".join(f"        server 127.0.0.1:{p};" for p in setup.pods)))
    p = Process("nginx", [peer("nginx"), "-c", config, "-e", setup.log("nginx-error.log")], PROXY_CORE,
                setup.log("nginx.log"))
    p.wait_for(setup.port)
    return p


def start_relay(setup):
    p = Process("relay", [os.path.join(BENCH, "relay"), "--port", str(setup.port), "--to", str(setup.pods[0])], PROXY_CORE,
                setup.log("relay.log"))
    p.wait_for(setup.port, "/v1/models")
    return p


def start_peer(name, template, setup, seconds=600):
    words = [w.replace("{port}", str(setup.port)).replace("{backend}", f"http://127.0.0.1:{setup.pods[0]}")
             .replace("{backend_port}", str(setup.pods[0])).replace("{model}", MODEL) for w in shlex.split(template)]
    p = Process(name, words, PROXY_CORE, setup.log("peer.log"))
    end = time.monotonic() + seconds
    p.wait_for(setup.port, seconds=seconds)
    # It may listen before it knows its pod.
    while not completes(setup.port):
        if p.child.poll() is not None or time.monotonic() > end:
            p.stop()
            fail(f"{name} listens, but does not answer a chat completion with 200:\n{p.output()}")
        time.sleep(0.2)
    return p


def start_sink(setup, interval_ms=50, phases=0, chunks=0):
    command = [os.path.join(BENCH, "sink"), "--model", MODEL, "--interval-ms", str(interval_ms), "--chunks", str(chunks),
               "--phases", str(phases or interval_ms)]
    for port in setup.pods:
        command += ["--port", str(port)]
    p = Process("sink", command, LOAD_CORE, setup.log("sink.log"))
    p.wait_for(setup.pods[0], "/v1/models")
    return p


def load(arguments, prefix=()):
    """Runs load with these arguments and returns its figures; None with the reason printed when it gave up."""
    command = [*prefix, os.path.join(BENCH, "load"), *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          preexec_fn=lambda: os.sched_setaffinity(0, {LOAD_CORE}))
    if done.returncode != 0 or not done.stdout:
        print(f"  load failed: {done.stderr.strip()}", file=sys.stderr)
        return None
    if done.stderr.strip():
        print(f"  {done.stderr.strip()}", file=sys.stderr)
    return json.loads(done.stdout)
