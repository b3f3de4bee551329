//! `ReverseV2`, `Reverse`, `ReverseSequence`, `Roll`: elements in another order along dimensions.

use smallvec::SmallVec;

use super::tables::{Nothing, Tables};
use crate::prelude::*;

pub(super) const REVERSE_V2: OpDef =
    OpDef::pure("ReverseV2", RowRule::Reverse, |_| Ok(Box::new(Reverse { by: By::Axes })));
pub(super) const REVERSE: OpDef =
    OpDef::pure("Reverse", RowRule::Mixed, |_| Ok(Box::new(Reverse { by: By::Bools })));
pub(super) const REVERSE_SEQUENCE: OpDef =
    OpDef::pure("ReverseSequence", RowRule::Mixed, |attrs| {
        let batch_dim = attrs.int_or("batch_dim", 0)?;
        Ok(Box::new(ReverseSequence { seq_dim: attrs.int("seq_dim")?, batch_dim }))
    });
pub(super) const ROLL: OpDef = OpDef::pure("Roll", RowRule::Mixed, |_| Ok(Box::new(Roll)));

struct Reverse {
    by: By,
}

/// The meaning of the second input.
#[derive(Clone, Copy)]
enum By {
    /// The axes to reverse.
    Axes,
    /// A flag for each dimension: reverse it or not.
    Bools,
}

impl Op for Reverse {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input, which] = arity(inputs)?;
        which.require_rank_at_most(1)?;
        let is_idle = input.rank() == Some(0) || input.n_elements().known() == Some(0);
        if let (By::Axes, Some(rank), Some(axes)) = (self.by, input.rank(), known_ints(which))
            && !is_idle
        {
            axes_flags(&axes, rank)?;
        }
        Ok(vec![input.with_dtype(input.dtype)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (input, which) = (ctx.input(0), ctx.input(1));
        let shape = input.shape();
        let reversed = match self.by {
            // There is nothing to reverse: TensorFlow does not even look at the axes.
            By::Axes if shape.rank() == 0 || shape.n_elements() == 0 => {
                SmallVec::from_elem(false, shape.rank())
            }
            By::Bools if shape.rank() == 0 => SmallVec::new(),
            _ if which.shape().rank() != 1 => {
                return invalid!("'axis' must be of rank 1 but is {}", which.shape());
            }
            By::Axes => axes_flags(&ints(&which)?, shape.rank())?,
            By::Bools if which.n_elements() == shape.rank() && which.dtype() == DType::Bool => {
                which.as_slice::<u8>().iter().map(|flag| *flag != 0).collect()
            }
            By::Bools => {
                return invalid!(
                    "'dims' must have the same number of values as 'input' has dimensions"
                );
            }
        };
        let strides = shape.strides();
        let mut start = 0;
        let mut axes: SmallVec<[(usize, isize); 6]> = SmallVec::new();
        for ((size, stride), reversed) in shape.iter().zip(&strides).zip(reversed) {
            let stride = *stride as isize;
            if reversed && *size > 0 {
                start += (size - 1) * stride as usize;
            }
            axes.push((*size, if reversed { -stride } else { stride }));
        }
        let how = Gather { walk: Walk::new(start, axes), pool: ctx.env().pool };
        rearrange(ctx, 0, &[input], shape, &how)
    }
}

/// Returns for each dimension whether it is among `axes`.
fn axes_flags(axes: &[i64], rank: usize) -> Result<SmallVec<[bool; 8]>> {
    let mut flags = SmallVec::from_elem(false, rank);
    for (i, axis) in axes.iter().enumerate() {
        let Ok(at) = normalise_axis(*axis, rank) else {
            // The texts are TensorFlow's (`reverse_op.cc`).
            return invalid!("'axis'[{i}] = {axis} is out of valid range [0, {}", rank as i64 - 1);
        };
        if std::mem::replace(&mut flags[at], true) {
            return invalid!("axis {at} specified more than once.");
        }
    }
    Ok(flags)
}

/// The first elements of each row of a batch reversed, as many as its length says.
struct ReverseSequence {
    seq_dim: i64,
    batch_dim: i64,
}

impl ReverseSequence {
    fn axes(&self, rank: usize) -> Result<(usize, usize)> {
        let axis = |dim: i64, what: &str| match usize::try_from(dim) {
            Ok(axis) if axis < rank => Ok(axis),
            _ => invalid!("{what} must be < input rank ({dim} vs. {rank})"),
        };
        let (batch, seq) = (axis(self.batch_dim, "batch_dim")?, axis(self.seq_dim, "seq_dim")?);
        if batch == seq {
            return invalid!("batch_dim == seq_dim == {seq}");
        }
        Ok((batch, seq))
    }
}

