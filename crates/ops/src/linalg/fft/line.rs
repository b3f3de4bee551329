//! `Line`: the transform of a few numbers in a row.
//!
//! A length is cut into its prime factors; what is left with a large prime goes through a
//! convolution of a power of two (Bluestein's algorithm), so that no length takes quadratic time.

use std::f64::consts::PI;

use num_complex::Complex;
use smallvec::SmallVec;

use crate::cancel::is_stopped;
use crate::error::Result;
use crate::scratch::{Part, Scratch};

/// The largest prime factor that is summed directly.
const LARGEST: usize = 31;

/// The prime factors of a length.
type Factors = SmallVec<[usize; 16]>;

/// A transform of one length, in scratch memory.
#[expect(clippy::large_enum_variant, reason = "there are few of them, on the stack")]
pub(crate) enum Line<'a> {
    /// A length of small prime factors.
    Smooth(Smooth<'a>),
    /// Any other, as a convolution.
    Rough(Convolution<'a>),
}

impl<'a> Line<'a> {
    /// The transform of `n` numbers, or its inverse.
    pub(crate) fn new(n: usize, inverse: bool, scratch: &mut Scratch<'a>) -> Result<Self> {
        Ok(match is_smooth(n) {
            true => Self::Smooth(Smooth::new(n, inverse, scratch)?),
            false => Self::Rough(Convolution::new(n, inverse, scratch)?),
        })
    }

    /// The bytes of scratch memory that the transform of `n` numbers takes.
    pub(crate) fn bytes(n: usize) -> usize {
        let numbers = Scratch::bytes_of::<Complex<f64>>;
        if is_smooth(n) {
            return 2 * numbers(n);
        }
        let size = Convolution::size(n);
        numbers(n) + 2 * numbers(size) + 4 * numbers(size)
    }

    /// Transforms values in place.
    pub(crate) fn transform(&mut self, values: &mut [Complex<f64>]) {
        match self {
            Self::Smooth(smooth) => smooth.transform(values),
            Self::Rough(convolution) => convolution.transform(values),
        }
    }
}

/// A transform of a length of small prime factors.
pub(crate) struct Smooth<'a> {
    /// `true` if the result is divided by the length, as the inverse is.
    inverse: bool,
    /// The powers of the first root of unity.
    roots: Part<'a, Complex<f64>>,
    factors: Factors,
    /// Room for the result.
    result: Part<'a, Complex<f64>>,
}

impl<'a> Smooth<'a> {
    fn new(n: usize, inverse: bool, scratch: &mut Scratch<'a>) -> Result<Self> {
        let sign = if inverse { 1. } else { -1. };
        let root = |k: usize| Complex::from_polar(1., sign * 2. * PI * k as f64 / n as f64);
        let mut roots = scratch.part(n)?;
        roots.iter_mut().enumerate().for_each(|(k, to)| *to = root(k));
        Ok(Self { inverse, roots, factors: factors(n), result: scratch.part(n)? })
    }

    fn transform(&mut self, values: &mut [Complex<f64>]) {
        assert_eq!(values.len(), self.roots.len());
        split(&self.roots, (values, 1), &self.factors, &mut self.result);
        values.copy_from_slice(&self.result);
        if self.inverse {
            divide(values);
        }
    }
}

/// Transforms every `step`-th value to `out`, by one factor of its length after the other.
fn split(
    roots: &[Complex<f64>],
    (values, step): (&[Complex<f64>], usize),
    factors: &[usize],
    out: &mut [Complex<f64>],
) {
    let [factor, rest @ ..] = factors else {
        if let (Some(out), Some(value)) = (out.first_mut(), values.first()) {
            *out = *value;
        }
        return;
    };
    let part = out.len() / factor;
    if is_stopped(out.len() * factor) {
        return;
    }
    for (i, out) in out.chunks_exact_mut(part).enumerate() {
        split(roots, (&values[i * step..], step * factor), rest, out);
    }
    let mut terms = [Complex::new(0., 0.); LARGEST];
    let terms = &mut terms[..*factor];
    for k in 0..part {
        for (i, term) in terms.iter_mut().enumerate() {
            *term = out[i * part + k] * roots[i * k * step % roots.len()];
        }
        for j in 0..*factor {
            let root = |i: usize| roots[i * j * part * step % roots.len()];
            out[j * part + k] = terms.iter().enumerate().map(|(i, t)| t * root(i)).sum();
        }
    }
}

