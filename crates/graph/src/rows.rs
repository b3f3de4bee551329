//! The proof that the rows of a batch are independent of each other, so that tasks may be run
//! together.
//!
//! Every input has the batch symbol as its first dimension. A tensor is then one of these:
//!
//! - *free*: the same, whatever the batch;
//! - *sizes*: known to depend on the number of rows and on nothing else, such as a shape;
//! - *rows*: as many equal blocks, one after another, as there are rows, and each block depends on
//!   its own row alone. The first dimension is a multiple of the batch symbol, and the others are
//!   the same in any batch: where one is not known, it has a symbol of its own;
//! - *inner*: as rows, but in a dimension further in, whose size is the number of rows: a sequence
//!   with its steps first;
//! - *list*: a list of tensors each of which has rows;
//! - *copies*: several tensors with a row each, one after another; see `copies`;
//! - *sparse* and *bounds*: a part of a sparse tensor, and the shape of one; see `sparse`;
//! - *mixed*: anything else, with the reason.
//!
//! What calls functions is as its functions are: a loop keeps rows apart if its body does, whatever
//! the number of iterations, and if that number is the same for any batch.
//!
//! The rows are independent if every fetch is *rows*. What an op does with rows it says
//! itself ([`RowRule`]); the rules here hold that against attributes and shapes. A model is batched
//! only where that is proved.

mod calls;
mod copies;
mod inner;
mod rules;
mod sparse;

use ops::{Env, Kind, RowRule};
use tensor::{Dim, Spec, Symbol};

use crate::error::{Error, Result};
use crate::graph::{Body, Graph, Node, Port};

/// The symbol of the number of rows.
pub const ROWS: Symbol = Symbol(u32::MAX);

/// The reason that rows are not independent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Mixing {
    why: String,
}

/// The known dependence of a tensor on rows.
#[derive(Debug, Clone, PartialEq, Eq)]
enum RowsState {
    Free,
    Sizes,
    Rows,
    Inner(usize),
    List(usize),
    /// Of cells of this size.
    Copies(Vec<i64>),
    Sparse(sparse::Part, sparse::Group),
    Bounds,
    Mixed(String),
}

/// A tensor as the rules see it.
#[derive(Debug, Clone)]
struct RowsTensor {
    state: RowsState,
    spec: Spec,
}

impl Mixing {
    /// Rows are not independent because of this.
    pub fn new(why: impl Into<String>) -> Self {
        Self { why: why.into() }
    }
}

/// Proves that the rows of a graph's fetches are independent, or says what mixes them. The first
/// dimension of every input must be [`ROWS`].
pub(crate) fn prove(
    graph: &Graph,
    inputs: &[Spec],
    env: &Env<'_>,
) -> std::result::Result<(), Mixing> {
    let as_rows = |(number, spec): (usize, &Spec)| {
        let state = if block(spec).is_some() {
            RowsState::Rows
        } else {
            RowsState::Mixed(format!("input {number} has no known first dimension"))
        };
        RowsTensor { state, spec: spec.clone() }
    };
    let args: Vec<RowsTensor> = inputs.iter().enumerate().map(as_rows).collect();
    let seen = walk(graph, &args, &RowsWalk { env, depth: 0 });
    let seen = seen.map_err(|error| Mixing::new(error.to_string()))?;
    for port in &graph.fetches {
        let name = &graph.node(port.node).name;
        let found = find(&seen, port).map_err(|error| Mixing::new(error.to_string()))?;
        let why = match &found.state {
            RowsState::Rows if has_one_each(found) => continue,
            RowsState::Rows => format!("output {name} has several rows for each input"),
            RowsState::Mixed(why) => why.clone(),
            RowsState::Inner(_) | RowsState::List(_) | RowsState::Copies(_) => {
                format!("output {name} does not have its rows first")
            }
            RowsState::Sparse(..) | RowsState::Bounds => {
                format!("output {name} is a part of a sparse tensor")
            }
            RowsState::Free | RowsState::Sizes => {
                format!("output {name} does not have a row for each input")
            }
        };
        return Err(Mixing::new(why));
    }
    Ok(())
}

/// The state of a walk through a graph.
struct RowsWalk<'a, 'b> {
    env: &'a Env<'b>,
    /// The number of functions around it.
    depth: usize,
}

/// Functions within functions are followed so deep.
const DEPTH_MAX: usize = 16;

