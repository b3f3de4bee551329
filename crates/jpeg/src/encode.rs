//! Writing JPEG: baseline files with the standard's codes, bit for bit as libjpeg writes them
//! (`jcsample.c`, `jfdctint.c`, `jcdctmgr.c`, `jchuff.c`).

use super::Image;
use super::standard::{CHROMA_CODES, CHROMA_STEPS, Codes, LUMA_CODES, LUMA_STEPS};

/// The settings for writing an image.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    /// From 0 to 100.
    pub quality: i64,
    /// `true` if chroma has half the size in both directions.
    pub downsampled: bool,
    /// 0 for no unit, 1 for an inch, 2 for a centimetre.
    pub density_unit: u8,
    /// Across and down.
    pub density: (u16, u16),
}

/// The first bytes of the segment of XMP.
const XMP: &[u8] = b"http://ns.adobe.com/xap/1.0/\0";

/// The most bytes of XMP that find room in their segment.
pub const XMP_MAX: usize = u16::MAX as usize - 2 - XMP.len();

/// The order of the coefficients in a file.
const ZIGZAG: [usize; 64] = {
    let mut order = [0; 64];
    let (mut row, mut column, mut at) = (0, 0, 0);
    while at < 64 {
        order[at] = row * 8 + column;
        at += 1;
        if (row + column) % 2 == 0 {
            if column == 7 {
                row += 1;
            } else if row == 0 {
                column += 1;
            } else {
                (row, column) = (row - 1, column + 1);
            }
        } else if row == 7 {
            column += 1;
        } else if column == 0 {
            row += 1;
        } else {
            (row, column) = (row + 1, column - 1);
        }
    }
    order
};

/// One component: its blocks, quantised, and how many of them make a unit of the scan.
struct Component {
    blocks: Vec<[i32; 64]>,
    /// Blocks in a row, and rows of blocks.
    size: (usize, usize),
    /// Blocks of a unit, across and down.
    unit: (usize, usize),
    is_luma: bool,
}

/// Writes an image of one or three channels, with so much XMP, at most [`XMP_MAX`] bytes of it.
pub fn encode(image: Image<&[u8]>, style: Style, xmp: &[u8]) -> Vec<u8> {
    let tables = [steps(&LUMA_STEPS, style.quality), steps(&CHROMA_STEPS, style.quality)];
    let components = components(image, style, &tables);
    let mut file = vec![0xFF, 0xD8];
    jfif(&mut file, style);
    if !xmp.is_empty() {
        segment(&mut file, 0xE1, &[XMP, xmp].concat());
    }
    header(&mut file, image, &tables, &components);
    scan(&mut file, image, &components);
    file.extend([0xFF, 0xD9]);
    file
}

fn steps(standard: &[u32; 64], quality: i64) -> [i32; 64] {
    let quality = quality.clamp(1, 100) as u32;
    let scale = if quality < 50 { 5000 / quality } else { 200 - 2 * quality };
    standard.map(|step| ((step * scale + 50) / 100).clamp(1, 255) as i32)
}

fn segment(file: &mut Vec<u8>, marker: u8, bytes: &[u8]) {
    file.extend([0xFF, marker]);
    file.extend((bytes.len() as u16 + 2).to_be_bytes());
    file.extend(bytes);
}

fn jfif(file: &mut Vec<u8>, style: Style) {
    let mut jfif = b"JFIF\0\x01\x01".to_vec();
    jfif.push(style.density_unit);
    jfif.extend(style.density.0.to_be_bytes());
    jfif.extend(style.density.1.to_be_bytes());
    jfif.extend([0, 0]);
    segment(file, 0xE0, &jfif);
}

fn header(
    file: &mut Vec<u8>,
    image: Image<&[u8]>,
    tables: &[[i32; 64]; 2],
    components: &[Component],
) {
    let n_tables = components.len().min(2);
    for (number, table) in tables[..n_tables].iter().enumerate() {
        let steps = ZIGZAG.iter().map(|at| table[*at] as u8);
        segment(file, 0xDB, &std::iter::once(number as u8).chain(steps).collect::<Vec<_>>());
    }
    let mut frame = vec![8];
    frame.extend((image.height as u16).to_be_bytes());
    frame.extend((image.width as u16).to_be_bytes());
    frame.push(components.len() as u8);
    let mut order = vec![components.len() as u8];
    for (i, component) in components.iter().enumerate() {
        let (across, down) = component.unit;
        let table = u8::from(!component.is_luma);
        frame.extend([i as u8 + 1, (across << 4 | down) as u8, table]);
        order.extend([i as u8 + 1, table << 4 | table]);
    }
    segment(file, 0xC0, &frame);
    for (number, codes) in [&LUMA_CODES, &CHROMA_CODES][..n_tables].iter().enumerate() {
        for (class, codes) in codes.iter().enumerate() {
            let mut bytes = vec![(class << 4 | number) as u8];
            bytes.extend(codes.counts);
            bytes.extend(codes.symbols);
            segment(file, 0xC4, &bytes);
        }
    }
    order.extend([0, 63, 0]);
    segment(file, 0xDA, &order);
}

