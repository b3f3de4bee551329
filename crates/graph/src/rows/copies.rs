//! Several tensors with a row each, one after another in the first dimension: what
//! `SpaceToBatchND` makes of an image, so that a convolution of its cells is one of the cells that
//! lie apart. Row r of the batch is every n-th element from r on, n being the number of rows.

use ops::RowRule;
use tensor::Spec;

use super::rules::{self, AXIS, SHAPES, UNKNOWN, Verdict};
use super::{RowsState, RowsTensor, has_one_each};
use crate::graph::Node;

/// Returns whether an op does the same with each element of the first dimension.
fn does_the_same_with_each(rule: RowRule) -> bool {
    matches!(
        rule,
        RowRule::Elementwise
            | RowRule::Images
            | RowRule::FusedImages
            | RowRule::Bias
            | RowRule::Reshape
            | RowRule::SameElements
            | RowRule::Pad
    )
}

/// Returns whether any input is made of such copies.
pub(super) fn are_copies(inputs: &[RowsTensor]) -> bool {
    inputs.iter().any(|input| matches!(input.state, RowsState::Copies(_)))
}

/// A batch is taken apart into cells: `SpaceToBatchND`.
pub(super) fn apart(inputs: &[RowsTensor], outputs: &[Spec]) -> Verdict {
    let [value, cells, paddings] = inputs else { return Err(UNKNOWN) };
    if value.state != RowsState::Rows || !has_one_each(value) {
        return Err(AXIS);
    }
    if cells.state != RowsState::Free || paddings.state != RowsState::Free {
        return Err(UNKNOWN);
    }
    if outputs.iter().any(|output| super::block(output).is_none()) {
        return Err(SHAPES);
    }
    Ok(vec![RowsState::Copies(cells.spec.ints().ok_or(SHAPES)?)])
}

/// Judges a node's outputs when an input is made of such copies.
pub(super) fn judge(node: &Node, inputs: &[RowsTensor], outputs: &[Spec]) -> Verdict {
    let rule = node.facts().rows;
    if rule == RowRule::BatchToSpace {
        return together(inputs, outputs);
    }
    if !does_the_same_with_each(rule) {
        return Err(UNKNOWN);
    }
    let first = inputs.iter().find(|input| matches!(input.state, RowsState::Copies(_)));
    let first = first.ok_or(UNKNOWN)?;
    let is_alike =
        |input: &RowsTensor| input.state == RowsState::Free || input.state == first.state;
    if !inputs.iter().all(is_alike) {
        return Err(UNKNOWN);
    }
    // Each element of the first dimension counts as a row, and must stay one, in its place.
    let as_rows = |input: &RowsTensor| match input.state {
        RowsState::Copies(_) => RowsTensor { state: RowsState::Rows, spec: input.spec.clone() },
        _ => input.clone(),
    };
    let inputs: Vec<RowsTensor> = inputs.iter().map(as_rows).collect();
    rules::judge(node, &inputs, outputs)?;
    let size = |spec: &Spec| spec.dims().and_then(<[_]>::first).cloned();
    let keeps =
        |output: &Spec| size(output).zip(size(&first.spec)).is_some_and(|(a, b)| a.same(&b));
    if !outputs.iter().all(keeps) {
        return Err(SHAPES);
    }
    Ok(outputs.iter().map(|_| first.state.clone()).collect())
}

/// The cells are put together again, as they were taken apart.
fn together(inputs: &[RowsTensor], outputs: &[Spec]) -> Verdict {
    let [value, cells, crops] = inputs else { return Err(UNKNOWN) };
    let RowsState::Copies(apart) = &value.state else { return Err(UNKNOWN) };
    if cells.state != RowsState::Free || crops.state != RowsState::Free {
        return Err(UNKNOWN);
    }
    if cells.spec.ints().as_ref() != Some(apart) {
        return Err(AXIS);
    }
    let as_rows = |spec: &Spec| RowsTensor { state: RowsState::Rows, spec: spec.clone() };
    if !outputs.iter().map(as_rows).all(|seen| has_one_each(&seen)) {
        return Err(SHAPES);
    }
    Ok(vec![RowsState::Rows])
}
