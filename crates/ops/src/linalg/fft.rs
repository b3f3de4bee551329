//! The Fourier transforms: `FFT`, `FFT2D`, `FFT3D`, their inverses, and those of real signals.
//!
//! Follows `fft_ops.cc`. Computed in double precision.

mod line;

pub(crate) use line::Line;
use num_complex::Complex;
use smallvec::SmallVec;

use crate::error::unsupported;
use crate::prelude::*;

pub(super) const OPS: [OpDef; 12] = [
    OpDef::pure("FFT", RowRule::Mixed, |_| complex(1, FftWay::Forward)),
    OpDef::pure("FFT2D", RowRule::Mixed, |_| complex(2, FftWay::Forward)),
    OpDef::pure("FFT3D", RowRule::Mixed, |_| complex(3, FftWay::Forward)),
    OpDef::pure("IFFT", RowRule::Mixed, |_| complex(1, FftWay::Back)),
    OpDef::pure("IFFT2D", RowRule::Mixed, |_| complex(2, FftWay::Back)),
    OpDef::pure("IFFT3D", RowRule::Mixed, |_| complex(3, FftWay::Back)),
    OpDef::pure("RFFT", RowRule::Mixed, |attrs| real(attrs, 1, FftWay::Forward)),
    OpDef::pure("RFFT2D", RowRule::Mixed, |attrs| real(attrs, 2, FftWay::Forward)),
    OpDef::pure("RFFT3D", RowRule::Mixed, |attrs| real(attrs, 3, FftWay::Forward)),
    OpDef::pure("IRFFT", RowRule::Mixed, |attrs| real(attrs, 1, FftWay::Back)),
    OpDef::pure("IRFFT2D", RowRule::Mixed, |attrs| real(attrs, 2, FftWay::Back)),
    OpDef::pure("IRFFT3D", RowRule::Mixed, |attrs| real(attrs, 3, FftWay::Back)),
];

/// From signals to frequencies, or back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FftWay {
    Forward,
    Back,
}

fn complex(rank: usize, way: FftWay) -> Result<Box<dyn Op>> {
    Ok(Box::new(Fft { rank, way, real: None }))
}

fn real(attrs: &Attrs<'_>, rank: usize, way: FftWay) -> Result<Box<dyn Op>> {
    let dtype = match way {
        FftWay::Forward => attrs.dtype_or("Tcomplex", DType::Complex64)?,
        FftWay::Back => attrs.dtype_or("Treal", DType::F32)?,
    };
    Ok(Box::new(Fft { rank, way, real: Some(dtype) }))
}

struct Fft {
    /// The innermost dimensions that are transformed.
    rank: usize,
    way: FftWay,
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
        let is_wide = |dtype| matches!(dtype, DType::F64 | DType::Complex128);
        if is_wide(signal.dtype) != is_wide(dtype) {
            return invalid!("Wrong types for a real FFT: in={} out={dtype}", signal.dtype);
        }
        lengths.require_rank(1)?;
        let Some(dims) = signal.dims() else { return Ok(vec![Spec::unknown(dtype)]) };
        let lengths = lengths.sizes().unwrap_or_else(|| vec![Dim::Unknown; self.rank]);
        if lengths.len() != self.rank {
            return invalid!("fft_length must have {} elements, not {}", self.rank, lengths.len());
        }
        let halves = |i: usize, length: usize| match self.way {
            FftWay::Back if i + 1 == self.rank && length > 0 => length / 2 + 1,
            _ => length,
        };
        let pairs = dims[dims.len() - self.rank..].iter().zip(&lengths).enumerate();
        check_lengths(
            pairs.filter_map(|(i, (have, length))| Some((have.size()?, halves(i, length.size()?)))),
        )?;
        let mut dims = dims[..dims.len() - self.rank].to_vec();
        for (i, length) in lengths.iter().enumerate() {
            let half = self.way == FftWay::Forward && i + 1 == self.rank;
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
        let sizes = match self.real {
            Some(_) => lengths(ctx.input(1), self.rank)?,
            None => FftSizes::from_slice(&shape[lead..]),
        };
        let transform = Transform::new(self, FftSizes::from_slice(&shape[lead..]), sizes);
        let Transform { sizes, shape: inner, read, written } = &transform;
        let empty = sizes.contains(&0) || shape.n_elements() == 0;
        check_lengths(inner.iter().copied().zip(read.iter().copied()))?;
        let dims = shape[..lead].iter().chain(written).map(|dim| *dim as i64);
        let out_shape = Shape::checked(dims)?;
        if empty && out_shape.n_elements() > 1 << 24 {
            return invalid!("a transform of {sizes:?} of nothing");
        }
        let mut scratch = ctx.scratch();
        let mut out = ctx.output(0, self.real.unwrap_or(signal.dtype()), &out_shape)?;
        if empty {
            out.bytes().fill(0);
            return Ok(());
        }
        self.transform(&transform, signal, &mut scratch, &mut out)
    }

