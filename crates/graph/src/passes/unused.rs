//! Removes nodes that nothing wanted depends on.

use ops::{Env, Kind};

use crate::error::Result;
use crate::graph::{Graph, Port};
use crate::program::Bindings;

/// Keeps what the fetches need, what has effects, and what that needs; and all arguments, so that
/// their numbers stay.
pub(super) fn remove(graph: Graph, _: &Bindings<'_>, _: &Env<'_>) -> Result<Graph> {
    let mut needed = vec![false; graph.nodes.len()];
    graph.fetches.iter().for_each(|port| needed[port.node as usize] = true);
    for (number, node) in graph.nodes.iter().enumerate().rev() {
        let is_arg = matches!(node.body, crate::graph::Body::Arg(_));
        needed[number] |= is_arg || node.kind() == Kind::Writes;
        if needed[number] {
            node.inputs.iter().for_each(|port| needed[port.node as usize] = true);
        }
    }
    let mut numbers = vec![0; graph.nodes.len()];
    let mut kept = Graph { args: graph.args, ..Graph::default() };
    let moved = |numbers: &[u32], port: &Port| Port {
        node: numbers[port.node as usize],
        output: port.output,
    };
    for (number, mut node) in graph.nodes.into_iter().enumerate() {
        if needed[number] {
            node.inputs.iter_mut().for_each(|port| *port = moved(&numbers, port));
            numbers[number] = kept.push(node);
        }
    }
    kept.fetches = graph.fetches.iter().map(|port| moved(&numbers, port)).collect();
    Ok(kept)
}
