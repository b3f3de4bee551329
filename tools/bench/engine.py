"""One other engine in a process of its own: `engine.py tensorflow|onnx MODEL THREADS`.

Reads lines `BATCH SECONDS` and answers each with a line of JSON: the median time and the resident
memory, like `tensord bench`. MODEL has `1`, `golden`, `names.json` and `model.onnx` below it.
"""

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)


def resident_bytes():
    """The resident memory of this process."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def tensorflow(model, names, threads):
    """A function that prepares a run of TensorFlow for given inputs."""
    from bench.capi import Session
    session = Session(model / "1", threads)

    def prepare(inputs):
        feeds = {names["inputs"][alias]: array for alias, array in inputs.items()}
        session.prepare(feeds, list(names["outputs"].values()))
        return session.run
    return prepare


def onnx(model, _, threads):
    """A function that prepares a run of ONNX Runtime for given inputs."""
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(model / "model.onnx"), options,
                                           ["CPUExecutionProvider"])

    def prepare(inputs):
        return lambda: session.run(None, inputs)
    return prepare


def measure(run, seconds):
    """The median time of a run."""
    run()
    run()
    times, end = [], time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return {"median_us": statistics.median(times) * 1e6, "rss_bytes": resident_bytes()}


def main():
    """Serves the lines of standard input."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=["tensorflow", "onnx"])
    parser.add_argument("model", type=Path)
    parser.add_argument("threads", type=int)
    args = parser.parse_args()
    from arrays import load
    kind, model, threads = args.kind, args.model, args.threads
    names = json.loads((model / "names.json").read_text(encoding="utf-8"))
    prepare = {"tensorflow": tensorflow, "onnx": onnx}[kind](model, names, threads)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        batch, seconds = line.split()
        inputs = load(model / "golden" / names["signature"] / f"batch{batch}.in.npz")
        print(json.dumps(measure(prepare(inputs), float(seconds))), flush=True)


if __name__ == "__main__":
    main()
