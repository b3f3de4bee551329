"""A decoder that writes on what it was given, token by token: its caches grow with every iteration."""

import numpy as np
import tensorflow as tf

# layers, width, heads, vocabulary and length of what is given, full and small
SIZES = ((6, 384, 12, 30522, 24), (2, 16, 2, 50, 6))
POSITIONS = 256


class Decoder(tf.Module):
    """Takes the likeliest token each time, until there are twice as many as were given."""

    def __init__(self, depth, width, heads, vocabulary):
        super().__init__()
        self.depth, self.width, self.heads = depth, width, heads
        rng = np.random.default_rng(8)

        def variable(*shape, scale=None):
            scale = scale or 1 / np.sqrt(shape[0])
            return tf.Variable(rng.normal(0, scale, shape).astype(np.float32))

        self.words = variable(vocabulary, width, scale=1.0)
        self.positions = variable(POSITIONS, width, scale=0.5)
        shapes = {"q": (width, width), "k": (width, width), "v": (width, width),
                  "o": (width, width), "up": (width, 4 * width), "down": (4 * width, width)}
        self.blocks = [{name: variable(*shape) for name, shape in shapes.items()}
                       for _ in range(depth)]

    def split(self, x):
        """[n, width] → [n, heads, 1, width / heads]."""
        return tf.reshape(x, [-1, self.heads, 1, self.width // self.heads])

    @staticmethod
    def norm(x):
        """Layer normalization."""
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        return (x - mean) * tf.math.rsqrt(variance + 1e-6)

    def step(self, token, position, caches):
        """The logits after one more token, and what is remembered of all of them."""
        x = tf.gather(self.words, token) + self.positions[position]
        grown = []
        for number, w in enumerate(self.blocks):
            y = self.norm(x)
            keys = tf.concat([caches[2 * number], self.split(y @ w["k"])], 2)
            values = tf.concat([caches[2 * number + 1], self.split(y @ w["v"])], 2)
            grown += [keys, values]
            scale = np.float32(np.sqrt(self.width // self.heads))
            scores = tf.matmul(self.split(y @ w["q"]), keys, transpose_b=True) / scale
            mixed = tf.reshape(tf.matmul(tf.nn.softmax(scores), values), [-1, self.width])
            x = x + mixed @ w["o"]
            x = x + tf.nn.gelu(self.norm(x) @ w["up"]) @ w["down"]
        return tf.matmul(self.norm(x), self.words, transpose_b=True), grown

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32, name="prompt")])
    def write(self, prompt):
        """What was given and as much again, and the logits of the last token."""
        n_rows, n_given = tf.shape(prompt)[0], tf.shape(prompt)[1]
        width = self.width // self.heads
        caches = [tf.zeros([n_rows, self.heads, 0, width]) for _ in range(2 * self.depth)]

        def body(position, tokens, logits, *caches):
            logits, caches = self.step(tokens[:, position], position, caches)
            likeliest = tf.argmax(logits, -1, output_type=tf.int32)[:, None]
            is_given = position + 1 < n_given
            tokens = tf.concat([tokens, likeliest[:, :tf.where(is_given, 0, 1)]], 1)
            return (position + 1, tokens, logits, *caches)

        start = (0, prompt, tf.zeros([n_rows, tf.shape(self.words)[0]]), *caches)
        cache = tf.TensorShape([None, self.heads, None, width])
        shapes = (tf.TensorShape([]), tf.TensorShape([None, None]),
                  tf.TensorShape([None, None]), *[cache] * len(caches))
        position, tokens, logits, *_ = tf.while_loop(
            lambda position, *_: position + 1 < 2 * n_given, body, start, shape_invariants=shapes)
        return {"tokens": tokens, "logits": logits}


def make(folder, small):
    """Exports the decoder."""
    *sizes, length = SIZES[small]
    model = Decoder(*sizes)
    tf.saved_model.save(model, str(folder / "1"), {"serving_default": model.write})

    def inputs(n):
        rng = np.random.default_rng(n)
        return {"serving_default": {
            "prompt": rng.integers(0, sizes[-1], (n, length)).astype(np.int32)}}
    return inputs


MODELS = {"decoder": make}
