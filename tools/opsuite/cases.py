"""Fills the op suite with TensorFlow's answers.

    tools/opsuite/cases.py testdata/ops/Softmax.txt ...      runs the cases, rewrites the files in place
    tools/opsuite/cases.py --check testdata/ops/*.txt        only reports what differs

A case may lack its `out` or `err` lines and the type and number attributes that follow from its
inputs: they are written. An `err` line is checked for its code only; its text is ours. Paths inside
cases are relative to the root of the repository.

TensorFlow runs NCHW convolutions and pools on the CPU only with oneDNN, a choice made once a
process: cases with such a `data_format` run in a second process with oneDNN on, all others without it.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)

import tfenv

CHANNELS_FIRST = "--channels-first"


def command_line():
    """The parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="report differences, change nothing")
    parser.add_argument(CHANNELS_FIRST, action="store_true", help="only the cases with NCHW data")
    parser.add_argument("files", nargs="+", type=Path)
    return parser


if __name__ == "__main__":
    os.environ["TF_ENABLE_ONEDNN_OPTS"] = "1" if CHANNELS_FIRST in sys.argv else "0"
    ARGS = tfenv.enter(command_line())

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, graph_pb2, node_def_pb2
from tensorflow.python.framework import op_def_registry

from opsuite import text as optext
from opsuite import tftext
from opsuite.text import Malformed, Tensor

tftext.load()

TYPES = {
    "f32": "float32", "f64": "float64", "f16": "float16", "bf16": "bfloat16", "str": "string",
    "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "bool": "bool",
    "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64", "c64": "complex64",
    "c128": "complex128", "qi8": "qint8", "qu8": "quint8", "qi32": "qint32", "qi16": "qint16",
    "qu16": "quint16", "resource": "resource", "variant": "variant",
}
TO_ENUM = {name: getattr(tf, tf_name).as_datatype_enum for name, tf_name in TYPES.items()}
FROM_ENUM = {enum: name for name, enum in TO_ENUM.items()}
CODES = {
    1: "CANCELLED", 2: "UNKNOWN", 3: "INVALID_ARGUMENT", 4: "DEADLINE_EXCEEDED", 5: "NOT_FOUND",
    6: "ALREADY_EXISTS", 7: "PERMISSION_DENIED", 8: "RESOURCE_EXHAUSTED", 9: "FAILED_PRECONDITION",
    10: "ABORTED", 11: "OUT_OF_RANGE", 12: "UNIMPLEMENTED", 13: "INTERNAL", 14: "UNAVAILABLE",
    15: "DATA_LOSS", 16: "UNAUTHENTICATED",
}
CONTROL_FLOW = {"Switch", "Merge", "Enter", "Exit", "NextIteration", "LoopCond",
                "RefSwitch", "RefMerge", "RefEnter", "RefExit", "RefNextIteration"}


def type_enum(name):
    """The DataType number of one of the suite's type names."""
    if name not in TO_ENUM:
        raise Malformed(f"unknown type {name}")
    return TO_ENUM[name]


def op_def(name):
    """TensorFlow's definition of an op."""
    found = op_def_registry.get(name)
    if found is None:
        raise Malformed(f"TensorFlow has no op {name}")
    return found


def attr_value(kind, value):
    """An AttrValue message of an attribute line."""
    proto = attr_value_pb2.AttrValue()
    if kind == "shape":
        proto.shape.CopyFrom(tf.TensorShape(value_dims(value)).as_proto())
    elif kind == "tensor":
        proto.tensor.CopyFrom(tf.make_tensor_proto(to_feed(value), TO_ENUM[value.dtype]))
    elif kind == "type":
        proto.type = type_enum(value)
    elif kind == "shapes":
        proto.list.SetInParent()
        for dims in value:
            proto.list.shape.add().CopyFrom(tf.TensorShape(value_dims(dims)).as_proto())
    elif kind == "types":
        proto.list.SetInParent()
        proto.list.type.extend(type_enum(t) for t in value)
    else:
        fields = {"int": "i", "float": "f", "bool": "b", "str": "s"}
        if kind in fields:
            setattr(proto, fields[kind], value)
        else:
            proto.list.SetInParent()
            getattr(proto.list, fields[kind[:-1]]).extend(value)
    return proto


def value_dims(dims):
    """Dims as tf.TensorShape takes them."""
    return None if dims is None else [None if d < 0 else d for d in dims]


