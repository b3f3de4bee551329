//! Rows that are not in the first dimension: sequences with their steps first, and lists of steps.

use std::sync::atomic::{AtomicU32, Ordering};

use ops::{Attrs, RowRule};
use tensor::{DType, Dim, Spec, Symbol};

use super::rules::{AXIS, SHAPES, UNKNOWN, Verdict};
use super::{ROWS, RowsState, RowsTensor, block, has_one_each};
use crate::graph::Node;

/// A tensor in a state, with what the state says of its shape.
pub(super) fn seen(state: RowsState, spec: Spec) -> RowsTensor {
    let spec = match state {
        RowsState::Bounds => super::sparse::with_sizes(spec),
        RowsState::Free => with_names(&spec, None),
        // An item of a list has its rows first, whatever was inferred.
        RowsState::Rows => with_names(&with_rows(&spec, 0).unwrap_or(spec), Some(0)),
        RowsState::Inner(axis) => with_names(&with_rows(&spec, axis).unwrap_or(spec), Some(axis)),
        RowsState::Sizes
        | RowsState::List(_)
        | RowsState::Copies(_)
        | RowsState::Sparse(..)
        | RowsState::Mixed(_) => spec,
    };
    RowsTensor { state, spec }
}

/// A spec whose unknown dimensions, but for the rows, have names of their own: a free tensor, and
/// one with rows, has the same other dimensions in any batch, so that a loop over its steps turns
/// as often, and what is folded into its rows can be taken out again.
fn with_names(spec: &Spec, rows: Option<usize>) -> Spec {
    /// Symbols from here on are given out here; inputs have few.
    static NEXT: AtomicU32 = AtomicU32::new(1 << 16);
    let Some(dims) = spec.dims() else { return spec.clone() };
    let named = |(at, dim): (usize, &Dim)| match dim {
        Dim::Unknown if Some(at) != rows => {
            Dim::symbol(Symbol(NEXT.fetch_add(1, Ordering::Relaxed) % ROWS.0))
        }
        dim => dim.clone(),
    };
    if dims.iter().any(|dim| matches!(dim, Dim::Unknown)) {
        let dims: Vec<Dim> = dims.iter().enumerate().map(named).collect();
        return Spec { value: spec.value.clone(), ..Spec::new(spec.dtype, dims) };
    }
    spec.clone()
}

/// The state of a tensor whose dimension `axis` is the rows.
pub(super) fn state(axis: usize) -> RowsState {
    if axis == 0 { RowsState::Rows } else { RowsState::Inner(axis) }
}

/// All outputs have their rows in dimension `axis`, if their shapes say so.
pub(super) fn at(outputs: &[Spec], axis: usize) -> Verdict {
    let is_rows = |output: &Spec| {
        let dim = output.dims().and_then(|dims| dims.get(axis));
        dim.is_some_and(|dim| dim.same(&Dim::symbol(ROWS)))
    };
    if !outputs.iter().all(is_rows) {
        return Err(SHAPES);
    }
    Ok(outputs.iter().map(|_| state(axis)).collect())
}

/// A tensor with rows in the first dimension, one for each, or further in.
fn axis_of(input: &RowsTensor) -> Option<usize> {
    match input.state {
        RowsState::Rows => has_one_each(input).then_some(0),
        RowsState::Inner(axis) => Some(axis),
        _ => None,
    }
}

/// Judges a node's outputs when an input has its rows further in.
#[expect(clippy::wildcard_enum_match_arm, reason = "the other rules are for rows that come first")]
pub(super) fn judge(node: &Node, inputs: &[RowsTensor], outputs: &[Spec]) -> Verdict {
    match node.facts().rows {
        RowRule::Shape => {
            Ok(outputs.iter().map(|output| super::rules::sizes(node, output)).collect())
        }
        RowRule::Transpose => transpose(inputs, outputs),
        RowRule::ListFromTensor => from_tensor(inputs),
        RowRule::ListGet => get(inputs, outputs),
        RowRule::ListPut => put(inputs, outputs),
        RowRule::ListStack => stack(inputs, outputs),
        RowRule::ListLength => Ok(vec![RowsState::Free]),
        RowRule::StridedSlice => first_step(node, inputs, outputs),
        RowRule::Reverse => reverse(inputs, outputs),
        RowRule::Unpack => unpack(node, inputs, outputs),
        RowRule::Elementwise => broadcast(inputs, outputs),
        _ => Err(UNKNOWN),
    }
}

/// Rows go where the order of dimensions says.
pub(super) fn transpose(inputs: &[RowsTensor], outputs: &[Spec]) -> Verdict {
    let [value, order] = inputs else { return Err(UNKNOWN) };
    let order = order.spec.ints().ok_or(SHAPES)?;
    if value.state == RowsState::Rows && order.first() == Some(&0) {
        let first = outputs.first().ok_or(UNKNOWN)?;
        return if block(first).is_some() { Ok(vec![RowsState::Rows]) } else { Err(SHAPES) };
    }
    let axis = axis_of(value).ok_or(AXIS)?;
    let to = order.iter().position(|from| usize::try_from(*from) == Ok(axis)).ok_or(SHAPES)?;
    at(outputs, to)
}

/// The steps of a sequence, each with its rows.
fn from_tensor(inputs: &[RowsTensor]) -> Verdict {
    match inputs {
        [RowsTensor { state: RowsState::Inner(axis), .. }, shape]
            if shape.state == RowsState::Free =>
        {
            Ok(vec![RowsState::List(axis - 1)])
        }
        _ => Err(AXIS),
    }
}

