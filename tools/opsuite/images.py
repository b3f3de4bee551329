"""Cases of image files for the op suite: kinds that few encoders write, and damaged ones.

    tools/opsuite/images.py                        rewrites the made part of testdata/ops/Decode*.txt
    tools/opsuite/images.py FOLDER --damaged N     writes N files with random damage to FOLDER

`opsuite/cases.py` then fills in TensorFlow's answers. Files of the suite keep what stands before the line
that this script puts in front of its own cases.
"""

import argparse
import random
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)

import tfenv


def command_line():
    """The parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", default=tfenv.ROOT / "testdata" / "ops")
    parser.add_argument("--damaged", type=int, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    return parser


if __name__ == "__main__":
    ARGS = tfenv.enter(command_line())

import numpy as np

from opsuite import imagebytes
from opsuite import text as optext
from opsuite.imagebytes import Jpeg, picture, progressive

LINE = "# The cases from here on are made by tools/opsuite/images.py."
SAMPLINGS = {
    "4:4:4": [(1, 1), (1, 1), (1, 1)], "4:2:2": [(2, 1), (1, 1), (1, 1)],
    "4:2:0": [(2, 2), (1, 1), (1, 1)], "4:4:0": [(1, 2), (1, 1), (1, 1)],
    "4:1:1": [(4, 1), (1, 1), (1, 1)], "4:1:0": [(4, 2), (1, 1), (1, 1)],
    "a third": [(3, 1), (1, 1), (1, 1)], "unlike each other": [(2, 2), (2, 1), (1, 2)],
    "less luma than chroma": [(1, 1), (2, 2), (2, 2)],
}


class Cases:
    """The lines of cases, by op."""

    def __init__(self):
        self.lines = {}

    def add(self, op, title, data, inputs=(), **attrs):
        """A case of a file's bytes; attributes are ints, bools, strings or dtypes by their kind."""
        lines = self.lines.setdefault(op, [])
        lines.append(f"case {title}")
        for name, value in attrs.items():
            kind = {bool: "bool", int: "int", str: "str", float: "float"}[type(value)]
            if name == "dtype":
                kind = "type"
            text = str(value).lower() if kind == "bool" else value
            lines.append(f"  attr {name} {kind} {text}")
        lines.append(f"  in   str[] {optext.escape(data)}")
        lines += [f"  in   {text}" for text in inputs] + [""]


def planes(height, width, n):
    """The components of a picture; those after the first are smoother."""
    return [picture(height, width, seed) for seed in range(1, n + 1)]


def samplings(cases):
    """Every sampling, in one pass and in many, in several sizes."""
    for name, factors in SAMPLINGS.items():
        data = Jpeg(planes(19, 23, 3), factors, quality=20).file()
        cases.add("DecodeJpeg", f"sampling {name}", data)
        for ratio in (2, 4, 8):
            cases.add("DecodeJpeg", f"sampling {name}, one part in {ratio}", data, ratio=ratio)
        cases.add("DecodeJpeg", f"sampling {name}, repeated", data, fancy_upscaling=False)
        cases.add("DecodeJpeg", f"sampling {name}, the accurate transform", data,
                  dct_method="INTEGER_ACCURATE")
        crop = ["i32[4] 3 5 9 11"]
        cases.add("DecodeAndCropJpeg", f"a part, sampling {name}", data, crop)
        passes = Jpeg(planes(19, 23, 3), factors, restart=2, scans=progressive(3), quality=20)
        passes = passes.file()
        cases.add("DecodeJpeg", f"sampling {name}, progressive with restarts", passes)
        title = f"a part of a progressive one, sampling {name}"
        cases.add("DecodeAndCropJpeg", title, passes, crop)
        for height, width in ((1, 1), (7, 5), (5, 7), (1, 17), (17, 2), (2, 3)):
            data = Jpeg(planes(height, width, 3), factors, restart=1).file()
            cases.add("DecodeImage", f"sampling {name}, {height} by {width}", data)


