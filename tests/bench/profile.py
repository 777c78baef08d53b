#!/usr/bin/python3
"""Where the router's instructions go, per 1 KB request and per SSE chunk: by function, alone and with what it calls.

As in gates.py, two runs of different length are subtracted, so that start-up does not show. With --kernel instead: where
the CPU time goes under full load, kernel included, as perf samples it.
"""
import argparse
import os
import re
import subprocess
import tempfile

import gates
import harness

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
            count = int(row[1].replace(",", ""))
            # Inlined code makes one function several rows; with callees each row holds the whole.
            found[name] = max(found.get(name, 0), count) if inclusive else found.get(name, 0) + count
    return found


def profile(what, top):
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
            for value, name in each[:top]:
                print(f"{value:10.1f} {name}")


def kernel(what, top):
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
        for sort in ("dso", "dso,symbol"):
            printed = subprocess.run(["perf", "report", "-i", data, "--stdio", "--no-children", "-s", sort],
                                     stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout
            print(f"\n== CPU time while relaying {what}s, kernel included (perf, self): {sort}")
            lines = [line.rstrip(" -") for line in printed.splitlines() if line.strip() and not line.startswith("#")]
            print("\n".join(lines[:top]))


def main():
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("--kernel", action="store_true", help="by time, with the kernel (perf)")
    a.add_argument("--top", type=harness.count, default=30, help="functions in each list")
    options = a.parse_args()
    for what in ("request", "chunk"):
        (kernel if options.kernel else profile)(what, options.top)


if __name__ == "__main__":
    main()
