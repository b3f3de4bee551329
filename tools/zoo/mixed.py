"""Models that compute in 16 bits and keep their weights in 32, as Keras' mixed precision makes them."""

from functools import partial

import keras
import numpy as np

from zoo.weights import randomize

layers = keras.layers


def mixed(policy, folder, small):
    """Convolutions, attention and a recurrent layer; the last product is in 32 bits, as Keras advises."""
    size, filters, length, width, units = (16, 8, 6, 8, 8) if small else (96, 64, 64, 128, 128)
    keras.config.set_dtype_policy(policy)
    image = keras.Input((size, size, 3), name="image")
    x = layers.Rescaling(1 / 255)(image)
    x = layers.Conv2D(filters, 3, strides=2, use_bias=False)(x)
    x = layers.ReLU()(layers.BatchNormalization()(x))
    y = layers.BatchNormalization()(layers.SeparableConv2D(filters, 3, padding="same")(x))
    x = layers.Activation("relu")(layers.Add()([x, y]))
    pooled = layers.GlobalAveragePooling2D()(layers.MaxPooling2D(2)(x))
    sequence = keras.Input((length, width), name="sequence")
    z = layers.LayerNormalization()(layers.Dense(width, activation="gelu")(sequence))
    z = layers.Add()([z, layers.MultiHeadAttention(2, width // 2)(z, z)])
    last = layers.LSTM(units)(z)
    features = layers.Dense(units, activation="relu", name="features")(
        layers.Concatenate()([pooled, last]))
    scores = layers.Dense(10, activation="softmax", dtype="float32")(features)
    model = keras.Model({"image": image, "sequence": sequence},
                        {"features": features, "scores": scores, "attended": z})

    def inputs(n):
        rng = np.random.default_rng(n)
        return {"serving_default": {
            "image": rng.uniform(0, 255, (n, size, size, 3)).astype(np.float32),
            "sequence": rng.normal(size=(n, length, width)).astype(np.float32)}}

    randomize(model, inputs(16)["serving_default"])
    model.export(str(folder / "1"), verbose=False)
    return inputs


MODELS = {policy: partial(mixed, policy) for policy in ("mixed_float16", "mixed_bfloat16")}
