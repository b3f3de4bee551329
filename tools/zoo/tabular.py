"""Recommenders and Keras preprocessing behind tf.Example."""

import keras
import numpy as np
import tensorflow as tf

from zoo.weights import randomize

layers = keras.layers
N_DENSE, N_CATEGORIES = 13, 26
CITIES = ["athens", "berlin", "cairo", "delhi", "lima", "oslo", "rome", "tokyo"]
WORDS = ["cheap", "flat", "garden", "large", "near", "old", "park", "quiet", "river", "sunny",
         "view"]


def wide_and_deep(folder, small):
    """26 embeddings and 13 numbers into a deep tower, crossed pairs into a wide one."""
    vocabulary, width, units = (50, 4, (16, 8)) if small else (20000, 16, (512, 256, 128))
    numbers = keras.Input((N_DENSE,), name="numbers")
    categories = keras.Input((N_CATEGORIES,), dtype="int64", name="categories")
    columns = [categories[:, i] for i in range(N_CATEGORIES)]
    vectors = [layers.Embedding(vocabulary, width)(c) for c in columns]
    x = layers.Concatenate()([layers.BatchNormalization()(numbers), *vectors])
    for size in units:
        x = layers.Dense(size, activation="relu")(x)
    stacked = keras.ops.stack(vectors, axis=1)
    products = keras.ops.matmul(stacked, keras.ops.transpose(stacked, (0, 2, 1)))
    wide = layers.Dense(1)(layers.Concatenate()([numbers, layers.Flatten()(products)]))
    logit = layers.Add()([wide, layers.Dense(1)(x)])
    model = keras.Model({"numbers": numbers, "categories": categories},
                        {"logit": logit, "probability": layers.Activation("sigmoid")(logit)})

    def inputs(n):
        # A seed whose only logit in the batch of one is not next to zero.
        rng = np.random.default_rng(100 + n)
        return {"serving_default": {
            "numbers": rng.normal(size=(n, N_DENSE)).astype(np.float32),
            "categories": rng.integers(0, vocabulary, (n, N_CATEGORIES))}}

    randomize(model, inputs(16)["serving_default"])
    model.export(str(folder / "1"), verbose=False)
    return inputs


class Listing:
    """tf.Example → every Keras preprocessing layer for columns → dense layers."""

    FEATURES = {
        "rooms": tf.io.FixedLenFeature([1], tf.float32),
        "year": tf.io.FixedLenFeature([1], tf.float32, default_value=[1980.0]),
        "zip": tf.io.FixedLenFeature([1], tf.int64),
        "city": tf.io.FixedLenFeature([1], tf.string, default_value=[""]),
        "agent": tf.io.FixedLenFeature([1], tf.string),
        "text": tf.io.FixedLenFeature([], tf.string),
        "tags": tf.io.VarLenFeature(tf.string),
    }

    def __init__(self, units):
        self.normalize = layers.Normalization(axis=-1)
        self.normalize.adapt(np.array([[1.0], [2.0], [3.5], [6.0]], np.float32))
        self.decade = layers.Discretization([1900.0, 1950.0, 1980.0, 2000.0, 2010.0],
                                            output_mode="one_hot")
        self.zip = layers.IntegerLookup(vocabulary=[10115, 20095, 50667, 80331], num_oov_indices=2,
                                        output_mode="one_hot")
        self.city = layers.StringLookup(vocabulary=CITIES, output_mode="one_hot")
        self.agent = layers.Hashing(num_bins=12, output_mode="one_hot")
        self.text = layers.TextVectorization(vocabulary=WORDS, output_sequence_length=6)
        self.grams = layers.TextVectorization(vocabulary=WORDS + ["old park", "sunny garden"],
                                              ngrams=2, output_mode="multi_hot")
        self.tags = layers.StringLookup(vocabulary=WORDS, output_mode="int")
        self.encode = layers.CategoryEncoding(num_tokens=8, output_mode="multi_hot")
        self.words = layers.Embedding(len(WORDS) + 2, 4)
        self.hidden = layers.Dense(units, activation="relu")
        self.out = layers.Dense(1)

    def columns(self, f):
        """The dense columns of the parsed features."""
        tags = tf.sparse.to_dense(f["tags"], default_value="")
        counts = self.encode(tf.minimum(self.tags(tags), 7))
        words = self.words(self.text(f["text"]))
        return [self.normalize(f["rooms"]), self.decade(f["year"]), self.zip(f["zip"]),
                self.city(f["city"]), self.agent(f["agent"]), tf.reduce_mean(words, 1),
                self.grams(f["text"]), counts]

    def predict(self, examples):
        """Examples → price and the columns it was made from."""
        x = tf.concat([tf.cast(c, tf.float32) for c in
                       self.columns(tf.io.parse_example(examples, self.FEATURES))], -1)
        return {"price": self.out(self.hidden(x)), "columns": x}


