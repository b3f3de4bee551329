"""What the client scripts share: counting checks, golden inputs, and TensorFlow's answers."""

import os
import sys

# On some processors TensorFlow's oneDNN kernels refuse batches without rows.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import numpy as np
import tensorflow as tf

import arrays
import tfenv

GOLDEN = tfenv.ROOT / "testdata" / "golden"
TOLERANCE = 1e-5
TIMEOUT = 30


class Mismatch(Exception):
    """An answer that is not the expected one."""


class Checks:
    """Runs checks, prints a line for each, counts them."""

    def __init__(self):
        self.passed, self.failed = 0, 0

    def run(self, name, check, *args):
        """Calls `check(*args)`; any exception is a failure and the next check goes on."""
        try:
            check(*args)
        except Exception as problem:
            self.failed += 1
            text = str(problem) or type(problem).__name__
            print(f"FAILED  {name}: {type(problem).__name__}: {' '.join(text.split())[:600]}")
        else:
            self.passed += 1
            print(f"ok      {name}")

    def finish(self):
        """Prints the sum and ends the process."""
        print(f"{self.passed} passed, {self.failed} failed")
        sys.exit(1 if self.failed else 0)


def expect(condition, text):
    """Raises unless the condition holds."""
    if not condition:
        raise Mismatch(text)


def same(got, want, what="answer", tolerance=TOLERANCE):
    """Compares two arrays: floats within a relative tolerance, all else exactly."""
    text, size = arrays.gap(got, want)
    expect(text is None, f"{what}: {text}")
    expect(size <= tolerance, f"{what}: differs by {size:.3g} of the largest value")


def same_outputs(got, want):
    """Compares the outputs by alias."""
    expect(got.keys() == want.keys(), f"outputs {sorted(got)} instead of {sorted(want)}")
    for alias in want:
        same(got[alias], want[alias], alias)


def golden_inputs(model, version, signature):
    """The stored inputs of a signature by the name of the case."""
    folder = GOLDEN / model / str(int(version)) / signature
    return {p.name.removesuffix(".in.npz"): arrays.load(p)
            for p in sorted(folder.glob("*.in.npz"))}


def latest(model):
    """The folder of a model's highest version."""
    return arrays.versions(model)[-1]


def all_signatures(folder):
    """Every SignatureDef of the SavedModel, the init op too."""
    from tensorflow.core.protobuf import saved_model_pb2
    proto = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    (meta,) = [m for m in proto.meta_graphs if list(m.meta_info_def.tags) == ["serve"]]
    return dict(meta.signature_def)


def takes_examples(spec):
    """Whether Classify and Regress can feed the signature: one string input called `inputs`."""
    string = tf.string.as_datatype_enum
    return list(spec.inputs) == ["inputs"] and spec.inputs["inputs"].dtype == string


def is_classify(spec):
    """Whether the outputs fit Classify."""
    outputs = set(spec.outputs)
    return takes_examples(spec) and bool(outputs) and outputs <= {"classes", "scores"}


def is_regress(spec):
    """Whether the outputs fit Regress."""
    return takes_examples(spec) and list(spec.outputs) == ["outputs"]


def examples_of(inputs):
    """The tf.Example messages of a golden case."""
    return [tf.train.Example.FromString(value) for value in inputs["inputs"]]


def float_example(**features):
    """A tf.Example of float features."""
    return tf.train.Example(features=tf.train.Features(feature={
        name: tf.train.Feature(float_list=tf.train.FloatList(value=np.atleast_1d(value)))
        for name, value in features.items()}))


def class_pairs(outputs, row):
    """The (label, score) pairs of a row as Classify answers them."""
    count = next(iter(outputs.values())).shape[1]
    labels = outputs["classes"][row] if "classes" in outputs else [b""] * count
    scores = outputs["scores"][row] if "scores" in outputs else [0.0] * count
    return [(label.decode(), float(score)) for label, score in zip(labels, scores)]


def same_pairs(got, want):
    """Compares (label, score) pairs."""
    expect([label for label, _ in got] == [label for label, _ in want], f"labels {got} for {want}")
    same(np.array([s for _, s in got]), np.array([s for _, s in want]), "scores")


def is_counter(model):
    """Whether a model's signatures change its state, so that its answers depend on the past."""
    return model.name.startswith("counter")
