#!/usr/bin/env python3
"""Measures how fast tensord answers after its start and what it holds then, beside TensorFlow.

    tools/bench/start.py [--binary target/release/tensord] [--runs 5] [--inspect FOLDER]

tensord is started as a server on `models/half_plus_two` and asked over REST until it answers;
Python TensorFlow loads the same SavedModel and runs its signature once, without any server. Both times are
counted from the start of the process; medians over the runs, which take turns. With `--inspect`, the time of
`tensord inspect` on a model is measured instead, such as the full-size resnet50 of `tools/zoo/make.py`.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)

import tfenv
from server import Server

if __name__ == "__main__":
    tfenv.enter()

MODEL = tfenv.ROOT / "models" / "half_plus_two"
BODY = '{"instances": [1.0, 2.0, 5.0]}'
PATH = "/v1/models/half_plus_two:predict"
ANSWER = (200, {"predictions": [2.5, 3.0, 4.5]})
PYTHON = """
import sys, tensorflow as tf
model = tf.saved_model.load(sys.argv[1])
print(model.signatures["serving_default"](x=tf.constant([[1.0], [2.0], [5.0]])), flush=True)
sys.stdin.read()
"""


def resident_bytes(pid):
    """The resident memory of a process, its children included."""
    total = 0
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
        except OSError:
            continue
        if str(pid) in (fields["Pid"].strip(), fields["PPid"].strip()) and "VmRSS" in fields:
            total += int(fields["VmRSS"].split()[0]) * 1024
    return total


def run_server(binary):
    """Seconds to the first answer and idle bytes of one start."""
    begin = time.monotonic()
    with Server(binary, MODEL) as server:
        server.wait(lambda: server.ask("POST", PATH, BODY) == ANSWER, look_seconds=0.0005)
        spent = time.monotonic() - begin
        time.sleep(1.0)
        return spent, resident_bytes(server.pid)


def run_python():
    """Seconds to the first answer and bytes held after it of Python TensorFlow."""
    begin = time.monotonic()
    child = subprocess.Popen([sys.executable, "-c", PYTHON, str(MODEL / "00000123")],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL)
    try:
        if not child.stdout.readline():
            sys.exit("Python TensorFlow does not answer")
        return time.monotonic() - begin, resident_bytes(child.pid)
    finally:
        child.stdin.close()
        child.wait()


def run_inspect(binary, folder):
    """Seconds that looking at a model takes."""
    begin = time.monotonic()
    subprocess.run([binary, "inspect", folder], stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - begin


def main():
    """Reads the command line and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", type=Path, default=tfenv.ROOT / "target/release/tensord")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--inspect", type=Path, metavar="FOLDER")
    args = parser.parse_args()
    if not os.access(args.binary, os.X_OK):
        sys.exit(f"{args.binary} is not there; build it with `cargo build --release`")
    binary = args.binary.resolve()
    if args.inspect:
        spent = statistics.median(run_inspect(binary, args.inspect) for _ in range(args.runs))
        print(f"inspect {args.inspect.name}, median of {args.runs} runs: {1000 * spent:.1f} ms")
        return
    ours, theirs = [], []
    for _ in range(args.runs):
        ours.append(run_server(binary))
        theirs.append(run_python())
    (our_time, our_bytes), (their_time, their_bytes) = (
        [statistics.median(column) for column in zip(*rows)] for rows in (ours, theirs))
    mib = 1024 * 1024
    print(f"half_plus_two, median of {args.runs} runs")
    print(f"{'':<16} {'first answer':>14} {'idle memory':>14}")
    print(f"{'tensord':<16} {1000 * our_time:>11.1f} ms {our_bytes / mib:>10.1f} MiB")
    print(f"{'TensorFlow':<16} {1000 * their_time:>11.1f} ms {their_bytes / mib:>10.1f} MiB")
    print(f"{'ratio':<16} {their_time / our_time:>12.0f} x {their_bytes / our_bytes:>12.0f} x")


if __name__ == "__main__":
    main()
