#!/usr/bin/python3
"""bench-features: what each optional feature costs, in instructions (callgrind) per 1 KB request and per SSE chunk, counted as
gates.py counts them, against the same router with all of them off.

"All off" is the base of the differences: the router as it is now with these options off. What it was before they existed, only a
build of that time can tell.
"""
import argparse

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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features", nargs="*", metavar="FEATURE", help="of: " + ", ".join(FEATURES) + "; default: all")
    wanted = parser.parse_args().features or list(FEATURES)
    for name in wanted:
        if name not in FEATURES:
            parser.error(f"no such feature: {name}; expected one of {', '.join(FEATURES)}")
    print(f"{'':28} {'per request':>12} {'per chunk':>12}   instructions")
    off = {what: gates.measure(what, "instructions")[0] for what in ("request", "chunk")}
    print(f"{'all off':28} {off['request']:12,.0f} {off['chunk']:12,.0f}", flush=True)
    for name in wanted:
        on = {what: gates.measure(what, "instructions", FEATURES[name])[0] for what in off}
        print(f"{name:28} {on['request'] - off['request']:+12,.0f} {on['chunk'] - off['chunk']:+12,.0f}", flush=True)


if __name__ == "__main__":
    main()
