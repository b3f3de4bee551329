"""Writes the table of `UnicodeScript`: runs of code points of one script, as TensorFlow's ICU has it.

    tools/opsuite/unicode_scripts.py > crates/ops/src/text/scripts.txt

Each line is a first code point in hexadecimal and the number of its script; a run ends where the
next begins.
"""

import argparse
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)

import tfenv

if __name__ == "__main__":
    tfenv.enter(argparse.ArgumentParser(description=__doc__.splitlines()[0]))

import numpy as np
import tensorflow as tf


def main():
    points = np.arange(0x110000, dtype=np.int32)
    scripts = tf.strings.unicode_script(points).numpy()
    starts = np.flatnonzero(np.diff(scripts, prepend=scripts[0] - 1))
    print("\n".join(f"{start:x} {scripts[start]}" for start in starts))


if __name__ == "__main__":
    main()
