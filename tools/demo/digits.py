"""`digits`: convolutional nets for scikit-learn's 8×8 images of handwritten digits."""

import keras
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

README = """# digits

Reads a handwritten digit: 8×8 grey values from 0 to 16 in, ten probabilities out (`serving_default`).
Version 1: {weights[0]} weights, test accuracy {accuracy[0]:.2f} %; version 2: {weights[1]} weights, {accuracy[1]:.2f} %.
Trained on 80 % of scikit-learn's bundled 1797 digits, tested on the other 20 % (360 images):
`train_test_split(test_size=0.2, stratify=labels, random_state=0)`. No test image was used in training.

    curl -d '{{"instances": [{image}]}}' localhost:8501/v1/models/digits:predict
"""


def small():
    """Two convolutions and a dense layer."""
    layers = keras.layers
    return keras.Sequential([
        keras.Input((8, 8, 1), name="image"),
        layers.Rescaling(1 / 16),
        layers.Conv2D(16, 3, padding="same", activation="relu"),
        layers.MaxPooling2D(),
        layers.Conv2D(32, 3, activation="relu"),
        layers.Flatten(),
        layers.Dropout(0.3),
        layers.Dense(10, activation="softmax", name="probabilities"),
    ])


def large():
    """Convolutions with batch normalization, a depthwise one and a residual connection."""
    layers = keras.layers
    image = keras.Input((8, 8, 1), name="image")
    x = layers.Rescaling(1 / 16)(image)
    x = layers.Conv2D(32, 3, padding="same", use_bias=False)(x)
    x = layers.ReLU()(layers.BatchNormalization()(x))
    y = layers.DepthwiseConv2D(3, padding="same", use_bias=False)(x)
    y = layers.ReLU(6.0)(layers.BatchNormalization()(y))
    y = layers.Conv2D(32, 1)(y)
    x = layers.MaxPooling2D()(layers.Add()([x, y]))
    x = layers.Conv2D(64, 3, padding="same", activation="relu")(x)
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.Dense(32, activation="relu")(layers.Dropout(0.3)(x))
    return keras.Model(image, layers.Dense(10, activation="softmax", name="probabilities")(x))


def data():
    """Training images, test images, and their labels."""
    digits = load_digits()
    images = digits.images.astype(np.float32)[..., None]
    return train_test_split(images, digits.target, test_size=0.2, stratify=digits.target,
                            random_state=0)


def make(folder):
    """Trains and exports both versions."""
    train_x, test_x, train_y, test_y = data()
    accuracy, weights = [], []
    for version, (build, epochs) in enumerate([(small, 60), (large, 60)], start=1):
        keras.utils.set_random_seed(version)
        model = build()
        rate = keras.optimizers.schedules.CosineDecay(3e-3, epochs * len(train_x) // 64)
        model.compile(keras.optimizers.Adam(rate), "sparse_categorical_crossentropy",
                      metrics=["accuracy"])
        model.fit(train_x, train_y, batch_size=64, epochs=epochs, verbose=0)
        accuracy.append(100 * model.evaluate(test_x, test_y, verbose=0)[1])
        weights.append(model.count_params())
        model.export(str(folder / str(version)), verbose=False)
    print(f"digits: test accuracy {accuracy}")
    assert min(accuracy) >= 97, "the README promises 97 %"
    rows = ", ".join("[" + ", ".join(f"[{v:.0f}]" for v in row) + "]" for row in test_x[0, :, :, 0])
    return README.format(weights=weights, accuracy=accuracy, image=f"[{rows}]")
