"""Image models: twelve Keras applications, and convolutions of other kinds."""

from functools import partial

import keras
import numpy as np
import tensorflow as tf
from keras.src.applications.convnext import ConvNeXt
from keras.src.applications.densenet import DenseNet
from keras.src.applications.efficientnet import EfficientNet
from keras.src.applications.efficientnet_v2 import EfficientNetV2
from keras.src.applications.nasnet import NASNet
from keras.src.applications.resnet import (ResNet, stack_residual_blocks_v1,
                                           stack_residual_blocks_v2)

from zoo.weights import randomize, shrink, write

layers = keras.layers

# name → (constructor, full size, small size, divisor of the widths in the small one)
APPLICATIONS = {
    "mobilenet_v2": ("MobileNetV2", 224, 32, 8),
    "mobilenet_v3_small": ("MobileNetV3Small", 224, 32, 4),
    "resnet50": ("ResNet50", 224, 32, 16),
    "resnet50_v2": ("ResNet50V2", 224, 32, 16),
    "efficientnet_b0": ("EfficientNetB0", 224, 32, 4),
    "efficientnet_v2_b0": ("EfficientNetV2B0", 224, 32, 8),
    "inception_v3": ("InceptionV3", 299, 75, 16),
    "xception": ("Xception", 299, 71, 16),
    "densenet121": ("DenseNet121", 224, 32, 8),
    "nasnet_mobile": ("NASNetMobile", 224, 32, 1),
    "vgg16": ("VGG16", 224, 32, 16),
    "convnext_tiny": ("ConvNeXtTiny", 224, 32, 16),
}
def shallow_resnet(stack, preact):
    """A constructor of a ResNet with two stages of two blocks."""
    def stages(x):
        for number, (filters, blocks) in enumerate([(64, 2), (128, 2)]):
            x = stack(x, filters, blocks, 1 + (number > 0), name=f"conv{number + 2}")
        return x

    return partial(ResNet, stages, preact, True)


# In small: fewer blocks, since exporting deep nets takes long; all kinds of layers are kept.
SHALLOW = {
    "ResNet50": shallow_resnet(stack_residual_blocks_v1, False),
    "ResNet50V2": shallow_resnet(stack_residual_blocks_v2, True),
    "EfficientNetB0": partial(EfficientNet, 1.0, 0.25, 224),
    "EfficientNetV2B0": partial(EfficientNetV2, 1.0, 0.2, 224, name="efficientnetv2-b0"),
    "ConvNeXtTiny": partial(ConvNeXt, [1, 1, 2, 1], [96, 192, 384, 768]),
    "DenseNet121": partial(DenseNet, [2, 2, 2, 2]),
    "NASNetMobile": partial(NASNet, penultimate_filters=96, num_blocks=1, stem_block_filters=8,
                            skip_reduction=False),
}


def images(n, *shape):
    """Random images with values as cameras give them."""
    rng = np.random.default_rng(n)
    return rng.uniform(0, 255, (n, *shape)).astype(np.float32)


def export(model, folder, small, shape, scale=1.0):
    """Randomizes, exports and returns the inputs function of a model with one image input."""
    alias = model.inputs[0].name

    def inputs(n):
        return {"serving_default": {alias: images(n, *shape) * np.float32(scale)}}

    randomize(model, inputs(16 if shape[0] < 128 else 2)["serving_default"][alias])
    write(model, folder, small)
    return inputs


def application(name):
    """The `make` function of a Keras application; it also answers the features before the head."""
    constructor, full_size, small_size, factor = APPLICATIONS[name]

    def make(folder, small):
        size = small_size if small else full_size
        build = SHALLOW.get(constructor) if small else None
        build = build or getattr(keras.applications, constructor)
        model = build(weights=None, input_shape=(size, size, 3), classes=10 if small else 1000)
        if small and factor > 1:
            model = shrink(model, factor)
        outputs = {"probabilities": model.output, "features": model.layers[-1].input}
        model = keras.Model(model.input, outputs)
        # Nets with their own preprocessing take 0..255, the others about -1..1.
        prepared = constructor.startswith(("EfficientNet", "ConvNeXt", "MobileNetV3"))
        return export(model, folder, small, (size, size, 3), 1.0 if prepared else 1 / 128)

    return make


