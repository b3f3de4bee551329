"""A model whose weights are nearly all tables, to see where they are held."""

import keras
import numpy as np

layers = keras.layers


def embeddings(folder, small):
    """Two tables, one of them read for whole lists, and a little net behind them."""
    rows = 98304 if small else 2_000_000
    user = keras.Input((), dtype="int64", name="user")
    items = keras.Input((5,), dtype="int32", name="items")
    vectors = [layers.Embedding(rows, 32)(user),
               layers.GlobalAveragePooling1D()(layers.Embedding(rows, 32)(items))]
    score = layers.Dense(1)(layers.Dense(16, activation="relu")(layers.Concatenate()(vectors)))
    model = keras.Model({"user": user, "items": items}, {"score": score})
    model.export(str(folder / "1"), verbose=False)

    def inputs(n):
        rng = np.random.default_rng(n)
        return {"serving_default": {"user": rng.integers(0, rows, n),
                                    "items": rng.integers(0, rows, (n, 5)).astype(np.int32)}}

    return inputs


MODELS = {"embeddings": embeddings}
