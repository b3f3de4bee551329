"""Makes a SavedModel of a model in a package, whatever format it was published in.

The formats: `savedmodel`, `frozen` (a GraphDef with constants), `keras` (HDF5 and .keras files),
`tfjs` (TensorFlow.js graphs and layers models), `bundle` (the same as JavaScript modules).
"""

import base64
import json
import os
import posixpath
import subprocess
import tempfile
from pathlib import Path

import h5py
import tensorflow as tf

from zoo import packages, tfjs

v1 = tf.compat.v1
# Ops that give nothing of a frozen graph's answer although no other node reads them.
NO_OUTPUTS = ("Placeholder", "PlaceholderV2", "Const", "NoOp", "Assert", "PlaceholderWithDefault")
# Prints a JavaScript module that exports a text or JSON.
PRINT_MODULE = ("const m=require(process.argv[1]);const d=m.default||m;"
                "process.stdout.write(typeof d==='string'?d:JSON.stringify(d))")


def convert(entry, package, target):
    """Writes the SavedModel of one entry of the list to `target`."""
    kind, path = entry["kind"], entry["path"]
    if kind == "savedmodel":
        packages.extract(package, path, target)
    elif kind == "frozen":
        graph = v1.GraphDef.FromString(package.read(path))
        for node in graph.node:
            node.device = ""
        save_graph(graph, target, entry.get("feeds"), entry.get("fetches"))
    elif kind == "keras":
        save_keras(*load_keras(entry, package), target)
    elif kind == "tfjs":
        model = json.loads(package.read(path))
        folder = os.path.dirname(path)
        save_tfjs(entry, model, lambda name: package.read(posixpath.normpath(f"{folder}/{name}")),
                  target)
    elif kind == "bundle":
        with tempfile.TemporaryDirectory() as scratch:
            packages.extract(package, os.path.dirname(path), Path(scratch))
            start = Path(scratch) / os.path.basename(path)
            save_tfjs(entry, json.loads(module(start)), bundled_weights(start.parent), target)
    else:
        raise ValueError(f"no such format: {kind}")


def save_tfjs(entry, model, read, target):
    """A graph model keeps its signature if it has one."""
    if "node" not in model["modelTopology"]:
        import tf_keras
        made = tfjs.layers(model, read, tf_keras, custom_objects(tf_keras))
        save_keras(made, True, target)
        return
    stated = model.get("signature") or (model.get("userDefinedMetadata") or {}).get("signature")
    feeds = entry.get("feeds") or tensors_of(stated, "inputs")
    fetches = entry.get("fetches") or tensors_of(stated, "outputs")
    save_graph(tfjs.graph(model, read), target, feeds, fetches)


def tensors_of(signature, side):
    """Alias to tensor name of one side of a TensorFlow.js signature, or None."""
    listed = (signature or {}).get(side) or {}
    return {alias.split(":")[0]: spec.get("name", alias) for alias, spec in listed.items()} or None


def module(path):
    """The text that a JavaScript module exports."""
    command = ["node", "-e", PRINT_MODULE, str(path.resolve())]
    return subprocess.run(command, capture_output=True, check=True, timeout=60).stdout


def bundled_weights(folder):
    """Reads weights that lie in modules as base64."""
    def read(name):
        return base64.b64decode(module(folder / f"{name}.min.js").strip(b'"\''))
    return read


def save_graph(graph_def, target, feeds=None, fetches=None):
    """Saves a graph without variables. Feeds and fetches are lists of tensors or alias to tensor;
    without them they are its placeholders, and the tensors that nothing reads."""
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
        operations = graph.get_operations()
        if feeds is None:
            feeds = [op.outputs[0].name for op in operations if op.type == "Placeholder"]
        if fetches is None:
            read = {tensor.name for op in operations for tensor in op.inputs}
            fetches = [tensor.name for op in operations if op.type not in NO_OUTPUTS
                       for tensor in op.outputs if not read & {t.name for t in op.outputs}]
        signature = v1.saved_model.build_signature_def(
            tensor_infos(graph, feeds), tensor_infos(graph, fetches), "tensorflow/serving/predict")
        with v1.Session(graph=graph) as session:
            builder = v1.saved_model.Builder(str(target))
            builder.add_meta_graph_and_variables(session, ["serve"],
                                                 {"serving_default": signature})
            builder.save()


def tensor_infos(graph, names):
    """The endpoints of a signature that the graph has. The alias of a bare name is its last part."""
    if not isinstance(names, dict):
        names = {alias_of(name): name for name in names}
    infos = {}
    for alias, name in names.items():
        try:
            tensor = graph.get_tensor_by_name(name if ":" in name else f"{name}:0")
        except KeyError:
            continue  # Converters drop outputs without saying so in the signature.
        infos[alias] = v1.saved_model.build_tensor_info(tensor)
    return infos


def alias_of(name):
    """`a/b:0` is called b, `a/b:1` is called b_1."""
    node, _, index = name.partition(":")
    last = node.split("/")[-1]
    return f"{last}_{index}" if index not in ("", "0") else last


def load_keras(entry, package):
    """(model, whether the older Keras loaded it). The older one reads more of the old files."""
    path = entry["path"]
    problems = []
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / os.path.basename(path)
        file.write_bytes(package.read(path))
        config = package.read(entry["json"]).decode() if "json" in entry else None
        for is_legacy in ([False] if path.endswith(".keras") else [True, False]):
            try:
                return read_keras(file, config, is_legacy), is_legacy
            except Exception as problem:
                problems.append(f"{type(problem).__name__}: {str(problem)[:200]}")
    raise ValueError("Keras cannot load it: " + " | ".join(problems))


def read_keras(file, config, is_legacy):
    """The model of a file; the architecture may be in a text of its own."""
    if is_legacy:
        import tf_keras as keras
    else:
        import keras
    custom = custom_objects(keras)
    refuse_code(file, config)
    if config:
        model = keras.models.model_from_json(config, custom_objects=custom)
        model.load_weights(file)
        return model
    return keras.models.load_model(file, compile=False, custom_objects=custom)


def refuse_code(file, config):
    """Fails if a model has layers whose Python code is stored in the file: it would run here."""
    if config is None and h5py.is_hdf5(file):
        with h5py.File(file) as opened:
            config = opened.attrs.get("model_config", "")
            config = config.decode() if isinstance(config, bytes) else config
    if '"class_name": "Lambda"' in (config or ""):
        raise ValueError("a Lambda layer, whose code is in the file")


def custom_objects(keras):
    """Layers and functions that files name and Keras lacks, from the packages' descriptions."""
    class MultiplyBeta(keras.layers.Layer):
        """Scales a residual by a constant."""

        def __init__(self, beta=0.2, **options):
            super().__init__(**options)
            self.beta = beta

        def call(self, x):
            """The scaled tensor."""
            return x * self.beta

    class PixelShuffle(keras.layers.Layer):
        """Moves channels to pixels."""

        def __init__(self, scale=2, **options):
            super().__init__(**options)
            self.scale = scale

        def call(self, x):
            """The larger image."""
            return tf.nn.depth_to_space(x, self.scale)

    return {"MultiplyBeta": MultiplyBeta, "PixelShuffle": PixelShuffle, "relu6": tf.nn.relu6,
            "swish": tf.nn.swish, "FixedDropout": keras.layers.Dropout}


def save_keras(model, is_legacy, target):
    """Exports a Keras model."""
    if is_legacy:
        model.save(target, save_format="tf", include_optimizer=False)
    else:
        model.export(target, verbose=False)
