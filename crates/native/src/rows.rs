//! Choice of the signatures that may be batched.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::Home;
use graph::{Graph, Library, Mixing, ROWS};
use ops::{Cancel, Env, Kind, NoFiles, Resources};
use pool::Pool;
use rustc_hash::FxHashSet;
use session::Signature;
use tensor::{Dim, Spec, Symbol};

use crate::engine::Rows;
use crate::programs::Programs;

/// Returns whether a graph has an effect of its own, other than on variables. Functions that it
/// calls are not looked into.
pub(crate) fn writes(graph: &Graph) -> bool {
    // Loops and branches are said to write only because what they call might, which is looked at by
    // itself.
    let calls = |node: &graph::Node| node.facts().calls.is_control_flow();
    graph.nodes.iter().any(|node| node.kind() == Kind::Writes && !calls(node))
}

/// Returns whether a node changes a table.
pub(crate) fn fills_table(node: &graph::Node) -> bool {
    node.facts().home == Home::Host && node.kind() == Kind::Writes
}

/// Proves for each signature that its rows are independent, or finds out what mixes them.
pub(crate) fn prove(
    signatures: &BTreeMap<String, Arc<Signature>>,
    writes: &FxHashSet<String>,
    programs: &BTreeMap<String, Box<Programs>>,
    library: &Library,
) -> BTreeMap<String, Rows> {
    let (pool, cancel, resources) = (Pool::new(1), Cancel::default(), Resources::default());
    let env = Env {
        pool: &pool,
        functions: library,
        files: &NoFiles,
        resources: &resources,
        cancel: &cancel,
    };
    let rows = |(name, signature): (&String, &Arc<Signature>)| {
        let program = programs.get(name)?.any();
        let proof = inputs(signature).and_then(|inputs| program.prove_rows(&inputs, &env));
        Some((name.clone(), Rows { proof, writes: writes.contains(name) }))
    };
    signatures.iter().filter_map(rows).collect()
}

/// The specs of a signature's inputs, with as many rows as the batch symbol says.
fn inputs(signature: &Signature) -> Result<Vec<Spec>, Mixing> {
    let mut next = 0;
    let mut specs = Vec::with_capacity(signature.inputs.len());
    for (alias, endpoint) in &signature.inputs {
        let none = || Mixing::new(format!("input {alias} has no known number of dimensions"));
        let dims = endpoint.spec.dims().ok_or_else(none)?;
        match dims.first().map(Dim::known) {
            None => return Err(Mixing::new(format!("input {alias} is a scalar"))),
            Some(Some(size)) => {
                let text = format!("input {alias} always has {size} rows");
                return Err(Mixing::new(text));
            }
            Some(None) => {}
        }
        let mut symbol = |dim: &Dim| {
            dim.known().map_or_else(
                || {
                    next += 1;
                    Dim::symbol(Symbol(next))
                },
                Dim::Known,
            )
        };
        let rest: Vec<Dim> = dims[1..].iter().map(&mut symbol).collect();
        let all = std::iter::once(Dim::symbol(ROWS)).chain(rest);
        specs.push(Spec::new(endpoint.spec.dtype, all));
    }
    if specs.is_empty() {
        return Err(Mixing::new("there are no inputs"));
    }
    Ok(specs)
}
