//! Sparse features: tensors with an entry for each value that any row has.
//!
//! The entries of a batch are those of its rows one after another. What has as many elements as
//! there are entries belongs to a *group*: which entry is of which row. Each part of a sparse
//! tensor says of its group:
//!
//! - *entries*: an element each, which depends on its own row alone;
//! - *indices*: the number of its row, and of its place there; *segments*: the former alone;
//! - *positions*: which entries of another group are those of this one;
//! - *dictionary* and *codes*: each different element once, and for each entry which one it is.
//!   What is looked up for the dictionary and then by the codes is looked up for each entry.
//!
//! A sparse tensor's shape is *bounds*: the number of rows, and the length of the longest. What has
//! the width of the longest row depends on the others, and is mixed.

use std::sync::Arc;

use ops::{Attrs, RowRule};
use tensor::{DType, Dim, Spec, Value};

use super::rules::{AXIS, UNKNOWN};
use super::{ROWS, RowsState, RowsTensor};
use crate::graph::Node;

/// The assignment of entries to rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    name: Arc<str>,
    /// `true` if every row has an entry.
    is_full: bool,
}

/// The role of a tensor among the parts of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    Entries,
    Indices,
    Segments,
    /// Of this other group.
    Positions(Group),
    Dictionary,
    Codes,
}

type Judged = Result<Vec<RowsTensor>, &'static str>;

const TRAILING: &str = "has no row for what has no entry";
const NUMBERS: &str = "reads the numbers of rows";

impl Group {
    fn for_part(node: &Node, part: usize) -> Self {
        Self { name: format!("{}:{part}", node.name).into(), is_full: false }
    }

    #[cfg(test)]
    pub(super) fn full(name: &str) -> Self {
        Self { name: name.into(), is_full: true }
    }

    fn seen(&self, part: Part, spec: &Spec) -> RowsTensor {
        RowsTensor { state: RowsState::Sparse(part, self.clone()), spec: spec.clone() }
    }
}

/// The sparse outputs of a parser, of which there are `n`: all indices, all values, all shapes.
pub(super) fn parsed(node: &Node, n: usize, number: usize, output: &Spec) -> Option<RowsTensor> {
    let group = Group::for_part(node, number.checked_rem(n)?);
    match number / n {
        0 => Some(group.seen(Part::Indices, output)),
        1 => Some(group.seen(Part::Entries, output)),
        2 => Some(bounds(output)),
        _ => None,
    }
}

/// The shape of a sparse tensor of two dimensions, the rows first.
pub(super) fn bounds(output: &Spec) -> RowsTensor {
    let sizes: [Dim; 2] = [Dim::symbol(ROWS), Dim::Unknown];
    let spec = Spec::new(output.dtype, [Dim::Known(2)]);
    RowsTensor {
        state: RowsState::Bounds,
        spec: Spec { value: Value::Sizes(Arc::from(sizes)), ..spec },
    }
}

/// The number of elements of a tensor of sizes, if the spec may be one.
pub(super) fn n_sizes(spec: &Spec) -> Option<usize> {
    if !matches!(spec.dtype, DType::I32 | DType::I64) {
        return None;
    }
    match spec.dims()? {
        [] => Some(1),
        [n] => n.size(),
        _ => None,
    }
}

/// Sizes of which none is known, where it is not even known that they are sizes.
pub(super) fn with_sizes(spec: Spec) -> Spec {
    match (spec.sizes(), n_sizes(&spec)) {
        (None, Some(n)) => Spec { value: Value::Sizes(vec![Dim::Unknown; n].into()), ..spec },
        _ => spec,
    }
}

/// Returns whether any input is a part of a sparse tensor.
pub(super) fn is_sparse(inputs: &[RowsTensor]) -> bool {
    inputs.iter().any(|input| matches!(input.state, RowsState::Sparse(..)))
}

