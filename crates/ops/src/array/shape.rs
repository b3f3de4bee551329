//! `Shape`, `ShapeN`, `ShapeSize`, `ShapeRank`: what is known of an input besides its elements.

use crate::prelude::*;

pub(super) const SHAPE: OpDef = OpDef::pure("Shape", RowRule::Shape, ArrayShapes::build);
pub(super) const SHAPE_N: OpDef = OpDef::pure("ShapeN", RowRule::ShapeN, ArrayShapes::build);
pub(super) const SIZE: OpDef =
    OpDef::pure("Size", RowRule::Shape, |attrs| Ok(Box::new(ShapeSize { out: out_type(attrs)? })));
pub(super) const RANK: OpDef = OpDef::pure("Rank", RowRule::Shape, |_| Ok(Box::new(ShapeRank)));

fn out_type(attrs: &Attrs<'_>) -> Result<DType> {
    attrs.dtype_or("out_type", DType::I32)
}

/// One shape an input.
struct ArrayShapes {
    out: DType,
}

impl ArrayShapes {
    fn build(attrs: &Attrs<'_>) -> Result<Box<dyn Op>> {
        Ok(Box::new(Self { out: out_type(attrs)? }))
    }
}

impl Op for ArrayShapes {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let shape_of = |input: &Spec| {
            let rank = input.rank().map_or(Dim::Unknown, Dim::of);
            with_sizes(Spec::new(self.out, [rank]), input.dims().map(<[Dim]>::to_vec))
        };
        Ok(inputs.iter().map(shape_of).collect())
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        for i in 0..ctx.n_inputs() {
            let dims = ctx.input(i).shape();
            let output = ctx.output(i, self.out, &Shape::of(&[dims.rank()]))?;
            write_sizes(output, dims)?;
        }
        Ok(())
    }
}

/// The number of elements.
struct ShapeSize {
    out: DType,
}

impl Op for ShapeSize {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input] = arity(inputs)?;
        Ok(vec![with_sizes(Spec::scalar(self.out), Some(vec![input.n_elements()]))])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let n_elements = ctx.input(0).n_elements();
        write_sizes(ctx.output(0, self.out, &Shape::scalar())?, &[n_elements])
    }
}

/// The number of dimensions.
struct ShapeRank;

impl Op for ShapeRank {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input] = arity(inputs)?;
        let rank = input.rank().map(|rank| vec![Dim::of(rank)]);
        Ok(vec![with_sizes(Spec::scalar(DType::I32), rank)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let rank = ctx.input(0).shape().rank();
        write_sizes(ctx.output(0, DType::I32, &Shape::scalar())?, &[rank])
    }
}

/// Writes sizes as `int32` or `int64`. Fails if one does not fit.
pub(crate) fn write_sizes(mut output: ViewMut<'_>, sizes: &[usize]) -> Result<()> {
    if output.dtype() == DType::I64 {
        for (x, size) in output.as_mut_slice::<i64>().iter_mut().zip(sizes) {
            *x = *size as i64;
        }
        return Ok(());
    }
    if output.dtype() != DType::I32 {
        return invalid!("sizes are int32 or int64, not {}", output.dtype());
    }
    for (x, size) in output.as_mut_slice::<i32>().iter_mut().zip(sizes) {
        let Ok(narrow) = i32::try_from(*size) else {
            return invalid!("size {size} does not fit int32");
        };
        *x = narrow;
    }
    Ok(())
}
