//! `CheckNumerics`: the input, if all its elements are finite.

use num_traits::Float;

use crate::prelude::*;

pub(super) const CHECK_NUMERICS: OpDef = OpDef::pure("CheckNumerics", RowRule::Elementwise, build);
pub(super) const CHECK_NUMERICS_V2: OpDef =
    OpDef::pure("CheckNumericsV2", RowRule::Elementwise, build);

struct CheckNumerics {
    message: String,
}

fn build(attrs: &Attrs<'_>) -> Result<Box<dyn Op>> {
    Ok(Box::new(CheckNumerics { message: attrs.str_or("message", "")?.to_owned() }))
}

impl Op for CheckNumerics {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [x] = arity(inputs)?;
        Ok(vec![x.with_dtype(x.dtype)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let x = ctx.input(0);
        for_float!(x.dtype(), T => self.check::<T>(x.as_slice())?);
        ctx.forward(0, x, x.shape().clone())
    }
}

impl CheckNumerics {
    fn check<T: Float>(&self, x: &[T]) -> Result<()> {
        let mut all_finite = true;
        for x in x.chunks(AT_ONCE) {
            pace(x.len())?;
            all_finite &= x.iter().all(|x| x.is_finite());
        }
        if all_finite {
            return Ok(());
        }
        // The text is TensorFlow's (`check_numerics_op.cc`).
        let nan = x.iter().any(|x| x.is_nan());
        let infinite = x.iter().any(|x| x.is_infinite());
        let what = match (nan, infinite) {
            (true, true) => "Inf and NaN",
            (true, false) => "NaN",
            _ => "Inf",
        };
        invalid!("{} : Tensor had {what} values", self.message)
    }
}
