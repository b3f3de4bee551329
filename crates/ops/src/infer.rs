//! Inference that many ops share.

use smallvec::SmallVec;
use tensor::{DType, Dim, Shape, Spec};

use crate::error::{Error, Result, invalid};

/// The inputs as an array, if there are just `N`.
pub(crate) fn arity<const N: usize>(inputs: &[Spec]) -> Result<&[Spec; N]> {
    inputs.try_into().map_err(|_| {
        Error::InvalidArgument(format!("expected {N} inputs but got {}", inputs.len()))
    })
}

/// Fails if there are fewer than `n` inputs.
pub(crate) fn arity_at_least(inputs: &[Spec], n: usize) -> Result<()> {
    if inputs.len() < n {
        return invalid!("expected at least {n} inputs but got {}", inputs.len());
    }
    Ok(())
}

/// Checks on specs that read as a sentence.
pub(crate) trait Require {
    /// Fails if the rank is known and another.
    fn require_rank(&self, rank: usize) -> Result<()>;
    /// Fails if the rank is known and lower.
    fn require_rank_at_least(&self, rank: usize) -> Result<()>;
    /// Fails if the rank is known and higher.
    fn require_rank_at_most(&self, rank: usize) -> Result<()>;
    /// Fails if the dtype is another.
    fn require_dtype(&self, dtype: DType) -> Result<()>;
}

impl Require for Spec {
    fn require_rank(&self, rank: usize) -> Result<()> {
        match self.rank() {
            Some(got) if got != rank => invalid!("expected rank {rank} but got {self}"),
            _ => Ok(()),
        }
    }

    fn require_rank_at_least(&self, rank: usize) -> Result<()> {
        match self.rank() {
            Some(got) if got < rank => invalid!("expected rank at least {rank} but got {self}"),
            _ => Ok(()),
        }
    }

    fn require_rank_at_most(&self, rank: usize) -> Result<()> {
        match self.rank() {
            Some(got) if got > rank => invalid!("expected rank at most {rank} but got {self}"),
            _ => Ok(()),
        }
    }

    fn require_dtype(&self, dtype: DType) -> Result<()> {
        if self.dtype != dtype {
            return invalid!("expected dtype {dtype} but got {self}");
        }
        Ok(())
    }
}

/// `axis` counted from the front; fails outside of `-rank..rank`.
pub(crate) fn normalise_axis(axis: i64, rank: usize) -> Result<usize> {
    let signed = i64::try_from(rank).map_err(|_| Error::Internal("rank".to_owned()))?;
    if axis < -signed || axis >= signed {
        return invalid!("axis {axis} is not in [-{rank}, {rank})");
    }
    let from_front = if axis < 0 { axis + signed } else { axis };
    usize::try_from(from_front).map_err(|_| Error::Internal("axis".to_owned()))
}

/// The dimensions of two inputs broadcast against each other, as far as they are known.
pub(crate) fn broadcast(a: &Spec, b: &Spec) -> Result<Option<SmallVec<[Dim; 5]>>> {
    let (Some(a_dims), Some(b_dims)) = (a.dims(), b.dims()) else { return Ok(None) };
    let rank = a_dims.len().max(b_dims.len());
    let one = Dim::Known(1);
    let mut dims = SmallVec::with_capacity(rank);
    for i in 0..rank {
        let x = (i + a_dims.len()).checked_sub(rank).map_or(&one, |at| &a_dims[at]);
        let y = (i + b_dims.len()).checked_sub(rank).map_or(&one, |at| &b_dims[at]);
        dims.push(match (x, y) {
            _ if x.same(y) => x.clone(),
            (Dim::Known(1), other) | (other, Dim::Known(1)) => other.clone(),
            (Dim::Known(_), Dim::Known(_)) => {
                return invalid!("Incompatible shapes: {a} vs. {b}");
            }
            // A number that is not 1 decides: the unknown one is 1 or equal to it.
            (known @ Dim::Known(_), _) | (_, known @ Dim::Known(_)) => known.clone(),
            _ => Dim::Unknown,
        });
    }
    Ok(Some(dims))
}

/// Two concrete shapes broadcast against each other.
pub(crate) fn broadcast_shapes(a: &Shape, b: &Shape) -> Result<Shape> {
    match broadcast_sizes(a, b) {
        // The text is TensorFlow's (`bcast.h`).
        None => invalid!("Incompatible shapes: {a} vs. {b}"),
        Some(sizes) => Ok(Shape::checked(sizes)?),
    }
}

/// The sizes of two concrete shapes broadcast against each other, if they can be.
pub(crate) fn broadcast_sizes(a: &Shape, b: &Shape) -> Option<SmallVec<[i64; 5]>> {
    let rank = a.rank().max(b.rank());
    let size =
        |shape: &Shape, i: usize| (i + shape.rank()).checked_sub(rank).map_or(1, |at| shape[at]);
    (0..rank)
        .map(|i| match (size(a, i), size(b, i)) {
            (x, y) if x == y => Some(x),
            (1, other) | (other, 1) => Some(other),
            _ => None,
        })
        .map(|dim| dim.and_then(|dim| i64::try_from(dim).ok()))
        .collect()
}
