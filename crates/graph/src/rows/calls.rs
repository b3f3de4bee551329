//! Ops that call functions: loops, branches and plain calls. Their bodies are judged like any
//! graph.

use ops::{Attrs, FunctionCall};
use tensor::{DType, Dim, Spec};

use super::{DEPTH_MAX, RowsState, RowsTensor, RowsWalk, block, find, inner, refusal, walk};
use crate::error::Result;
use crate::graph::{Graph, Node};

/// The number of rounds over the states of a loop before those that still change count as mixed.
/// They can only rise, so that this is never reached but by a mistake.
const ROUNDS_MAX: usize = 8;

/// Returns whether the functions that an op calls are looked at. A choice of many is not.
pub(super) fn is_followed(calls: FunctionCall) -> bool {
    matches!(calls, FunctionCall::Plain | FunctionCall::Loop | FunctionCall::Branch)
}

/// The outputs of a call.
pub(super) fn judge(
    node: &Node,
    inputs: &[RowsTensor],
    outputs: &[Spec],
    walk: &RowsWalk<'_, '_>,
) -> Result<Vec<RowsTensor>> {
    if walk.depth >= DEPTH_MAX {
        return Err(refusal(node, "calls functions within functions, too deep to follow"));
    }
    match node.facts().calls {
        FunctionCall::Loop => repeat(node, inputs, outputs, walk),
        FunctionCall::Branch => branch(node, inputs, outputs, walk),
        FunctionCall::Plain | FunctionCall::Choice | FunctionCall::Nothing => {
            let called = call(node, "f", inputs, walk)?;
            Ok(called
                .into_iter()
                .zip(outputs)
                .map(|(seen, spec)| as_inferred(seen, spec))
                .collect())
        }
    }
}

/// A loop: what its variables are before the first iteration and after any.
fn repeat(
    node: &Node,
    inputs: &[RowsTensor],
    outputs: &[Spec],
    walk: &RowsWalk<'_, '_>,
) -> Result<Vec<RowsTensor>> {
    let args = inputs.iter().zip(outputs);
    let mut args: Vec<RowsTensor> = args.map(|(input, spec)| in_loop(node, input, spec)).collect();
    for _ in 0..ROUNDS_MAX {
        let after = call(node, "body", &args, walk)?;
        let joined: Vec<RowsTensor> =
            args.iter().zip(&after).map(|(before, after)| join(node, before, after)).collect();
        let is_settled = joined.iter().zip(&args).all(|(new, old)| new.state == old.state);
        args = joined;
        if is_settled {
            let goes_on = call(node, "cond", &args, walk)?;
            if goes_on.first().map(|seen| &seen.state) != Some(&RowsState::Free) {
                return Err(refusal(node, "runs for as long as its rows say"));
            }
            return Ok(args);
        }
    }
    Err(refusal(node, "is a loop whose rows never settle"))
}

/// A branch that is taken for all rows or for none.
fn branch(
    node: &Node,
    inputs: &[RowsTensor],
    outputs: &[Spec],
    walk: &RowsWalk<'_, '_>,
) -> Result<Vec<RowsTensor>> {
    let (condition, inputs) = inputs.split_first().ok_or_else(|| refusal(node, "has no input"))?;
    if condition.state != RowsState::Free {
        return Err(refusal(node, "takes a branch by what is in its rows"));
    }
    let one = call(node, "then_branch", inputs, walk)?;
    let other = call(node, "else_branch", inputs, walk)?;
    let joined = one.iter().zip(&other).zip(outputs);
    let either = |((one, other), spec): ((&RowsTensor, &RowsTensor), &Spec)| {
        let seen = RowsTensor { spec: common(&one.spec, &other.spec), ..join(node, one, other) };
        as_inferred(seen, spec)
    };
    Ok(joined.map(either).collect())
}

