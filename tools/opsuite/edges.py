"""Fills the op suite with edge cases: for each op an error, and for each input an empty and a scalar one.

    tools/opsuite/edges.py [OP ...]

The cases are changes of those that are there, which TensorFlow then answers; they are added to
testdata/ops. `testdata/op_edges.txt` lists what it answers: `OP error`, `OP in0 empty`,
`OP in0 scalar` and `OP broadcast`; the test `ops::edges` holds the list against the suite. What no
change brought about stands in `op_edges_left_out.txt` and is not looked for again.
"""

import argparse
import copy
import os
import random
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)

import tfenv


def command_line():
    """The parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ops", nargs="*", help="only these")
    return parser


if __name__ == "__main__":
    os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    ARGS = tfenv.enter(command_line())

from opsuite import cases as opcases
from opsuite import fuzz as op_fuzz
from opsuite import text as optext

LIST = tfenv.ROOT / "testdata" / "op_edges.txt"
LEFT_OUT = tfenv.ROOT / "testdata" / "op_edges_left_out.txt"
REQUIRED = tfenv.ROOT / "testdata" / "required_ops.txt"
GRID = tfenv.ROOT / "testdata" / "grid"
TRIES = 12
DEATHS_MAX = 5
CODES = {"INVALID_ARGUMENT", "OUT_OF_RANGE", "NOT_FOUND", "FAILED_PRECONDITION", "DATA_LOSS"}
TITLES = {"error": "refused", "broadcast": "sizes of one are repeated"}
HEADER = """\
# Edge cases that TensorFlow answers, of the ops that served graphs need: `OP error`, `OP broadcast`,
# `OP INPUT empty` and `OP INPUT scalar`. Written by tools/opsuite/edges.py.
"""
LEFT_OUT_HEADER = """\
# Edge cases that some op has no case for, with the reason. Written by tools/opsuite/edges.py, which keeps
# the reasons that somebody gave.
"""
NONE = "TensorFlow 2.21 answered none that was tried"
NO_ERROR = "TensorFlow 2.21 refused none that was tried"


def required():
    """The ops with kernels that served graphs need."""
    rows = (line.partition("#")[0].split() for line in REQUIRED.read_text().splitlines())
    return [row[0] for row in rows if len(row) == 1]


def is_repeated(a, b):
    """Whether two shapes broadcast with each other and one is repeated, both having elements."""
    if a == b or 0 in a or 0 in b:
        return False
    pairs = zip(reversed(a), reversed(b))
    return all(x == y or 1 in (x, y) for x, y in pairs)


def shows(case, edge):
    """Whether a case shows an edge."""
    if edge == "error":
        return case.err is not None
    if case.err is not None:
        return False
    if edge == "broadcast":
        shapes = [t.array.shape for t in case.inputs[:2]]
        return len(shapes) == 2 and is_repeated(*shapes)
    name, kind = edge.split()
    at = int(name.removeprefix("in"))
    if at >= len(case.inputs):
        return False
    array = case.inputs[at].array
    return array.size == 0 if kind == "empty" else array.ndim == 0


def is_binary(op):
    """Whether an op takes two tensors of one dtype and gives one."""
    definition = opcases.op_def(op)
    args = definition.input_arg
    return (len(args) == 2 and len(definition.output_arg) == 1
            and args[0].type_attr == args[1].type_attr and not args[0].number_attr
            and (bool(args[0].type_attr) or args[0].type == args[1].type))


def edges(op, cases):
    """The edges that an op may have."""
    found = ["error"] + (["broadcast"] if is_binary(op) else [])
    variadic = any(a.number_attr or a.type_list_attr for a in opcases.op_def(op).input_arg)
    n_inputs = max((len(c.inputs) for c in cases), default=0)
    for at in range(min(n_inputs, 2) if variadic else n_inputs):
        found += [f"in{at} empty", f"in{at} scalar"]
    return found


def with_shapes(case, shapes):
    """A case whose inputs have other shapes."""
    made = copy.deepcopy(case)
    made.inputs = [op_fuzz.reshaped(t, s) for t, s in zip(case.inputs, shapes)]
    return made


def directed(case, edge):
    """Changes of a case that show an edge, the likeliest to be answered first."""
    shapes = [list(t.array.shape) for t in case.inputs]
    if edge == "broadcast":
        if shapes[0] and len(shapes) == 2:
            first = [max(d, 2) for d in shapes[0]]
            yield with_shapes(case, [first, [1, *first[1:]]])
            yield with_shapes(case, [first, []])
        return
    if edge == "error":
        return
    name, kind = edge.split()
    at = int(name.removeprefix("in"))
    if at >= len(shapes):
        return
    if kind == "scalar":
        yield with_shapes(case, [[] if i == at else s for i, s in enumerate(shapes)])
        rank = len(shapes[at])
        yield with_shapes(case, [[] if len(s) == rank else s for s in shapes])
        yield with_shapes(case, [[] for _ in shapes])
        return
    for axis, old in enumerate(shapes[at]):
        alone = [list(s) for s in shapes]
        alone[at][axis] = 0
        yield with_shapes(case, alone)
        yield with_shapes(case, [[0 if d == old else d for d in s] for s in shapes])
        same = [[0 if a == axis else d for a, d in enumerate(s)] for s in shapes]
        yield with_shapes(case, same)
    yield with_shapes(case, [[0] if i == at else s for i, s in enumerate(shapes)])


def candidates(op, cases, edge):
    """Changed cases that may show an edge."""
    rng = random.Random(f"{op} {edge}")
    small = sorted((c for c in cases if c.err is None), key=lambda c: sum(
        t.array.size for t in c.inputs))
    made = [d for case in small[:5] for d in directed(case, edge)]
    for _ in range(20 * TRIES):
        if len(made) >= 2 * TRIES or not small:
            break
        other = op_fuzz.changed(rng.choice(small), rng)
        if other and (edge == "error" or shows(other, edge)):
            made.append(other)
    for case in made:
        case.err, case.outs, case.out_lines = None, [], []
        yield case


def fits(lines, edge):
    """Whether TensorFlow's answer is what the edge is about."""
    case = optext.parse_cases(lines)[0]
    if edge == "error":
        return case.err is not None and case.err[0] in CODES
    if case.err is not None:
        return False
    if edge == "broadcast":
        shapes = {t.array.shape for t in case.inputs}
        return case.outs[0].array.shape in shapes or case.outs[0].array.size > 1
    return True


