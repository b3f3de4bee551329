"""Random op calls, answered by TensorFlow: what differs beyond the cases that somebody thought of.

    tools/opsuite/fuzz.py FOLDER [--seed N] [--count N] [OP ...]     writes FOLDER/<Op>.txt
    tools/opsuite/fuzz.py FOLDER --summary [--details]               runs them here, tells what differs

Each case is one of testdata/ops with one to three random changes: another size of a dimension, also
zero and one, in one input or in all that share it; another rank; other numbers, strings, attributes
or dtypes; an input more or less. TensorFlow says what comes of it, a value or an error. What it dies
of, has no kernel for or answers differently a second time is left out.
"""

import argparse
import copy
import os
import random
import resource
import select
import signal
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)

import tfenv


def command_line():
    """The parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=20, help="tries for each op")
    parser.add_argument("--summary", action="store_true", help="run what the folder holds here")
    parser.add_argument("--program", help="with --summary: the suite's program, built already")
    parser.add_argument("--details", action="store_true", help="with --summary: each call")
    parser.add_argument("ops", nargs="*", help="only these")
    return parser


if __name__ == "__main__":
    os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    ARGS = tfenv.enter(command_line())

import numpy as np

from opsuite import cases as opcases
from opsuite import fuzz_summary
from opsuite import text as optext
from opsuite.text import Malformed, Tensor

CASES = tfenv.ROOT / "testdata" / "ops"
SECONDS_A_CASE = 10
MEMORY_BYTES = 6 << 30
ELEMENTS_MAX = 600
RANK_MAX = 5
WORDS_MAX = 300
TOLERANCE = {"f16": 1e-2, "bf16": 6e-2}
INTEGERS = {"i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"}
STRINGS = [b"", b" ", b"a", b"-1", b"1e3", b"nan", b"0x10", b"\xff\xfe", "é漢".encode(), b"a b  c",
           b"\x00", b"UPPER lower", b"1,2", b"99999999999999999999"]
REALS = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, 1e-30, 1e30, -1e30,
         float("inf"), float("-inf"), float("nan")]


def reshaped(tensor, shape):
    """A tensor of another shape, which repeats the values it has."""
    values = tensor.array.reshape(-1)
    count = int(np.prod(shape, dtype=np.int64))
    if not values.size:
        values = np.array([b"a" if tensor.dtype == "str" else 1], dtype=values.dtype)
    repeated = values[np.arange(count) % values.size]
    return Tensor(tensor.dtype, repeated.reshape(shape))


def sizes(case):
    """The sizes of dimensions that occur."""
    return sorted({d for t in case.inputs for d in t.array.shape})


def resize_all(case, rng):
    """Another size for every dimension of a certain size."""
    old = rng.choice(sizes(case))
    new = rng.choice([0, 0, 1, 1, 2, 3, 5, old + 1, max(old - 1, 0)])
    case.inputs = [reshaped(t, [new if d == old else d for d in t.array.shape])
                   for t in case.inputs]


def resize_one(case, rng):
    """Another size for one dimension of one input."""
    at = rng.choice([i for i, t in enumerate(case.inputs) if t.array.ndim])
    shape = list(case.inputs[at].array.shape)
    axis = rng.randrange(len(shape))
    shape[axis] = rng.choice([0, 1, 1, 2, 3, shape[axis] + 1, max(shape[axis] - 1, 0)])
    case.inputs[at] = reshaped(case.inputs[at], shape)


def rank_of(tensor, change, rng):
    """A tensor with a dimension more or less, or a scalar."""
    shape = list(tensor.array.shape)
    if change == "more":
        shape.insert(rng.choice([0, 0, rng.randint(0, len(shape))]), rng.choice([1, 1, 2, 0]))
    elif change == "less" and shape:
        shape.pop(rng.choice([0, -1]))
    elif change == "scalar":
        shape = []
    return reshaped(tensor, shape[:RANK_MAX])


def rank_one(case, rng):
    """Another rank for one input."""
    at = rng.randrange(len(case.inputs))
    change = rng.choice(["more", "less", "scalar"])
    case.inputs[at] = rank_of(case.inputs[at], change, rng)


def rank_all(case, rng):
    """Another rank for every input, or for those of the first one's rank."""
    change = rng.choice(["more", "less", "scalar"])
    rank = case.inputs[0].array.ndim
    seed = rng.random()
    case.inputs = [rank_of(t, change, random.Random(seed)) if t.array.ndim == rank else t
                   for t in case.inputs]