def listing(rng):
    """A serialized tf.Example."""
    def floats(*values):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))

    def strings(*values):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[v.encode() for v in values]))

    text = " ".join(rng.choice(WORDS + ["The,", "new!", "Old park"], rng.integers(1, 9)))
    features = {
        "rooms": floats(rng.uniform(1, 7)), "text": strings(text),
        "zip": tf.train.Feature(int64_list=tf.train.Int64List(
            value=[int(rng.choice([10115, 80331, 12345, 99999]))])),
        "agent": strings(f"agent {rng.integers(0, 50)}"),
        "tags": strings("park", *rng.choice(WORDS + ["odd"], rng.integers(0, 4))),
    }
    if rng.random() < 0.7:
        features["year"] = floats(rng.uniform(1880, 2024))
    if rng.random() < 0.7:
        features["city"] = strings(str(rng.choice(CITIES + ["atlantis"])))
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString(
        deterministic=True)


def tfexample(folder, small):
    """The listing model."""
    model = Listing(8 if small else 64)

    def inputs(n):
        rng = np.random.default_rng(n)
        examples = np.empty(n, object)
        examples[:] = [listing(rng) for _ in range(n)]
        return {"serving_default": {"examples": examples}}

    model.predict(tf.constant(inputs(2)["serving_default"]["examples"]))
    archive = keras.export.ExportArchive()
    for layer in vars(model).values():
        archive.track(layer)
    archive.add_endpoint("serving_default", model.predict,
                         [tf.TensorSpec([None], tf.string, name="examples")])
    archive.write_out(str(folder / "1"), verbose=False)
    return inputs


class Sequences(tf.Module):
    """tf.SequenceExample → an embedding of its frames."""

    def __init__(self):
        super().__init__()
        self.table = tf.Variable(np.random.default_rng(5).normal(size=(20, 4)).astype(np.float32))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def predict(self, examples):
        """Examples → the mean of the frames and the context."""
        context, frames, lengths = tf.io.parse_sequence_example(
            examples, {"weight": tf.io.FixedLenFeature([], tf.float32, default_value=1.0)},
            {"ids": tf.io.VarLenFeature(tf.int64),
             "scores": tf.io.FixedLenSequenceFeature([2], tf.float32)})
        ids = tf.sparse.to_dense(frames["ids"])
        vectors = tf.reduce_sum(tf.gather(self.table, ids), [1, 2])
        return {"vectors": vectors * context["weight"][:, None], "scores": frames["scores"],
                "lengths": lengths["scores"]}


def sequence_example(folder, small):
    """The sequence model."""
    del small
    model = Sequences()
    tf.saved_model.save(model, str(folder / "1"), {"serving_default": model.predict})

    def one(rng):
        proto = tf.train.SequenceExample()
        if rng.random() < 0.6:
            proto.context.feature["weight"].float_list.value.append(rng.uniform(0.5, 2))
        lists = proto.feature_lists.feature_list
        for _ in range(rng.integers(1, 5)):
            lists["ids"].feature.add().int64_list.value.extend(
                rng.integers(1, 20, rng.integers(0, 3)).tolist())
            lists["scores"].feature.add().float_list.value.extend(rng.uniform(1, 2, 2))
        return proto.SerializeToString(deterministic=True)

    def inputs(n):
        rng = np.random.default_rng(n)
        examples = np.empty(n, object)
        examples[:] = [one(rng) for _ in range(n)]
        return {"serving_default": {"examples": examples}}
    return inputs