/// The common part of two specs.
fn common(one: &Spec, other: &Spec) -> Spec {
    match (one.dims(), other.dims()) {
        // What is known of a list is in its state.
        _ if one.dtype == DType::Variant => one.clone(),
        (Some(a), Some(b)) if a.len() == b.len() => {
            let dim = |(a, b): (&Dim, &Dim)| if a.same(b) { a.clone() } else { Dim::Unknown };
            Spec::new(one.dtype, a.iter().zip(b).map(dim))
        }
        _ => Spec::unknown(one.dtype),
    }
}

/// The fetches of a function for arguments that are seen so.
fn call(
    node: &Node,
    attr: &str,
    args: &[RowsTensor],
    walk: &RowsWalk<'_, '_>,
) -> Result<Vec<RowsTensor>> {
    let name =
        Attrs::new(&node.attrs).function(attr).map_err(|_| refusal(node, "calls nothing"))?;
    let body = walk.env.functions.body(name).and_then(|body| body.downcast_ref::<Graph>());
    let body = body.ok_or_else(|| refusal(node, "calls a function that is not known"))?;
    let within = RowsWalk { env: walk.env, depth: walk.depth + 1 };
    let seen = self::walk(body, args, &within)?;
    body.fetches.iter().map(|port| find(&seen, port).cloned()).collect()
}

/// A variable of a loop: its state before the first iteration, in a shape that holds in all.
fn in_loop(node: &Node, input: &RowsTensor, spec: &Spec) -> RowsTensor {
    let spec = spec.clone();
    let keeps = match &input.state {
        RowsState::Rows if block(&spec).is_some() => true,
        // One for each row, as long as the body keeps it so: see `join`.
        RowsState::Rows => match inner::as_rows(input, &spec) {
            Some(spec) => return RowsTensor { state: RowsState::Rows, spec },
            None => false,
        },
        RowsState::Inner(axis) => return inner::seen(RowsState::Inner(*axis), spec),
        RowsState::Sizes | RowsState::Copies(_) | RowsState::Sparse(..) | RowsState::Bounds => {
            false
        }
        RowsState::Free | RowsState::List(_) | RowsState::Mixed(_) => true,
    };
    let lost = || format!("{} ({}) changes the shape of its rows", node.name, node.op_name());
    let state = if keeps { input.state.clone() } else { RowsState::Mixed(lost()) };
    RowsTensor { state, spec }
}

/// The known state of a tensor that is either of two.
fn join(node: &Node, one: &RowsTensor, other: &RowsTensor) -> RowsTensor {
    let first = |seen: &RowsTensor| seen.spec.dims().and_then(|dims| dims.first().cloned());
    let has_same_rows = || first(one).zip(first(other)).is_some_and(|(a, b)| a.same(&b));
    let state = match (&one.state, &other.state) {
        (RowsState::Rows, RowsState::Rows) if !has_same_rows() => RowsState::Mixed(format!(
            "{} ({}) changes the shape of its rows",
            node.name,
            node.op_name()
        )),
        (a, b) if a == b => a.clone(),
        (RowsState::Mixed(why), _) | (_, RowsState::Mixed(why)) => RowsState::Mixed(why.clone()),
        // A list without items, or with items that are the same for all, takes those with rows.
        (RowsState::Free, RowsState::List(axis)) | (RowsState::List(axis), RowsState::Free)
            if one.spec.dtype == DType::Variant =>
        {
            RowsState::List(*axis)
        }
        _ => RowsState::Mixed(format!(
            "{} ({}) gives now rows and now something else",
            node.name,
            node.op_name()
        )),
    };
    RowsTensor { state, spec: one.spec.clone() }
}

/// The result of a function, in the shape that the call is inferred to have if that says more.
fn as_inferred(seen: RowsTensor, spec: &Spec) -> RowsTensor {
    let keeps = match &seen.state {
        RowsState::Rows => block(spec).is_some(),
        RowsState::Free => spec.rank().is_some() || seen.spec.rank().is_none(),
        _ => false,
    };
    if keeps { RowsTensor { spec: spec.clone(), ..seen } } else { seen }
}
