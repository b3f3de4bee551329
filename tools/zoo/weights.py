"""Random weights that keep signals alive through deep nets, so that a wrong step shows."""

import keras
import numpy as np
import tensorflow as tf


def randomize(model, sample):
    """Sets every bias, scale and statistic that Keras would leave at 0 or 1.

    The statistics of batch normalization are those of `sample` (the model's inputs by name):
    without that the activations of a deep net with random weights vanish or explode.
    """
    rng = np.random.default_rng(1)
    for variable in model.variables:
        draw = drawn(rng, variable.path, tuple(variable.shape))
        if draw is not None:
            variable.assign(draw)
    norms = [layer for layer in all_layers(model)
             if isinstance(layer, keras.layers.BatchNormalization)]
    if not norms:
        return
    momenta = [layer.momentum for layer in norms]
    for layer in norms:
        layer.momentum = 0.0
    model(sample, training=True)
    for layer, momentum in zip(norms, momenta):
        layer.momentum = momentum
        variance = np.asarray(layer.moving_variance)
        layer.moving_variance.assign(variance + 0.2 * variance.mean() + 1e-3)


def write(model, folder, small):
    """Exports a Keras model; `export` takes long for deep nets, so small ones go without it."""
    if not small or len(model.layers) < 60:
        model.export(str(folder / "1"), verbose=False)
        return
    module = tf.Module()
    module.weights = [v.value for v in model.variables]
    specs = [tf.TensorSpec(i.shape, i.dtype, name=i.name) for i in model.inputs]
    run = tf.function(lambda *xs: model(xs[0] if len(xs) == 1 else list(xs), training=False),
                      input_signature=specs)
    tf.saved_model.save(module, str(folder / "1"), {"serving_default": run})


def drawn(rng, path, shape):
    """New values for a variable, or None to keep the initializer's."""
    kind = path.rsplit("/", 1)[-1]
    if kind in ("bias", "beta") or "bias" in kind:
        return rng.normal(0, 0.1, shape)
    if "layer_scale" in path:
        return rng.uniform(0.3, 0.6, shape)
    if kind == "gamma":
        return rng.uniform(0.8, 1.2, shape)
    if kind in ("kernel", "depthwise_kernel", "pointwise_kernel") and len(shape) == 4:
        depthwise = kind == "depthwise_kernel"
        fan_in = np.prod(shape[:2]) if depthwise else np.prod(shape[:3])
        return rng.normal(0, np.sqrt(2 / fan_in), shape)
    return None


def all_layers(model):
    """The layers of a model and of the models inside it."""
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            yield from all_layers(layer)
        else:
            yield layer


def shrink(model, factor):
    """The same architecture with every width divided, but the number of classes."""
    config = model.get_config()
    strip_build(config)
    narrow_layers(config["layers"], factor, config["layers"][-1]["name"])
    return model.__class__.from_config(config)


def narrow_layers(configs, factor, last):
    """Divides the widths in the settings of layers, also of those in models inside the model."""
    for layer in configs:
        settings = layer["config"]
        if "layers" in settings:
            settings.pop("build_input_shape", None)
            settings["layers"] = [c for c in settings["layers"] if c["class_name"] != "InputLayer"]
            narrow_layers(settings["layers"], factor, last)
        for key in ("filters", "units", "projection_dim"):
            if settings.get(key) and layer["config"]["name"] != last:
                settings[key] = narrow(settings[key], factor)
        if settings.get("groups", 1) > 1:
            settings["groups"] = narrow(settings["groups"], factor)
        if layer["class_name"] == "Reshape" and len(settings["target_shape"]) == 3:
            *front, channels = settings["target_shape"]
            settings["target_shape"] = (*front, narrow(channels, factor))


def narrow(width, factor):
    """A width divided, at least four."""
    return max(4, width // factor)


def strip_build(node):
    """Removes the shapes that the layers were built with."""
    if isinstance(node, dict):
        node.pop("build_config", None)
        for value in node.values():
            strip_build(value)
    elif isinstance(node, (list, tuple)):
        for value in node:
            strip_build(value)
