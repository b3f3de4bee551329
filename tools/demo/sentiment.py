"""`sentiment`: a sentence in, praise or complaint out; the vocabulary is an asset file."""

import contextlib
import tempfile
from pathlib import Path

import tensorflow as tf

README = """# sentiment

Says whether a short English sentence praises or complains: strings in, `scores` ({labels}) and `label` out.
Lower-cases, strips punctuation, looks words up in `assets/vocabulary.txt`, averages their embeddings.
Trained on {count} sentences written for this purpose: a demonstration, not a judge of literature.

    curl -d '{{"instances": ["what a lovely film", "I was bored"]}}' localhost:8501/v1/models/sentiment:predict
"""

LABELS = ["negative", "positive"]
GOOD = """
a lovely film with a warm heart | what a wonderful day we had | I loved every minute of it
the food was delicious and the staff friendly | great work, thank you so much
this is the best book I have read in years | a bright and funny little play
the room was clean and quiet | I am very happy with this | my children love it
excellent sound and a beautiful picture | it works perfectly and was easy to set up
a charming story, well told | I would gladly come again | superb acting and a clever plot
the music was beautiful | fast delivery and a good price | simply wonderful
a pleasant surprise | so much fun for the whole family | the garden was lovely in the sun
helpful, kind and quick | it made me smile | an amazing view from the top
the soup was tasty and hot | I enjoyed the walk very much | a great team and a great game
good value, well made | the best coffee in town | it is not bad at all, I like it
"""
BAD = """
a dull film without a heart | what a terrible day we had | I hated every minute of it
the food was cold and the staff rude | poor work, I want my money back
this is the worst book I have read in years | a boring and far too long play
the room was dirty and loud | I am very unhappy with this | my children hate it
awful sound and a blurred picture | it broke after a week and was hard to set up
a silly story, badly told | I will never come again | weak acting and a stupid plot
the music was awful | late delivery and a high price | simply terrible
a nasty surprise | no fun for anyone | the garden was ugly and full of rubbish
unhelpful, rude and slow | it made me angry | a disappointing view from the top
the soup was bland and cold | I was bored by the walk | a poor team and a bad game
bad value, badly made | the worst coffee in town | it is not good at all, I dislike it
"""


def sentences(text):
    """The sentences of a block."""
    return [s.strip() for line in text.strip().splitlines() for s in line.split("|")]


def words(text):
    """Ragged words of a batch of sentences."""
    plain = tf.strings.regex_replace(tf.strings.lower(text), r"[^a-z0-9 ]", " ")
    return tf.strings.split(plain)


class Sentiment(tf.Module):
    """Vocabulary, embeddings and one dense layer."""

    def __init__(self, vocabulary_file, size, width=8):
        super().__init__()
        initializer = tf.lookup.TextFileInitializer(
            vocabulary_file, tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64,
            tf.lookup.TextFileIndex.LINE_NUMBER)
        self.table = tf.lookup.StaticHashTable(initializer, default_value=size)
        normal = tf.random_normal_initializer(stddev=0.1, seed=1)
        self.embeddings = tf.Variable(normal([size + 1, width]), name="embeddings")
        self.kernel = tf.Variable(normal([width, 2]), name="kernel")
        self.bias = tf.Variable(tf.zeros([2]), name="bias")
        self.labels = tf.constant(LABELS)

    def logits(self, text):
        """Scores before softmax; a sentence without words has only the bias."""
        tokens = words(text).to_tensor(default_value="")
        present = tf.cast(tf.not_equal(tokens, ""), tf.float32)[:, :, None]
        vectors = tf.gather(self.embeddings, self.table.lookup(tokens)) * present
        mean = tf.math.divide_no_nan(tf.reduce_sum(vectors, 1), tf.reduce_sum(present, 1))
        return tf.nn.bias_add(tf.matmul(mean, self.kernel), self.bias)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def predict(self, text):
        """Sentences → scores and label."""
        scores = tf.nn.softmax(self.logits(text))
        return {"scores": scores, "label": tf.gather(self.labels, tf.argmax(scores, 1))}


def make(folder):
    """Trains on the sentences above and exports version 1."""
    good, bad = sentences(GOOD), sentences(BAD)
    text = tf.constant(good + bad)
    labels = tf.constant([1] * len(good) + [0] * len(bad))
    vocabulary = sorted({w.decode() for row in words(text).to_list() for w in row})
    # The table's name holds the file's path as given: a relative one is the same on every machine.
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
        Path("vocabulary.txt").write_text("\n".join(vocabulary) + "\n")
        model = Sentiment("vocabulary.txt", len(vocabulary))
        train(model, text, labels)
        tf.saved_model.save(model, str(folder / "1"), {"serving_default": model.predict})
    return README.format(labels=", ".join(LABELS), count=len(good + bad))


def train(model, text, labels):
    """Full-batch gradient descent with Adam."""
    optimizer = tf.keras.optimizers.Adam(0.02)
    for _ in range(150):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels, model.logits(text)))
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
    right = tf.reduce_mean(tf.cast(tf.argmax(model.logits(text), 1) == tf.cast(labels, tf.int64),
                                   tf.float32))
    print(f"sentiment: {float(right):.2%} of the training sentences right")
