"""Encoders like BERT, from Keras layers and from plain ops."""

import keras
import numpy as np
import tensorflow as tf

from zoo.weights import randomize

layers = keras.layers

# name → (layers, width, heads, vocabulary), full and small
SIZES = {
    "bert_base": ((12, 768, 12, 30522), (2, 32, 4, 100)),
    "minilm": ((6, 384, 12, 30522), (2, 24, 6, 100)),
}
LENGTH = 128


def token_inputs(vocabulary, small):
    """Tokens of sentences of different length, and which of them are real."""
    def inputs(n):
        rng = np.random.default_rng(n)
        length = 12 if small else 64
        ids = rng.integers(1, vocabulary, (n, length)).astype(np.int32)
        lengths = rng.integers(length // 2, length + 1, n)
        mask = (np.arange(length) < lengths[:, None]).astype(np.int32)
        return {"serving_default": {"ids": ids * mask, "mask": mask}}
    return inputs


@keras.saving.register_keras_serializable("zoo")
class Positions(layers.Layer):
    """Adds a learned vector for each position."""

    def build(self, shape):
        """One vector a position."""
        self.table = self.add_weight(shape=(LENGTH, shape[-1]), initializer="uniform", name="table")

    def call(self, x):
        """x plus the first positions."""
        return x + self.table[:keras.ops.shape(x)[1]]


def keras_encoder(name):
    """The `make` function of an encoder from Keras layers."""
    def make(folder, small):
        depth, width, heads, vocabulary = SIZES[name][small]
        ids = keras.Input((None,), dtype="int32", name="ids")
        mask = keras.Input((None,), dtype="int32", name="mask")
        x = layers.LayerNormalization(epsilon=1e-12)(
            Positions()(layers.Embedding(vocabulary, width)(ids)))
        attend = layers.Reshape((1, -1))(mask)
        for _ in range(depth):
            y = layers.MultiHeadAttention(heads, width // heads)(x, x, attention_mask=attend)
            x = layers.LayerNormalization(epsilon=1e-12)(layers.Add()([x, y]))
            y = layers.Dense(width)(layers.Dense(4 * width, activation="gelu")(x))
            x = layers.LayerNormalization(epsilon=1e-12)(layers.Add()([x, y]))
        pooled = layers.Dense(width, activation="tanh")(x[:, 0])
        model = keras.Model({"ids": ids, "mask": mask}, {"sequence": x, "pooled": pooled})
        inputs = token_inputs(vocabulary, small)
        randomize(model, inputs(2)["serving_default"])
        model.export(str(folder / "1"), verbose=False)
        return inputs
    return make


class Encoder(tf.Module):
    """The same from plain ops: matmuls, transposes, a softmax, and a hand-written normalization."""

    def __init__(self, depth, width, heads, vocabulary):
        super().__init__()
        self.heads, self.width = heads, width
        rng = np.random.default_rng(4)

        def variable(*shape, scale=None):
            scale = scale or 1 / np.sqrt(shape[0])
            return tf.Variable(rng.normal(0, scale, shape).astype(np.float32))

        def block(*names_and_shapes):
            return {name: variable(*shape) for name, shape in names_and_shapes}

        self.words = variable(vocabulary, width, scale=1.0)
        self.positions = variable(LENGTH, width, scale=0.3)
        self.blocks = [block(
            ("q", (width, width)), ("k", (width, width)), ("v", (width, width)),
            ("o", (width, width)), ("up", (width, 4 * width)), ("down", (4 * width, width)),
            ("up_bias", (4 * width,)), ("down_bias", (width,)), ("q_bias", (width,)),
            ("scale1", (width,)), ("shift1", (width,)), ("scale2", (width,)), ("shift2", (width,)),
        ) for _ in range(depth)]
        self.pooler = variable(width, width)

    def split(self, x):
        """[n, t, width] → [n, heads, t, width / heads]."""
        shape = tf.shape(x)
        x = tf.reshape(x, [shape[0], shape[1], self.heads, self.width // self.heads])
        return tf.transpose(x, [0, 2, 1, 3])

    @staticmethod
    def norm(x, scale, shift):
        """Layer normalization."""
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        return (x - mean) * tf.math.rsqrt(variance + 1e-6) * (1.0 + 0.1 * scale) + shift

    def block(self, x, bias, w):
        """Attention and a feed-forward net, each with a residual connection."""
        q = self.split(x @ w["q"] + w["q_bias"])
        k, v = self.split(x @ w["k"]), self.split(x @ w["v"])
        scores = tf.matmul(q, k, transpose_b=True) / np.float32(np.sqrt(self.width // self.heads))
        mixed = tf.transpose(tf.matmul(tf.nn.softmax(scores + bias), v), [0, 2, 1, 3])
        mixed = tf.reshape(mixed, tf.shape(x))
        x = self.norm(x + tf.einsum("btd,de->bte", mixed, w["o"]), w["scale1"], w["shift1"])
        y = tf.nn.gelu(x @ w["up"] + w["up_bias"], approximate=True)
        return self.norm(x + y @ w["down"] + w["down_bias"], w["scale2"], w["shift2"])

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32, name="ids"),
                                  tf.TensorSpec([None, None], tf.int32, name="mask")])
    def encode(self, ids, mask):
        """The sequence and a vector for the whole."""
        bias = (1.0 - tf.cast(mask[:, None, None, :], tf.float32)) * -1e9
        x = tf.gather(self.words, ids) + self.positions[:tf.shape(ids)[1]]
        for weights in self.blocks:
            x = self.block(x, bias, weights)
        weight = tf.cast(mask, tf.float32)[:, :, None]
        mean = tf.reduce_sum(x * weight, 1) / tf.reduce_sum(weight, 1)
        return {"sequence": x, "pooled": tf.tanh(x[:, 0] @ self.pooler),
                "embedding": tf.math.l2_normalize(mean, -1)}


def plain_encoder(name):
    """The `make` function of an encoder from plain ops."""
    def make(folder, small):
        sizes = SIZES[name][small]
        model = Encoder(*sizes)
        tf.saved_model.save(model, str(folder / "1"), {"serving_default": model.encode})
        return token_inputs(sizes[-1], small)
    return make


MODELS = {name: keras_encoder(name) for name in SIZES} | {
    f"{name}_plain": plain_encoder(name) for name in SIZES}
