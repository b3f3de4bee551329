"""Bytes of image files with what encoders seldom write: JPEGs of any sampling, colour space, number
of scans and restart interval, PNGs of every kind of pixel, interlaced or not, and BMPs.

Knows nothing of TensorFlow; `opsuite/images.py` makes op cases of them.
"""

import struct
import zlib

import numpy as np

# The places of a block, diagonal by diagonal, down and up in turn.
DIAGONALS = [[(y, n - y) for y in range(8) if 0 <= n - y < 8] for n in range(15)]
ZIGZAG = [8 * y + x for n, line in enumerate(DIAGONALS) for y, x in (line if n % 2 else line[::-1])]
DCT = np.array([[(np.sqrt(1 / 8) if k == 0 else 0.5) * np.cos((2 * n + 1) * k * np.pi / 16)
                 for n in range(8)] for k in range(8)])


class Codes:
    """A Huffman table: symbols in order, the first `short` of them with short codes."""

    def __init__(self, symbols, short, lengths):
        self.symbols = symbols
        self.counts = [0] * 16
        self.codes = {}
        code, last = 0, lengths[0]
        for i, symbol in enumerate(symbols):
            length = lengths[0] if i < short else lengths[1]
            code <<= length - last
            last = length
            self.codes[symbol] = (code, length)
            self.counts[length - 1] += 1
            code += 1

    def segment(self, number):
        """What a DHT marker says of the table."""
        return bytes([number, *self.counts, *self.symbols])


DC = Codes(list(range(12)), 7, (4, 5))
AC = Codes([0x00, 0xF0, *(run << 4 | size for size in range(1, 11) for run in range(16))], 100,
           (8, 11))
# A progressive AC table also has ends of many blocks.
AC_RUNS = Codes([*AC.symbols, *(n << 4 for n in range(1, 15))], 100, (8, 11))


class Bits:
    """Bits of a scan, with a zero behind each byte of ones."""

    def __init__(self):
        self.text = []

    def put(self, value, length):
        """The lowest `length` bits of a number."""
        if length:
            self.text.append(format(value & ((1 << length) - 1), f"0{length}b"))

    def code(self, table, symbol):
        """A Huffman code."""
        self.put(*table.codes[symbol])

    def number(self, value):
        """A signed number in as many bits as it needs."""
        size = int(abs(value)).bit_length()
        self.put(value if value > 0 else value - 1, size)

    def take(self):
        """The bytes so far, filled up with ones."""
        text = "".join(self.text)
        text += "1" * (-len(text) % 8)
        self.text = []
        data = bytes(int(text[i:i + 8], 2) for i in range(0, len(text), 8))
        return data.replace(b"\xff", b"\xff\x00")


def marker(code, body=b""):
    """A marker with a body."""
    return bytes([0xFF, code]) + struct.pack(">H", len(body) + 2) + body


def size_of(value):
    """The bits of a coefficient."""
    return int(abs(value)).bit_length()


