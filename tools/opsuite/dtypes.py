"""Compares the dtypes in the op suite with those that TensorFlow's CPU kernels are registered for.

    tools/opsuite/dtypes.py             prints what TensorFlow has and no case shows
    tools/opsuite/dtypes.py --write     writes testdata/op_dtypes.txt: TensorFlow's dtypes, op by op
    tools/opsuite/dtypes.py --fill      adds a case for each gap, made of another case of the op

A dtype that we leave out on purpose stands in testdata/op_dtypes_left_out.txt with its reason. The
test `ops::dtypes` holds the two lists against the suite, without TensorFlow.
"""

import argparse
import os
import sys
from fnmatch import fnmatchcase
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)

import tfenv


def command_line():
    """The parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write TensorFlow's dtypes")
    parser.add_argument("--fill", action="store_true", help="add cases")
    parser.add_argument("ops", nargs="*", help="only these")
    return parser


if __name__ == "__main__":
    os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
    ARGS = tfenv.enter(command_line())

import numpy as np
from tensorflow.python.framework import kernels, op_def_registry

from opsuite import cases as opcases
from opsuite import text as optext

CASES = tfenv.ROOT / "testdata" / "ops"
LIST = tfenv.ROOT / "testdata" / "op_dtypes.txt"
LEFT_OUT = tfenv.ROOT / "testdata" / "op_dtypes_left_out.txt"
TOLERANCE = {"f16": "5e-3", "bf16": "3e-2"}
HEADER = """\
# The dtypes that TensorFlow's CPU kernels are registered for, of the ops that we have: op, attribute,
# dtypes. Written by tools/opsuite/dtypes.py --write; an attribute's default is not listed.
"""


def type_attrs(definition):
    """The attributes of an op that are a dtype or a list of them."""
    return {a.name: a for a in definition.attr if a.type in ("type", "list(type)")}


def allowed_by(attr, kernel):
    """The dtypes of an attribute that a kernel takes."""
    allowed = set(attr.allowed_values.list.type) or set(opcases.FROM_ENUM)
    for constraint in kernel.constraint:
        if constraint.name == attr.name:
            allowed &= set(constraint.allowed_values.list.type)
    return {opcases.FROM_ENUM[t] for t in allowed if t in opcases.FROM_ENUM}


def registered(op):
    """Attribute → dtypes with a CPU kernel, without those that are the attribute's default."""
    definition = op_def_registry.get(op)
    if definition is None:
        return {}
    derived = {a.type_attr or a.type_list_attr for a in definition.input_arg}
    found = {}
    for kernel in kernels.get_registered_kernels_for_op(op).kernel:
        if kernel.device_type == "CPU":
            for name, attr in type_attrs(definition).items():
                found.setdefault(name, set()).update(allowed_by(attr, kernel))
    for name, attr in type_attrs(definition).items():
        if name in found and name not in derived and attr.default_value.type:
            found[name].discard(opcases.FROM_ENUM.get(attr.default_value.type))
    return found


def read_cases():
    """Op → the cases of its file."""
    return {path.stem: optext.parse_cases(path.read_text().splitlines())
            for path in sorted(CASES.glob("*.txt"))}


def seen(cases):
    """The (op, attribute, dtype) of all nodes of cases that have answers."""
    found = set()
    for op, some in cases.items():
        for case in some:
            if case.err is not None:
                continue
            for node in opcases.single_node(case, op):
                for name, (kind, value) in node.attrs.items():
                    if kind in ("type", "types"):
                        values = [value] if kind == "type" else value
                        found |= {(node.op, name, v) for v in values}
    return found


def left_out():
    """Lines `OP ATTR DTYPE … : reason` as (op, attribute, dtype) patterns."""
    patterns = []
    for line in LEFT_OUT.read_text().splitlines() if LEFT_OUT.exists() else []:
        rule = line.partition("#")[0].partition(":")[0].split()
        patterns += [(rule[0], rule[1], dtype) for dtype in rule[2:]] if rule else []
    return patterns


