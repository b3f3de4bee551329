//! `GatherV2` and `Gather`: slices of a tensor picked by index along an axis.

use super::tables::Nothing;
use crate::prelude::*;

pub(super) const GATHER_V2: OpDef = OpDef::pure("GatherV2", RowRule::GatherV2, |attrs| {
    Ok(Box::new(Gather2 { batch_dims: attrs.int_or("batch_dims", 0)?, has_axis: true }))
});
pub(super) const GATHER: OpDef = OpDef::pure("Gather", RowRule::Gather, |_| {
    Ok(Box::new(Gather2 { batch_dims: 0, has_axis: false }))
});

/// The bytes that one task copies.
const PIECE_BYTES: usize = 128 << 10;

struct Gather2 {
    batch_dims: i64,
    /// `true` if the third input is the axis; the axis is 0 else.
    has_axis: bool,
}

impl Op for Gather2 {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let (params, indices, axis) = match inputs {
            [params, indices] if !self.has_axis => (params, indices, Some(0)),
            [params, indices, axis] if self.has_axis => {
                axis.require_rank(0)?;
                (params, indices, known_int(axis))
            }
            _ => return invalid!("got {} inputs", inputs.len()),
        };
        Ok(vec![infer_gather(params, indices, axis, self.batch_dims)?])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (params, indices) = (ctx.input(0), ctx.input(1));
        let axis = if self.has_axis { int(&ctx.input(2))? } else { 0 };
        gather(ctx, params, indices, (axis, self.batch_dims))
    }
}

/// The spec of what is gathered along `axis`, if that is known.
pub(crate) fn infer_gather(
    params: &Spec,
    indices: &Spec,
    axis: Option<i64>,
    batch_dims: i64,
) -> Result<Spec> {
    params.require_rank_at_least(1)?;
    let Some(index_dims) = indices.dims() else { return Ok(Spec::unknown(params.dtype)) };
    let n_batch = batch_rank(batch_dims, index_dims.len())?;
    let Some(dims) = params.dims() else { return Ok(Spec::unknown(params.dtype)) };
    let Some(axis) = axis else {
        let rank = (dims.len() - 1) + (index_dims.len() - n_batch);
        return Ok(spec_of_rank(params.dtype, Some(rank)));
    };
    let axis = gather_axis(axis, dims.len(), n_batch)?;
    let mut output = Dims::new();
    for (a, b) in dims[..n_batch].iter().zip(&index_dims[..n_batch]) {
        output.push(merge_dim(a, b)?);
    }
    output.extend(dims[n_batch..axis].iter().cloned());
    output.extend(index_dims[n_batch..].iter().cloned());
    output.extend(dims[axis + 1..].iter().cloned());
    let picked = || {
        let sizes = sizes_of(params)?;
        let pick = |i: &i64| usize::try_from(*i).ok().and_then(|i| sizes.get(i)).cloned();
        known_ints(indices)?.iter().map(pick).collect::<Option<Vec<Dim>>>()
    };
    Ok(with_sizes(spec_of(params.dtype, Some(output)), picked()))
}

/// Makes output 0: what `indices` pick of `params`.
pub(crate) fn gather(
    ctx: &mut Ctx<'_>,
    params: View<'_>,
    indices: View<'_>,
    (axis, batch_dims): (i64, i64),
) -> Result<()> {
    let (from, picks) = (params.shape(), indices.shape());
    if from.rank() == 0 {
        return invalid!("params must be at least 1 dimensional");
    }
    let n_batch = batch_rank(batch_dims, picks.rank())?;
    let axis = gather_axis(axis, from.rank(), n_batch)?;
    if from[..n_batch] != picks[..n_batch] {
        return invalid!("params {from} and indices {picks} differ in the first {n_batch} dims");
    }
    let dims = from[..axis].iter().chain(&picks[n_batch..]).chain(&from[axis + 1..]);
    let shape = Shape::checked(dims.map(|dim| *dim as i64))?;
    // TensorFlow does not look at indices that pick nothing.
    if shape.n_elements() == 0 && indices.n_elements() > 0 {
        return rearrange(ctx, 0, &[params], &shape, &Nothing);
    }
    let picked = Picked {
        n_batch: from[..n_batch].iter().product(),
        n_outer: from[n_batch..axis].iter().product(),
        n_axis: from[axis],
        n_inner: from[axis + 1..].iter().product(),
        indices: Indices::checked(&indices, from[axis])?,
        pool: ctx.env().pool,
    };
    rearrange(ctx, 0, &[params], &shape, &picked)
}

