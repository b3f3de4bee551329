//! Half precision through `f32`.

use half::{bf16, f16};

use crate::error::unimplemented;
use crate::prelude::*;

/// Calls `kernel` on the inputs as `f32` and rounds what it writes, for `half` and `bfloat16`.
pub(crate) fn through_f32(
    inputs: &[View<'_>],
    out: &mut ViewMut<'_>,
    kernel: impl FnOnce(&[Vec<f32>], &mut [f32]),
) -> Result<()> {
    let wide: Option<Vec<Vec<f32>>> = inputs.iter().map(widen).collect();
    let Some(wide) = wide else {
        return unimplemented!("dtype {} is not supported here", out.dtype());
    };
    let mut result = vec![0.; out.shape().n_elements()];
    kernel(&wide, &mut result);
    narrow(&result, out)
}

/// Writes floats to `out`, rounded if it holds narrower ones.
pub(crate) fn narrow(wide: &[f32], out: &mut ViewMut<'_>) -> Result<()> {
    match out.dtype() {
        DType::F32 => out.as_mut_slice().copy_from_slice(wide),
        DType::F16 => round(wide, out.as_mut_slice(), f16::from_f32),
        DType::BF16 => round(wide, out.as_mut_slice(), bf16::from_f32),
        dtype => return unimplemented!("dtype {dtype} is not supported here"),
    }
    Ok(())
}

/// The elements as `f32`, if they are floats of at most that width.
pub(crate) fn widen(view: &View<'_>) -> Option<Vec<f32>> {
    match view.dtype() {
        DType::F16 => Some(view.as_slice::<f16>().iter().map(|x| x.to_f32()).collect()),
        DType::BF16 => Some(view.as_slice::<bf16>().iter().map(|x| x.to_f32()).collect()),
        DType::F32 => Some(view.as_slice().to_vec()),
        _ => None,
    }
}

fn round<T>(wide: &[f32], out: &mut [T], narrow: impl Fn(f32) -> T) {
    out.iter_mut().zip(wide).for_each(|(out, x)| *out = narrow(*x));
}
