"""Makes the models of testdata/fallback, whose ops only TensorFlow has, and TensorFlow's answers.

    tools/make_fallback.py [MODEL ...]

testdata/fallback/<model>/1 is the SavedModel, testdata/fallback/<model>/golden/<signature> has
inputs and TensorFlow's outputs as <case>.{in,out}.npz.
"""

import shutil
import sys

import tfenv

if __name__ == "__main__":
    tfenv.enter()

import numpy as np
import tensorflow as tf

import arrays
import reference

ROOT = tfenv.ROOT / "testdata" / "fallback"
raw = tf.raw_ops
floats = np.random.default_rng(7)


def function(*specs):
    """A tf.function over inputs of these dtypes and shapes, named by their aliases."""
    return tf.function(input_signature=[tf.TensorSpec(shape, dtype, name=name)
                                        for name, dtype, shape in specs])


class SparseMatrix(tf.Module):
    """A product with a weight held as a compressed sparse matrix: variants inside the graph."""

    def __init__(self):
        super().__init__()
        dense = floats.normal(size=(6, 4)).astype(np.float32)
        self.weight = tf.Variable(np.where(np.abs(dense) > 0.5, dense, 0))

    @function(("x", tf.float32, [None, 6]))
    def serve(self, x):
        indices = tf.where(tf.not_equal(x, 0))
        matrix = raw.DenseToCSRSparseMatrix(dense_input=x, indices=indices)
        product = raw.SparseMatrixMatMul(a=matrix, b=self.weight)
        return {"y": product, "n": raw.SparseMatrixNNZ(sparse_matrix=matrix)}

    def signatures(self):
        return {"serving_default": self.serve}

    def cases(self):
        x = floats.normal(size=(3, 6)).astype(np.float32)
        return {"serving_default": {"some": {"x": np.where(x > 0, x, 0)},
                                    "one": {"x": np.eye(1, 6, dtype=np.float32)}}}


class Audio(tf.Module):
    """Sound to a spectrogram and its cepstral coefficients."""

    @function(("sound", tf.float32, [None, 1]))
    def serve(self, sound):
        spectrogram = raw.AudioSpectrogram(input=sound, window_size=64, stride=32)
        cepstrum = raw.Mfcc(spectrogram=spectrogram, sample_rate=8000, dct_coefficient_count=5)
        return {"spectrogram": spectrogram, "mfcc": cepstrum}

    def signatures(self):
        return {"serving_default": self.serve}

    def cases(self):
        time = np.arange(256, dtype=np.float32)[:, None]
        return {"serving_default": {"tone": {"sound": np.sin(time / 3).astype(np.float32)}}}


class Fractional(tf.Module):
    """Pooling over windows of uneven sizes."""

    @function(("image", tf.float32, [None, 9, 9, 2]))
    def serve(self, image):
        pooled = raw.FractionalAvgPool(value=image, pooling_ratio=[1.0, 1.5, 1.5, 1.0],
                                       deterministic=True, seed=1, seed2=2)
        return {"pooled": pooled[0], "rows": pooled[1], "columns": pooled[2]}

    def signatures(self):
        return {"serving_default": self.serve}

    def cases(self):
        image = floats.normal(size=(2, 9, 9, 2)).astype(np.float32)
        return {"serving_default": {"two": {"image": image}}}


class Summary(tf.Module):
    """Strings that TensorFlow writes, short and long."""

    @function(("tag", tf.string, []), ("values", tf.float32, [None]))
    def serve(self, tag, values):
        summary = tf.io.encode_base64(raw.HistogramSummary(tag=tag, values=values))
        return {"summary": summary, "length": tf.strings.length(summary),
                "both": tf.stack([tag, summary])}

    def signatures(self):
        return {"serving_default": self.serve}

    def cases(self):
        few, many = np.float32([1, 2, 3]), floats.normal(size=(500,)).astype(np.float32)
        return {"serving_default": {
            "few": {"tag": np.array(b"t", object), "values": few},
            "many": {"tag": np.array(b"a tag that is longer than a small string", object),
                     "values": many}}}


