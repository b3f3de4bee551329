//! `SpaceToBatchND`, `BatchToSpaceND` and their forms for two dimensions: blocks of positions as
//! rows of the batch, and back.

use crate::prelude::*;

pub(super) const SPACE_TO_BATCH_ND: OpDef =
    OpDef::pure("SpaceToBatchND", RowRule::SpaceToBatch, |_| {
        Ok(Box::new(Blocks { way: SpaceBatchWay::ToBatch, block: None }))
    });
pub(super) const BATCH_TO_SPACE_ND: OpDef =
    OpDef::pure("BatchToSpaceND", RowRule::BatchToSpace, |_| {
        Ok(Box::new(Blocks { way: SpaceBatchWay::ToSpace, block: None }))
    });
pub(super) const SPACE_TO_BATCH: OpDef = OpDef::pure("SpaceToBatch", RowRule::Mixed, |attrs| {
    Ok(Box::new(Blocks { way: SpaceBatchWay::ToBatch, block: Some(attrs.int("block_size")?) }))
});
pub(super) const BATCH_TO_SPACE: OpDef = OpDef::pure("BatchToSpace", RowRule::Mixed, |attrs| {
    Ok(Box::new(Blocks { way: SpaceBatchWay::ToSpace, block: Some(attrs.int("block_size")?) }))
});

struct Blocks {
    way: SpaceBatchWay,
    /// The size of blocks in both dimensions; the second input has the sizes if there is none.
    block: Option<i64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SpaceBatchWay {
    ToBatch,
    ToSpace,
}

impl Blocks {
    /// The sizes of blocks, and what is padded or cropped, from the inputs behind the first.
    fn sizes(&self, blocks: Option<&[i64]>, ends: &[i64], rank: usize) -> Result<Axes> {
        let two;
        let blocks = match (self.block, blocks) {
            (Some(block), _) => {
                two = [block, block];
                &two[..]
            }
            (None, blocks) => blocks.unwrap_or_default(),
        };
        if ends.len() != blocks.len() * 2 {
            return invalid!("paddings or crops should have shape [{}, 2]", blocks.len());
        }
        if rank < blocks.len() + 1 {
            return invalid!("input rank should be >= {} instead of {rank}", blocks.len() + 1);
        }
        let axis = |(block, ends): (&i64, &[i64])| {
            let positive = usize::try_from(*block).ok().filter(|block| *block > 0);
            match (positive, usize::try_from(ends[0]), usize::try_from(ends[1])) {
                (Some(block), Ok(front), Ok(back)) => Ok(Axis { block, front, back }),
                (None, ..) => invalid!("block_shape values must be positive, got value of {block}"),
                _ => invalid!("paddings or crops cannot be negative, got {ends:?}"),
            }
        };
        blocks.iter().zip(ends.chunks_exact(2)).map(axis).collect()
    }

    /// The shape after.
    fn moved(&self, shape: &Shape, axes: &[Axis]) -> Result<Shape> {
        let mut dims = shape.to_i64();
        let area: Option<usize> = axes.iter().try_fold(1usize, |all, a| all.checked_mul(a.block));
        let Some(area) = area.and_then(|area| i64::try_from(area).ok()) else {
            return invalid!("the blocks are too large");
        };
        for (dim, axis) in dims[1..].iter_mut().zip(axes) {
            let block = axis.block as i64;
            let ends = (axis.front as i64).saturating_add(axis.back as i64);
            *dim = match self.way {
                SpaceBatchWay::ToBatch => {
                    let padded = dim.saturating_add(ends);
                    if padded % block != 0 {
                        // The text is TensorFlow's (`spacetobatch_op.cc`).
                        return invalid!(
                            "padded_shape={padded} is not divisible by block_shape={block}"
                        );
                    }
                    padded / block
                }
                SpaceBatchWay::ToSpace => {
                    let cropped = dim.saturating_mul(block).saturating_sub(ends);
                    if cropped < 0 {
                        return invalid!("cropped_shape={cropped} must be non-negative");
                    }
                    cropped
                }
            };
        }
        dims[0] = match self.way {
            SpaceBatchWay::ToBatch => dims[0].saturating_mul(area),
            SpaceBatchWay::ToSpace if dims[0] % area != 0 => {
                // The text is TensorFlow's (`batchtospace_op.cc`).
                return invalid!(
                    "Input batch dimension ({}) is not divisible by product of block sizes \
                     ({area})",
                    dims[0]
                );
            }
            SpaceBatchWay::ToSpace => dims[0] / area,
        };
        Ok(Shape::checked(dims)?)
    }

