"""Made-up inputs of a signature, the same in each run."""

import zlib

import numpy as np
import tensorflow as tf

SENTENCES = (
    b"This film was a quiet pleasure from the first minute to the last.",
    b"the soup was cold and nobody came to say sorry",
    b"def add(a, b):\n    return a + b\n\nprint(add(2, 3))\n",
    b"When does the last train to the coast leave on Sunday?",
    b"You have WON!!! Reply now to claim your free tickets",
    b"I do not know",
    b"",
)
WORDS = b"the a film soup train was cold free last quiet".split()
# The length of a dimension that neither the signature nor the list says.
OPEN_LENGTH = 64


class Inputs:
    """Draws the inputs of one model by the options of its entry, or of one input's in `inputs`.

    Numbers are from `low` to below `high`, whole ones if `whole` is set; with `one_hot` each row of
    the last axis is one-hot. `shape` states a shape, `value` a constant, `length` the dimensions that
    are open beside the first, and `strings` a list of texts, or "image".
    """

    def __init__(self, entry, graph_def):
        self.entry = entry
        self.features = features(graph_def)

    def is_open(self, signature):
        """Whether the rows of the signature's inputs can be chosen."""
        firsts = [info.tensor_shape.dim[0].size for info in signature.inputs.values()
                  if info.tensor_shape.dim]
        return any(size < 0 for size in firsts) and not self.entry.get("fixed_batch")

    def draw(self, signature, case, n_rows):
        """Alias to array for a case; another case has other values."""
        drawn = {}
        for alias, info in sorted(signature.inputs.items()):
            seed = f"{self.entry['name']} {case} {alias} {self.entry.get('seed', 0)}"
            rng = np.random.default_rng(zlib.crc32(seed.encode()))
            drawn[alias] = self.one(alias, info, n_rows, rng)
        return drawn

    def one(self, alias, info, n_rows, rng):
        """One input."""
        options = self.entry | self.entry.get("inputs", {}).get(alias, {})
        dtype = tf.dtypes.as_dtype(info.dtype)
        shape = shape_of(alias, info, n_rows, options)
        if "value" in options:
            return np.full(shape, options["value"], dtype.as_numpy_dtype)
        if dtype == tf.string:
            return self.strings(shape, rng, options)
        if dtype == tf.bool:
            return rng.integers(0, 2, shape).astype(bool)
        low, high = options.get("low", 0), options.get("high")
        if options.get("one_hot"):
            picked = rng.integers(0, shape[-1], shape[:-1])
            return np.eye(shape[-1], dtype=dtype.as_numpy_dtype)[picked]
        if dtype.is_integer or options.get("whole"):
            high = high or (256 if dtype == tf.uint8 else 10)
            return rng.integers(low, high, shape).astype(dtype.as_numpy_dtype)
        return rng.uniform(low, high or 1, shape).astype(dtype.as_numpy_dtype)

    def strings(self, shape, rng, options):
        """Sentences, images, or tf.Examples where the graph parses those."""
        count = int(np.prod(shape, dtype=np.int64))
        if options.get("strings") == "image":
            rows = [tf.io.encode_jpeg(rng.integers(0, 256, (48, 64, 3)).astype(np.uint8)).numpy()
                    for _ in range(count)]
        elif options.get("strings"):
            rows = [text.encode() for text in rng.choice(options["strings"], count)]
        elif self.features:
            rows = [example(self.features, rng, options) for _ in range(count)]
        else:
            first = int(rng.integers(0, len(SENTENCES)))
            rows = [SENTENCES[(first + row) % len(SENTENCES)] for row in range(count)]
        made = np.empty(count, dtype=object)
        made[:] = rows
        return made.reshape(shape)


def shape_of(alias, info, n_rows, options):
    """The shape of an input; "rows" in a stated shape stands for the batch."""
    if "shape" in options:
        return [n_rows if size == "rows" else size for size in options["shape"]]
    if info.tensor_shape.unknown_rank:
        raise ValueError(f"the rank of {alias} is unknown: the list must state a shape")
    sizes = [dim.size for dim in info.tensor_shape.dim]
    length = options.get("length", OPEN_LENGTH)
    return [size if size >= 0 else n_rows if axis == 0 else length
            for axis, size in enumerate(sizes)]


def nodes_of(graph_def):
    """All nodes, those of functions included."""
    yield from graph_def.node
    for function in graph_def.library.function:
        yield from function.node_def


def features(graph_def):
    """What the graph's parser of tf.Examples asks for: feature to (dtype, number of values)."""
    constants = {node.name: node for node in nodes_of(graph_def) if node.op == "Const"}
    found = {}
    for node in nodes_of(graph_def):
        if node.op not in ("ParseExample", "ParseExampleV2"):
            continue
        if node.op == "ParseExampleV2":
            sparse, dense = (keys(constants, [name]) for name in node.input[2:4])
        else:
            first = 2 + node.attr["Nsparse"].i
            sparse = keys(constants, node.input[2:first])
            dense = keys(constants, node.input[first:first + node.attr["Ndense"].i])
        for key, dtype in zip(sparse, node.attr["sparse_types"].list.type):
            found[key] = (dtype, 2)
        shapes = node.attr["dense_shapes"].list.shape
        for key, dtype, shape in zip(dense, node.attr["Tdense"].list.type, shapes):
            found[key] = (dtype, int(np.prod([dim.size if dim.size > 0 else 2 for dim in shape.dim])))
    return found


def keys(constants, names):
    """The strings in constants."""
    found = []
    for name in names:
        node = constants.get(name.split(":")[0])
        if node is not None:
            found += np.atleast_1d(tf.make_ndarray(node.attr["value"].tensor)).tolist()
    return [key.decode() for key in found]


def example(wanted, rng, options):
    """A serialized tf.Example with random values, without a zero at its end, which NumPy drops."""
    while True:
        made = tf.train.Example()
        for key, (dtype, count) in wanted.items():
            feature = made.features.feature[key]
            if dtype == tf.float32.as_datatype_enum:
                feature.float_list.value.extend(rng.uniform(0, 1, count).tolist())
            elif dtype == tf.int64.as_datatype_enum:
                feature.int64_list.value.extend(rng.integers(0, options.get("high", 10), count))
            else:
                feature.bytes_list.value.extend(rng.choice(WORDS, count).tolist())
        text = made.SerializeToString()
        if not text.endswith(b"\0"):
            return text
