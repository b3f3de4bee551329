//! `ReduceJoin`: strings joined along dimensions.
//!
//! Follows `reduce_join_op.cc` of TensorFlow.

use crate::prelude::*;

pub(super) const DEF: OpDef =
    OpDef::pure("ReduceJoin", RowRule::Along { value: 0, axes: 1 }, |attrs| {
        let separator =
            if attrs.has("separator") { attrs.bytes("separator")?.to_vec() } else { Vec::new() };
        Ok(Box::new(ReduceJoin { separator, keep_dims: attrs.bool_or("keep_dims", false)? }))
    });

struct ReduceJoin {
    separator: Vec<u8>,
    keep_dims: bool,
}

impl Op for ReduceJoin {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input, axes] = arity(inputs)?;
        input.require_dtype(DType::String)?;
        let (Some(dims), Some(axes)) = (input.dims(), axes.ints()) else {
            return Ok(vec![Spec::unknown(DType::String)]);
        };
        let axes = normalise(&axes, dims.len())?;
        Ok(vec![Spec::new(DType::String, self.kept(dims, &axes, &Dim::Known(1)))])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let input = ctx.input(0);
        let Some(axes) = ctx.input(1).to_i64() else {
            return invalid!("reduction_indices must be int32");
        };
        let axes = normalise(&axes, input.shape().rank())?;
        let shape: Shape = self.kept(input.shape(), &axes, &1).into_iter().collect();
        if axes.is_empty() {
            return ctx.forward(0, input, input.shape().clone());
        }
        let strides = input.shape().strides();
        let pick = |axes: &[usize]| -> (Vec<usize>, Vec<usize>) {
            axes.iter().map(|axis| (input.shape()[*axis], strides[*axis])).unzip()
        };
        let others: Vec<usize> =
            (0..input.shape().rank()).filter(|axis| !axes.contains(axis)).collect();
        let starts = offsets(&pick(&others))?;
        // The axis that is named first runs fastest.
        let slowest_first: Vec<usize> = axes.iter().rev().copied().collect();
        let steps = offsets(&pick(&slowest_first))?;
        let strings = input.strings();
        let n_separators = starts.len().saturating_mul(steps.len().saturating_sub(1));
        let n_bytes = n_separators.saturating_mul(self.separator.len());
        let mut out =
            Strings::with_capacity(starts.len(), n_bytes.saturating_add(strings.n_bytes()))?;
        for start in starts.iter() {
            ctx.env().cancel.check()?;
            for (i, step) in steps.iter().enumerate() {
                if i > 0 {
                    out.extend_last(&self.separator)?;
                }
                out.extend_last(strings.get(start + step))?;
            }
            out.end()?;
        }
        ctx.set_output(0, Tensor::from_strings(shape, out)?)
    }
}

impl ReduceJoin {
    /// The dimensions of the output.
    fn kept<D: Clone>(&self, dims: &[D], axes: &[usize], one: &D) -> Vec<D> {
        let keep = |(axis, dim): (usize, &D)| match (axes.contains(&axis), self.keep_dims) {
            (false, _) => Some(dim.clone()),
            (true, true) => Some(one.clone()),
            (true, false) => None,
        };
        dims.iter().enumerate().filter_map(keep).collect()
    }
}

/// The axes counted from the front, in the order given, which decides the order of joining.
fn normalise(axes: &[i64], rank: usize) -> Result<Vec<usize>> {
    let mut all = Vec::with_capacity(axes.len());
    for axis in axes {
        let Ok(from_front) = normalise_axis(*axis, rank) else {
            let text =
                format!("Invalid reduction dimension {axis} for input with {rank} dimension(s)");
            return Err(Error::OutOfRange(text));
        };
        if all.contains(&from_front) {
            return invalid!("Duplicate reduction dimension {axis}");
        }
        all.push(from_front);
    }
    Ok(all)
}

/// The offsets of all combinations of positions along dimensions, the last one fastest.
fn offsets((sizes, strides): &(Vec<usize>, Vec<usize>)) -> Result<BookedVec<usize>> {
    let mut offsets = BookedVec::filled(0, 1)?;
    for (size, stride) in sizes.iter().zip(strides) {
        let mut next = BookedVec::with_capacity(offsets.len() * size)?;
        for offset in offsets.iter() {
            next.extend((0..*size).map(|i| offset + i * stride))?;
        }
        offsets = next;
    }
    Ok(offsets)
}
