//! `SparseFillEmptyRows`: an entry with the default value in each row that has none.
//!
//! Follows `sparse_fill_empty_rows_op.cc` of TensorFlow.

use super::coo::{self, Coo};
use super::gather::gather_or_default;
use crate::prelude::*;

pub(super) const DEF: OpDef =
    OpDef::pure("SparseFillEmptyRows", RowRule::SparseFillEmptyRows, |_| {
        Ok(Box::new(FillEmptyRows))
    });

struct FillEmptyRows;

impl Op for FillEmptyRows {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [indices, values, shape, default] = arity(inputs)?;
        coo::require(indices, values, shape)?;
        default.require_rank(0)?;
        default.require_dtype(values.dtype)?;
        let n_rows = shape.sizes().and_then(|sizes| sizes.first().cloned()).unwrap_or(Dim::Unknown);
        let rank = coo::rank_dim(indices, shape);
        let n_entries = coo::n_entries_dim(indices, values);
        Ok(vec![
            Spec::new(DType::I64, [Dim::Unknown, rank]),
            Spec::new(values.dtype, [Dim::Unknown]),
            Spec::new(DType::Bool, [n_rows]),
            Spec::new(DType::I64, [n_entries]),
        ])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let sparse = Coo::read(ctx, 0)?;
        let default = ctx.input(3);
        if default.shape().rank() != 0 {
            return invalid!("default_value must be a scalar, but is {}", default.shape());
        }
        let Some(n_rows) = sparse.dims.first().copied() else {
            return invalid!("Dense shape cannot be empty");
        };
        let n_rows = coo::checked_rows(n_rows)?;
        if n_rows == 0 && sparse.len() > 0 {
            return invalid!(
                "Received SparseTensor with dense_shape[0] = 0 but indices.shape[0] = {}",
                sparse.len()
            );
        }
        let filled = fill(&sparse, n_rows)?;
        let n_filled = filled.sources.len();
        ctx.set_output(
            0,
            Tensor::from_slice(Shape::of(&[n_filled, sparse.rank()]), &filled.indices)?,
        )?;
        let values = gather_or_default(sparse.values, default, &filled.sources)?;
        ctx.set_output(1, values)?;
        let empty = ctx.output(2, DType::Bool, &Shape::of(&[n_rows]))?.into_mut_slice::<u8>();
        empty.copy_from_slice(&filled.is_empty);
        let map = ctx.output(3, DType::I64, &Shape::of(&[sparse.len()]))?.into_mut_slice::<i64>();
        map.copy_from_slice(&filled.places);
        Ok(())
    }
}

struct FillEmptyRowsFilled {
    indices: BookedVec<i64>,
    /// The entry that each new entry is, or none for one that was added.
    sources: BookedVec<Option<usize>>,
    is_empty: BookedVec<u8>,
    /// The new place of each entry.
    places: BookedVec<i64>,
}

fn fill(sparse: &Coo<'_>, n_rows: usize) -> Result<FillEmptyRowsFilled> {
    let mut counts = BookedVec::filled(0usize, n_rows)?;
    for (i, index) in sparse.entries().enumerate() {
        pace(4)?;
        match usize::try_from(index[0]) {
            Ok(row) if row < n_rows => counts[row] += 1,
            Ok(row) => return invalid!("indices({i}, 0) is invalid: {row} >= {n_rows}"),
            Err(_) => return invalid!("indices({i}, 0) is invalid: {} < 0", index[0]),
        }
    }
    let is_empty = BookedVec::collect(counts.iter().map(|count| u8::from(*count == 0)))?;
    // Where the next entry of each row goes; rows keep the order of their entries.
    let mut next = counts;
    let mut total = 0;
    for place in next.iter_mut() {
        pace(2)?;
        let count = (*place).max(1);
        *place = total;
        total += count;
    }
    let rank = sparse.rank();
    let n_indices = coo::checked_shape(DType::I64, [total as i64, rank as i64])?.n_elements();
    let mut indices = BookedVec::filled(0i64, n_indices)?;
    let mut sources = BookedVec::filled(None, total)?;
    for (row, place) in next.iter().enumerate().filter(|(row, _)| is_empty[*row] == 1) {
        pace(4)?;
        indices[place * rank] = row as i64;
    }
    let mut places = BookedVec::with_capacity(sparse.len())?;
    for (i, index) in sparse.entries().enumerate() {
        pace(4)?;
        let place = &mut next[index[0] as usize];
        indices[*place * rank..(*place + 1) * rank].copy_from_slice(index);
        sources[*place] = Some(i);
        places.push(*place as i64)?;
        *place += 1;
    }
    Ok(FillEmptyRowsFilled { indices, sources, is_empty, places })
}
