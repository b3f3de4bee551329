"""Writes `crates/ops/src/outputs.txt`: the names of the outputs of every op that we know.

    tools/opsuite/outputs.py            # writes the file
    tools/opsuite/outputs.py --check    # fails if the file differs from TensorFlow's registry

A line is an op and its output arguments in order. `values*N` stands for as many tensors as the
attribute `N` says (a number, or the length of a list of types); `values*N=0` says that none is
meant where the attribute is left out. Ops of TensorFlow Text are not in TensorFlow's registry;
their lines stand in `TEXT_OPS`.
"""

import argparse
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)

import tfenv


def command_line():
    """The parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing")
    return parser


if __name__ == "__main__":
    ARGS = tfenv.enter(command_line())

from tensorflow.python.framework import op_def_registry

ROOT = tfenv.ROOT
FILE = ROOT / "crates/ops/src/outputs.txt"

# Ops without cases of their own: those that call functions, and those that tracing replaces.
WITHOUT_CASES = """
    Assign AssignAdd AssignSub BatchFunction Case Const ControlTrigger Enter Exit If
    IsVariableInitialized LoopCond Merge NextIteration NoOp PartitionedCall RefEnter RefExit
    RefIdentity RefMerge RefNextIteration RefSwitch StatefulPartitionedCall StatelessCase
    StatelessIf StatelessWhile Switch Variable VariableV2 While
""".split()

TEXT_OPS = {"CaseFoldUTF8": "output", "NormalizeUTF8": "output"}


def argument(op, arg):
    """An output argument as the file has it."""
    attr = arg.number_attr or arg.type_list_attr
    if not attr:
        return arg.name
    definition = next(a for a in op.attr if a.name == attr)
    if not definition.HasField("default_value"):
        return f"{arg.name}*{attr}"
    default = definition.default_value
    count = default.i if arg.number_attr else len(default.list.type)
    return f"{arg.name}*{attr}={count}"


def lines():
    """The lines of the file, sorted."""
    cases = {path.stem for path in (ROOT / "testdata/ops").glob("*.txt")}
    for name in sorted(cases | set(WITHOUT_CASES)):
        op = op_def_registry.get(name)
        if op is not None:
            yield " ".join([name] + [argument(op, arg) for arg in op.output_arg])
        elif name in TEXT_OPS:
            yield f"{name} {TEXT_OPS[name]}"
        elif not name.startswith("_"):  # Those are ours: passes make them, files have none.
            sys.exit(f"neither TensorFlow nor this script knows the outputs of {name}")


def main(args):
    text = "".join(f"{line}\n" for line in lines())
    if not args.check:
        FILE.write_text(text)
    elif FILE.read_text() != text:
        sys.exit(f"{FILE.relative_to(ROOT)} is not what TensorFlow says; run tools/opsuite/outputs.py")


if __name__ == "__main__":
    main(ARGS)
