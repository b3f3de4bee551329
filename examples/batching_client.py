"""Puts several inputs into one request: one call, one run of the model, one answer for each.

    examples/batching_client.py localhost:8500 half_plus_two

Needs the packages tensorflow and tensorflow-serving-api. The first dimension of the input is the
batch: a request may carry as many rows as the model can take at once.
"""

import argparse

import grpc
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

TIMEOUT_SECONDS = 30


def predict(stub, model, rows, signature="serving_default", alias="x"):
    """Asks once for all rows; returns the answers as an array with as many rows."""
    request = predict_pb2.PredictRequest()
    request.model_spec.name = model
    request.model_spec.signature_name = signature
    request.inputs[alias].CopyFrom(tf.make_tensor_proto(rows, dtype=tf.float32))
    response = stub.Predict(request, timeout=TIMEOUT_SECONDS)
    (output,) = response.outputs.values()
    return tf.make_ndarray(output)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address", help="the gRPC address of the server, such as localhost:8500")
    parser.add_argument("model", help="the name of a model that takes one float input, x")
    args = parser.parse_args()
    with grpc.insecure_channel(args.address) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        requests = [1.0, 2.0, 5.0]
        predictions = predict(stub, args.model, requests)
    assert len(predictions) == len(requests)
    print(predictions)


if __name__ == "__main__":
    main()
