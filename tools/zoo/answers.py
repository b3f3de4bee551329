"""Makes one real model with TensorFlow's answers.

MODEL/1 becomes the SavedModel, MODEL/golden/<signature>/<case>.{in,out}.npz the cases, and
MODEL/notes.json says what TensorFlow itself could not do.

    answers.py MODEL

asks TensorFlow once more for the answers of MODEL's cases, and writes them to *.alt.npz. It is
started with other settings of TensorFlow, such as without oneDNN: how far the two are apart is
TensorFlow's own spread.
"""

import json
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import tfenv  # noqa: E402

if __name__ == "__main__":
    tfenv.enter()

import arrays  # noqa: E402
import reference  # noqa: E402
from zoo import convert, packages  # noqa: E402
from zoo.madeup import Inputs  # noqa: E402

# Two runs of one model on one input may be so far apart; else an output is taken as random.
REPEATABLE = 1e-5
ROWS = (1, 3)


def make(entry, cache, model, mirror):
    """Converts the model and writes its answers, and what TensorFlow refused."""
    package = packages.fetch(entry["source"], entry.get("sha256"), cache, mirror)
    shutil.rmtree(model, ignore_errors=True)
    convert.convert(entry, package, model / "1")
    notes = answer(entry, model)
    (model / "notes.json").write_text(json.dumps(notes), encoding="utf-8")


def answer(entry, model):
    """Writes the cases of all signatures; returns what TensorFlow refused."""
    loaded = reference.Reference(model / "1")
    inputs = Inputs(entry, loaded.session.graph.as_graph_def())
    wanted = entry.get("signatures") or sorted(loaded.signatures)
    notes, made = [], []
    for name in wanted:
        signature = loaded.signatures[name]
        if not signature.outputs:
            continue
        for case, n_rows in cases(entry, inputs.is_open(signature)):
            try:
                values = inputs.draw(signature, case, n_rows)
                outputs, random = repeatable(loaded, name, values)
            except Exception as problem:
                notes.append(f"{name} {case}: TensorFlow: {summary(problem)}")
                continue
            notes += [f"{name} {case}: {alias} is random" for alias in random]
            if not any(array.size for array in outputs.values()):
                notes.append(f"{name} {case}: TensorFlow answers with nothing")
            else:
                save(model, name, case, values, outputs)
                made.append(name)
    if not made:
        raise ValueError("; ".join(notes) or "no signature has outputs")
    write_names(model, made[0], loaded.signatures[made[0]])
    return notes


def cases(entry, is_open):
    """(name, rows) of each case: batches, or two draws of a model whose inputs are of one size."""
    if is_open:
        return [(f"batch{n}", n) for n in entry.get("batches", ROWS)]
    return [("batch1", 1), ("draw2", 1)]


def repeatable(loaded, signature, values):
    """The outputs that two runs agree on, and the names of the others."""
    first, second = (loaded.run(signature, values) for _ in range(2))
    kept, random = {}, []
    for alias, array in first.items():
        complaint, size = arrays.gap(second[alias], array)
        if complaint or size > REPEATABLE:
            random.append(alias)
        else:
            kept[alias] = array
    return kept, random


def save(model, signature, case, values, outputs):
    """Writes one case."""
    folder = model / "golden" / signature
    arrays.save(folder / f"{case}.in.npz", values)
    arrays.save(folder / f"{case}.out.npz", outputs)


def write_names(model, name, signature):
    """The tensors of the signature whose speed is measured, as tools/bench/engine.py reads them."""
    names = {"signature": name,
             "inputs": {alias: info.name for alias, info in signature.inputs.items()},
             "outputs": {alias: info.name for alias, info in signature.outputs.items()}}
    (model / "names.json").write_text(json.dumps(names), encoding="utf-8")


def summary(problem):
    """The start of an error, without TensorFlow's traces."""
    lines = [line.strip() for line in str(problem).splitlines()
             if line.strip() and "File \"" not in line and "Detected at" not in line
             and "execution error" not in line]
    return f"{type(problem).__name__} {' '.join(lines)[:200]}"


def again(model):
    """The answers of all cases once more."""
    loaded = reference.Reference(model / "1")
    for path in sorted((model / "golden").glob("*/*.in.npz")):
        outputs = loaded.run(path.parent.name, arrays.load(path))
        arrays.save(path.with_name(path.name.replace(".in.npz", ".alt.npz")), outputs)


if __name__ == "__main__":
    again(Path(sys.argv[1]))
