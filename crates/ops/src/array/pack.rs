//! `Pack` and `Unpack`: tensors of one shape along a new axis, and back.

use super::concat::join;
use crate::prelude::*;

pub(super) const PACK: OpDef = OpDef::pure("Pack", RowRule::Pack, |attrs| {
    Ok(Box::new(Pack { axis: attrs.int_or("axis", 0)? }))
});
pub(super) const UNPACK: OpDef = OpDef::pure("Unpack", RowRule::Unpack, |attrs| {
    Ok(Box::new(Unpack { num: attrs.count("num")?, axis: attrs.int_or("axis", 0)? }))
});

struct Pack {
    axis: i64,
}

impl Op for Pack {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        arity_at_least(inputs, 1)?;
        let mut dims = None;
        for input in inputs {
            dims = merge_dims(dims.as_deref(), input.dims())?;
        }
        if let Some(dims) = &mut dims {
            dims.insert(self.place(dims.len())?, Dim::of(inputs.len()));
        }
        let is_vector = dims.as_ref().is_some_and(|dims| dims.len() == 1);
        let sizes = is_vector.then(|| inputs.iter().map(element).collect());
        Ok(vec![with_sizes(spec_of(inputs[0].dtype, dims), sizes)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let inputs = ctx.inputs();
        let first = inputs[0].shape();
        let axis = self.place(first.rank())?;
        if let Some(i) = inputs.iter().position(|input| input.shape() != first) {
            // The text is TensorFlow's (`pack_op.cc`).
            return invalid!(
                "Shapes of all inputs must match: values[0].shape = {first} != values[{i}].shape = \
                 {}",
                inputs[i].shape()
            );
        }
        let mut dims = first.to_i64();
        dims.insert(axis, inputs.len() as i64);
        let shape = Shape::checked(dims)?;
        join(ctx, |inputs| Ok(inputs), axis, &shape)
    }
}

impl Pack {
    fn place(&self, rank: usize) -> Result<usize> {
        normalise_axis(self.axis, rank + 1)
    }
}

/// The element of a scalar, as far as it is known.
fn element(spec: &Spec) -> Dim {
    sizes_of(spec).and_then(|sizes| sizes.first().cloned()).unwrap_or(Dim::Unknown)
}

struct Unpack {
    num: usize,
    axis: i64,
}

impl Op for Unpack {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input] = arity(inputs)?;
        let Some(dims) = input.dims() else {
            return Ok(vec![Spec::unknown(input.dtype); self.num]);
        };
        let axis = normalise_axis(self.axis, dims.len())?;
        if dims[axis].differs(&Dim::of(self.num)) {
            return wrong_length(&dims[axis].to_string(), self.num);
        }
        let mut rest: Dims = dims.iter().cloned().collect();
        rest.remove(axis);
        let sizes = sizes_of(input).filter(|sizes| sizes.len() == self.num);
        let part = |i: usize| {
            let size = sizes.as_ref().map(|sizes| vec![sizes[i].clone()]);
            with_sizes(spec_of(input.dtype, Some(rest.clone())), size)
        };
        Ok((0..self.num).map(part).collect())
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let input = ctx.input(0);
        let shape = input.shape();
        let axis = normalise_axis(self.axis, shape.rank())?;
        if shape[axis] != self.num {
            return wrong_length(&shape[axis].to_string(), self.num);
        }
        let n_inner: usize = shape[axis + 1..].iter().product();
        let n_outer: usize = shape[..axis].iter().product();
        let mut dims = shape.to_i64();
        dims.remove(axis);
        let part = Shape::checked(dims)?;
        for i in 0..self.num {
            let rows = [(n_outer, (n_inner * self.num) as isize), (n_inner, 1)];
            let how = Gather { walk: Walk::new(i * n_inner, rows), pool: ctx.env().pool };
            rearrange(ctx, i, &[input], &part, &how)?;
        }
        Ok(())
    }
}

fn wrong_length<T>(length: &str, num: usize) -> Result<T> {
    invalid!("Input shape axis must equal {num}, got shape with {length} there")
}
