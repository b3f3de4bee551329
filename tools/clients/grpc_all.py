"""Asks a running server all six RPCs with the unmodified client of TensorFlow Serving.

    tools/clients/grpc_all.py localhost:8500 models

MODELS_DIR is the folder the server serves. Every model, version and signature is asked with the
inputs in `testdata/golden`, and the answers are compared with what TensorFlow computes here from
the same SavedModel; then come the mistakes clients make and the codes and texts they rely on.
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
    parser.add_argument("models_dir", type=Path)
    return parser


if __name__ == "__main__":
    ARGS = tfenv.enter(command_line())

from clients.checks import (TIMEOUT, Checks, all_signatures, class_pairs, examples_of, expect,
                            float_example, golden_inputs, is_classify, is_counter, is_regress,
                            latest, same, same_outputs, same_pairs)

import grpc
import numpy as np
import tensorflow as tf
from grpc import StatusCode
from tensorflow_serving.apis import (classification_pb2, get_model_metadata_pb2,
                                     get_model_status_pb2, inference_pb2, input_pb2, model_pb2,
                                     model_service_pb2_grpc, predict_pb2,
                                     prediction_service_pb2_grpc, regression_pb2)

import arrays
import reference

CLASSIFY, REGRESS = "tensorflow/serving/classify", "tensorflow/serving/regress"


class Client:
    """The two stubs, and requests in a few words."""

    def __init__(self, address):
        channel = grpc.insecure_channel(address, [("grpc.max_receive_message_length", -1)])
        grpc.channel_ready_future(channel).result(timeout=TIMEOUT)
        self.channel = channel
        self.prediction = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        self.models = model_service_pb2_grpc.ModelServiceStub(channel)

    def predict(self, spec, inputs, output_filter=()):
        """Predict; inputs are arrays or TensorProtos."""
        request = predict_pb2.PredictRequest(model_spec=spec, output_filter=output_filter)
        for alias, value in inputs.items():
            request.inputs[alias].CopyFrom(to_proto(value))
        return self.prediction.Predict(request, TIMEOUT)

    def classify(self, spec, examples, context=None):
        """Classify."""
        return self.prediction.Classify(classification_pb2.ClassificationRequest(
            model_spec=spec, input=to_input(examples, context)), TIMEOUT)

    def regress(self, spec, examples, context=None):
        """Regress."""
        return self.prediction.Regress(regression_pb2.RegressionRequest(
            model_spec=spec, input=to_input(examples, context)), TIMEOUT)

    def multi(self, tasks, examples):
        """MultiInference with (spec, method) pairs."""
        return self.prediction.MultiInference(inference_pb2.MultiInferenceRequest(
            tasks=[inference_pb2.InferenceTask(model_spec=s, method_name=m) for s, m in tasks],
            input=to_input(examples)), TIMEOUT)

    def metadata(self, spec, fields=("signature_def",)):
        """GetModelMetadata."""
        return self.prediction.GetModelMetadata(get_model_metadata_pb2.GetModelMetadataRequest(
            model_spec=spec, metadata_field=fields), TIMEOUT)

    def status(self, spec):
        """GetModelStatus."""
        return self.models.GetModelStatus(
            get_model_status_pb2.GetModelStatusRequest(model_spec=spec), TIMEOUT)


def spec_of(name, version=None, signature="", label=None):
    """A ModelSpec."""
    spec = model_pb2.ModelSpec(name=name, signature_name=signature)
    if version is not None:
        spec.version.value = version
    if label is not None:
        spec.version_label = label
    return spec


def to_proto(value):
    """A TensorProto of an array."""
    if isinstance(value, tf.make_tensor_proto(0).__class__):
        return value
    value = np.asarray(value)
    return tf.make_tensor_proto(value, tf.string if value.dtype == object else value.dtype)


def typed_proto(array):
    """A TensorProto that holds its values in the typed field instead of in `tensor_content`."""
    array = np.asarray(array)
    proto = tf.make_tensor_proto(array[..., None][:0], array.dtype)
    proto.tensor_shape.CopyFrom(tf.TensorShape(array.shape).as_proto())
    proto.tensor_content = b""
    proto.float_val.extend(array.reshape(-1).tolist())
    return proto


def to_input(examples, context=None):
    """The Input message of Classify and Regress."""
    if context is None:
        return input_pb2.Input(example_list=input_pb2.ExampleList(examples=examples))
    return input_pb2.Input(example_list_with_context=input_pb2.ExampleListWithContext(
        examples=examples, context=context))


def check_predict(client, loaded, spec, inputs):
    """Predict answers what TensorFlow does, and says which model answered."""
    answer = client.predict(spec, inputs)
    want = loaded.run(spec.signature_name, inputs)
    same_outputs({k: tf.make_ndarray(t) for k, t in answer.outputs.items()}, want)
    expect(not any(t.tensor_content for t in answer.outputs.values()), "tensor_content is used")
    check_spec(answer.model_spec, spec, loaded)


def check_spec(got, spec, loaded):
    """The model spec of an answer."""
    expect(got.name == spec.name, f"name {got.name}")
    expect(got.version.value == int(loaded.folder.name), f"version {got.version.value}")
    expect(got.signature_name == (spec.signature_name or "serving_default"),
           f"signature_name {got.signature_name!r}")
    expect(got.WhichOneof("version_choice") == "version", "a label is echoed")


def check_filter(client, loaded, spec, inputs, alias):
    """Predict with one output asked for."""
    answer = client.predict(spec, inputs, [alias])
    same_outputs({k: tf.make_ndarray(t) for k, t in answer.outputs.items()},
                 loaded.run(spec.signature_name, inputs, [alias]))


def check_classify(client, loaded, spec, inputs):
    """Classify answers the rows of `classes` and `scores`."""
    if len(inputs["inputs"]) == 0:
        refused(StatusCode.INVALID_ARGUMENT, "Input is empty", client.classify, spec, [])
        return
    answer = client.classify(spec, examples_of(inputs))
    want = loaded.run(spec.signature_name, inputs)
    compare_classes(answer.result, want, len(inputs["inputs"]))
    check_spec(answer.model_spec, spec, loaded)


def compare_classes(result, want, count):
    """Compares a ClassificationResult with TensorFlow's outputs."""
    expect(len(result.classifications) == count, f"{len(result.classifications)} rows")
    for row, classes in enumerate(result.classifications):
        same_pairs([(c.label, c.score) for c in classes.classes], class_pairs(want, row))


