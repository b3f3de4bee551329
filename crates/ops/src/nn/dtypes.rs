//! Half precision through `f32`.

use std::ops::Deref;

use half::{bf16, f16};
use smallvec::SmallVec;

use crate::error::unsupported;
use crate::prelude::*;

/// Calls `kernel` on the inputs as `f32` and rounds what it writes, for `half` and `bfloat16`. It
/// gets what is left of the scratch memory.
pub(crate) fn through_f32<'a>(
    mut scratch: Scratch<'a>,
    inputs: &[View<'_>],
    out: &mut ViewMut<'_>,
    kernel: impl FnOnce(Scratch<'a>, &[Part<'a, f32>], &mut [f32]) -> Result<()>,
) -> Result<()> {
    let mut wide: SmallVec<[Part<'a, f32>; 2]> = SmallVec::new();
    for input in inputs {
        let mut part = scratch.part(input.n_elements())?;
        if !widen_to(input, &mut part) {
            return unsupported!("dtype {} is not supported here", out.dtype());
        }
        wide.push(part);
    }
    let mut result = scratch.part(out.shape().n_elements())?;
    kernel(scratch, &wide, &mut result)?;
    narrow(&result, out)
}

/// The bytes of scratch memory that `through_f32` takes for inputs and an output of these specs.
pub(crate) fn wide_bytes(inputs: &[Spec], outputs: &[Spec]) -> usize {
    let is_half = |spec: &Spec| matches!(spec.dtype, DType::F16 | DType::BF16);
    if !outputs.first().is_some_and(is_half) {
        return 0;
    }
    inputs.iter().chain(&outputs[..1]).map(Scratch::bytes_for::<f32>).sum()
}

/// Writes floats to `out`, rounded if it holds narrower ones.
pub(crate) fn narrow(wide: &[f32], out: &mut ViewMut<'_>) -> Result<()> {
    match out.dtype() {
        DType::F32 => out.as_mut_slice().copy_from_slice(wide),
        DType::F16 => round(wide, out.as_mut_slice(), f16::from_f32),
        DType::BF16 => round(wide, out.as_mut_slice(), bf16::from_f32),
        dtype => return unsupported!("dtype {dtype} is not supported here"),
    }
    Ok(())
}

/// Elements as `f32`: those of a tensor, or in scratch memory if they were widened.
pub(crate) enum Floats<'a> {
    Own(&'a [f32]),
    Wide(Part<'a, f32>),
}

impl<'a> Floats<'a> {
    /// The elements, if they are floats of at most that width.
    pub(crate) fn of(view: &View<'a>, scratch: &mut Scratch<'a>) -> Result<Option<Self>> {
        if view.dtype() == DType::F32 {
            return Ok(Some(Self::Own(view.as_slice())));
        }
        let is_half = matches!(view.dtype(), DType::F16 | DType::BF16);
        let mut wide = scratch.part(if is_half { view.n_elements() } else { 0 })?;
        Ok((is_half && widen_to(view, &mut wide)).then_some(Self::Wide(wide)))
    }

    /// The bytes of scratch memory that they take.
    pub(crate) fn bytes(spec: &Spec) -> usize {
        let is_half = matches!(spec.dtype, DType::F16 | DType::BF16);
        if is_half { Scratch::bytes_for::<f32>(spec) } else { 0 }
    }
}

impl Deref for Floats<'_> {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match self {
            Self::Own(floats) => floats,
            Self::Wide(floats) => floats,
        }
    }
}

/// The only element as `f32`, if there is one and it is a float of at most that width.
pub(crate) fn float(view: &View<'_>) -> Option<f32> {
    let mut float = [0.];
    (view.n_elements() == 1 && widen_to(view, &mut float)).then_some(float[0])
}

/// Writes the elements as `f32`; says whether they are floats of at most that width.
pub(crate) fn widen_to(view: &View<'_>, wide: &mut [f32]) -> bool {
    match view.dtype() {
        DType::F16 => round(view.as_slice(), wide, f16::to_f32),
        DType::BF16 => round(view.as_slice(), wide, bf16::to_f32),
        DType::F32 => wide.copy_from_slice(view.as_slice()),
        _ => return false,
    }
    true
}

fn round<T: Copy, U>(from: &[T], to: &mut [U], round: impl Fn(T) -> U) {
    to.iter_mut().zip(from).for_each(|(to, x)| *to = round(*x));
}