def gaps(cases):
    """The (op, attribute, dtype) that TensorFlow has and neither cases nor reasons have."""
    have, patterns = seen(cases), left_out()
    for op in cases:
        for name, dtypes in registered(op).items():
            for dtype in sorted(dtypes):
                place = (op, name, dtype)
                if place not in have and not any(
                        all(map(fnmatchcase, place, pattern)) for pattern in patterns):
                    yield place


def number(text):
    """A number for a token of any dtype."""
    if text.startswith('"'):
        return len(text)
    words = {"true": 1, "false": 0, "nan": 0, "inf": 3, "-inf": -3}
    return words[text] if text in words else float(text.partition(",")[0])


def retype_value(text, dtype):
    """A token as one of another dtype, near in value where that makes sense."""
    value = number(text)
    if dtype == "str":
        return f'"{value:g}"'
    if dtype == "bool":
        return "true" if value > 0 else "false"
    if dtype in ("c64", "c128"):
        return f"{value:g},{round(value / 2 + 0.5, 2):g}"
    if dtype in optext.FLOATS:
        return f"{value:g}"
    whole = round(value) if abs(value) >= 1 or value == 0 else (1 if value > 0 else -1)
    return str(abs(whole) if "u" in dtype else whole)


def retype(text, dtype):
    """The text of a tensor in another dtype."""
    old, dims, rest = optext.TENSOR.match(text).groups()
    tokens = optext.TOKEN.findall(rest)
    plain = dtype in ("f32", "f64", "f16", "bf16")
    if tokens[:1] == ["random"] and not plain:
        if dtype in ("str", "c64", "c128", "bool") or old in ("f32", "f64", "f16", "bf16"):
            array = optext.parse_tensor(text).array.reshape(-1)
            scale = 4 if np.abs(array.astype(float)).max(initial=0) <= 1 and dtype != "bool" else 1
            tokens = [f"{float(v) * scale:.2f}" for v in array]
        else:
            low, high = (int(t) for t in tokens[2:4])
            shift = -low if "u" in dtype and low < 0 else 0
            tokens[2:4] = [str(low + shift), str(high + shift)]
            return f"{dtype}[{dims}] {' '.join(tokens)}"
    if tokens[:1] in (["random"], ["range"]) and dtype not in ("str", "c64", "c128", "bool"):
        return f"{dtype}[{dims}] {rest}"
    if tokens == ["range"]:
        tokens = [str(v) for v in range(optext.parse_tensor(text).array.size)]
    return f"{dtype}[{dims}] {' '.join(retype_value(t, dtype) for t in tokens)}".rstrip()


def of_attr(definition, case, attr):
    """For each input of a case whether its dtype is the attribute's."""
    lengths = opcases.arg_lengths(definition, case.attrs, len(case.inputs))
    return [attr in (arg.type_attr, arg.type_list_attr)
            for arg, length in zip(definition.input_arg, lengths) for _ in range(length)]


def variant(lines, case, place):
    """The lines of a case with another dtype at an attribute; the answers are left out."""
    op, attr, dtype = place
    mine = of_attr(op_def_registry.get(op), case, attr)
    made, at = [f"case {dtype} as {attr}"], 0
    if dtype in TOLERANCE and case.tol is None:
        made.append(f"  tol  {TOLERANCE[dtype]}")
    for line in lines[case.first_line + 1:case.last_line + 1]:
        word, _, rest = line.strip().partition(" ")
        if word == "in":
            text = rest.strip()
            made.append("  in   " + (retype(text, dtype) if mine[at] else text))
            at += 1
        elif word == "attr":
            name, kind, *value = rest.split(None, 2)
            if name == attr:
                value = [" ".join([dtype] * len(value[0].split()))] if value else []
            made.append(" ".join(["  attr", name, kind, *value]))
        elif word not in ("out", "err"):
            made.append(line)
    if attr not in case.attrs:
        made.insert(1, f"  attr {attr} type {dtype}")
    return made


