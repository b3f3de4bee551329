"""Makes what the tests of the `savedmodel` crate read: models in `testdata/models/`, checkpoints in
`testdata/checkpoints/`.

    tools/make_fixtures.py                    all of them
    tools/make_fixtures.py dtypes assets      some of them

They are as small as they can be, each with one thing that a reader must know. Variables hold
`0, 1, 2, …` or something as plain, so that a test can name the values without a file of them.
"""

import argparse
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import tfenv

if __name__ == "__main__":
    tfenv.enter()


def counting(tf, dtype, *shape, start=0):
    """A constant that counts up from `start`."""
    import math

    n = math.prod(shape)
    values = list(range(start, start + n))
    if dtype == tf.string:
        values = [b"s" * (v % 5) + str(v).encode() for v in values]
        return tf.reshape(tf.constant(values), shape)
    return tf.cast(tf.reshape(tf.constant(values), shape), dtype)


def export_tf1(folder, build, tags=("serve",), saver=None, as_text=False, **extra):
    """Saves a graph of TF1: `build` adds variables and gives inputs and outputs."""
    import tensorflow.compat.v1 as tf

    with tf.Graph().as_default():
        config = tf.ConfigProto(device_count={"CPU": 2})
        with tf.Session(config=config) as session:
            inputs, outputs = build(tf)
            session.run(tf.global_variables_initializer())
            builder = tf.saved_model.builder.SavedModelBuilder(str(folder))
            signature = tf.saved_model.signature_def_utils.predict_signature_def(inputs, outputs)
            builder.add_meta_graph_and_variables(
                session,
                list(tags),
                signature_def_map={"serving_default": signature},
                saver=saver(tf) if saver else None,
                **extra,
            )
            builder.save(as_text=as_text)


def tf1_variables(folder):
    """Reference variables (`VariableV2`, `Assign`), one of them a scalar counter, one shared by name."""

    def build(tf):
        x = tf.placeholder(tf.float32, [None, 2], "x")
        kernel = tf.get_variable("dense/kernel", initializer=tf.reshape(tf.range(6.0), [2, 3]), use_resource=False)
        step = tf.get_variable("step", initializer=tf.constant(7, tf.int64), use_resource=False)
        y = tf.identity(tf.matmul(x, kernel) + tf.cast(step, tf.float32), "y")
        return {"x": x}, {"y": y}

    export_tf1(folder / "1", build)


def tf1_resource(folder):
    """Resource variables in a graph of TF1: `RestoreV2` reaches `AssignVariableOp` through `Identity`."""

    def build(tf):
        x = tf.placeholder(tf.float32, [None], "x")
        a = tf.get_variable("a", initializer=tf.constant([1.5, 2.5]), use_resource=True)
        b = tf.get_variable("scope/b", initializer=tf.constant(3.0), use_resource=True)
        return {"x": x}, {"y": tf.reduce_sum(a) * x + b}

    export_tf1(folder / "1", build)


def tf1_partitioned(folder):
    """Variables saved in slices: along the first axis, and along the second, where slices interleave."""

    def build(tf):
        x = tf.placeholder(tf.int32, [None], "x")
        rows = tf.get_variable(
            "rows",
            initializer=tf.reshape(tf.range(28.0), [7, 4]),
            partitioner=tf.fixed_size_partitioner(3),
            use_resource=False,
        )
        columns = tf.get_variable(
            "columns",
            initializer=tf.reshape(tf.range(200), [2, 100]),
            partitioner=tf.fixed_size_partitioner(2, axis=1),
            use_resource=True,
        )
        y = tf.nn.embedding_lookup(rows, x, partition_strategy="div")
        return {"x": x}, {"y": y, "columns": tf.convert_to_tensor(columns)}

    export_tf1(folder / "1", build)