def unet(folder, small):
    """An encoder and a decoder with transposed convolutions and skip connections."""
    size, width, depth = (32, 4, 2) if small else (128, 32, 4)
    image = keras.Input((size, size, 3), name="image")
    x, skips = image, []
    for level in range(depth):
        x = layers.Conv2D(width * 2**level, 3, padding="same")(x)
        x = layers.ReLU()(layers.BatchNormalization()(x))
        skips.append(x)
        x = layers.MaxPooling2D()(x)
    x = layers.Conv2D(width * 2**depth, 3, padding="same", activation="elu")(x)
    for level in reversed(range(depth)):
        x = layers.Conv2DTranspose(width * 2**level, 3, strides=2, padding="same")(x)
        x = layers.Concatenate()([x, skips[level]])
        x = layers.Conv2D(width * 2**level, 3, padding="same", activation="relu")(x)
    up = layers.UpSampling2D(interpolation="bilinear")(x)
    outputs = {"mask": layers.Conv2D(1, 1, activation="sigmoid")(x),
               "coarse": layers.Conv2DTranspose(2, 4, strides=3, padding="valid")(up)}
    return export(keras.Model(image, outputs), folder, small, (size, size, 3), 1 / 128)


def separable(folder, small):
    """Depthwise, separable, dilated, grouped and strided convolutions with odd sizes."""
    size, width = (21, 4) if small else (97, 32)
    image = keras.Input((size, size, 3), name="image")
    x = layers.SeparableConv2D(width, 3, strides=2, padding="same", depth_multiplier=2)(image)
    x = layers.LeakyReLU()(x)
    x = layers.DepthwiseConv2D(5, padding="valid", depth_multiplier=2)(x)
    x = layers.PReLU(shared_axes=[1, 2])(x)
    x = layers.Conv2D(2 * width, 3, dilation_rate=2, padding="same", activation="selu")(x)
    x = layers.Conv2D(2 * width, 3, groups=2, padding="same", activation="swish")(x)
    x = layers.AveragePooling2D(3, strides=2, padding="same")(x)
    x = layers.ZeroPadding2D(((1, 0), (2, 1)))(x)
    x = layers.LayerNormalization()(x)
    x = layers.Cropping2D(((0, 1), (1, 1)))(x)
    outputs = {"map": x, "pooled": layers.GlobalMaxPooling2D()(x)}
    return export(keras.Model(image, outputs), folder, small, (size, size, 3), 1 / 128)


def conv1d(folder, small):
    """A temporal convolutional net: causal, dilated and transposed 1-D convolutions."""
    length, width = (40, 4) if small else (1000, 64)
    signal = keras.Input((length, 6), name="signal")
    x = layers.Conv1D(width, 5, padding="causal", activation="relu")(signal)
    for rate in (2, 4):
        y = layers.Conv1D(width, 3, padding="causal", dilation_rate=rate)(x)
        y = layers.Activation("tanh")(layers.BatchNormalization()(y))
        x = layers.Add()([x, layers.SeparableConv1D(width, 3, padding="same")(y)])
    x = layers.MaxPooling1D(2)(x)
    x = layers.Conv1DTranspose(width, 4, strides=2, padding="same")(x)
    x = layers.AveragePooling1D(3, strides=2, padding="same")(x)
    outputs = {"classes": layers.Dense(7, activation="softmax")(layers.GlobalAveragePooling1D()(x))}
    return export(keras.Model(signal, outputs), folder, small, (length, 6), 1 / 128)


def conv3d(folder, small):
    """A video net: 3-D convolutions, pools and a transposed convolution."""
    size, width = (8, 4) if small else (32, 16)
    clip = keras.Input((size, size, size, 2), name="clip")
    x = layers.Conv3D(width, 3, padding="same", activation="relu")(clip)
    x = layers.MaxPooling3D(2)(x)
    x = layers.BatchNormalization()(layers.Conv3D(2 * width, 3, strides=(1, 2, 2))(x))
    up = layers.Conv3DTranspose(width, 2, strides=2)(x)
    pooled = layers.GlobalAveragePooling3D()(layers.AveragePooling3D((2, 1, 1))(x))
    outputs = {"classes": layers.Dense(5, activation="softmax")(pooled), "volume": up}
    return export(keras.Model(clip, outputs), folder, small, (size, size, size, 2), 1 / 128)