/// Judges the outputs of a node that reads parts of sparse tensors.
#[expect(clippy::wildcard_enum_match_arm, reason = "the other rules are for tensors with rows")]
pub(super) fn judge(node: &Node, inputs: &[RowsTensor], outputs: &[Spec]) -> Judged {
    match node.facts().rows {
        RowRule::SparseReshape => reshape(inputs, outputs),
        RowRule::SparseFillEmptyRows => fill(node, inputs, outputs),
        RowRule::Where => positions(node, inputs, outputs),
        RowRule::Reshape => flatten(inputs, outputs),
        RowRule::Gather | RowRule::GatherV2 => gather(node, inputs, outputs),
        RowRule::StridedSlice => segments(node, inputs, outputs),
        RowRule::Unique => unique(inputs, outputs),
        RowRule::SparseSegments => {
            let [data, codes, segments] = inputs else { return Err(UNKNOWN) };
            let group = looked_up(data, codes).ok_or(UNKNOWN)?;
            reduced(group, segments, outputs)
        }
        RowRule::Segments => {
            let [data, segments] = inputs else { return Err(UNKNOWN) };
            reduced(group_of(data, &Part::Entries).ok_or(UNKNOWN)?, segments, outputs)
        }
        RowRule::Lookup => one_each(&inputs[1..], outputs),
        RowRule::Elementwise => one_each(inputs, outputs),
        _ => Err(NUMBERS),
    }
}

/// The group of a tensor that is this part of one.
fn group_of<'a>(seen: &'a RowsTensor, wanted: &Part) -> Option<&'a Group> {
    match &seen.state {
        RowsState::Sparse(part, group) if part == wanted => Some(group),
        _ => None,
    }
}

/// Returns whether a shape has as many rows as there are, and one dimension more.
fn is_of_rows(shape: &RowsTensor) -> bool {
    let sizes = shape.spec.sizes();
    sizes.is_some_and(|sizes| sizes.len() == 2 && sizes[0].same(&Dim::symbol(ROWS)))
}

/// Another shape with the same rows is the same shape.
fn reshape(inputs: &[RowsTensor], outputs: &[Spec]) -> Judged {
    let [indices, shape, new_shape] = inputs else { return Err(UNKNOWN) };
    let group = group_of(indices, &Part::Indices).ok_or(UNKNOWN)?;
    if !is_of_rows(shape) || !is_of_rows(new_shape) {
        return Err(AXIS);
    }
    Ok(vec![group.seen(Part::Indices, &outputs[0]), bounds(&outputs[1])])
}

/// Rows without an entry get one.
fn fill(node: &Node, inputs: &[RowsTensor], outputs: &[Spec]) -> Judged {
    let [indices, values, shape, default] = inputs else { return Err(UNKNOWN) };
    let group = group_of(indices, &Part::Indices).ok_or(UNKNOWN)?;
    let fits = group_of(values, &Part::Entries) == Some(group)
        && is_of_rows(shape)
        && default.state == RowsState::Free;
    if !fits {
        return Err(UNKNOWN);
    }
    let full = Group { is_full: true, ..Group::for_part(node, 0) };
    let was_empty = Spec::new(DType::Bool, [Dim::symbol(ROWS)]);
    let back = RowsState::Mixed(format!("{} gives the places of all entries", node.name));
    Ok(vec![
        full.seen(Part::Indices, &outputs[0]),
        full.seen(Part::Entries, &outputs[1]),
        RowsTensor { state: RowsState::Rows, spec: was_empty },
        RowsTensor { state: back, spec: outputs[3].clone() },
    ])
}

/// The places of those entries that are true.
fn positions(node: &Node, inputs: &[RowsTensor], outputs: &[Spec]) -> Judged {
    let [flags] = inputs else { return Err(UNKNOWN) };
    let group = group_of(flags, &Part::Entries).ok_or(UNKNOWN)?;
    if flags.spec.rank() != Some(1) {
        return Err(UNKNOWN);
    }
    let part = Part::Positions(group.clone());
    Ok(vec![Group::for_part(node, 0).seen(part, &outputs[0])])
}

/// Positions, or entries of one element, as a vector.
fn flatten(inputs: &[RowsTensor], outputs: &[Spec]) -> Judged {
    let [value, shape] = inputs else { return Err(UNKNOWN) };
    let is_vector = shape.spec.ints().is_some_and(|sizes| sizes == [-1]);
    let dims = value.spec.dims().unwrap_or_default();
    let is_flat = dims.iter().skip(1).all(|dim| dim.known() == Some(1)) && !dims.is_empty();
    let RowsState::Sparse(part @ (Part::Positions(_) | Part::Entries), group) = &value.state else {
        return Err(UNKNOWN);
    };
    if is_vector && is_flat {
        Ok(vec![group.seen(part.clone(), &outputs[0])])
    } else {
        Err(UNKNOWN)
    }
}

