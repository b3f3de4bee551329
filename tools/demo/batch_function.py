"""`batch_function`: a layer inside TensorFlow's own batching of calls."""

import tensorflow as tf

README = """# batch_function

A dense layer inside `tf.nondifferentiable_batch_function` (BatchFunction), which captures the layer's weights,
beside a signature that does the same without (`plain`); a TensorFlow 2 export, for tests.
"""


class Layer(tf.Module):
    """A product, a sum and a relu."""

    def __init__(self):
        super().__init__()
        self.kernel = tf.Variable(tf.random.stateless_normal([4, 3], [1, 2]))
        self.bias = tf.Variable([0.5, -0.25, 0.125])

    def plain(self, x):
        """Without batching."""
        return {"y": tf.nn.relu(x @ self.kernel + self.bias), "doubled": 2 * x}

    def batched(self, x):
        """The same within a call that is batched."""
        @tf.nondifferentiable_batch_function(1, 16, 0, enable_large_batch_splitting=False)
        def layer(x):
            return tf.nn.relu(x @ self.kernel + self.bias), 2 * x

        y, doubled = layer(x)
        return {"y": y, "doubled": doubled}


def make(folder):
    """Exports version 1."""
    model = Layer()
    x = tf.TensorSpec([None, 4], tf.float32, name="x")
    signatures = {name: tf.function(getattr(model, name), input_signature=[x])
                  for name in ("plain", "batched")}
    tf.saved_model.save(model, str(folder / "1"), signatures)
    return README
