//! From coefficients to samples: the two integer transforms of libjpeg.

use super::reduced;
use super::scan::ORDER;

/// The inverse transform.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dct {
    /// Eight bits of fraction, rounding down: TensorFlow's default.
    Fast,
    /// Thirteen bits of fraction.
    Accurate,
}

/// The transform of the blocks of a component to samples.
#[derive(Debug)]
pub(super) struct Inverse {
    factors: [i32; 64],
    dct: Dct,
    /// The samples of a block in each direction.
    size: usize,
}

impl Inverse {
    /// The transform to blocks of `size` by `size` samples.
    pub(super) fn new(table: &[u16; 64], dct: Dct, size: usize) -> Self {
        assert!(matches!(size, 1 | 2 | 4 | 8), "a block of 8 and its halves");
        let dct = if size == 8 { dct } else { Dct::Accurate };
        Self { factors: factors(table, dct), dct, size }
    }

    /// Writes the samples of a row of blocks, in as many rows as a block has.
    pub(super) fn row(&self, blocks: &[[i16; 64]], samples: &mut [u8]) {
        let width = blocks.len() * self.size;
        for (x, block) in blocks.iter().enumerate() {
            let mut values: [i32; 64] =
                std::array::from_fn(|k| i32::from(block[k]).wrapping_mul(self.factors[k]));
            match (self.size, self.dct) {
                (8, Dct::Fast) => fast(&mut values),
                (8, Dct::Accurate) => accurate(&mut values),
                (4, _) => reduced::four(&mut values),
                (2, _) => reduced::two(&mut values),
                _ => values[0] = (values[0] + 4) >> 3,
            }
            for (y, values) in values.as_chunks::<8>().0.iter().take(self.size).enumerate() {
                let out = samples[y * width + x * self.size..][..self.size].iter_mut();
                out.zip(values).for_each(|(out, v)| *out = (v + 128).clamp(0, 255) as u8);
            }
        }
    }
}

/// Returns the factors of the coefficients, in the order of a block.
fn factors(table: &[u16; 64], dct: Dct) -> [i32; 64] {
    // The fast transform leaves its outermost factors, √2·cos(kπ/16), to the table.
    let scale = |k: usize| match k {
        0 => 1.,
        k => (k as f64 * std::f64::consts::PI / 16.).cos() * std::f64::consts::SQRT_2,
    };
    let mut factors = [0; 64];
    for (value, at) in table.iter().zip(ORDER) {
        let (value, at) = (i32::from(*value), usize::from(at));
        factors[at] = match dct {
            Dct::Accurate => value,
            Dct::Fast => {
                let aan = (scale(at / 8) * scale(at % 8) * f64::from(1 << 14)).round() as i32;
                (value * aan + (1 << 11)) >> 12
            }
        };
    }
    factors
}

/// Columns, then rows, of a transform of eight numbers at a stride.
fn both_ways(
    values: &mut [i32; 64],
    columns: impl Fn([i32; 8]) -> [i32; 8],
    rows: impl Fn([i32; 8]) -> [i32; 8],
) {
    for x in 0..8 {
        let out = columns(std::array::from_fn(|y| values[y * 8 + x]));
        out.iter().enumerate().for_each(|(y, v)| values[y * 8 + x] = *v);
    }
    for row in values.as_chunks_mut::<8>().0 {
        *row = rows(*row);
    }
}

/// In sixteen bits that wrap around, as the vector code of libjpeg-turbo does it.
fn fast(values: &mut [i32; 64]) {
    let narrow = |eight: [i32; 8]| fast_eight(eight.map(|v| v as i16)).map(i32::from);
    both_ways(values, narrow, |row| narrow(row).map(|v| v >> 5));
}

/// Arai, Agui and Nakajima's transform with five multiplications.
fn fast_eight(d: [i16; 8]) -> [i16; 8] {
    // Two bits go to the number and six to the factor, so that the upper half is their product.
    let times = |x: i16, factor: i32| ((i32::from(x << 2) * (factor << 6)) >> 16) as i16;
    // √2, 2·cos(π/8), √2·cos(3π/8)·√2, and the sum of the last two without 1, times 256.
    let (root2, c277, c473, c413) = (362, 277, 473, 413);
    let (t10, t11) = (d[0].wrapping_add(d[4]), d[0].wrapping_sub(d[4]));
    let t13 = d[2].wrapping_add(d[6]);
    let t12 = times(d[2].wrapping_sub(d[6]), root2).wrapping_sub(t13);
    let even = [
        t10.wrapping_add(t13),
        t11.wrapping_add(t12),
        t11.wrapping_sub(t12),
        t10.wrapping_sub(t13),
    ];
    let (z13, z10) = (d[5].wrapping_add(d[3]), d[5].wrapping_sub(d[3]));
    let (z11, z12) = (d[1].wrapping_add(d[7]), d[1].wrapping_sub(d[7]));
    let t7 = z11.wrapping_add(z13);
    let z5 = times(z10.wrapping_add(z12), c473);
    let t6 = times(z10, -c413).wrapping_sub(z10).wrapping_add(z5).wrapping_sub(t7);
    let t5 = times(z11.wrapping_sub(z13), root2).wrapping_sub(t6);
    let t4 = times(z12, c277).wrapping_sub(z5).wrapping_add(t5);
    [
        even[0].wrapping_add(t7),
        even[1].wrapping_add(t6),
        even[2].wrapping_add(t5),
        even[3].wrapping_sub(t4),
        even[3].wrapping_add(t4),
        even[2].wrapping_sub(t5),
        even[1].wrapping_sub(t6),
        even[0].wrapping_sub(t7),
    ]
}

fn accurate(values: &mut [i32; 64]) {
    let rounded =
        |shift: u32| move |v: [i64; 8]| v.map(|v| ((v + (1 << (shift - 1))) >> shift) as i32);
    // Two more bits are kept between columns and rows.
    both_ways(
        values,
        |column| rounded(11)(accurate_eight(column)),
        |row| rounded(18)(accurate_eight(row)),
    );
}

/// Loeffler, Ligtenberg and Moschytz's transform, times 2^13.
fn accurate_eight(d: [i32; 8]) -> [i64; 8] {
    let d = d.map(i64::from);
    let z1 = (d[2] + d[6]) * 4433;
    let (t2, t3) = (z1 - d[6] * 15137, z1 + d[2] * 6270);
    let (t0, t1) = ((d[0] + d[4]) << 13, (d[0] - d[4]) << 13);
    let even = [t0 + t3, t1 + t2, t1 - t2, t0 - t3];
    let (z1, z2, z3, z4) = (d[7] + d[1], d[5] + d[3], d[7] + d[3], d[5] + d[1]);
    let z5 = (z3 + z4) * 9633;
    let (z1, z2) = (z1 * -7373, z2 * -20995);
    let (z3, z4) = (z3 * -16069 + z5, z4 * -3196 + z5);
    let odd = [
        d[1] * 12299 + z1 + z4,
        d[3] * 25172 + z2 + z3,
        d[5] * 16819 + z2 + z4,
        d[7] * 2446 + z1 + z3,
    ];
    std::array::from_fn(|i| if i < 4 { even[i] + odd[i] } else { even[7 - i] - odd[7 - i] })
}
