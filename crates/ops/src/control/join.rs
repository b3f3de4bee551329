//! Specs of a tensor that comes from one of several places.

use tensor::{Dim, Items, ListSpec, Spec, Tensor, Value};

use crate::error::{Result, invalid};
use crate::list::list_spec;

/// The most bytes that are compared to see that two constants are one.
const COMPARED_MAX_BYTES: usize = 256;

/// Returns the spec that holds for both specs.
pub fn join(a: &Spec, b: &Spec) -> Result<Spec> {
    if a.dtype != b.dtype {
        return invalid!("one branch gives {} and another {}", a.dtype, b.dtype);
    }
    let dims = match (a.dims(), b.dims()) {
        (Some(x), Some(y)) if x.len() == y.len() => {
            Some(x.iter().zip(y).map(|(x, y)| if x.same(y) { x.clone() } else { Dim::Unknown }))
        }
        _ => None,
    };
    let value = match (list_spec(a), list_spec(b)) {
        _ if same_value(a, b) => a.value.clone(),
        (Some(a), Some(b)) if a.dtype == b.dtype => Value::List(join_lists(a, b)),
        _ => Value::Unknown,
    };
    Ok(Spec { dtype: a.dtype, dims: dims.map(Iterator::collect), value })
}

fn join_lists(a: ListSpec, b: ListSpec) -> ListSpec {
    let len = if a.len.same(&b.len) { a.len } else { Dim::Unknown };
    let items = match (a.items, b.items) {
        (Items::Unset, items) | (items, Items::Unset) => items,
        (Items::Like(x), Items::Like(y)) if x == y => Items::Like(x),
        _ => Items::Unknown,
    };
    ListSpec { dtype: a.dtype, len, items }
}

/// Joins specs pair by pair into the first list; says whether anything was lost.
pub(super) fn join_all(
    specs: &mut [Spec],
    others: &[Spec],
    join: impl Fn(&Spec, &Spec) -> Result<Spec>,
) -> Result<bool> {
    if specs.len() != others.len() {
        return invalid!("one function gives {} outputs, another {}", specs.len(), others.len());
    }
    let mut lost = false;
    for (spec, other) in specs.iter_mut().zip(others) {
        let joined = join(spec, other)?;
        lost |= joined.dims != spec.dims || !same_value(&joined, spec);
        *spec = joined;
    }
    Ok(lost)
}

/// Returns whether two values are both unknown or surely the same.
fn same_value(a: &Spec, b: &Spec) -> bool {
    match (&a.value, &b.value) {
        (Value::Unknown, Value::Unknown) => true,
        (Value::Sizes(x), Value::Sizes(y)) => x == y && x.iter().all(|size| *size != Dim::Unknown),
        (Value::List(x), Value::List(y)) => x == y,
        (Value::Constant(x), Value::Constant(y)) => same_tensor(x, y),
        _ => false,
    }
}

fn same_tensor(a: &Tensor, b: &Tensor) -> bool {
    if a.dtype() != b.dtype() || a.shape() != b.shape() {
        return false;
    }
    match (a.buffer(), b.buffer()) {
        (Some(x), Some(y)) => {
            x.shares_memory_with(y)
                || (x.len() <= COMPARED_MAX_BYTES && a.view().bytes() == b.view().bytes())
        }
        _ if a.dtype() == tensor::DType::String => {
            a.n_bytes() <= COMPARED_MAX_BYTES && a.strings() == b.strings()
        }
        _ => {
            let pairs = a.view().handles().iter().zip(b.view().handles());
            pairs.into_iter().all(|(x, y)| x.is_same(y))
        }
    }
}