def swap(case, rng):
    """Another order of the dimensions of an input."""
    at = rng.choice([i for i, t in enumerate(case.inputs) if t.array.ndim > 1])
    array = case.inputs[at].array
    axes = rng.sample(range(array.ndim), array.ndim)
    case.inputs[at] = Tensor(case.inputs[at].dtype, np.ascontiguousarray(array.transpose(axes)))


def one_number(tensor, value, rng):
    """Another number for one element of an integer tensor."""
    rank = tensor.array.ndim
    limits = np.iinfo(optext.DTYPES[tensor.dtype])
    new = rng.choice([-1, 0, 1, 2, -2, -3, value + 1, value - 1, -value, rank, 7, 40,
                      limits.min, limits.max])
    return min(max(new, limits.min), limits.max)


def number(case, rng):
    """Another value for an element."""
    at = rng.choice([i for i, t in enumerate(case.inputs) if t.array.size])
    tensor = case.inputs[at]
    flat = tensor.array.reshape(-1).copy()
    place = rng.randrange(flat.size)
    if tensor.dtype in INTEGERS:
        flat[place] = one_number(tensor, int(flat[place]), rng)
    elif tensor.dtype == "bool":
        flat[place] = not flat[place]
    elif tensor.dtype == "str":
        flat[place] = other_bytes(flat[place], rng)
    else:
        with np.errstate(all="ignore"):
            flat[place] = rng.choice(REALS)
    case.inputs[at] = Tensor(tensor.dtype, flat.reshape(tensor.array.shape))


def other_bytes(old, rng):
    """A string like another one, or quite unlike it."""
    how = rng.randrange(4)
    if how == 0 or not old:
        return rng.choice(STRINGS)
    place = rng.randrange(len(old))
    if how == 1:
        return old[:place]
    if how == 2:
        return old[:place] + bytes([rng.randrange(256)]) + old[place + 1:]
    return old + rng.choice(STRINGS)


def numbers(case, rng):
    """Fresh values for the inputs of floats."""
    for at, tensor in enumerate(case.inputs):
        if tensor.dtype in ("f32", "f64", "f16", "bf16"):
            values = [round(rng.uniform(-3, 3), 3) for _ in range(tensor.array.size)]
            array = np.array(values).astype(optext.DTYPES[tensor.dtype])
            case.inputs[at] = Tensor(tensor.dtype, array.reshape(tensor.array.shape))


def allowed(op, name):
    """The strings that an attribute may have, as TensorFlow's definition says."""
    for attr in opcases.op_def(op).attr:
        if attr.name == name:
            return list(attr.allowed_values.list.s)
    return []


def other_value(op, name, kind, value, rng):
    """Another value for an attribute."""
    if kind == "int":
        return rng.choice([0, 1, 2, -1, 3, value + 1, value - 1])
    if kind == "bool":
        return not value
    if kind == "float":
        return rng.choice([0.0, 1.0, -1.0, 0.5, value * 2, -value])
    if kind == "str":
        return rng.choice(allowed(op, name) or [value, b"", b"x"])
    if kind in ("ints", "floats", "bools") and value:
        changed = list(value)
        place = rng.randrange(len(value))
        changed[place] = other_value(op, name, kind[:-1], changed[place], rng)
        return rng.choice([changed, changed, value[:-1], [*value, value[-1]]])
    if kind == "shape" and value:
        changed = list(value)
        changed[rng.randrange(len(value))] = rng.choice([-1, 0, 1, 2])
        return rng.choice([changed, None, value[:-1], [*value, 1]])
    return value


def attribute(case, rng):
    """Another value for an attribute, also one that the case leaves to its default."""
    node = rng.choice(case.nodes) if case.nodes else case
    op = node.op if case.nodes else case.op
    values = dict(node.attrs)
    for attr in opcases.op_def(op).attr:
        kind = {"list(int)": "ints", "list(float)": "floats", "string": "str"}.get(
            attr.type, attr.type)
        if attr.name not in values and kind in ("int", "bool", "float", "str", "ints"):
            default = attr.default_value
            values[attr.name] = (kind, {
                "int": default.i, "bool": default.b, "float": default.f, "str": default.s,
                "ints": list(default.list.i)}[kind])
    name = rng.choice([n for n, (kind, _) in values.items() if kind not in ("type", "types")])
    kind, value = values[name]
    node.attrs[name] = (kind, other_value(op, name, kind, value, rng))


