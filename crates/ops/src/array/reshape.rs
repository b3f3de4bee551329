//! `Reshape`: the same elements in another shape, one dimension of which may be left open.

use crate::prelude::*;

pub(super) const RESHAPE: OpDef =
    OpDef::pure("Reshape", RowRule::Reshape, |_| Ok(Box::new(Reshape)));

struct Reshape;

impl Op for Reshape {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [tensor, shape] = arity(inputs)?;
        // A number stands for a list of one, as in old graphs.
        shape.require_rank_at_most(1)?;
        let dims = match sizes_of(shape) {
            Some(sizes) => Some(reshaped_dims(tensor, &sizes)?),
            None => {
                let rank = shape.rank().and(shape.n_elements().size());
                spec_of_rank(tensor.dtype, rank).dims
            }
        };
        Ok(vec![with_sizes(spec_of(tensor.dtype, dims), sizes_of(tensor))])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let tensor = ctx.input(0);
        let shape = reshaped(tensor.shape(), &ints(&ctx.input(1))?)?;
        ctx.forward(0, tensor, shape)
    }

    fn alias(&self) -> Option<usize> {
        Some(0)
    }
}

/// The dimensions of a tensor reshaped to `sizes`, of which one may be -1.
fn reshaped_dims(tensor: &Spec, sizes: &[Dim]) -> Result<Dims> {
    let numbers: Option<Vec<i64>> = sizes.iter().map(Dim::known).collect();
    if let (Some(shape), Some(numbers)) = (tensor.shape(), numbers) {
        let shape = reshaped(&shape, &numbers)?;
        return Ok(shape.iter().map(|size| Dim::of(*size)).collect());
    }
    let is_open = |dim: &Dim| matches!(dim, Dim::Unknown | Dim::Known(-1));
    let mut dims: Dims =
        sizes.iter().map(|d| if is_open(d) { Dim::Unknown } else { d.clone() }).collect();
    // A size that is not known may be the -1; if it is the only such, it is decided either way.
    let mut open = sizes.iter().enumerate().filter(|(_, dim)| is_open(dim)).map(|(i, _)| i);
    if let (Some(at), None) = (open.next(), open.next()) {
        let others =
            sizes.iter().filter(|dim| !is_open(dim)).fold(Dim::Known(1), |all, d| all.times(d));
        if others.known() != Some(0) {
            dims[at] = tensor.n_elements().divided_by(&others);
        }
    }
    if dims.iter().any(|dim| dim.known().is_some_and(|size| size < 0)) {
        return invalid!("Size must be non-negative in the requested shape");
    }
    Ok(dims)
}

/// The shape that a tensor of shape `from` takes. The texts are TensorFlow's (`reshape_op.h`).
fn reshaped(from: &Shape, sizes: &[i64]) -> Result<Shape> {
    let mut open = None;
    let mut product = 1i64;
    let mut has_zero = false;
    for (i, size) in sizes.iter().enumerate() {
        match size {
            -1 if open.is_some() => {
                return invalid!(
                    "Only one input size may be -1, not both {} and {i}",
                    open.unwrap_or(0)
                );
            }
            -1 => open = Some(i),
            0 => has_zero = true,
            size if *size < 0 => return invalid!("Size {i} must be non-negative, not {size}"),
            size => match product.checked_mul(*size) {
                Some(next) => product = next,
                None => return invalid!("the requested shape {sizes:?} is too large"),
            },
        }
    }
    let mut dims: Ints = sizes.iter().copied().collect();
    if let Some(at) = open {
        let kept = from.iter().filter(|dim| **dim > 0 || !has_zero);
        let n_elements = kept.map(|dim| *dim as i64).product::<i64>();
        let skipped = has_zero && from.contains(&0);
        let missing = n_elements / product;
        if !skipped && product * missing != n_elements {
            return invalid!(
                "Input to reshape is a tensor with {n_elements} values, but the requested shape \
                 requires a multiple of {product}"
            );
        }
        dims[at] = missing;
    }
    let shape = Shape::checked(dims)?;
    if shape.n_elements() != from.n_elements() {
        return invalid!(
            "Input to reshape is a tensor with {} values, but the requested shape has {}",
            from.n_elements(),
            shape.n_elements()
        );
    }
    Ok(shape)
}
