"""Makes the models of testdata/hostile, whose graphs take any amount of memory from small inputs.

    tools/make_hostile.py

`giants` has a signature for each way: `n` says how much. `giant_const` has one string constant that
stands for 10,000,000 strings of 1,000 bytes. tests/it/hostile/models.rs serves both under a limit.
"""

import shutil

import tfenv

if __name__ == "__main__":
    tfenv.enter()

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

ROOT = tfenv.ROOT / "testdata" / "hostile"
TEXT = "x" * 1000


def text():
    """A vector of one string of 1,000 bytes."""
    return tf.constant([TEXT])


def fill(n):
    return tf.fill([n], TEXT)


def tile(n):
    return tf.tile(text(), [n])


def broadcast(n):
    return tf.broadcast_to(text(), [n])


def gather(n):
    return tf.gather(text(), tf.zeros([n], tf.int32))


def join(n):
    return tf.strings.reduce_join(tf.fill([n], TEXT))


def pad(n):
    return tf.pad(tf.ones([1]), [[0, n]])


def segment_sum(n):
    return tf.math.unsorted_segment_sum(tf.ones([1]), [0], n)


def one_hot(n):
    return tf.one_hot([0, 1], n)


def eye(n):
    return tf.eye(n)


def outer(n):
    row = tf.fill([n], 1.0)
    return tf.tensordot(row, row, 0)


def resize(n):
    return tf.image.resize(tf.ones([1, 2, 2, 1]), tf.stack([n, n]))


def sequence(n):
    return tf.range(n)


def normal(n):
    return tf.random.stateless_normal([n], [1, 2])


def accumulate(n):
    """A list that a loop makes longer."""
    items = tf.TensorArray(tf.float32, 0, dynamic_size=True, element_shape=[1024])
    for i in tf.range(n):
        items = items.write(i, tf.fill([1024], 1.0))
    return items.stack()


def double(n):
    """A string that doubles in each step of a loop."""
    grown = tf.constant(TEXT)
    for _ in tf.range(n):
        grown = grown + grown
    return tf.strings.length(grown)


def split(n):
    return tf.strings.bytes_split(tf.reshape(join(n), [1])).values


def format_all(n):
    return tf.strings.as_string(tf.range(n), width=1000)


GIANTS = [fill, tile, broadcast, gather, join, pad, segment_sum, one_hot, eye, outer, resize,
          sequence, normal, accumulate, double, split, format_all]


def save(name, signatures):
    """Saves functions of one number."""
    module = tf.Module()
    spec = tf.TensorSpec([], tf.int32, name="n")
    functions = {}
    for function in signatures:
        graph = tf.function(lambda n, function=function: {"out": function(n)},
                            input_signature=[spec])
        functions[function.__name__] = graph
    folder = ROOT / name / "1"
    shutil.rmtree(folder, ignore_errors=True)
    tf.saved_model.save(module, str(folder), signatures=functions)
    (folder / "fingerprint.pb").unlink()
    return folder / "saved_model.pb"


def constant(n):
    """Reads a constant that `grow` makes larger."""
    return tf.gather(tf.constant([TEXT, TEXT]), n)


def grow(path):
    """Lets the one value of a string constant stand for ten million."""
    model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    for function in model.meta_graphs[0].graph_def.library.function:
        for node in function.node_def:
            tensor = node.attr["value"].tensor
            if node.op == "Const" and tensor.string_val and tensor.tensor_shape.dim:
                del tensor.string_val[1:]
                tensor.tensor_shape.dim[0].size = 10_000_000
    path.write_bytes(model.SerializeToString(deterministic=True))


if __name__ == "__main__":
    save("giants", GIANTS)
    grow(save("giant_const", [constant]))
