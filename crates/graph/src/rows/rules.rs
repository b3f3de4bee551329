//! The rules of ops applied to attributes and shapes: whether rows stay apart.

use ops::{Attrs, RowRule};
use tensor::{Dim, Spec};

use super::{RowsState, RowsTensor, block, copies, has_one_each, inner, is_free, sparse};
use crate::graph::Node;

/// The states of the outputs, or the reason that rows are mixed.
pub(super) type Verdict = Result<Vec<RowsState>, &'static str>;

pub(super) const UNKNOWN: &str = "is not known to keep rows apart";
const SIZE: &str = "computes with the number of rows";
pub(super) const SHAPES: &str = "has shapes that are not known to keep rows apart";
pub(super) const AXIS: &str = "works along the first dimension";
const WIDTH: &str = "has a width that depends on the other rows";

/// Judges a node's outputs. No input is mixed.
///
/// What has rows is as wide in any batch: it follows from inputs that have rows or are free. Where
/// an op reads sizes too, each width must be known not to come from the number of rows.
pub(super) fn judge(node: &Node, inputs: &[RowsTensor], outputs: &[Spec]) -> Verdict {
    let states = by_op(node, inputs, outputs)?;
    let reads_sizes = inputs.iter().any(|input| input.state == RowsState::Sizes);
    let is_open =
        |(state, output): (&RowsState, &Spec)| *state == RowsState::Rows && !is_width_free(output);
    if reads_sizes && states.iter().zip(outputs).any(is_open) {
        return Err(SIZE);
    }
    Ok(states)
}

fn by_op(node: &Node, inputs: &[RowsTensor], outputs: &[Spec]) -> Verdict {
    let has = |state: &RowsState| inputs.iter().any(|input| input.state == *state);
    if inputs.iter().any(|input| matches!(input.state, RowsState::Inner(_) | RowsState::List(_))) {
        return inner::judge(node, inputs, outputs);
    }
    if copies::are_copies(inputs) {
        return copies::judge(node, inputs, outputs);
    }
    if has(&RowsState::Bounds) && outputs.iter().any(|output| !is_width_free(output)) {
        return bounded(node, inputs, outputs);
    }
    if !has(&RowsState::Rows) {
        return if has(&RowsState::Bounds) {
            bounded(node, inputs, outputs)
        } else if has(&RowsState::Sizes) {
            from_sizes(node, inputs, outputs)
        } else {
            all(outputs, &RowsState::Free)
        };
    }
    by_rule(node, inputs, outputs)
}

/// Judges the outputs where some input has rows, and none has them elsewhere.
fn by_rule(node: &Node, inputs: &[RowsTensor], outputs: &[Spec]) -> Verdict {
    match node.facts().rows {
        RowRule::Elementwise => broadcast(inputs, outputs),
        RowRule::DecodeRaw => first_only(inputs, outputs, 1),
        RowRule::LastAxis | RowRule::Bias => first_only(inputs, outputs, 2),
        RowRule::Images | RowRule::Matrices => first_only(inputs, outputs, 3),
        RowRule::Linear => product(inputs, outputs, 2),
        RowRule::FusedImages => product(inputs, outputs, 3),
        RowRule::Reshape | RowRule::SameElements => reshape(inputs, outputs),
        RowRule::Shape | RowRule::ShapeN => {
            Ok(outputs.iter().map(|output| sizes(node, output)).collect())
        }
        RowRule::BroadcastTo => broadcast(&inputs[..1], outputs),
        RowRule::Tile => tile(inputs, outputs),
        RowRule::MatMul => matmul(node, inputs, outputs),
        RowRule::BatchMatMul => batch_matmul(inputs, outputs),
        RowRule::Einsum => einsum(node, inputs, outputs),
        RowRule::ConvTranspose => transposed(inputs, outputs),
        RowRule::SpaceToBatch => copies::apart(inputs, outputs),
        RowRule::Suppression => suppression(inputs, outputs),
        RowRule::BatchNorm => batch_norm(node, inputs, outputs),
        RowRule::Select => select(inputs, outputs),
        RowRule::Concat => concat(inputs, outputs, 0),
        RowRule::ConcatV2 => concat(inputs, outputs, inputs.len() - 1),
        RowRule::Pack | RowRule::Unpack => pack(node, inputs, outputs),
        RowRule::Along { value, axes } => along(inputs, outputs, value, axes),
        RowRule::Reverse => along(inputs, outputs, 0, 1),
        RowRule::Transpose | RowRule::ConjugateTranspose => inner::transpose(inputs, outputs),
        RowRule::Gather | RowRule::GatherV2 | RowRule::GatherNd => gather(node, inputs, outputs),
        RowRule::Lookup => lookup(inputs, outputs),
        RowRule::StridedSlice => strided_slice(node, inputs, outputs),
        RowRule::Slice => slice(inputs, outputs),
        RowRule::Pad | RowRule::MirrorPad => pad(inputs, outputs),
        RowRule::OneHot => one_hot(node, inputs, outputs),
        RowRule::ListPut => inner::put(inputs, outputs),
        RowRule::Pieces => Err("gives as many pieces as all rows have together"),
        RowRule::Widest => Err(WIDTH),
        RowRule::Mixed
        | RowRule::Fill
        | RowRule::BatchToSpace
        | RowRule::ListFromTensor
        | RowRule::ListGet
        | RowRule::ListStack
        | RowRule::ListLength
        | RowRule::ParseExample { .. }
        | RowRule::SparseReshape
        | RowRule::SparseFillEmptyRows
        | RowRule::Where
        | RowRule::Unique
        | RowRule::Segments
        | RowRule::SparseSegments => Err(UNKNOWN),
    }
}

