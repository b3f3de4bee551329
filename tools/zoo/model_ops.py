"""Lists the ops that serving a SavedModel needs: from the feeds of each signature to its fetches.

    tools/zoo/model_ops.py models/*/* testdata/models/*/*

Function calls are followed; so are the init op (tables) and, named apart, nothing else: saving and
restoring are not part of serving. Each op is printed with the dtypes it is used with.
"""

import argparse
import sys
from collections import defaultdict
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)

import tfenv


def command_line():
    """The parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    return parser


if __name__ == "__main__":
    ARGS = tfenv.enter(command_line())

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

INIT_OP = "__saved_model_init_op"


def node_name(tensor):
    """The node of a tensor name or of a control input."""
    return tensor.lstrip("^").split(":")[0]


def dtypes_of(node):
    """The types among a node's attributes, in the order of their names."""
    names = []
    for key in sorted(node.attr):
        value = node.attr[key]
        kind = value.WhichOneof("value")
        if kind == "type":
            names.append(tf.dtypes.as_dtype(value.type).name)
        elif kind == "list" and value.list.type:
            names.append("[" + " ".join(tf.dtypes.as_dtype(t).name for t in value.list.type) + "]")
    return ",".join(names)


def function_names(node):
    """The functions a node may call."""
    for value in node.attr.values():
        if value.HasField("func"):
            yield value.func.name
        for func in value.list.func:
            yield func.name


def reach(nodes, roots, stops, functions, found):
    """Adds every node that `roots` need, up to and without `stops`, and the functions they call."""
    by_name = {n.name: n for n in nodes}
    todo, seen = [node_name(r) for r in roots], set()
    while todo:
        name = todo.pop()
        if name in seen or name not in by_name:
            continue
        seen.add(name)
        node = by_name[name]
        if name in stops:
            continue
        found[node.op].add(dtypes_of(node))
        for called in function_names(node):
            if called in functions:
                body = functions[called]
                ends = [*body.ret.values(), *body.control_ret.values()]
                ends += [n.name for n in body.node_def if is_stateful(n.op)]
                reach(body.node_def, ends, set(), functions, found)
        todo.extend(node_name(i) for i in node.input)


def is_stateful(op):
    """Whether a function must run the op even if nothing takes its output."""
    from tensorflow.python.framework import op_def_registry
    definition = op_def_registry.get(op)
    return definition is not None and definition.is_stateful


def ops_of(folder):
    """What serving the SavedModel in `folder` needs: op → set of dtype texts."""
    model = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    found = defaultdict(set)
    for meta in model.meta_graphs:
        functions = {f.signature.name: f for f in meta.graph_def.library.function}
        init = [entry for key in ("saved_model_main_op", "legacy_init_op")
                for entry in meta.collection_def[key].node_list.value]
        for name, signature in meta.signature_def.items():
            roots = [t.name for t in signature.outputs.values()]
            feeds = {node_name(t.name) for t in signature.inputs.values()}
            if name == INIT_OP:
                init.extend(roots)
            else:
                reach(meta.graph_def.node, roots, feeds, functions, found)
        reach(meta.graph_def.node, init, set(), functions, found)
    return found


def main(args):
    """Prints the ops of all models together, then a line a model."""
    folders = [f for f in args.folders if (f / "saved_model.pb").exists()]
    if not folders:
        sys.exit("no SavedModel among the folders given")
    together = defaultdict(set)
    for folder in folders:
        found = ops_of(folder)
        print(f"{folder}: {' '.join(sorted(found))}")
        for op, types in found.items():
            together[op] |= types
    print(f"\n{len(together)} ops:")
    for op in sorted(together):
        print(f"{op}: {'; '.join(sorted(together[op]))}")


if __name__ == "__main__":
    main(ARGS)
