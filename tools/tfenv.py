"""Puts a script under the project's Python: the one with TensorFlow in the user's cache folder.

A script puts `tools/` first on its path, imports this module and calls `enter()`. It then runs the same
whether it was started with the system's Python or with the one of the virtual environment. Scripts
that import TensorFlow at their top give `enter()` their parser: `--help` then needs no TensorFlow.
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def cache_dir():
    """The project's folder below the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tensord"


def enter(parser=None, threads=None):
    """Restarts the script under the virtual environment's Python, and quiets TensorFlow.

    Reads the command line before that if there is a parser, and returns it.
    """
    args = parser and parser.parse_intermixed_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    if threads:
        os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    venv = cache_dir() / "venv"
    python = venv / "bin" / "python"
    if python.exists() and Path(sys.prefix).resolve() != venv.resolve():
        os.execv(python, [str(python), *sys.argv])
    return args