/// Returns whether no dimension but the first may depend on the batch.
fn is_width_free(spec: &Spec) -> bool {
    spec.dims().is_some_and(|dims| dims.iter().skip(1).all(is_free))
}

/// Outputs of ops that compute with the bounds of sparse tensors: sizes, as far as they are known,
/// and else what the longest row decides.
fn bounded(node: &Node, inputs: &[RowsTensor], outputs: &[Spec]) -> Verdict {
    if inputs.iter().any(|input| input.state == RowsState::Rows) {
        return Err(WIDTH);
    }
    let of = |output: &Spec| match output.sizes() {
        Some(known) if known.iter().all(|dim| !matches!(dim, Dim::Unknown)) => sizes(node, output),
        Some(_) => RowsState::Bounds,
        None if sparse::n_sizes(output).is_some() => RowsState::Bounds,
        None => RowsState::Mixed(format!("{} ({}) {WIDTH}", node.name, node.op_name())),
    };
    Ok(outputs.iter().map(of).collect())
}

/// Outputs of ops none of whose inputs has rows, but some are sizes.
fn from_sizes(node: &Node, inputs: &[RowsTensor], outputs: &[Spec]) -> Verdict {
    let rule = node.facts().rows;
    let is_filled = if rule == RowRule::Fill {
        inputs[1].state == RowsState::Free
    } else if matches!(rule, RowRule::BroadcastTo | RowRule::Tile) {
        // Every row is the same.
        inputs[0].state == RowsState::Free && is_one_row(&inputs[0].spec, &outputs[0])
    } else {
        false
    };
    if is_filled && block(&outputs[0]).is_some() {
        return Ok(vec![RowsState::Rows]);
    }
    Ok(outputs.iter().map(|output| sizes(node, output)).collect())
}

/// A tensor that depends on nothing but shapes: free if its elements are known not to depend on the
/// number of rows.
pub(super) fn sizes(node: &Node, output: &Spec) -> RowsState {
    match output.sizes() {
        Some(sizes) if sizes.iter().all(is_free) => RowsState::Free,
        Some(_) => RowsState::Sizes,
        None => RowsState::Mixed(format!("{} ({}) {SIZE}", node.name, node.op_name())),
    }
}

/// All outputs in one state.
fn all(outputs: &[Spec], state: &RowsState) -> Verdict {
    Ok(outputs.iter().map(|_| state.clone()).collect())
}

/// All outputs have rows, if their shapes say so.
fn rows(outputs: &[Spec]) -> Verdict {
    if outputs.iter().any(|output| block(output).is_none()) {
        return Err(SHAPES);
    }
    if outputs.iter().any(is_as_wide_as_the_batch) {
        return Err(SIZE);
    }
    all(outputs, &RowsState::Rows)
}