def check_regress(client, loaded, spec, inputs):
    """Regress answers the values of `outputs`."""
    if len(inputs["inputs"]) == 0:
        refused(StatusCode.INVALID_ARGUMENT, "Input is empty", client.regress, spec, [])
        return
    answer = client.regress(spec, examples_of(inputs))
    compare_values(answer.result, loaded.run(spec.signature_name, inputs))
    check_spec(answer.model_spec, spec, loaded)


def compare_values(result, want):
    """Compares a RegressionResult with TensorFlow's outputs."""
    got = np.array([r.value for r in result.regressions], np.float32)
    same(got, want["outputs"].reshape(-1).astype(np.float32), "regressions")


def check_multi(client, loaded, name, signatures, inputs):
    """MultiInference answers all tasks in order from one input."""
    version = int(loaded.folder.name)
    specs = {s: spec_of(name, version, s) for s in signatures}
    methods = {s: CLASSIFY if is_classify(loaded.signatures[s]) else REGRESS for s in signatures}
    answer = client.multi([(specs[s], methods[s]) for s in signatures], examples_of(inputs))
    expect(len(answer.results) == len(signatures), f"{len(answer.results)} results")
    for signature, result in zip(signatures, answer.results):
        want = loaded.run(signature, inputs)
        if methods[signature] == CLASSIFY:
            compare_classes(result.classification_result, want, len(inputs["inputs"]))
        else:
            compare_values(result.regression_result, want)
        check_spec(result.model_spec, specs[signature], loaded)


def check_metadata(client, name, folder):
    """GetModelMetadata answers the SavedModel's signatures unchanged."""
    answer = client.metadata(spec_of(name, int(folder.name)))
    expect(answer.model_spec.name == name, f"name {answer.model_spec.name}")
    expect(answer.model_spec.version.value == int(folder.name), "another version")
    expect(list(answer.metadata) == ["signature_def"], f"metadata {list(answer.metadata)}")
    packed = answer.metadata["signature_def"]
    signatures = get_model_metadata_pb2.SignatureDefMap()
    expect(packed.Unpack(signatures), f"type {packed.type_url}")
    want = all_signatures(folder)
    expect(set(signatures.signature_def) == set(want), f"{sorted(signatures.signature_def)}")
    for key, value in want.items():
        expect(signatures.signature_def[key] == value, f"signature {key} differs")