def tf1_sharded(folder):
    """A checkpoint of two data files, one for each device that variables are on."""

    def build(tf):
        x = tf.placeholder(tf.float32, [], "x")
        with tf.device("/cpu:0"):
            a = tf.get_variable("a", initializer=tf.constant([1.0, 2.0]), use_resource=False)
        with tf.device("/cpu:1"):
            b = tf.get_variable("b", initializer=tf.constant([10.0, 20.0, 30.0]), use_resource=True)
        return {"x": x}, {"y": x * tf.reduce_sum(a) + tf.reduce_sum(b)}

    export_tf1(folder / "1", build, saver=lambda tf: tf.train.Saver(sharded=True))


def tf1_reshaped(folder):
    """A saver that reshapes what it restores to the shape of the variable."""

    def build(tf):
        a = tf.get_variable("a", initializer=tf.reshape(tf.range(4.0), [2, 2]), use_resource=False)
        x = tf.placeholder(tf.float32, [2, 2], "x")
        return {"x": x}, {"y": x + a}

    export_tf1(folder / "1", build, saver=lambda tf: tf.train.Saver(reshape=True))


def pbtxt(folder):
    """`saved_model.pbtxt` instead of `saved_model.pb`, written by TensorFlow itself."""

    def build(tf):
        x = tf.placeholder(tf.float32, [None], "x")
        a = tf.get_variable("a", initializer=tf.constant(0.5), use_resource=True)
        note = tf.constant([b"\x00\xff'\"\n"], name="note")
        return {"x": x}, {"y": a * x, "note": note}

    export_tf1(folder / "1", build, as_text=True)


def two_meta_graphs(folder):
    """Two meta graphs over one checkpoint: tags `serve`, and `serve` with `gpu`."""
    import tensorflow.compat.v1 as tf

    builder = tf.saved_model.builder.SavedModelBuilder(str(folder / "1"))
    for tags, factor in ((["serve"], 2.0), (["serve", "gpu"], 3.0)):
        with tf.Graph().as_default(), tf.Session() as session:
            x = tf.placeholder(tf.float32, [None], "x")
            a = tf.get_variable("a", initializer=tf.constant(4.0), use_resource=False)
            y = tf.multiply(a * x, factor, name="y")
            signature = tf.saved_model.signature_def_utils.predict_signature_def({"x": x}, {"y": y})
            session.run(tf.global_variables_initializer())
            if "gpu" not in tags:
                builder.add_meta_graph_and_variables(session, tags, {"serving_default": signature})
            else:
                builder.add_meta_graph(tags, {"serving_default": signature}, saver=tf.train.Saver())
    builder.save()


def tf1_assets(folder):
    """A vocabulary as an asset of TF1 (collection `saved_model_assets`), read by a main op."""
    import tensorflow.compat.v1 as tf

    vocabulary = Path("words.txt")
    vocabulary.write_text("red\ngreen\nblue\n")
    with tf.Graph().as_default(), tf.Session() as session:
        asset = tf.constant(str(vocabulary))
        table = tf.lookup.StaticHashTable(
            tf.lookup.TextFileInitializer(
                asset,
                tf.string,
                tf.lookup.TextFileIndex.WHOLE_LINE,
                tf.int64,
                tf.lookup.TextFileIndex.LINE_NUMBER,
            ),
            -1,
        )
        x = tf.placeholder(tf.string, [None], "x")
        session.run(tf.tables_initializer())
        signature = tf.saved_model.signature_def_utils.predict_signature_def({"x": x}, {"y": table.lookup(x)})
        builder = tf.saved_model.builder.SavedModelBuilder(str(folder / "1"))
        builder.add_meta_graph_and_variables(
            session,
            ["serve"],
            {"serving_default": signature},
            assets_collection=tf.get_collection(tf.GraphKeys.ASSET_FILEPATHS),
            main_op=tf.tables_initializer(),
        )
        builder.save()
    vocabulary.unlink()


