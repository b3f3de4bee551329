"""`half_plus_two`, exported as TensorFlow 1 did: reference variables, a saver, inner feeds.

It behaves like the test model of TensorFlow Serving that many clients and tutorials call.
"""

import tensorflow as tf

v1 = tf.compat.v1

README = """# half_plus_two

y = x / 2 + 2, y2 = x / 2 + 3, y3 = x2 / 2 + 3; a TensorFlow 1 export (VariableV2, `save/restore_all`).
Signatures: `serving_default` (x → y), `regress_x_to_y`, `regress_x_to_y2`, `classify_x_to_y` (tf.Example
with the float features `x` and, if wanted, `x2`), `regress_x2_to_y3`, `classify_x2_to_y3` (a plain float).

    curl -d '{"instances": [1.0, 2.0, 5.0]}' localhost:8501/v1/models/half_plus_two:predict
"""


def make(folder):
    """Exports version 123."""
    with tf.Graph().as_default(), v1.Session() as session:
        a = v1.Variable(0.5, name="a", use_resource=False)
        b = v1.Variable(2.0, name="b", use_resource=False)
        c = v1.Variable(3.0, name="c", use_resource=False)
        serialized = v1.placeholder(tf.string, name="tf_example")
        x, x2 = parse(serialized)
        y = tf.add(tf.multiply(a, x), b, name="y")
        y2 = tf.add(tf.multiply(a, x), c, name="y2")
        y3 = tf.add(tf.multiply(a, x2), c, name="y3")
        session.run(v1.global_variables_initializer())
        builder = v1.saved_model.Builder(str(folder / "00000123"))
        builder.add_meta_graph_and_variables(
            session, [tf.saved_model.SERVING],
            signature_def_map=signatures(serialized, x, x2, y, y2, y3), strip_default_attrs=True)
        builder.save()
    return README


def parse(serialized):
    """The features `x` and `x2`, each behind an Identity that a request may feed directly."""
    parsed = tf.raw_ops.ParseExample(
        serialized=serialized, names=tf.constant([], tf.string), sparse_keys=[],
        dense_keys=["x", "x2"], dense_defaults=[tf.constant([], tf.float32), tf.constant([0.0])],
        sparse_types=[], dense_shapes=[[1], [1]], name="ParseExample/ParseExample")
    x, x2 = parsed.dense_values
    return tf.identity(x, name="x"), tf.identity(x2, name="x2")


def signatures(serialized, x, x2, y, y2, y3):
    """The signature map."""

    def signature(inputs, outputs, method):
        infos = [{k: v1.saved_model.build_tensor_info(t) for k, t in m.items()}
                 for m in (inputs, outputs)]
        return v1.saved_model.build_signature_def(*infos, f"tensorflow/serving/{method}")

    examples = {"inputs": serialized}
    return {
        "serving_default": signature({"x": x}, {"y": y}, "predict"),
        "regress_x_to_y": signature(examples, {"outputs": y}, "regress"),
        "regress_x_to_y2": signature(examples, {"outputs": y2}, "regress"),
        "regress_x2_to_y3": signature({"inputs": x2}, {"outputs": y3}, "regress"),
        "classify_x_to_y": signature(examples, {"scores": y}, "classify"),
        "classify_x2_to_y3": signature({"inputs": x2}, {"scores": y3}, "classify"),
    }
