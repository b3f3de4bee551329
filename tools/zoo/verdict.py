"""Compares `tensord predict` with TensorFlow's answers of a real model.

The rules of tools/zoo/compare.py hold, with two more. Where TensorFlow's own answers with and without
oneDNN are further apart than the tolerance, the nearer one counts. Outputs that list found things
in the order of their scores may list equal scores in any order: the entry names them as `ties`.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import arrays
from zoo import compare

HERE = Path(__file__).resolve().parent
TOLERANCE = 1e-4


def compare_model(binary, model, entry):
    """(complaints, largest difference, remarks) over all cases of a model."""
    complaints, largest, remarks = [], 0.0, set()
    for path in sorted((model / "golden").glob("*/*.in.npz")):
        found, size = compare_case(binary, model, path, entry, remarks)
        case = f"{path.parent.name} {path.name.removesuffix('.in.npz')}"
        complaints += [f"{case}: {text}" for text in found]
        largest = max(largest, size)
    return complaints, largest, sorted(remarks)


def compare_case(binary, model, path, entry, remarks):
    """Complaints and the largest difference of one case."""
    with tempfile.TemporaryDirectory() as scratch:
        outputs = Path(scratch) / "out.npz"
        problem = compare.predict(binary, model / "1", path.parent.name, path, outputs)
        if problem:
            return [problem], float("inf")
        got = arrays.load(outputs)
    want = arrays.load(path.with_name(path.name.replace(".in.npz", ".out.npz")))
    missing = sorted(set(want) - set(got))
    if missing:
        return [f"outputs {missing} are missing"], float("inf")
    complaints, largest = [], 0.0
    tied = entry.get("ties", {}).get("items", [])
    for alias in want:
        text, size = compare.judge((entry["name"], path.parent.name, alias), got[alias],
                                   want[alias], TOLERANCE)
        if text and alias not in tied:
            text, size = against_nearer(model, path, alias, got[alias], want[alias], (text, size))
            if text is None:
                remarks.add("TensorFlow differs from itself without oneDNN; the nearer counts")
        if text and alias in tied and not moved_ties(got, want, entry["ties"]):
            text, size = None, 0.0
            remarks.add("equal scores in another order")
        if text:
            complaints.append(f"{alias}: {text}")
        largest = max(largest, size)
    return complaints, largest


def against_nearer(model, path, alias, got, want, verdict):
    """The verdict against TensorFlow without oneDNN, if TensorFlow itself differs that much."""
    other = path.with_name(path.name.replace(".in.npz", ".alt.npz"))
    if not other.exists():
        plain = os.environ | {"TF_ENABLE_ONEDNN_OPTS": "0"}
        subprocess.run([sys.executable, str(HERE / "answers.py"), str(model)], env=plain, check=True,
                       capture_output=True)
    alternative = arrays.load(other)[alias]
    place = ("", path.parent.name, alias)
    if compare.judge(place, alternative, want, TOLERANCE)[0] is None:
        return verdict
    return min(verdict, compare.judge(place, got, alternative, TOLERANCE), key=lambda v: v[1])


def moved_ties(got, want, ties):
    """Why the rows of the tied outputs are not TensorFlow's in another order; None if they are.

    Row k of each item of the batch is all outputs' values at k, the scores among them.
    """
    names = [ties["by"], *ties["items"]]
    if any(got[name].shape != want[name].shape for name in names):
        return "other shapes"
    ours, theirs = (rows_of(side, names) for side in (got, want))
    scale = np.abs(theirs).max(axis=(0, 1), initial=1e-30)
    for mine, wanted in zip(ours, theirs):
        free = np.ones(len(mine), bool)
        for row in wanted:
            near = free & (np.abs(mine - row) <= TOLERANCE * scale).all(axis=1)
            if not near.any():
                return "a row that TensorFlow lists is not there"
            free[np.argmax(near)] = False
    return None


def rows_of(side, names):
    """The outputs side by side as [batch, rows, values]."""
    first = side[names[0]]
    n_items, n_rows = first.shape[:2] if first.ndim > 1 else (1, first.shape[0])
    parts = [side[name].astype(np.float64).reshape(n_items, n_rows, -1) for name in names]
    return np.concatenate(parts, axis=2)
