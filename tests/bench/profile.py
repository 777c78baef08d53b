#!/usr/bin/python3
"""Where the router's instructions go, per 1 KB request and per SSE chunk: by function, alone and with what it calls.

As in gates.py, two runs of different length are subtracted, so that start-up does not show. With --kernel, also where the
CPU time goes under full load, kernel included, as perf samples it.
"""
import os
import re
import subprocess
import sys
import tempfile

import gates
import harness

TOP = 30


def functions(path, inclusive):
    """Instructions of each function in a callgrind file."""
    printed = subprocess.run(["callgrind_annotate", "--show-percs=no", "--auto=no", "--threshold=100",
                              f"--inclusive={'yes' if inclusive else 'no'}", path],
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout
    found = {}
    for line in printed.splitlines():
        row = re.match(r"\s*([\d,]+)\s+(?:\S*/)?([^/\s:]+:.+?)(?: \[(\S*?)\])?$", line)
        if row:
            file, function = row[2].split(":", 1)
            library = os.path.basename(row[3] or "")
            name = f"{function} ({file if file != '???' else library})"
            found[name] = found.get(name, 0) + int(row[1].replace(",", ""))
    return found


def profile(what):
    short, long = gates.CHUNKS if what == "chunk" else gates.REQUESTS
    with tempfile.TemporaryDirectory() as directory:
        files = [f"{directory}/{n}" for n in (short, long)]
        n = [gates.run_once(what, "instructions", length, keep)[1] for length, keep in zip((short, long), files)]
        for inclusive in (False, True):
            a, b = (functions(f, inclusive) for f in files)
            each = sorted(((b[k] - a.get(k, 0)) / (n[1] - n[0]), k) for k in b)[::-1]
            print(f"\n== instructions per {what}, {'with callees' if inclusive else 'self'}")
            if not inclusive:
                print(f"{sum(v for v, _ in each):10.0f} all")
            for value, name in each[:TOP]:
                print(f"{value:10.1f} {name}")


def kernel(what):
    """perf's view under full load."""
    stream = what == "chunk"
    with tempfile.TemporaryDirectory() as directory:
        setup = harness.Setup(directory, harness.free_ports(1), stream=stream)
        with open(setup.log("body"), "wb") as f:
            f.write(harness.chat_body(1024, stream))
        mode = ["--mode", "sse", "--connections", 1000] if stream else ["--connections", 64]
        with harness.start_sink(setup), harness.start_router(setup) as router:
            data = f"{directory}/perf.data"
            prefix = ["perf", "record", "-q", "-e", "cpu-clock", "-F", "2000", "-p", str(router.child.pid), "-o", data, "--"]
            harness.load(["--port", setup.port, "--body", setup.log("body"), "--warmup", 1, "--seconds", 4, *mode], prefix)
        print(f"\n== CPU time while relaying {what}s, kernel included (perf, self)")
        print("\n".join(line for line in subprocess.run(
            ["perf", "report", "-i", data, "--stdio", "--no-children", "-s", "dso,symbol", "--percent-limit", "0.6"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout.splitlines()
            if line.strip() and not line.startswith("#")))


if __name__ == "__main__":
    for case in ("request", "chunk"):
        kernel(case) if "--kernel" in sys.argv else profile(case)