fn components(image: Image<&[u8]>, style: Style, tables: &[[i32; 64]; 2]) -> Vec<Component> {
    let (height, width) = (image.height, image.width);
    if image.channels == 1 {
        let plane = SamplePlane { samples: image.data, height, width };
        return vec![component(plane, &tables[0], (1, 1), true)];
    }
    let pixels = image.data.as_chunks::<3>().0;
    let plane = |of: fn([i32; 3]) -> i32| -> Vec<u8> {
        pixels.iter().map(|pixel| of(pixel.map(i32::from)) as u8).collect()
    };
    let luma = plane(|[r, g, b]| (19595 * r + 38470 * g + 7471 * b + 32768) >> 16);
    let blue = plane(|[r, g, b]| (-11059 * r - 21709 * g + 32768 * b + (128 << 16) + 32767) >> 16);
    let red = plane(|[r, g, b]| (32768 * r - 27439 * g - 5329 * b + (128 << 16) + 32767) >> 16);
    let unit = if style.downsampled { (2, 2) } else { (1, 1) };
    let luma = SamplePlane { samples: &luma, height, width };
    let mut all = vec![component(luma, &tables[0], unit, true)];
    for chroma in [blue, red] {
        let (samples, (height, width)) = match style.downsampled {
            true => halved(&chroma, (height, width)),
            false => (chroma, (height, width)),
        };
        let plane = SamplePlane { samples: &samples, height, width };
        all.push(component(plane, &tables[1], (1, 1), false));
    }
    all
}

/// A plane of half the size: means of four, rounded up and down in turn. It is as wide as its
/// blocks are, since libjpeg repeats the last column of the larger plane.
fn halved(plane: &[u8], (height, width): (usize, usize)) -> (Vec<u8>, (usize, usize)) {
    let (rows, columns) = (height.div_ceil(2), width.div_ceil(16) * 8);
    let at = |y: usize, x: usize| u32::from(plane[y.min(height - 1) * width + x.min(width - 1)]);
    let mut small = Vec::with_capacity(rows * columns);
    for y in 0..rows {
        for x in 0..columns {
            let (top, left) = (2 * y, 2 * x);
            let sum = at(top, left) + at(top, left + 1) + at(top + 1, left) + at(top + 1, left + 1);
            small.push(((sum + 1 + (x % 2) as u32) >> 2) as u8);
        }
    }
    (small, (rows, columns))
}

/// The samples of one component of an image.
#[derive(Clone, Copy)]
struct SamplePlane<'a> {
    samples: &'a [u8],
    height: usize,
    width: usize,
}

fn component(
    plane: SamplePlane<'_>,
    steps: &[i32; 64],
    unit: (usize, usize),
    is_luma: bool,
) -> Component {
    let SamplePlane { samples, height, width } = plane;
    let size = (width.div_ceil(8), height.div_ceil(8));
    let mut blocks = Vec::with_capacity(size.0 * size.1);
    for number in 0..size.0 * size.1 {
        let (top, left) = (number / size.0 * 8, number % size.0 * 8);
        let mut block = [0; 64];
        for (i, sample) in block.iter_mut().enumerate() {
            let (y, x) = ((top + i / 8).min(height - 1), (left + i % 8).min(width - 1));
            *sample = i32::from(samples[y * width + x]) - 128;
        }
        transform(&mut block);
        for (value, step) in block.iter_mut().zip(steps) {
            // To the nearest, halves away from zero; the transform is eight times too large.
            let step = step << 3;
            let size = (value.abs() + (step >> 1)) / step;
            *value = if *value < 0 { -size } else { size };
        }
        blocks.push(block);
    }
    Component { blocks, size, unit, is_luma }
}

/// The bits behind the point of the constants, and those kept between the passes.
const CONST_BITS: u32 = 13;
const PASS_BITS: u32 = 2;

/// The accurate transform, times eight.
fn transform(block: &mut [i32; 64]) {
    for row in 0..8 {
        let line = std::array::from_fn(|i| block[row * 8 + i]);
        let out = line_transform(line, |even| even << PASS_BITS, CONST_BITS - PASS_BITS);
        block[row * 8..row * 8 + 8].copy_from_slice(&out);
    }
    for column in 0..8 {
        let line = std::array::from_fn(|i| block[i * 8 + column]);
        let even = |even: i32| descale(even, PASS_BITS);
        let out = line_transform(line, even, CONST_BITS + PASS_BITS);
        (0..8).for_each(|i| block[i * 8 + column] = out[i]);
    }
}

fn descale(x: i32, bits: u32) -> i32 {
    (x + (1 << (bits - 1))) >> bits
}

