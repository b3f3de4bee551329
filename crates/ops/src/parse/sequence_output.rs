//! The outputs of the ops that parse `SequenceExample`s.

use super::rows::Rows;
use super::sequence::Part;
use super::values::for_rows;
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

impl Writer<'_> {
    /// What is known of the outputs, given the batch dimension; `None` if not even its being there.
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

    /// Makes all outputs.
    pub(super) fn write(
        &self,
        ctx: &mut Ctx<'_>,
        context: Vec<Rows>,
        lists: Vec<Rows>,
    ) -> Result<()> {
        let mut next = 0;
        let n_ragged = self.context.ragged.len();
        let ragged = self.write_part(ctx, self.context, context, (false, &mut next))?;
        for (i, (rows, (_, splits))) in ragged.into_iter().zip(&self.context.ragged).enumerate() {
            let splits = self.outer_splits(*splits, &rows.ends)?;
            let n_values = rows.values.len();
            rows.values.write(ctx, next + i, Shape::of(&[n_values]))?;
            ctx.set_output(next + n_ragged + i, splits)?;
        }
        next += 2 * n_ragged;
        let n_ragged = self.lists.ragged.len();
        let ragged = self.write_part(ctx, self.lists, lists, (true, &mut next))?;
        for (i, (rows, (_, splits))) in ragged.into_iter().zip(&self.lists.ragged).enumerate() {
            let outer = self.outer_splits(*splits, &rows.example_ends)?;
            let inner = super::splits(*splits, true, &rows.ends)?;
            let n_values = rows.values.len();
            rows.values.write(ctx, next + i, Shape::of(&[n_values]))?;
            ctx.set_output(next + n_ragged + i, outer)?;
            ctx.set_output(next + 2 * n_ragged + i, inner)?;
        }
        Ok(())
    }

    /// Makes the sparse and dense outputs of a part, and gives back the ragged rows.
    fn write_part(
        &self,
        ctx: &mut Ctx<'_>,
        part: &Part,
        rows: Vec<Rows>,
        (is_list, next): (bool, &mut usize),
    ) -> Result<Vec<Rows>> {
        let n_sparse = part.sparse.len();
        let mut rows = rows.into_iter();
        for (i, rows) in rows.by_ref().take(n_sparse).enumerate() {
            let outputs = [0, 1, 2].map(|n| *next + n * n_sparse + i);
            self.write_sparse(ctx, rows, is_list, outputs)?;
        }
        *next += 3 * n_sparse;
        let n_dense = part.dense.len();
        for (d, (rows, (_, shape))) in rows.by_ref().take(n_dense).zip(&part.dense).enumerate() {
            if is_list {
                let lengths = self.has_lengths.then_some(*next + n_dense + d);
                self.write_dense_list(ctx, &rows, shape, (*next + d, lengths))?;
            } else {
                let shape = self.batched(shape.to_i64())?;
                rows.values.write(ctx, *next + d, shape)?;
            }
        }
        *next += n_dense * if is_list && self.has_lengths { 2 } else { 1 };
        Ok(rows.collect())
    }

    fn write_sparse(
        &self,
        ctx: &mut Ctx<'_>,
        rows: Rows,
        is_list: bool,
        outputs: [usize; 3],
    ) -> Result<()> {
        let mut indices: Vec<i64> = Vec::new();
        let (mut n_rows_max, mut width_max) = (0, 0);
        let mut example = 0;
        let mut start = 0;
        for_rows(&rows.example_ends, |first, last| {
            n_rows_max = n_rows_max.max(last - first);
            for row in first..last {
                let len = rows.ends[row] - start;
                start = rows.ends[row];
                width_max = width_max.max(len);
                for i in 0..len {
                    indices.extend(self.n_examples.map(|_| example));
                    indices.extend(is_list.then_some((row - first) as i64));
                    indices.push(i as i64);
                }
            }
            example += 1;
        });
        let mut dims: Vec<i64> = self.n_examples.map(|n| n as i64).into_iter().collect();
        dims.extend(is_list.then_some(n_rows_max as i64));
        dims.push(width_max as i64);
        let n_values = rows.values.len();
        let shape = Shape::of(&[n_values, dims.len()]);
        ctx.set_output(outputs[0], Tensor::from_slice(shape, &indices)?)?;
        rows.values.write(ctx, outputs[1], Shape::of(&[n_values]))?;
        ctx.set_output(outputs[2], Tensor::vector(&dims)?)
    }

    fn write_dense_list(
        &self,
        ctx: &mut Ctx<'_>,
        rows: &Rows,
        shape: &Shape,
        (output, lengths): (usize, Option<usize>),
    ) -> Result<()> {
        let mut counts: Vec<i64> = Vec::new();
        for_rows(&rows.example_ends, |first, last| counts.push((last - first) as i64));
        let n_rows = counts.iter().copied().max().unwrap_or(0);
        let padded = self.batched([n_rows].into_iter().chain(shape.to_i64()))?;
        super::limit(rows.values.dtype(), &padded)?;
        let size = shape.n_elements();
        let ends: Vec<usize> = rows.example_ends.iter().map(|end| end * size).collect();
        let zero = Tensor::zeros(rows.values.dtype(), Shape::scalar())?;
        let width = n_rows as usize * size;
        rows.values.padded(&ends, width, zero.view()).write(ctx, output, padded)?;
        let Some(lengths) = lengths else { return Ok(()) };
        let shape = self.batched([])?;
        ctx.set_output(lengths, Tensor::from_slice(shape, &counts)?)
    }

    /// Row splits over the examples; a single example has none, but a scalar in their place.
    fn outer_splits(&self, dtype: DType, ends: &[usize]) -> Result<Tensor> {
        match self.n_examples {
            Some(_) => super::splits(dtype, true, ends),
            None => Ok(Tensor::zeros(dtype, Shape::scalar())?),
        }
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
