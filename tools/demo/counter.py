"""`counter`: a variable that requests change, as TensorFlow 1 exported it."""

import tensorflow as tf

v1 = tf.compat.v1

README = """# counter

A counter that requests change; a TensorFlow 1 export (VariableV2, Assign, AssignAdd), for tests.
Signatures: `get_counter`, `incr_counter`, `reset_counter` (no input), `incr_counter_by` (delta); → output.
gRPC only: TensorFlow Serving's REST face cannot call a signature without inputs.
"""


def make(folder):
    """Exports version 1."""
    with tf.Graph().as_default(), v1.Session() as session:
        counter = v1.Variable(0.0, name="counter", use_resource=False)
        delta = v1.placeholder(tf.float32, [], name="delta")
        outputs = {
            "get_counter": tf.identity(counter, name="value"),
            "incr_counter": v1.assign_add(counter, 1.0, name="incr_counter"),
            "incr_counter_by": v1.assign_add(counter, delta, name="incr_counter_by"),
            "reset_counter": v1.assign(counter, 0.0, name="reset_counter"),
        }
        signatures = {}
        for name, output in outputs.items():
            inputs = {"delta": delta} if name == "incr_counter_by" else {}
            signatures[name] = v1.saved_model.build_signature_def(
                {k: v1.saved_model.build_tensor_info(t) for k, t in inputs.items()},
                {"output": v1.saved_model.build_tensor_info(output)},
                "tensorflow/serving/predict")
        session.run(v1.global_variables_initializer())
        builder = v1.saved_model.Builder(str(folder / "1"))
        builder.add_meta_graph_and_variables(
            session, [tf.saved_model.SERVING], signature_def_map=signatures,
            strip_default_attrs=True)
        builder.save()
    return README
