"""Inputs for every demo and test model: `cases(model, signature)` → name → inputs by alias."""

import numpy as np
import tensorflow as tf

BATCHES = (0, 1, 3, 8)
SENTENCES = [
    "what a lovely film", "I was bored and the food was cold", "Great acting, weak plot!", "",
    "zyzzyva", "The BEST coffee -- in town, and the friendly staff", "it is not bad at all",
    "na\u00efve caf\u00e9 with a beautiful garden",
]


def strings(values):
    """An object array of bytes."""
    array = np.empty(len(values), dtype=object)
    array[:] = [v if isinstance(v, bytes) else v.encode() for v in values]
    return array


def x_example(x, x2=None):
    """A serialized tf.Example with the float features x and, if given, x2."""
    values = {"x": x} if x2 is None else {"x": x, "x2": x2}
    features = {k: tf.train.Feature(float_list=tf.train.FloatList(value=[v]))
                for k, v in values.items()}
    proto = tf.train.Example(features=tf.train.Features(feature=features))
    return proto.SerializeToString(deterministic=True)


def batched(alias, values):
    """A case a batch size."""
    return {f"batch{n}": {alias: values[:n]} for n in BATCHES}


def half_plus_two(signature):
    """Floats for the signatures that take floats, examples for the others."""
    numbers = np.array([1, 2, 5, -3.5, 1e6, 0.1, 7, -0.25], np.float32)
    if signature == "serving_default":
        return {**batched("x", numbers), "scalar": {"x": np.float32(3)},
                "column": {"x": numbers[:3, None]}, "special": {
                    "x": np.array([np.nan, np.inf, -np.inf, 3e38], np.float32)}}
    if signature in ("regress_x2_to_y3", "classify_x2_to_y3"):
        return batched("inputs", numbers[:, None])
    return {**batched("inputs", strings([x_example(float(x)) for x in numbers])),
            "both_features": {"inputs": strings([x_example(2.0, 4.0), x_example(3.0, 1.0)])}}


def half_plus_two_tf2(signature):
    """As for the TensorFlow 1 model; the default of `serving_default_with_default` too."""
    if signature == "serving_default_with_default":
        return {"default": {}, **half_plus_two("serving_default")}
    return half_plus_two(signature)


def digits(_signature):
    """Images that were not used in training."""
    from demo.digits import data
    return batched("image", data()[1][:8])


def sentiment(_signature):
    """Sentences with punctuation, capitals, unknown words, accents, and one without words."""
    return {**batched("text", strings(SENTENCES)), "no_words": {"text": strings(["", "..."])}}


def clicks(signature):
    """Random offers, one with every optional feature missing, and one with many interests."""
    from demo.clicks import INTERESTS, example, random_examples
    values = random_examples(11, 8)[0].numpy()
    alias = "examples" if signature == "serving_default" else "inputs"
    few = example(33.0, 9.5, "ada")
    many = example(71.0, 0.5, "bob", 23, "jp", INTERESTS * 3)
    return {**batched(alias, values), "few_features": {alias: strings([few])},
            "many_interests": {alias: strings([many, few])}}


def counter(signature):
    """The delta for the one signature that takes one."""
    return {"once": {"delta": np.float32(2.5)} if signature == "incr_counter_by" else {}}


def identity_dtypes(signature):
    """Extreme values of the dtype as a scalar, a matrix and an empty tensor."""
    dtype = tf.as_dtype("float32" if signature == "serving_default" else signature)
    if dtype == tf.string:
        values = strings([b"", b"plain", b"\xff\xfe\x01", "gr\u00fc\u00dfe", b'"\\', b"x" * 300])
    elif dtype == tf.bool:
        values = np.array([True, False, False, True, True, False])
    elif dtype.is_complex:
        values = np.array([0, 1, 1j, -2.5 + 3j, np.inf, -1e-30j], dtype.as_numpy_dtype)
    elif dtype.is_floating:
        values = np.array([0, -0.0, 1.5, np.nan, np.inf, -3e-5], dtype.as_numpy_dtype)
    else:
        values = np.array([dtype.min, dtype.max, 0, 1, 2, 3], dtype.as_numpy_dtype)
    return {"matrix": {"x": values.reshape(2, 3)}, "scalar": {"x": values[1]},
            "empty": {"x": values[:0].reshape(0, 4)}}


def tf1_control_flow(_signature):
    """Rows whose sums are negative, small and large."""
    rows = np.linspace(-2, 7, 24).astype(np.float32).reshape(8, 3)
    return {"batch1": {"x": rows[:1]}, "batch3": {"x": rows[1:4]}, "batch8": {"x": rows},
            "small": {"x": np.full((2, 3), 0.1, np.float32)},
            "negative": {"x": -rows[3:]}}


def checks(signature):
    """What passes all assertions, and ends."""
    if signature == "lookup":
        return {"words": {"words": strings(["two", "none", "one"])}}
    return {"whole": {"x": np.array([1, 2, 3], np.float32)},
            "small": {"x": np.array([0.5, 0.5], np.float32)}}


def tables(signature):
    """Keys that are there, keys that are not, and one that is given twice."""
    if signature == "vectors":
        return {"ids": {"ids": np.array([9, 5, 7, 0], np.int64)}}
    return {"words": {"words": strings(["two", "none", "one", "known"])},
            "twice": {"words": strings(["three", "known", "three"])}}


def batch_function(_signature):
    """Rows of four numbers."""
    rows = np.linspace(-2, 2, 32).astype(np.float32).reshape(8, 4)
    return {f"batch{n}": {"x": rows[:n]} for n in (1, 3, 8)}


CASES = {
    "half_plus_two": half_plus_two, "half_plus_two_tf2": half_plus_two_tf2, "digits": digits,
    "sentiment": sentiment, "clicks": clicks, "counter": counter, "counter_tf2": counter,
    "identity_dtypes": identity_dtypes, "tf1_control_flow": tf1_control_flow,
    "checks": checks, "tables": tables, "batch_function": batch_function,
}


def cases(model, signature):
    """The inputs of a model's signature by the name of the case."""
    return CASES[model](signature)
