//! `RaggedTensorToVariant` and `RaggedTensorFromVariant`: ragged tensors as elements of others, as
//! `tf.map_fn` over ragged tensors needs them.
//!
//! Follows `ragged_tensor_to_variant_op.cc` and `ragged_tensor_from_variant_op.cc` of TensorFlow.

use tensor::Handle;

use super::ragged::{check_splits, splits_tensor};
use super::ragged_gather::outer_splits;
use super::rows::{concat_rows, gather_rows};
use crate::prelude::*;

pub(super) const TO_VARIANT: OpDef =
    OpDef::pure("RaggedTensorToVariant", RowRule::Mixed, |attrs| {
        Ok(Box::new(ToVariant {
            ragged_rank: attrs.count("RAGGED_RANK")?,
            is_batched: attrs.bool_or("batched_input", false)?,
            splits: attrs.dtype_or("Tsplits", DType::I64)?,
        }))
    });
pub(super) const FROM_VARIANT: OpDef =
    OpDef::pure("RaggedTensorFromVariant", RowRule::Mixed, |attrs| {
        Ok(Box::new(FromVariant {
            inner_rank: usize::try_from(attrs.int("input_ragged_rank")?).ok(),
            ragged_rank: attrs.count("output_ragged_rank")?,
            dtype: attrs.dtype("Tvalues")?,
            splits: attrs.dtype_or("Tsplits", DType::I64)?,
        }))
    });

/// A ragged tensor in a variant: row splits, outermost first, and the values.
struct Ragged {
    splits: Vec<BookedVec<usize>>,
    values: Tensor,
    /// For what stands behind it on the heap besides; kept for its drop.
    _booked: Booked,
}

/// The bytes that stand behind a row on the heap beside its splits and values.
const ROW_BYTES: usize = 320;

struct ToVariant {
    ragged_rank: usize,
    is_batched: bool,
    splits: DType,
}

impl Op for ToVariant {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        if inputs.len() != self.ragged_rank + 1 {
            return invalid!("expected {} inputs but got {}", self.ragged_rank + 1, inputs.len());
        }
        for splits in &inputs[..self.ragged_rank] {
            splits.require_dtype(self.splits)?;
            splits.require_rank(1)?;
        }
        if !self.is_batched {
            return Ok(vec![Spec::scalar(DType::Variant)]);
        }
        let first = inputs[0].dims().and_then(|dims| dims.first().cloned()).unwrap_or(Dim::Unknown);
        let n_rows = if self.ragged_rank == 0 { first } else { first.minus(&Dim::Known(1)) };
        Ok(vec![Spec::new(DType::Variant, [n_rows])])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let values = ctx.input(self.ragged_rank);
        if values.shape().rank() == 0 && (self.is_batched || self.ragged_rank > 0) {
            return invalid!("rt_dense_values must have at least rank 1");
        }
        let mut levels = Vec::new();
        let mut n_below = values.shape().first().copied().unwrap_or(1);
        for i in (0..self.ragged_rank).rev() {
            let splits = check_splits(ctx.input(i), n_below)?;
            n_below = splits.len() - 1;
            levels.push(splits);
        }
        levels.reverse();
        if !self.is_batched {
            let ragged =
                Ragged { splits: levels, values: values.to_tensor()?, _booked: Booked::nothing() };
            return ctx.set_output(0, Tensor::from_handle(DType::Variant, Handle::new(ragged)));
        }
        let row_bytes = ROW_BYTES + levels.len() * size_of::<BookedVec<usize>>();
        let mut handles = BookedVec::with_capacity(n_below)?;
        for row in 0..n_below {
            pace(64)?;
            let booked = Booked::new(row_bytes)?;
            handles
                .push(Handle::new(Ragged { _booked: booked, ..take_row(&levels, values, row)? }))?;
        }
        let shape = Shape::of(&[handles.len()]);
        ctx.set_output(0, Tensor::from_handles(DType::Variant, shape, handles.iter().cloned())?)
    }
}

/// One row of a ragged tensor; without ragged dimensions, one row of the values.
fn take_row(levels: &[BookedVec<usize>], values: View<'_>, row: usize) -> Result<Ragged> {
    let Some((outer, inner)) = levels.split_first() else {
        let taken = gather_rows(values, &[(row, row + 1)])?;
        let element: Shape = values.shape()[1..].iter().copied().collect();
        let (splits, values) = (Vec::new(), taken.reshaped(element)?);
        return Ok(Ragged { splits, values, _booked: Booked::nothing() });
    };
    let (mut start, mut end) = (outer[row], outer[row + 1]);
    let mut splits = Vec::with_capacity(inner.len());
    for level in inner {
        let first = level[start];
        splits.push(BookedVec::collect(level[start..=end].iter().map(|split| split - first))?);
        (start, end) = (level[start], level[end]);
    }
    let values = gather_rows(values, &[(start, end)])?;
    Ok(Ragged { splits, values, _booked: Booked::nothing() })
}

