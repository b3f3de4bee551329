//! Element shapes: partial shapes that come as tensors, where -1 is an unknown dimension and the
//! scalar -1 an unknown rank.

use smallvec::SmallVec;

use crate::prelude::*;

/// A partial shape; `None` if even the rank is unknown.
pub(super) type ElementShape = Option<Sizes>;

/// Sizes, as far as they are known. They are read in every iteration of a loop.
pub(super) type Sizes = SmallVec<[Option<i64>; 5]>;

/// The partial shape that an attribute holds; unknown without the attribute.
pub(super) fn of_attr(attrs: &Attrs<'_>, name: &str) -> Result<ElementShape> {
    Ok(attrs.shape_or_unknown(name)?.map(Sizes::from_vec))
}

/// The partial shape that an input holds.
pub(super) fn read(view: &View<'_>) -> Result<ElementShape> {
    let dims = ints(view)?;
    if view.shape().rank() == 0 {
        return match dims[..] {
            [-1] => Ok(None),
            // The text is TensorFlow's (`list_kernels.cc`).
            _ => invalid!(
                "The only valid scalar shape tensor is the fully unknown shape specified as -1."
            ),
        };
    }
    if view.shape().rank() > 1 {
        return invalid!("shape must be at most rank 1 but is rank {}", view.shape().rank());
    }
    let dim = |dim: &i64| match *dim {
        -1 => Ok(None),
        dim if dim < -1 => invalid!("a dimension of an element shape is {dim}"),
        dim => Ok(Some(dim)),
    };
    dims.iter().map(dim).collect::<Result<_>>().map(Some)
}

/// The dimensions of elements, as far as the input that holds them is known.
pub(super) fn infer(spec: &Spec) -> Option<Dims> {
    if spec.rank()? == 0 {
        return None;
    }
    match sizes_of(spec) {
        Some(sizes) => {
            let dim = |size: Dim| if size.known() == Some(-1) { Dim::Unknown } else { size };
            Some(sizes.into_iter().map(dim).collect())
        }
        None => spec_of_rank(spec.dtype, spec.dims()?[0].size()).dims,
    }
}

/// Returns the shape that is known if both hold; `None` if they cannot.
pub(super) fn merged(a: &ElementShape, b: &ElementShape) -> Option<ElementShape> {
    match (a, b) {
        (shape, None) | (None, shape) => Some(shape.clone()),
        (Some(a), Some(b)) if a.len() == b.len() => {
            let dim = |(x, y): (&Option<i64>, &Option<i64>)| match (x, y) {
                (Some(x), Some(y)) if x != y => None,
                (x, y) => Some(x.or(*y)),
            };
            a.iter().zip(b).map(dim).collect::<Option<Sizes>>().map(Some)
        }
        _ => None,
    }
}

/// Returns whether the partial shape allows a shape.
pub(super) fn takes(partial: &ElementShape, shape: &Shape) -> bool {
    let Some(dims) = partial else { return true };
    dims.len() == shape.rank()
        && dims.iter().zip(shape.iter()).all(|(dim, size)| dim.is_none_or(|d| d == *size as i64))
}

/// The partial shape without its first dimension.
pub(super) fn inner(shape: &ElementShape) -> ElementShape {
    shape.as_ref().map(|dims| dims.get(1..).unwrap_or_default().iter().copied().collect())
}