def tf2_nested(folder):
    """Variables of nested modules, one of them shared, and a signature whose input has a default."""
    import tensorflow as tf

    class Leaf(tf.Module):
        def __init__(self, start):
            super().__init__()
            self.w = tf.Variable(counting(tf, tf.float32, 2, 2, start=start), name="w")

    class Root(tf.Module):
        def __init__(self):
            super().__init__()
            self.left = Leaf(0)
            self.right = Leaf(10)
            self.list = [tf.Variable(counting(tf, tf.int64, 3), name="w"), self.left.w]

        @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, "x")])
        def __call__(self, x):
            return {"y": x @ self.left.w @ self.right.w + tf.cast(tf.reduce_sum(self.list[0]), tf.float32)}

    root = Root()
    tf.saved_model.save(root, str(folder / "1"), {"serving_default": root.__call__})


def tf2_assets(folder):
    """A vocabulary as an asset of TF2 (`asset_file_def`) and an init op in the signatures."""
    import tensorflow as tf

    vocabulary = Path("words.txt")
    vocabulary.write_text("red\ngreen\nblue\n")

    class Root(tf.Module):
        def __init__(self):
            super().__init__()
            self.table = tf.lookup.StaticHashTable(
                tf.lookup.TextFileInitializer(
                    str(vocabulary),
                    tf.string,
                    tf.lookup.TextFileIndex.WHOLE_LINE,
                    tf.int64,
                    tf.lookup.TextFileIndex.LINE_NUMBER,
                ),
                -1,
            )

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "x")])
        def __call__(self, x):
            return {"y": self.table.lookup(x)}

    root = Root()
    tf.saved_model.save(root, str(folder / "1"), {"serving_default": root.__call__})
    vocabulary.unlink()


def tf2_table(folder):
    """A mutable table, whose entries the checkpoint holds."""
    import tensorflow as tf

    class Root(tf.Module):
        def __init__(self):
            super().__init__()
            self.table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
            self.table.insert(["a"], [1])
            self.v = tf.Variable(1.0)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "x")])
        def __call__(self, x):
            return {"y": self.table.lookup(x), "v": self.v.read_value()}

    root = Root()
    tf.saved_model.save(root, str(folder / "1"), {"serving_default": root.__call__})


def tf1_composite(folder):
    """A signature with a sparse and a ragged input, and one plain one."""
    import tensorflow.compat.v1 as tf

    with tf.Graph().as_default(), tf.Session() as session:
        inputs = {
            "sparse": tf.sparse_placeholder(tf.float32, [None, 3]),
            "ragged": tf.ragged.placeholder(tf.float32, 1),
            "plain": tf.placeholder(tf.float32, [], "plain"),
        }
        outputs = {"sparse": inputs["sparse"] * 2.0, "y": inputs["plain"] + 1.0}
        info = tf.saved_model.utils.build_tensor_info
        signature = tf.saved_model.signature_def_utils.build_signature_def(
            {name: info(tensor) for name, tensor in inputs.items()},
            {name: info(tensor) for name, tensor in outputs.items()},
            "tensorflow/serving/predict",
        )
        builder = tf.saved_model.builder.SavedModelBuilder(str(folder / "1"))
        builder.add_meta_graph_and_variables(session, ["serve"], {"serving_default": signature})
        builder.save()


def dtypes(folder):
    """A variable of every dtype that a checkpoint can hold, of shape [2, 3] and counting from 1, and
    a scalar, an empty one and one with long strings."""
    import tensorflow as tf

    names = "float32 float64 float16 bfloat16 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool"
    names += " complex64 complex128 string float8_e5m2 float8_e4m3fn"
    root = tf.Module()
    for name in names.split():
        dtype = tf.dtypes.as_dtype(name)
        if dtype in (tf.dtypes.experimental.float8_e5m2, tf.dtypes.experimental.float8_e4m3fn):
            import numpy as np

            value = np.arange(1, 7, dtype=np.uint8).reshape(2, 3).view(dtype.as_numpy_dtype)
            value = tf.constant(value, dtype)
        else:
            value = counting(tf, dtype, 2, 3, start=1)
        setattr(root, name, tf.Variable(value, name=name))
    root.empty = tf.Variable(tf.zeros([0, 3]), name="empty")
    root.scalar_string = tf.Variable(tf.constant(b"alone"), name="scalar_string")
    root.long_strings = tf.Variable(tf.constant([b"", b"x" * 300]), name="long_strings")
    root.f = tf.function(
        lambda: {"y": tf.identity(root.float32)},
        input_signature=[],
    )
    tf.saved_model.save(root, str(folder / "1"), {"serving_default": root.f})


