//! `Diag` and `DiagPart`: a tensor as the diagonal of one of twice the rank, and back.

use crate::prelude::*;

pub(super) const DIAG: OpDef = OpDef::pure("Diag", RowRule::Mixed, |_| Ok(Box::new(Diag)));
pub(super) const DIAG_PART: OpDef =
    OpDef::pure("DiagPart", RowRule::Mixed, |_| Ok(Box::new(DiagPart)));

struct Diag;

impl Op for Diag {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input] = arity(inputs)?;
        input.require_rank_at_least(1)?;
        let dims = input.dims().map(|dims| dims.iter().chain(dims).cloned().collect());
        Ok(vec![spec_of(input.dtype, dims)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let input = ctx.input(0);
        if input.shape().rank() == 0 {
            return invalid!("Input must be at least rank 1, got 0");
        }
        let dims = input.shape().to_i64();
        let shape = Shape::checked(dims.iter().chain(&dims).copied())?;
        rearrange(ctx, 0, &[input], &shape, &Spread)
    }
}

/// The elements of the first input one further than its length apart, among zeros.
struct Spread;

impl Move for Spread {
    fn apply<T: bytemuck::Pod + Send + Sync>(
        &self,
        inputs: &[&[T]],
        output: &mut [T],
    ) -> Result<()> {
        output.fill(T::zeroed());
        let apart = inputs[0].len() + 1;
        inputs[0].iter().enumerate().for_each(|(i, x)| output[i * apart] = *x);
        Ok(())
    }
}

struct DiagPart;

impl Op for DiagPart {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input] = arity(inputs)?;
        let Some(dims) = input.dims() else { return Ok(vec![Spec::unknown(input.dtype)]) };
        if !dims.len().is_multiple_of(2) {
            return odd_rank(dims.len());
        }
        let (rows, columns) = dims.split_at(dims.len() / 2);
        Ok(vec![spec_of(input.dtype, merge_dims(Some(rows), Some(columns))?)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let input = ctx.input(0);
        let shape = input.shape();
        if !shape.rank().is_multiple_of(2) {
            return odd_rank(shape.rank());
        }
        let (rows, columns) = shape.split_at(shape.rank() / 2);
        if rows != columns {
            // The text is TensorFlow's (`diag_op.cc`).
            return invalid!("Invalid shape {shape}: dimensions do not match.");
        }
        let shape = Shape::of(rows);
        let n = shape.n_elements();
        let how = Gather { walk: Walk::new(0, [(n, n as isize + 1)]), pool: ctx.env().pool };
        rearrange(ctx, 0, &[input], &shape, &how)
    }
}

fn odd_rank<T>(rank: usize) -> Result<T> {
    invalid!("The rank of the tensor should be even, got {rank}")
}
