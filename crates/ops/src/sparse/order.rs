//! Ops that move the entries of sparse tensors: `SparseReorder`, `SparseConcat`, `SparseSlice` and
//! `SparseSplit`.

use super::coo::{self, Coo};
use super::gather::{gather, write_gathered};
use crate::order::sort_by;
use crate::prelude::*;

pub(super) const REORDER: OpDef =
    OpDef::pure("SparseReorder", RowRule::Mixed, |_| Ok(Box::new(Reorder)));
pub(super) const CONCAT: OpDef = OpDef::pure("SparseConcat", RowRule::Mixed, |attrs| {
    Ok(Box::new(Concat { axis: attrs.int("concat_dim")?, n: attrs.count("N")? }))
});
pub(super) const SLICE: OpDef =
    OpDef::pure("SparseSlice", RowRule::Mixed, |_| Ok(Box::new(OrderSlice)));
pub(super) const SPLIT: OpDef =
    OpDef::pure("SparseSplit", RowRule::Mixed, |attrs| match attrs.count("num_split")? {
        0 => invalid!("num_split must be at least 1"),
        n => Ok(Box::new(Split { n })),
    });

/// Sorts entries into row-major order; equal indices stay in order.
struct Reorder;

impl Op for Reorder {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [indices, values, shape] = arity(inputs)?;
        coo::require(indices, values, shape)?;
        Ok(vec![indices.with_dtype(DType::I64), values.with_dtype(values.dtype)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let sparse = Coo::read(ctx, 0)?;
        let mut order = ctx.scratch().part(sparse.len())?;
        order.iter_mut().enumerate().for_each(|(i, entry)| *entry = i);
        sort_by(&mut order, &mut |a, b| sparse.entry(*a).cmp(sparse.entry(*b)).then(a.cmp(b)))?;
        let shape = Shape::of(&[sparse.len(), sparse.rank()]);
        let mut indices = ctx.output(0, DType::I64, &shape)?;
        let indices = indices.as_mut_slice::<i64>().chunks_exact_mut(sparse.rank().max(1));
        for (to, entry) in indices.zip(order.iter()) {
            pace(8)?;
            to.copy_from_slice(sparse.entry(*entry));
        }
        write_gathered(ctx, 1, sparse.values, &order)
    }

    fn scratch_bytes(&self, inputs: &[Spec], _: &[Spec]) -> usize {
        Scratch::bytes_for::<usize>(&inputs[1])
    }
}

struct Concat {
    axis: i64,
    n: usize,
}

impl Op for Concat {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        if inputs.len() != 3 * self.n || self.n == 0 {
            return invalid!("expected {} inputs but got {}", 3 * self.n, inputs.len());
        }
        for i in 0..self.n {
            let (values, shape) = (&inputs[self.n + i], &inputs[2 * self.n + i]);
            coo::require(&inputs[i], values, shape)?;
            values.require_dtype(inputs[self.n].dtype)?;
        }
        let counts = (0..self.n).map(|i| coo::n_entries_dim(&inputs[i], &inputs[self.n + i]));
        let count = counts.fold(Dim::Known(0), |sum, n| sum.plus(&n));
        let rank = coo::rank_dim(&inputs[0], &inputs[2 * self.n]);
        Ok(vec![
            Spec::new(DType::I64, [count.clone(), rank.clone()]),
            Spec::new(inputs[self.n].dtype, [count]),
            Spec::new(DType::I64, [rank]),
        ])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let first = self.part(ctx, 0)?;
        let axis = normalise_axis(self.axis, first.rank())?;
        let mut dims = Ints::from_slice(first.dims);
        dims[axis] = 0;
        let mut scratch = ctx.scratch();
        // How far each part is moved along the axis.
        let mut offsets = scratch.part(self.n)?;
        let mut n_entries = 0;
        for (p, offset) in offsets.iter_mut().enumerate() {
            let part = self.part(ctx, p)?;
            check_part(&part, &dims, axis, p)?;
            *offset = dims[axis];
            let Some(size) = dims[axis].checked_add(part.dims[axis]) else {
                return invalid!("the sizes along dimension {axis} overflow");
            };
            dims[axis] = size;
            n_entries += part.len();
        }
        let mut entries = scratch.part(n_entries)?;
        let mut rest = &mut entries[..];
        for p in 0..self.n {
            let (own, after) = rest.split_at_mut(self.part(ctx, p)?.len());
            own.iter_mut().enumerate().for_each(|(i, entry)| *entry = [p, i]);
            rest = after;
        }
        let rank = dims.len();
        let at = |inputs: &[View<'_>], [p, i]: OrderEntry, d: usize| {
            let index = inputs[p].as_slice::<i64>()[i * rank + d];
            if d == axis { index.wrapping_add(offsets[p]) } else { index }
        };
        let inputs = ctx.inputs();
        sort_by(&mut entries, &mut |a: &OrderEntry, b: &OrderEntry| {
            let index = |entry: OrderEntry| (0..rank).map(move |d| at(inputs, entry, d));
            index(*a).cmp(index(*b)).then(a.cmp(b))
        })?;
        let (inputs, mut out) =
            ctx.inputs_and_output(0, DType::I64, &Shape::of(&[n_entries, rank]))?;
        let out = out.as_mut_slice::<i64>().iter_mut().enumerate();
        out.for_each(|(i, out)| *out = at(inputs, entries[i / rank], i % rank));
        self.write_values(ctx, &entries)?;
        let mut shape = ctx.output(2, DType::I64, &Shape::of(&[rank]))?;
        shape.as_mut_slice().copy_from_slice(&dims);
        Ok(())
    }

