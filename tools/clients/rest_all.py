"""Asks a running server over plain HTTP: predict in rows and columns, classify, regress, status,
metadata, and the mistakes clients make.

    tools/clients/rest_all.py localhost:8501 models

MODELS_DIR is the folder the server serves. Answers are compared with what TensorFlow computes here
from the same SavedModel.
"""

import argparse
import base64
import gzip
import http.client
import json
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)

import tfenv


def command_line():
    """The parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address", metavar="HOST:PORT")
    parser.add_argument("models_dir", type=Path)
    return parser


if __name__ == "__main__":
    ARGS = tfenv.enter(command_line())

from clients.checks import (TIMEOUT, Checks, all_signatures, class_pairs, examples_of, expect,
                            golden_inputs, is_classify, is_counter, is_regress, latest, same,
                            same_pairs)

import numpy as np
import tensorflow as tf
from google.protobuf import json_format
from tensorflow_serving.apis import get_model_metadata_pb2

import arrays
import reference

# What the REST face can read and write; all other dtypes are gRPC's.
JSON_DTYPES = {tf.float32, tf.float64, tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint32,
               tf.uint64, tf.bool, tf.string}


class Client:
    """One kept-alive connection."""

    def __init__(self, address):
        self.connection = http.client.HTTPConnection(
            address.removeprefix("http://").rstrip("/"), timeout=TIMEOUT)

    def ask(self, method, path, body=None, headers=None):
        """The status, the headers and the body of an answer."""
        try:
            self.connection.request(method, path, body, headers or {})
            answer = self.connection.getresponse()
            return answer.status, answer.headers, answer.read()
        except Exception:
            self.connection.close()
            raise

    def get(self, path):
        """The JSON of a GET that must succeed."""
        return good_json(*self.ask("GET", path))

    def post(self, path, body):
        """The JSON of a POST that must succeed; the body is text or to be written as JSON."""
        return good_json(*self.ask("POST", path, to_body(body)))


def to_body(body):
    """Bytes to send."""
    if isinstance(body, bytes):
        return body
    return (body if isinstance(body, str) else json.dumps(body)).encode()


def good_json(status, headers, body):
    """The JSON of an answer that must be 200."""
    expect(status == 200, f"{status}: {body[:300].decode(errors='replace')}")
    expect(headers["Content-Type"] == "application/json", f"Content-Type {headers['Content-Type']}")
    return json.loads(body)


def path_of(model, version=None, verb=""):
    """The path of a model."""
    place = f"/versions/{version}" if version is not None else ""
    return f"/v1/models/{model}{place}{verb}"


def to_json(value):
    """An array as JSON lists; bytes that are not text as {"b64": …}."""
    if isinstance(value, np.ndarray) and value.ndim:
        return [to_json(v) for v in value]
    if isinstance(value, np.ndarray):
        value = value.item()
    if isinstance(value, bytes):
        try:
            text = value.decode()
        except UnicodeDecodeError:
            text = None
        if text is not None and text.isprintable():
            return text
        return {"b64": base64.b64encode(value).decode()}
    return value.item() if isinstance(value, np.generic) else value


def from_json(value, want):
    """JSON lists as an array of the wanted dtype."""
    if want.dtype != object:
        return np.array(value, want.dtype) if want.size else np.zeros(want.shape, want.dtype)
    flat = np.array(value, dtype=object)
    return np.vectorize(lambda text: text.encode(), otypes=[object])(flat) if flat.size else flat


def is_jsonable(spec):
    """Whether every dtype of the signature exists in JSON."""
    infos = [*spec.inputs.values(), *spec.outputs.values()]
    return all(tf.as_dtype(i.dtype) in JSON_DTYPES for i in infos)


def is_plain_text(outputs):
    """Whether string outputs survive JSON (they are sent as they are)."""
    for array in outputs.values():
        for value in array.reshape(-1) if array.dtype == object else []:
            try:
                value.decode()
            except UnicodeDecodeError:
                return False
    return True


def check_columns(client, path, signature, inputs, want):
    """`inputs` → `outputs`."""
    values = {alias: to_json(np.asarray(v)) for alias, v in inputs.items()}
    for body in [values, *values.values()] if len(values) == 1 else [values]:
        answer = client.post(path, {"signature_name": signature, "inputs": body})
        expect(list(answer) == ["outputs"], f"keys {list(answer)}")
        got = answer["outputs"] if len(want) > 1 else {next(iter(want)): answer["outputs"]}
        expect(got.keys() == want.keys(), f"outputs {sorted(got)}")
        for alias in want:
            value = from_json(got[alias], want[alias])
            if want[alias].size == 0:
                # JSON lists cannot tell [0, 2] from [0].
                expect(value.size == 0, f"{alias}: {value} instead of nothing")
            else:
                same(value, want[alias], alias)


def check_rows(client, path, signature, inputs, want):
    """`instances` → `predictions`."""
    (alias, values), = inputs.items()
    plain = [to_json(v) for v in np.asarray(values)]
    for rows in (plain, [{alias: row} for row in plain]):
        answer = client.post(path, {"signature_name": signature, "instances": rows})
        expect(list(answer) == ["predictions"], f"keys {list(answer)}")
        got = answer["predictions"]
        expect(len(got) == len(plain), f"{len(got)} predictions for {len(plain)} instances")
        for name in want:
            column = [row[name] for row in got] if len(want) > 1 else got
            same(from_json(column, want[name]), want[name], name)


def feature_json(feature):
    """A feature of a tf.Example as classify and regress take it."""
    kind = feature.WhichOneof("kind")
    values = list(getattr(feature, kind).value) if kind else []
    if kind == "bytes_list":
        values = [to_json(v) for v in values]
    return values[0] if len(values) == 1 else values


def examples_json(inputs):
    """The examples of a golden case as JSON objects."""
    return [{name: feature_json(f) for name, f in sorted(e.features.feature.items())}
            for e in examples_of(inputs)]


def check_classify(client, path, signature, inputs, want):
    """`examples` → lists of [label, score]."""
    body = {"signature_name": signature, "examples": examples_json(inputs)}
    answer = client.post(path, body)
    expect(list(answer) == ["results"], f"keys {list(answer)}")
    expect(len(answer["results"]) == len(inputs["inputs"]), f"{len(answer['results'])} results")
    for row, pairs in enumerate(answer["results"]):
        same_pairs([(label, score) for label, score in pairs], class_pairs(want, row))


def check_regress(client, path, signature, inputs, want):
    """`examples` → values."""
    body = {"signature_name": signature, "examples": examples_json(inputs)}
    answer = client.post(path, body)
    expect(list(answer) == ["results"], f"keys {list(answer)}")
    same(np.array(answer["results"], np.float32), want["outputs"].reshape(-1), "results")


def check_status(client, model):
    """The status of the model and of its latest version."""
    version = latest(model).name.lstrip("0")
    for path in (path_of(model.name), path_of(model.name, version)):
        answer = client.get(path)
        top = answer["model_version_status"][0]
        want = {"version": version, "state": "AVAILABLE",
                "status": {"error_code": "OK", "error_message": ""}}
        expect(top == want, f"{top} instead of {want}")


def check_metadata(client, model, folder):
    """The signatures of the SavedModel, every field printed."""
    version = str(int(folder.name))
    answer = client.get(path_of(model.name, version, "/metadata"))
    spec = {"name": model.name, "signature_name": "", "version": version}
    expect(answer["model_spec"] == spec, f"model_spec {answer['model_spec']}")
    want = get_model_metadata_pb2.SignatureDefMap()
    for key, value in all_signatures(folder).items():
        want.signature_def[key].CopyFrom(value)
    text = json_format.MessageToDict(want, preserving_proto_field_name=True,
                                     always_print_fields_with_no_presence=True)
    got = answer["metadata"]["signature_def"]["signature_def"]
    expect(got.keys() == text["signature_def"].keys(), f"signatures {sorted(got)}")
    for key, value in text["signature_def"].items():
        expect(without_type(got[key]) == value, f"{key}: {got[key]} instead of {value}")


def without_type(value):
    """JSON without `@type`, which an Any brings along."""
    if isinstance(value, dict):
        return {k: without_type(v) for k, v in value.items() if k != "@type"}
    return [without_type(v) for v in value] if isinstance(value, list) else value


def check_version(checks, client, model, folder):
    """Every signature of one version, asked with the golden inputs."""
    loaded = reference.Reference(folder)
    version = int(folder.name)
    checks.run(f"metadata {model.name}/{version}", check_metadata, client, model, folder)
    for signature, spec in sorted(loaded.signatures.items()):
        if not spec.inputs:
            continue
        for case, inputs in golden_inputs(model.name, version, signature).items():
            if not inputs:
                continue
            title = f"{model.name}/{version} {signature} {case}"
            check_case(checks, client, loaded, (model.name, version, signature, title), inputs)
    loaded.close()


def check_case(checks, client, loaded, place, inputs):
    """One golden case in every form that fits it."""
    model, version, signature, title = place
    spec = loaded.signatures[signature]
    predict = path_of(model, version, ":predict")
    if not is_jsonable(spec):
        checks.run(f"unsupported dtype {title}", check_unsupported, client, predict, signature,
                   inputs)
        return
    want = loaded.run(signature, inputs)
    sizes = {np.asarray(v).shape[:1] for v in [*inputs.values(), *want.values()]}
    # A list without elements says nothing of the dimensions behind the first.
    empty = any(np.asarray(v).size == 0 for v in inputs.values())
    if is_plain_text(want) and (not empty or all(np.ndim(v) == 1 for v in inputs.values())):
        checks.run(f"columns {title}", check_columns, client, predict, signature, inputs, want)
        if not empty and len(sizes) == 1 and () not in sizes:
            checks.run(f"rows {title}", check_rows, client, predict, signature, inputs, want)
    if is_classify(spec) and not empty:
        checks.run(f"classify {title}", check_classify, client,
                   path_of(model, version, ":classify"), signature, inputs, want)
    if is_regress(spec) and not empty:
        checks.run(f"regress {title}", check_regress, client,
                   path_of(model, version, ":regress"), signature, inputs, want)


def check_unsupported(client, path, signature, inputs):
    """A dtype that JSON cannot carry is refused with a 4xx or 501, never answered wrongly."""
    (value,) = inputs.values()
    if np.asarray(value).size == 0:
        return
    plain = np.zeros(np.shape(value)).tolist()
    status, _, body = client.ask("POST", path, to_body(
        {"signature_name": signature, "inputs": plain}))
    expect(status == 501, f"{status}: {body[:200]}")
    expect("error" in json.loads(body), "no error in the body")


def check_exact(client, method, path, body, want):
    """The answer's bytes, as TensorFlow Serving lays them out."""
    status, _, got = client.ask(method, path, to_body(body) if body is not None else None)
    expect(status == 200 and got.decode() == want, f"{status} {got!r} instead of {want!r}")