    fn infer_dims(&self, dims: &[Dim], axes: &[Axis]) -> Dims {
        let area = axes.iter().fold(Dim::Known(1), |all, axis| all.times(&Dim::of(axis.block)));
        let mut output: Dims = dims.iter().cloned().collect();
        for (dim, axis) in output[1..].iter_mut().zip(axes) {
            let block = Dim::of(axis.block);
            let ends = Dim::of(axis.front).plus(&Dim::of(axis.back));
            *dim = match self.way {
                SpaceBatchWay::ToBatch => dim.plus(&ends).divided_by(&block),
                SpaceBatchWay::ToSpace => dim.times(&block).minus(&ends),
            };
        }
        output[0] = match self.way {
            SpaceBatchWay::ToBatch => output[0].times(&area),
            SpaceBatchWay::ToSpace => output[0].divided_by(&area),
        };
        output
    }
}

impl Op for Blocks {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        arity_at_least(inputs, if self.block.is_some() { 2 } else { 3 })?;
        let (input, ends) = (&inputs[0], &inputs[if self.block.is_some() { 1 } else { 2 }]);
        if self.block.is_some() {
            input.require_rank(4)?;
        }
        ends.require_rank(2)?;
        let blocks = if self.block.is_some() { None } else { known_ints(&inputs[1]) };
        let ends = known_ints(ends);
        let known = self.block.is_some() || blocks.is_some();
        let (Some(dims), Some(ends), true) = (input.dims(), ends, known) else {
            return Ok(vec![spec_of_rank(input.dtype, input.rank())]);
        };
        let axes = self.sizes(blocks.as_deref(), &ends, dims.len())?;
        if let Some(shape) = input.shape() {
            return Ok(vec![Spec::concrete(input.dtype, &self.moved(&shape, &axes)?)]);
        }
        Ok(vec![spec_of(input.dtype, Some(self.infer_dims(dims, &axes)))])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let input = ctx.input(0);
        let last = ctx.n_inputs() - 1;
        let blocks = if self.block.is_some() { None } else { Some(ints(&ctx.input(1))?) };
        let ends = ints(&ctx.input(last))?;
        let axes = self.sizes(blocks.as_deref(), &ends, input.shape().rank())?;
        let shape = self.moved(input.shape(), &axes)?;
        let (space, batch) = match self.way {
            SpaceBatchWay::ToBatch => (input.shape(), &shape),
            SpaceBatchWay::ToSpace => (&shape, input.shape()),
        };
        let how = Positions { way: self.way, axes: &axes, space, batch };
        rearrange(ctx, 0, &[input], &shape, &how)
    }
}

/// The dimensions that are cut into blocks.
type Axes = smallvec::SmallVec<[Axis; 4]>;

/// A dimension that is cut into blocks.
struct Axis {
    block: usize,
    /// The elements that are padded or cropped before and behind.
    front: usize,
    back: usize,
}

/// The positions of one tensor in the other.
struct Positions<'a> {
    way: SpaceBatchWay,
    axes: &'a [Axis],
    /// The shape with the blocks in space.
    space: &'a Shape,
    /// The shape with the blocks in the batch.
    batch: &'a Shape,
}

impl Move for Positions<'_> {
    fn apply<T: bytemuck::Pod + Send + Sync>(
        &self,
        inputs: &[&[T]],
        output: &mut [T],
    ) -> Result<()> {
        let n_axes = self.axes.len();
        let run: usize = self.space[n_axes + 1..].iter().product();
        if self.way == SpaceBatchWay::ToBatch {
            output.fill(T::zeroed());
        }
        if run == 0 || output.is_empty() || inputs[0].is_empty() {
            return Ok(());
        }
        let n_runs = self.batch.n_elements() / run;
        for position in 0..n_runs {
            pace(64)?;
            let Some(other) = self.in_space(position) else { continue };
            let (to, from) = match self.way {
                SpaceBatchWay::ToBatch => (position * run, other * run),
                SpaceBatchWay::ToSpace => (other * run, position * run),
            };
            output[to..to + run].copy_from_slice(&inputs[0][from..from + run]);
        }
        Ok(())
    }
}

impl Positions<'_> {
    /// The position in space of a position in the batched tensor, both counted in runs; `None` if
    /// it is padding or cropped.
    fn in_space(&self, position: usize) -> Option<usize> {
        let n_axes = self.axes.len();
        let mut rest = position;
        let mut at: smallvec::SmallVec<[usize; 4]> = smallvec::smallvec![0; n_axes];
        for i in (0..n_axes).rev() {
            let size = self.batch[i + 1];
            at[i] = rest % size;
            rest /= size;
        }
        // The batch of the batched tensor is blocks times the batch, with the blocks outermost.
        let row = rest % self.space[0].max(1);
        let mut blocks = rest / self.space[0].max(1);
        for i in (0..n_axes).rev() {
            let axis = &self.axes[i];
            let inside = at[i] * axis.block + blocks % axis.block;
            blocks /= axis.block;
            at[i] = inside.checked_sub(axis.front).filter(|at| *at < self.space[i + 1])?;
        }
        let flat = |all: usize, (i, at): (usize, &usize)| all * self.space[i + 1] + at;
        Some(at.iter().enumerate().fold(row, flat))
    }
}