    fn scratch_bytes(&self, _: &[Spec], outputs: &[Spec]) -> usize {
        Scratch::bytes_of::<i64>(self.n) + Scratch::bytes_for::<OrderEntry>(&outputs[1])
    }
}

/// An entry among those of several parts: the number of its part, and its own there.
type OrderEntry = [usize; 2];

impl Concat {
    /// Part number `i`.
    fn part<'a>(&self, ctx: &Ctx<'a>, i: usize) -> Result<Coo<'a>> {
        Coo::new(ctx.input(i), ctx.input(self.n + i), ctx.input(2 * self.n + i))
    }

    /// Makes output 1 of the values of entries.
    fn write_values(&self, ctx: &mut Ctx<'_>, entries: &[OrderEntry]) -> Result<()> {
        let (dtype, shape) = (ctx.input(self.n).dtype(), Shape::of(&[entries.len()]));
        if !dtype.is_plain() {
            let values = entries.iter().map(|[p, i]| ctx.input(self.n + p).strings().get(*i));
            let values = Strings::copied(values)?;
            return ctx.set_output(1, Tensor::from_strings(shape, values)?);
        }
        let (inputs, mut out) = ctx.inputs_and_output(1, dtype, &shape)?;
        for_width!(dtype, T => {
            for (out, [p, i]) in out.as_wide_mut::<T>().iter_mut().zip(entries) {
                pace(4)?;
                *out = inputs[self.n + p].as_wide::<T>()[*i];
            }
        });
        Ok(())
    }
}

fn check_part(part: &Coo<'_>, dims: &[i64], axis: usize, p: usize) -> Result<()> {
    if part.rank() != dims.len() {
        return invalid!(
            "Ranks of all input tensors must match: expected {} but got {} at position {p}",
            dims.len(),
            part.rank()
        );
    }
    for (d, (expected, got)) in dims.iter().zip(part.dims).enumerate() {
        if d != axis && expected != got {
            return invalid!(
                "Input shapes must match: expected {expected} for dimension {d} but got \
                 {got} at position {p}"
            );
        }
    }
    Ok(())
}

struct OrderSlice;

impl Op for OrderSlice {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [indices, values, shape, start, size] = arity(inputs)?;
        coo::require(indices, values, shape)?;
        start.require_dtype(DType::I64)?;
        start.require_rank(1)?;
        size.require_dtype(DType::I64)?;
        size.require_rank(1)?;
        Ok(part_specs(values.dtype, &coo::rank_dim(indices, shape)))
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let sparse = Coo::read(ctx, 0)?;
        let (start, size) = (ctx.input(3), ctx.input(4));
        let rank = sparse.rank();
        if start.shape().dims() != [rank] || size.shape().dims() != [rank] {
            return invalid!(
                "Expected start and size to be vectors of length {rank}, but they have \
                 shapes {} and {}",
                start.shape(),
                size.shape()
            );
        }
        let (start, size): (&[i64], &[i64]) = (start.as_slice(), size.as_slice());
        if let Some(negative) = size.iter().chain(start).chain(sparse.dims).find(|n| **n < 0) {
            return invalid!("shape, start and size must not be negative, but have {negative}");
        }
        let part = OrderPart::cut(&sparse, |axis| (start[axis], size[axis]))?;
        part.write(ctx, &sparse, [0, 1, 2])
    }
}