impl Op for ReverseSequence {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input, lengths] = arity(inputs)?;
        lengths.require_rank(1)?;
        if let Some(dims) = input.dims() {
            let (batch, _) = self.axes(dims.len())?;
            if let Some(lengths) = lengths.dims() {
                merge_dim(&dims[batch], &lengths[0])?;
            }
        }
        Ok(vec![input.with_dtype(input.dtype)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let input = ctx.input(0);
        let shape = input.shape();
        let (batch, seq) = self.axes(shape.rank())?;
        let lengths = ctx.input(1);
        let n_lengths = lengths.n_elements();
        if n_lengths != shape[batch] {
            // The texts are TensorFlow's (`reverse_sequence_op.cc`).
            return invalid!(
                "Length of seq_lengths != input.dims({batch}), ({n_lengths} vs. {})",
                shape[batch]
            );
        }
        for i in 0..n_lengths {
            if int_at(&lengths, i)? < 0 {
                return invalid!("seq_lengths({i}) < 0");
            }
        }
        for i in 0..n_lengths {
            if int_at(&lengths, i)? > shape[seq] as i64 {
                return invalid!("seq_lengths({i}) > input.dims({seq})");
            }
        }
        let strides = shape.strides();
        let sequences = Sequences {
            lengths,
            batch: (shape[batch], strides[batch]),
            seq: (shape[seq], strides[seq]),
            run: shape[batch.max(seq) + 1..].iter().product(),
        };
        rearrange(ctx, 0, &[input], shape, &sequences)
    }
}

struct Sequences<'a> {
    lengths: View<'a>,
    /// Size and stride.
    batch: (usize, usize),
    seq: (usize, usize),
    /// The elements inside of both dimensions.
    run: usize,
}

impl Move for Sequences<'_> {
    fn apply<T: bytemuck::Pod + Send + Sync>(
        &self,
        inputs: &[&[T]],
        output: &mut [T],
    ) -> Result<()> {
        if output.is_empty() {
            return Ok(());
        }
        for (i, to) in output.chunks_exact_mut(self.run).enumerate() {
            pace(self.run)?;
            let at = i * self.run;
            let row = at / self.batch.1 % self.batch.0;
            let step = at / self.seq.1 % self.seq.0;
            let length = int_at(&self.lengths, row)? as usize;
            let source = if step < length {
                at - step * self.seq.1 + (length - 1 - step) * self.seq.1
            } else {
                at
            };
            to.copy_from_slice(&inputs[0][source..source + self.run]);
        }
        Ok(())
    }
}

/// Elements moved along dimensions; what leaves at the end returns at the front.
struct Roll;

impl Op for Roll {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input, shift, axis] = arity(inputs)?;
        input.require_rank_at_least(1)?;
        if [shift, axis].iter().any(|spec| spec.rank().is_some_and(|rank| rank > 1)) {
            return invalid!("shift and axis must be scalars or 1-D vectors");
        }
        Ok(vec![input.with_dtype(input.dtype)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let input = ctx.input(0);
        let shape = input.shape();
        let (shifts, axes) = (ints(&ctx.input(1))?, ints(&ctx.input(2))?);
        if shape.rank() == 0 {
            return invalid!("input must be 1-D or higher");
        }
        if ctx.input(1).shape() != ctx.input(2).shape() {
            return invalid!("shift and axis must have the same size");
        }
        let mut totals: SmallVec<[i128; 6]> = SmallVec::from_elem(0, shape.rank());
        for (shift, axis) in shifts.iter().zip(&axes) {
            let Ok(at) = normalise_axis(*axis, shape.rank()) else {
                return invalid!("axis {axis} is out of range");
            };
            totals[at] += i128::from(*shift);
        }
        if shape.n_elements() == 0 {
            return rearrange(ctx, 0, &[input], shape, &Nothing);
        }
        let fill = |axis: usize, table: &mut [usize]| {
            let size = shape[axis];
            let shift = totals[axis].rem_euclid((size as i128).max(1)) as usize;
            let indices = (0..size).map(|i| (i + size - shift) % size);
            table.iter_mut().zip(indices).for_each(|(to, index)| *to = index);
        };
        let tables = Tables::new(shape, shape, &mut ctx.scratch(), fill)?;
        rearrange(ctx, 0, &[input], shape, &tables)
    }

    fn scratch_bytes(&self, _: &[Spec], outputs: &[Spec]) -> usize {
        Tables::bytes(&outputs[0])
    }
}
