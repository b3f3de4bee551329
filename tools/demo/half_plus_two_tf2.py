"""`half_plus_two_tf2`: the same arithmetic as a TensorFlow 2 export, in two versions."""

import tensorflow as tf

README = """# half_plus_two_tf2

y = x / 2 + 2 as a TensorFlow 2 export (tf.Module, resource variables, a restore function).
Signatures: `serving_default` (x → y), `regress_x_to_y` and `classify_x_to_y` (tf.Example with a float `x`).
Version 2 has also `serving_default_with_default` (x is 10 if not sent; → y and y2 = x / 2 + 3).

    curl -d '{"instances": [1.0, 2.0, 5.0]}' localhost:8501/v1/models/half_plus_two_tf2:predict
"""

FLOATS = tf.TensorSpec([None], tf.float32, name="x")
EXAMPLES = tf.TensorSpec([None], tf.string, name="inputs")


class HalfPlusTwo(tf.Module):
    """The arithmetic and its variables."""

    def __init__(self):
        super().__init__()
        self.a = tf.Variable(0.5, name="a")
        self.b = tf.Variable(2.0, name="b")
        self.c = tf.Variable(3.0, name="c")

    @tf.function(input_signature=[FLOATS])
    def predict(self, x):
        """x → y."""
        return {"y": self.a * x + self.b}

    @tf.function(input_signature=[FLOATS])
    def predict_with_default(self, x=tf.constant([10.0])):
        """x, or 10 → y and y2."""
        return {"y": self.a * x + self.b, "y2": self.a * x + self.c}

    @tf.function(input_signature=[EXAMPLES])
    def regress(self, inputs):
        """Examples → outputs."""
        return {"outputs": self.a * parse(inputs) + self.b}

    @tf.function(input_signature=[EXAMPLES])
    def classify(self, inputs):
        """Examples → scores."""
        return {"scores": self.a * parse(inputs) + self.b}


def parse(inputs):
    """The feature x of every example, shape [n, 1]."""
    return tf.io.parse_example(inputs, {"x": tf.io.FixedLenFeature([1], tf.float32)})["x"]


def make(folder):
    """Exports versions 1 and 2."""
    model = HalfPlusTwo()
    shared = {"serving_default": model.predict, "regress_x_to_y": model.regress,
              "classify_x_to_y": model.classify}
    tf.saved_model.save(model, str(folder / "1"), shared)
    more = {"serving_default_with_default": model.predict_with_default}
    tf.saved_model.save(model, str(folder / "2"), {**shared, **more})
    return README
