"""Makes models of every common kind with random weights, and TensorFlow's answers beside them.

    tools/zoo/make.py --small DIR           tiny versions of all, for CI
    tools/zoo/make.py DIR [MODEL ...]       full size (several GB), or some of them

DIR/<model>/1 is the SavedModel, DIR/<model>/golden/<signature>/batch<N>.{in,out}.npz are inputs and
TensorFlow's outputs. What is there already and was made by the same scripts is kept; if that is all,
TensorFlow is not even started. Two runs on one folder wait for each other.
"""

import argparse
import fcntl
import hashlib
import importlib
import os
import shutil
import sys
import time
from importlib.metadata import version
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)

import tfenv

if __name__ == "__main__":
    tfenv.enter()

MODULES = ["vision", "text", "decoder", "recurrent", "tabular", "media", "mixed", "tf1", "memory"]
BATCHES = (1, 3, 8)


def stamp(modules, small):
    """Changes whenever the scripts that make the modules' models do, or TensorFlow."""
    versions = f"{version('tensorflow-cpu')} {version('keras')}"
    digest = hashlib.sha256(f"{versions} {small}".encode())
    here = Path(__file__).parent
    for module in (*modules, "weights"):
        digest.update((here / f"{module}.py").read_bytes())
    return digest.hexdigest()


def make(name, build, folder, small):
    """One model with its golden answers."""
    import keras

    import arrays
    import reference
    keras.utils.set_random_seed(30)
    inputs = build(folder, small)
    loaded = reference.Reference(folder / "1")
    for n in BATCHES:
        for signature, values in inputs(n).items():
            outputs = loaded.run(signature, values)
            for alias, array in outputs.items():
                if array.dtype.kind == "f" and not alive(array):
                    print(f"{name}: {signature}/{alias} of batch {n} is not finite or constant")
            place = folder / "golden" / signature
            arrays.save(place / f"batch{n}.in.npz", values)
            arrays.save(place / f"batch{n}.out.npz", outputs)


def alive(array):
    """Whether an answer could show a mistake: finite, and not the same everywhere."""
    import numpy as np
    return np.isfinite(array).all() and (array.size < 2 or array.std() > 1e-6 * abs(array).max())


def make_isolated(name, build, folder, small, mark):
    """`make` in a child process; returns its process id. The stamp is written last."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        begin = time.monotonic()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        make(name, build, folder, small)
        (folder / "stamp").write_text(mark)
        print(f"{name}: made in {time.monotonic() - begin:.1f} s")
        code = 0
    except Exception as problem:
        import traceback
        traceback.print_exc()
        print(f"{name}: {problem}")
    finally:
        sys.stdout.flush()
        os._exit(code)


def make_all(todo, table, marks, args):
    """Makes models, some at a time; returns the names of those that could not be made."""
    running, failed = {}, []
    while todo or running:
        while todo and len(running) < args.jobs:
            name = todo.pop(0)
            child = make_isolated(name, table[name], args.folder / name, args.small, marks[name])
            running[child] = name
        child, status = os.waitpid(-1, 0)
        if status:
            failed.append(running[child])
        del running[child]
    return failed


def main():
    """Reads the command line; two models are made at a time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="tiny versions")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="MODEL")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    lock = open(args.folder / "lock", "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    whole, mark = args.folder / "stamp", stamp(MODULES, args.small)
    if whole.exists() and whole.read_text() == mark:
        return
    table, marks = {}, {}
    for module in MODULES:
        models = importlib.import_module(f"zoo.{module}").MODELS
        table |= models
        marks |= dict.fromkeys(models, stamp([module], args.small))
    unknown = set(args.names) - set(table)
    if unknown:
        parser.error(f"no such model: {', '.join(sorted(unknown))}; there are {', '.join(table)}")
    todo = []
    for name in args.names or table:
        at = args.folder / name / "stamp"
        if not (at.exists() and at.read_text() == marks[name]):
            todo.append(name)
    # A run that is cut short must not leave a folder that counts as whole.
    whole.unlink(missing_ok=True)
    failed = make_all(todo, table, marks, args)
    if failed:
        sys.exit(f"could not make: {', '.join(sorted(failed))}")
    if not args.names:
        whole.write_text(mark)


if __name__ == "__main__":
    main()