def check_status(client, model):
    """GetModelStatus shows the highest version available, highest first."""
    answer = client.status(spec_of(model.name))
    versions = [s.version for s in answer.model_version_status]
    expect(versions == sorted(versions, reverse=True), f"versions {versions}")
    top = answer.model_version_status[0]
    expect(top.version == int(latest(model).name), f"version {top.version}")
    expect(top.state == get_model_status_pb2.ModelVersionStatus.AVAILABLE, f"state {top.state}")
    expect(top.status.error_code == 0 and not top.status.error_message, f"status {top.status}")
    one = client.status(spec_of(model.name, top.version)).model_version_status
    expect([s.version for s in one] == [top.version], "the version alone")


def available(client, model):
    """The folders of the versions that the server has ready."""
    ready = {s.version for s in client.status(spec_of(model.name)).model_version_status
             if s.state == get_model_status_pb2.ModelVersionStatus.AVAILABLE}
    return [v for v in arrays.versions(model) if int(v.name) in ready]


def refused(code, text, call, *args):
    """The call must fail with the code and a message that contains the text."""
    try:
        answer = call(*args)
    except grpc.RpcError as error:
        expect(error.code() == code, f"{error.code().name} ({error.details()}) for {code.name}")
        expect(text in error.details(), f"{error.details()!r} lacks {text!r}")
    else:
        expect(False, f"answered {str(answer)[:100]!r} instead of {code.name}")


def check_version(checks, client, model, folder):
    """Every signature of one version."""
    loaded = reference.Reference(folder)
    place = f"{model.name}/{folder.name}"
    checks.run(f"metadata {place}", check_metadata, client, model.name, folder)
    shared = {}
    for signature, definition in sorted(loaded.signatures.items()):
        spec = spec_of(model.name, int(folder.name), signature)
        for case, inputs in golden_inputs(model.name, folder.name, signature).items():
            title = f"{place} {signature} {case}"
            checks.run(f"predict {title}", check_predict, client, loaded, spec, inputs)
            if is_classify(definition):
                checks.run(f"classify {title}", check_classify, client, loaded, spec, inputs)
            if is_regress(definition):
                checks.run(f"regress {title}", check_regress, client, loaded, spec, inputs)
            if is_classify(definition) or is_regress(definition):
                if len(inputs["inputs"]):
                    shared.setdefault(case, (inputs, []))[1].append(signature)
        inputs = golden_inputs(model.name, folder.name, signature).get("batch3")
        for alias in definition.outputs if inputs else []:
            checks.run(f"output_filter {place} {signature} {alias}", check_filter, client, loaded,
                       spec, inputs, alias)
    for case, (inputs, signatures) in shared.items():
        checks.run(f"multi {place} {case} {'+'.join(signatures)}", check_multi, client, loaded,
                   model.name, signatures, inputs)
    loaded.close()


def check_counter(client, name):
    """A counter counts; the changes of one request are seen by the next."""
    def ask(signature, **inputs):
        answer = client.predict(spec_of(name, signature=signature), inputs)
        return float(tf.make_ndarray(answer.outputs["output"]))

    got = [ask("reset_counter"), ask("incr_counter"), ask("incr_counter"),
           ask("incr_counter_by", delta=np.float32(2.5)), ask("get_counter"), ask("reset_counter"),
           ask("get_counter")]
    expect(got == [0, 1, 2, 4.5, 4.5, 0, 0], f"counted {got}")


