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


MODELS = {"wide_and_deep": wide_and_deep, "tfexample": tfexample,
          "sequence_example": sequence_example}
