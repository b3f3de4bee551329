"""NumPy archives with the project's conventions, folders of models, and comparing answers.

Knows nothing of TensorFlow, so that scripts that only compare start at once.
"""

from pathlib import Path

import ml_dtypes
import numpy as np


def versions(model):
    """The version folders below a model's folder, lowest first."""
    found = [p for p in Path(model).iterdir() if p.name.isdigit() and p.is_dir()]
    return sorted(found, key=lambda p: int(p.name))


def models(folder):
    """The models below a folder: those that have versions."""
    return sorted(p for p in Path(folder).iterdir() if p.is_dir() and versions(p))


def to_storable(array):
    """An array as NumPy archives hold it: strings as fixed-width bytes."""
    array = np.asarray(array)
    if array.dtype != object:
        return array
    flat = [v if isinstance(v, bytes) else str(v).encode() for v in array.reshape(-1)]
    assert not any(v.endswith(b"\0") for v in flat), "NumPy drops zero bytes at the end"
    return np.array(flat, dtype="S" if flat else "S1").reshape(array.shape)


def from_stored(array):
    """An array of a NumPy archive as TensorFlow takes it; NumPy has no name for bfloat16."""
    if array.dtype.kind == "S":
        return array.astype(object)
    return array.view(ml_dtypes.bfloat16) if array.dtype == np.dtype("V2") else array


def save(path, arrays):
    """Writes a NumPy archive."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file:
        np.savez(file, **{k: to_storable(v) for k, v in arrays.items()})


def load(path):
    """Reads a NumPy archive."""
    with np.load(path) as archive:
        return {k: from_stored(archive[k]) for k in archive.files}


def gap(got, want):
    """Compares answers: (why they differ or None, max |a-b| / max |b|)."""
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape:
        return f"shape {list(got.shape)} instead of {list(want.shape)}", float("inf")
    if want.dtype.kind in "OSU":
        same = (to_storable(got) == to_storable(want)).all()
        return (None, 0.0) if same else ("strings differ", float("inf"))
    if got.dtype != want.dtype:
        return f"dtype {got.dtype} instead of {want.dtype}", float("inf")
    if got.size == 0 or got.tobytes() == want.tobytes():
        return None, 0.0
    if want.dtype.kind in "iub":
        return (None, 0.0) if (got == want).all() else ("values differ", float("inf"))
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    a, b = got.astype(wide), want.astype(wide)
    finite = np.isfinite(a) & np.isfinite(b)
    with np.errstate(invalid="ignore"):
        if not (finite | (a == b) | (np.isnan(a) & np.isnan(b))).all():
            return "values that are not finite differ", float("inf")
    largest = np.abs(b[finite]).max(initial=1e-30)
    return None, float(np.abs(a[finite] - b[finite]).max(initial=0) / largest)
