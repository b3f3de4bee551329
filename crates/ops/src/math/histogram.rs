//! `HistogramFixedWidth`: how many elements fall into each of so many equal bins.

use num_traits::AsPrimitive;

use super::arg::axis_value;
use crate::error::unsupported;
use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("HistogramFixedWidth", RowRule::Mixed, |attrs| {
    Ok(Box::new(MathHistogram { dtype: attrs.dtype_or("dtype", DType::I32)? }))
});

struct MathHistogram {
    dtype: DType,
}

impl Op for MathHistogram {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [_, range, n_bins] = arity(inputs)?;
        range.require_rank(1)?;
        n_bins.require_rank(0)?;
        let n = match n_bins.sizes().and_then(|sizes| sizes.first().cloned()) {
            Some(Dim::Known(n)) if n <= 0 => return invalid!("nbins should be a positive number"),
            dim => dim.unwrap_or(Dim::Unknown),
        };
        Ok(vec![Spec::new(self.dtype, [n])])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (x, range, n_bins) = (ctx.input(0), ctx.input(1), ctx.input(2));
        let n = axis_value(n_bins)?;
        if n <= 0 {
            return invalid!("nbins should be a positive number, but got {n}");
        }
        if range.n_elements() != 2 {
            return invalid!("value_range should be a vector of 2 elements");
        }
        let (low, high) = match range.dtype() {
            DType::F32 => ends::<f32>(range),
            DType::F64 => ends::<f64>(range),
            DType::I32 => ends::<i32>(range),
            DType::I64 => ends::<i64>(range),
            other => return unsupported!("dtype {other} is not supported here"),
        };
        if low >= high || low.is_nan() || high.is_nan() {
            return invalid!("value_range should satisfy value_range[0] < value_range[1]");
        }
        let shape = Shape::checked([n])?;
        let mut counts = ctx.scratch().part(shape.n_elements())?;
        let bins = (low, (high - low) / n as f64);
        match x.dtype() {
            DType::F32 => count::<f32>(x, bins, &mut counts)?,
            DType::F64 => count::<f64>(x, bins, &mut counts)?,
            DType::I32 => count::<i32>(x, bins, &mut counts)?,
            DType::I64 => count::<i64>(x, bins, &mut counts)?,
            other => return unsupported!("dtype {other} is not supported here"),
        }
        let mut out = ctx.output(0, self.dtype, &shape)?;
        for_integer!(self.dtype, T => {
            let out = out.as_mut_slice::<T>().iter_mut();
            out.zip(counts.iter()).for_each(|(out, count)| *out = *count as T);
        });
        Ok(())
    }

    fn scratch_bytes(&self, _: &[Spec], outputs: &[Spec]) -> usize {
        Scratch::bytes_for::<i64>(&outputs[0])
    }
}

fn ends<T: Element + AsPrimitive<f64>>(range: View<'_>) -> (f64, f64) {
    let range: &[T] = range.as_slice();
    (range[0].as_(), range[1].as_())
}

/// Counts the values in each bin, the first of which begins at `low`.
fn count<T: Element + AsPrimitive<f64>>(
    x: View<'_>,
    (low, step): (f64, f64),
    counts: &mut [i64],
) -> Result<()> {
    counts.fill(0);
    let last = counts.len() as i64 - 1;
    let values = x.as_slice::<T>().iter().map(|value| AsPrimitive::<f64>::as_(*value));
    for value in values {
        pace(4)?;
        if value.is_nan() {
            // The text is TensorFlow's (`histogram_op.cc`).
            return invalid!("Histogram values must not contain NaN");
        }
        // A float beyond the ends of an integer becomes that end.
        let bin = ((value - low) / step).floor() as i64;
        counts[bin.clamp(0, last) as usize] += 1;
    }
    Ok(())
}
