"""`counter_tf2`: a resource variable that requests change."""

import tensorflow as tf

README = """# counter_tf2

A counter that requests change; a TensorFlow 2 export (VarHandleOp, AssignAddVariableOp), for tests.
Signatures: `get_counter`, `incr_counter`, `reset_counter` (no input), `incr_counter_by` (delta); → output.
"""


class Counter(tf.Module):
    """One variable."""

    def __init__(self):
        super().__init__()
        self.counter = tf.Variable(0.0, name="counter")

    @tf.function(input_signature=[])
    def get_counter(self):
        """The value."""
        return {"output": self.counter.read_value()}

    @tf.function(input_signature=[])
    def incr_counter(self):
        """Adds one."""
        return {"output": self.counter.assign_add(1.0)}

    @tf.function(input_signature=[tf.TensorSpec([], tf.float32, name="delta")])
    def incr_counter_by(self, delta):
        """Adds delta."""
        return {"output": self.counter.assign_add(delta)}

    @tf.function(input_signature=[])
    def reset_counter(self):
        """Back to zero."""
        return {"output": self.counter.assign(0.0)}


def make(folder):
    """Exports version 1."""
    model = Counter()
    names = ["get_counter", "incr_counter", "incr_counter_by", "reset_counter"]
    tf.saved_model.save(model, str(folder / "1"), {n: getattr(model, n) for n in names})
    return README