fn get(inputs: &[RowsTensor], outputs: &[Spec]) -> Verdict {
    match inputs {
        [RowsTensor { state: RowsState::List(axis), .. }, others @ ..] if are_free(others) => {
            step(outputs, *axis)
        }
        _ => Err(UNKNOWN),
    }
}

/// An item is put into a list whose items are like it, or which has none yet.
pub(super) fn put(inputs: &[RowsTensor], _: &[Spec]) -> Verdict {
    let [list, others @ ..] = inputs else { return Err(UNKNOWN) };
    let (item, index) = others.split_last().ok_or(UNKNOWN)?;
    let axis = axis_of(item).ok_or(UNKNOWN)?;
    let fits = match list.state {
        RowsState::Free => true,
        RowsState::List(other) => other == axis,
        _ => false,
    };
    if fits && are_free(index) { Ok(vec![RowsState::List(axis)]) } else { Err(UNKNOWN) }
}

fn stack(inputs: &[RowsTensor], outputs: &[Spec]) -> Verdict {
    match inputs {
        // The shape that items without a value get may have the number of rows in it.
        [RowsTensor { state: RowsState::List(axis), .. }, _] => step(outputs, axis + 1),
        _ => Err(UNKNOWN),
    }
}

/// Outputs with rows in `axis`, whatever their inferred shapes leave open there.
fn step(outputs: &[Spec], axis: usize) -> Verdict {
    let with_rows: Option<Vec<Spec>> = outputs.iter().map(|spec| with_rows(spec, axis)).collect();
    at(&with_rows.ok_or(SHAPES)?, axis)
}

/// A slice of the steps: `x[i]`, `x[a:b]`.
fn first_step(node: &Node, inputs: &[RowsTensor], outputs: &[Spec]) -> Verdict {
    let attrs = Attrs::new(&node.attrs);
    let mask = |name: &str| attrs.int_or(name, 0).unwrap_or(0);
    let [value, begin, others @ ..] = inputs else { return Err(UNKNOWN) };
    let RowsState::Inner(axis) = value.state else { return Err(UNKNOWN) };
    let is_first_only = begin.spec.dims().is_some_and(|dims| dims[0].known() == Some(1));
    let is_plain = mask("new_axis_mask") == 0 && mask("ellipsis_mask") == 0;
    if !is_first_only || !is_plain || begin.state != RowsState::Free || !are_free(others) {
        return Err(AXIS);
    }
    at(outputs, if mask("shrink_axis_mask") & 1 == 1 { axis - 1 } else { axis })
}

fn reverse(inputs: &[RowsTensor], outputs: &[Spec]) -> Verdict {
    let [value, axes] = inputs else { return Err(UNKNOWN) };
    let axis = axis_of(value).ok_or(UNKNOWN)?;
    let rank = i64::try_from(value.spec.rank().ok_or(SHAPES)?).map_err(|_| SHAPES)?;
    let own = i64::try_from(axis).map_err(|_| SHAPES)?;
    let is_own = |reversed: &i64| *reversed == own || *reversed == own - rank;
    if axes.spec.ints().ok_or(SHAPES)?.iter().any(is_own) {
        return Err(AXIS);
    }
    at(outputs, axis)
}

fn unpack(node: &Node, inputs: &[RowsTensor], outputs: &[Spec]) -> Verdict {
    match (inputs, Attrs::new(&node.attrs).int_or("axis", 0)) {
        ([RowsTensor { state: RowsState::Inner(axis), .. }], Ok(0)) => at(outputs, axis - 1),
        _ => Err(AXIS),
    }
}

/// Inputs with rows have them in the same dimension, and the others are the same for every row.
fn broadcast(inputs: &[RowsTensor], outputs: &[Spec]) -> Verdict {
    let axis = inputs.iter().find_map(axis_of).ok_or(UNKNOWN)?;
    for output in outputs {
        let rank = output.rank().ok_or(SHAPES)?;
        for input in inputs {
            let dims = input.spec.dims().ok_or(SHAPES)?;
            let is_whole = dims.len() == rank;
            let fits = match input.state {
                RowsState::Rows | RowsState::Inner(_) => is_whole && axis_of(input) == Some(axis),
                RowsState::Free => {
                    let own = (axis + dims.len()).checked_sub(rank);
                    own.is_none_or(|own| dims[own].known() == Some(1))
                }
                _ => false,
            };
            if !fits {
                return Err(SHAPES);
            }
        }
    }
    at(outputs, axis)
}

/// A spec whose first dimension is the rows, if the tensor that it is of has one for each and
/// nothing else is known of that dimension.
pub(super) fn as_rows(input: &RowsTensor, spec: &Spec) -> Option<Spec> {
    axis_of(input).filter(|axis| *axis == 0)?;
    with_rows(spec, 0)
}

fn are_free(inputs: &[RowsTensor]) -> bool {
    inputs.iter().all(|input| input.state == RowsState::Free)
}

/// A spec whose dimension `axis` is the rows; `None` if it is known to be something else, or if
/// nothing is known of the dimensions.
fn with_rows(spec: &Spec, axis: usize) -> Option<Spec> {
    if spec.dtype == DType::Variant {
        return None;
    }
    let dims = spec.dims()?;
    let rows = Dim::symbol(ROWS);
    match dims.get(axis)? {
        Dim::Unknown => {
            let before = dims[..axis].iter().cloned();
            let all = before.chain([rows]).chain(dims[axis + 1..].iter().cloned());
            Some(Spec::new(spec.dtype, all))
        }
        dim => dim.same(&rows).then(|| spec.clone()),
    }
}
