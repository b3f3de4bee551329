//! The outputs of the ops that parse `SequenceExample`s.

use super::column::{Column, Padding};
use super::sequence::Part;
use crate::prelude::*;

/// Makes outputs of what was parsed, in the order of the second version; the first has no ragged
/// features, and the one of a single example has no lengths of lists.
pub(super) struct Writer<'c> {
    pub(super) context: &'c Part,
    pub(super) lists: &'c Part,
    pub(super) has_lengths: bool,
    /// The number of examples; none if there is one without a batch dimension.
    pub(super) n_examples: Option<usize>,
}

/// Columns by their number, all of the context or all of lists.
struct SequenceColumns<F> {
    column: F,
    is_list: bool,
}

/// The dense output of a list of features, and the output for its lengths, if there is one.
#[derive(Clone, Copy)]
struct DenseList<'a> {
    dtype: DType,
    shape: &'a Shape,
    output: usize,
    lengths: Option<usize>,
}

impl Writer<'_> {
    /// Returns the specs of the outputs, given the batch dimension; `None` if not even its being
    /// there is known.
    pub(super) fn specs(&self, batch: Option<&[Dim]>) -> Vec<Spec> {
        let any = [Dim::Unknown];
        let dims = batch.unwrap_or(&any);
        let mut specs = part_specs(self.context, dims, &[]);
        let splits = dims.iter().map(|n| n.plus(&Dim::Known(1)));
        let context_splits = self.context.ragged.iter().map(|(_, t)| Spec::new(*t, splits.clone()));
        specs.extend(self.context.ragged.iter().map(|(t, _)| Spec::new(*t, [Dim::Unknown])));
        specs.extend(context_splits);
        specs.extend(part_specs(self.lists, dims, &[Dim::Unknown]));
        if self.has_lengths {
            let lengths = self.lists.dense.iter();
            specs.extend(lengths.map(|_| Spec::new(DType::I64, dims.iter().cloned())));
        }
        specs.extend(self.lists.ragged.iter().map(|(t, _)| Spec::new(*t, [Dim::Unknown])));
        specs.extend(self.lists.ragged.iter().map(|(_, t)| Spec::new(*t, splits.clone())));
        specs.extend(self.lists.ragged.iter().map(|(_, t)| Spec::new(*t, [Dim::Unknown])));
        if batch.is_none() {
            return specs.iter().map(|spec| Spec::unknown(spec.dtype)).collect();
        }
        specs
    }

    /// Makes all outputs of what `column` gives: first the context's features, then the lists.
    pub(super) fn write<'c, 'f>(
        &self,
        ctx: &mut Ctx<'c>,
        column: impl Fn(&Ctx<'c>, usize) -> Column<'f>,
    ) -> Result<()> {
        let mut next = 0;
        let n_ragged = self.context.ragged.len();
        let columns = SequenceColumns { column: &column, is_list: false };
        let first = self.write_part(ctx, self.context, columns, &mut next)?;
        for (i, (_, splits)) in self.context.ragged.iter().enumerate() {
            let column = column(ctx, first + i);
            column.write_flat(ctx, next + i)?;
            self.write_outer_splits(ctx, &column, next + n_ragged + i, *splits)?;
        }
        next += 2 * n_ragged;
        let n_ragged = self.lists.ragged.len();
        let n_context = self.context.len();
        let list = |ctx: &Ctx<'c>, i| column(ctx, n_context + i);
        let columns = SequenceColumns { column: &list, is_list: true };
        let first = self.write_part(ctx, self.lists, columns, &mut next)?;
        for (i, (_, splits)) in self.lists.ragged.iter().enumerate() {
            let column = list(ctx, first + i);
            column.write_flat(ctx, next + i)?;
            self.write_outer_splits(ctx, &column, next + n_ragged + i, *splits)?;
            column.write_inner_splits(ctx, next + 2 * n_ragged + i, *splits)?;
        }
        Ok(())
    }

    /// Makes the sparse and dense outputs of a part, and counts their columns.
    fn write_part<'c, 'f>(
        &self,
        ctx: &mut Ctx<'c>,
        part: &Part,
        columns: SequenceColumns<impl Fn(&Ctx<'c>, usize) -> Column<'f>>,
        next: &mut usize,
    ) -> Result<usize> {
        let SequenceColumns { column, is_list } = columns;
        let (n_sparse, n_dense) = (part.sparse.len(), part.dense.len());
        for i in 0..n_sparse {
            let outputs = [0, 1, 2].map(|n| *next + n * n_sparse + i);
            column(ctx, i).write_sparse(ctx, outputs, self.n_examples)?;
        }
        *next += 3 * n_sparse;
        for (d, (dtype, shape)) in part.dense.iter().enumerate() {
            let column = column(ctx, n_sparse + d);
            if is_list {
                let lengths = self.has_lengths.then_some(*next + n_dense + d);
                let list = DenseList { dtype: *dtype, shape, output: *next + d, lengths };
                self.write_dense_list(ctx, &column, list)?;
            } else {
                column.write(ctx, *next + d, &self.batched(shape.to_i64())?, None)?;
            }
        }
        *next += n_dense * if is_list && self.has_lengths { 2 } else { 1 };
        Ok(n_sparse + n_dense)
    }

    fn write_dense_list(
        &self,
        ctx: &mut Ctx<'_>,
        column: &Column<'_>,
        list: DenseList<'_>,
    ) -> Result<()> {
        let DenseList { dtype, shape, output, lengths } = list;
        let n_rows = column.totals.n_rows_max;
        let padded = self.batched([n_rows as i64].into_iter().chain(shape.to_i64()))?;
        super::limit(dtype, &padded)?;
        let padding = Padding { width: n_rows * shape.n_elements(), element: None };
        column.write(ctx, output, &padded, Some(padding))?;
        let Some(lengths) = lengths else { return Ok(()) };
        column.write_lengths(ctx, lengths, &self.batched([])?)
    }

    /// Row splits over the examples; a single example has none, but a scalar in their place.
    fn write_outer_splits(
        &self,
        ctx: &mut Ctx<'_>,
        column: &Column<'_>,
        output: usize,
        dtype: DType,
    ) -> Result<()> {
        if self.n_examples.is_some() {
            return column.write_splits(ctx, output, dtype);
        }
        ctx.output(output, dtype, &Shape::scalar())?.bytes().fill(0);
        Ok(())
    }

    fn batched(&self, dims: impl IntoIterator<Item = i64>) -> Result<Shape> {
        let batch = self.n_examples.map(|n| n as i64);
        Ok(Shape::checked(batch.into_iter().chain(dims))?)
    }
}

/// The specs of a part's sparse and dense outputs.
fn part_specs(part: &Part, batch: &[Dim], rows: &[Dim]) -> Vec<Spec> {
    let rank = Dim::of(batch.len() + rows.len() + 1);
    let mut specs = Vec::new();
    specs.extend(part.sparse.iter().map(|_| Spec::new(DType::I64, [Dim::Unknown, rank.clone()])));
    specs.extend(part.sparse.iter().map(|dtype| Spec::new(*dtype, [Dim::Unknown])));
    specs.extend(part.sparse.iter().map(|_| Spec::new(DType::I64, [rank.clone()])));
    specs.extend(part.dense.iter().map(|(dtype, shape)| {
        let inner = shape.iter().map(|dim| Dim::of(*dim));
        Spec::new(*dtype, batch.iter().chain(rows).cloned().chain(inner))
    }));
    specs
}
