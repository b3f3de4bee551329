//! Index vectors: what `GatherNd` and the scatters share.

use super::gather::place_of;
use crate::prelude::*;

/// Slices of a tensor, one for each index vector.
pub(crate) struct Slices {
    /// Where each slice begins.
    pub(crate) starts: Vec<usize>,
    /// The elements of a slice.
    pub(crate) len: usize,
    /// The length of an index vector.
    pub(crate) depth: usize,
}

impl Slices {
    /// The slices of a tensor of shape `shape` that `indices` name. Fails if one is not there;
    /// `what` says what they index in the message.
    pub(crate) fn of(indices: &View<'_>, shape: &Shape, what: &str) -> Result<Self> {
        let Some((depth, outer)) = indices.shape().split_last() else {
            return invalid!("indices must be at least a vector, got shape {}", indices.shape());
        };
        let depth = *depth;
        if depth > shape.rank() {
            return invalid!(
                "index innermost dimension length must be <= params rank; saw: {depth} vs. {}",
                shape.rank()
            );
        }
        let n_slices: usize = outer.iter().product();
        let len: usize = shape[depth..].iter().product();
        let strides = shape.strides();
        let mut starts = Vec::with_capacity(n_slices);
        let values = ints(indices)?;
        for slice in 0..n_slices {
            let index = &values[slice * depth..(slice + 1) * depth];
            let mut start = 0;
            for (i, (size, stride)) in index.iter().zip(shape.iter().zip(&strides)) {
                let Some(at) = usize::try_from(*i).ok().filter(|at| at < size) else {
                    // The text is TensorFlow's (`gather_nd_op.h`).
                    let place = place_of(slice, &Shape::of(outer));
                    return invalid!(
                        "indices{place} = {index:?} does not index into {what}shape {shape}"
                    );
                };
                start += at * stride;
            }
            starts.push(start);
        }
        Ok(Self { starts, len, depth })
    }
}

/// Fails for nodes that ask to ignore indices that are not there.
pub(crate) fn check_policy(attrs: &Attrs<'_>) -> Result<()> {
    match attrs.str_or("bad_indices_policy", "")? {
        "" | "DEFAULT" | "ERROR" => Ok(()),
        policy => crate::error::unimplemented!("bad_indices_policy {policy} is not supported"),
    }
}
