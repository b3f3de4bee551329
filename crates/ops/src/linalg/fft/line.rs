//! `Line`: the transform of a few numbers in a row.
//!
//! A length is cut into its prime factors; what is left with a large prime goes through a
//! convolution of a power of two (Bluestein's algorithm), so that no length takes quadratic time.

use std::f64::consts::PI;

use num_complex::Complex;

/// The largest prime factor that is summed directly.
const LARGEST: usize = 31;

/// A transform of one length, with its roots of unity.
pub(crate) struct Line {
    n: usize,
    /// Whether the result is divided by the length, as the inverse is.
    inverse: bool,
    /// The powers of the first root of unity.
    roots: Vec<Complex<f64>>,
    /// The prime factors of the length; none if one is too large.
    factors: Vec<usize>,
    /// The convolution that stands for a length with a large prime factor.
    convolution: Option<Box<Convolution>>,
}

struct Convolution {
    line: Line,
    back: Line,
    /// The chirp, and the transform of its mirror image.
    chirp: Vec<Complex<f64>>,
    mirror: Vec<Complex<f64>>,
}

impl Line {
    pub(crate) fn new(n: usize, inverse: bool) -> Self {
        let sign = if inverse { 1. } else { -1. };
        let root = |k: usize| Complex::from_polar(1., sign * 2. * PI * k as f64 / n as f64);
        let roots: Vec<_> = (0..n).map(root).collect();
        let factors = factors(n);
        let smooth = factors.iter().all(|factor| *factor <= LARGEST);
        let convolution = (!smooth).then(|| Box::new(Convolution::new(n, sign)));
        Self { n, inverse, roots, factors, convolution }
    }

    /// Transforms values in place.
    pub(crate) fn transform(&self, values: &mut [Complex<f64>]) {
        assert_eq!(values.len(), self.n);
        match &self.convolution {
            Some(convolution) => convolution.run(values),
            None => {
                let mut out = vec![Complex::new(0., 0.); self.n];
                self.split((values, 1), &self.factors, &mut out);
                values.copy_from_slice(&out);
            }
        }
        if self.inverse {
            values.iter_mut().for_each(|value| *value /= self.n as f64);
        }
    }

    /// Transforms every `step`-th value to `out`, by one factor of its length after the other.
    fn split(
        &self,
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
        for (i, out) in out.chunks_exact_mut(part).enumerate() {
            self.split((&values[i * step..], step * factor), rest, out);
        }
        let mut terms = [Complex::new(0., 0.); LARGEST];
        let terms = &mut terms[..*factor];
        for k in 0..part {
            for (i, term) in terms.iter_mut().enumerate() {
                *term = out[i * part + k] * self.roots[i * k * step % self.n];
            }
            for j in 0..*factor {
                let root = |i: usize| self.roots[i * j * part * step % self.n];
                out[j * part + k] = terms.iter().enumerate().map(|(i, t)| t * root(i)).sum();
            }
        }
    }
}

impl Convolution {
    fn new(n: usize, sign: f64) -> Self {
        // Squares are taken modulo twice the length, which keeps them exact.
        let angle = |k: usize| PI * ((k * k) % (2 * n)) as f64 / n as f64;
        let chirp: Vec<_> = (0..n).map(|k| Complex::from_polar(1., sign * angle(k))).collect();
        let size = (2 * n - 1).next_power_of_two();
        let (line, back) = (Line::new(size, false), Line::new(size, true));
        let mut mirror = vec![Complex::new(0., 0.); size];
        for (k, value) in chirp.iter().enumerate() {
            mirror[k] = value.conj();
            mirror[(size - k) % size] = value.conj();
        }
        line.transform(&mut mirror);
        Self { line, back, chirp, mirror }
    }

    fn run(&self, values: &mut [Complex<f64>]) {
        let mut padded = vec![Complex::new(0., 0.); self.mirror.len()];
        let pairs = values.iter().zip(&self.chirp);
        padded.iter_mut().zip(pairs).for_each(|(p, (value, chirp))| *p = value * chirp);
        self.line.transform(&mut padded);
        padded.iter_mut().zip(&self.mirror).for_each(|(p, mirror)| *p *= mirror);
        self.back.transform(&mut padded);
        let pairs = padded.iter().zip(&self.chirp);
        values.iter_mut().zip(pairs).for_each(|(value, (p, chirp))| *value = p * chirp);
    }
}

/// The prime factors of a number, smallest first.
fn factors(n: usize) -> Vec<usize> {
    let (mut rest, mut factors, mut p) = (n, Vec::new(), 2);
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
            Line::new(n, false).transform(&mut got);
            for (k, got) in got.iter().enumerate() {
                let root =
                    |i: usize| Complex::from_polar(1., -2. * PI * (i * k % n) as f64 / n as f64);
                let want: Complex<f64> = values.iter().enumerate().map(|(i, v)| v * root(i)).sum();
                assert!((got - want).norm() < 1e-9 * n as f64, "{n}: {got} is not {want}");
            }
            Line::new(n, true).transform(&mut got);
            let close = got.iter().zip(&values).all(|(a, b)| (a - b).norm() < 1e-10 * n as f64);
            assert!(close, "{n}");
        }
    }
}