def layouts():
    """Title, path, body and the exact text of the answer."""
    half = path_of("half_plus_two", verb=":predict")
    rows = '{\n    "predictions": [2.5, 3.0, 4.5\n    ]\n}'
    return [
        ("rows", half, {"instances": [1.0, 2.0, 5.0]}, rows),
        ("rows of objects", half, {"instances": [{"x": 1.0}, {"x": 2.0}, {"x": 5.0}]}, rows),
        ("rows of whole numbers", half, {"instances": [1, 2, 5]}, rows),
        ("text after the JSON", half, '{"instances": [1, 2, 5]} and more', rows),
        ("a byte order mark", half, b"\xef\xbb\xbf" + b'{"instances": [1, 2, 5]}', rows),
        ("columns", half, {"inputs": [1.0, 2.0]},
         '{\n    "outputs": [\n        2.5,\n        3.0\n    ]\n}'),
        ("a scalar", half, {"inputs": 4}, '{\n    "outputs": 4.0\n}'),
        ("not a number", half, '{"instances": [NaN, Infinity, -Infinity]}',
         '{\n    "predictions": [NaN, Infinity, -Infinity\n    ]\n}'),
        ("short floats", half, {"instances": [0.2, 18000000, 246913580]},
         '{\n    "predictions": [2.1, 9000002.0, 123456792.0\n    ]\n}'),
        ("regress", path_of("half_plus_two", verb=":regress"),
         {"signature_name": "regress_x_to_y", "examples": [{"x": 2.0}, {"x": 4.0}]},
         '{\n    "results": [3.0, 4.0]\n}'),
        ("classify", path_of("half_plus_two", verb=":classify"),
         {"signature_name": "classify_x_to_y", "examples": [{"x": 2.0}]},
         '{\n    "results": [[["", 3.0]]\n    ]\n}'),
        ("regress with a context", path_of("half_plus_two", verb=":regress"),
         {"signature_name": "regress_x_to_y", "context": {"x": 2.0}, "examples": [{}, {}]},
         '{\n    "results": [3.0, 3.0]\n}'),
    ]


