//! `HistogramFixedWidth`: how many elements fall into each of so many equal bins.

use super::arg::axis_value;
use crate::error::unimplemented;
use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("HistogramFixedWidth", |attrs| {
    Ok(Box::new(Histogram { dtype: attrs.dtype_or("dtype", DType::I32)? }))
});

struct Histogram {
    dtype: DType,
}

impl Op for Histogram {
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
        let (values, ends) = (numbers(x)?, numbers(range)?);
        let &[low, high] = &ends[..] else {
            return invalid!("value_range should be a vector of 2 elements");
        };
        if low >= high || low.is_nan() || high.is_nan() {
            return invalid!("value_range should satisfy value_range[0] < value_range[1]");
        }
        let shape = Shape::checked([n])?;
        let mut counts = vec![0i64; shape.n_elements()];
        let step = (high - low) / n as f64;
        for value in values.iter().filter(|value| !value.is_nan()) {
            // A float beyond the ends of an integer becomes that end.
            let bin = ((value - low) / step).floor() as i64;
            counts[bin.clamp(0, n - 1) as usize] += 1;
        }
        let mut out = ctx.output(0, self.dtype, &shape)?;
        for_integer!(self.dtype, T => {
            let out = out.as_mut_slice::<T>().iter_mut();
            out.zip(counts).for_each(|(out, count)| *out = count as T);
        });
        Ok(())
    }
}

fn numbers(view: View<'_>) -> Result<Vec<f64>> {
    Ok(match view.dtype() {
        DType::F32 => view.as_slice::<f32>().iter().map(|x| f64::from(*x)).collect(),
        DType::F64 => view.as_slice::<f64>().to_vec(),
        DType::I32 => view.as_slice::<i32>().iter().map(|x| f64::from(*x)).collect(),
        DType::I64 => view.as_slice::<i64>().iter().map(|x| *x as f64).collect(),
        other => return unimplemented!("dtype {other} is not supported here"),
    })
}
