#!/usr/bin/env python3
"""Runs `tensord bench` beside TensorFlow (C API, oneDNN on) and ONNX Runtime; prints a table.

    tools/bench/engines.py --binary target/release/tensord [--seconds S] [--rounds N] [MODEL ...]

The models are made by tools/zoo/make.py in the user's cache folder. Engines take turns, a slice
each, so that a busy machine slows all of them; the figure is the median over the slices. ONNX
Runtime and tf2onnx are looked for in the cache folder too:

    pip install --no-deps --target ~/.cache/tensord/onnx onnxruntime tf2onnx onnx flatbuffers
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)

import tfenv

MODELS = ["mobilenet_v2", "resnet50", "efficientnet_b0", "minilm", "bert_base", "lstm",
          "wide_and_deep", "tfexample"]
ENGINES = ["tensord", "tensorflow", "onnx"]
HERE = Path(__file__).resolve().parent


def environment():
    """What the other engines run with."""
    onnx = tfenv.cache_dir() / "onnx"
    return os.environ | {"PYTHONPATH": str(onnx), "TF_ENABLE_ONEDNN_OPTS": "1",
                         "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": ""}


class Other:
    """Another engine, loaded once for a number of threads."""

    def __init__(self, kind, model, threads):
        command = [sys.executable, str(HERE / "engine.py"), kind, str(model),
                   str(threads)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True, env=environment())
        self.is_ready = bool(self.process.stdout.readline())

    def measure(self, batch, seconds):
        """One slice; None if the engine failed."""
        if not self.is_ready:
            return None
        self.process.stdin.write(f"{batch} {seconds}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        self.is_ready = bool(line)
        return json.loads(line) if line else None

    def close(self):
        """Ends the process."""
        self.process.stdin.close()
        self.process.wait()


class Tensord:
    """`tensord bench`, a process a slice."""

    def __init__(self, binary, model, threads):
        self.binary, self.model, self.threads = binary, model, threads

    def measure(self, batch, seconds):
        """One slice; None if it failed."""
        inputs = self.model / "golden" / "serving_default" / f"batch{batch}.in.npz"
        command = [self.binary, "bench", str(self.model), "--batch", str(batch), "--threads",
                   str(self.threads), "--seconds", str(seconds), "--inputs", str(inputs), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(done.stderr.strip(), file=sys.stderr)
            return None
        return json.loads(done.stdout)

    def close(self):
        """Nothing stays."""


def measure(args, model, threads):
    """The cells of one model and number of threads: {(batch, engine): (median_us, rss_bytes)}."""
    engines = {}
    for kind in args.engines:
        if kind == "tensord":
            engines[kind] = Tensord(args.binary, model, threads)
        elif kind != "onnx" or (model / "model.onnx").exists():
            engines[kind] = Other(kind, model, threads)
    cells = {}
    for batch in args.batches:
        slices = {kind: [] for kind in engines}
        for _ in range(args.rounds):
            for kind, engine in engines.items():
                found = engine.measure(batch, args.seconds)
                if found:
                    slices[kind].append(found)
        for kind, found in slices.items():
            if found:
                cells[batch, kind] = (statistics.median(x["median_us"] for x in found),
                                      max(x["rss_bytes"] for x in found))
    for engine in engines.values():
        engine.close()
    return cells


def figure(micros):
    """A time for people."""
    return f"{micros / 1e3:.1f} ms" if micros >= 1e4 else f"{micros:.0f} µs"


def row(name, batch, threads, cells, ratios):
    """One line of the table; adds to the ratios."""
    ours = cells.get((batch, "tensord"))
    text = [f"{name} | {batch} | {threads}", figure(ours[0]) if ours else "–"]
    for other in ("tensorflow", "onnx"):
        found = cells.get((batch, other))
        text.append(figure(found[0]) if found else "–")
        if ours and found:
            ratio = found[0] / ours[0]
            ratios.setdefault(other, []).append(ratio)
            ratios.setdefault((other, threads), []).append(ratio)
            text.append(f"{ratio:.2f}")
        else:
            text.append("–")
    memory = [cells.get((batch, kind)) for kind in ENGINES]
    text.append(" / ".join(f"{cell[1] / 2**20:.0f}" if cell else "–" for cell in memory))
    return "| " + " | ".join(text) + " |"


def mean(values):
    """The geometric mean."""
    return math.exp(statistics.fmean(map(math.log, values)))


def parse():
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", type=Path, default=Path("target/release/tensord"))
    parser.add_argument("--folder", type=Path, default=tfenv.cache_dir() / "zoo-bench")
    parser.add_argument("--seconds", type=float, default=2.0, help="of one slice")
    parser.add_argument("--rounds", type=int, default=3, help="slices of a cell")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=ENGINES)
    parser.add_argument("--made", action="store_true", help="the models are there: do not look")
    parser.add_argument("models", nargs="*", metavar="MODEL", default=MODELS)
    return parser.parse_args()


def main():
    """Makes the models and prints the table."""
    args = parse()
    if not args.made:
        steps = [["zoo/make.py", "--jobs", "1"], ["bench/prepare.py"]]
        for step in steps:
            command = [sys.executable, str(HERE.parent / step[0]), *step[1:], str(args.folder)]
            subprocess.run([*command, *args.models], check=True, env=environment())
    print("| model | batch | threads | tensord | TensorFlow | × | ONNX Runtime | × "
          "| MiB: tensord / TensorFlow / ONNX Runtime |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    ratios = {}
    for name in args.models:
        for threads in args.threads:
            cells = measure(args, args.folder / name, threads)
            for batch in args.batches:
                print(row(name, batch, threads, cells, ratios), flush=True)
    for key, values in ratios.items():
        print(f"geometric mean of {key}: {mean(values):.2f} × over {len(values)} cells")


if __name__ == "__main__":
    tfenv.enter()
    main()