fn line_transform(d: [i32; 8], even: impl Fn(i32) -> i32, bits: u32) -> [i32; 8] {
    let sum: [i32; 4] = std::array::from_fn(|i| d[i] + d[7 - i]);
    let [t7, t6, t5, t4] = std::array::from_fn(|i| d[i] - d[7 - i]);
    let (t10, t13) = (sum[0] + sum[3], sum[0] - sum[3]);
    let (t11, t12) = (sum[1] + sum[2], sum[1] - sum[2]);
    let z = (t12 + t13) * 4433;
    let z5 = (t4 + t6 + t5 + t7) * 9633;
    let (z1, z2) = ((t4 + t7) * -7373, (t5 + t6) * -20995);
    let (z3, z4) = ((t4 + t6) * -16069 + z5, (t5 + t7) * -3196 + z5);
    [
        even(t10 + t11),
        descale(t7 * 12299 + z1 + z4, bits),
        descale(z + t13 * 6270, bits),
        descale(t6 * 25172 + z2 + z3, bits),
        even(t10 - t11),
        descale(t5 * 16819 + z2 + z4, bits),
        descale(z - t12 * 15137, bits),
        descale(t4 * 2446 + z1 + z3, bits),
    ]
}

/// Bits on their way to a file.
struct Writer<'a> {
    file: &'a mut Vec<u8>,
    bits: u64,
    n_bits: u32,
}

impl Writer<'_> {
    fn put(&mut self, value: u32, n: u32) {
        self.bits = self.bits << n | u64::from(value) & ((1 << n) - 1);
        self.n_bits += n;
        while self.n_bits >= 8 {
            self.n_bits -= 8;
            let byte = (self.bits >> self.n_bits) as u8;
            self.file.push(byte);
            if byte == 0xFF {
                self.file.push(0);
            }
        }
    }
}

/// For each symbol its code and the code's length.
fn code_table(codes: &Codes) -> [(u32, u32); 256] {
    let mut table = [(0, 0); 256];
    let (mut code, mut at) = (0, 0);
    for (len, count) in (1..).zip(codes.counts) {
        for _ in 0..count {
            table[usize::from(codes.symbols[at])] = (code, len);
            (code, at) = (code + 1, at + 1);
        }
        code <<= 1;
    }
    table
}

fn scan(file: &mut Vec<u8>, image: Image<&[u8]>, components: &[Component]) {
    let tables =
        [&LUMA_CODES, &CHROMA_CODES].map(|[first, rest]| [code_table(first), code_table(rest)]);
    let mut writer = Writer { file, bits: 0, n_bits: 0 };
    let mut last = [0; 3];
    // With one component, a unit is a block.
    let (across, down) = components[0].unit;
    let n_across = image.width.div_ceil(8 * across);
    let n_down = image.height.div_ceil(8 * down);
    for number in 0..n_across * n_down {
        let place = (number % n_across, number / n_across);
        for (i, component) in components.iter().enumerate() {
            let tables = &tables[usize::from(!component.is_luma)];
            for block in unit(component, place) {
                write_block(&mut writer, &block, &mut last[i], tables);
            }
        }
    }
    if writer.n_bits > 0 {
        let n = 8 - writer.n_bits;
        writer.put(u32::MAX, n);
    }
}

/// The blocks of a unit. One beyond the image has nothing but the first coefficient of the block
/// before it.
fn unit(component: &Component, (x, y): (usize, usize)) -> Vec<[i32; 64]> {
    let (across, down) = component.unit;
    let mut blocks: Vec<[i32; 64]> = Vec::with_capacity(across * down);
    for i in 0..across * down {
        let (column, row) = (x * across + i % across, y * down + i / across);
        if column < component.size.0 && row < component.size.1 {
            blocks.push(component.blocks[row * component.size.0 + column]);
            continue;
        }
        // A whole row of such blocks repeats the last of the row above.
        let before = match row < component.size.1 {
            true => blocks.len(),
            false => i / across * across,
        };
        let mut dummy = [0; 64];
        dummy[0] = before.checked_sub(1).map_or(0, |before| blocks[before][0]);
        blocks.push(dummy);
    }
    blocks
}

fn write_block(
    writer: &mut Writer<'_>,
    block: &[i32; 64],
    last: &mut i32,
    tables: &[[(u32, u32); 256]; 2],
) {
    let mut put = |table: usize, run: u32, value: i32| {
        let n = 32 - value.unsigned_abs().leading_zeros();
        let (code, len) = tables[table][(run << 4 | n) as usize];
        writer.put(code, len);
        // Negative numbers are written as one less, in as many bits.
        let bits = if value < 0 { value - 1 } else { value };
        writer.put(bits.cast_unsigned(), n);
    };
    put(0, 0, block[0] - *last);
    *last = block[0];
    let mut run = 0;
    let end = ZIGZAG.iter().rposition(|at| block[*at] != 0).unwrap_or(0);
    for at in &ZIGZAG[1..end + 1] {
        if block[*at] == 0 {
            run += 1;
            continue;
        }
        while run > 15 {
            put(1, 15, 0);
            run -= 16;
        }
        put(1, run, block[*at]);
        run = 0;
    }
    if end < 63 {
        put(1, 0, 0);
    }
}
