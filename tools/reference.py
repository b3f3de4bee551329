"""TensorFlow's own answers of a SavedModel, asked the way TensorFlow Serving asks: by a session."""

from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

v1 = tf.compat.v1
INIT_OP = "__saved_model_init_op"


class Reference:
    """A loaded SavedModel; `signatures` are the SignatureDefs by name, without the init op."""

    def __init__(self, folder, threads=0):
        self.folder = Path(folder)
        config = v1.ConfigProto(intra_op_parallelism_threads=threads,
                                inter_op_parallelism_threads=threads)
        self.session = v1.Session(graph=tf.Graph(), config=config)
        with self.session.graph.as_default():
            meta = v1.saved_model.loader.load(self.session, ["serve"], str(folder))
        self.signatures = {k: s for k, s in meta.signature_def.items() if k != INIT_OP}

    def run(self, signature, inputs, outputs=None):
        """The outputs by alias; inputs that are not given take the signature's defaults."""
        spec = self.signatures[signature]
        values = [np.asarray(inputs[alias]) if alias in inputs
                  else tf.make_ndarray(spec.defaults[alias]) for alias in spec.inputs]
        fetches = {alias: info.name for alias, info in spec.outputs.items()
                   if outputs is None or alias in outputs}
        # Unlike `session.run`, a callable does not compare a fed shape with the graph's:
        # neither does TensorFlow Serving.
        options = config_pb2.CallableOptions(
            feed=[info.name for info in spec.inputs.values()], fetch=fetches.values())
        answer = self.session._make_callable_from_options(options)(*values)
        return dict(zip(fetches, map(np.asarray, answer)))

    def close(self):
        """Frees the session."""
        self.session.close()