def tf2_many(folder):
    """Many variables with long names, whose index is rewritten with Snappy and small blocks."""
    import tensorflow as tf

    root = tf.Module()
    root.layers = []
    for i in range(20):
        layer = tf.Module()
        layer.kernel = tf.Variable(counting(tf, tf.int32, 3, start=i), name="kernel")
        root.layers.append(layer)
    root.f = tf.function(
        lambda: {"y": tf.add_n([layer.kernel.read_value() for layer in root.layers])}, input_signature=[]
    )
    tf.saved_model.save(root, str(folder / "1"), {"serving_default": root.f})
    index = folder / "1" / "variables" / "variables.index"
    index.write_bytes(rewrite_table(index.read_bytes()))
    reader = tf.train.load_checkpoint(str(folder / "1" / "variables" / "variables"))
    for i in range(20):
        key = f"layers/{i}/kernel/.ATTRIBUTES/VARIABLE_VALUE"
        assert list(reader.get_tensor(key)) == [i, i + 1, i + 2], "TensorFlow reads what we wrote"


def slices(folder):
    """A checkpoint alone: slices whose starts and lengths need every width of the ordered code."""
    import tensorflow as tf

    prefix = str(folder / "variables")
    names, parts, tensors = [], [], []
    for start, length in ((0, 63), (63, 1), (64, 8127), (8191, 2), (8193, 7)):
        names.append("wide")
        parts.append(f"8200 2 {start},{length}:-")
        tensors.append(tf.cast(tf.reshape(tf.range(start * 2, (start + length) * 2), [length, 2]), tf.uint16))
    # A shape of which only a little is stored: the rest of the key space is not in the file.
    for start in (2**20, 2**27 - 1, 2**27, 2**34, 2**41, 2**48, 2**55 - 1, 2**55, 2**61):
        names.append("far")
        parts.append(f"{2**62} {start},1")
        tensors.append(tf.constant([start % 251], tf.uint8))
    # A name whose bytes the ordered code must escape.
    for start in (0, 2):
        names.append("zero\0\xff".encode("latin-1"))
        parts.append(f"4 {start},2")
        tensors.append(tf.range(start, start + 2))
    tf.raw_ops.SaveV2(prefix=prefix, tensor_names=names, shape_and_slices=parts, tensors=tensors)


def rewrite_table(table):
    """Writes a table anew in blocks of about 400 bytes, compressed with Snappy."""
    entries = list(table_entries(table))
    blocks, block = [], []
    for key, value in entries:
        block.append((key, value))
        if sum(len(k) + len(v) for k, v in block) > 400:
            blocks.append(block)
            block = []
    blocks += [block] if block else []
    out, handles = bytearray(), []
    for block in blocks:
        handles.append((block[-1][0], append_block(out, encode_block(block, 16), True)))
    meta = append_block(out, encode_block([], 16), False)
    index = append_block(out, encode_block(handles, 1), False)
    footer = meta + index
    return bytes(out + footer.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57))


def table_entries(table):
    """The keys and values of an uncompressed table."""
    index = table[-48:]
    _, at = varint(index, 0)
    _, at = varint(index, at)
    offset, at = varint(index, at)
    size, at = varint(index, at)
    for _, handle in block_entries(table[offset : offset + size]):
        start, at = varint(handle, 0)
        length, at = varint(handle, at)
        assert table[start + length] == 0, "TensorFlow writes this index uncompressed"
        yield from block_entries(table[start : start + length])


