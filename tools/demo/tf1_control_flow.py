"""`tf1_control_flow`: loops and conditionals as TensorFlow 1 wrote them, a signature each."""

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1

README = """# tf1_control_flow

Loops and conditionals of TensorFlow 1 (Enter, Merge, Switch, NextIteration, Exit, LoopCond), for tests.
Every signature takes `x` (float, [n, 3]) and gives what its name says.
"""


def total(x):
    """A plain loop with two results and what does not change in it."""
    step = tf.reduce_sum(x)
    i, s, _ = v1.while_loop(lambda i, s, _: i < 5, lambda i, s, m: (i + 1, s + step * m, m + 1.0),
                            [0, 0.0, 1.0])
    return {"count": i, "sum": s}


def never(x):
    """A loop that never goes around."""
    return {"same": v1.while_loop(lambda y: tf.reduce_sum(y) > 1e9, lambda y: y + 1, [x])}


def growing(x):
    """A loop whose value changes its shape."""
    _, y = v1.while_loop(
        lambda i, y: i < 3, lambda i, y: (i + 1, tf.concat([y, y[:1] * 2], 0)), [0, x],
        shape_invariants=[tf.TensorShape([]), tf.TensorShape([None, 3])])
    return {"rows": y}


def nested(x):
    """A loop in a loop, with a conditional in the inner one."""
    def outer(i, y):
        def inner(j, z):
            z = v1.cond(tf.equal(j % 2, 0), lambda: z + 1.0, lambda: z * tf.cast(i + 1, tf.float32))
            return j + 1, z

        return i + 1, v1.while_loop(lambda j, _: j <= i, inner, [0, y])[1]

    return {"y": v1.while_loop(lambda i, _: i < 4, outer, [0, x])[1]}


def branch(x):
    """A conditional with several results, one of them a constant."""
    a, b, c = v1.cond(tf.reduce_sum(x) > 0, lambda: (x * 2, tf.constant(1), tf.reduce_sum(x)),
                      lambda: (x - 1, tf.constant(2), tf.constant(0.5)))
    return {"a": a, "b": b, "c": c}


def branches(x):
    """Conditionals in conditionals, of different shapes, and one that only one branch could do."""
    s = tf.reduce_sum(x)
    y = v1.cond(s > 0, lambda: v1.cond(s > 10, lambda: tf.reshape(x, [-1]), lambda: x[0]),
                lambda: tf.reduce_sum(x, 1))
    fits = v1.cond(tf.equal(tf.shape(x)[0], 3), lambda: tf.reshape(x, [9]),
                   lambda: tf.zeros([1]))
    return {"y": y, "fits": fits}


def cases(x):
    """`tf.case`: the first that holds, or the default."""
    s = tf.reduce_sum(x)
    y = v1.case([(s < 0, lambda: tf.constant("negative")), (s < 1, lambda: tf.constant("small")),
                 (s < 10, lambda: tf.constant("middle"))], default=lambda: tf.constant("large"))
    return {"kind": y}


def loop_in_branch(x):
    """A loop that runs only if it is needed."""
    def halve():
        return v1.while_loop(lambda y: tf.reduce_max(y) > 1, lambda y: y / 2, [x])

    return {"y": v1.cond(tf.reduce_max(x) > 1, halve, lambda: x - 10)}


def mapped(x):
    """`map_fn`, `foldl` and `scan`, with TensorArrays."""
    return {"map": tf.map_fn(lambda row: tf.reduce_sum(row) * row, x),
            "fold": tf.foldl(lambda a, row: a * 0.5 + row, x, initializer=tf.zeros([3])),
            "scan": tf.scan(lambda a, row: tf.maximum(a, row) - 0.25, x,
                            initializer=tf.zeros([3]))}


def recurrent(x):
    """A recurrent cell with reference variables, lengths, and outputs that end early."""
    kernel = v1.get_variable("kernel", initializer=np.linspace(-1, 1, 20).reshape(5, 4).astype("f"),
                             use_resource=False)
    bias = v1.get_variable("bias", initializer=np.linspace(0, 1, 4).astype("f"), use_resource=True)
    sequence = tf.stack([x[:, :1], x[:, 1:2], x[:, 2:], x[:, :1] * x[:, 2:]], 1)
    n = tf.shape(x)[0]
    lengths = 1 + tf.range(n) % 4
    steps = tf.TensorArray(tf.float32, 4).unstack(tf.transpose(sequence, [1, 0, 2]))
    out = tf.TensorArray(tf.float32, 4)

    def step(t, state, out):
        def go_on():
            new = tf.tanh(tf.concat([steps.read(t), state], 1) @ kernel + bias)
            return v1.where(t < lengths, new, state)

        state = v1.cond(t < tf.reduce_max(lengths), go_on, lambda: state)
        with tf.control_dependencies([v1.assert_less(t, 4)]):
            return t + 1, state, out.write(t, state * tf.cast(t + 1, tf.float32))

    _, last, out = v1.while_loop(lambda t, *_: t < 4, step, [0, tf.zeros([n, 4]), out])
    return {"last": last, "outputs": tf.transpose(out.stack(), [1, 0, 2])}


def variable(x):
    """Reference variables used only in a branch, and training behind a placeholder."""
    scale = v1.get_variable("scale", initializer=np.float32(3), use_resource=False)
    training = v1.placeholder_with_default(False, [])
    y = v1.cond(training, lambda: tf.nn.dropout(x, 0.5, seed=1), lambda: x * scale)
    return {"y": v1.cond(tf.reduce_sum(y) > 0, lambda: y + tf.identity(scale._ref()), lambda: y - scale)}


def raw(x):
    """A switch and a merge without more, and the merge's index."""
    off, on = tf.raw_ops.Switch(data=x, pred=tf.reduce_sum(x) > 0)
    y, index = tf.raw_ops.Merge(inputs=[tf.negative(off), on * 2])
    return {"y": y, "index": index}


SIGNATURES = [total, never, growing, nested, branch, branches, cases, loop_in_branch, mapped,
              recurrent, variable, raw]


def make(folder):
    """Exports version 1."""
    with tf.Graph().as_default(), v1.Session() as session:
        v1.disable_control_flow_v2()
        signatures = {}
        for build in SIGNATURES:
            with v1.variable_scope(build.__name__):
                x = v1.placeholder(tf.float32, [None, 3], name=f"{build.__name__}_x")
                outputs = build(x)
            signatures[build.__name__] = v1.saved_model.build_signature_def(
                {"x": v1.saved_model.build_tensor_info(x)},
                {k: v1.saved_model.build_tensor_info(tf.convert_to_tensor(t))
                 for k, t in outputs.items()}, "tensorflow/serving/predict")
        session.run(v1.global_variables_initializer())
        ops = {node.op for node in session.graph.as_graph_def().node}
        assert {"Enter", "Exit", "LoopCond", "NextIteration", "Switch", "RefSwitch"} <= ops, ops
        builder = v1.saved_model.Builder(str(folder / "1"))
        builder.add_meta_graph_and_variables(
            session, [tf.saved_model.SERVING], signature_def_map=signatures,
            strip_default_attrs=True)
        builder.save()
    return README
