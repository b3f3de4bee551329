"""Writes the table of `UnicodeScript`: runs of code points of one script, as TensorFlow's ICU has it.

    tools/unicode_scripts.py > crates/ops/src/text/scripts.txt

Each line is a first code point in hexadecimal and the number of its script; a run ends where the
next begins.
"""

import tfenv

if __name__ == "__main__":
    tfenv.enter()

import numpy as np
import tensorflow as tf


def main():
    points = np.arange(0x110000, dtype=np.int32)
    scripts = tf.strings.unicode_script(points).numpy()
    starts = np.flatnonzero(np.diff(scripts, prepend=scripts[0] - 1))
    print("\n".join(f"{start:x} {scripts[start]}" for start in starts))


if __name__ == "__main__":
    main()