/// The outputs of every node, for arguments that are seen so.
fn walk(
    graph: &Graph,
    args: &[RowsTensor],
    walk: &RowsWalk<'_, '_>,
) -> Result<Vec<Vec<RowsTensor>>> {
    let mut seen: Vec<Vec<RowsTensor>> = Vec::with_capacity(graph.nodes.len());
    for node in &graph.nodes {
        let outputs = look(node, args, &seen, walk)?;
        seen.push(outputs);
    }
    Ok(seen)
}

/// The outputs of a node.
fn look(
    node: &Node,
    args: &[RowsTensor],
    seen: &[Vec<RowsTensor>],
    walk: &RowsWalk<'_, '_>,
) -> Result<Vec<RowsTensor>> {
    let (op, def) = match &node.body {
        Body::Arg(number) => {
            let missing = || Error::Malformed("a feed that is not there".to_owned());
            return Ok(vec![args.get(*number).cloned().ok_or_else(missing)?]);
        }
        Body::Const(tensor) => {
            return Ok(vec![RowsTensor {
                state: RowsState::Free,
                spec: Spec::constant(tensor.clone()),
            }]);
        }
        Body::Scaled(scaled) => {
            return Ok(vec![RowsTensor { state: RowsState::Free, spec: scaled.spec() }]);
        }
        Body::Op { op, def } => (op, def),
    };
    if node.is_conditional() {
        return Err(refusal(node, "does not always run"));
    }
    let inputs: Vec<RowsTensor> =
        node.inputs.iter().map(|port| find(seen, port).cloned()).collect::<Result<_>>()?;
    let specs: Vec<Spec> = inputs.iter().map(|input| input.spec.clone()).collect();
    let outputs = op.infer_with(&specs, walk.env.functions);
    let outputs = outputs.map_err(|error| Error::node(&node.name, error))?;
    let of = |why: &str| {
        let text = format!("{} ({}) {why}", node.name, node.op_name());
        let mixed =
            |spec: &Spec| RowsTensor { state: RowsState::Mixed(text.clone()), spec: spec.clone() };
        outputs.iter().map(mixed).collect()
    };
    if calls::is_followed(def.facts.calls) {
        return calls::judge(node, &inputs, &outputs, walk);
    }
    let is_lookup = def.facts.rows == RowRule::Lookup;
    match def.kind {
        Kind::Writes => return Err(refusal(node, "may change state")),
        Kind::Reads if !is_lookup => {
            return Err(refusal(node, "reads state or draws random numbers"));
        }
        Kind::Pure | Kind::Handle | Kind::Reads => {}
    }
    if let Some(mixed) = inputs.iter().find(|input| matches!(input.state, RowsState::Mixed(_))) {
        return Ok(outputs
            .into_iter()
            .map(|spec| RowsTensor { state: mixed.state.clone(), spec })
            .collect());
    }
    if sparse::is_sparse(&inputs) {
        return Ok(sparse::judge(node, &inputs, &outputs).unwrap_or_else(of));
    }
    if let Some(parsed) = rules::parsed(node, &inputs, &outputs) {
        return Ok(parsed.unwrap_or_else(of));
    }
    let states = rules::judge(node, &inputs, &outputs);
    Ok(match states {
        Ok(states) => {
            let pairs = states.into_iter().zip(outputs);
            pairs.map(|(state, spec)| inner::seen(state, spec)).collect()
        }
        Err(why) => of(why),
    })
}

fn refusal(node: &Node, why: &str) -> Error {
    Error::BadInput(format!("{} ({}) {why}", node.name, node.op_name()))
}

fn find<'a>(seen: &'a [Vec<RowsTensor>], port: &Port) -> Result<&'a RowsTensor> {
    let missing = || Error::Malformed("a node asks for an output that is not there".to_owned());
    seen.get(port.node as usize)
        .and_then(|outputs| outputs.get(port.output as usize))
        .ok_or_else(missing)
}

/// Returns whether a tensor with rows has exactly one for each row of the batch.
fn has_one_each(seen: &RowsTensor) -> bool {
    block(&seen.spec).is_some_and(|block| block.known() == Some(1))
}

/// The number of times that the batch goes into the first dimension: the length of a row's block.
/// `None` if it does not.
fn block(spec: &Spec) -> Option<Dim> {
    let first = spec.dims()?.first()?;
    match first.divided_by(&Dim::symbol(ROWS)) {
        Dim::Unknown => None,
        block if is_free(&block) => Some(block),
        _ => None,
    }
}

/// Returns whether a dimension is known not to depend on the number of rows.
fn is_free(dim: &Dim) -> bool {
    dim.evaluate(|symbol| (symbol != ROWS).then_some(1)).is_some()
}

#[cfg(test)]
mod tests;