def block_entries(block):
    """The keys and values of a block."""
    (restarts,) = struct.unpack("<I", block[-4:])
    at, key = 0, b""
    while at < len(block) - 4 * (restarts + 1):
        shared, at = varint(block, at)
        fresh, at = varint(block, at)
        length, at = varint(block, at)
        key = key[:shared] + block[at : at + fresh]
        yield key, block[at + fresh : at + fresh + length]
        at += fresh + length


def encode_block(entries, interval):
    """A block whose every `interval`-th key is written in full."""
    out, restarts, last = bytearray(), [], b""
    for i, (key, value) in enumerate(entries):
        shared = len(os.path.commonprefix([last, key]))
        if i % interval == 0:
            restarts.append(len(out))
            shared = 0
        out += to_varint(shared) + to_varint(len(key) - shared) + to_varint(len(value)) + key[shared:] + value
        last = key
    restarts = restarts or [0]
    return bytes(out) + struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))


def append_block(out, contents, compress):
    """Appends a block with its type and checksum, and gives its handle."""
    stored = snappy(contents) if compress else contents
    handle = to_varint(len(out)) + to_varint(len(stored))
    stored += b"\1" if compress else b"\0"
    out += stored + struct.pack("<I", masked_crc(stored))
    return handle


def snappy(data):
    """Compresses greedily: literals, and copies of four bytes or more."""
    out, seen, at, start = bytearray(to_varint(len(data))), {}, 0, 0

    def literal(chunk):
        while chunk:
            part, chunk = chunk[:60], chunk[60:]
            out.append((len(part) - 1) << 2)
            out.extend(part)

    while at + 4 <= len(data):
        match = seen.get(data[at : at + 4])
        seen[data[at : at + 4]] = at
        if match is None or at - match > 65535:
            at += 1
            continue
        length = 4
        while length < 64 and at + length < len(data) and data[match + length] == data[at + length]:
            length += 1
        literal(data[start:at])
        out.extend(bytes([(length - 1) << 2 | 2]) + struct.pack("<H", at - match))
        at += length
        start = at
    literal(data[start:])
    return bytes(out)


def masked_crc(data):
    """CRC32C, masked as in LevelDB."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def varint(data, at):
    """Reads a varint, and gives where it ends."""
    shift = value = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def to_varint(value):
    """Writes a varint."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


FIXTURES = {
    f.__name__: f
    for f in (
        tf1_variables,
        tf1_resource,
        tf1_partitioned,
        tf1_sharded,
        tf1_reshaped,
        tf1_assets,
        tf1_composite,
        pbtxt,
        two_meta_graphs,
        tf2_nested,
        tf2_assets,
        tf2_table,
        tf2_many,
        dtypes,
        slices,
    )
}


def make(name):
    """Makes one of them from nothing, in this process."""
    kind = "checkpoints" if name == "slices" else "models"
    folder = tfenv.ROOT / "testdata" / kind / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    # A graph keeps the path of an asset as it was given, so it is given without the machine's.
    os.chdir(folder)
    FIXTURES[name](folder)
    for leftover in folder.rglob("*"):
        if leftover.name == "fingerprint.pb":
            leftover.unlink()
        elif leftover.is_dir() and not any(leftover.iterdir()):
            leftover.rmdir()


def main():
    """Makes each in a process of its own: TF1 and TF2 do not mix well."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(FIXTURES))
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    unknown = set(args.names) - set(FIXTURES)
    if unknown:
        parser.error(f"no such fixture: {', '.join(sorted(unknown))}")
    if args.here:
        make(args.names[0])
        return
    for name in args.names or FIXTURES:
        subprocess.run([sys.executable, __file__, "--here", name], check=True)


if __name__ == "__main__":
    main()
