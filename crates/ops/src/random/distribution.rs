//! Distributions: numbers of a kind from the generator's bits, as `random_distributions.h` makes
//! them.

use half::{bf16, f16};

use super::philox::{Philox, Singles};
use crate::cancel::is_stopped;

/// A distribution: makes `N` elements of the output from four numbers of the generator.
pub(super) trait Distribution<T, const N: usize> {
    /// The elements.
    fn of(&self, four: [u32; 4]) -> [T; N];
}

/// Fills `out`, `N` elements for each step of the generator.
pub(super) fn fill<T: Copy, const N: usize>(
    mut philox: Philox,
    out: &mut [T],
    distribution: &impl Distribution<T, N>,
) {
    for out in out.chunks_mut(N) {
        if is_stopped(16) {
            return;
        }
        out.copy_from_slice(&distribution.of(philox.next())[..out.len()]);
    }
}

/// In [0, 1).
pub(super) struct Uniform;

impl Distribution<f32, 4> for Uniform {
    fn of(&self, four: [u32; 4]) -> [f32; 4] {
        four.map(unit_f32)
    }
}

impl Distribution<f64, 2> for Uniform {
    fn of(&self, [a, b, c, d]: [u32; 4]) -> [f64; 2] {
        [unit_f64(a, b), unit_f64(c, d)]
    }
}

impl Distribution<f16, 4> for Uniform {
    fn of(&self, four: [u32; 4]) -> [f16; 4] {
        four.map(|x| f16::from_bits(15 << 10 | (x & 0x3ff) as u16) - f16::ONE)
    }
}

impl Distribution<bf16, 4> for Uniform {
    fn of(&self, four: [u32; 4]) -> [bf16; 4] {
        four.map(|x| bf16::from_bits(127 << 7 | (x & 0x7f) as u16) - bf16::ONE)
    }
}

/// Integers from `low` on, below `low + range`; any if the range is zero.
pub(super) struct Integers {
    pub(super) low: i64,
    pub(super) range: u64,
}

impl Distribution<i32, 4> for Integers {
    fn of(&self, four: [u32; 4]) -> [i32; 4] {
        let range = self.range as u32;
        four.map(|x| if range == 0 { x } else { x % range })
            .map(|x| (self.low as i32).wrapping_add(x.cast_signed()))
    }
}

impl Distribution<i64, 2> for Integers {
    fn of(&self, [a, b, c, d]: [u32; 4]) -> [i64; 2] {
        [(a, b), (c, d)]
            .map(|(low, high)| u64::from(low) | u64::from(high) << 32)
            .map(|x| if self.range == 0 { x } else { x % self.range })
            .map(|x| self.low.wrapping_add(x.cast_signed()))
    }
}

/// With mean 0 and deviation 1.
pub(super) struct Normal;

impl Distribution<f32, 4> for Normal {
    fn of(&self, [a, b, c, d]: [u32; 4]) -> [f32; 4] {
        let ([a, b], [c, d]) = (box_muller_f32(a, b), box_muller_f32(c, d));
        [a, b, c, d]
    }
}

impl Distribution<f64, 2> for Normal {
    fn of(&self, four: [u32; 4]) -> [f64; 2] {
        box_muller_f64(four)
    }
}

impl Distribution<f16, 4> for Normal {
    fn of(&self, four: [u32; 4]) -> [f16; 4] {
        Distribution::<f32, 4>::of(self, four).map(f16::from_f32)
    }
}

impl Distribution<bf16, 4> for Normal {
    fn of(&self, four: [u32; 4]) -> [bf16; 4] {
        Distribution::<f32, 4>::of(self, four).map(bf16::from_f32)
    }
}

/// An element type that normal numbers between -2 and 2 are drawn for.
pub(super) trait Truncated: Copy {
    /// The elements that have a stretch of the generator of their own.
    const GROUP: usize;
    /// Two candidates.
    fn two(singles: &mut Singles) -> [Self; 2];
    /// Returns whether the number is between -2 and 2.
    fn is_inside(self) -> bool;
}

impl Truncated for f32 {
    const GROUP: usize = 4;

    fn two(singles: &mut Singles) -> [Self; 2] {
        box_muller_f32(singles.next(), singles.next())
    }

    fn is_inside(self) -> bool {
        self.abs() < 2.0
    }
}

impl Truncated for f64 {
    const GROUP: usize = 2;

    fn two(singles: &mut Singles) -> [Self; 2] {
        box_muller_f64([singles.next(), singles.next(), singles.next(), singles.next()])
    }

    fn is_inside(self) -> bool {
        self.abs() < 2.0
    }
}

/// Numbers of the generator that each element may use up.
const RESERVED: u64 = 256;

/// Fills `out` with normal numbers, drawing again for those beyond ±2, and rounded then.
pub(super) fn fill_truncated<T: Truncated, U>(
    philox: Philox,
    out: &mut [U],
    round: impl Fn(T) -> U,
) {
    let stretch = T::GROUP as u64 * RESERVED / 4;
    for (i, out) in out.chunks_mut(T::GROUP).enumerate() {
        if is_stopped(64) {
            return;
        }
        let mut own = philox;
        own.skip(i as u64 * stretch);
        let mut singles = Singles::new(own);
        let mut n = 0;
        while n < out.len() {
            for x in T::two(&mut singles).into_iter().filter(|x| x.is_inside()) {
                if n < out.len() {
                    out[n] = round(x);
                    n += 1;
                }
            }
        }
    }
}

/// A float in [0, 1) of 23 bits.
fn unit_f32(x: u32) -> f32 {
    f32::from_bits(127 << 23 | x & 0x7f_ffff) - 1.0
}

/// A float in [0, 1) of 52 bits.
pub(super) fn unit_f64(high: u32, low: u32) -> f64 {
    f64::from_bits(1023 << 52 | u64::from(high & 0xf_ffff) << 32 | u64::from(low)) - 1.0
}

/// Two normal numbers of two uniform ones.
fn box_muller_f32(a: u32, b: u32) -> [f32; 2] {
    let radius = (-2.0 * unit_f32(a).max(1e-7).ln()).sqrt();
    let (sin, cos) = (std::f32::consts::TAU * unit_f32(b)).sin_cos();
    [sin * radius, cos * radius]
}

fn box_muller_f64([a, b, c, d]: [u32; 4]) -> [f64; 2] {
    let radius = (-2.0 * unit_f64(a, b).max(1e-7).ln()).sqrt();
    let (sin, cos) = (std::f64::consts::TAU * unit_f64(c, d)).sin_cos();
    [sin * radius, cos * radius]
}
