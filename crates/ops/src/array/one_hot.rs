//! `OneHot`: a new axis along which one element is on and the others are off.

use crate::prelude::*;

pub(super) const ONE_HOT: OpDef = OpDef::pure("OneHot", RowRule::OneHot, |attrs| {
    Ok(Box::new(OneHot { axis: attrs.int_or("axis", -1)? }))
});

struct OneHot {
    axis: i64,
}

impl OneHot {
    /// Returns the place of the new axis in an output of indices of `rank`.
    fn place(&self, rank: usize) -> Result<usize> {
        match usize::try_from(self.axis) {
            _ if self.axis == -1 => Ok(rank),
            Ok(axis) if axis <= rank => Ok(axis),
            // The text is TensorFlow's (`one_hot_op.cc`).
            _ => invalid!(
                "Expected axis to be -1 or between [0, {}). But received: {}",
                rank + 1,
                self.axis
            ),
        }
    }
}

impl Op for OneHot {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [indices, depth, on, off] = arity(inputs)?;
        depth.require_rank(0)?;
        on.require_rank(0)?;
        off.require_rank(0)?;
        let Some(dims) = indices.dims() else { return Ok(vec![Spec::unknown(on.dtype)]) };
        let depth = sizes_of(depth).and_then(|sizes| sizes.first().cloned());
        let depth = depth.unwrap_or(Dim::Unknown);
        if depth.known().is_some_and(|depth| depth < 0) {
            return negative(&depth.to_string());
        }
        let mut dims: Dims = dims.iter().cloned().collect();
        dims.insert(self.place(dims.len())?, depth);
        Ok(vec![spec_of(on.dtype, Some(dims))])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (indices, on, off) = (ctx.input(0), ctx.input(2), ctx.input(3));
        if on.n_elements() != 1 || off.n_elements() != 1 {
            return invalid!("on_value and off_value must be scalars");
        }
        let depth = int(&ctx.input(1))?;
        let Ok(n_depth) = usize::try_from(depth) else { return negative(&depth.to_string()) };
        let axis = self.place(indices.shape().rank())?;
        let mut dims = indices.shape().to_i64();
        dims.insert(axis, depth);
        let hot = Hot {
            n_outer: indices.shape()[..axis].iter().product(),
            n_inner: indices.shape()[axis..].iter().product(),
            depth: n_depth,
            indices,
        };
        rearrange(ctx, 0, &[on, off], &Shape::checked(dims)?, &hot)
    }
}

fn negative<T>(depth: &str) -> Result<T> {
    invalid!("depth must be non-negative, got: {depth}")
}

/// Element `at` of the indices, which may be of type uint8 too.
fn place_at(indices: &View<'_>, at: usize) -> Result<i64> {
    if indices.dtype() == DType::U8 {
        return Ok(i64::from(indices.as_slice::<u8>()[at]));
    }
    int_at(indices, at)
}

struct Hot<'a> {
    n_outer: usize,
    n_inner: usize,
    depth: usize,
    indices: View<'a>,
}

impl Move for Hot<'_> {
    fn apply<T: bytemuck::Pod + Send + Sync>(
        &self,
        inputs: &[&[T]],
        output: &mut [T],
    ) -> Result<()> {
        let (on, off) = (inputs[0][0], inputs[1][0]);
        output.fill(off);
        for outer in 0..self.n_outer {
            for inner in 0..self.n_inner {
                pace(8)?;
                let index = place_at(&self.indices, outer * self.n_inner + inner)?;
                // An index outside of the depth turns nothing on.
                if let Some(index) = usize::try_from(index).ok().filter(|i| *i < self.depth) {
                    output[(outer * self.depth + index) * self.n_inner + inner] = on;
                }
            }
        }
        Ok(())
    }
}