def replaced(lines, case, place):
    """The lines of a case with all tensors and attributes of the attribute's dtype in another."""
    op, attr, dtype = place
    old = next(n.attrs[attr][1] for n in opcases.single_node(case, op)
               if n.op == op and attr in n.attrs)
    if old in ("i32", "i64"):
        raise optext.Malformed("indices have this dtype as well")
    made = [f"case {dtype} as {attr}"]
    if dtype in TOLERANCE and case.tol is None:
        made.append(f"  tol  {TOLERANCE[dtype]}")
    for line in lines[case.first_line + 1:case.last_line + 1]:
        word, _, rest = line.strip().partition(" ")
        if word == "in" and rest.strip().startswith(f"{old}["):
            made.append("  in   " + retype(rest.strip(), dtype))
        elif word == "attr" and rest.split()[1] in ("type", "types"):
            name, kind, *values = rest.split()
            made.append(" ".join(["    attr" if case.nodes else "  attr", name, kind,
                                  *(dtype if v == old else v for v in values)]))
        elif word not in ("out", "err"):
            made.append(line)
    return made


def ways(case, attr):
    """How to derive a case: attributes of the same dtype often must change together."""
    if case.nodes:
        return [replaced]
    old = case.attrs.get(attr)
    joint = sum(value == old for value in case.attrs.values()) > 1
    return [replaced, variant] if joint else [variant]


def derived(lines, cases, place):
    """The lines of a case that TensorFlow answers, made of one of the cases; None if there is none."""
    for template in templates(cases, place[1]):
        for way in ways(template, place[1]):
            try:
                made = way(lines, template, place)
                case = optext.parse_cases(made)[0]
                outs, error, inferred = opcases.run(case, place[0])
            except (optext.Malformed, ValueError, TypeError, KeyError, OverflowError, IndexError,
                    StopIteration):
                continue
            if error is None:
                return opcases.rewrite(case, made, outs, error, inferred)
    return None


def templates(cases, attr):
    """Cases to derive others from, the best first: small, not empty, plain numbers."""
    def cost(case):
        sizes = [t.array.size for t in (*case.inputs, *case.outs)]
        empty = any(s == 0 for s in sizes)
        kind, value = case.attrs.get(attr, ("type", "f32"))
        return empty, value not in ("f32", ["f32"]), value not in ("i32", ["i32"]), sum(sizes)
    good = [c for c in cases if c.err is None and c.inputs and c.outs
            and sum(t.array.size for t in (*c.inputs, *c.outs)) <= 300]
    return sorted(good, key=cost)[:8]


def fill(op, cases, places):
    """Adds cases for an op's gaps; returns the gaps for which TensorFlow took none."""
    path, failed = CASES / f"{op}.txt", []
    lines = path.read_text().splitlines()
    added = []
    for place in places:
        made = derived(lines, cases, place)
        if made is None:
            failed.append(place)
        else:
            added += ["", *made]
    if added:
        path.write_text("\n".join(lines + added) + "\n")
    return failed


def fill_all(found, cases):
    """`fill` op by op, each in a process of its own; the gaps that stay."""
    by_op = {}
    for place in found:
        by_op.setdefault(place[0], []).append(place)
    for op, places in by_op.items():
        child = os.fork()
        if child == 0:
            code = 1
            try:
                failed = fill(op, cases[op], places)
                print(f"{op}: {len(places) - len(failed)} added"
                      + "".join(f"\n  not {attr} {dtype}" for _, attr, dtype in failed))
                code = 0
            finally:
                sys.stdout.flush()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        if status:
            print(f"{op}: failed: {status}", flush=True)


def write_list(ops):
    """Writes TensorFlow's dtypes."""
    lines = []
    for op in ops:
        for name, dtypes in sorted(registered(op).items()):
            if dtypes:
                lines.append(f"{op} {name} {' '.join(sorted(dtypes))}")
    LIST.write_text(HEADER + "\n".join(lines) + "\n")


def main(args):
    """Reads the command line."""
    cases = read_cases()
    if args.write:
        write_list(cases)
    chosen = {op: some for op, some in cases.items() if not args.ops or op in args.ops}
    found = list(gaps(chosen)) if not args.ops else [
        g for g in gaps(cases) if g[0] in chosen]
    if args.fill:
        fill_all(found, cases)
        return
    by_place = {}
    for op, name, dtype in found:
        by_place.setdefault((op, name), []).append(dtype)
    for (op, name), dtypes in by_place.items():
        print(op, name, *dtypes)
    print(f"{len(found)} dtypes of {len({p[0] for p in found})} ops have no case")


if __name__ == "__main__":
    main(ARGS)