class Columns:
    """Keras preprocessing layers in the modes that the listing model leaves out."""

    SPECS = [tf.TensorSpec([None, 4], tf.string, name="words"),
             tf.TensorSpec([None], tf.string, name="text"),
             tf.TensorSpec([None, 3], tf.int64, name="ids"),
             tf.TensorSpec([None, 3], tf.float32, name="weights"),
             tf.TensorSpec([None, 1], tf.float32, name="year")]

    def __init__(self):
        weights = np.linspace(0.5, 1.6, len(WORDS)).astype(np.float32)
        years = [1900.0, 1950.0, 1980.0, 2000.0, 2010.0]
        scaled = {"vocabulary": WORDS, "idf_weights": weights, "output_mode": "tf_idf"}
        # Of the words.
        self.words = {
            "count": layers.StringLookup(vocabulary=WORDS, output_mode="count"),
            "tf_idf": layers.StringLookup(**scaled),
            "multi_hot": layers.StringLookup(vocabulary=WORDS, output_mode="multi_hot",
                                             num_oov_indices=3),
            "masked": layers.StringLookup(vocabulary=WORDS, mask_token="", num_oov_indices=2),
            "hashed": layers.Hashing(num_bins=12),
            "salted": layers.Hashing(num_bins=12, salt=133),
            "salted_twice": layers.Hashing(num_bins=12, salt=[5, 77], mask_value=""),
            "hash_count": layers.Hashing(num_bins=12, output_mode="count"),
        }
        # Of the text.
        split = {"vocabulary": WORDS, "output_mode": "int"}
        self.text = {
            "text_count": layers.TextVectorization(vocabulary=WORDS, output_mode="count"),
            "text_tf_idf": layers.TextVectorization(**scaled),
            "padded": layers.TextVectorization(vocabulary=WORDS, output_mode="count",
                                               max_tokens=20, pad_to_max_tokens=True),
            "characters": layers.TextVectorization(vocabulary=list("abcdefgr "), split="character",
                                                   output_mode="int"),
            "character_count": layers.TextVectorization(vocabulary=list("abcdefgr "),
                                                        split="character", output_mode="count"),
            "lower": layers.TextVectorization(standardize="lower", **split),
            "stripped": layers.TextVectorization(standardize="strip_punctuation", **split),
            "as_it_is": layers.TextVectorization(standardize=None, **split),
            "whole": layers.TextVectorization(split=None, **split),
            "triples": layers.TextVectorization(vocabulary=WORDS + ["old park", "old park view"],
                                                ngrams=(2, 3), output_mode="int"),
        }
        self.ragged = layers.TextVectorization(ragged=True, **split)
        self.ragged_characters = layers.TextVectorization(vocabulary=list("abcdefgr "), ragged=True,
                                                          split="character", output_mode="int")
        # Of the ids.
        known = {"vocabulary": [10, 20, 30, 40]}
        self.ids = {
            "id": layers.IntegerLookup(mask_token=0, num_oov_indices=2, **known),
            "id_count": layers.IntegerLookup(output_mode="count", **known),
            "id_tf_idf": layers.IntegerLookup(output_mode="tf_idf", idf_weights=[0.5, 1.5, 2.0, 3.0],
                                              **known),
            "id_hashed": layers.Hashing(num_bins=9),
            "id_salted": layers.Hashing(num_bins=9, salt=[3, 4]),
            "id_masked": layers.Hashing(num_bins=9, mask_value=10),
        }
        self.from_word = layers.StringLookup(vocabulary=WORDS, invert=True)
        self.from_masked = layers.StringLookup(vocabulary=WORDS, mask_token="", invert=True)
        self.from_id = layers.IntegerLookup(mask_token=0, invert=True, **known)
        self.crossed = layers.HashedCrossing(num_bins=15)
        self.crossed_hot = layers.HashedCrossing(num_bins=15, output_mode="one_hot")
        self.encode = {mode: layers.CategoryEncoding(num_tokens=8, output_mode=mode)
                       for mode in ("count", "multi_hot")}
        self.one_hot = layers.CategoryEncoding(num_tokens=8, output_mode="one_hot")
        # Of the year.
        self.year = {
            "decade": layers.Discretization(years),
            "decade_count": layers.Discretization(years, output_mode="count"),
            "decade_hot": layers.Discretization(years, output_mode="multi_hot"),
            "normal": layers.Normalization(mean=1975.0, variance=900.0),
            "raw": layers.Normalization(mean=1975.0, variance=900.0, invert=True),
        }

    def layers(self):
        """All of them."""
        for value in vars(self).values():
            yield from value.values() if isinstance(value, dict) else [value]

    def predict(self, words, text, ids, weights, year):
        """Columns → what each layer makes of them."""
        outputs = {}
        for table, column in ((self.words, words), (self.text, text), (self.ids, ids),
                              (self.year, year)):
            outputs |= {name: layer(column) for name, layer in table.items()}
        outputs["ragged"] = self.ragged(text).to_tensor(-1)
        outputs["ragged_characters"] = self.ragged_characters(text).to_tensor(-1)
        small = ids % 8
        outputs |= {f"encoded_{mode}": layer(small) for mode, layer in self.encode.items()}
        outputs["weighted"] = self.encode["count"](small, count_weights=weights)
        outputs["encoded_one_hot"] = self.one_hot(small[:, :1])
        outputs["word"] = self.from_word(small)
        outputs["word_or_nothing"] = self.from_masked(small)
        outputs["number"] = self.from_id(small % 6)
        outputs["crossed"] = self.crossed((words[:, :1], ids[:, :1]))
        outputs["crossed_hot"] = self.crossed_hot((words[:, :1], ids[:, 1:2]))
        return outputs


