"""Writes TensorFlow's answers of the demo and test models to `testdata/golden/`.

    tools/golden.py              all models
    tools/golden.py --check      only reports answers that differ from the stored ones
    tools/golden.py clicks       one model

`testdata/golden/<model>/<version>/<signature>/<case>.{in,out}.npz`: keys are the aliases of the
signature, strings are NumPy `S` arrays. Each case is asked of a freshly loaded model, so that a
signature that changes a variable gives the same answer wherever it is asked.
"""

import argparse
import shutil
import sys

import tfenv

if __name__ == "__main__":
    tfenv.enter()

import tensorflow as tf

import arrays
import reference
from demo.cases import CASES, cases

GOLDEN = tfenv.ROOT / "testdata" / "golden"
STATEFUL = ("counter", "counter_tf2", "tables")


def answers(model, folder):
    """Yields (signature, case, inputs, outputs); a case TensorFlow refuses is left out."""
    loaded = reference.Reference(folder)
    for signature in sorted(loaded.signatures):
        for case, inputs in cases(model, signature).items():
            if model in STATEFUL:
                loaded.close()
                loaded = reference.Reference(folder)
            try:
                yield signature, case, inputs, loaded.run(signature, inputs)
            except tf.errors.OpError as error:
                print(f"{model}/{folder.name}/{signature}/{case}: TensorFlow refuses: "
                      f"{error.message.splitlines()[0]}")
    loaded.close()


def compare(path, outputs):
    """The complaints about one stored answer."""
    if not path.exists():
        return [f"{path}: missing"]
    stored = arrays.load(path)
    if stored.keys() != outputs.keys():
        return [f"{path}: keys {sorted(stored)} instead of {sorted(outputs)}"]
    found = []
    for key, want in outputs.items():
        text, size = arrays.gap(stored[key], want)
        if text or size > 1e-5:
            found.append(f"{path}: {key}: {text or f'differs by {size:.2g}'}")
    return found


def main():
    """Reads the command line; with --check the exit code tells whether all is the same."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing")
    parser.add_argument("models", nargs="*")
    args = parser.parse_args()
    folders = [*arrays.models(tfenv.ROOT / "models"),
               *arrays.models(tfenv.ROOT / "testdata" / "models")]
    count, complaints = 0, []
    for folder in folders:
        if folder.name not in (args.models or CASES):
            continue
        if not args.check:
            shutil.rmtree(GOLDEN / folder.name, ignore_errors=True)
        for version in arrays.versions(folder):
            for signature, case, inputs, outputs in answers(folder.name, version):
                path = GOLDEN / folder.name / str(int(version.name)) / signature / case
                count += 1
                if args.check:
                    complaints += compare(path.with_name(f"{case}.out.npz"), outputs)
                    continue
                arrays.save(path.with_name(f"{case}.in.npz"), inputs)
                arrays.save(path.with_name(f"{case}.out.npz"), outputs)
    print("\n".join([*complaints, f"{count} answers, {len(complaints)} complaints"]))
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
