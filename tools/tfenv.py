"""Puts a script under the project's Python: the one with TensorFlow in the user's cache folder.

Import this module first and call `enter()`; the script then runs the same whether it was started
with the system's Python or with the one of the virtual environment.
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def cache_dir():
    """The project's folder below the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tensord"


def enter(threads=None):
    """Restarts the script under the virtual environment's Python, and quiets TensorFlow."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    if threads:
        os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    venv = cache_dir() / "venv"
    python = venv / "bin" / "python"
    if python.exists() and Path(sys.prefix).resolve() != venv.resolve():
        os.execv(python, [str(python), *sys.argv])
