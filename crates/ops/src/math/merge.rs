//! `merge`: what is known of two inputs that must have one shape.

use smallvec::SmallVec;

use crate::prelude::*;

/// The dimensions of both. Fails if they differ.
pub(super) fn merge(a: &Spec, b: &Spec) -> Result<Option<SmallVec<[Dim; 5]>>> {
    let (Some(x), Some(y)) = (a.dims(), b.dims()) else {
        return Ok(a.dims().or(b.dims()).map(|dims| dims.iter().cloned().collect()));
    };
    if x.len() != y.len() || x.iter().zip(y).any(|(x, y)| x.differs(y)) {
        return invalid!("inputs {a} and {b} differ in shape");
    }
    let known = |(x, y): (&Dim, &Dim)| if x.known().is_some() { x.clone() } else { y.clone() };
    Ok(Some(x.iter().zip(y).map(known).collect()))
}