class Detector(tf.Module):
    """An SSD-like detector: a backbone, anchor boxes, class scores, suppression of overlaps."""

    def __init__(self, size, width, classes):
        super().__init__()
        image = keras.Input((size, size, 3))
        x, maps = image, []
        for level in range(3):
            x = layers.Conv2D(width * 2**level, 3, strides=2, padding="same")(x)
            x = layers.ReLU(6.0)(layers.BatchNormalization()(x))
            maps.append(x)
        heads = [(layers.Conv2D(2 * 4, 3, padding="same")(m),
                  layers.Conv2D(2 * classes, 3, padding="same")(m)) for m in maps[1:]]
        self.net = keras.Model(image, heads)
        randomize(self.net, images(4, size, size, 3) / 128)
        # A tf.Module does not find the variables of a Keras model by itself.
        self.weights = [v.value for v in self.net.variables]
        self.classes, self.size = classes, size
        self.anchors = tf.constant(self.anchor_boxes([size // 4, size // 8]), tf.float32)

    @staticmethod
    def anchor_boxes(grids):
        """Two boxes at every cell: centre y and x, height and width."""
        boxes = []
        for grid in grids:
            for row in range(grid):
                for column in range(grid):
                    for scale in (1.5, 2.5):
                        boxes.append([(row + 0.5) / grid, (column + 0.5) / grid,
                                      scale / grid, scale / grid])
        return np.array(boxes, np.float32)

    def decode(self, image):
        """Boxes [n, anchors, 4] and class scores [n, anchors, classes]."""
        heads = self.net(image, training=False)
        n = tf.shape(image)[0]
        offsets = tf.concat([tf.reshape(b, [n, -1, 4]) for b, _ in heads], 1)
        logits = tf.concat([tf.reshape(c, [n, -1, self.classes]) for _, c in heads], 1)
        centre = offsets[..., :2] * 0.1 * self.anchors[:, 2:] + self.anchors[:, :2]
        half = tf.exp(tf.clip_by_value(offsets[..., 2:] * 0.2, -2, 2)) * self.anchors[:, 2:] / 2
        return tf.concat([centre - half, centre + half], -1), tf.sigmoid(logits)

    def combined(self, image):
        """One call for the whole batch."""
        boxes, scores = self.decode(image)
        found = tf.image.combined_non_max_suppression(
            boxes[:, :, None], scores, 10, 20, iou_threshold=0.5, score_threshold=0.3)
        return {"boxes": found[0], "scores": found[1], "classes": found[2], "count": found[3]}

    def single(self, image):
        """The plain and the soft suppression, for the first image of the batch."""
        boxes, scores = self.decode(image)
        best = tf.reduce_max(scores[0], -1)
        hard = tf.image.non_max_suppression(boxes[0], best, 12, 0.4, 0.2)
        soft, soft_scores = tf.image.non_max_suppression_with_scores(
            boxes[0], best, 12, 0.5, 0.2, soft_nms_sigma=0.5)
        padded, valid = tf.image.non_max_suppression_padded(
            boxes[0], best, 12, 0.4, 0.2, pad_to_max_output_size=True)
        crops = tf.image.crop_and_resize(image[:1], tf.gather(boxes[0], hard)[:3],
                                         tf.zeros([tf.minimum(3, tf.shape(hard)[0])], tf.int32),
                                         [4, 4])
        return {"hard": hard, "soft": soft, "soft_scores": soft_scores, "padded": padded,
                "valid": valid, "crops": crops, "top": tf.math.top_k(best, 5).indices}


def ssd(folder, small):
    """A detector with two signatures."""
    size, width, classes = (32, 4, 3) if small else (160, 32, 20)
    model = Detector(size, width, classes)
    spec = [tf.TensorSpec([None, size, size, 3], tf.float32, name="image")]
    tf.saved_model.save(model, str(folder / "1"), {
        "serving_default": tf.function(model.combined, input_signature=spec),
        "single": tf.function(model.single, input_signature=spec)})
    return lambda n: {s: {"image": images(n, size, size, 3) / 128}
                      for s in ("serving_default", "single")}


MODELS = {name: application(name) for name in APPLICATIONS} | {
    "unet": unet, "separable": separable, "conv1d": conv1d, "conv3d": conv3d, "ssd": ssd}