/// Returns whether a dimension but the first is known to depend on the number of rows.
fn is_as_wide_as_the_batch(spec: &Spec) -> bool {
    let depends = |dim: &Dim| !matches!(dim, Dim::Unknown) && !is_free(dim);
    spec.dims().is_some_and(|dims| dims.iter().skip(1).any(depends))
}

/// The first input has rows and at least `rank_min` dimensions; the others are free.
fn first_only(inputs: &[RowsTensor], outputs: &[Spec], rank_min: usize) -> Verdict {
    let (first, others) = inputs.split_first().ok_or(UNKNOWN)?;
    if first.state != RowsState::Rows || others.iter().any(|other| other.state != RowsState::Free) {
        return Err(UNKNOWN);
    }
    if first.spec.rank().is_none_or(|rank| rank < rank_min) {
        return Err(SHAPES);
    }
    rows(outputs)
}

/// Returns whether a tensor has only one row, or none of its own, when it is broadcast to `to`.
fn is_one_row(spec: &Spec, to: &Spec) -> bool {
    let (Some(dims), Some(rank)) = (spec.dims(), to.rank()) else { return false };
    dims.len() < rank || dims.first().is_some_and(|dim| dim.known() == Some(1))
}

/// Inputs with rows have as many dimensions as the output and the same first; the others are free
/// and the same for every row.
fn broadcast(inputs: &[RowsTensor], outputs: &[Spec]) -> Verdict {
    for output in outputs {
        let first = output.dims().and_then(<[_]>::first).ok_or(SHAPES)?;
        for input in inputs {
            let fits = match input.state {
                RowsState::Rows => {
                    let dims = input.spec.dims().ok_or(SHAPES)?;
                    Some(dims.len()) == output.rank() && dims[0].same(first)
                }
                RowsState::Free => is_one_row(&input.spec, output),
                RowsState::Sizes => return Err(SIZE),
                _ => false,
            };
            if !fits {
                return Err(SHAPES);
            }
        }
    }
    rows(outputs)
}

fn matmul(node: &Node, inputs: &[RowsTensor], outputs: &[Spec]) -> Verdict {
    if Attrs::new(&node.attrs).bool_or("transpose_a", false) != Ok(false) {
        return Err(AXIS);
    }
    product(inputs, outputs, 2)
}

/// The first input has rows and at least `rank_min` dimensions; the others are free, or are added
/// row by row.
fn product(inputs: &[RowsTensor], outputs: &[Spec], rank_min: usize) -> Verdict {
    let is_added = |input: &RowsTensor| input.state == RowsState::Rows;
    let (added, operands): (Vec<_>, Vec<_>) =
        inputs.iter().enumerate().partition(|(number, input)| *number > 0 && is_added(input));
    let operands: Vec<RowsTensor> = operands.into_iter().map(|(_, input)| input.clone()).collect();
    let added: Vec<RowsTensor> = added.into_iter().map(|(_, input)| input.clone()).collect();
    broadcast(&added, outputs)?;
    first_only(&operands, outputs, rank_min)
}

/// Transposed convolutions: the shape of the result, the filter, and what has rows.
fn transposed(inputs: &[RowsTensor], outputs: &[Spec]) -> Verdict {
    let [_, filter, value] = inputs else { return Err(UNKNOWN) };
    let is_plain = filter.state == RowsState::Free && value.state == RowsState::Rows;
    if !is_plain || !has_one_each(value) {
        return Err(UNKNOWN);
    }
    let as_rows = |spec: &Spec| RowsTensor { state: RowsState::Rows, spec: spec.clone() };
    if outputs.iter().map(as_rows).any(|output| !has_one_each(&output)) {
        return Err(SHAPES);
    }
    rows(outputs)
}

/// Boxes and scores of each image; what is kept of one does not depend on the others.
fn suppression(inputs: &[RowsTensor], outputs: &[Spec]) -> Verdict {
    let [boxes, scores, others @ ..] = inputs else { return Err(UNKNOWN) };
    let are_rows = [boxes, scores].iter().all(|input| input.state == RowsState::Rows);
    if !are_rows || others.iter().any(|other| other.state != RowsState::Free) {
        return Err(UNKNOWN);
    }
    if ![boxes, scores].into_iter().all(has_one_each) {
        return Err(SHAPES);
    }
    rows(outputs)
}