class Jpeg:
    """An encoder of planes of the image's full size.

    `sampling` has (h, v) for each component; `space` is "jfif", "adobe0".."adobe2", "ids" (the
    letters R, G, B as names) or "" for nothing; `scans` lists (components, first, last, high, low).
    """

    def __init__(self, planes, sampling, space="jfif", restart=0, scans=None, quality=6):
        self.height, self.width = planes[0].shape
        self.sampling, self.space, self.restart, self.scans = sampling, space, restart, scans
        self.table = [min(255, quality + (i // 8 + i % 8) * quality // 3) for i in range(64)]
        self.max_h = max(h for h, _ in sampling)
        self.max_v = max(v for _, v in sampling)
        self.across = -(-self.width // (8 * self.max_h))
        self.down = -(-self.height // (8 * self.max_v))
        self.blocks = [self.transform(p, hv) for p, hv in zip(planes, sampling)]
        self.ids = b"RGB"[:len(planes)] if space == "ids" else bytes(range(1, len(planes) + 1))

    def transform(self, plane, factors):
        """The quantized coefficients of a component: rows of blocks, in the file's order."""
        h, v = factors
        full = (self.down * self.max_v * 8, self.across * self.max_h * 8)
        pad = [(0, f - s) for f, s in zip(full, plane.shape)]
        wide = np.pad(plane.astype(float), pad, mode="edge")
        rows = np.arange(self.down * v * 8) * self.max_v // v
        columns = np.arange(self.across * h * 8) * self.max_h // h
        small = wide[rows][:, columns] - 128
        blocks = small.reshape(self.down * v, 8, self.across * h, 8).transpose(0, 2, 1, 3)
        found = DCT @ blocks @ DCT.T
        flat = found.reshape(*found.shape[:2], 64)[..., ZIGZAG]
        return np.rint(flat / self.table).astype(int)

    def file(self):
        """The bytes of the file."""
        data = b"\xff\xd8"
        if self.space == "jfif":
            data += marker(0xE0, b"JFIF\0\x01\x01\0\0\x01\0\x01\0\0")
        if self.space.startswith("adobe"):
            data += marker(0xEE, b"Adobe\0\x64\0\0\0\0" + bytes([int(self.space[5:])]))
        data += marker(0xDB, bytes([0, *self.table]))
        frame = struct.pack(">BHHB", 8, self.height, self.width, len(self.blocks))
        for name, (h, v) in zip(self.ids, self.sampling):
            frame += bytes([name, h << 4 | v, 0])
        data += marker(0xC2 if self.scans else 0xC0, frame)
        tables = AC_RUNS if self.scans else AC
        data += marker(0xC4, DC.segment(0x00) + tables.segment(0x10))
        if self.restart:
            data += marker(0xDD, struct.pack(">H", self.restart))
        everything = [(list(range(len(self.blocks))), 0, 63, 0, 0)]
        for scan in self.scans or everything:
            data += self.scan(*scan)
        return data + b"\xff\xd9"

    def units(self, components):
        """The blocks of a scan, unit by unit: (place in the scan, component, row, column)."""
        if len(components) == 1:
            (c,) = components
            h, v = self.sampling[c]
            wide = -(-(-(-self.width * h // self.max_h)) // 8)
            high = -(-(-(-self.height * v // self.max_v)) // 8)
            return [[(0, c, y, x)] for y in range(high) for x in range(wide)]
        return [[(i, c, y * v + dy, x * h + dx) for i, c in enumerate(components)
                 for h, v in [self.sampling[c]] for dy in range(v) for dx in range(h)]
                for y in range(self.down) for x in range(self.across)]

    def scan(self, components, first, last, high, low):
        """A scan with its marker."""
        head = bytes([len(components)]) + b"".join(bytes([self.ids[c], 0]) for c in components)
        data = marker(0xDA, head + bytes([first, last, high << 4 | low]))
        bits, before, turn = Bits(), [0] * len(components), 0
        for number, unit in enumerate(self.units(components)):
            if self.restart and number and number % self.restart == 0:
                data += bits.take() + bytes([0xFF, 0xD0 + turn % 8])
                before, turn = [0] * len(components), turn + 1
            for place, c, y, x in unit:
                block = self.blocks[c][y, x]
                if first == 0:
                    before[place] = self.dc(bits, block, before[place], high, low)
                if last > 0:
                    code = refine if high else band
                    code(bits, block, max(first, 1), last, low, bool(self.scans))
        return data + bits.take()

    @staticmethod
    def dc(bits, block, before, high, low):
        """The first coefficient of a block; returns what the next one is told from."""
        value = int(block[0]) >> low
        if high:
            bits.put(value, 1)
            return before
        bits.code(DC, size_of(value - before))
        bits.number(value - before)
        return value


def shifted(block, low):
    """Coefficients without their lowest bits, rounded towards zero."""
    return [int(np.sign(v)) * (abs(int(v)) >> low) for v in block]


def band(bits, block, first, last, low, progressive):
    """The coefficients first..=last of a block for the first time."""
    table, values, run = AC_RUNS if progressive else AC, shifted(block, low), 0
    for k in range(first, last + 1):
        if values[k] == 0:
            run += 1
            continue
        while run > 15:
            bits.code(table, 0xF0)
            run -= 16
        bits.code(table, run << 4 | size_of(values[k]))
        bits.number(values[k])
        run = 0
    if run:
        bits.code(table, 0)


def refine(bits, block, first, last, low, _):
    """One more bit of the coefficients first..=last."""
    values = shifted(block, low)
    fresh = [k for k in range(first, last + 1) if abs(values[k]) == 1]
    end, run, known = max(fresh, default=first - 1), 0, []
    for k in range(first, last + 1):
        if values[k] == 0:
            run += 1
        while run > 15 and k <= end:
            bits.code(AC_RUNS, 0xF0)
            [bits.put(b, 1) for b in known]
            run, known = run - 16, []
        if abs(values[k]) > 1:
            known.append(abs(values[k]) & 1)
        elif abs(values[k]) == 1:
            bits.code(AC_RUNS, run << 4 | 1)
            bits.put(int(values[k] > 0), 1)
            [bits.put(b, 1) for b in known]
            run, known = 0, []
    if run or known:
        bits.code(AC_RUNS, 0)
        [bits.put(b, 1) for b in known]


def progressive(n):
    """The scans of `n` components in several passes, with bits that come later."""
    each = [([c], 1, 5, 0, 2) for c in range(n)] + [([c], 6, 63, 0, 2) for c in range(n)]
    later = [([c], 1, 63, high, high - 1) for high in (2, 1) for c in range(n)]
    return [(list(range(n)), 0, 0, 0, 1), *each, later[0], (list(range(n)), 0, 0, 1, 0), *later[1:]]


def picture(height, width, seed, low=0, high=255):
    """A plane with a slope, an edge and some noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    slope = (x * 7 + y * 5) * (1 + seed % 3) % 200
    values = slope + 60 * (x > y + seed % 5) + rng.integers(-20, 20, (height, width))
    return np.clip(values, low, high).astype(np.uint8)


CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
# The passes of an interlaced picture: first row, first column, steps down and across.
PASSES = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2),
          (1, 0, 2, 1)]


def png(samples, color, bits, interlaced=False, extra=(), filters=(0, 1, 2, 3, 4)):
    """A PNG of samples [height, width, channels]; `extra` has further chunks (name, body)."""
    height, width, _ = samples.shape
    head = struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, int(interlaced))
    passes = PASSES if interlaced else [(0, 0, 1, 1)]
    data = b"".join(rows(samples[y::dy, x::dx], bits, filters) for y, x, dy, dx in passes)
    chunks = [(b"IHDR", head), *extra, (b"IDAT", zlib.compress(data, 9)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*c) for c in chunks)


def chunk(name, body):
    """One chunk with its length and sum."""
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def rows(samples, bits, filters):
    """The filtered rows of a pass."""
    if not samples.size:
        return b""
    step = max(1, samples.shape[2] * bits // 8)
    before, data = None, b""
    for number, row in enumerate(samples):
        text = "".join(format(int(v), f"0{bits}b") for v in row.reshape(-1))
        text += "0" * (-len(text) % 8)
        now = bytes(int(text[i:i + 8], 2) for i in range(0, len(text), 8))
        before = before or bytes(len(now))
        kind = filters[number % len(filters)]
        data += bytes([kind]) + filtered(now, before, step, kind)
        before = now
    return data


def filtered(now, before, step, kind):
    """A row less what its neighbours foretell."""
    def told(i):
        left = now[i - step] if i >= step else 0
        up, corner = before[i], before[i - step] if i >= step else 0
        near = sorted([left, up, corner], key=lambda v: abs(left + up - corner - v))[0]
        return [0, left, up, (left + up) // 2, near][kind]

    return bytes((v - told(i)) % 256 for i, v in enumerate(now))


def bmp(samples, top_down=False):
    """A BMP of 1, 3 or 4 samples a pixel, the last row first unless told."""
    height, width, n = samples.shape
    lines = [row.astype(np.uint8).tobytes() for row in (samples if top_down else samples[::-1])]
    body = b"".join(line + bytes(-len(line) % 4) for line in lines)
    size = struct.pack("<iiHH", width, -height if top_down else height, 1, 8 * n)
    head = b"BM" + struct.pack("<IIII", 54 + len(body), 0, 54, 40) + size
    return head + struct.pack("<IIiiII", 0, len(body), 0, 0, 0, 0) + body