def crops(cases):
    """Parts of an image that lie at its edges and on the borders of blocks."""
    for name in ("4:2:0", "4:2:2", "4:4:4"):
        data = Jpeg(planes(33, 41, 3), SAMPLINGS[name], quality=20).file()
        for window in ("0 0 33 41", "0 0 1 1", "32 40 1 1", "16 16 8 9", "15 17 3 2", "7 8 17 4"):
            cases.add("DecodeAndCropJpeg", f"sampling {name}, {window}", data,
                      [f"i32[4] {window}"])
        for window in ("-1 0 3 3", "0 0 0 3", "0 0 34 3", "30 0 4 3"):
            cases.add("DecodeAndCropJpeg", f"sampling {name}, refused {window}", data,
                      [f"i32[4] {window}"])
        cases.add("DecodeAndCropJpeg", f"sampling {name}, repeated", data, ["i32[4] 5 6 9 11"],
                  fancy_upscaling=False)
        cases.add("DecodeAndCropJpeg", f"sampling {name}, a half", data, ["i32[4] 5 6 9 11"],
                  ratio=2)
        cases.add("DecodeAndCropJpeg", f"sampling {name}, grey", data, ["i32[4] 5 6 9 11"],
                  channels=1)
    cases.add("DecodeAndCropJpeg", "three numbers", data, ["i32[3] 1 2 3"])


def spaces(cases):
    """What the components are: grey, red, green and blue, inks; asked for in all channels."""
    for n, space in ((1, "jfif"), (3, "jfif"), (3, ""), (3, "ids"), (3, "adobe0"), (3, "adobe1"),
                     (3, "adobe2"), (4, "jfif"), (4, ""), (4, "adobe0"), (4, "adobe1"),
                     (4, "adobe2")):
        for scans in (None, progressive(n)):
            data = Jpeg(planes(9, 11, n), [(1, 1)] * n, space, scans=scans).file()
            for channels in (0, 1, 3):
                title = f"{n} components, {space or 'unnamed'}, as {channels} channels"
                title += ", progressive" if scans else ""
                cases.add("DecodeJpeg", title, data, channels=channels)
            cases.add("DecodeImage", f"{n} components, {space or 'unnamed'}, {bool(scans)}", data,
                      dtype="u16")
    cases.add("DecodeImage", "four channels of a JPEG", data, channels=4)
    alone = Jpeg(planes(17, 33, 1), [(2, 2)], restart=3).file()
    cases.add("DecodeJpeg", "grey whose component says that it is subsampled", alone)
    inks = Jpeg(planes(17, 19, 4), [(2, 2), (1, 1), (1, 1), (2, 2)], "adobe2").file()
    cases.add("DecodeJpeg", "inks, subsampled", inks)
    cases.add("DecodeJpeg", "two components", Jpeg(planes(9, 9, 2), [(1, 1)] * 2).file())


def without_tables(cases):
    """A file as frames of films are: the tables that everybody has are left out."""
    data = (tfenv.ROOT / "testdata" / "images" / "small.jpg").read_bytes()
    parts, at = [data[:2]], 2
    while data[at + 1] != 0xDA:
        end = at + 2 + int.from_bytes(data[at + 2:at + 4], "big")
        parts += [data[at:end]] if data[at + 1] != 0xC4 else []
        at = end
    cases.add("DecodeJpeg", "without Huffman tables", b"".join([*parts, data[at:]]))


