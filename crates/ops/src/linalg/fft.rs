//! The Fourier transforms: `FFT`, `FFT2D`, `FFT3D`, their inverses, and those of real signals.
//!
//! Follows `fft_ops.cc`. Computed in double precision.

mod line;

pub(crate) use line::Line;
use num_complex::Complex;

use crate::error::unimplemented;
use crate::prelude::*;

pub(super) const OPS: [OpDef; 12] = [
    OpDef::pure("FFT", |_| complex(1, Way::Forward)),
    OpDef::pure("FFT2D", |_| complex(2, Way::Forward)),
    OpDef::pure("FFT3D", |_| complex(3, Way::Forward)),
    OpDef::pure("IFFT", |_| complex(1, Way::Back)),
    OpDef::pure("IFFT2D", |_| complex(2, Way::Back)),
    OpDef::pure("IFFT3D", |_| complex(3, Way::Back)),
    OpDef::pure("RFFT", |attrs| real(attrs, 1, Way::Forward)),
    OpDef::pure("RFFT2D", |attrs| real(attrs, 2, Way::Forward)),
    OpDef::pure("RFFT3D", |attrs| real(attrs, 3, Way::Forward)),
    OpDef::pure("IRFFT", |attrs| real(attrs, 1, Way::Back)),
    OpDef::pure("IRFFT2D", |attrs| real(attrs, 2, Way::Back)),
    OpDef::pure("IRFFT3D", |attrs| real(attrs, 3, Way::Back)),
];

/// From signals to frequencies, or back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Forward,
    Back,
}

fn complex(rank: usize, way: Way) -> Result<Box<dyn Op>> {
    Ok(Box::new(Fft { rank, way, real: None }))
}

fn real(attrs: &Attrs<'_>, rank: usize, way: Way) -> Result<Box<dyn Op>> {
    let dtype = match way {
        Way::Forward => attrs.dtype_or("Tcomplex", DType::Complex64)?,
        Way::Back => attrs.dtype_or("Treal", DType::F32)?,
    };
    Ok(Box::new(Fft { rank, way, real: Some(dtype) }))
}

struct Fft {
    /// The innermost dimensions that are transformed.
    rank: usize,
    way: Way,
    /// The dtype of the output, for transforms of real signals; these have the length as an input.
    real: Option<DType>,
}

impl Op for Fft {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let Some(dtype) = self.real else {
            let [signal] = arity(inputs)?;
            signal.require_rank_at_least(self.rank)?;
            return Ok(vec![signal.with_dtype(signal.dtype)]);
        };
        let [signal, lengths] = arity(inputs)?;
        signal.require_rank_at_least(self.rank)?;
        lengths.require_rank(1)?;
        let Some(dims) = signal.dims() else { return Ok(vec![Spec::unknown(dtype)]) };
        let lengths = lengths.sizes().unwrap_or_else(|| vec![Dim::Unknown; self.rank]);
        if lengths.len() != self.rank {
            return invalid!("fft_length must have {} elements, not {}", self.rank, lengths.len());
        }
        let halves = |i: usize, length: usize| match self.way {
            Way::Back if i + 1 == self.rank && length > 0 => length / 2 + 1,
            _ => length,
        };
        let pairs = dims[dims.len() - self.rank..].iter().zip(&lengths).enumerate();
        check_lengths(
            pairs.filter_map(|(i, (have, length))| Some((have.size()?, halves(i, length.size()?)))),
        )?;
        let mut dims = dims[..dims.len() - self.rank].to_vec();
        for (i, length) in lengths.iter().enumerate() {
            let half = self.way == Way::Forward && i + 1 == self.rank;
            let halved = || match length.known() {
                Some(0) => Dim::Known(0),
                _ => length.divided_by(&Dim::Known(2)).plus(&Dim::Known(1)),
            };
            dims.push(if half { halved() } else { length.clone() });
        }
        Ok(vec![Spec::new(dtype, dims)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let signal = ctx.input(0);
        let shape = signal.shape();
        let Some(lead) = shape.rank().checked_sub(self.rank) else {
            return invalid!("Input must have rank of at least {} but got: {shape}", self.rank);
        };
        // The sizes of the transform, of what is read and of what is written.
        let mut sizes: Vec<usize> = shape[lead..].to_vec();
        if self.real.is_some() {
            sizes = lengths(ctx.input(1), self.rank)?;
        }
        let halved = |sizes: &[usize]| {
            let mut halved = sizes.to_vec();
            if let Some(last) = halved.last_mut() {
                *last = if *last == 0 { 0 } else { *last / 2 + 1 };
            }
            halved
        };
        let (read, written) = match (self.real, self.way) {
            (None, _) => (sizes.clone(), sizes.clone()),
            (Some(_), Way::Forward) => (sizes.clone(), halved(&sizes)),
            (Some(_), Way::Back) => (halved(&sizes), sizes.clone()),
        };
        let empty = sizes.contains(&0) || shape.n_elements() == 0;
        check_lengths(shape[lead..].iter().copied().zip(read.iter().copied()))?;
        let dims = shape[..lead].iter().chain(&written).map(|dim| *dim as i64);
        let out_shape = Shape::checked(dims)?;
        if empty && out_shape.n_elements() > 1 << 24 {
            return invalid!("a transform of {sizes:?} of nothing");
        }
        let input = Input { shape: &shape[lead..], read: &read, values: widen(signal)? };
        let mut out = ctx.output(0, self.real.unwrap_or(signal.dtype()), &out_shape)?;
        if empty {
            out.bytes().fill(0);
            return Ok(());
        }
        let results = self.transform(&input, &sizes, &written);
        narrow(&results, &mut out)
    }
}

/// Fails if a dimension that has elements has fewer than are read of it.
fn check_lengths(pairs: impl Iterator<Item = (usize, usize)>) -> Result<()> {
    for (i, (have, need)) in pairs.enumerate() {
        if have > 0 && have < need {
            // The text is TensorFlow's (`fft_ops.cc`), whose dimensions count from the first.
            return invalid!(
                "Input dimension {i} must have length of at least {need} but got: {have}"
            );
        }
    }
    Ok(())
}

/// The signals of one call.
struct Input<'a> {
    /// The innermost dimensions, and how much of each is read.
    shape: &'a [usize],
    read: &'a [usize],
    values: Vec<Complex<f64>>,
}