def check_refused(client, method, path, body, status, text):
    """The answer is an error with the status and a text."""
    got, headers, answer = client.ask(method, path, to_body(body) if body is not None else None)
    expect(got == status, f"{got} instead of {status}: {answer[:300]!r}")
    expect(headers["Content-Type"] == "application/json", f"Content-Type {headers['Content-Type']}")
    message = json.loads(answer)["error"]
    expect(text in message, f"{message!r} lacks {text!r}")


def url_errors():
    """Mistakes in the URL or the method: title, method, path, body, status, text."""
    one = {"instances": [1.0]}
    return [
        ("no such model", "POST", path_of("nobody", verb=":predict"), one, 404,
         "Servable not found for request: Latest(nobody)"),
        ("no such version", "POST", path_of("half_plus_two", 7, ":predict"), one, 404,
         "Servable not found for request: Specific(half_plus_two, 7)"),
        ("unknown label", "POST", "/v1/models/half_plus_two/labels/canary:predict", one, 400,
         "Unrecognized servable version label: canary"),
        ("a version that is too large", "POST", path_of("half_plus_two", 10**20, ":predict"), one,
         400, "Failed to convert version: 100000000000000000000 to numeric."),
        ("an unknown verb", "POST", path_of("half_plus_two", verb=":guess"), one, 400,
         "Malformed request: POST /v1/models/half_plus_two:guess"),
        ("predict with GET", "GET", path_of("half_plus_two", verb=":predict"), None, 400,
         "Malformed request: GET"),
        ("a query string", "POST", path_of("half_plus_two", verb=":predict?x=1"), one, 400,
         "Malformed request: POST"),
        ("status of no such model", "GET", path_of("nobody"), None, 404,
         "Could not find any versions of model nobody"),
        ("status of no such version", "GET", path_of("half_plus_two", 7), None, 404,
         "Could not find version 7 of model half_plus_two"),
        ("metadata of no such model", "GET", path_of("nobody", verb="/metadata"), None, 404,
         "Servable not found"),
    ]