def cut_off(cases):
    """Files that break off, with and without what makes the best of it."""
    for name, scans in (("4:4:4", None), ("4:2:0", None), ("4:2:0", progressive(3))):
        kind = f"{name}{', progressive' if scans else ''}"
        data = Jpeg(planes(40, 24, 3), SAMPLINGS[name], scans=scans, quality=20).file()
        start = data.index(b"\xff\xda")
        for end in (10, start - 5, start + 6, start + 14, start + 40, (start + len(data)) // 2,
                    len(data) - 20, len(data) - 2, len(data) - 1):
            for recover in (False, True):
                if scans and recover and end == len(data) - 1:
                    continue  # TensorFlow reads the same bytes for ever.
                title = f"{kind}, {end} of {len(data)} bytes{', recovered' if recover else ''}"
                cases.add("DecodeJpeg", title, data[:end], try_recover_truncated=recover)
        for fraction in (0.1, 0.4, 0.9):
            cases.add("DecodeJpeg", f"{kind}, {fraction} of it is enough",
                      data[:(start + len(data)) // 2], acceptable_fraction=fraction)


def guessed(cases):
    """Progressive files whose passes do not tell all: TensorFlow guesses the rest. They lack
    passes, or break off within one."""
    for (height, width), factors in (((40, 24), (1, 1)), ((56, 33), (1, 2)), ((17, 16), (1, 1)),
                                     ((70, 9), (2, 4)), ((8, 30), (1, 1))):
        grey = planes(height, width, 1)
        title = f"grey of {height} by {width}, {factors[1]} rows of blocks at once"
        for n in (1, 2, 4):
            data = Jpeg(grey, [factors], scans=progressive(1)[:n], quality=20).file()
            cases.add("DecodeJpeg", f"{title}, {n} passes", data)
        data = Jpeg(grey, [factors], scans=progressive(1), quality=20).file()
        start = data.index(b"\xff\xda")
        for part in (1, 4, 7, 9):
            end = start + (len(data) - start) * part // 12
            cases.add("DecodeJpeg", f"{title}, {end} of {len(data)} bytes", data[:end],
                      try_recover_truncated=True)
    for name in ("4:2:0", "4:1:0", "unlike each other"):
        scans = progressive(3)
        data = Jpeg(planes(36, 37, 3), SAMPLINGS[name], scans=scans[:3], quality=20).file()
        cases.add("DecodeJpeg", f"sampling {name}, three passes", data)
        cases.add("DecodeJpeg", f"sampling {name}, three passes, one part in 2", data, ratio=2)
        crop = ["i32[4] 9 18 20 17"]
        cases.add("DecodeAndCropJpeg", f"a part, sampling {name}, three passes", data, crop)
    fine = Jpeg(planes(24, 24, 1), [(1, 1)], scans=[([0], 0, 0, 0, 0), ([0], 10, 63, 0, 0)])
    cases.add("DecodeJpeg", "only the fine details beside the level", fine.file())
    fine.scans = [([0], 0, 0, 0, 0), ([0], 9, 63, 0, 0)]
    cases.add("DecodeJpeg", "one detail more beside the level", fine.file())
    fine.scans = [([0], 1, 63, 0, 0)]
    cases.add("DecodeJpeg", "details without a level", fine.file())
    fine.table[3], fine.scans = 0, [([0], 0, 0, 0, 0)]
    cases.add("DecodeJpeg", "a step of zero", fine.file())


def ended_by_a_comment(cases):
    """Files with a comment behind the picture that break off within it or behind it."""
    data = Jpeg(planes(16, 16, 3), SAMPLINGS["4:2:0"], quality=20).file()
    for length in (1, 2, 3, 4, 5, 11, 12, 13, 14):
        tail = (b"\xff\xfe\x00\x0ahellohel" + data[-2:])[:length]
        cases.add("DecodeJpeg", f"{length} bytes of a comment behind it", data[:-2] + tail)


def bmps(cases):
    """Rows of every length, from below and from above, and files that break off."""
    rng = np.random.default_rng(9)
    for n in (1, 3, 4):
        for width in (1, 2, 3, 4):
            for top_down in (False, True):
                samples = rng.integers(0, 256, (2, width, n))
                data = imagebytes.bmp(samples, top_down)
                title = f"{8 * n} bits, {width} wide{', top row first' if top_down else ''}"
                cases.add("DecodeBmp", title, data)
                if width == 3:
                    cases.add("DecodeImage", f"BMP of {title}", data)
                    for less in (1, 2, 4, width * n + 1, len(data) - 54, len(data) - 40):
                        cases.add("DecodeBmp", f"{title}, {less} bytes less", data[:-less])
                    cases.add("DecodeBmp", f"{title}, a byte more", data + b"x")


def damage(data, rng, start=2):
    """Data with one to three bytes changed, dropped or put in, from `start` on."""
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 3])):
        at = rng.randrange(start, len(data))
        how = rng.randrange(4)
        if how < 2:
            data[at] = rng.randrange(256)
        elif how == 2:
            del data[at:at + rng.choice([1, 2, 9])]
        else:
            data[at:at] = bytes([rng.choice([0, 0xFF, 0xD1, rng.randrange(256)])])
    return bytes(data)


