"""Models fed with compressed images, and the Keras layers that resize and crop."""

import keras
import numpy as np
import tensorflow as tf

from zoo.weights import randomize

layers = keras.layers


def picture(seed, height, width):
    """A smooth random picture, like a photograph more than noise is."""
    rng = np.random.default_rng(seed)
    coarse = rng.uniform(0, 255, (1, 5, 6, 3)).astype(np.float32)
    smooth = tf.image.resize(coarse, [height, width], "bicubic")[0]
    return tf.cast(tf.clip_by_value(smooth + rng.normal(0, 4, smooth.shape), 0, 255), tf.uint8)


def encoded(n, size, encode):
    """n encoded pictures of different size."""
    out = np.empty(n, object)
    out[:] = [encode(picture(100 * n + i, size + 3 * i, size + 5 * i)).numpy() for i in range(n)]
    return out


class Pictures(tf.Module):
    """Bytes → pixels → a small net."""

    def __init__(self, size, width):
        super().__init__()
        self.size = size
        image = keras.Input((size, size, 3))
        x = layers.Rescaling(1 / 127.5, -1)(image)
        x = layers.Conv2D(width, 3, strides=2, activation="relu")(x)
        x = layers.GlobalAveragePooling2D()(layers.Conv2D(2 * width, 3, activation="relu")(x))
        self.net = keras.Model(image, layers.Dense(5, activation="softmax")(x))
        randomize(self.net, np.zeros((2, size, size, 3), np.float32))
        # A tf.Module does not find the variables of a Keras model by itself.
        self.weights = [v.value for v in self.net.variables]

    def pixels(self, data, decode):
        """[n, size, size, 3] of encoded pictures of any size."""
        return tf.map_fn(lambda one: tf.image.resize(decode(one), [self.size, self.size]), data,
                         fn_output_signature=tf.TensorSpec([self.size, self.size, 3], tf.float32))

    def jpeg(self, data):
        """JPEG → scores, and the first picture's pixels."""
        pixels = self.pixels(data, lambda one: tf.io.decode_jpeg(one, channels=3))
        return {"scores": self.net(pixels), "first": tf.io.decode_jpeg(data[0], channels=3),
                "gray": tf.io.decode_jpeg(data[0], channels=1)}

    def png(self, data):
        """PNG → scores, and the first picture's pixels."""
        pixels = self.pixels(data, lambda one: tf.io.decode_png(one, channels=3))
        return {"scores": self.net(pixels), "first": tf.io.decode_png(data[0], channels=0)}

    def any(self, data):
        """Any format → scores."""
        return {"scores": self.net(self.pixels(data, lambda one: tf.io.decode_image(
            one, channels=3, expand_animations=False)))}


def jpeg(folder, small):
    """A signature each for JPEG, PNG and whatever comes."""
    size, width, source = (16, 4, 24) if small else (96, 32, 180)
    model = Pictures(size, width)
    spec = [tf.TensorSpec([None], tf.string, name="data")]
    names = {"serving_default": model.jpeg, "png": model.png, "any": model.any}
    tf.saved_model.save(model, str(folder / "1"), {
        name: tf.function(f, input_signature=spec) for name, f in names.items()})

    def inputs(n):
        jpegs = encoded(n, source, lambda p: tf.io.encode_jpeg(p, quality=90))
        pngs = encoded(n, source, tf.io.encode_png)
        return {"serving_default": {"data": jpegs}, "png": {"data": pngs}, "any": {"data": pngs}}
    return inputs


def preprocessing(folder, small):
    """Resizing in every manner, CenterCrop, Rescaling, Normalization."""
    height, width = (20, 26) if small else (240, 320)
    image = keras.Input((height, width, 3), name="image")
    target = (height * 3 // 4 + 1, width * 3 // 2)
    outputs = {kind: layers.Resizing(*target, interpolation=kind)(image)
               for kind in ("bilinear", "nearest", "bicubic")}
    outputs["ratio"] = layers.Resizing(14, 14, crop_to_aspect_ratio=True)(image)
    cropped = layers.CenterCrop(height // 2, width // 2)(image)
    scaled = layers.Rescaling(1 / 255, offset=-0.5)(cropped)
    normalize = layers.Normalization(mean=[0.1, 0.0, -0.2], variance=[0.2, 0.3, 0.1])
    outputs["normal"] = normalize(scaled)
    model = keras.Model(image, outputs)
    model.export(str(folder / "1"), verbose=False)

    def inputs(n):
        rng = np.random.default_rng(n)
        pixels = rng.uniform(0, 255, (n, height, width, 3)).astype(np.float32)
        return {"serving_default": {"image": pixels}}
    return inputs


class Strings(tf.Module):
    """String ops as text pipelines use them."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def predict(self, text):
        """Cleans, splits, measures, hashes and decodes."""
        clean = tf.strings.regex_replace(tf.strings.lower(tf.strings.strip(text)), r"\s+", " ")
        parts = tf.strings.split(clean, " ")
        joined = tf.strings.reduce_join(parts.to_tensor(), -1, separator="_")
        digits = tf.strings.regex_replace(text, r"[^0-9]", "")
        number = tf.strings.to_number(tf.strings.join(["0", digits]), tf.int64)
        return {
            "clean": clean, "joined": joined, "number": number,
            "length": tf.strings.length(text), "characters": tf.strings.length(text, "UTF8_CHAR"),
            "start": tf.strings.substr(text, 0, 2, "UTF8_CHAR"),
            "bucket": tf.strings.to_hash_bucket_fast(clean, 1000),
            "strong": tf.strings.to_hash_bucket_strong(clean, 1000, [3, 7]),
            "has_word": tf.strings.regex_full_match(text, r".*\bthe\b.*"),
            "upper": tf.strings.upper(text),
            "code_points": tf.strings.unicode_decode(text, "UTF-8").to_tensor(-1),
            "encoded": tf.io.encode_base64(text),
            "count": parts.row_lengths(),
        }


def strings(folder, small):
    """The string model."""
    del small
    model = Strings()
    tf.saved_model.save(model, str(folder / "1"), {"serving_default": model.predict})
    lines = ["  The quick  brown fox ", "42 apples and 7 pears", "gr\u00fc\u00dfe aus K\u00f6ln",
             "", "over the\tlazy dog", "UPPER lower 2024", "\u65e5\u672c\u8a9e text", "one"]

    def inputs(n):
        text = np.empty(n, object)
        text[:] = [line.encode() for line in lines[:n]]
        return {"serving_default": {"text": text}}
    return inputs


MODELS = {"jpeg": jpeg, "preprocessing": preprocessing, "strings": strings}
