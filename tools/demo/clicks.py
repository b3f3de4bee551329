"""`clicks`: tf.Examples in, the probability of a click out; hashed strings and embeddings."""

import numpy as np
import tensorflow as tf

README = """# clicks

Guesses whether a user clicks on an offer: serialized tf.Examples in, embeddings and dense layers inside.
Features: `age`, `price` (float), `hour` (int64, default 12), `country` (string, default ""), `user` (string),
`interests` (any number of strings). Trained on made-up data.
Signatures: `serving_default` (examples → probability, logit), `classify` (classes, scores), `regress`.

    curl -d '{"examples": [{"age": 33.0, "price": 9.5, "user": "ada", "interests": ["music"]}]}' \\
        localhost:8501/v1/models/clicks:regress
"""

COUNTRIES = ["at", "br", "de", "fr", "in", "jp", "ke", "us"]
INTERESTS = ["art", "books", "cars", "food", "games", "garden", "music", "sports", "travel"]
USER_BUCKETS, INTEREST_BUCKETS, WIDTH = 256, 64, 8
FEATURES = {
    "age": tf.io.FixedLenFeature([1], tf.float32),
    "price": tf.io.FixedLenFeature([1], tf.float32),
    "hour": tf.io.FixedLenFeature([], tf.int64, default_value=12),
    "country": tf.io.FixedLenFeature([], tf.string, default_value=""),
    "user": tf.io.FixedLenFeature([], tf.string),
    "interests": tf.io.VarLenFeature(tf.string),
}
EXAMPLES = tf.TensorSpec([None], tf.string, name="examples")
INPUTS = tf.TensorSpec([None], tf.string, name="inputs")


class Clicks(tf.Module):
    """Embeddings of users, countries, hours and interests, and two dense layers."""

    def __init__(self):
        super().__init__()
        self.countries = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                tf.constant(COUNTRIES), tf.range(1, len(COUNTRIES) + 1, dtype=tf.int64)),
            default_value=0)
        glorot = tf.keras.initializers.GlorotUniform(seed=2)

        def variable(name, *shape):
            return tf.Variable(glorot(shape), name=name)

        self.user = variable("user", USER_BUCKETS, WIDTH)
        self.country = variable("country", len(COUNTRIES) + 1, WIDTH)
        self.hour = variable("hour", 24, WIDTH)
        self.interests = variable("interests", INTEREST_BUCKETS, WIDTH)
        self.hidden = variable("hidden", 4 * WIDTH + 2, 16)
        self.hidden_bias = tf.Variable(tf.zeros([16]), name="hidden_bias")
        self.out = variable("out", 16, 1)
        self.out_bias = tf.Variable(tf.zeros([1]), name="out_bias")
        self.classes = tf.constant([["no", "click"]])

    def logits(self, serialized):
        """Shape [n, 1]."""
        f = tf.io.parse_example(serialized, FEATURES)
        numbers = tf.concat([(f["age"] - 40.0) / 20.0, tf.math.log1p(tf.nn.relu(f["price"]))], 1)
        hour = tf.gather(self.hour, tf.math.floormod(f["hour"], 24))
        country = tf.gather(self.country, self.countries.lookup(f["country"]))
        user = tf.gather(self.user, tf.strings.to_hash_bucket_fast(f["user"], USER_BUCKETS))
        hashed = tf.SparseTensor(
            f["interests"].indices,
            tf.strings.to_hash_bucket_fast(f["interests"].values, INTEREST_BUCKETS),
            f["interests"].dense_shape)
        interests = tf.nn.safe_embedding_lookup_sparse(self.interests, hashed, combiner="mean")
        x = tf.concat([numbers, hour, country, user, interests], 1)
        x = tf.nn.relu(tf.nn.bias_add(tf.matmul(x, self.hidden), self.hidden_bias))
        return tf.nn.bias_add(tf.matmul(x, self.out), self.out_bias)

    @tf.function(input_signature=[EXAMPLES])
    def predict(self, examples):
        """Examples → probability and logit, shape [n]."""
        logit = tf.squeeze(self.logits(examples), 1)
        return {"probability": tf.sigmoid(logit), "logit": logit}

    @tf.function(input_signature=[INPUTS])
    def classify(self, inputs):
        """Examples → the two classes with their probabilities."""
        click = tf.sigmoid(self.logits(inputs))
        scores = tf.concat([1.0 - click, click], 1)
        return {"classes": tf.tile(self.classes, [tf.shape(scores)[0], 1]), "scores": scores}

    @tf.function(input_signature=[INPUTS])
    def regress(self, inputs):
        """Examples → probability, shape [n, 1]."""
        return {"outputs": tf.sigmoid(self.logits(inputs))}


def example(age, price, user, hour=None, country=None, interests=()):
    """A serialized tf.Example."""

    def feature(kind, values):
        lists = {"float_list": tf.train.FloatList, "int64_list": tf.train.Int64List,
                 "bytes_list": tf.train.BytesList}
        return tf.train.Feature(**{kind: lists[kind](value=values)})

    features = {"age": feature("float_list", [age]), "price": feature("float_list", [price]),
                "user": feature("bytes_list", [user.encode()])}
    if hour is not None:
        features["hour"] = feature("int64_list", [hour])
    if country is not None:
        features["country"] = feature("bytes_list", [country.encode()])
    if interests:
        features["interests"] = feature("bytes_list", [i.encode() for i in interests])
    proto = tf.train.Example(features=tf.train.Features(feature=features))
    return proto.SerializeToString(deterministic=True)


def random_examples(seed, count):
    """Made-up offers and whether they were clicked."""
    rng = np.random.default_rng(seed)
    examples, clicks = [], []
    for _ in range(count):
        age, price = float(rng.integers(18, 80)), float(np.round(rng.gamma(2.0, 8.0), 2))
        country = str(rng.choice(COUNTRIES + ["xx"])) if rng.random() < 0.9 else None
        hour = int(rng.integers(0, 24)) if rng.random() < 0.9 else None
        interests = [str(i) for i in rng.choice(INTERESTS, rng.integers(0, 4), replace=False)]
        user = f"user{rng.integers(0, 400)}"
        examples.append(example(age, price, user, hour, country, interests))
        liking = 1.0 - price / 12 + ("games" in interests) * 2 + (age < 35) - (hour in range(2, 7))
        clicks.append(float(rng.random() < 1 / (1 + np.exp(-liking))))
    return tf.constant(examples), tf.constant(clicks, tf.float32)


def make(folder):
    """Trains on made-up data and exports version 1."""
    model = Clicks()
    examples, clicks = random_examples(3, 4000)
    optimizer = tf.keras.optimizers.Adam(0.01)

    @tf.function
    def step(batch, labels):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(
                labels, tf.squeeze(model.logits(batch), 1)))
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return loss

    for epoch in range(5):
        for start in range(0, 4000, 100):
            loss = step(examples[start:start + 100], clicks[start:start + 100])
    print(f"clicks: loss {float(loss):.3f}")
    tf.saved_model.save(model, str(folder / "1"), {
        "serving_default": model.predict, "classify": model.classify, "regress": model.regress})
    return README
