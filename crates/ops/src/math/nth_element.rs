//! `NthElement`: the element of each row that would stand at a place if the row were sorted.

use std::cmp::Ordering;

use super::arg::axis_value;
use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("NthElement", RowRule::Mixed, |attrs| {
    Ok(Box::new(NthElement { reverse: attrs.bool_or("reverse", false)? }))
});

struct NthElement {
    reverse: bool,
}

impl Op for NthElement {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [x, n] = arity(inputs)?;
        x.require_rank_at_least(1)?;
        n.require_rank(0)?;
        let Some([rest @ .., last]) = x.dims() else { return Ok(vec![Spec::unknown(x.dtype)]) };
        if let Some(n) = known_int(n) {
            check(n, last.known())?;
        }
        Ok(vec![Spec::new(x.dtype, rest.iter().cloned())])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let x = ctx.input(0);
        if ctx.input(1).n_elements() != 1 {
            return invalid!("N must be scalar but has shape {}", ctx.input(1).shape());
        }
        let n = axis_value(ctx.input(1))?;
        let Some((width, rest)) = x.shape().split_last() else {
            return invalid!("Input must be at least rank 1 but is rank 0");
        };
        check(n, Some(*width as i64))?;
        let n = if self.reverse { *width - 1 - n as usize } else { n as usize };
        let mut scratch = ctx.scratch();
        let mut out = ctx.output(0, x.dtype(), &Shape::of(rest))?;
        for_number!(x.dtype(), T => {
            let rows = x.as_slice::<T>().chunks_exact(*width);
            let mut sorted = scratch.part::<T>(*width)?;
            for (row, out) in rows.zip(out.as_mut_slice::<T>()) {
                pace(4 * *width)?;
                sorted.copy_from_slice(row);
                let compare = |a: &T, b: &T| a.partial_cmp(b).unwrap_or(Ordering::Equal);
                *out = *sorted.select_nth_unstable_by(n, compare).1;
            }
        });
        Ok(())
    }

    fn scratch_bytes(&self, inputs: &[Spec], _: &[Spec]) -> usize {
        let width = inputs[0].shape().map_or(0, |shape| shape.last_dim());
        Scratch::bytes_of::<u8>(width * inputs[0].dtype.size())
    }
}

/// The texts are TensorFlow's (`nth_element_op.cc`).
fn check(n: i64, width: Option<i64>) -> Result<()> {
    if n < 0 {
        return invalid!("n must be non-negative but is {n}");
    }
    if width.is_some_and(|width| width <= n) {
        return invalid!("Input must have last dimension > n = {n}");
    }
    Ok(())
}
