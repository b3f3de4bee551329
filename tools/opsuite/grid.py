"""Writes testdata/grid: every combination of padding, layout, stride, dilation, mask and axis.

    tools/opsuite/grid.py [OP ...]

The files are written whole, with TensorFlow's answers, and `ops::suite` runs them like those of
testdata/ops. TensorFlow's plain CPU kernels refuse channels first, which exports for GPUs have: what
they answer for channels last, transposed, is the judge of those. Where they refuse dilations, the
judge is the same filter with zeros between its rows and columns. Other combinations that TensorFlow
refuses are errors with its code.
"""

import argparse
import itertools
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
    ARGS = tfenv.enter(command_line())

import numpy as np

from opsuite import cases as opcases
from opsuite import text as optext
from opsuite.text import Malformed, Tensor

FOLDER = tfenv.ROOT / "testdata" / "grid"


def tensor(dtype, shape, rest):
    """An input as text."""
    return f"{dtype}[{','.join(map(str, shape))}] {rest}".rstrip()


def ask(op, attrs, inputs):
    """TensorFlow's outputs, or its error's code; None where it has no kernel."""
    lines = ["case x", *(f"  attr {a}" for a in attrs), *(f"  in {i}" for i in inputs)]
    case = optext.parse_cases(lines)[0]
    try:
        outs, error, inferred = opcases.run(case, op)
    except Malformed:
        return None
    types = [line.strip().removeprefix("attr ") for _, new in inferred
             for line in opcases.attr_lines(new, "")]
    return (error[0] if error else outs), [t for t in types if t]


def short(out):
    """A float output to six digits, which keeps the files small; the tolerance allows for it."""
    if out.dtype not in optext.FLOATS:
        return optext.format_tensor(out)
    head = f"{out.dtype}[{','.join(map(str, out.array.shape))}]"
    return " ".join([head, *(f"{v:.6g}" for v in out.array.reshape(-1))])


def case(op, title, attrs, inputs, found=None):
    """The lines of a case with what TensorFlow answers; none where it has no kernel."""
    found = found or ask(op, attrs, inputs)
    if found is None:
        return []
    outs, types = found
    lines = ["", f"case {title}", *(f"  attr {a}" for a in [*attrs, *types]),
             *(f"  in   {i}" for i in inputs)]
    if isinstance(outs, str):
        return [*lines, f"  err  {outs}"]
    return [*lines, *(f"  out  {short(o)}" for o in outs)]


def first(numbers):
    """What stands for each dimension, with channels first instead of last."""
    return [numbers[0], numbers[-1], *numbers[1:-1]]


def turned(out):
    """A channels-last output with channels first."""
    axes = [0, out.array.ndim - 1, *range(1, out.array.ndim - 1)]
    return Tensor(out.dtype, np.ascontiguousarray(out.array.transpose(axes)))


def ints(name, values):
    """An attribute that is a list of integers."""
    return f"{name} ints {' '.join(map(str, values))}"


def windows(strides, dilations, pads, sizes=None):
    """Attributes of a sliding window, channels last and first."""
    names = [("strides", [1, *strides, 1])]
    if dilations is not None:
        names.append(("dilations", [1, *dilations, 1]))
    if sizes is not None:
        names.append(("ksize", [1, *sizes, 1]))
    kind, explicit = pads
    last = [ints(n, v) for n, v in names] + [f"padding str {kind}"]
    channels = [ints(n, first(v)) for n, v in names] + [f"padding str {kind}"]
    if explicit:
        pairs = [[0, 0], *explicit, [0, 0]]
        last.append(ints("explicit_paddings", sum(pairs, [])))
        channels.append(ints("explicit_paddings", sum(first(pairs), [])))
    layout = "NCHW" if len(strides) == 2 else "NCDHW"
    return last, [*channels, f"data_format str {layout}"]


def values(shape, seed):
    """The elements of `random SEED`."""
    return optext.parse_tensor(tensor("f32", shape, f"random {seed}")).array


def plain(array):
    """An input written out to four digits, for what is transposed."""
    return tensor("f32", array.shape, " ".join(f"{v:.4g}" for v in array.reshape(-1)))


def spread(text, dilations):
    """A filter with zeros between its rows and columns."""
    array = optext.parse_tensor(text).array
    sizes = [(n - 1) * d + 1 for n, d in zip(array.shape, dilations)]
    wide = np.zeros((*sizes, *array.shape[len(sizes):]), np.float32)
    wide[tuple(slice(None, None, d) for d in dilations)] = array
    return optext.format_tensor(Tensor("f32", wide))