def to_feed(tensor):
    """The array to feed; quantized dtypes are records in NumPy."""
    if tensor.dtype.startswith("q"):
        return tensor.array.view(getattr(tf, TYPES[tensor.dtype]).as_numpy_dtype)
    return tensor.array


def from_fetch(array, dtype):
    """A fetched array as a tensor of the suite."""
    array = np.asarray(array, dtype=object if dtype == "str" else None)
    if dtype.startswith("q"):
        array = np.ascontiguousarray(array).view(optext.DTYPES[dtype]).reshape(array.shape)
    if dtype == "str":
        flat = np.empty(array.size, dtype=object)
        flat[:] = [v if isinstance(v, bytes) else str(v).encode() for v in array.reshape(-1)]
        array = flat.reshape(array.shape)
    return Tensor(dtype, array.astype(optext.DTYPES[dtype], copy=False))


def known(definition, attrs, name):
    """The plain value of an attribute: given, inferred, the op's default, or None."""
    if name in attrs:
        return attrs[name][1]
    for attr in definition.attr:
        if attr.name == name and attr.HasField("default_value"):
            value = attr.default_value
            if attr.type == "type":
                return FROM_ENUM.get(value.type)
            if attr.type == "list(type)":
                return [FROM_ENUM.get(t) for t in value.list.type]
            return value.i
    return None


def arg_lengths(definition, attrs, n_inputs):
    """How many tensors each input argument takes; one unknown length is solved for."""
    lengths, unknown = [], set()
    for arg in definition.input_arg:
        name = arg.number_attr or arg.type_list_attr
        if not name:
            lengths.append(1)
        elif name in attrs:
            value = attrs[name][1]
            lengths.append(len(value) if arg.type_list_attr else value)
        else:
            lengths.append(name)
            unknown.add(name)
    fixed = sum(n for n in lengths if isinstance(n, int))
    if len(unknown) > 1:
        raise Malformed(f"write the attributes {', '.join(sorted(unknown))}: they do not follow")
    if unknown:
        (name,) = unknown
        share, rest = divmod(n_inputs - fixed, lengths.count(name))
        if rest or share < 0:
            raise Malformed(f"{n_inputs} inputs do not fit {definition.name}")
        lengths = [share if n == name else n for n in lengths]
    elif fixed != n_inputs:
        raise Malformed(f"{definition.name} takes {fixed} inputs, got {n_inputs}")
    return lengths


def infer_attrs(definition, attrs, dtypes):
    """The type and number attributes that follow from the dtypes of the inputs (None: unknown)."""
    found = {}
    at = 0
    for arg, length in zip(definition.input_arg, arg_lengths(definition, attrs, len(dtypes))):
        mine = dtypes[at:at + length]
        at += length
        if arg.number_attr and arg.number_attr not in attrs:
            found[arg.number_attr] = ("int", length)
        if arg.type_list_attr and arg.type_list_attr not in attrs and None not in mine:
            found[arg.type_list_attr] = ("types", mine)
        if arg.type_attr and arg.type_attr not in attrs and mine and mine[0]:
            found.setdefault(arg.type_attr, ("type", mine[0]))
    return found


def check_attrs(definition, attrs):
    """Refuses attributes the op does not have, and the lack of those it must have."""
    names = {a.name for a in definition.attr}
    for name in attrs:
        if name not in names:
            raise Malformed(f"{definition.name} has no attribute {name}; it has {sorted(names)}")
    lacking = [a.name for a in definition.attr
               if a.name not in attrs and not a.HasField("default_value")]
    if lacking:
        raise Malformed(f"{definition.name} lacks the attributes {', '.join(lacking)}")


def output_types(definition, attrs):
    """The dtypes of all outputs in order."""
    types = []
    for arg in definition.output_arg:
        if arg.type_list_attr:
            types.extend(known(definition, attrs, arg.type_list_attr))
            continue
        one = FROM_ENUM.get(arg.type) if arg.type else known(definition, attrs, arg.type_attr)
        types.extend([one] * (known(definition, attrs, arg.number_attr) if arg.number_attr else 1))
    return types


def single_node(case, op):
    """The nodes of a case; one without `node` lines is a single node that takes every input."""
    if case.nodes:
        return case.nodes
    inputs = [f"in{i}" for i in range(len(case.inputs))]
    return [optext.Node("op", op, inputs, case.attrs, case.last_attr_line)]


