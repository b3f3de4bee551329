//! Running one op on its own: for what is constant.

use ops::{Ctx, Env, Kind, Op, Output};
use smallvec::SmallVec;
use tensor::{DType, Dim, Shape, Spec, Tensor, Value};

use crate::digest::mark;

/// The bytes that a folded value may take, however small its inputs are.
const FREE_BYTES: usize = 64 << 10;

/// The outputs of a node that does not depend on any feed; `None` if it does, has effects, fails
/// (the run will say why), or would take much more memory than its inputs do.
pub(crate) fn fold(
    (op, kind): (&dyn Op, Kind),
    inputs: &[Spec],
    outputs: &[Spec],
    env: &Env<'_>,
) -> Option<Vec<Tensor>> {
    if !matches!(kind, Kind::Pure | Kind::Handle) {
        return None;
    }
    let tensors: Option<SmallVec<[&Tensor; 4]>> = inputs.iter().map(Spec::as_constant).collect();
    let Some(tensors) = tensors else { return outputs.iter().map(known_sizes).collect() };
    // The packed form of such a constant is all that there is, and only a run has that.
    if tensors.iter().any(|tensor| tensor.is_vacant()) {
        return None;
    }
    let given: usize = tensors.iter().map(|tensor| tensor.n_bytes()).sum();
    let made = outputs.iter().map(n_bytes).try_fold(0usize, |sum, bytes| sum.checked_add(bytes?));
    if kind == Kind::Pure && made? > given.max(FREE_BYTES) {
        return None;
    }
    if tensors.iter().any(|tensor| tensor.is_rehearsed()) {
        if let (Some(input), [output]) = (op.alias(), outputs) {
            return Some(vec![tensors.get(input)?.reshaped(output.shape()?).ok()?]);
        }
        return outputs.iter().map(rehearsed).collect();
    }
    run(op, &tensors, outputs.len(), env).ok()
}

/// A tensor with the size of a value of this spec, without its elements.
fn rehearsed(spec: &Spec) -> Option<Tensor> {
    spec.dtype.is_plain().then_some(())?;
    let mut tensor = Tensor::zeros(spec.dtype, spec.shape()?).ok()?;
    mark(&mut tensor, 0);
    Some(tensor)
}

/// Runs an op on tensors.
fn run(
    op: &dyn Op,
    inputs: &[&Tensor],
    n_outputs: usize,
    env: &Env<'_>,
) -> ops::Result<Vec<Tensor>> {
    let outputs = (0..n_outputs).map(|_| Output::Open(None));
    let mut ctx = Ctx::new(inputs.iter().map(|tensor| tensor.view()), outputs, env);
    op.run(&mut ctx)?;
    Ok(ctx.finish()?.into_iter().map(|(_, tensor)| tensor).collect())
}

/// The bytes of a tensor of this spec; `None` if they are not known. Of strings only their number
/// counts, if it is known, and others than these and plain elements count as nothing: they are
/// small.
fn n_bytes(spec: &Spec) -> Option<usize> {
    if spec.dtype == DType::String {
        return Some(spec.shape().map_or(0, |shape| shape.n_elements() * size_of::<usize>()));
    }
    if !spec.dtype.is_plain() {
        return Some(0);
    }
    Some(spec.shape()?.n_elements() * spec.dtype.size())
}

/// A tensor of sizes that are all numbers, such as the shape of a tensor of known shape.
fn known_sizes(spec: &Spec) -> Option<Tensor> {
    let Value::Sizes(sizes) = &spec.value else { return None };
    let numbers: Option<Vec<i64>> = sizes.iter().map(Dim::known).collect();
    let (numbers, shape): (_, Shape) = (numbers?, spec.shape()?);
    if spec.dtype == DType::I64 {
        return Tensor::from_slice(shape, &numbers).ok();
    }
    let narrow: Option<Vec<i32>> = numbers.iter().map(|n| i32::try_from(*n).ok()).collect();
    (spec.dtype == DType::I32).then_some(())?;
    Tensor::from_slice(shape, &narrow?).ok()
}
