"""The text format of the op suite (`testdata/ops/*.txt`): tensors, attributes and cases.

Knows nothing of TensorFlow; `opsuite/cases.py` runs what is read here.
"""

import re
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

DTYPES = {
    "f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
    "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
    "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
    "bool": np.bool_, "str": object, "c64": np.complex64, "c128": np.complex128,
    "qi8": np.int8, "qu8": np.uint8, "qi32": np.int32, "qi16": np.int16, "qu16": np.uint16,
}
FLOATS = {"f32", "f64", "f16", "bf16", "c64", "c128"}
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\S+')
TENSOR = re.compile(r"(\w+)\[([\d,\s]*)\]\s*(.*)$", re.S)
ESCAPE = re.compile(rb'\\(x[0-9a-fA-F]{2}|.)', re.S)


class Malformed(Exception):
    """A line of the suite that cannot be understood, or a case that cannot be run as written."""


@dataclass
class Tensor:
    """A dtype name of the suite and an array; strings are an object array of bytes."""

    dtype: str
    array: np.ndarray


@dataclass
class Node:
    """A node of a multi-node case, with the line index behind which new attributes are written."""

    name: str
    op: str
    inputs: list
    attrs: dict = field(default_factory=dict)
    last_line: int = 0


@dataclass
class Case:
    """One case: what to run, what is expected, and the lines it was read from."""

    title: str
    first_line: int
    last_line: int = 0
    nodes: list = field(default_factory=list)
    attrs: dict = field(default_factory=dict)
    inputs: list = field(default_factory=list)
    fetches: list = field(default_factory=list)
    outs: list = field(default_factory=list)
    out_lines: list = field(default_factory=list)
    err: tuple | None = None
    err_line: int | None = None
    tol: float | None = None
    onlyshape: bool = False
    last_attr_line: int = 0


def unescape(token):
    """The bytes of a quoted string; a word without quotes is taken as it is."""
    if not token.startswith('"'):
        return token.encode()
    if len(token) < 2 or not token.endswith('"'):
        raise Malformed(f"the string {token} does not end")

    def one(match):
        code = match.group(1)
        if code[:1] == b"x" and len(code) == 3:
            return bytes([int(code[1:], 16)])
        plain = {b"n": b"\n", b'"': b'"', b"\\": b"\\", b"t": b"\t", b"r": b"\r"}
        if code not in plain:
            raise Malformed(f"unknown escape \\{code.decode()} in {token}")
        return plain[code]

    return ESCAPE.sub(one, token[1:-1].encode())


def escape(data):
    """A quoted string; what is not printable ASCII is written as \\xHH."""
    out = []
    for byte in data:
        char = chr(byte)
        if char in '"\\':
            out.append("\\" + char)
        elif char == "\n":
            out.append("\\n")
        elif 32 <= byte < 127:
            out.append(char)
        else:
            out.append(f"\\x{byte:02x}")
    return '"' + "".join(out) + '"'


def format_real(value):
    """The shortest decimal text that reads back as the same value of its dtype."""
    if np.isnan(value):
        return "nan"
    if np.isinf(value):
        return "inf" if value > 0 else "-inf"
    if value.dtype == ml_dtypes.bfloat16:
        digits = range(1, 10)
        text = next(t for t in (f"{float(value):.{d}g}" for d in digits)
                    if ml_dtypes.bfloat16(float(t)) == value)
    else:
        text = str(value)
    return re.sub(r"\.0(?=$|e)", "", text)


def format_value(value, dtype):
    """One element as the suite writes it."""
    if dtype == "str":
        return escape(value)
    if dtype == "bool":
        return "true" if value else "false"
    if dtype in ("c64", "c128"):
        return f"{format_real(value.real)},{format_real(value.imag)}"
    return format_real(value) if dtype in FLOATS else str(int(value))


def format_tensor(tensor):
    """A tensor as one line; more than eight equal values are written once."""
    head = f"{tensor.dtype}[{','.join(map(str, tensor.array.shape))}]"
    values = [format_value(v, tensor.dtype) for v in tensor.array.reshape(-1)]
    if len(values) > 8 and len(set(values)) == 1:
        values = values[:1]
    return " ".join([head, *values])


def generator(seed):
    """The suite's pseudo-random numbers: a 64-bit linear congruential generator."""
    state = seed & (2**64 - 1)
    while True:
        state = (state * 6364136223846793005 + 1442695040888963407) & (2**64 - 1)
        yield state


def random_values(dtype, count, args):
    """`random SEED [LO HI]`: floats in [LO,HI), integers in LO..=HI."""
    numbers = generator(int(args[0]))
    if dtype in ("f32", "f64", "f16", "bf16"):
        low, high = (float(args[1]), float(args[2])) if len(args) == 3 else (-1.0, 1.0)
        return [low + (high - low) * ((next(numbers) >> 40) / 2**24) for _ in range(count)]
    if dtype in ("str", "c64", "c128"):
        raise Malformed(f"no random values for {dtype}")
    if len(args) != 3 and dtype != "bool":
        raise Malformed("random integers need SEED LO HI")
    low, high = (int(args[1]), int(args[2])) if len(args) == 3 else (0, 1)
    return [low + (next(numbers) >> 33) % (high - low + 1) for _ in range(count)]


def parse_value(token, dtype):
    """One element."""
    if dtype == "str":
        if not token.startswith('"'):
            raise Malformed(f"string values stand in double quotes, got {token}")
        return unescape(token)
    if dtype == "bool":
        if token not in ("true", "false", "0", "1"):
            raise Malformed(f"{token} is not a bool")
        return token in ("true", "1")
    if dtype in ("c64", "c128"):
        real, _, imaginary = token.partition(",")
        return complex(float(real), float(imaginary or 0))
    return float(token) if dtype in FLOATS else int(token)


