"""make coverage: what the tests have run of each file, from gcov's data in a build directory.

Prints lines run and in all for each file of src/ and for each layer; fails when core or net is below the bar. --missing shows
the lines that nothing ran, as ranges.
"""
import argparse
import collections
import gzip
import glob
import json
import os
import subprocess
import sys
import tempfile

BAR = 90.0
BARRED_LAYERS = ("core", "net")


def read(build):
    """file -> {line: times run}, summed over all objects."""
    lines = collections.defaultdict(lambda: collections.defaultdict(int))
    data = glob.glob(os.path.join(build, "obj", "src", "**", "*.gcda"), recursive=True)
    if not data:
        sys.exit(f"coverage: no data below {build}: run the tests first")
    with tempfile.TemporaryDirectory() as where:
        subprocess.run(["gcov", "--json-format", *[os.path.abspath(d) for d in data]], cwd=where,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        for path in glob.glob(os.path.join(where, "*.gcov.json.gz")):
            with gzip.open(path, "rt", encoding="utf-8") as f:
                for file in json.load(f)["files"]:
                    if file["file"].startswith("src/"):
                        for line in file["lines"]:
                            lines[file["file"]][line["line_number"]] += line["count"]
    return lines


def ranges(numbers):
    out = []
    for n in sorted(numbers):
        if out and n - out[-1][1] <= 1:
            out[-1][1] = n
        else:
            out.append([n, n])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in out)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--missing", action="store_true")
    args = parser.parse_args()
    layers = collections.defaultdict(lambda: [0, 0])
    for file, counts in sorted(read(args.build).items()):
        run, total = sum(1 for c in counts.values() if c > 0), len(counts)
        layer = layers[file.split("/")[1]]
        layer[0] += run
        layer[1] += total
        print(f"{file:36} {run:5} of {total:5}  {100 * run / total:5.1f} %")
        if args.missing and run < total:
            print(f"    not run: {ranges(n for n, c in counts.items() if c == 0)}")
    failed = False
    for layer, (run, total) in layers.items():
        percent = 100 * run / total
        low = layer in BARRED_LAYERS and percent < BAR
        failed |= low
        print(f"{layer:36} {run:5} of {total:5}  {percent:5.1f} %{'  below the bar' if low else ''}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