/// Batched products: dimensions before the last two are broadcast.
fn batch_matmul(inputs: &[RowsTensor], outputs: &[Spec]) -> Verdict {
    let output = outputs.first().ok_or(UNKNOWN)?;
    let rank = output.rank().ok_or(SHAPES)?;
    let is_product = |input: &RowsTensor| match input.state {
        RowsState::Rows => rank >= 3 && input.spec.rank() == Some(rank),
        RowsState::Free => is_one_row(&input.spec, output),
        _ => false,
    };
    // A matrix of rows times weights: the rows are in the first of the last two dimensions.
    if rank == 2 {
        return Err(SHAPES);
    }
    if !inputs.iter().all(is_product) {
        return Err(SHAPES);
    }
    rows(outputs)
}

/// The rows have one label, the first of every operand that has rows and of the output, and no
/// other operand has it.
fn einsum(node: &Node, inputs: &[RowsTensor], outputs: &[Spec]) -> Verdict {
    let equation = Attrs::new(&node.attrs).str("equation").map_err(|_| UNKNOWN)?;
    let (left, right) = equation.split_once("->").ok_or(UNKNOWN)?;
    let label = right.trim().chars().next().filter(char::is_ascii_alphabetic).ok_or(UNKNOWN)?;
    let operands: Vec<&str> = left.split(',').map(str::trim).collect();
    if operands.len() != inputs.len() {
        return Err(UNKNOWN);
    }
    for (operand, input) in operands.iter().zip(inputs) {
        let n_times = operand.chars().filter(|c| *c == label).count();
        let fits = match input.state {
            RowsState::Rows => operand.starts_with(label) && n_times == 1,
            RowsState::Free => n_times == 0,
            _ => false,
        };
        if !fits {
            return Err(AXIS);
        }
    }
    rows(outputs)
}

fn batch_norm(node: &Node, inputs: &[RowsTensor], outputs: &[Spec]) -> Verdict {
    if Attrs::new(&node.attrs).bool_or("is_training", true) != Ok(false) {
        return Err("takes the mean over the batch");
    }
    first_only(inputs, &outputs[..1], 3)?;
    // The other outputs are for training.
    let other = RowsState::Mixed(format!("{} gives statistics", node.name));
    Ok((0..outputs.len()).map(|i| if i == 0 { RowsState::Rows } else { other.clone() }).collect())
}

/// The condition may also be a vector with one element for each row.
fn select(inputs: &[RowsTensor], outputs: &[Spec]) -> Verdict {
    let [condition, values @ ..] = inputs else { return Err(UNKNOWN) };
    if condition.state == RowsState::Rows && condition.spec.rank() == Some(1) {
        let first = &condition.spec.dims().ok_or(SHAPES)?[0];
        let output = outputs[0].dims().and_then(<[_]>::first).ok_or(SHAPES)?;
        return if first.same(output) { broadcast(values, outputs) } else { Err(SHAPES) };
    }
    broadcast(inputs, outputs)
}

fn concat(inputs: &[RowsTensor], outputs: &[Spec], axis_at: usize) -> Verdict {
    not_first(&inputs[axis_at].spec, outputs[0].rank())?;
    let values = inputs.iter().enumerate().filter(|(i, _)| *i != axis_at);
    for (_, value) in values {
        // A free tensor cannot have a row for each row.
        if value.state != RowsState::Rows {
            return Err(SHAPES);
        }
    }
    rows(outputs)
}

/// `Pack` and `Unpack` along an axis that is an attribute.
fn pack(node: &Node, inputs: &[RowsTensor], outputs: &[Spec]) -> Verdict {
    let axis = Attrs::new(&node.attrs).int_or("axis", 0).map_err(|_| UNKNOWN)?;
    let is_pack = node.facts().rows == RowRule::Pack;
    let rank = if is_pack { outputs[0].rank() } else { inputs[0].spec.rank() };
    let rank = i64::try_from(rank.ok_or(SHAPES)?).map_err(|_| SHAPES)?;
    if inputs.iter().any(|input| input.state != RowsState::Rows) {
        return Err(SHAPES);
    }
    match axis == 0 || axis == -rank {
        // A step after another: rows are one dimension further in.
        true if is_pack => inner::at(outputs, 1),
        true => Err(AXIS),
        false => rows(outputs),
    }
}

