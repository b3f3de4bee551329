"""Recurrent nets: LSTM, GRU, both directions, masked, and loops written by hand."""

import keras
import numpy as np
import tensorflow as tf

from zoo.weights import randomize

layers = keras.layers


def sequences(length, width):
    """Random sequences."""
    def inputs(n):
        rng = np.random.default_rng(n)
        return {"serving_default": {"x": rng.normal(size=(n, length, width)).astype(np.float32)}}
    return inputs


def export(folder, outputs, x, inputs):
    """Exports a model with the input x."""
    model = keras.Model(x, outputs)
    randomize(model, inputs(2)["serving_default"]["x"])
    model.export(str(folder / "1"), verbose=False)
    return inputs


def lstm(folder, small):
    """Two stacked LSTMs; the second answers its states."""
    length, width, units = (7, 5, 6) if small else (100, 64, 256)
    x = keras.Input((None, width), name="x")
    y = layers.LSTM(units, return_sequences=True)(x)
    last, hidden, cell = layers.LSTM(units, return_state=True)(y)
    outputs = {"sequence": y, "last": last, "hidden": hidden, "cell": cell,
               "classes": layers.Dense(4, activation="softmax")(last)}
    return export(folder, outputs, x, sequences(length, width))


def gru(folder, small):
    """A GRU with the reset before and one with the reset after the product, and a simple RNN."""
    length, width, units = (7, 5, 6) if small else (100, 64, 256)
    x = keras.Input((length, width), name="x")
    y = layers.GRU(units, return_sequences=True)(x)
    z = layers.GRU(units, reset_after=False, recurrent_activation="hard_sigmoid",
                   go_backwards=True)(y)
    outputs = {"sequence": y, "last": z, "simple": layers.SimpleRNN(units)(x)}
    return export(folder, outputs, x, sequences(length, width))


def bidirectional(folder, small):
    """LSTM and GRU in both directions."""
    length, width, units = (7, 5, 6) if small else (100, 64, 128)
    x = keras.Input((length, width), name="x")
    y = layers.Bidirectional(layers.LSTM(units, return_sequences=True))(x)
    outputs = {"sum": layers.Bidirectional(layers.GRU(units), merge_mode="sum")(y),
               "sequence": y, "time": layers.TimeDistributed(layers.Dense(3))(y)}
    return export(folder, outputs, x, sequences(length, width))


def masked(folder, small):
    """Token ids with zeros as padding: the mask follows through LSTM, GRU and pooling."""
    length, units, vocabulary = (8, 6, 30) if small else (80, 128, 5000)

    def inputs(n):
        rng = np.random.default_rng(n)
        ids = rng.integers(1, vocabulary, (n, length))
        keep = np.arange(length) < rng.integers(1, length + 1, n)[:, None]
        return {"serving_default": {"x": (ids * keep).astype(np.int64)}}

    x = keras.Input((None,), dtype="int64", name="x")
    embedded = layers.Embedding(vocabulary, units, mask_zero=True)(x)
    y = layers.Bidirectional(layers.LSTM(units, return_sequences=True))(embedded)
    outputs = {"last": layers.GRU(units)(y), "mean": layers.GlobalAveragePooling1D()(y)}
    return export(folder, outputs, x, inputs)


class Loops(tf.Module):
    """While, if and case as a person writes them."""

    def __init__(self):
        super().__init__()
        self.scale = tf.Variable(1.5, name="scale")

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x"),
                                  tf.TensorSpec([], tf.int32, name="steps")])
    def loop(self, x, steps):
        """Newton's square roots, collected in a TensorArray, ended early when they stand still."""
        guesses = tf.TensorArray(tf.float32, size=0, dynamic_size=True, element_shape=[None])
        guess, count = tf.ones_like(x), 0
        for i in tf.range(steps):
            better = 0.5 * (guess + x / guess)
            guesses = guesses.write(i, better)
            count += 1
            if tf.reduce_max(tf.abs(better - guess)) < 1e-3:
                break
            guess = better
        if count > 5:
            note = tf.constant("long")
        else:
            note = tf.constant("short")
        branch = tf.switch_case(count % 3, [lambda: guess + 1.0, lambda: guess * self.scale,
                                            lambda: -guess])
        return {"guesses": guesses.stack(), "count": count, "note": note, "branch": branch}

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.float32, name="x")])
    def mapped(self, x):
        """map_fn and scan over rows."""
        mapped = tf.map_fn(lambda row: tf.sort(row, direction="DESCENDING"), x)
        sums = tf.scan(lambda total, row: total + row, x)
        return {"mapped": mapped, "sums": sums, "order": tf.argsort(x, -1)}


def control_flow(folder, small):
    """Loops and branches in two signatures."""
    model = Loops()
    tf.saved_model.save(model, str(folder / "1"),
                        {"serving_default": model.loop, "mapped": model.mapped})

    def inputs(n):
        rng = np.random.default_rng(n)
        x = rng.uniform(0.5, 50, n).astype(np.float32)
        width = 5 if small else 200
        return {"serving_default": {"x": x, "steps": np.int32(3 + 2 * n)},
                "mapped": {"x": rng.normal(size=(n, width)).astype(np.float32)}}
    return inputs


MODELS = {"lstm": lstm, "gru": gru, "bidirectional": bidirectional, "masked": masked,
          "control_flow": control_flow}
