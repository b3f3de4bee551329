"""Asks a running server over its UNIX socket with the unmodified client of TensorFlow Serving.

    tools/clients/unix_socket.py unix:/tmp/grpc.sock models

The server serves half_plus_two. The client is given nothing but the address: by default it sends
the percent-encoded path of the socket as `:authority`.
"""

import argparse
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)

import tfenv


def command_line():
    """The parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address")
    parser.add_argument("models_dir")
    return parser


if __name__ == "__main__":
    ARGS = tfenv.enter(command_line())

from clients.checks import TIMEOUT, Checks, expect, same

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import (get_model_status_pb2, model_service_pb2_grpc, predict_pb2,
                                     prediction_service_pb2_grpc)


def predict(channel, options=()):
    """Predicts twice, for the second call only refers to what the first one sent."""
    stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
    for value in (2.0, 5.0):
        request = predict_pb2.PredictRequest()
        request.model_spec.name = "half_plus_two"
        request.inputs["x"].CopyFrom(tf.make_tensor_proto([value], dtype=tf.float32))
        answer = stub.Predict(request, TIMEOUT, **dict(options))
        same(tf.make_ndarray(answer.outputs["y"]), np.array([value / 2 + 2], np.float32))


def status(channel):
    """Asks for the state of the versions."""
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = "half_plus_two"
    answer = model_service_pb2_grpc.ModelServiceStub(channel).GetModelStatus(request, TIMEOUT)
    expect(answer.model_version_status, "no versions")


def main(args):
    """Runs the checks."""
    address = args.address
    path = address.removeprefix("unix:")
    checks = Checks()
    for name in (address, f"unix://{path}"):
        with grpc.insecure_channel(name) as channel:
            checks.run(f"predicts over {name}", predict, channel)
            checks.run(f"status over {name}", status, channel)
    compressed = {"compression": grpc.Compression.Gzip}
    with grpc.insecure_channel(address) as channel:
        checks.run("predicts with packed requests", predict, channel, compressed)
    # Names that a client may choose itself, with and without what a host cannot have.
    for host in ("localhost", "a%2Fb", "%25", "x%20y:80"):
        with grpc.insecure_channel(address, [("grpc.default_authority", host)]) as channel:
            checks.run(f"predicts as {host}", predict, channel)
    checks.finish()


if __name__ == "__main__":
    main(ARGS)
