"""Compares `tensord predict` with TensorFlow's stored answers, model by model.

    tools/zoo/compare.py target/release/tensord models testdata/models
    tools/zoo/compare.py target/release/tensord ZOO_DIR [--model NAME]

For DIR/<model>/<version> the answers are in DIR/<model>/golden/<signature> (the zoo) or else in
testdata/golden/<model>/<version>/<signature> (the demo models). Integers and strings must be equal,
floats within --tolerance of the largest value, with the same argmax where TensorFlow's two largest are
further apart than that; decoded JPEGs within 2 levels. Models that compute in 16 bits have a tolerance of
two units in the last place of the largest value.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)

import tfenv


def command_line():
    """The parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary", type=Path, help="tensord")
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR")
    parser.add_argument("--tolerance", type=float, default=1e-4)
    parser.add_argument("--model", action="append", help="only these models")
    return parser


if __name__ == "__main__":
    ARGS = tfenv.enter(command_line())

import ml_dtypes
import numpy as np

import arrays

# Outputs that follow from a decoded JPEG: (model, signature, alias) → levels, or a float tolerance.
LOOSE = {
    ("jpeg", "serving_default", "first"): 2,
    ("jpeg", "serving_default", "gray"): 2,
    ("jpeg", "serving_default", "scores"): 0.03,
}
# Models whose products are rounded to 16 bits, each after any order of sums.
ROUNDED = {"mixed_float16": 2**-9, "mixed_bfloat16": 2**-6}


def golden_folder(version):
    """Where the answers of a version are."""
    beside = version.parent / "golden"
    if beside.is_dir():
        return beside
    return tfenv.ROOT / "testdata" / "golden" / version.parent.name / str(int(version.name))


def predict(binary, version, signature, inputs, outputs):
    """Runs `tensord predict`; the error text if it fails."""
    command = [binary, "predict", version, "--signature", signature, "--inputs", inputs,
               "--outputs", outputs]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600)
    if done.returncode == 0:
        return None
    lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    return " ".join(lines)[:500] or f"exit code {done.returncode}"


def moved_argmax(got, want, limit):
    """Whether the largest value along the last axis is elsewhere, though no other was near it."""
    if want.ndim < 2 or want.shape[-1] < 2 or want.size == 0 or not np.isfinite(want).all():
        return False
    second, first = np.moveaxis(np.partition(want, -2, -1)[..., -2:], -1, 0)
    moved = np.argmax(got, -1) != np.argmax(want, -1)
    return bool((moved & (first - second > limit)).any())


def judge(place, got, want, tolerance):
    """(complaint or None, relative difference) of one output."""
    loose = LOOSE.get(place)
    if isinstance(loose, int) and got.shape == want.shape and got.dtype == want.dtype:
        levels = int(np.abs(got.astype(int) - want.astype(int)).max(initial=0))
        return (f"{levels} levels apart" if levels > loose else None), 0.0
    text, size = arrays.gap(got, want)
    if text:
        return text, size
    tolerance = loose or ROUNDED.get(place[0], tolerance)
    if size > tolerance:
        return f"differs by {size:.2g}", size
    if want.dtype.kind == "f" or want.dtype == ml_dtypes.bfloat16:
        got, want = got.astype(np.float64), want.astype(np.float64)
        if moved_argmax(got, want, tolerance * np.abs(want).max(initial=0)):
            return "another argmax", size
    return None, size


def compare_case(binary, version, signature, case, tolerance):
    """Complaints, the largest difference and the milliseconds of one case."""
    with tempfile.TemporaryDirectory() as scratch:
        outputs = Path(scratch) / "out.npz"
        begin = time.monotonic()
        problem = predict(binary, version, signature, case, outputs)
        spent = 1000 * (time.monotonic() - begin)
        if problem:
            return [problem], float("inf"), spent
        got = arrays.load(outputs)
    want = arrays.load(case.with_name(case.name.replace(".in.npz", ".out.npz")))
    if got.keys() != want.keys():
        return [f"outputs {sorted(got)} instead of {sorted(want)}"], float("inf"), spent
    complaints, largest = [], 0.0
    for alias in want:
        place = (version.parent.name, signature, alias)
        text, size = judge(place, got[alias], want[alias], tolerance)
        largest = max(largest, size)
        if text:
            complaints.append(f"{alias}: {text}")
    return complaints, largest, spent


def compare_signature(binary, version, folder, tolerance):
    """One row of the table for all cases of a signature; returns whether it is good."""
    worst, spent, problems, count = 0.0, 0.0, [], 0
    for case in sorted(folder.glob("*.in.npz")):
        complaints, size, milliseconds = compare_case(binary, version, folder.name, case, tolerance)
        count += 1
        worst, spent = max(worst, size), max(spent, milliseconds)
        problems += [f"{case.name.removesuffix('.in.npz')}: {c}" for c in complaints]
    name = f"{version.parent.name}/{int(version.name)} {folder.name}"
    verdict = "ok" if not problems else "FAILED"
    print(f"{verdict:<7} {name:<45} {count:>3} cases  {worst:>9.2g}  {spent:>7.0f} ms"
          + (f"  {problems[0]}" if problems else ""), flush=True)
    return not problems


def main(args):
    """Reads the command line and prints the table; the exit code is 1 if any row failed."""
    good, bad = 0, 0
    for folder in args.folders:
        for model in arrays.models(folder):
            if args.model and model.name not in args.model:
                continue
            for version in arrays.versions(model):
                # Models made for other tests have no answers.
                for signature in sorted(p for p in golden_folder(version).glob("*") if p.is_dir()):
                    if compare_signature(args.binary.resolve(), version, signature, args.tolerance):
                        good += 1
                    else:
                        bad += 1
    print(f"{good} passed, {bad} failed")
    sys.exit(1 if bad or not good else 0)


if __name__ == "__main__":
    main(ARGS)
