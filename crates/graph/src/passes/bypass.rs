//! Lets readers read what a node only passes on: identities, and transpositions that are none.

use ops::{Env, Facts, PassThrough, RowRule};

use crate::error::Result;
use crate::graph::{Graph, Node, Port};
use crate::program::Bindings;

/// Passes every reader of such a node on to what the node reads.
pub(super) fn bypass(mut graph: Graph, _: &Bindings<'_>, _: &Env<'_>) -> Result<Graph> {
    for number in 0..graph.nodes.len() {
        let mut inputs = std::mem::take(&mut graph.nodes[number].inputs);
        inputs.iter_mut().for_each(|port| *port = origin(&graph, *port));
        graph.nodes[number].inputs = inputs;
    }
    let fetches = graph.fetches.iter().map(|port| origin(&graph, *port)).collect();
    graph.fetches = fetches;
    Ok(graph)
}

/// The port that the value of an output comes from. The node's own inputs are passed on already.
fn origin(graph: &Graph, port: Port) -> Port {
    let node = graph.node(port.node);
    let Facts { passes, rows, .. } = node.facts();
    let passed = match passes {
        // Its readers may be alive where it is not.
        _ if node.is_conditional() => None,
        PassThrough::Anything | PassThrough::Tensor => node.inputs.first(),
        PassThrough::Each => node.inputs.get(port.output as usize),
        PassThrough::Nothing if *rows == RowRule::Transpose && keeps_order(graph, node) => {
            node.inputs.first()
        }
        PassThrough::Nothing => None,
    };
    passed.copied().unwrap_or(port)
}

/// Returns whether a transposition is by 0, 1, 2 and so on.
fn keeps_order(graph: &Graph, node: &Node) -> bool {
    let order = node.inputs.get(1).and_then(|port| graph.node(port.node).as_const());
    let order = order.and_then(|tensor| tensor.view().to_i64());
    order.is_some_and(|order| (0..).zip(order).all(|(place, axis)| place == axis))
}