def build(case, op):
    """The graph of a case, the tensors to fetch with their dtypes, and the inferred attributes."""
    graph = graph_pb2.GraphDef()
    types = {}
    for i, tensor in enumerate(case.inputs):
        node = graph.node.add(name=f"in{i}", op="Placeholder")
        node.attr["dtype"].type = TO_ENUM[tensor.dtype]
        types[f"in{i}"] = [tensor.dtype]
    inferred = []
    nodes = single_node(case, op)
    chained = not any(n.op in CONTROL_FLOW for n in nodes)
    for i, node in enumerate(nodes):
        definition = op_def(node.op)
        dtypes = []
        for name in node.inputs:
            if name.startswith("^"):
                continue
            source, _, index = name.partition(":")
            outputs = types.get(source)
            if outputs is not None and int(index or 0) >= len(outputs):
                raise Malformed(f"{name}: {source} has {len(outputs)} outputs")
            dtypes.append(outputs[int(index or 0)] if outputs is not None else None)
        new = infer_attrs(definition, node.attrs, dtypes)
        attrs = {**node.attrs, **new}
        check_attrs(definition, attrs)
        types[node.name] = output_types(definition, attrs)
        inferred.append((node, new))
        graph.node.append(node_def(node, attrs, nodes[i - 1].name if chained and i else None))
    return graph, fetch_list(case, nodes, types), inferred


def node_def(node, attrs, before):
    """A NodeDef that runs after the node `before`."""
    proto = node_def_pb2.NodeDef(name=node.name, op=node.op)
    proto.input.extend(n for n in node.inputs if not n.startswith("^"))
    proto.input.extend(n for n in node.inputs if n.startswith("^"))
    if before and f"^{before}" not in proto.input:
        proto.input.append(f"^{before}")
    for name, (kind, value) in attrs.items():
        proto.attr[name].CopyFrom(attr_value(kind, value))
    return proto


def fetch_list(case, nodes, types):
    """Pairs of tensor name and dtype."""
    if not case.nodes:
        name = nodes[0].name
        return [(f"{name}:{i}", t) for i, t in enumerate(types[name])]
    fetches = []
    for name in case.fetches:
        source, _, index = name.partition(":")
        if source not in types or int(index or 0) >= len(types[source]):
            raise Malformed(f"nothing to fetch at {name}")
        fetches.append((f"{source}:{index or 0}", types[source][int(index or 0)]))
    return fetches


def session_config():
    """One thread and no graph rewriting: the kernels themselves are asked."""
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1,
                                      inter_op_parallelism_threads=1)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = -1
    return config


def run(case, op):
    """TensorFlow's outputs, or its error as (code, message); and the inferred attributes."""
    proto, fetches, inferred = build(case, op)
    with tf.Graph().as_default() as graph:
        try:
            tf.graph_util.import_graph_def(proto, name="")
        except ValueError as error:
            return None, ("INVALID_ARGUMENT", str(error)), inferred
        feed = {f"in{i}:0": to_feed(t) for i, t in enumerate(case.inputs)}
        targets = [graph.get_operation_by_name(n.name) for n in single_node(case, op)]
        try:
            with tf.compat.v1.Session(config=session_config()) as session:
                arrays, _ = session.run([[name for name, _ in fetches], targets], feed)
        except tf.errors.OpError as error:
            if "No OpKernel was registered" in error.message:
                raise Malformed("TensorFlow has no CPU kernel for these types") from error
            return None, (CODES[error.error_code], error.message), inferred
    return [from_fetch(a, t) for a, (_, t) in zip(arrays, fetches)], None, inferred


def attr_lines(inferred, indent):
    """The lines of inferred attributes."""
    lines = []
    for name, (kind, value) in inferred.items():
        text = " ".join(value) if kind == "types" else str(value)
        lines.append(f"{indent}attr {name} {kind} {text}".rstrip())
    return lines


def out_line(case, i, tensor, lines):
    """The line of one output; a line that already says the same is left as it is."""
    if i < len(case.outs):
        close = optext.tolerance(case, tensor.dtype) / 10
        if not optext.differs(tensor, case.outs[i], close, case.onlyshape):
            return lines[case.out_lines[i]]
    if case.onlyshape:
        blank = np.zeros(tensor.array.shape, tensor.array.dtype)
        if tensor.dtype == "str":
            blank[...] = b""
        text = optext.format_tensor(Tensor(tensor.dtype, blank))
        return "  out  " + (" ".join(text.split()[:2]) if blank.size else text)
    return "  out  " + optext.format_tensor(tensor)


