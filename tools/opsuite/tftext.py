"""Registers the ops of TensorFlow Text that we have, for scripts that ask TensorFlow for answers.

TensorFlow Serving builds these ops in. The package itself is not imported: loading the library of
the ops takes none of what the package depends on.
"""

import importlib.util
from pathlib import Path

import tensorflow as tf


def load():
    """The ops as Python functions; None where TensorFlow Text is not installed."""
    package = importlib.util.find_spec("tensorflow_text")
    if package is None:
        return None
    folder = Path(package.origin).parent
    return tf.load_op_library(str(folder / "python/ops/_normalize_ops.so"))
