//! `Multinomial`: classes drawn by their unnormalised log-probabilities, following
//! `multinomial_op.cc`.

use half::{bf16, f16};

use super::distribution::unit_f64;
use super::philox::{Philox, Singles};
use super::stateful::Stream;
use super::stateless::seed_value;
use crate::prelude::*;

/// Its own stream.
struct Multinomial {
    dtype: DType,
    stream: Stream,
}

/// The seed is an input.
struct Stateless {
    dtype: DType,
}

pub(super) fn build(attrs: &Attrs<'_>) -> Result<Box<dyn Op>> {
    let dtype = attrs.dtype_or("output_dtype", DType::I64)?;
    Ok(Box::new(Multinomial { dtype, stream: Stream::new(attrs)? }))
}

pub(super) fn build_stateless(attrs: &Attrs<'_>) -> Result<Box<dyn Op>> {
    Ok(Box::new(Stateless { dtype: attrs.dtype_or("output_dtype", DType::I64)? }))
}

impl Op for Multinomial {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [logits, n] = arity(inputs)?;
        infer(self.dtype, logits, n)
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (n_rows, _, n) = sizes(ctx)?;
        let philox = self.stream.reserve(n_rows * n.next_multiple_of(4));
        run(ctx, self.dtype, philox)
    }

    fn scratch_bytes(&self, inputs: &[Spec], _: &[Spec]) -> usize {
        scratch_bytes(&inputs[0])
    }
}

impl Op for Stateless {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [logits, n, seed] = arity(inputs)?;
        seed.require_rank(1)?;
        infer(self.dtype, logits, n)
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let philox = Philox::scrambled(seed_value(ctx.input(2))?);
        run(ctx, self.dtype, philox)
    }

    fn scratch_bytes(&self, inputs: &[Spec], _: &[Spec]) -> usize {
        scratch_bytes(&inputs[0])
    }
}

/// The bytes of a row of these logits, and of its sums.
fn scratch_bytes(logits: &Spec) -> usize {
    2 * Scratch::bytes_of::<f64>(logits.shape().map_or(0, |shape| shape.last_dim()))
}

fn infer(dtype: DType, logits: &Spec, n: &Spec) -> Result<Vec<Spec>> {
    logits.require_rank(2)?;
    n.require_rank(0)?;
    let n_rows = logits.dims().map_or(Dim::Unknown, |dims| dims[0].clone());
    let n = n.sizes().and_then(|sizes| sizes.first().cloned()).unwrap_or(Dim::Unknown);
    if n.known().is_some_and(|n| n < 0) {
        return invalid!("num_samples should be nonnegative, got {n}");
    }
    Ok(vec![Spec::new(dtype, [n_rows, n])])
}

/// The rows, the classes and the samples of each row.
fn sizes(ctx: &Ctx<'_>) -> Result<(usize, usize, usize)> {
    let (logits, n) = (ctx.input(0), ctx.input(1));
    let &[n_rows, n_classes] = logits.shape().dims() else {
        return invalid!("logits should be a matrix, got shape {}", logits.shape());
    };
    let n = match int(&n) {
        Ok(n) if n >= 0 && i32::try_from(n).is_ok() => n as usize,
        Ok(n) => return invalid!("num_samples should be nonnegative, got {n}"),
        Err(_) => return invalid!("num_samples should be a scalar"),
    };
    if n_classes == 0 {
        return invalid!("num_classes should be positive, got 0");
    }
    Ok((n_rows, n_classes, n))
}

fn run(ctx: &mut Ctx<'_>, dtype: DType, philox: Philox) -> Result<()> {
    let (n_rows, n_classes, n) = sizes(ctx)?;
    let logits = ctx.input(0);
    let shape = Shape::checked([n_rows as i64, n as i64])?;
    let mut scratch = ctx.scratch();
    let mut row = (scratch.part(n_classes)?, scratch.part(n_classes)?);
    let row = (&mut row.0[..], &mut row.1[..]);
    let mut out = ctx.output(0, dtype, &shape)?;
    let singles = Singles::new(philox);
    for_integer!(dtype, T => {
        let rows = out.as_mut_slice::<T>().chunks_exact_mut(n.max(1));
        draw(logits, rows, row, singles, |class| class as T)
    })
}

/// Draws the classes of each row; `row` and `sums` have room for one.
fn draw<'a, T: 'a>(
    logits: View<'_>,
    rows: impl Iterator<Item = &'a mut [T]>,
    (row, sums): (&mut [f64], &mut [f64]),
    mut singles: Singles,
    number: impl Fn(usize) -> T,
) -> Result<()> {
    for (i, out) in rows.enumerate() {
        pace(64 + 16 * row.len())?;
        widen(logits, i * row.len(), row)?;
        let finite = row.iter().copied().filter(|x| x.is_finite());
        let max = finite.fold(f64::MIN, f64::max);
        let mut total = 0.0;
        for (x, sum) in row.iter().zip(&mut *sums) {
            total += if x.is_finite() { (x - max).exp() } else { 0.0 };
            *sum = total;
        }
        for out in out {
            pace(16)?;
            let place = unit_f64(singles.next(), singles.next()) * total;
            *out = number(sums.partition_point(|sum| *sum <= place));
        }
    }
    Ok(())
}

/// Writes a row of logits, from element `start` on, in double precision.
fn widen(x: View<'_>, start: usize, row: &mut [f64]) -> Result<()> {
    fn each<T: Element>(x: View<'_>, start: usize, row: &mut [f64], wide: impl Fn(T) -> f64) {
        row.iter_mut().zip(&x.as_slice()[start..]).for_each(|(to, x)| *to = wide(*x));
    }
    match x.dtype() {
        DType::F16 => each(x, start, row, f16::to_f64),
        DType::BF16 => each(x, start, row, bf16::to_f64),
        DType::F64 => each(x, start, row, |x: f64| x),
        DType::F32 => each(x, start, row, |x: f32| f64::from(x)),
        dtype => for_integer!(dtype, T => each(x, start, row, |x: T| x as f64)),
    }
    Ok(())
}
