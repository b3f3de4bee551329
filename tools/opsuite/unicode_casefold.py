"""Writes the table of `CaseFoldUTF8`: what folding makes of a code point beyond NFKC.

    tools/opsuite/unicode_casefold.py > crates/ops/src/text/casefold.txt

A line is a code point, or a range of them, in hexadecimal, and the code points that it becomes;
none means that it is left out. Code points that are not listed become what their NFKC form becomes.
"""

import argparse
import sys
import unicodedata
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)

import tfenv

if __name__ == "__main__":
    tfenv.enter(argparse.ArgumentParser(description=__doc__.splitlines()[0]))

from opsuite import tftext

POINTS = [point for point in range(0x110000) if not 0xD800 <= point < 0xE000]


def fold_all():
    """For each code point its NFKC form and what folding makes of it."""
    text = tftext.load()
    chars = [chr(point).encode() for point in POINTS]
    compatible = text.normalize_utf8(chars, normalization_form="NFKC").numpy()
    folded = text.case_fold_utf8(chars).numpy()
    return {
        point: (nfkc.decode(), fold.decode())
        for point, nfkc, fold in zip(POINTS, compatible, folded)
    }


def exceptions(folds):
    """The code points that have to be listed."""
    listed = {p: fold for p, (nfkc, fold) in folds.items() if nfkc == chr(p) and fold != nfkc}
    for point, (nfkc, fold) in folds.items():
        implied = "".join(listed.get(ord(c), c) for c in nfkc)
        if point not in listed and unicodedata.normalize("NFC", implied) != fold:
            listed[point] = fold
    return listed


def main():
    start = None
    listed = exceptions(fold_all())
    for point in sorted(listed):
        fold = listed[point]
        if fold:
            print(f"{point:x} {' '.join(f'{ord(c):x}' for c in fold)}")
            continue
        start = point if start is None else start
        if listed.get(point + 1) != "":
            print(f"{start:x}-{point:x}")
            start = None


if __name__ == "__main__":
    main()
