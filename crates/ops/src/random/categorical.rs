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
    let n = match n.to_i64().as_deref() {
        Some(&[n]) if n >= 0 && i32::try_from(n).is_ok() => n as usize,
        Some(&[n]) => return invalid!("num_samples should be nonnegative, got {n}"),
        _ => return invalid!("num_samples should be a scalar"),
    };
    if n_classes == 0 {
        return invalid!("num_classes should be positive, got 0");
    }
    Ok((n_rows, n_classes, n))
}

fn run(ctx: &mut Ctx<'_>, dtype: DType, philox: Philox) -> Result<()> {
    let (n_rows, n_classes, n) = sizes(ctx)?;
    let logits = wide(ctx.input(0))?;
    let shape = Shape::checked([n_rows as i64, n as i64])?;
    let mut out = ctx.output(0, dtype, &shape)?;
    let mut singles = Singles::new(philox);
    let mut sums = vec![0f64; n_classes];
    let mut draws = Vec::with_capacity(shape.n_elements());
    for row in logits.chunks(n_classes.max(1)).take(n_rows) {
        let finite = row.iter().copied().filter(|x| x.is_finite());
        let max = finite.fold(f64::MIN, f64::max);
        let mut total = 0.0;
        for (x, sum) in row.iter().zip(&mut sums) {
            total += if x.is_finite() { (x - max).exp() } else { 0.0 };
            *sum = total;
        }
        for _ in 0..n {
            let place = unit_f64(singles.next(), singles.next()) * total;
            draws.push(sums.partition_point(|sum| *sum <= place));
        }
    }
    for_integer!(dtype, T => {
        let out = out.as_mut_slice::<T>().iter_mut();
        out.zip(draws).for_each(|(out, class)| *out = class as T);
    });
    Ok(())
}

/// The logits in double precision.
fn wide(x: View<'_>) -> Result<Vec<f64>> {
    Ok(match x.dtype() {
        DType::F16 => x.as_slice::<f16>().iter().map(|x| x.to_f64()).collect(),
        DType::BF16 => x.as_slice::<bf16>().iter().map(|x| x.to_f64()).collect(),
        DType::F64 => x.as_slice::<f64>().to_vec(),
        DType::F32 => x.as_slice::<f32>().iter().map(|x| f64::from(*x)).collect(),
        dtype => for_integer!(dtype, T => x.as_slice::<T>().iter().map(|x| *x as f64).collect()),
    })
}
