//! Index vectors: what `GatherNd` and the scatters share.

use std::ops::Range;

use super::gather::place_of;
use crate::prelude::*;

/// Slices of a tensor, one for each index vector.
pub(crate) struct Slices<'a> {
    /// The beginning of each slice, or `NOWHERE`.
    starts: Part<'a, usize>,
    /// The elements of a slice.
    pub(crate) len: usize,
    /// The length of an index vector.
    pub(crate) depth: usize,
}

/// Stands for the begin of a slice that is not there.
const NOWHERE: usize = usize::MAX;

impl<'a> Slices<'a> {
    /// Slices of `len` elements that begin at these places.
    pub(crate) fn at(starts: Part<'a, usize>, len: usize) -> Self {
        Self { starts, len, depth: 1 }
    }

    /// The elements of each slice; `None` for one that is not there.
    pub(crate) fn places(&self) -> impl Iterator<Item = Option<Range<usize>>> {
        let place = |start: usize| (start != NOWHERE).then(|| start..start + self.len);
        self.starts.iter().map(move |start| place(*start))
    }

    /// The bytes of scratch memory that slices take which these indices name.
    pub(crate) fn bytes(indices: &Spec) -> usize {
        let shape = indices.shape().unwrap_or_default();
        let outer = shape.split_last().map_or(&[][..], |(_, outer)| outer);
        Scratch::bytes_of::<usize>(outer.iter().product())
    }

    /// The slices of a tensor of shape `shape` that `indices` name. Fails if one is not there
    /// and the policy is not to ignore it; `what` says what they index in the message.
    pub(crate) fn of(
        indices: &View<'_>,
        shape: &Shape,
        (what, policy): (&str, Policy),
        scratch: &mut Scratch<'a>,
    ) -> Result<Self> {
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
        let mut starts = scratch.part(n_slices)?;
        for (slice, start) in starts.iter_mut().enumerate() {
            pace(8)?;
            *start = 0;
            for (i, (size, stride)) in shape.iter().zip(&strides).take(depth).enumerate() {
                let index = int_at(indices, slice * depth + i)?;
                let Some(at) = usize::try_from(index).ok().filter(|at| at < size) else {
                    if policy == Policy::Ignore {
                        *start = NOWHERE;
                        break;
                    }
                    // The text is TensorFlow's (`gather_nd_op.h`).
                    let place = place_of(slice, &Shape::of(outer));
                    let index = (0..depth).map(|i| int_at(indices, slice * depth + i));
                    let index = index.collect::<Result<Vec<i64>>>()?;
                    return invalid!(
                        "indices{place} = {index:?} does not index into {what}shape {shape}"
                    );
                };
                *start += at * stride;
            }
        }
        Ok(Self { starts, len, depth })
    }
}

/// The treatment of index vectors that are out of range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    /// They are an error.
    Refuse,
    /// Nothing is written for them; what is read is zero.
    Ignore,
}

impl Policy {
    /// Returns the policy that a node asks for.
    pub(crate) fn of(attrs: &Attrs<'_>) -> Result<Self> {
        match attrs.str_or("bad_indices_policy", "")? {
            "" | "DEFAULT" | "ERROR" => Ok(Self::Refuse),
            "IGNORE" => Ok(Self::Ignore),
            // The text is TensorFlow's (`bad_indices_policy.cc`).
            policy => invalid!("Unknown bad indices handling attribute: {policy}"),
        }
    }
}
