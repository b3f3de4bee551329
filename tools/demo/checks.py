"""`checks`: assertions, loops that may not end, a variable read around its change, a mutable table."""

import tensorflow as tf

README = """# checks

Assertions that requests may fail (`positive`, `nested`, `branch`), a loop that ends only for whole numbers
(`count_down`), a variable read before and after it changes (`change`), and a mutable table that was filled
before it was saved (`lookup`); a TensorFlow 2 export, for tests.
"""


class Checks(tf.Module):
    """A signature for each thing that a server must not leave out."""

    def __init__(self):
        super().__init__()
        self.total = tf.Variable(10.0)
        self.table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
        self.table.insert(["one", "two", "three"], [1, 2, 3])
        self.scale = tf.function(self.scaled, input_signature=[spec()])

    def scaled(self, x):
        """Has an assertion that none of its results depends on."""
        tf.debugging.assert_less(x, 100.0, message="x is large")
        return x * 3

    def positive(self, x):
        """An assertion beside the result."""
        tf.debugging.assert_positive(x, message="x must be positive")
        return {"y": x * 2}

    def nested(self, x):
        """An assertion in a function that is called."""
        return {"y": self.scale(x) + 1}

    def branch(self, x):
        """An assertion in a branch."""
        def check():
            tf.debugging.Assert(tf.reduce_all(x > -5), ["too small", x])
            return x

        return {"y": tf.cond(tf.reduce_sum(x) < 0, check, lambda: -x)}

    def count_down(self, x):
        """A loop that never ends if zero is never met."""
        n, _ = tf.while_loop(lambda n, y: tf.not_equal(y, 0.0), lambda n, y: (n + 1, y - 1.0),
                             [0, tf.reduce_sum(x)])
        return {"n": n}

    def change(self, x):
        """Reads, changes, reads."""
        before = self.total.read_value()
        self.total.assign_add(tf.reduce_sum(x))
        after = self.total.read_value()
        self.total.assign(10.0)
        return {"before": before, "after": after}

    def lookup(self, words):
        """A mutable table."""
        return {"numbers": self.table.lookup(words), "size": self.table.size()}


def spec():
    """The input of most signatures."""
    return tf.TensorSpec([None], tf.float32, name="x")


def make(folder):
    """Exports version 1."""
    model = Checks()
    names = ["positive", "nested", "branch", "count_down", "change"]
    signatures = {name: tf.function(getattr(model, name), input_signature=[spec()])
                  for name in names}
    words = tf.TensorSpec([None], tf.string, name="words")
    signatures["lookup"] = tf.function(model.lookup, input_signature=[words])
    tf.saved_model.save(model, str(folder / "1"), signatures)
    return README