class Crossed(tf.Module):
    """Crosses of string features, ragged ones."""

    @function(("a", tf.string, [None, 2]), ("b", tf.int64, [None, 1]))
    def serve(self, a, b):
        crossed = tf.ragged.cross_hashed([tf.RaggedTensor.from_tensor(a), b], num_buckets=1000)
        return {"hashes": crossed.to_tensor()}

    @function(("a", tf.string, [None, 2]), ("b", tf.int64, [None, 1]))
    def words(self, a, b):
        return {"words": tf.ragged.cross([tf.RaggedTensor.from_tensor(a), b]).to_tensor()}

    def signatures(self):
        return {"serving_default": self.serve, "words": self.words}

    def cases(self):
        a = np.array([[b"x", b""], [b"a string with more than 22 bytes", b"\x00\xff."]], object)
        inputs = {"a": a, "b": np.int64([[1], [-2]])}
        return {"serving_default": {"two": inputs}, "words": {"two": inputs}}


class Eigen(tf.Module):
    """Eigenvalues of a matrix that is not symmetric: complex numbers."""

    @function(("matrix", tf.float32, [None, 3, 3]))
    def serve(self, matrix):
        values, _ = raw.Eig(input=matrix, compute_v=False, Tout=tf.complex64)
        return {"values": values, "real": tf.math.real(values)}

    def signatures(self):
        return {"serving_default": self.serve}

    def cases(self):
        matrix = floats.normal(size=(2, 3, 3)).astype(np.float32)
        return {"serving_default": {"two": {"matrix": matrix}}}


class Keeper(tf.Module):
    """A variable that takes over what it is sent; TensorFlow may keep the request's own memory."""

    def __init__(self):
        super().__init__()
        self.kept = tf.Variable(np.zeros([4, 1024], np.float32))

    @function(("x", tf.float32, [4, 1024]))
    def put(self, x):
        self.kept.assign(x)
        return {"sum": tf.reduce_sum(x)}

    @function()
    def serve(self):
        return {"kept": self.kept.read_value(),
                "summary": tf.io.encode_base64(raw.HistogramSummary(tag="kept", values=self.kept))}

    def signatures(self):
        return {"serving_default": self.serve, "put": self.put}

    def cases(self):
        return {"serving_default": {"zeros": {}}}


class Spin(tf.Module):
    """Takes as long as it is told."""

    @function(("n", tf.int64, []))
    def serve(self, n):
        last = tf.while_loop(lambda i: i < n, lambda i: [i + 1], [tf.constant(0, tf.int64)])[0]
        summary = raw.HistogramSummary(tag="n", values=tf.cast(last, tf.float32))
        return {"last": last, "length": tf.strings.length(summary)}

    def signatures(self):
        return {"serving_default": self.serve}

    def cases(self):
        return {"serving_default": {"ten": {"n": np.int64(10)}}}


class Writer(tf.Module):
    """Does what a model should not: writes, reads and lists files."""

    @function(("path", tf.string, []))
    def write(self, path):
        with tf.control_dependencies([tf.io.write_file(path, "written")]):
            return {"path": tf.identity(path)}

    @function(("path", tf.string, []))
    def read(self, path):
        return {"content": tf.io.read_file(path)}

    @function(("path", tf.string, []))
    def list(self, path):
        return {"files": tf.io.matching_files(path)}

    def signatures(self):
        return {"serving_default": self.write, "read": self.read, "list": self.list}

    def cases(self):
        return {}


MODELS = {"sparse_matrix": SparseMatrix, "audio": Audio, "fractional": Fractional,
          "summary": Summary, "crossed": Crossed, "eigen": Eigen, "keeper": Keeper,
          "spin": Spin,
          "writer": Writer}


def make(name, build):
    """One model with its golden answers."""
    folder = ROOT / name
    shutil.rmtree(folder, ignore_errors=True)
    model = build()
    tf.saved_model.save(model, str(folder / "1"), model.signatures())
    (folder / "1" / "fingerprint.pb").unlink(missing_ok=True)
    for empty in ("assets",):
        if (folder / "1" / empty).is_dir() and not list((folder / "1" / empty).iterdir()):
            (folder / "1" / empty).rmdir()
    loaded = reference.Reference(folder / "1")
    for signature, cases in model.cases().items():
        for case, inputs in cases.items():
            outputs = loaded.run(signature, inputs)
            arrays.save(folder / "golden" / signature / f"{case}.in.npz", inputs)
            arrays.save(folder / "golden" / signature / f"{case}.out.npz", outputs)
            print(name, signature, case, {k: (v.dtype.str, v.shape) for k, v in outputs.items()})
    loaded.close()


if __name__ == "__main__":
    for model_name, model_class in MODELS.items():
        if len(sys.argv) == 1 or model_name in sys.argv[1:]:
            make(model_name, model_class)
