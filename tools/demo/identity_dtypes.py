"""`identity_dtypes`: a signature a dtype that answers what it was sent."""

import tensorflow as tf

README = """# identity_dtypes

Answers what it was sent, for tests of the wire: one signature a dtype ({names}), x → y.
The shape is not restricted. `serving_default` is the one for float32.
"""

DTYPES = [
    tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.int8, tf.int16, tf.int32, tf.int64,
    tf.uint8, tf.uint16, tf.uint32, tf.uint64, tf.bool, tf.string, tf.complex64, tf.complex128,
]


def identity(dtype):
    """The function of one dtype."""

    @tf.function(input_signature=[tf.TensorSpec(None, dtype, name="x")])
    def answer(x):
        return {"y": tf.identity(x)}

    return answer


def make(folder):
    """Exports version 1."""
    model = tf.Module()
    signatures = {dtype.name: identity(dtype) for dtype in DTYPES}
    model.functions = list(signatures.values())
    tf.saved_model.save(model, str(folder / "1"),
                        {**signatures, "serving_default": signatures["float32"]})
    return README.format(names=", ".join(signatures))