/// Indices of any integer dtype.
#[derive(Clone, Copy)]
enum Indices<'a> {
    I16(&'a [i16]),
    I32(&'a [i32]),
    I64(&'a [i64]),
}

impl<'a> Indices<'a> {
    /// The elements of a tensor, each below `limit`. The text is TensorFlow's (`gather_op.cc`).
    fn checked(indices: &View<'a>, limit: usize) -> Result<Self> {
        let (checked, bad) = match indices.dtype() {
            DType::I32 => (Self::I32(indices.as_slice()), bad::<i32>(indices.as_slice(), limit)),
            DType::I64 => (Self::I64(indices.as_slice()), bad::<i64>(indices.as_slice(), limit)),
            DType::I16 => (Self::I16(indices.as_slice()), bad::<i16>(indices.as_slice(), limit)),
            other => return invalid!("indices must be int16, int32 or int64, not {other}"),
        };
        match bad {
            None => Ok(checked),
            Some((at, index)) => {
                let place = place_of(at, indices.shape());
                invalid!("indices{place} = {index} is not in [0, {limit})")
            }
        }
    }

    fn len(self) -> usize {
        match self {
            Self::I16(indices) => indices.len(),
            Self::I32(indices) => indices.len(),
            Self::I64(indices) => indices.len(),
        }
    }

    /// Index number `number`; it was checked.
    fn at(self, number: usize) -> usize {
        match self {
            Self::I16(indices) => indices[number] as usize,
            Self::I32(indices) => indices[number] as usize,
            Self::I64(indices) => indices[number] as usize,
        }
    }
}

/// The first index that is not in `0..limit`, and its place.
fn bad<I: Copy + Into<i64>>(indices: &[I], limit: usize) -> Option<(usize, i64)> {
    let mut all = indices.iter().map(|index| (*index).into()).enumerate();
    all.find(|(_, index)| usize::try_from(*index).map_or(true, |index| index >= limit))
}

/// An element's place as TensorFlow writes it: `[1,2]`, and nothing for a scalar.
pub(crate) fn place_of(at: usize, shape: &Shape) -> String {
    if shape.rank() == 0 {
        return String::new();
    }
    let place: Shape = shape
        .strides()
        .iter()
        .zip(shape.iter())
        .map(|(stride, size)| (at / stride) % size.max(&1))
        .collect();
    place.to_string()
}

fn batch_rank(batch_dims: i64, index_rank: usize) -> Result<usize> {
    let from_front = if batch_dims < 0 { batch_dims + index_rank as i64 } else { batch_dims };
    match usize::try_from(from_front) {
        Ok(n_batch) if n_batch <= index_rank => Ok(n_batch),
        _ => invalid!(
            "Expected batch_dims in the range [-{index_rank}, {index_rank}], but got {batch_dims}"
        ),
    }
}

fn gather_axis(axis: i64, rank: usize, n_batch: usize) -> Result<usize> {
    let Ok(at) = normalise_axis(axis, rank) else {
        return invalid!("Expected axis in the range [-{rank}, {rank}), but got {axis}");
    };
    if at < n_batch {
        return invalid!("batch_dims ({n_batch}) must be less than or equal to axis ({at}).");
    }
    Ok(at)
}

/// For each batch and outer row, the runs of `n_inner` elements that the batch's indices pick.
struct Picked<'a> {
    n_batch: usize,
    n_outer: usize,
    n_axis: usize,
    n_inner: usize,
    indices: Indices<'a>,
    pool: &'a pool::Pool,
}

impl Move for Picked<'_> {
    fn apply<T: bytemuck::Pod + Send + Sync>(
        &self,
        inputs: &[&[T]],
        output: &mut [T],
    ) -> Result<()> {
        if output.is_empty() {
            return Ok(());
        }
        let n_picks = self.indices.len() / self.n_batch;
        let rows = output.chunks_exact_mut(n_picks * self.n_inner);
        let from = inputs[0].chunks_exact(self.n_axis * self.n_inner);
        for (row, (to, from)) in rows.zip(from).enumerate() {
            pace(16)?;
            let batch = row / self.n_outer;
            self.pick(from, batch * n_picks, to);
        }
        Ok(())
    }
}

impl Picked<'_> {
    /// Picks slices by the indices from number `first` on.
    fn pick<T: Copy + Send + Sync>(&self, from: &[T], first: usize, to: &mut [T]) {
        if self.n_inner == 1 {
            to.iter_mut().enumerate().for_each(|(i, x)| *x = from[self.indices.at(first + i)]);
            return;
        }
        let per_task = (PIECE_BYTES / size_of::<T>()).div_ceil(self.n_inner);
        in_pieces(self.pool, to, per_task * self.n_inner, |at, to| {
            let runs = to.chunks_exact_mut(self.n_inner);
            for (i, run) in runs.enumerate() {
                let pick = self.indices.at(first + at / self.n_inner + i);
                run.copy_from_slice(&from[pick * self.n_inner..(pick + 1) * self.n_inner]);
            }
        });
    }
}
