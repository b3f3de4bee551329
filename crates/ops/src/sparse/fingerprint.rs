//! `SparseFingerprint`: eight bytes that stand for each element of a batch.
//!
//! Follows `fingerprint_op.cc` of TensorFlow.

use crate::prelude::*;
use crate::text::farmhash::fingerprint64;

pub(super) const DEF: OpDef =
    OpDef::pure("Fingerprint", RowRule::Mixed, |_| Ok(Box::new(SparseFingerprint)));

struct SparseFingerprint;

impl Op for SparseFingerprint {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [data, method] = arity(inputs)?;
        data.require_rank_at_least(1)?;
        method.require_dtype(DType::String)?;
        method.require_rank(0)?;
        let n = data.dims().map_or(Dim::Unknown, |dims| dims[0].clone());
        Ok(vec![Spec::new(DType::U8, [n, Dim::Known(8)])])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (data, method) = (ctx.input(0), ctx.input(1));
        if data.shape().rank() == 0 || method.n_elements() != 1 {
            return invalid!("data must be at least rank 1 and method a scalar");
        }
        if method.strings().get(0) != b"farmhash64" {
            let method = String::from_utf8_lossy(method.strings().get(0));
            return invalid!("Unsupported fingerprint method: {method}");
        }
        let n = data.shape()[0];
        let width: usize = data.shape()[1..].iter().product();
        let is_joined = data.dtype() == DType::String && data.shape().rank() > 1;
        let mut parts = ctx.scratch().part(if is_joined { width } else { 0 })?;
        let mut output = ctx.output(0, DType::U8, &Shape::of(&[n, 8]))?;
        for (i, out) in output.as_mut_slice::<u8>().chunks_exact_mut(8).enumerate() {
            pace(16 * width.max(1))?;
            out.copy_from_slice(&of_element(data, i, width, &mut parts).to_le_bytes());
        }
        Ok(())
    }

    fn scratch_bytes(&self, inputs: &[Spec], _: &[Spec]) -> usize {
        let shape = inputs[0].shape().filter(|_| inputs[0].dtype == DType::String);
        let width = shape.and_then(|shape| Some(shape.get(1..)?.iter().product()));
        Scratch::bytes_of::<[u8; 8]>(width.unwrap_or(0))
    }
}

/// The fingerprint of the bytes of an element; of more than one string, that of their
/// fingerprints. `parts` has room for these.
fn of_element(data: View<'_>, i: usize, width: usize, parts: &mut [[u8; 8]]) -> u64 {
    if data.dtype() != DType::String {
        let n_bytes = width * data.dtype().size();
        return fingerprint64(&data.bytes()[i * n_bytes..(i + 1) * n_bytes]);
    }
    if width == 1 {
        return fingerprint64(data.strings().get(i));
    }
    let strings = (i * width..(i + 1) * width).map(|at| data.strings().get(at));
    parts.iter_mut().zip(strings).for_each(|(part, s)| *part = fingerprint64(s).to_le_bytes());
    fingerprint64(parts.as_flattened())
}