def dtype(case, rng):
    """Another dtype for the inputs of one type attribute."""
    definition = opcases.op_def(case.op)
    names = {a.type_attr for a in definition.input_arg if a.type_attr}
    name = rng.choice(sorted(names))
    new = rng.choice(["f32", "f64", "f16", "bf16", "i32", "i64", "i8", "i16", "u8", "u16", "u32",
                      "u64", "bool", "str", "c64"])
    lengths = opcases.arg_lengths(definition, case.attrs, len(case.inputs))
    mine = [a.type_attr == name for a, n in zip(definition.input_arg, lengths) for _ in range(n)]
    case.inputs = [cast(t, new) if m else t for t, m in zip(case.inputs, mine)]
    case.attrs.pop(name, None)


def cast(tensor, new):
    """A tensor in another dtype."""
    old = tensor.array.reshape(-1)
    if tensor.dtype == "str":
        old = np.array([float(len(v)) for v in old])
    if new == "str":
        made = np.empty(old.size, dtype=object)
        made[:] = [str(v).encode() for v in old]
    else:
        with np.errstate(all="ignore"):
            made = np.real(old).astype(np.float64)
            if new in INTEGERS:
                limits = np.iinfo(optext.DTYPES[new])
                made = np.clip(np.nan_to_num(made), max(limits.min, -100), min(limits.max, 100))
            made = made.astype(optext.DTYPES[new])
    return Tensor(new, made.reshape(tensor.array.shape))


def arity(case, rng):
    """An input more or less, for an op of any number of them."""
    variadic = [a.number_attr for a in opcases.op_def(case.op).input_arg if a.number_attr]
    if not variadic:
        raise IndexError("a fixed number of inputs")
    at = rng.randrange(len(case.inputs))
    if rng.random() < 0.6:
        case.inputs.insert(at, copy.deepcopy(case.inputs[at]))
    else:
        case.inputs.pop(at)
    for name in variadic:
        case.attrs.pop(name, None)


CHANGES = [resize_all] * 4 + [resize_one] * 3 + [rank_one, rank_all, rank_all, swap] + [number] * 3 + [
    numbers, attribute, attribute, attribute, dtype, arity]


def changed(case, rng):
    """A case with one to three changes; None if none could be made."""
    made = copy.deepcopy(case)
    for _ in range(rng.choice([1, 1, 2, 2, 3])):
        change = rng.choice(CHANGES)
        if made.nodes and change in (dtype, arity):
            continue
        try:
            change(made, rng)
        except (IndexError, OverflowError, ValueError, Malformed, TypeError):
            continue
    if any(t.array.size > ELEMENTS_MAX or t.array.ndim > RANK_MAX for t in made.inputs):
        return None
    made.err, made.outs, made.out_lines = None, [], []
    return made


def attr_text(kind, value):
    """The value of an attribute as the suite writes it."""
    one = {"str": optext.escape, "bool": lambda v: "true" if v else "false"}
    if kind == "shape":
        return "unknown" if value is None else " ".join("?" if d < 0 else str(d) for d in value)
    if kind == "shapes":
        return " ".join("unknown" if dims is None else f"[{attr_text('shape', dims)}]"
                        .replace(" ", ",") for dims in value)
    if kind == "tensor":
        return optext.format_tensor(value)
    if kind in ("types", "ints", "floats", "bools", "strs"):
        return " ".join(one.get(kind[:-1], str)(v) for v in value)
    return one.get(kind, str)(value)


def lines_of(case, title, found):
    """The lines of a case with TensorFlow's answer."""
    outs, error, inferred = found
    new = {node.name: attrs for node, attrs in inferred}
    lines = [f"case {title}"]
    dtypes = {t.dtype for t in (*case.inputs, *(outs or []))}
    tolerance = max([case.tol or 0, *(TOLERANCE[d] for d in dtypes if d in TOLERANCE)])
    if tolerance:
        lines.append(f"  tol  {tolerance:g}")
    lines += ["  onlyshape"] if case.onlyshape else []
    if not case.nodes:
        attrs = {**case.attrs, **new.get("op", {})}
        lines += [f"  attr {n} {k} {attr_text(k, v)}".rstrip() for n, (k, v) in attrs.items()]
    lines += [f"  in   {optext.format_tensor(t)}" for t in case.inputs]
    for node in case.nodes:
        lines.append(f"  node {node.name} {node.op} {' '.join(node.inputs)}".rstrip())
        attrs = {**node.attrs, **new.get(node.name, {})}
        lines += [f"    attr {n} {k} {attr_text(k, v)}".rstrip() for n, (k, v) in attrs.items()]
    lines += [f"  fetch {f}" for f in case.fetches]
    if error is not None:
        words = " ".join(error[1].split())[:WORDS_MAX]
        return [*lines, f"  # {words}", f"  err  {error[0]}"]
    return [*lines, *(f"  out  {optext.format_tensor(o)}" for o in outs)]