def rewrite(case, lines, outs, error, inferred):
    """The new lines of a case."""
    result = []
    additions = {node.last_line: attr_lines(new, "    " if case.nodes else "  ")
                 for node, new in inferred if new}
    for number in range(case.first_line, case.last_line + 1):
        if number not in case.out_lines and number != case.err_line:
            result.append(lines[number])
        result.extend(additions.get(number, []))
    if error is not None:
        text = case.err[1] if case.err else ""
        result.append(f"  err  {error[0]} {text}".rstrip())
    else:
        result.extend(out_line(case, i, t, lines) for i, t in enumerate(outs))
    return result


def complaints(case, outs, error, check):
    """What differs from what the file says."""
    if error is not None:
        if case.err is None:
            if case.outs or check:
                return [f"TensorFlow fails with {error[0]}: {error[1].splitlines()[0]}"]
        elif check and case.err[0] != error[0]:
            return [f"TensorFlow's code is {error[0]}, the case says {case.err[0]}"]
        return []
    if case.err is not None:
        return ["an error is expected, but TensorFlow answers"]
    if not check:
        return []
    if len(case.outs) != len(outs):
        return [f"{len(case.outs)} out lines for {len(outs)} outputs"]
    gaps = [optext.differs(got, want, optext.tolerance(case, got.dtype), case.onlyshape)
            for got, want in zip(outs, case.outs)]
    return [f"output {i}: {gap}" for i, gap in enumerate(gaps) if gap]


def is_channels_first(case):
    """Whether any node of the case has channels before the spatial dimensions."""
    owners = [case.attrs, *(n.attrs for n in case.nodes)]
    return any(a.get("data_format", ("", b""))[1].startswith(b"NC") for a in owners)


def run_file(path, args, note):
    """Runs the cases that are this process's, rewrites the file; a count and complaints."""
    check = args.check
    lines = path.read_text().splitlines()
    cases = optext.parse_cases(lines)
    new_lines, done, found = [], 0, []
    cases = [c for c in cases if is_channels_first(c) == args.channels_first]
    for case in cases:
        note(case.title)
        new_lines.extend(lines[done:case.first_line])
        done = case.last_line + 1
        old = lines[case.first_line:done]
        try:
            outs, error, inferred = run(case, path.stem)
        except (Malformed, ValueError, TypeError) as problem:
            found.append(f"{path}: {case.title}: {problem}")
            new_lines.extend(old)
            continue
        found.extend(f"{path}: {case.title}: {c}" for c in complaints(case, outs, error, check))
        refused = error is None and case.err is not None
        new_lines.extend(old if refused else rewrite(case, lines, outs, error, inferred))
    new_lines.extend(lines[done:])
    if not check and new_lines != lines:
        path.write_text("\n".join(new_lines) + "\n")
    return len(cases), found


def run_isolated(path, args):
    """`run_file` in a child process, since some inputs make TensorFlow abort; prints complaints."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            n_cases, found = run_file(path, args, lambda t: os.write(writer, f"{t}\n".encode()))
            layout = " with channels first" if args.channels_first else ""
            print("\n".join([*found, f"{path}: {n_cases} cases{layout}, {len(found)} complaints"]))
            code = 1 if found else 0
        except Malformed as problem:
            print(f"{path}: {problem}")
        finally:
            sys.stdout.flush()
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as stream:
        titles = stream.read().splitlines()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        print(f"{path}: {titles[-1] if titles else '?'}: "
              f"TensorFlow died of signal {os.WTERMSIG(status)}; drop the case")
    return status == 0


def main(args):
    """Runs the cases; the exit code is 1 if any case is not as it should be."""
    files = [path.resolve() for path in args.files]
    os.chdir(tfenv.ROOT)
    good = [run_isolated(Path(os.path.relpath(path)), args) for path in files]
    others = [path for path in files if '"NC' in path.read_text() or " NC" in path.read_text()]
    if others and not args.channels_first:
        sys.stdout.flush()
        flags = [CHANNELS_FIRST] + (["--check"] if args.check else [])
        command = [sys.executable, __file__, *flags, *others]
        good.append(subprocess.run(command).returncode == 0)
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main(ARGS)