impl Fft {
    /// All transforms, one after the other.
    fn transform(
        &self,
        input: &Input<'_>,
        sizes: &[usize],
        written: &[usize],
    ) -> Vec<Complex<f64>> {
        let (n, step) = (sizes.iter().product::<usize>(), input.shape.iter().product::<usize>());
        let lines: Vec<Line> =
            sizes.iter().map(|size| Line::new(*size, self.way == Way::Back)).collect();
        let mut results = Vec::new();
        for signal in input.values.chunks_exact(step.max(1)) {
            let mut grid = vec![Complex::new(0., 0.); n];
            for (i, value) in grid.iter_mut().enumerate() {
                if let Some(at) = place(i, sizes, input.read, input.shape) {
                    *value = signal[at];
                }
            }
            let back_to_real = self.real.is_some() && self.way == Way::Back;
            for axis in 0..sizes.len() {
                if back_to_real && axis + 1 == sizes.len() {
                    mirror(&mut grid, sizes[axis]);
                }
                along(&mut grid, sizes, axis, &lines[axis]);
            }
            results
                .extend((0..n).filter_map(|i| place(i, sizes, written, sizes).map(|at| grid[at])));
        }
        results
    }
}

/// Where number `i` of a grid of `sizes` stands in one of `shape`; `None` beyond `limits`.
fn place(i: usize, sizes: &[usize], limits: &[usize], shape: &[usize]) -> Option<usize> {
    let (mut rest, mut at, mut stride) = (i, 0, 1);
    for axis in (0..sizes.len()).rev() {
        let x = rest % sizes[axis];
        rest /= sizes[axis];
        if x >= limits[axis] {
            return None;
        }
        at += x * stride;
        stride *= shape[axis];
    }
    Some(at)
}

/// The second half of each row as the conjugate of the first, which a real signal implies.
fn mirror(grid: &mut [Complex<f64>], size: usize) {
    for row in grid.chunks_exact_mut(size) {
        row[0].im = 0.;
        if size.is_multiple_of(2) {
            row[size / 2].im = 0.;
        }
        for i in size / 2 + 1..size {
            row[i] = row[size - i].conj();
        }
    }
}

/// Transforms each line of a grid along one axis.
fn along(grid: &mut [Complex<f64>], sizes: &[usize], axis: usize, line: &Line) {
    let (n, step) = (sizes[axis], sizes[axis + 1..].iter().product::<usize>());
    let mut values = vec![Complex::new(0., 0.); n];
    for first in (0..grid.len()).filter(|i| i / step % n == 0) {
        values.iter_mut().enumerate().for_each(|(i, v)| *v = grid[first + i * step]);
        line.transform(&mut values);
        values.iter().enumerate().for_each(|(i, v)| grid[first + i * step] = *v);
    }
}

fn lengths(lengths: View<'_>, rank: usize) -> Result<Vec<usize>> {
    let sizes: Option<Vec<usize>> = lengths
        .to_i64()
        .and_then(|lengths| lengths.iter().map(|n| usize::try_from(*n).ok()).collect());
    match sizes {
        Some(sizes) if sizes.len() == rank => Ok(sizes),
        _ => invalid!("fft_length must be {rank} sizes: {}", lengths.shape()),
    }
}

fn widen(view: View<'_>) -> Result<Vec<Complex<f64>>> {
    let real = |x: f64| Complex::new(x, 0.);
    Ok(match view.dtype() {
        DType::F32 => view.as_slice::<f32>().iter().map(|x| real(f64::from(*x))).collect(),
        DType::F64 => view.as_slice::<f64>().iter().map(|x| real(*x)).collect(),
        DType::Complex64 => view
            .as_slice::<Complex<f32>>()
            .iter()
            .map(|x| Complex::new(f64::from(x.re), f64::from(x.im)))
            .collect(),
        DType::Complex128 => view.as_slice().to_vec(),
        dtype => return unimplemented!("no transform of {dtype}"),
    })
}

fn narrow(wide: &[Complex<f64>], out: &mut ViewMut<'_>) -> Result<()> {
    match out.dtype() {
        DType::F32 => {
            out.as_mut_slice::<f32>().iter_mut().zip(wide).for_each(|(o, x)| *o = x.re as f32);
        }
        DType::F64 => out.as_mut_slice::<f64>().iter_mut().zip(wide).for_each(|(o, x)| *o = x.re),
        DType::Complex64 => out
            .as_mut_slice::<Complex<f32>>()
            .iter_mut()
            .zip(wide)
            .for_each(|(o, x)| *o = Complex::new(x.re as f32, x.im as f32)),
        DType::Complex128 => out.as_mut_slice().copy_from_slice(wide),
        dtype => return unimplemented!("no transform to {dtype}"),
    }
    Ok(())
}