struct FromVariant {
    /// The ragged dimensions of each element; `None` if they follow from the others.
    inner_rank: Option<usize>,
    ragged_rank: usize,
    dtype: DType,
    splits: DType,
}

impl Op for FromVariant {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [encoded] = arity(inputs)?;
        encoded.require_dtype(DType::Variant)?;
        let mut specs = vec![Spec::new(self.splits, [Dim::Unknown]); self.ragged_rank];
        specs.push(Spec::unknown(self.dtype));
        Ok(specs)
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let encoded = ctx.input(0);
        let rank = encoded.shape().rank();
        let inner_rank = match self.inner_rank {
            Some(inner_rank) => inner_rank,
            None => self.ragged_rank.saturating_sub(rank),
        };
        if inner_rank + rank != self.ragged_rank {
            return invalid!(
                "output_ragged_rank must be equal to input_ragged_rank + encoded_ragged.dims(): \
                 {} vs. {inner_rank} + {rank}",
                self.ragged_rank
            );
        }
        let mut parts: BookedVec<&Ragged> = BookedVec::with_capacity(encoded.n_elements())?;
        for handle in encoded.handles() {
            pace(64)?;
            match handle.get::<Ragged>() {
                Some(part) if part.splits.len() == inner_rank => parts.push(part)?,
                _ => return invalid!("an element is no ragged tensor of rank {inner_rank}"),
            }
        }
        if let Some(other) = parts.iter().find(|part| part.values.dtype() != self.dtype) {
            return invalid!(
                "Expected values Tensor dtype: {}, found: {}",
                self.dtype,
                other.values.dtype()
            );
        }
        let (splits, values) = match parts[..] {
            [part] if rank == 0 => {
                let splits = part.splits.iter().map(BookedVec::try_clone);
                (splits.collect::<device::Result<Vec<_>>>()?, part.values.clone())
            }
            _ => self.stack(&parts, encoded.shape())?,
        };
        for (i, splits) in splits.iter().enumerate() {
            ctx.set_output(i, splits_tensor(self.splits, splits)?)?;
        }
        ctx.set_output(self.ragged_rank, values)
    }
}

/// Splits, outermost first, and the values.
type RaggedVariantStacked = (Vec<BookedVec<usize>>, Tensor);

impl FromVariant {
    /// The parts as rows of one ragged tensor.
    fn stack(&self, parts: &[&Ragged], shape: &Shape) -> Result<RaggedVariantStacked> {
        let mut splits = outer_splits(shape)?;
        if parts.iter().any(|part| part.values.shape().rank() == 0) {
            return invalid!("elements without rows cannot be stacked");
        }
        let n_levels = parts.first().map_or(0, |part| part.splits.len());
        for level in 0..=n_levels {
            // The rows of a part at this level: those of its splits, or its values at the last.
            let n_rows = |part: &&Ragged| match part.splits.get(level) {
                Some(splits) => splits.len() - 1,
                None => part.values.shape()[0],
            };
            if level == 0 {
                splits.push(running_sums(parts.iter().map(n_rows))?);
            }
            if level < n_levels {
                let lengths = parts.iter().flat_map(|part| part.splits[level].windows(2));
                splits.push(running_sums(lengths.map(|pair| pair[1] - pair[0]))?);
            }
        }
        while splits.len() < self.ragged_rank {
            splits.push(BookedVec::filled(0, 1)?);
        }
        splits.truncate(self.ragged_rank);
        if parts.is_empty() {
            return Ok((splits, Tensor::zeros(self.dtype, Shape::of(&[0]))?));
        }
        let views = BookedVec::collect(parts.iter().map(|part| part.values.view()))?;
        Ok((splits, concat_rows(&views)?))
    }
}

fn running_sums(lengths: impl Iterator<Item = usize>) -> Result<BookedVec<usize>> {
    let mut sums = BookedVec::filled(0, 1)?;
    let mut total = 0;
    for length in lengths {
        total += length;
        sums.push(total)?;
    }
    Ok(sums)
}