struct Split {
    n: usize,
}

impl Op for Split {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [axis, indices, values, shape] = arity(inputs)?;
        axis.require_dtype(DType::I64)?;
        axis.require_rank(0)?;
        coo::require(indices, values, shape)?;
        let specs = part_specs(values.dtype, &coo::rank_dim(indices, shape));
        Ok(specs.into_iter().flat_map(|spec| vec![spec; self.n]).collect())
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let sparse = Coo::read(ctx, 1)?;
        let axes: &[i64] = ctx.input(0).as_slice();
        let &[axis] = axes else {
            return invalid!("axis should be a scalar, but has {} elements", axes.len());
        };
        let axis = normalise_axis(axis, sparse.rank())?;
        sparse.check_inside()?;
        let (size, n) = (sparse.dims[axis], self.n as i64);
        if size < n {
            return invalid!(
                "Number of ways to split should be less than or equal to the size of the \
                 dimension: {n} is above {size}"
            );
        }
        // The first parts take one more each, until nothing is left over.
        let (each, rest) = (size / n, size % n);
        for i in 0..self.n {
            let before = i as i64 * each + rest.min(i as i64);
            let len = each + i64::from((i as i64) < rest);
            let part = OrderPart::cut(&sparse, |d| {
                if d == axis { (before, len) } else { (0, sparse.dims[d]) }
            })?;
            part.write(ctx, &sparse, [i, self.n + i, 2 * self.n + i])?;
        }
        Ok(())
    }
}

/// A rectangular part of a sparse tensor.
struct OrderPart {
    indices: BookedVec<i64>,
    sources: BookedVec<usize>,
    dims: Vec<i64>,
}

impl OrderPart {
    /// The part that starts and extends along each axis as `range` says.
    fn cut(sparse: &Coo<'_>, range: impl Fn(usize) -> (i64, i64)) -> Result<Self> {
        let ranges: Vec<(i64, i64)> = (0..sparse.rank()).map(range).collect();
        let (indices, sources) = (BookedVec::new(), BookedVec::new());
        let mut part = Self { indices, sources, dims: Vec::new() };
        for (i, index) in sparse.entries().enumerate() {
            pace(8)?;
            let is_inside = |(at, (start, len)): (&i64, &(i64, i64))| {
                *at >= *start && at.saturating_sub(*start) < *len
            };
            if index.iter().zip(&ranges).all(is_inside) {
                let moved = index.iter().zip(&ranges).map(|(at, (start, _))| at - start);
                part.indices.extend(moved)?;
                part.sources.push(i)?;
            }
        }
        let sizes = sparse.dims.iter().zip(&ranges);
        part.dims =
            sizes.map(|(dim, (start, len))| dim.saturating_sub(*start).min(*len).max(0)).collect();
        Ok(part)
    }

    fn write(self, ctx: &mut Ctx<'_>, sparse: &Coo<'_>, outputs: [usize; 3]) -> Result<()> {
        let shape = Shape::of(&[self.sources.len(), sparse.rank()]);
        ctx.set_output(outputs[0], Tensor::from_slice(shape, &self.indices)?)?;
        ctx.set_output(outputs[1], gather(sparse.values, &self.sources)?)?;
        ctx.set_output(outputs[2], Tensor::vector(&self.dims)?)
    }
}

fn part_specs(dtype: DType, rank: &Dim) -> Vec<Spec> {
    vec![
        Spec::new(DType::I64, [Dim::Unknown, rank.clone()]),
        Spec::new(dtype, [Dim::Unknown]),
        Spec::new(DType::I64, [rank.clone()]),
    ]
}
