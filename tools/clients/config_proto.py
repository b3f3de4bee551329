"""Reads serialised ConfigProtos with TensorFlow's own classes.

    tools/clients/config_proto.py DESCRIPTORS < LINES

DESCRIPTORS is our FileDescriptorSet: every message that a ConfigProto can hold must have
TensorFlow's fields, with its numbers, types and labels. Each line of standard input is a config
in hexadecimal; a line of JSON is printed for each, with the fields that are set by their paths.
"""

import argparse
import json
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)

import tfenv


def command_line():
    """The parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("descriptors", type=Path, metavar="DESCRIPTORS")
    return parser


if __name__ == "__main__":
    ARGS = tfenv.enter(command_line())

from google.protobuf import descriptor_pb2, descriptor_pool
from tensorflow.core.protobuf import config_pb2

MAIN = "tensorflow.ConfigProto"


def fields(message):
    """The fields of a message by name: number, type, whether it is a list, and what it holds."""
    def holds(field):
        inner = field.message_type or field.enum_type
        return inner.full_name if inner else None
    return {f.name: (f.number, f.type, f.is_repeated, holds(f)) for f in message.fields}


def compare(ours, theirs, seen):
    """The differences between two messages and all that they hold."""
    if ours.full_name in seen:
        return
    seen.add(ours.full_name)
    mine, wanted = fields(ours), fields(theirs)
    for name in sorted(mine.keys() | wanted.keys()):
        if mine.get(name) != wanted.get(name):
            yield f"{ours.full_name}.{name}: {mine.get(name)} instead of {wanted.get(name)}"
    for name in mine.keys() & wanted.keys():
        inner = ours.fields_by_name[name].message_type, theirs.fields_by_name[name].message_type
        if all(inner) and inner[0].full_name.startswith(MAIN.rsplit(".", 1)[0]):
            yield from compare(*inner, seen)


def leaves(message, path=""):
    """The scalars that are set, by their paths."""
    for field, value in message.ListFields():
        here = f"{path}{field.name}"
        if field.message_type is None:
            yield here, list(value) if field.is_repeated else value
        elif field.is_repeated:
            for i, inner in enumerate(value):
                yield from leaves(inner, f"{here}[{i}].")
        else:
            yield from leaves(value, f"{here}.")


def main(args):
    """Compares the descriptors, then reads the lines."""
    files = descriptor_pb2.FileDescriptorSet.FromString(args.descriptors.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    ours = pool.FindMessageTypeByName(MAIN)
    differences = list(compare(ours, config_pb2.ConfigProto.DESCRIPTOR, set()))
    print("\n".join(differences[:40]), file=sys.stderr)
    for line in sys.stdin:
        data = bytes.fromhex(line)
        config = config_pb2.ConfigProto.FromString(data)
        assert config.SerializeToString(deterministic=True) == data, "not as TensorFlow writes it"
        print(json.dumps(dict(leaves(config)), sort_keys=True))
    sys.exit(1 if differences else 0)


if __name__ == "__main__":
    main(ARGS)