def damaged_jpegs(cases, count, seed, inside):
    """Damaged files of several kinds; `inside`: only behind the markers."""
    rng = random.Random(seed)
    for number in range(count):
        name = rng.choice(sorted(SAMPLINGS))
        n = rng.choice([1, 3, 3])
        factors = SAMPLINGS[name] if n == 3 else [(1, 1)]
        passes = progressive(n) if rng.random() < 0.3 else None
        restart = rng.choice([0, 0, 1, 2, 3])
        good = Jpeg(planes(20, 22, n), factors, restart=restart, scans=passes, quality=20)
        data = good.file()
        start = data.index(b"\xff\xda") + 14 if inside else 2
        cases.add("DecodeJpeg", f"damage {number}", damage(data, rng, start),
                  try_recover_truncated=rng.random() < 0.3)


def pngs(cases):
    """Every kind of pixel, row by row and interlaced."""
    rng = np.random.default_rng(7)
    for color, n in imagebytes.CHANNELS.items():
        for bits in (1, 2, 4, 8, 16):
            if (bits < 8 and color in (2, 4, 6)) or (bits == 16 and color == 3):
                continue
            colors = rng.integers(0, 256, 3 * min(1 << bits, 40)).astype(np.uint8).tobytes()
            few = min(1 << bits, 40) if color == 3 else 1 << bits
            for interlaced in (False, True):
                samples = rng.integers(0, few, (5, 11, n))
                kind = f"colour type {color} of {bits} bits{', interlaced' if interlaced else ''}"
                kinds = [("", [])]
                if color == 3:
                    kinds = [("", [(b"PLTE", colors)]),
                             (", with opacity", [(b"PLTE", colors), (b"tRNS", b"\x00\x80")])]
                if color in (0, 2):
                    clear = b"".join(int(v).to_bytes(2, "big") for v in samples[0, 0])
                    kinds.append((", with a clear value", [(b"tRNS", clear)]))
                for more, extra in kinds:
                    data = imagebytes.png(samples, color, bits, interlaced, extra)
                    png_cases(cases, kind + more, data)
    for height, width in ((1, 1), (3, 2), (2, 9)):
        samples = rng.integers(0, 256, (height, width, 3))
        data = imagebytes.png(samples, 2, 8, True)
        cases.add("DecodePng", f"interlaced, {height} by {width}", data)


def png_cases(cases, title, data):
    """A file in all numbers of channels and dtypes."""
    for channels in (0, 1, 3, 4):
        cases.add("DecodePng", f"{title}, as {channels} channels", data, channels=channels)
    cases.add("DecodePng", f"{title}, as u16", data, dtype="u16")
    cases.add("DecodePng", f"{title}, as u16 of 4 channels", data, dtype="u16", channels=4)
    cases.add("DecodeImage", f"{title}, as floats", data, dtype="f32")


def damaged_pngs(cases, count, seed):
    """Damaged files."""
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    for number in range(count):
        color = rng.choice([0, 2, 4, 6])
        samples = numbers.integers(0, 256, (5, 7, imagebytes.CHANNELS[color]))
        data = imagebytes.png(samples, color, 8, rng.random() < 0.5)
        cases.add("DecodePng", f"damage {number}", damage(data, rng, 8))


def write(folder, cases, keep):
    """The cases, behind what a file has of its own."""
    for op, lines in cases.lines.items():
        path = folder / f"{op}.txt"
        own = path.read_text().partition(LINE)[0] if keep else ""
        path.write_text("\n".join([*([own.rstrip("\n"), ""] if own else []), LINE, *lines]).rstrip()
                        + "\n")


def main(args):
    """Reads the command line."""
    cases = Cases()
    if args.damaged:
        damaged_jpegs(cases, args.damaged, args.seed, inside=args.seed % 2 == 0)
        damaged_pngs(cases, args.damaged, args.seed)
    else:
        makers = (samplings, crops, spaces, without_tables, cut_off, guessed,
                  ended_by_a_comment, pngs, bmps)
        for make in makers:
            make(cases)
        damaged_jpegs(cases, 40, 2, inside=True)
    write(args.folder, cases, keep=not args.damaged)


if __name__ == "__main__":
    main(ARGS)
