"""Exports as TensorFlow 1 made them: frozen constants, variables, partitioned variables, loops."""

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1


def save(folder, session, inputs, outputs, main_op=None):
    """Writes the session's graph with one predict signature."""
    def infos(tensors):
        return {k: v1.saved_model.build_tensor_info(t) for k, t in tensors.items()}

    signature = v1.saved_model.build_signature_def(
        infos(inputs), infos(outputs), "tensorflow/serving/predict")
    builder = v1.saved_model.Builder(str(folder / "1"))
    builder.add_meta_graph_and_variables(
        session, ["serve"], {"serving_default": signature}, main_op=main_op,
        strip_default_attrs=True)
    builder.save()


def net(x, width, variable):
    """Convolutions with fused batch normalization, pooling and a dense layer."""
    h = tf.nn.conv2d(x, variable("conv1", [3, 3, 3, width]), 2, "SAME")
    h, _, _ = v1.nn.fused_batch_norm(
        h, variable("scale", [width]), variable("offset", [width]),
        mean=variable("mean", [width]), variance=tf.square(variable("deviation", [width])) + 0.5,
        epsilon=1e-3, is_training=False)
    h = v1.nn.local_response_normalization(tf.nn.relu6(h), depth_radius=2)
    h = tf.nn.max_pool2d(h, 3, 2, "VALID")
    h = tf.nn.conv2d(h, variable("conv2", [1, 1, width, width]), 1, "VALID")
    h = tf.nn.elu(v1.nn.bias_add(h, variable("bias", [width])))
    h = tf.reshape(h, [-1, int(np.prod(h.shape[1:]))])
    return v1.nn.xw_plus_b(h, variable("dense", [h.shape[1], 10]), variable("out", [10]))


def values(rng, shape):
    """Random initial values."""
    fan_in = max(1, int(np.prod(shape[:-1])))
    return rng.normal(0, 1 / np.sqrt(fan_in), [int(d) for d in shape]).astype(np.float32)


def pictures(size):
    """Random images for the input x."""
    def inputs(n):
        rng = np.random.default_rng(n)
        return {"serving_default": {"x": rng.uniform(-1, 1, (n, size, size, 3)).astype(np.float32)}}
    return inputs


def frozen(folder, small):
    """All weights are constants."""
    size, width, rng = (16, 4, np.random.default_rng(6)) if small else (
        128, 32, np.random.default_rng(6))
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, size, size, 3], "x")
        logits = net(x, width, lambda name, shape: tf.constant(values(rng, shape), name=name))
        save(folder, session, {"x": x}, {"logits": logits, "class": tf.argmax(logits, 1)})
    return pictures(size)


def variables(folder, small):
    """Reference variables, one of them partitioned, and a table initialized by the main op."""
    size, width, rng = (16, 4, np.random.default_rng(7)) if small else (
        128, 32, np.random.default_rng(7))
    with tf.Graph().as_default(), v1.Session() as session:
        v1.disable_resource_variables()
        x = v1.placeholder(tf.float32, [None, size, size, 3], "x")

        def variable(name, shape):
            parts = v1.fixed_size_partitioner(3) if name == "dense" else None
            data = values(rng, shape)
            found = v1.get_variable(
                name, data.shape, partitioner=parts,
                initializer=lambda shape, dtype, partition_info: slice_of(
                    data, shape, partition_info))
            return tf.convert_to_tensor(found)

        logits = net(x, width, variable)
        names = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(
            tf.range(10, dtype=tf.int64), tf.constant([f"class {i}" for i in range(10)])), "none")
        label = names.lookup(tf.argmax(logits, 1))
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
        save(folder, session, {"x": x}, {"logits": logits, "label": label},
             main_op=v1.tables_initializer())
    return pictures(size)


def slice_of(data, shape, partition):
    """The part of an initial value that belongs to one slice of a variable."""
    if partition is None:
        return tf.constant(data)
    start = partition.var_offset
    return tf.constant(data[tuple(slice(s, s + d) for s, d in zip(start, map(int, shape)))])


def loops(folder, small):
    """A recurrent net with TensorArrays and a conditional, in TensorFlow 1's control flow."""
    width, units, rng = (5, 6, np.random.default_rng(8)) if small else (
        64, 128, np.random.default_rng(8))
    with tf.Graph().as_default(), v1.Session() as session:
        v1.disable_control_flow_v2()
        x = v1.placeholder(tf.float32, [None, None, width], "x")
        lengths = v1.placeholder(tf.int32, [None], "lengths")
        kernel = v1.Variable(values(rng, [width + units, units]), use_resource=True)
        time = tf.shape(x)[1]
        read = tf.TensorArray(tf.float32, time).unstack(tf.transpose(x, [1, 0, 2]))
        written = tf.TensorArray(tf.float32, time)

        def step(t, state, out):
            new = tf.tanh(tf.concat([read.read(t), state], 1) @ kernel)
            state = v1.where(t < lengths, new, state)
            return t + 1, state, out.write(t, state)

        start = tf.zeros([tf.shape(x)[0], units])
        _, last, out = v1.while_loop(lambda t, *_: t < time, step, [0, start, written])
        big = v1.cond(tf.reduce_mean(last) > 0, lambda: last * 2.0, lambda: last - 1.0)
        session.run(v1.global_variables_initializer())
        save(folder, session, {"x": x, "lengths": lengths},
             {"sequence": tf.transpose(out.stack(), [1, 0, 2]), "last": last, "branch": big})

    def inputs(n):
        length = 6 if small else 50
        rng = np.random.default_rng(n)
        return {"serving_default": {
            "x": rng.normal(size=(n, length, width)).astype(np.float32),
            "lengths": rng.integers(1, length + 1, n).astype(np.int32)}}
    return inputs


MODELS = {"tf1_frozen": frozen, "tf1_variables": variables, "tf1_loops": loops}
