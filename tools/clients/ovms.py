"""Asks a running server with `ovmsclient`, over gRPC and, if its address is given, over HTTP.

    tools/clients/ovms.py localhost:8500 models [--rest localhost:8501]

The client knows only `serving_default`, and takes version 0 for its own default: the version is
always named here. Answers are compared with what TensorFlow computes from the same SavedModel.
"""

import argparse
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)

import tfenv


def command_line():
    """The parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("grpc_address", metavar="GRPC_HOST:PORT")
    parser.add_argument("models_dir", type=Path)
    parser.add_argument("--rest", metavar="REST_HOST:PORT")
    return parser


if __name__ == "__main__":
    ARGS = tfenv.enter(command_line())

from clients.checks import Checks, expect, golden_inputs, is_counter, latest, same

import numpy as np
import tensorflow as tf
from ovmsclient import make_grpc_client, make_http_client
from ovmsclient.tfs_compat.base.errors import InvalidInputError, ModelNotFoundError

import arrays
import reference


def to_client(array):
    """An array as ovmsclient takes it: strings of fixed width."""
    return arrays.to_storable(array)


def check_predict(client, model, loaded, inputs):
    """The default signature's answer."""
    want = loaded.run("serving_default", inputs)
    got = client.predict({k: to_client(v) for k, v in inputs.items()}, model,
                         int(loaded.folder.name), timeout=30.0)
    got = got if isinstance(got, dict) else {next(iter(want)): got}
    expect(got.keys() == want.keys(), f"outputs {sorted(got)}")
    for alias, value in want.items():
        mine = np.asarray(got[alias])
        if value.dtype == object:
            flat = [v if isinstance(v, bytes) else str(v).encode() for v in mine.reshape(-1)]
            mine = np.array(flat, dtype=object).reshape(mine.shape)
        else:
            mine = mine.astype(value.dtype)
        same(mine, value, alias)


def check_status(client, model):
    """The latest version is available."""
    version = int(latest(model).name)
    status = client.get_model_status(model.name, version)
    expect(status[version]["state"] == "AVAILABLE", f"{status}")
    expect(status[version]["error_code"] == 0, f"{status}")


def check_metadata(client, model, loaded):
    """Inputs and outputs of the default signature; gRPC only, over HTTP it reads other keys."""
    metadata = client.get_model_metadata(model.name, int(loaded.folder.name))
    spec = loaded.signatures["serving_default"]
    for kind, infos in (("inputs", spec.inputs), ("outputs", spec.outputs)):
        want = {k: {"shape": [d.size for d in i.tensor_shape.dim],
                    "dtype": f"DT_{tf.as_dtype(i.dtype).name.upper().replace('FLOAT32', 'FLOAT')}"}
                for k, i in infos.items()}
        expect(metadata[kind] == want, f"{kind} {metadata[kind]} instead of {want}")
    expect(metadata["model_version"] == int(loaded.folder.name), f"{metadata['model_version']}")


def check_raises(error, call, *args):
    """The call must raise the client's error."""
    try:
        answer = call(*args)
    except error:
        return
    expect(False, f"answered {answer}")


def check_client(checks, name, client, models):
    """Everything one client can ask."""
    for model in models:
        loaded = reference.Reference(latest(model))
        checks.run(f"{name} status {model.name}", check_status, client, model)
        if "serving_default" in loaded.signatures:
            if name == "grpc":
                checks.run(f"{name} metadata {model.name}", check_metadata, client, model, loaded)
            cases = golden_inputs(model.name, loaded.folder.name, "serving_default")
            for case, inputs in cases.items():
                if inputs and all(np.asarray(v).size and np.ndim(v) for v in inputs.values()):
                    checks.run(f"{name} predict {model.name} {case}", check_predict, client,
                               model.name, loaded, inputs)
        loaded.close()
    checks.run(f"{name} unknown model", check_raises, ModelNotFoundError, client.get_model_status,
               "nobody", 1)
    if any(model.name == "half_plus_two" for model in models):
        checks.run(f"{name} wrong dtype", check_raises, InvalidInputError, client.predict,
                   {"x": np.array([b"a"])}, "half_plus_two", 123)


def main(args):
    """Asks."""
    checks = Checks()
    models = [m for m in arrays.models(args.models_dir) if not is_counter(m)]
    check_client(checks, "grpc", make_grpc_client(args.grpc_address), models)
    if args.rest:
        check_client(checks, "http", make_http_client(args.rest), models)
    checks.finish()


if __name__ == "__main__":
    main(ARGS)