/// Ops along axes that are an input: those axes do not include the first.
fn along(inputs: &[RowsTensor], outputs: &[Spec], value: usize, axes: usize) -> Verdict {
    if inputs.get(value).map(|input| &input.state) != Some(&RowsState::Rows) {
        return Err(UNKNOWN);
    }
    let others = inputs.iter().enumerate().filter(|(i, _)| *i != value);
    if others.into_iter().any(|(_, other)| other.state != RowsState::Free) {
        return Err(UNKNOWN);
    }
    not_first(&inputs[axes].spec, inputs[value].spec.rank())?;
    rows(outputs)
}

/// Fails unless axes are known, and none is the first of `rank` dimensions.
fn not_first(axes: &Spec, rank: Option<usize>) -> Result<(), &'static str> {
    let axes = axes.ints().ok_or(SHAPES)?;
    let rank = i64::try_from(rank.ok_or(SHAPES)?).map_err(|_| SHAPES)?;
    let is_first = |axis: &i64| *axis == 0 || *axis == -rank;
    if axes.iter().any(is_first) { Err(AXIS) } else { Ok(()) }
}

/// Elements stay in their order, so that equal blocks stay equal blocks if the batch goes into the
/// first dimension before and after.
fn reshape(inputs: &[RowsTensor], outputs: &[Spec]) -> Verdict {
    if inputs[0].state != RowsState::Rows {
        return Err(UNKNOWN);
    }
    rows(outputs)
}

fn gather(node: &Node, inputs: &[RowsTensor], outputs: &[Spec]) -> Verdict {
    let batch_dims = Attrs::new(&node.attrs).int_or("batch_dims", 0).map_err(|_| UNKNOWN)?;
    let rule = node.facts().rows;
    let [params, indices, axis @ ..] = inputs else { return Err(UNKNOWN) };
    if axis.iter().any(|axis| axis.state != RowsState::Free) {
        return Err(UNKNOWN);
    }
    match (&params.state, &indices.state) {
        // Looked up in a table: the output begins with the dimensions of the indices.
        (RowsState::Free, RowsState::Rows) if batch_dims == 0 => {
            let rank = indices.spec.rank().ok_or(SHAPES)?;
            let rank_min = if rule == RowRule::GatherNd { 2 } else { 1 };
            if rank < rank_min {
                return Err(SHAPES);
            }
            for axis in axis {
                if axis.spec.ints().is_none_or(|axes| axes != [0]) {
                    return Err(AXIS);
                }
            }
        }
        (RowsState::Rows, RowsState::Free) if batch_dims == 0 && rule == RowRule::GatherV2 => {
            let [axis] = axis else { return Err(UNKNOWN) };
            not_first(&axis.spec, params.spec.rank())?;
        }
        (RowsState::Rows, RowsState::Rows) if batch_dims >= 1 => {
            let first = |seen: &RowsTensor| seen.spec.dims().and_then(<[_]>::first).cloned();
            let same = first(params).zip(first(indices)).is_some_and(|(a, b)| a.same(&b));
            if !same {
                return Err(SHAPES);
            }
        }
        _ => return Err(AXIS),
    }
    rows(outputs)
}

/// Tables are filled before anything is served: those that requests change are not `HashTable`s.
fn lookup(inputs: &[RowsTensor], outputs: &[Spec]) -> Verdict {
    let [table, keys, default] = inputs else { return Err(UNKNOWN) };
    if table.state != RowsState::Free
        || default.state != RowsState::Free
        || keys.state != RowsState::Rows
    {
        return Err(UNKNOWN);
    }
    rows(outputs)
}

