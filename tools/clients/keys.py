"""Asks a server that wants API keys, with gRPC's own client for Python.

    tools/clients/keys.py localhost:8500 KEY

KEY has the right `read` for the model `a`. The messages are written by hand: what is tried are the
keys in the metadata of a call.
"""

import argparse
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)

import tfenv


def command_line():
    """The parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address", metavar="HOST:PORT")
    parser.add_argument("key")
    return parser


if __name__ == "__main__":
    ARGS = tfenv.enter(command_line())

import grpc

TIMEOUT = 60
METHOD = "/tensorflow.serving.ModelService/GetModelStatus"


def status_of(model):
    """A GetModelStatusRequest: field 1 is a ModelSpec, whose field 1 is the name."""
    spec = b"\x0a" + bytes([len(model)]) + model.encode()
    return b"\x0a" + bytes([len(spec)]) + spec


def ask(channel, model, metadata):
    """The code of an answer."""
    try:
        channel.unary_unary(METHOD)(status_of(model), metadata=metadata, timeout=TIMEOUT)
        return grpc.StatusCode.OK
    except grpc.RpcError as error:
        return error.code()


def main(args):
    key = args.key
    code = grpc.StatusCode
    with grpc.insecure_channel(args.address) as channel:
        for model, metadata, expected in [
            ("a", [], code.UNAUTHENTICATED),
            ("a", [("x-api-key", "wrong")], code.UNAUTHENTICATED),
            ("a", [("x-api-key", key)], code.OK),
            ("a", [("authorization", f"Bearer {key}")], code.OK),
            ("b", [("x-api-key", key)], code.PERMISSION_DENIED),
        ]:
            found = ask(channel, model, metadata)
            assert found == expected, (model, metadata, found)
    print("all keys were treated as they should be")


if __name__ == "__main__":
    main(ARGS)