def search(op, cases, todo, send):
    """Looks for each edge from a place on; sends each try's number, and the lines of the first hit."""
    for number, start in todo:
        edge = send.edges[number]
        for at, made in enumerate(candidates(op, cases, edge)):
            if at < start:
                continue
            what = TITLES.get(edge, f"{edge.split()[0]} is {edge.split()[-1]}")
            lines = op_fuzz.answer(made, op, what)
            hit = bool(lines) and fits(lines, edge)
            send(number, at, "\n".join(lines) if hit else "")
            if hit:
                break


class Sender:
    """Writes what a child found to its parent."""

    def __init__(self, writer, names):
        self.writer, self.edges = writer, names

    def __call__(self, number, at, text):
        data = text.encode()
        os.write(self.writer, f"{number * 1000 + at} {len(data)}\n".encode() + data)


def find(op, cases, names):
    """Edge → lines of a case, for those that were found."""
    found, done, deaths = {}, {}, 0
    todo = [(i, 0) for i in range(len(names))]
    while todo and deaths <= DEATHS_MAX:
        answers, ended = op_fuzz.in_child(lambda w: search(op, cases, todo, Sender(w, names)))
        for which, text in answers.items():
            number, at = divmod(which, 1000)
            done[number] = max(at, done.get(number, -1))
            if text:
                found[names[number]] = text.splitlines()
        last = max((w // 1000 for w in answers), default=todo[0][0])
        # What the child died of is the try after the last that it told of.
        rest = [(n, s) for n, s in todo if n > last]
        if not ended and names[last] not in found and done.get(last, -1) < 2 * TRIES:
            rest.insert(0, (last, done.get(last, todo[0][1] - 1) + 2))
        todo = [] if ended else rest
        deaths += not ended
    return found


def op_edges(op, known):
    """The edges of an op that have cases and those that have none, and how many were added."""
    path = op_fuzz.CASES / f"{op}.txt"
    cases = optext.parse_cases(path.read_text().splitlines())
    for case in cases:
        case.op = op
    grid = GRID / f"{op}.txt"
    more = optext.parse_cases(grid.read_text().splitlines()) if grid.exists() else []
    names = edges(op, cases)
    missing = [n for n in names if not any(shows(c, n) for c in (*cases, *more))]
    usable = [c for c in cases if all(t.array.size <= op_fuzz.ELEMENTS_MAX for t in c.inputs)]
    wanted = [n for n in missing if f"{op} {n}" not in known]
    found = find(op, usable, wanted) if wanted else {}
    lines = [line for edge in wanted if edge in found for line in ["", *found[edge]]]
    if lines:
        path.write_text(path.read_text().rstrip("\n") + "\n".join(["", *lines]) + "\n")
    there = [n for n in names if n not in missing or n in found]
    return there, [n for n in names if n not in there], len(found)


def places(path):
    """The places of a list, with the reasons if it has any."""
    found = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        place, _, reason = line.partition(" : ")
        if place and not line.startswith("#"):
            found[place] = reason
    return found


def write(path, header, rows):
    """Writes a list in the order of the ops' names."""
    path.write_text(header + "\n".join(sorted(rows)) + "\n")


def main(args):
    """Reads the command line."""
    os.chdir(tfenv.ROOT)
    listed, left_out = places(LIST), places(LEFT_OUT)
    for op in args.ops or required():
        if not (op_fuzz.CASES / f"{op}.txt").exists():
            continue
        have, lack, n_added = op_edges(op, left_out)
        for rows in (listed, left_out):
            for place in [p for p in rows if p.split()[0] == op]:
                if place.partition(" ")[2] not in (lack if rows is left_out else have):
                    del rows[place]
        listed |= dict.fromkeys((f"{op} {edge}" for edge in have), "")
        for edge in lack:
            left_out.setdefault(f"{op} {edge}", NO_ERROR if edge == "error" else NONE)
        if n_added:
            print(f"{op}: {n_added} added", flush=True)
        write(LIST, HEADER, listed)
        write(LEFT_OUT, LEFT_OUT_HEADER, [f"{p} : {r}" for p, r in left_out.items()])


if __name__ == "__main__":
    sys.exit(main())