def predict_errors():
    """Mistakes in the body of predict: title, body, text; all are 400."""
    return [
        ("an empty body", "", "The document is empty"),
        ("not JSON", "nonsense", "JSON Parse error: Invalid value. at offset:"),
        ("not an object", "[1, 2]", "Is not object"),
        ("neither key", {"other": 1}, "Missing 'inputs' or 'instances' key"),
        ("both keys", {"inputs": [1], "instances": [1]},
         "expecting only one of 'inputs' or 'instances' keys to exist"),
        ("instances that are no list", {"instances": 1},
         "Expecting 'instances' to be an list/array"),
        ("no instances", {"instances": []}, "No values in 'instances' array"),
        ("a string for a number", {"instances": ["one"]},
         "Type: String is not of expected type: float"),
        ("rows of different length", {"instances": [[1.0], [1.0, 2.0]]}, "Expecting tensor size:"),
        ("ragged columns", {"inputs": [[1.0, 2.0], [3.0]]}, "Encountered list at unexpected size"),
        ("an unknown input", {"instances": [{"z": 1.0}]}, "Failed to process element: 0"),
        ("an unknown signature", {"signature_name": "nothing", "instances": [1.0]},
         'Serving signature name: "nothing" not found in signature def'),
        ("base64 that is none", {"signature_name": "regress_x_to_y",
                                 "inputs": [{"b64": "not base64!"}]}, "Unable to base64 decode"),
        ("an example without the feature", {"signature_name": "regress_x_to_y",
                                            "inputs": [{"b64": ""}]},
         "Feature: x (data type: float) is required but could not be found"),
    ]


