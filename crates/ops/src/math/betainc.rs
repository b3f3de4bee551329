//! `Betainc`: the regularised incomplete beta function, element by element.

use super::gamma::betainc;
use crate::error::unsupported;
use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("Betainc", RowRule::Mixed, |_| Ok(Box::new(Betainc)));

struct Betainc;

impl Op for Betainc {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [a, b, x] = arity(inputs)?;
        b.require_dtype(a.dtype)?;
        x.require_dtype(a.dtype)?;
        if [a, b, x].iter().any(|spec| spec.rank().is_none()) {
            return Ok(vec![Spec::unknown(a.dtype)]);
        }
        let mut dims: Option<Dims> = None;
        for spec in [a, b, x].iter().filter(|spec| spec.rank() != Some(0)) {
            dims = merge_dims(dims.as_deref(), spec.dims())?;
        }
        Ok(vec![spec_of(a.dtype, dims.or(Some(Dims::new())))])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let inputs = [ctx.input(0), ctx.input(1), ctx.input(2)];
        let shaped = inputs.iter().find(|view| view.shape().rank() > 0);
        let shape = shaped.map_or_else(Shape::scalar, |view| view.shape().clone());
        // The text is TensorFlow's (`betainc_op.cc`).
        if inputs.iter().any(|view| view.shape().rank() > 0 && *view.shape() != shape) {
            return invalid!("Shapes of a, b and x are inconsistent");
        }
        let mut out = ctx.output(0, inputs[0].dtype(), &shape)?;
        match inputs[0].dtype() {
            DType::F32 => {
                let [a, b, x] = inputs.map(|view| view.as_slice::<f32>());
                for (i, out) in out.as_mut_slice::<f32>().iter_mut().enumerate() {
                    pace(256)?;
                    let [a, b, x] = [a, b, x].map(|of| f64::from(pick(of, i)));
                    *out = betainc(a, b, x) as f32;
                }
            }
            DType::F64 => {
                let [a, b, x] = inputs.map(|view| view.as_slice::<f64>());
                for (i, out) in out.as_mut_slice::<f64>().iter_mut().enumerate() {
                    pace(256)?;
                    *out = betainc(pick(a, i), pick(b, i), pick(x, i));
                }
            }
            other => return unsupported!("dtype {other} is not supported here"),
        }
        Ok(())
    }
}

/// Element `i`, or the only one.
fn pick<T: Copy>(elements: &[T], i: usize) -> T {
    if elements.len() == 1 { elements[0] } else { elements[i] }
}