def ask_dilated(op, attrs, inputs, dilations):
    """`ask`; where dilations are refused, with the filter spread."""
    found = ask(op, attrs, inputs)
    if isinstance(found[0], str) and any(d > 1 for d in dilations):
        plain_attrs = [a for a in attrs if not a.startswith("dilations")]
        wide = [inputs[0], spread(inputs[1], dilations), *inputs[2:]]
        found = ask(op, plain_attrs, wide)
    return found


def both_layouts(op, title, attrs, inputs, images, dilations=()):
    """A case with channels last, and its like with channels first; `images` are turned."""
    last, channels = attrs
    found = ask_dilated(op, last, inputs, dilations)
    lines = case(op, title, last, inputs, found)
    if not lines or isinstance(found[0], str):
        return lines
    outs, types = found
    swapped = []
    for i, text in enumerate(inputs):
        one = optext.parse_tensor(text)
        if i in images and one.array.ndim > 1:
            swapped.append(plain(turned(one).array))
        elif i in images:
            swapped.append(optext.format_tensor(Tensor(one.dtype, one.array[first(
                list(range(one.array.size)))])))
        else:
            swapped.append(text)
    return [*lines, "", f"case {title}, channels first",
            *(f"  attr {a}" for a in [*channels, *types]), "  tol  1e-3",
            *(f"  in   {i}" for i in swapped), *(f"  out  {short(turned(o))}" for o in outs)]


PADS2 = [("SAME", None), ("VALID", None), ("EXPLICIT", [[1, 0], [2, 1]])]


def title_of(strides, dilations, pads):
    """What a case is about."""
    by = "x".join(map(str, strides))
    return f"{pads[0]} by {by}" + (f" dilated {'x'.join(map(str, dilations))}" if dilations else "")


def conv2d(op, filter_shape):
    """Convolutions of two dimensions."""
    lines = []
    for pads, strides, dilations in itertools.product(
            PADS2, [(1, 1), (2, 2), (1, 3)], [(1, 1), (2, 2), (1, 2)]):
        if op == "DepthwiseConv2dNative" and strides[0] != strides[1]:
            continue  # TensorFlow's kernel wants equal strides.
        inputs = [plain(values((1, 5, 6, 2), 1)), tensor("f32", filter_shape, "random 2")]
        lines += both_layouts(op, title_of(strides, dilations, pads),
                              windows(strides, dilations, pads), inputs, [0], dilations)
    return lines


def conv2d_transposed(op):
    """Transposed convolutions: the output of a convolution decides the input's size."""
    lines = []
    for pads, strides, dilations in itertools.product(
            PADS2, [(1, 1), (2, 2), (1, 3)], [(1, 1), (2, 2)]):
        attrs = windows(strides, dilations, pads)
        made = ask("Conv2D", attrs[0], [tensor("f32", (1, 5, 6, 2), "random 1"),
                                        tensor("f32", (3, 2, 2, 3), "random 2")])
        if made is None or isinstance(made[0], str):
            continue
        shape = made[0][0].array.shape
        inputs = ["i32[4] 1 5 6 2", tensor("f32", (3, 2, 2, 3), "random 2"), plain(values(shape, 3))]
        lines += both_layouts(op, title_of(strides, dilations, pads), attrs, inputs, [0, 2],
                              dilations)
    return lines


def pool2d(op):
    """Pools of two dimensions."""
    pads = PADS2 if op == "MaxPool" else PADS2[:2]
    lines = []
    for pad, strides, sizes in itertools.product(pads, [(1, 1), (2, 2), (1, 3)], [(2, 2), (3, 4)]):
        inputs = [plain(values((1, 5, 6, 2), 1))]
        title = title_of(strides, None, pad) + f", windows of {sizes[0]}x{sizes[1]}"
        lines += both_layouts(op, title, windows(strides, None, pad, sizes), inputs, [0])
    return lines


def conv3d(op):
    """Convolutions of three dimensions."""
    lines = []
    for pads, strides, dilations in itertools.product(
            PADS2[:2], [(1, 1, 1), (2, 2, 2), (1, 2, 3)], [(1, 1, 1), (2, 1, 2)]):
        inputs = [plain(values((1, 4, 3, 4, 2), 1)), tensor("f32", (2, 2, 2, 2, 2), "random 2")]
        lines += both_layouts(op, title_of(strides, dilations, pads),
                              windows(strides, dilations, pads), inputs, [0], dilations)
    return lines


MASKS = ["begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"]


