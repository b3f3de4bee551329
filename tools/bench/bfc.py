#!/usr/bin/env python
"""Our arena beside TensorFlow's own allocator, in one run: tools/bench/bfc.py TRACE.csv...

Builds tools/bench/bfc.cc against the TensorFlow of this Python (its headers and libtensorflow_framework), and the
examples of crates/device if they are not built. Needs g++. Prints one line of JSON for each comparison.
"""

import argparse
import csv
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
ROUNDS = 50


def build_bfc(folder):
    import tensorflow as tf

    program = folder / "bfc"
    include, library = tf.sysconfig.get_include(), tf.sysconfig.get_lib()
    flags = [flag for flag in tf.sysconfig.get_compile_flags() if not flag.startswith("--std")]
    source = ROOT / "tools/bench/bfc.cc"
    command = ["g++", "-std=c++20", "-O2", "-w", *flags, "-I", include, str(source), "-o", str(program)]
    command += ["-L", library, "-l:libtensorflow_framework.so.2", "-Wl,-rpath," + library, "-pthread"]
    subprocess.run(command, check=True)
    return program


def run(*command):
    environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3")
    done = subprocess.run([str(part) for part in command], env=environment, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def operations(path, out):
    """Frees come first at equal times, as in the example replay."""
    events = []
    for row, line in enumerate(csv.DictReader(open(path))):
        events.append((int(line["lower"]), 1, row, int(line["size"])))
        events.append((int(line["upper"]), 0, row, 0))
    events.sort(key=lambda event: event[:2])
    # TensorFlow's allocator gives nothing for nothing.
    lines = (f"+{row},{max(size, 1)}\n" if begins else f"-{row}\n" for _, begins, row, size in events)
    out.write_text("".join(lines))
    return out


def least_limit(runs, low, high):
    """The least limit at which `runs`, to a thousandth."""
    while high - low > low // 1000:
        middle = (low + high) // 2
        low, high = (low, middle) if runs(middle) else (middle, high)
    return high


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("traces", nargs="*", metavar="TRACE.csv")
    args = parser.parse_args()
    examples = TARGET / "release/examples"
    subprocess.run(["cargo", "build", "--release", "-p", "device", "--examples"], cwd=ROOT, check=True)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        bfc = build_bfc(folder)
        for path in args.traces:
            trace = operations(path, folder / "trace")
            for threads in (1, 2):
                theirs = run(bfc, "replay", trace, 1 << 40, ROUNDS, threads)
                ours = run(examples / "replay", path, "--threads", threads)
                print(json.dumps({"trace": pathlib.Path(path).stem, "threads": threads, "bfc": theirs, "ours": ours}))
            peak = ours["peak_live"] // 2
            replays = lambda limit: run(bfc, "replay", trace, limit, 0, 1)["refused"] == 0
            limit = least_limit(replays, peak, 2 * peak)
            fits = lambda limit: "error" not in run(examples / "replay", path, "--limit", limit)
            own = least_limit(fits, peak - 1, 2 * peak)
            print(json.dumps({"least limit over peak": {"bfc": limit / peak, "ours": own / peak}}))
        ours = run(examples / "churn", "--trace", folder / "churn")
        theirs = run(bfc, "replay", folder / "churn", 16 << 30, 0, 1)
        print(json.dumps({"churn": {"bfc": theirs, "ours": ours}}))
        theirs, ours = run(bfc, "grow", 12 << 30, 1 << 20), run(examples / "grow")
        print(json.dumps({"grow to 12 GiB": {"bfc": theirs, "ours": ours}}))


if __name__ == "__main__":
    main()