def keras_layers(folder, small):
    """The layers for columns, and those for images."""
    del small
    model = Columns()

    def columns(n):
        rng = np.random.default_rng(n)
        words = rng.choice(WORDS + ["", "odd", "new"], (n, 4)).astype(object)
        pieces = WORDS + ["The,", "new!", "Old park", "(view)"]
        text = np.empty(n, object)
        text[:] = [" ".join(rng.choice(pieces, rng.integers(1, 7))) for _ in range(n)]
        return {"words": words, "text": text, "ids": rng.choice([0, 10, 20, 30, 77, 41], (n, 3)),
                "weights": rng.uniform(0.5, 2, (n, 3)).astype(np.float32),
                "year": rng.uniform(1880, 2024, (n, 1)).astype(np.float32)}

    def inputs(n):
        image = np.random.default_rng(n).uniform(0, 255, (n, 11, 17, 3)).astype(np.float32)
        return {"serving_default": columns(n), "images": {"image": image}}

    def images(image):
        return {name: layer(image) for name, layer in resize.items()}

    resize = resizers()
    # Layers are built by what they are called with.
    model.predict(*(tf.constant(value) for value in columns(2).values()))
    images(inputs(2)["images"]["image"])
    archive = keras.export.ExportArchive()
    for layer in [*model.layers(), *resize.values()]:
        archive.track(layer)
    archive.add_endpoint("serving_default", model.predict, Columns.SPECS)
    archive.add_endpoint("images", images, [
        tf.TensorSpec([None, 11, 17, 3], tf.float32, name="image")])
    archive.write_out(str(folder / "1"), verbose=False)
    return inputs


def resizers():
    """Layers that change the size of an image of 11 by 17."""
    kinds = ("bilinear", "nearest", "bicubic", "area", "lanczos3", "lanczos5")
    outputs = {f"{kind}_up": layers.Resizing(19, 23, interpolation=kind) for kind in kinds}
    outputs |= {f"{kind}_down": layers.Resizing(6, 7, interpolation=kind) for kind in kinds}
    outputs |= {f"{kind}_smooth": layers.Resizing(6, 7, interpolation=kind, antialias=True)
                for kind in ("bilinear", "bicubic", "lanczos3", "lanczos5")}
    outputs["padded"] = layers.Resizing(12, 12, pad_to_aspect_ratio=True, fill_value=7.0)
    outputs["padded_tall"] = layers.Resizing(20, 9, pad_to_aspect_ratio=True, antialias=True)
    outputs["cropped"] = layers.Resizing(9, 9, crop_to_aspect_ratio=True)
    # Of a smaller image than the crop: it is made larger first.
    outputs["grown"] = layers.CenterCrop(14, 15)
    outputs["grown_tall"] = layers.CenterCrop(20, 8)
    outputs["centre"] = layers.CenterCrop(6, 8)
    return outputs


MODELS = {"wide_and_deep": wide_and_deep, "tfexample": tfexample,
          "sequence_example": sequence_example, "keras_layers": keras_layers}