    fn scratch_bytes(&self, inputs: &[Spec], _: &[Spec]) -> usize {
        let Some(shape) = inputs[0].shape() else { return 0 };
        let Some(lead) = shape.rank().checked_sub(self.rank) else { return 0 };
        let inner = FftSizes::from_slice(&shape[lead..]);
        let sizes = match (self.real, inputs.get(1).and_then(known_ints)) {
            (None, _) => Some(inner.clone()),
            (Some(_), lengths) => lengths
                .and_then(|lengths| lengths.iter().map(|n| usize::try_from(*n).ok()).collect()),
        };
        match sizes.filter(|sizes| sizes.len() == self.rank && !sizes.contains(&0)) {
            Some(sizes) => Transform::new(self, inner, sizes).bytes(),
            None => 0,
        }
    }
}

/// Sizes of the dimensions that are transformed.
type FftSizes = SmallVec<[usize; 3]>;

/// The sizes of a transform.
struct Transform {
    /// Its own.
    sizes: FftSizes,
    /// Those of the signal, and how much of them is read.
    shape: FftSizes,
    read: FftSizes,
    written: FftSizes,
}

impl Transform {
    fn new(fft: &Fft, shape: FftSizes, sizes: FftSizes) -> Self {
        let mut halved = sizes.clone();
        if let Some(last) = halved.last_mut() {
            *last = if *last == 0 { 0 } else { *last / 2 + 1 };
        }
        let (read, written) = match (fft.real, fft.way) {
            (None, _) => (sizes.clone(), sizes.clone()),
            (Some(_), FftWay::Forward) => (sizes.clone(), halved),
            (Some(_), FftWay::Back) => (halved, sizes.clone()),
        };
        Self { sizes, shape, read, written }
    }

