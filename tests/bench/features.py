#!/usr/bin/python3
"""bench-features: what each optional feature costs, in instructions (callgrind) per 1 KB request and per SSE chunk, counted as
gates.py counts them, against the same router with all of them off.

    features.py [FEATURE ...]     default: all
"""
import sys

import gates

FAIR = {"ENABLE_SESSION_BOOST": "false", "ENABLE_FAIRNESS_SCHEDULING": "true", "FAIRNESS_MAX_CONCURRENT": "1000000",
        "SESSION_BOOST_INFLIGHT_PER_POD": "100000"}
FEATURES = {
    "COUNT_TOKENS": {"COUNT_TOKENS": "true"},
    "INJECT_STREAM_USAGE": {"INJECT_STREAM_USAGE": "true"},
    "CORS_ALLOW_ORIGINS": {"CORS_ALLOW_ORIGINS": "*"},
    "fairness instead of boost": FAIR,
}


def main():
    wanted = sys.argv[1:] or list(FEATURES)
    print(f"{'':28} {'per request':>12} {'per chunk':>12}   instructions")
    off = {what: gates.measure(what, "instructions")[0] for what in ("request", "chunk")}
    print(f"{'all off':28} {off['request']:12,.0f} {off['chunk']:12,.0f}", flush=True)
    for name in wanted:
        on = {what: gates.measure(what, "instructions", FEATURES[name])[0] for what in off}
        print(f"{name:28} {on['request'] - off['request']:+12,.0f} {on['chunk'] - off['chunk']:+12,.0f}", flush=True)


if __name__ == "__main__":
    main()
