//! `ApproximateEqual`: whether elements are no farther from each other than a tolerance.

use crate::error::unsupported;
use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("ApproximateEqual", RowRule::Mixed, |attrs| {
    Ok(Box::new(ApproximateEqual { tolerance: attrs.float_or("tolerance", 1e-5)? }))
});

struct ApproximateEqual {
    tolerance: f32,
}

impl Op for ApproximateEqual {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [x, y] = arity(inputs)?;
        y.require_dtype(x.dtype)?;
        Ok(vec![spec_of(DType::Bool, merge_dims(x.dims(), y.dims())?)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (x, y) = (ctx.input(0), ctx.input(1));
        if x.shape() != y.shape() {
            // The text is TensorFlow's (`cwise_ops_common.h`).
            let (x, y) = (x.shape(), y.shape());
            return invalid!("x and y must be of the same shape. x shape: {x}. y shape: {y}");
        }
        let mut out = ctx.output(0, DType::Bool, x.shape())?;
        let out = out.as_mut_slice::<u8>();
        let tolerance = self.tolerance;
        match x.dtype() {
            DType::F32 => near::<f32>(x, y, out, |gap| gap.abs() <= tolerance),
            DType::F64 => near::<f64>(x, y, out, |gap| gap.abs() <= f64::from(tolerance)),
            other => return unsupported!("dtype {other} is not supported here"),
        }
        Ok(())
    }
}

fn near<T: Element + std::ops::Sub<Output = T>>(
    x: View<'_>,
    y: View<'_>,
    out: &mut [u8],
    is_small: impl Fn(T) -> bool,
) {
    let (x, y) = (x.as_slice::<T>().chunks(AT_ONCE), y.as_slice::<T>().chunks(AT_ONCE));
    for ((x, y), out) in x.zip(y).zip(out.chunks_mut(AT_ONCE)) {
        if is_stopped(x.len()) {
            return;
        }
        let pairs = x.iter().zip(y).zip(out);
        pairs.for_each(|((x, y), out)| *out = u8::from(is_small(*x - *y)));
    }
}
