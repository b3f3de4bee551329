"""What other engines need of a model: `prepare.py FOLDER MODEL ...` writes FOLDER/MODEL/names.json
(the tensors of the signature) and model.onnx, or model.onnx.failed with the reason."""

import argparse
import json
import subprocess
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)

import tfenv

OPSET = 17


def names(model):
    """The signature's tensors by alias."""
    from tensorflow.core.protobuf import saved_model_pb2
    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString((model / "1" / "saved_model.pb").read_bytes())
    signatures = saved.meta_graphs[0].signature_def
    name = "serving_default"
    spec = signatures[name]
    return {"signature": name,
            "inputs": {alias: info.name for alias, info in spec.inputs.items()},
            "outputs": {alias: info.name for alias, info in spec.outputs.items()}}


def convert(model):
    """Converts the model to ONNX, if the converter can."""
    made = subprocess.run(
        [sys.executable, "-m", "tf2onnx.convert", "--saved-model", str(model / "1"), "--output",
         str(model / "model.onnx"), "--opset", str(OPSET)],
        capture_output=True, text=True, check=False)
    if made.returncode or not (model / "model.onnx").exists():
        (model / "model.onnx.failed").write_text(made.stderr[-2000:], encoding="utf-8")


def main():
    """Prepares what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    args = parser.parse_args()
    for name in args.models:
        model = args.folder / name
        if not (model / "names.json").exists():
            (model / "names.json").write_text(json.dumps(names(model)), encoding="utf-8")
        if not any((model / f"model.onnx{end}").exists() for end in ("", ".failed")):
            convert(model)


if __name__ == "__main__":
    tfenv.enter()
    main()