def parse_tensor(text):
    """`dtype[d0,d1] v v v`, `… random SEED [LO HI]`, `… range`."""
    match = TENSOR.match(text)
    if not match or match.group(1) not in DTYPES:
        raise Malformed(f"not a tensor: {text[:60]}")
    dtype, dims, rest = match.groups()
    shape = tuple(int(d) for d in dims.split(",") if d.strip())
    count = int(np.prod(shape, dtype=np.int64))
    tokens = TOKEN.findall(rest)
    if tokens and tokens[0] == "random":
        values = random_values(dtype, count, tokens[1:])
    elif tokens == ["range"]:
        values = list(range(count))
    else:
        values = [parse_value(t, dtype) for t in tokens]
        if len(values) == 1:
            values = values * count
    if len(values) != count:
        raise Malformed(f"{len(values)} values for shape {list(shape)}: {text[:60]}")
    array = np.empty(count, dtype=DTYPES[dtype])
    if count:
        array[:] = values if dtype not in FLOATS else np.array(values).astype(DTYPES[dtype])
    return Tensor(dtype, array.reshape(shape))


def parse_dims(text):
    """Dims, blank or comma separated; None for an unknown rank, -1 for an unknown dim."""
    if text.strip() == "unknown":
        return None
    return [-1 if d == "?" else int(d) for d in re.split(r"[\s,]+", text.strip()) if d]


def parse_attr(kind, text):
    """The value of an attribute line: a plain Python value, or a `Tensor` for kind tensor."""
    one = {
        "int": int, "float": float, "str": unescape, "type": str,
        "bool": lambda token: parse_value(token, "bool"),
    }
    tokens = TOKEN.findall(text)
    if kind in one:
        if len(tokens) != 1:
            raise Malformed(f"one value expected for {kind}, got {text!r}")
        return one[kind](tokens[0])
    if kind == "shape":
        return parse_dims(text)
    if kind == "tensor":
        return parse_tensor(text)
    if kind == "shapes":
        items = re.findall(r"\[[^\]]*\]|unknown", text)
        return [None if i == "unknown" else parse_dims(i[1:-1]) for i in items]
    if kind.endswith("s") and kind[:-1] in one:
        return [one[kind[:-1]](t) for t in tokens]
    raise Malformed(f"unknown kind of attribute: {kind}")


def parse_line(case, number, text):
    """Adds one line to its case."""
    word, _, rest = text.strip().partition(" ")
    rest = rest.strip()
    if word == "attr":
        name, kind, *value = rest.split(None, 2)
        owner = case.nodes[-1] if case.nodes else case
        owner.attrs[name] = (kind, parse_attr(kind, value[0] if value else ""))
        if case.nodes:
            case.nodes[-1].last_line = number
        else:
            case.last_attr_line = number
    elif word == "in":
        case.inputs.append(parse_tensor(rest))
    elif word == "out":
        case.outs.append(parse_tensor(rest))
        case.out_lines.append(number)
    elif word == "node":
        name, op, *inputs = rest.split()
        case.nodes.append(Node(name, op, inputs, last_line=number))
    elif word == "fetch":
        case.fetches.append(rest)
    elif word == "err":
        code, _, message = rest.partition(" ")
        case.err, case.err_line = (code, message), number
    elif word == "tol":
        case.tol = float(rest)
    elif word == "onlyshape":
        case.onlyshape = True
    else:
        raise Malformed(f"unknown word {word!r}")


def parse_cases(lines):
    """The cases of a file; a malformed line is reported with its number."""
    cases = []
    for number, line in enumerate(lines):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        try:
            if text.startswith("case "):
                cases.append(Case(text[5:].strip(), number, last_attr_line=number))
            elif not cases:
                raise Malformed("a line before the first case")
            else:
                parse_line(cases[-1], number, text)
            cases[-1].last_line = number
        except (ValueError, Malformed, OverflowError) as error:
            raise Malformed(f"line {number + 1}: {error}") from error
    return cases


def tolerance(case, dtype):
    """The case's tolerance, or the default of the dtype."""
    if case.tol is not None:
        return case.tol
    return 1e-5 if dtype in FLOATS else 0.0


def differs(got, want, tol, only_shape):
    """Why two tensors differ, or None."""
    if got.dtype != want.dtype or got.array.shape != want.array.shape:
        return (f"{got.dtype}{list(got.array.shape)} instead of "
                f"{want.dtype}{list(want.array.shape)}")
    if only_shape or got.array.size == 0:
        return None
    if got.dtype not in FLOATS:
        if got.dtype in ("str", "bool"):
            return None if (got.array == want.array).all() else "values differ"
        gap = np.abs(got.array.astype(object) - want.array.astype(object)).max()
        return f"values differ by {gap}" if gap > tol else None
    wide = np.complex128 if got.dtype.startswith("c") else np.float64
    a, b = got.array.astype(wide), want.array.astype(wide)
    plain = np.isfinite(a) & np.isfinite(b)
    with np.errstate(invalid="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
    if not (same | plain).all():
        return "values that are not finite differ"
    gap = np.abs(a[plain] - b[plain]).max(initial=0)
    limit = tol * max(1.0, np.abs(b)[plain].max(initial=0))
    return f"values differ by {gap:.3g}, more than {limit:.3g}" if gap > limit else None