def strided_slice(op):
    """All masks of one index with strides of both signs, and random ones of two and three."""
    lines = []

    def add(shape, begin, end, stride, masks):
        attrs = [f"{name} int {mask}" for name, mask in zip(MASKS, masks) if mask]
        one = [tensor("i32", [len(v)], " ".join(map(str, v))) for v in (begin, end, stride)]
        title = f"{shape} {begin}:{end}:{stride} {masks}"
        lines.extend(case(op, title, attrs, [tensor("i32", shape, "range"), *one]))

    for masks in itertools.product((0, 1), repeat=5):
        for begin, end, stride in [(1, 3, 1), (-3, 9, 2), (3, -5, -1), (9, -9, -2)]:
            add([4, 2], [begin], [end], [stride], masks)
    rng = random.Random(7)
    for _ in range(150):
        n = rng.choice((2, 2, 3))
        masks = [rng.choice([0, 0, rng.randrange(2**n)]) for _ in MASKS]
        masks[2] = rng.choice([0, 0, 1 << rng.randrange(n)])
        numbers = [[rng.randrange(-4, 5) for _ in range(n)] for _ in range(2)]
        stride = [rng.choice((1, 1, 2, -1, -2)) for _ in range(n)]
        add(rng.choice([[3, 4, 2], [2, 0, 3], [2, 3]]), *numbers, stride, masks)
    return lines


SHAPES = [(), (0,), (3,), (2, 3), (2, 0, 3), (0, 4)]


def axes(op, attrs, build):
    """An op with an axis, for every shape and axis from one too low to one too high."""
    lines = []
    for shape in SHAPES:
        for axis in range(-len(shape) - 1, len(shape) + 1):
            lines += case(op, f"{list(shape)} along {axis}", attrs(axis), build(shape, axis))
    return lines


def along(kind="f32"):
    """The grid of an op that takes a tensor and an axis."""
    return lambda op: axes(op, lambda axis: [], lambda shape, axis: [
        tensor(kind, shape, "random 4" if kind == "f32" else "random 4 0 1"),
        f"i32[] {axis}"])


def joined(op):
    """Two tensors along an axis."""
    return axes(op, lambda axis: ["N int 2"], lambda shape, axis: [
        tensor("i32", shape, "range"), tensor("i32", shape, "range"), f"i32[] {axis}"])


def packed(op):
    """Two tensors along a new axis."""
    return axes(op, lambda axis: [f"axis int {axis}"], lambda shape, axis: [
        tensor("i32", shape, "range"), tensor("i32", shape, "range")])


def gathered(op):
    """Rows along an axis, of which one is asked for twice."""
    return axes(op, lambda axis: [], lambda shape, axis: [
        tensor("i32", shape, "range"), "i32[3] 0 1 0" if 0 not in shape else "i32[0]",
        f"i32[] {axis}"])


def unary(op):
    """An op without an axis, for every shape."""
    return [line for shape in SHAPES
            for line in case(op, str(list(shape)), [], [tensor("f32", shape, "random 4")])]


def split(op):
    """Halves along an axis."""
    return axes(op, lambda axis: ["num_split int 2"], lambda shape, axis: [
        f"i32[] {axis}", tensor("i32", tuple(2 * d for d in shape), "range")])


GRID = {
    "Conv2D": lambda op: conv2d(op, (3, 2, 2, 2)),
    "DepthwiseConv2dNative": lambda op: conv2d(op, (3, 2, 2, 2)),
    "Conv2DBackpropInput": conv2d_transposed,
    "MaxPool": pool2d, "AvgPool": pool2d, "Conv3D": conv3d,
    "StridedSlice": strided_slice,
    **{op: along() for op in ("Sum", "Mean", "Max", "Min", "Prod", "ArgMax", "ArgMin", "Cumsum",
                                "Cumprod", "CumulativeLogsumexp", "ExpandDims")},
    "All": along("bool"), "Any": along("bool"),
    "ConcatV2": joined, "Pack": packed, "GatherV2": gathered, "Split": split,
    **{op: unary for op in ("Softmax", "LogSoftmax", "Relu", "Sigmoid", "Shape", "Size", "Rank")},
}


def main(args):
    """Writes the files."""
    FOLDER.mkdir(exist_ok=True)
    for op in args.ops or GRID:
        lines = [f"# {op}: written by tools/opsuite/grid.py.", *GRID[op](op)]
        (FOLDER / f"{op}.txt").write_text("\n".join(lines) + "\n")
        print(f"{op}: {sum(line.startswith('case ') for line in lines)} cases", flush=True)


if __name__ == "__main__":
    main(ARGS)