def example_errors():
    """Mistakes in the body of classify and regress: title, body, text; all are 400."""
    def body(**keys):
        return {"signature_name": "regress_x_to_y", **keys}

    return [
        ("no examples", body(), "key 'examples' is expected and was not found"),
        ("examples that are no list", body(examples={}),
         "Expecting 'examples' value to be an list/array"),
        ("an empty list of examples", body(examples=[]), "'examples' value is an empty array"),
        ("an example that is a list", body(examples=[[1.0]]), "Example must be JSON object"),
        ("a feature that is null", body(examples=[{"x": None}]),
         "has element with unexpected JSON type"),
        ("kinds mixed in a feature", body(examples=[{"x": [1.0, "a"]}]),
         "Unexpected element type in feature: x"),
        ("an integer for a float", body(examples=[{"x": 2}]), "Data types don't match"),
        ("a feature that is missing", body(examples=[{"z": 2.0}]),
         "is required but could not be found"),
        ("an unknown signature", {"signature_name": "nothing", "examples": [{"x": 1.0}]},
         "No signature was found with the name: nothing"),
    ]


def check_options(client):
    """OPTIONS is answered for browsers."""
    status, _, body = client.ask("OPTIONS", path_of("half_plus_two", verb=":predict"),
                                 headers={"Origin": "http://example.com"})
    expect(status == 200 and body == b"", f"{status} {body!r}")


def check_gzip(client):
    """A compressed request."""
    body = gzip.compress(b'{"instances": [1.0]}')
    answer = good_json(*client.ask("POST", path_of("half_plus_two", verb=":predict"), body,
                                   {"Content-Encoding": "gzip"}))
    expect(answer == {"predictions": [2.5]}, f"{answer}")


def check_escapes(client):
    """A model's name may be %-escaped, and the path's case does not matter."""
    answer = client.post("/V1/Models/half%5Fplus_two:predict", {"instances": [1.0]})
    expect(answer == {"predictions": [2.5]}, f"{answer}")


def check_models_page(client):
    """No model named: an error as in TensorFlow Serving, or, under tensord's own name, a list."""
    status, _, body = client.ask("GET", "/v1/models")
    if status == 200:
        names = [model["name"] for model in json.loads(body)["models"]]
        expect("half_plus_two" in names, f"models {names}")
    else:
        check_refused(client, "GET", "/v1/models", None, 400, "Missing model name in request.")


def check_no_inputs(client, model):
    """A signature without inputs cannot be called over REST."""
    check_refused(client, "POST", path_of(model.name, verb=":predict"),
                  {"signature_name": "get_counter", "instances": [1.0]}, 400,
                  "Failed to get input map for signature: get_counter")


def available(client, model):
    """The folders of the versions that the server has ready."""
    rows = client.get(path_of(model.name))["model_version_status"]
    ready = {int(r["version"]) for r in rows if r["state"] == "AVAILABLE"}
    return [v for v in arrays.versions(model) if int(v.name) in ready]


def check_half_plus_two(checks, client):
    """Layouts and mistakes, on the model everybody knows."""
    for title, path, body, want in layouts():
        checks.run(f"layout: {title}", check_exact, client, "POST", path, body, want)
    for title, method, path, body, status, text in url_errors():
        checks.run(f"error: {title}", check_refused, client, method, path, body, status, text)
    predict = path_of("half_plus_two", verb=":predict")
    for title, body, text in predict_errors():
        checks.run(f"error: {title}", check_refused, client, "POST", predict, body, 400, text)
    for verb in (":classify", ":regress"):
        path = path_of("half_plus_two", verb=verb)
        for title, body, text in example_errors():
            if verb == ":classify" and "signature_name" in body:
                name = body["signature_name"].replace("regress_", "classify_")
                body = {**body, "signature_name": name}
            checks.run(f"error: {verb[1:]}: {title}", check_refused, client, "POST", path, body,
                       400, text)
    checks.run("no model name", check_models_page, client)
    checks.run("OPTIONS", check_options, client)
    checks.run("a compressed request", check_gzip, client)
    checks.run("escapes and case in the path", check_escapes, client)


def main(args):
    """Asks."""
    checks, client = Checks(), Client(args.address)
    models = arrays.models(args.models_dir)
    for model in models:
        checks.run(f"status {model.name}", check_status, client, model)
        if is_counter(model):
            checks.run(f"no inputs {model.name}", check_no_inputs, client, model)
            continue
        for folder in available(client, model):
            check_version(checks, client, model, folder)
    if any(m.name == "half_plus_two" for m in models):
        check_half_plus_two(checks, client)
    checks.finish()


if __name__ == "__main__":
    main(ARGS)
