"""Makes the demo models in `models/` and the models that only tests use in `testdata/models/`.

    tools/make_models.py                 all of them
    tools/make_models.py digits clicks   some of them

Every model is made in a process of its own with fixed seeds, so that making it twice gives the same
answers. What each model is for stands in the README beside it, which this script writes too.
"""

import argparse
import os
import shutil
import subprocess
import sys

import tfenv

if __name__ == "__main__":
    tfenv.enter()

MODELS = {
    "half_plus_two": "models",
    "half_plus_two_tf2": "models",
    "digits": "models",
    "sentiment": "models",
    "clicks": "models",
    "counter": "testdata/models",
    "counter_tf2": "testdata/models",
    "identity_dtypes": "testdata/models",
    "tf1_control_flow": "testdata/models",
    "checks": "testdata/models",
    "tables": "testdata/models",
    "batch_function": "testdata/models",
}


def make(name):
    """Makes one model from nothing, in this process."""
    import importlib

    import tensorflow as tf

    folder = tfenv.ROOT / MODELS[name] / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tf.keras.utils.set_random_seed(20)
    tf.config.experimental.enable_op_determinism()
    module = importlib.import_module(f"demo.{name}")
    readme = module.make(folder)
    (folder / "README.md").write_text(readme)
    for leftover in folder.rglob("*"):
        if leftover.is_dir() and not any(leftover.iterdir()):
            leftover.rmdir()


def main():
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="MODEL", help=", ".join(MODELS))
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    unknown = set(args.names) - set(MODELS)
    if unknown:
        parser.error(f"no such model: {', '.join(sorted(unknown))}")
    if args.here:
        make(args.names[0])
        return
    os.chdir(tfenv.ROOT)
    for name in args.names or MODELS:
        print(f"{MODELS[name]}/{name}", flush=True)
        subprocess.run([sys.executable, "tools/make_models.py", "--here", name], check=True)


if __name__ == "__main__":
    main()
