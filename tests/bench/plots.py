#!/usr/bin/env python3
"""Plots of bench-ttft, as SVG beside its rows: how long first tokens take (one figure a regime), and the share of prompt
tokens found warm as the load grows (queue_sim, with the points of the real runs). Needs Debian's python3-matplotlib,
which is installed when it is missing.

    plots.py      reads and writes in $BENCH_BUILD/bench
"""
import json
import os
import sys

import harness

# Figures name these alone: more lines than this nobody can tell apart.
SHOWN = ["direct round robin", "no queue, sticky", "FIFO", "boost, sticky off", "prefer, wait 10s", "wait 10s, bound 32"]
LOADS = {"long-above": [10, 25, 50, 75, 100, 125, 150, 200, 250, 300], "short-above": [20, 50, 80, 110, 140, 170, 200, 250, 300]}
COLUMNS = [("first", "first turns"), ("follow", "follow-ups")]


def import_matplotlib():
    try:
        import matplotlib
    except ImportError:
        if not sys.executable.startswith("/usr/bin/"):
            harness.fail(f"{sys.executable} has no matplotlib; Debian's python3-matplotlib is for /usr/bin/python3")
        harness.install(["python3-matplotlib"])
        import matplotlib
    matplotlib.use("svg")
    # The same rows give the same file.
    matplotlib.rcParams["svg.hashsalt"] = "bench-ttft"
    from matplotlib import pyplot
    return pyplot


def save(pyplot, figure, name, title):
    path = os.path.join(harness.BENCH, name)
    lines, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(lines, labels, title=title, loc="lower center", ncol=len(labels), fontsize=8, title_fontsize=8)
    figure.tight_layout(rect=(0, 0.12, 1, 1))
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    print(path)


def mean_quantiles(rows, kind):
    """The quantiles of several repetitions, averaged one by one."""
    lists = [r[kind]["quantiles"] for r in rows if r[kind]["n"] > 0]
    return [sum(values) / len(values) for values in zip(*lists)]


def distributions(pyplot, rows, regime):
    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4.2), sharey=True)
    for axis, (kind, title) in zip(axes, COLUMNS):
        for number, policy in enumerate(SHOWN):
            for run, style in (("real", "-"), ("sim", ":")):
                found = [r for r in rows if (r["run"], r["regime"], r["policy"]) == (run, regime, policy)]
                quantiles = mean_quantiles(found, kind) if found else []
                if quantiles:
                    known = axis.get_legend_handles_labels()[1]
                    share = [i / (len(quantiles) - 1) for i in range(len(quantiles))]
                    axis.plot([max(q, 0.01) for q in quantiles], share, style, color=f"C{number}",
                              label=None if policy in known else policy)
        axis.set(xscale="log", title=f"{regime}: {title}", xlabel="time to first token, s (model time)")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("share of turns")
    save(pyplot, figure, f"ttft-{regime}.svg", "lines: router and pods; dots: queue_sim")


def warm_over_load(pyplot, rows, ttft):
    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4.2), sharey=True)
    policies = [p for p in ttft.POLICIES if p.name in SHOWN]
    for axis, (regime, loads) in zip(axes, LOADS.items()):
        for policy in policies:
            number = SHOWN.index(policy.name)
            warm = [ttft.run_sim(regime, policy, 1, ["--sessions", str(n)])["warm"] for n in loads]
            axis.plot(loads, warm, color=f"C{number}", label=policy.name)
            points = [(r["sessions"], r["warm"]) for r in rows if r["run"] == "real" and r["policy"] == policy.name
                      and r["regime"].split("-")[0] == regime.split("-")[0]]
            if points:
                axis.plot(*zip(*points), "o", color=f"C{number}", markersize=4)
        axis.set(title=f"{regime.split('-')[0]} contexts", xlabel="sessions", ylim=(0, 1))
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("share of prompt tokens found warm")
    save(pyplot, figure, "ttft-warm-over-load.svg", "lines: queue_sim; points: router and pods")


def main():
    import ttft
    pyplot = import_matplotlib()
    path = os.path.join(harness.BENCH, "ttft.json")
    if not os.path.exists(path):
        harness.fail(f"{path} is not there; make bench-ttft writes it")
    with open(path, encoding="utf-8") as f:
        rows = json.load(f)
    for regime in dict.fromkeys(r["regime"] for r in rows):
        distributions(pyplot, rows, regime)
    warm_over_load(pyplot, rows, ttft)


if __name__ == "__main__":
    harness.no_arguments(__doc__)
    sys.exit(main())