def answer(case, op, title):
    """The lines of a case that TensorFlow answers twice alike; none where it does not."""
    try:
        found = opcases.run(case, op)
        if found[0] is None:
            # A dtype that no graph can have is not asked for.
            is_idle = "not in the list of allowed values" in found[1][1] and "DT_" in found[1][1]
            return [] if is_idle else lines_of(case, title, found)
        again = opcases.run(case, op)[0]
    except Exception:  # What cannot even be asked is no case.
        return []
    if sum(o.array.size for o in found[0]) > 4 * ELEMENTS_MAX or again is None:
        return []
    same = all(optext.differs(a, b, 0.0, case.onlyshape) is None
               for a, b in zip(found[0], again))
    return lines_of(case, title, found) if same else []


def templates(path):
    """The cases of a file that are small enough to change."""
    cases = optext.parse_cases(path.read_text().splitlines())
    for case in cases:
        case.op = path.stem
        if case.inputs and not opcases.is_channels_first(case):
            if all(t.array.size <= ELEMENTS_MAX for t in case.inputs):
                yield case


def work(path, wanted, writer):
    """Asks TensorFlow for each wanted number of a case and sends its lines, numbered."""
    cases = list(templates(path))
    for number_of_case, seed in wanted:
        rng = random.Random(f"{path.stem} {seed} {number_of_case}")
        made = changed(rng.choice(cases), rng) if cases else None
        title = f"{number_of_case} of seed {seed}"
        lines = answer(made, path.stem, title) if made else []
        data = "\n".join(lines).encode()
        os.write(writer, f"{number_of_case} {len(data)}\n".encode() + data)


def receive(reader):
    """The answers that a child sends until it ends or is silent for too long: number → text."""
    answers, held = {}, b""
    while select.select([reader], [], [], SECONDS_A_CASE)[0]:
        data = os.read(reader, 1 << 16)
        if not data:
            break
        held += data
        while b"\n" in held:
            head, _, rest = held.partition(b"\n")
            which, length = map(int, head.split())
            if len(rest) < length:
                break
            answers[which] = rest[:length].decode(errors="replace")
            held = rest[length:]
    return answers


def in_child(send):
    """What `send` writes in a process of its own, which may die; and whether it came to its end."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reader)
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
            send(writer)
            os.write(writer, b"-1 0\n")
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    answers = receive(reader)
    os.close(reader)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return answers, answers.pop(-1, None) is not None


def ask(path, seed, count):
    """The lines of `count` changed cases of a file; one that ends TensorFlow is skipped."""
    todo, texts, deaths = [(i, seed) for i in range(count)], {}, 0
    while todo:
        answers, _ = in_child(lambda writer: work(path, todo, writer))
        texts.update(answers)
        rest = [t for t in todo if t[0] not in answers]
        deaths += bool(rest)
        todo = rest[1:]
    return [text for _, text in sorted(texts.items()) if text], deaths


def main(args):
    """Writes random calls, or tells what differs."""
    folder = args.folder.resolve()
    if args.summary:
        return 1 if fuzz_summary.summary(folder, args.program, args.details) else 0
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(tfenv.ROOT)
    total = 0
    for path in sorted(CASES.glob("*.txt")):
        if args.ops and path.stem not in args.ops:
            continue
        texts, deaths = ask(path, args.seed, args.count)
        total += len(texts)
        note = f", TensorFlow died of {deaths}" if deaths else ""
        print(f"{path.stem}: {len(texts)} cases{note}", flush=True)
        (folder / f"{path.stem}.txt").write_text("\n".join(texts) + "\n" if texts else "")
    print(f"{total} cases")


if __name__ == "__main__":
    sys.exit(main(ARGS))
