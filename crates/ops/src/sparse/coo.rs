//! `Coo`: a sparse tensor as ops get it, three inputs of indices, values and dense shape.

use crate::prelude::*;

/// The most elements that a tensor may have whose shape a client's values decide.
const N_ELEMENTS_MAX: usize = 1 << 30;

/// The same for strings, whose elements are larger.
const N_STRINGS_MAX: usize = 1 << 27;

/// A sparse tensor: entry `i` has the index `indices[i * rank..]` and the value `values[i]`.
pub(super) struct Coo<'a> {
    indices: &'a [i64],
    pub(super) values: View<'a>,
    pub(super) dims: &'a [i64],
    len: usize,
}

impl<'a> Coo<'a> {
    /// The sparse tensor in inputs `first`, `first + 1` and `first + 2`. Fails unless their shapes
    /// fit together; indices may still lie outside of the dense shape.
    pub(super) fn read(ctx: &Ctx<'a>, first: usize) -> Result<Self> {
        Self::new(ctx.input(first), ctx.input(first + 1), ctx.input(first + 2))
    }

    pub(super) fn new(indices: View<'a>, values: View<'a>, shape: View<'a>) -> Result<Self> {
        let &[len, rank] = indices.shape().dims() else {
            return invalid!("indices must be a matrix, saw: {}", indices.shape());
        };
        let &[n_values] = values.shape().dims() else {
            return invalid!("values must be a vector, saw: {}", values.shape());
        };
        let &[dense_rank] = shape.shape().dims() else {
            return invalid!("dense_shape must be a vector, saw: {}", shape.shape());
        };
        if n_values != len {
            return invalid!(
                "The length of `values` ({n_values}) must match the first dimension of `indices` \
                 ({len})."
            );
        }
        if dense_rank != rank {
            return invalid!(
                "The length of `dense_shape` ({dense_rank}) must match the second dimension of \
                 `indices` ({rank})."
            );
        }
        Ok(Self { indices: indices.as_slice(), values, dims: shape.as_slice(), len })
    }

    /// The number of entries.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn rank(&self) -> usize {
        self.dims.len()
    }

    /// The index of each entry.
    pub(super) fn entries(&self) -> impl Iterator<Item = &'a [i64]> + use<'a> {
        let (indices, rank) = (self.indices, self.dims.len());
        (0..self.len).map(move |i| &indices[i * rank..(i + 1) * rank])
    }

    /// Fails if an index lies outside of the dense shape.
    pub(super) fn check_inside(&self) -> Result<()> {
        self.entries().enumerate().try_for_each(|(i, index)| check_inside(index, self.dims, i))
    }

    pub(super) fn entry(&self, i: usize) -> &'a [i64] {
        let rank = self.rank();
        &self.indices[i * rank..(i + 1) * rank]
    }
}

/// Fails if specs cannot be a sparse tensor.
pub(super) fn require(indices: &Spec, values: &Spec, shape: &Spec) -> Result<()> {
    indices.require_dtype(DType::I64)?;
    shape.require_dtype(DType::I64)?;
    indices.require_rank(2)?;
    values.require_rank(1)?;
    shape.require_rank(1)
}

/// The rank of a sparse tensor as a dimension of others.
pub(super) fn rank_dim(indices: &Spec, shape: &Spec) -> Dim {
    let dim = |spec: &Spec, at: usize| spec.dims().map(|dims| dims[at].clone());
    match dim(indices, 1) {
        Some(known @ Dim::Known(_)) => known,
        _ => dim(shape, 0).unwrap_or(Dim::Unknown),
    }
}

/// The number of entries of a sparse tensor as a dimension of others.
pub(super) fn n_entries_dim(indices: &Spec, values: &Spec) -> Dim {
    let dim = |spec: &Spec| spec.dims().map(|dims| dims[0].clone());
    match dim(indices) {
        Some(known @ Dim::Known(_)) => known,
        _ => dim(values).unwrap_or(Dim::Unknown),
    }
}

/// Fails if the index of entry `i` lies outside of the dense shape.
pub(super) fn check_inside(index: &[i64], dims: &[i64], i: usize) -> Result<()> {
    if index.iter().zip(dims).all(|(at, dim)| (0..*dim).contains(at)) {
        return Ok(());
    }
    invalid!("indices[{i}] = {index:?} is out of bounds: need 0 <= index < {dims:?}")
}

/// A number of rows that values decided, each of which takes some memory. Fails if it is negative
/// or absurdly large.
pub(super) fn checked_rows(n_rows: i64) -> Result<usize> {
    Ok(checked_shape(DType::String, [n_rows])?.n_elements())
}

/// A shape that values decided. Fails if a tensor of it would be absurdly large.
pub(crate) fn checked_shape(dtype: DType, dims: impl IntoIterator<Item = i64>) -> Result<Shape> {
    let shape = Shape::checked(dims)?;
    let limit = if dtype.is_plain() { N_ELEMENTS_MAX } else { N_STRINGS_MAX };
    if shape.n_elements() > limit {
        let text = format!("a tensor of shape {shape} is larger than {limit} elements");
        return Err(Error::ResourceExhausted(text));
    }
    Ok(shape)
}
