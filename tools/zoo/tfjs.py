"""Models of TensorFlow.js in TensorFlow's own terms: graphs as GraphDefs, layers models as Keras ones.

Both are a JSON file with the topology and a manifest of weights, which lie in files beside it.
"""

import base64
import json

import numpy as np
import tensorflow as tf
from google.protobuf import json_format

# The ops that TensorFlow.js fuses under its own names, and the attributes that the plain op keeps.
PLAIN = {"_FusedConv2D": "Conv2D", "FusedDepthwiseConv2dNative": "DepthwiseConv2dNative",
         "_FusedMatMul": "MatMul"}
KEPT = ("strides", "padding", "data_format", "dilations", "explicit_paddings", "transpose_a",
        "transpose_b")
# The version of graphs that the converters of TensorFlow.js leave out.
PRODUCER = 134


def weights(manifest, read):
    """The weights by name; `read` gives the bytes of a file of the manifest."""
    found = {}
    for group in manifest:
        rest = memoryview(b"".join(read(path) for path in group["paths"]))
        for entry in group["weights"]:
            found[entry["name"]], n_bytes = weight(entry, rest)
            rest = rest[n_bytes:]
    return found


def weight(entry, rest):
    """One weight at the start of `rest`, and the bytes it takes there."""
    shape, dtype = entry["shape"], entry["dtype"]
    count = int(np.prod(shape, dtype=np.int64))
    if dtype == "string":
        return strings(shape, count, rest)
    stored = entry.get("quantization")
    raw = np.dtype(stored["dtype"] if stored else {"bool": "uint8"}.get(dtype, dtype))
    values = np.frombuffer(rest, raw, count)
    if stored and raw != np.float16:
        values = values.astype(np.float32) * np.float32(stored["scale"]) + np.float32(stored["min"])
    return values.astype(dtype).reshape(shape), count * raw.itemsize


def strings(shape, count, rest):
    """Strings are stored one behind another, each behind its length."""
    values, at = [], 0
    for _ in range(count):
        size = int.from_bytes(rest[at:at + 4], "little")
        values.append(bytes(rest[at + 4:at + 4 + size]))
        at += 4 + size
    return np.array(values, dtype=object).reshape(shape), at


def graph(model, read):
    """The GraphDef of a graph model: weights as constants, fused ops taken apart."""
    topology = json.loads(json.dumps(model["modelTopology"]))
    for node in topology["node"]:
        for value in (node.get("attr") or {}).values():
            spell_bytes(value)
    source = json_format.ParseDict(topology, tf.compat.v1.GraphDef(), ignore_unknown_fields=True)
    values = weights(model["weightsManifest"], read)
    made = tf.compat.v1.GraphDef(versions=source.versions, library=source.library)
    made.versions.producer = made.versions.producer or PRODUCER
    for function in made.library.function:
        for node in function.node_def:
            fill(node, values)
    for node in source.node:
        if node.op in PLAIN:
            unfuse(made, node)
        elif node.op == "Prelu":
            prelu(made, node, node.name, *node.input)
        else:
            fill(node, values)
            made.node.add().CopyFrom(node)
    return made


def spell_bytes(value):
    """Byte strings are base64 in the JSON of protobuf; some converters write lists of numbers."""
    def spelled(text):
        return base64.b64encode(bytes(text)).decode() if isinstance(text, list) else text
    if "s" in value:
        value["s"] = spelled(value["s"])
    listed = value.get("list")
    if isinstance(listed, dict) and "s" in listed:
        listed["s"] = [spelled(text) for text in listed["s"]]


def fill(node, values):
    """Gives a constant its value from the weights."""
    if node.op == "Const" and node.name in values:
        array = values[node.name]
        proto = tf.make_tensor_proto(array, dtype=node.attr["dtype"].type, shape=array.shape)
        node.attr["value"].tensor.CopyFrom(proto)


def add(made, like, name, op, inputs):
    """A node of the type of another, with those of its attributes that plain ops have."""
    node = made.node.add(name=name, op=op, input=inputs)
    node.attr["T"].type = like.attr["T"].type or tf.float32.as_datatype_enum
    return node


def unfuse(made, node):
    """A fused op as the plain op and one node for each op behind it; the last has its name."""
    behind = [text.decode() for text in node.attr["fused_ops"].list.s]
    data = [name for name in node.input if not name.startswith("^")]
    controls = [name for name in node.input if name.startswith("^")]
    here = f"{node.name}/plain" if behind else node.name
    plain = add(made, node, here, PLAIN[node.op], data[:2] + controls)
    for key in KEPT:
        if key in node.attr:
            plain.attr[key].CopyFrom(node.attr[key])
    arguments = data[2:]
    for position, op in enumerate(behind):
        name = node.name if position == len(behind) - 1 else f"{node.name}/fused{position}"
        if op == "Prelu":
            prelu(made, node, name, here, arguments.pop(0))
        elif op == "BiasAdd":
            bias = add(made, node, name, op, [here, arguments.pop(0)])
            if "data_format" in node.attr:
                bias.attr["data_format"].CopyFrom(node.attr["data_format"])
        else:
            after = add(made, node, name, op, [here])
            if op == "LeakyRelu" and "leakyrelu_alpha" in node.attr:
                after.attr["alpha"].CopyFrom(node.attr["leakyrelu_alpha"])
        here = name


def prelu(made, like, name, x, alpha):
    """relu(x) - alpha * relu(-x), as Keras exports its layer."""
    add(made, like, f"{name}/above", "Relu", [x])
    add(made, like, f"{name}/minus", "Neg", [x])
    add(made, like, f"{name}/below", "Relu", [f"{name}/minus"])
    add(made, like, f"{name}/slope", "Mul", [alpha, f"{name}/below"])
    add(made, like, name, "Sub", [f"{name}/above", f"{name}/slope"])


def layers(model, read, keras, custom):
    """The Keras model of a layers model. Weights are found by name, else by the name's end."""
    config = model["modelTopology"]
    config = config.get("model_config", config)
    text = config if isinstance(config, str) else json.dumps(config)
    made = keras.models.model_from_json(text, custom_objects=custom)
    values = weights(model["weightsManifest"], read)
    ends = {"/".join(name.split("/")[-2:]): array for name, array in values.items()}
    for variable in made.weights:
        name = variable.name.split(":")[0]
        array = values.get(name)
        variable.assign(ends["/".join(name.split("/")[-2:])] if array is None else array)
    return made
