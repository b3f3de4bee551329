"""`tables`: mutable tables of every kind that were filled before they were saved, and are filled by requests."""

import tensorflow as tf

README = """# tables

Tables that were filled before they were saved: dense ones (`dense`, `vectors`) and one that requests add to,
within a branch (`count`), a loop (`count_each`) and one branch of several (`count_case`); a TensorFlow 2
export, for tests.
"""


class Tables(tf.Module):
    """A signature for each way to read or to fill a table."""

    def __init__(self):
        super().__init__()
        self.dense_words = tf.lookup.experimental.DenseHashTable(
            tf.string, tf.int64, -1, empty_key="<empty>", deleted_key="<gone>",
            initial_num_buckets=8)
        self.dense_words.insert(["one", "two", "three"], [1, 2, 3])
        self.dense_words.erase(tf.constant(["two"]))
        self.dense_vectors = tf.lookup.experimental.DenseHashTable(
            tf.int64, tf.float32, [0.0, 0.5, 1.0], empty_key=-1, deleted_key=-2,
            initial_num_buckets=8)
        self.dense_vectors.insert([7, 0, 9], [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])
        self.counts = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, 0)
        self.counts.insert(["known"], [5])

    def dense(self, words):
        """A dense table, one of whose keys was erased."""
        return {"numbers": self.dense_words.lookup(words), "size": self.dense_words.size()}

    def vectors(self, ids):
        """A dense table of vectors."""
        return {"vectors": self.dense_vectors.lookup(ids), "size": self.dense_vectors.size()}

    def count_one(self, words):
        """Counts each word once more."""
        self.counts.insert(words, self.counts.lookup(words) + 1)

    def count(self, words):
        """Counts in a branch."""
        def fill():
            self.count_one(words)
            return True

        tf.cond(self.counts.size() < 1000, fill, lambda: False)
        return {"counts": self.counts.lookup(words)}

    def count_each(self, words):
        """Counts in a loop."""
        def step(i):
            self.count_one(words[i:i + 1])
            return i + 1

        tf.while_loop(lambda i: i < tf.size(words), step, [0])
        return {"counts": self.counts.lookup(words)}

    def count_case(self, words):
        """Counts in one branch of several."""
        def fill():
            self.count_one(words)
            return 1

        tf.switch_case(tf.minimum(tf.size(words), 2), [lambda: 0, fill, fill])
        return {"counts": self.counts.lookup(words)}

    def recall(self, words):
        """Only reads what others count."""
        return {"counts": self.counts.lookup(words)}


def make(folder):
    """Exports version 1."""
    model = Tables()
    words = tf.TensorSpec([None], tf.string, name="words")
    names = ["dense", "count", "count_each", "count_case", "recall"]
    signatures = {name: tf.function(getattr(model, name), input_signature=[words])
                  for name in names}
    ids = tf.TensorSpec([None], tf.int64, name="ids")
    signatures["vectors"] = tf.function(model.vectors, input_signature=[ids])
    tf.saved_model.save(model, str(folder / "1"), signatures)
    return README