    /// The bytes of scratch memory of a transform.
    fn bytes(&self) -> usize {
        let numbers = |sizes: &[usize]| {
            Scratch::bytes_of::<Complex<f64>>(
                sizes.iter().fold(1, |n, size| n.saturating_mul(*size)),
            )
        };
        let lines: usize = self.sizes.iter().map(|size| Line::bytes(*size)).sum();
        let longest = numbers(&[self.sizes.iter().copied().max().unwrap_or(0)]);
        let grids = numbers(&self.shape) + numbers(&self.sizes) + numbers(&self.written);
        lines.saturating_add(longest).saturating_add(grids)
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

impl Fft {
    /// All transforms, one after the other.
    fn transform(
        &self,
        transform: &Transform,
        signals: View<'_>,
        scratch: &mut Scratch<'_>,
        out: &mut ViewMut<'_>,
    ) -> Result<()> {
        let Transform { sizes, shape, read, written } = transform;
        let count = |sizes: &[usize]| sizes.iter().product::<usize>();
        let lines = sizes.iter().map(|n| Line::new(*n, self.way == FftWay::Back, scratch));
        let mut lines = lines.collect::<Result<SmallVec<[Line<'_>; 3]>>>()?;
        let mut signal = scratch.part(count(shape))?;
        let mut grid = scratch.part(count(sizes))?;
        let mut result = scratch.part(count(written))?;
        let mut line = scratch.part(sizes.iter().copied().max().unwrap_or(0))?;
        for number in 0..signals.n_elements() / signal.len().max(1) {
            pace(signal.len() + 8 * grid.len())?;
            widen(signals, number * signal.len(), &mut signal)?;
            for (i, value) in grid.iter_mut().enumerate() {
                let at = place(i, sizes, read, shape);
                *value = at.map_or(Complex::new(0., 0.), |at| signal[at]);
            }
            let back_to_real = self.real.is_some() && self.way == FftWay::Back;
            for axis in 0..sizes.len() {
                if back_to_real && axis + 1 == sizes.len() {
                    mirror(&mut grid, sizes[axis]);
                }
                along(&mut grid, sizes, (axis, &mut lines[axis]), &mut line);
            }
            let kept = (0..grid.len()).filter_map(|i| place(i, sizes, written, sizes));
            result.iter_mut().zip(kept).for_each(|(to, at)| *to = grid[at]);
            narrow(&result, number * result.len(), out)?;
        }
        Ok(())
    }
}

/// Returns the place of number `i` of a grid of `sizes` in one of `shape`; `None` beyond `limits`.
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

/// Transforms each line of a grid along one axis. `values` has room for the longest.
fn along(
    grid: &mut [Complex<f64>],
    sizes: &[usize],
    (axis, line): (usize, &mut Line<'_>),
    values: &mut [Complex<f64>],
) {
    let (n, step) = (sizes[axis], sizes[axis + 1..].iter().product::<usize>());
    let values = &mut values[..n];
    for first in (0..grid.len()).filter(|i| i / step % n == 0) {
        if is_stopped(8 * n) {
            return;
        }
        values.iter_mut().enumerate().for_each(|(i, v)| *v = grid[first + i * step]);
        line.transform(values);
        values.iter().enumerate().for_each(|(i, v)| grid[first + i * step] = *v);
    }
}

fn lengths(lengths: View<'_>, rank: usize) -> Result<FftSizes> {
    let sizes: Option<FftSizes> =
        ints(&lengths)?.iter().map(|length| usize::try_from(*length).ok()).collect();
    match sizes {
        Some(sizes) if sizes.len() == rank => Ok(sizes),
        _ => invalid!("fft_length must be {rank} sizes: {}", lengths.shape()),
    }
}

/// Writes the elements from `start` on as complex doubles.
fn widen(view: View<'_>, start: usize, wide: &mut [Complex<f64>]) -> Result<()> {
    fn each<T: Element>(
        view: View<'_>,
        start: usize,
        wide: &mut [Complex<f64>],
        widen: impl Fn(T) -> Complex<f64>,
    ) {
        wide.iter_mut().zip(&view.as_slice()[start..]).for_each(|(to, x)| *to = widen(*x));
    }
    let real = |x: f64| Complex::new(x, 0.);
    match view.dtype() {
        DType::F32 => each(view, start, wide, |x: f32| real(f64::from(x))),
        DType::F64 => each(view, start, wide, real),
        DType::Complex64 => each(view, start, wide, |x: Complex<f32>| {
            Complex::new(f64::from(x.re), f64::from(x.im))
        }),
        DType::Complex128 => each(view, start, wide, |x: Complex<f64>| x),
        dtype => return unsupported!("no transform of {dtype}"),
    }
    Ok(())
}

/// Writes results from element `start` of the output on.
fn narrow(wide: &[Complex<f64>], start: usize, out: &mut ViewMut<'_>) -> Result<()> {
    fn each<T: Element>(
        wide: &[Complex<f64>],
        start: usize,
        out: &mut ViewMut<'_>,
        narrow: impl Fn(Complex<f64>) -> T,
    ) {
        let out = out.as_mut_slice()[start..].iter_mut();
        out.zip(wide).for_each(|(to, x)| *to = narrow(*x));
    }
    match out.dtype() {
        DType::F32 => each(wide, start, out, |x| x.re as f32),
        DType::F64 => each(wide, start, out, |x| x.re),
        DType::Complex64 => {
            each(wide, start, out, |x| Complex::new(x.re as f32, x.im as f32));
        }
        DType::Complex128 => each(wide, start, out, |x| x),
        dtype => return unsupported!("no transform to {dtype}"),
    }
    Ok(())
}