fn strided_slice(node: &Node, inputs: &[RowsTensor], outputs: &[Spec]) -> Verdict {
    let attrs = Attrs::new(&node.attrs);
    let mask = |name: &str| attrs.int_or(name, 0).unwrap_or(0) & 1 == 1;
    if inputs[0].state != RowsState::Rows || mask("new_axis_mask") || mask("shrink_axis_mask") {
        return Err(AXIS);
    }
    let stride = inputs.get(3).and_then(|strides| strides.spec.ints());
    let is_all =
        mask("begin_mask") && mask("end_mask") && stride.is_some_and(|s| s.first() == Some(&1));
    if !is_all && !mask("ellipsis_mask") {
        return Err(AXIS);
    }
    same_first(inputs, outputs)
}

/// The first dimension stays as it was.
fn same_first(inputs: &[RowsTensor], outputs: &[Spec]) -> Verdict {
    let first = |spec: &Spec| spec.dims().and_then(<[_]>::first).cloned();
    let same = first(&inputs[0].spec).zip(first(&outputs[0])).is_some_and(|(a, b)| a.same(&b));
    if same { rows(outputs) } else { Err(SHAPES) }
}

fn slice(inputs: &[RowsTensor], outputs: &[Spec]) -> Verdict {
    let begin = inputs[1].spec.ints().ok_or(SHAPES)?;
    if inputs[0].state != RowsState::Rows || begin.first() != Some(&0) {
        return Err(AXIS);
    }
    same_first(inputs, outputs)
}

fn pad(inputs: &[RowsTensor], outputs: &[Spec]) -> Verdict {
    let paddings = inputs[1].spec.as_constant().and_then(|value| value.view().to_i64());
    if inputs.iter().skip(1).any(|input| input.state != RowsState::Free) {
        return Err(UNKNOWN);
    }
    match paddings.as_deref() {
        Some([0, 0, ..]) => same_first(inputs, outputs),
        Some(_) => Err(AXIS),
        None => Err(SHAPES),
    }
}

fn tile(inputs: &[RowsTensor], outputs: &[Spec]) -> Verdict {
    let multiples = inputs[1].spec.sizes().ok_or(SHAPES)?;
    let is_once = multiples.first().is_some_and(|first| first.known() == Some(1));
    if inputs[0].state != RowsState::Rows || !is_once || !multiples.iter().all(is_free) {
        return Err(AXIS);
    }
    same_first(inputs, outputs)
}

fn one_hot(node: &Node, inputs: &[RowsTensor], outputs: &[Spec]) -> Verdict {
    let axis = Attrs::new(&node.attrs).int_or("axis", -1).map_err(|_| UNKNOWN)?;
    let rank = outputs[0].rank().and_then(|rank| i64::try_from(rank).ok()).ok_or(SHAPES)?;
    if axis == 0 || axis == -rank {
        return Err(AXIS);
    }
    first_only(inputs, outputs, 1)
}

/// Judges the outputs of a parser of examples: dense features have a row for each example, sparse
/// ones entries.
pub(super) fn parsed(
    node: &Node,
    inputs: &[RowsTensor],
    outputs: &[Spec],
) -> Option<Result<Vec<RowsTensor>, &'static str>> {
    let RowRule::ParseExample { n_sparse: counted } = node.facts().rows else { return None };
    let (first, others) = inputs.split_first()?;
    if first.state == RowsState::Free {
        return None;
    }
    let is_plain = first.state == RowsState::Rows && first.spec.rank() == Some(1);
    if !is_plain || others.iter().any(|other| other.state != RowsState::Free) {
        return Some(Err(UNKNOWN));
    }
    let n_sparse = Attrs::new(&node.attrs).int_or(counted, 0).ok();
    let n_sparse = n_sparse.and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    let ragged = || RowsState::Mixed("a ragged feature has as many values as all rows".to_owned());
    let filled = |node: &Node| format!("{} ({}) {WIDTH}", node.name, node.op_name());
    let of = |(number, output): (usize, &Spec)| {
        sparse::parsed(node, n_sparse, number, output).unwrap_or_else(|| {
            let state = match block(output) {
                None => ragged(),
                Some(_) if !is_width_free(output) => RowsState::Mixed(filled(node)),
                Some(_) => RowsState::Rows,
            };
            RowsTensor { state, spec: output.clone() }
        })
    };
    Some(Ok(outputs.iter().enumerate().map(of).collect()))
}