/// Some entries of a group, or what is looked up for each.
fn gather(node: &Node, inputs: &[RowsTensor], outputs: &[Spec]) -> Judged {
    let [params, at, axis @ ..] = inputs else { return Err(UNKNOWN) };
    let is_first = |axis: &RowsTensor| axis.spec.ints().is_some_and(|axes| axes == [0]);
    let batch_dims = Attrs::new(&node.attrs).int_or("batch_dims", 0).map_err(|_| UNKNOWN)?;
    if batch_dims != 0 || !axis.iter().all(is_first) || at.spec.rank() != Some(1) {
        return Err(AXIS);
    }
    let seen = match (&params.state, &at.state) {
        (
            RowsState::Sparse(part @ (Part::Entries | Part::Indices), all),
            RowsState::Sparse(picks, group),
        ) if *picks == Part::Positions(all.clone()) => group.seen(part.clone(), &outputs[0]),
        (RowsState::Free, RowsState::Sparse(part @ (Part::Entries | Part::Dictionary), group)) => {
            group.seen(part.clone(), &outputs[0])
        }
        _ => return Err(UNKNOWN),
    };
    Ok(vec![seen])
}

/// `indices[:, 0]`: the row of each entry.
fn segments(node: &Node, inputs: &[RowsTensor], outputs: &[Spec]) -> Judged {
    let [indices, begin, end, strides] = inputs else { return Err(UNKNOWN) };
    let group = group_of(indices, &Part::Indices).ok_or(UNKNOWN)?;
    let attrs = Attrs::new(&node.attrs);
    let mask = |name: &str| attrs.int_or(name, 0).unwrap_or(-1);
    let masks = ["begin_mask", "end_mask", "shrink_axis_mask", "new_axis_mask", "ellipsis_mask"];
    let is_column = masks.map(mask) == [1, 1, 2, 0, 0]
        && begin.spec.ints().is_some_and(|begin| begin.get(1) == Some(&0))
        && end.spec.ints().is_some_and(|end| end.len() == 2)
        && strides.spec.ints().is_some_and(|strides| strides == [1, 1]);
    if is_column { Ok(vec![group.seen(Part::Segments, &outputs[0])]) } else { Err(NUMBERS) }
}

fn unique(inputs: &[RowsTensor], outputs: &[Spec]) -> Judged {
    let [values] = inputs else { return Err(UNKNOWN) };
    let group = group_of(values, &Part::Entries).ok_or(UNKNOWN)?;
    let [dictionary, codes] = outputs else { return Err(UNKNOWN) };
    Ok(vec![group.seen(Part::Dictionary, dictionary), group.seen(Part::Codes, codes)])
}

/// The group of what is looked up for each entry: by the codes of a dictionary, or by the entries.
fn looked_up<'a>(data: &RowsTensor, indices: &'a RowsTensor) -> Option<&'a Group> {
    match &data.state {
        RowsState::Free => group_of(indices, &Part::Entries),
        _ => group_of(indices, &Part::Codes)
            .filter(|group| group_of(data, &Part::Dictionary) == Some(group)),
    }
}

/// The entries of each row together, in their order. A row without entries would have none.
fn reduced(group: &Group, segments: &RowsTensor, outputs: &[Spec]) -> Judged {
    let [output] = outputs else { return Err(UNKNOWN) };
    if group_of(segments, &Part::Segments) != Some(group) {
        return Err(UNKNOWN);
    }
    if !group.is_full {
        return Err(TRAILING);
    }
    let dims = output.dims().ok_or(UNKNOWN)?;
    let dims = std::iter::once(Dim::symbol(ROWS)).chain(dims.iter().skip(1).cloned());
    Ok(vec![RowsTensor { state: RowsState::Rows, spec: Spec::new(output.dtype, dims) }])
}

/// Each element from those of the same entry, and from what is the same for all.
fn one_each(inputs: &[RowsTensor], outputs: &[Spec]) -> Judged {
    let sparse = |input: &RowsTensor| match &input.state {
        RowsState::Sparse(part @ (Part::Entries | Part::Dictionary), group) => {
            Some((part.clone(), group.clone()))
        }
        _ => None,
    };
    let (part, group) = inputs.iter().find_map(sparse).ok_or(NUMBERS)?;
    for input in inputs {
        let fits = match &input.state {
            RowsState::Sparse(other, of) => (other, of) == (&part, &group),
            RowsState::Free => input.spec.rank() == Some(0),
            _ => false,
        };
        if !fits {
            return Err(UNKNOWN);
        }
    }
    Ok(outputs.iter().map(|output| group.seen(part.clone(), output)).collect())
}

#[cfg(test)]
mod tests;