fn divide(values: &mut [Complex<f64>]) {
    let n = values.len() as f64;
    values.iter_mut().for_each(|value| *value /= n);
}

/// The convolution that stands for a length with a large prime factor.
pub(crate) struct Convolution<'a> {
    inverse: bool,
    line: Smooth<'a>,
    back: Smooth<'a>,
    /// The chirp, and the transform of its mirror image.
    chirp: Part<'a, Complex<f64>>,
    mirror: Part<'a, Complex<f64>>,
    /// Room for the values and zeros behind them.
    padded: Part<'a, Complex<f64>>,
}

impl<'a> Convolution<'a> {
    /// The length of the convolution for `n` numbers.
    fn size(n: usize) -> usize {
        (2 * n - 1).next_power_of_two()
    }

    fn new(n: usize, inverse: bool, scratch: &mut Scratch<'a>) -> Result<Self> {
        let sign = if inverse { 1. } else { -1. };
        // Squares are taken modulo twice the length, which keeps them exact.
        let angle = |k: usize| PI * ((k * k) % (2 * n)) as f64 / n as f64;
        let mut chirp = scratch.part(n)?;
        let values = chirp.iter_mut().enumerate();
        values.for_each(|(k, to)| *to = Complex::from_polar(1., sign * angle(k)));
        let size = Self::size(n);
        let mut line = Smooth::new(size, false, scratch)?;
        let back = Smooth::new(size, true, scratch)?;
        let mut mirror = scratch.part(size)?;
        mirror.fill(Complex::new(0., 0.));
        for (k, value) in chirp.iter().enumerate() {
            mirror[k] = value.conj();
            mirror[(size - k) % size] = value.conj();
        }
        line.transform(&mut mirror);
        Ok(Self { inverse, line, back, chirp, mirror, padded: scratch.part(size)? })
    }

    fn transform(&mut self, values: &mut [Complex<f64>]) {
        assert_eq!(values.len(), self.chirp.len());
        let padded = &mut self.padded;
        padded.fill(Complex::new(0., 0.));
        let pairs = values.iter().zip(self.chirp.iter());
        padded.iter_mut().zip(pairs).for_each(|(p, (value, chirp))| *p = value * chirp);
        self.line.transform(padded);
        padded.iter_mut().zip(self.mirror.iter()).for_each(|(p, mirror)| *p *= mirror);
        self.back.transform(padded);
        let pairs = padded.iter().zip(self.chirp.iter());
        values.iter_mut().zip(pairs).for_each(|(value, (p, chirp))| *value = p * chirp);
        if self.inverse {
            divide(values);
        }
    }
}

fn is_smooth(n: usize) -> bool {
    factors(n).iter().all(|factor| *factor <= LARGEST)
}

/// The prime factors of a number, smallest first.
fn factors(n: usize) -> Factors {
    let (mut rest, mut factors, mut p) = (n, Factors::new(), 2);
    while p * p <= rest {
        while rest.is_multiple_of(p) {
            factors.push(p);
            rest /= p;
        }
        p += 1;
    }
    if rest > 1 {
        factors.push(rest);
    }
    factors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_lengths_give_what_the_definition_gives() {
        for n in [1, 2, 3, 4, 5, 6, 7, 12, 16, 30, 31, 37, 64, 74, 97, 100] {
            let values: Vec<Complex<f64>> =
                (0..n).map(|i| Complex::new((i * i % 7) as f64, (i % 5) as f64)).collect();
            let mut got = values.clone();
            let line = |inverse| Line::new(n, inverse, &mut Scratch::default()).unwrap();
            line(false).transform(&mut got);
            for (k, got) in got.iter().enumerate() {
                let root =
                    |i: usize| Complex::from_polar(1., -2. * PI * (i * k % n) as f64 / n as f64);
                let want: Complex<f64> = values.iter().enumerate().map(|(i, v)| v * root(i)).sum();
                assert!((got - want).norm() < 1e-9 * n as f64, "{n}: {got} is not {want}");
            }
            line(true).transform(&mut got);
            let close = got.iter().zip(&values).all(|(a, b)| (a - b).norm() < 1e-10 * n as f64);
            assert!(close, "{n}");
        }
    }
}