def check_wire(checks, client):
    """The ways a TensorProto may hold its values, on half_plus_two."""
    spec = spec_of("half_plus_two")

    def ask(proto):
        return tf.make_ndarray(client.predict(spec, {"x": proto}).outputs["y"])

    def typed():
        same(ask(typed_proto(np.float32([1, 2, 5]))), np.float32([2.5, 3, 4.5]))

    def repeated():
        proto = typed_proto(np.float32([4]))
        proto.tensor_shape.dim[0].size = 3
        same(ask(proto), np.float32([4, 4, 4]))

    def zeros():
        proto = typed_proto(np.float32([]))
        proto.tensor_shape.dim[0].size = 2
        same(ask(proto), np.float32([2, 2]))

    def unfit():
        proto = to_proto(np.float32([1, 2]))
        proto.tensor_content = proto.tensor_content[:-1]
        refused(StatusCode.INVALID_ARGUMENT, "tensor parsing error: x", ask, proto)

    checks.run("tensor with typed values", typed)
    checks.run("tensor whose last value repeats", repeated)
    checks.run("tensor without values is zeros", zeros)
    checks.run("tensor_content of the wrong size", unfit)


def check_context(client, name, signature):
    """The context's features are merged into every example."""
    spec = spec_of(name, signature=signature)
    answer = client.regress(spec, [tf.train.Example(), tf.train.Example()], float_example(x=4.0))
    values = [r.value for r in answer.result.regressions]
    expect(values == [4.0, 4.0], f"values {values}")


def predict_errors(client):
    """Mistakes with Predict: title, code, text, call."""
    bad, unready = StatusCode.INVALID_ARGUMENT, StatusCode.FAILED_PRECONDITION
    x = {"x": np.float32([1])}
    half = spec_of("half_plus_two")
    ask = client.predict
    return [
        ("no such model", StatusCode.NOT_FOUND, "Servable not found for request: Latest(nobody)",
         ask, spec_of("nobody"), x),
        ("no such model without inputs", StatusCode.NOT_FOUND, "Servable", ask,
         spec_of("nobody"), {}),
        ("no such version", StatusCode.NOT_FOUND,
         "Servable not found for request: Specific(half_plus_two, 7)", ask,
         spec_of("half_plus_two", 7), x),
        ("no name", bad, "ModelSpec has no name specified.", ask, spec_of(""), x),
        ("no model spec", bad, "Missing ModelSpec", ask, None, x),
        ("unknown label", bad, "Unrecognized servable version label: canary", ask,
         spec_of("half_plus_two", label="canary"), x),
        ("unknown signature", unready, 'Serving signature key "nothing" not found.', ask,
         spec_of("half_plus_two", signature="nothing"), x),
        ("missing input", bad, "input size does not match signature", ask, half, {}),
        ("missing input is named", bad, "Missing but required: {x}", ask, half, {}),
        ("extra input", bad, "Sent extra: {z}", ask, half, {**x, "z": np.float32([1])}),
        ("wrong input name", bad, "not found in request", ask, half, {"z": np.float32([1])}),
        ("wrong dtype", bad, "Expects arg[0] to be float but bool is provided", ask, half,
         {"x": np.array([True])}),
        ("wrong dtype, string", bad, "Expects arg[0] to be float but string is provided", ask, half,
         {"x": np.array([b"a"], object)}),
        ("unknown output", bad, "output tensor alias not found in signature: nothing", ask, half, x,
         ["nothing"]),
        ("output asked twice", bad, "duplicate output tensor alias: y", ask, half, x, ["y", "y"]),
        ("example that does not parse", bad, "Could not parse example input", ask,
         spec_of("half_plus_two", signature="regress_x_to_y"),
         {"inputs": np.array([b"not an example"], object)}),
    ]


