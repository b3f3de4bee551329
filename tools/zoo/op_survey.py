#!/usr/bin/env python3
"""Counts how many public graphs use each op, and writes crates/ops/src/usage.txt.

    tools/zoo/op_survey.py [DIR ...]

The graphs are the models that tools/zoo/real.py made in the user's cache folder, and any below the
folders given: SavedModels, frozen graphs (*.pb) and TensorFlow.js graphs (*.json). Of a SavedModel the
ops count that serving its signatures needs, of the others all. Equal graphs count once. --missing
prints the ops that tensord lacks, most used first.
"""

import argparse
import hashlib
import json
import re
import sys
from collections import Counter
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)

import tfenv


def command_line():
    """The parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", type=Path, metavar="DIR")
    parser.add_argument("--missing", action="store_true", help="print what tensord lacks")
    return parser


if __name__ == "__main__":
    ARGS = tfenv.enter(command_line())

import tensorflow as tf

from zoo import model_ops

TABLE = tfenv.ROOT / "crates" / "ops" / "src" / "usage.txt"
HEAD = """\
# How many of the surveyed public graphs use each op. Written by tools/zoo/op_survey.py.
graphs {}
"""


def ops_of(path):
    """The set of ops of one file, or None if it is no graph."""
    if path.name == "saved_model.pb":
        return set(model_ops.ops_of(path.parent))
    if path.suffix == ".json":
        return ops_of_tfjs(path)
    graph = tf.compat.v1.GraphDef.FromString(path.read_bytes())
    nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
    return {node.op for node in nodes} or None


def ops_of_tfjs(path):
    """The ops of a TensorFlow.js graph; what it fuses counts as the ops that were fused."""
    from zoo.tfjs import PLAIN
    topology = json.loads(path.read_bytes()).get("modelTopology") or {}
    nodes = list(topology.get("node") or [])
    for function in (topology.get("library") or {}).get("function") or []:
        nodes += function.get("nodeDef") or []
    return {PLAIN.get(node["op"], node["op"]) for node in nodes} or None


def graphs(folders):
    """The files that may be graphs."""
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".pb", ".json") and path.is_file():
                yield path


def survey(folders):
    """(number of graphs, op to number of graphs that use it)."""
    counts, seen = Counter(), set()
    for path in graphs(folders):
        digest = hashlib.sha256(path.read_bytes()).digest()
        if digest in seen:
            continue
        seen.add(digest)
        try:
            found = ops_of(path)
        except Exception:
            continue  # Many files have these endings and are no graphs.
        if found:
            counts.update(found)
            counts["graphs"] += 1
    return counts.pop("graphs", 0), counts


def missing(counts):
    """The ops that tensord does not have, as testdata/required_ops.txt lists those it has."""
    text = (tfenv.ROOT / "testdata" / "required_ops.txt").read_text(encoding="utf-8")
    have = {line.split()[0] for line in text.splitlines() if line and not line.startswith("#")}
    have |= {path.stem for path in (tfenv.ROOT / "testdata" / "ops").glob("*.txt")}
    return [(op, count) for op, count in counts.most_common() if op not in have]


def main(args):
    """Reads the command line and writes the table."""
    n_graphs, counts = survey([tfenv.cache_dir() / "real" / "models", *args.folders])
    rows = [(op, count) for op, count in counts.items() if re.fullmatch(r"[A-Za-z0-9_>]+", op)]
    rows.sort(key=lambda row: (-row[1], row[0]))
    TABLE.write_text(HEAD.format(n_graphs) + "".join(f"{op} {n}\n" for op, n in rows))
    print(f"{n_graphs} graphs, {len(rows)} ops")
    if args.missing:
        print("\n".join(f"{op} {count}" for op, count in missing(Counter(dict(rows)))))


if __name__ == "__main__":
    main(ARGS)