def example_errors(client):
    """Mistakes with Classify, Regress and MultiInference."""
    bad = StatusCode.INVALID_ARGUMENT
    good = [float_example(x=1.0)]
    whole = tf.train.Example(features=tf.train.Features(feature={
        "x": tf.train.Feature(int64_list=tf.train.Int64List(value=[1]))}))

    def half(signature):
        return spec_of("half_plus_two", signature=signature)

    regress, classify = half("regress_x_to_y"), half("classify_x_to_y")
    return [
        ("classify no such model", StatusCode.NOT_FOUND, "Servable not found", client.classify,
         spec_of("nobody"), good),
        ("classify unknown signature", bad, "No signature was found with the name: nothing",
         client.classify, half("nothing"), good),
        ("regress unknown signature", bad, "No signature was found with the name: nothing",
         client.regress, half("nothing"), good),
        ("classify a predict signature", bad, "No classification inputs found in SignatureDef",
         client.classify, half(""), good),
        ("regress a predict signature", bad, "No regression inputs found in SignatureDef",
         client.regress, half(""), good),
        ("classify with a float input", bad, "Expects arg[0] to be float but string is provided",
         client.classify, half("classify_x2_to_y3"), good),
        ("classify nothing", bad, "Input is empty", client.classify, classify, []),
        ("regress nothing", bad, "Input is empty", client.regress, regress, []),
        ("example without the feature", bad,
         "Feature: x (data type: float) is required but could not be found", client.regress,
         regress, [float_example(z=1.0)]),
        ("example with integers for floats", bad, "Data types don't match", client.regress,
         regress, [whole]),
        ("example with two values for one", bad, "Values size: 2 but output shape: [1]",
         client.regress, regress, [float_example(x=[1.0, 2.0])]),
        ("multi without tasks", bad, "ModelSpec has no name specified.", client.multi, [], good),
        ("multi with two models", bad, "must access the same model name", client.multi,
         [(regress, REGRESS), (spec_of("clicks", signature="regress"), REGRESS)], good),
        ("multi with a signature twice", bad, "Duplicate evaluation of signature: regress_x_to_y",
         client.multi, [(regress, REGRESS), (regress, REGRESS)], good),
        ("multi with an unknown signature", bad, "Requested signature not found in model graph",
         client.multi, [(half("nothing"), REGRESS)], good),
        ("multi with predict", StatusCode.UNIMPLEMENTED, "Unsupported signature method_name",
         client.multi, [(regress, "tensorflow/serving/predict")], good),
    ]


def model_errors(client):
    """Mistakes with metadata and status, and methods that do not exist."""
    bad = StatusCode.INVALID_ARGUMENT
    half = spec_of("half_plus_two")
    strange = client.channel.unary_unary("/tensorflow.serving.PredictionService/Foresee")
    session = client.channel.unary_unary("/tensorflow.serving.SessionService/SessionRun")
    return [
        ("metadata of no field", bad, "must specify at least one metadata_field",
         client.metadata, half, []),
        ("metadata of an unknown field", bad, "Metadata field weather is not supported",
         client.metadata, half, ["weather"]),
        ("metadata of no such model", StatusCode.NOT_FOUND, "Servable not found", client.metadata,
         spec_of("nobody")),
        ("status without a model spec", bad, "Missing ModelSpec", client.status, None),
        ("status of no such model", StatusCode.NOT_FOUND,
         "Could not find any versions of model nobody", client.status, spec_of("nobody")),
        ("status of no such version", StatusCode.NOT_FOUND,
         "Could not find version 7 of model half_plus_two", client.status,
         spec_of("half_plus_two", 7)),
        ("unknown method", StatusCode.UNIMPLEMENTED, "", strange, b""),
        ("session service", StatusCode.UNIMPLEMENTED, "", session, b""),
    ]


def check_default(client):
    """No version and no signature: the latest version's `serving_default`."""
    answer = client.predict(spec_of("half_plus_two"), {"x": np.float32([1, 2, 5])})
    same(tf.make_ndarray(answer.outputs["y"]), np.float32([2.5, 3, 4.5]))
    expect(answer.model_spec.version.value == 123, f"version {answer.model_spec.version.value}")
    expect(answer.model_spec.signature_name == "serving_default", "signature_name")


def main(args):
    """Asks."""
    checks, client = Checks(), Client(args.address)
    models = arrays.models(args.models_dir)
    for model in models:
        checks.run(f"status {model.name}", check_status, client, model)
        if is_counter(model):
            checks.run(f"counting {model.name}", check_counter, client, model.name)
            checks.run(f"metadata {model.name}", check_metadata, client, model.name, latest(model))
            continue
        for folder in available(client, model):
            check_version(checks, client, model, folder)
    if any(m.name == "half_plus_two" for m in models):
        checks.run("predict without version and signature", check_default, client)
        checks.run("regress with a context", check_context, client, "half_plus_two",
                   "regress_x_to_y")
        check_wire(checks, client)
        for title, code, text, *call in [*predict_errors(client), *example_errors(client),
                                         *model_errors(client)]:
            checks.run(f"error: {title}", refused, code, text, *call)
    checks.finish()


if __name__ == "__main__":
    main(ARGS)
