//! Recognises functions that were exported as many small ops, and makes one op of each.
//!
//! Each pattern is looked for from its last node back. All nodes in between must be read by the
//! pattern alone, so nothing is computed twice.

mod activation;
mod layer_norm;
mod terms;
mod wrap;

use ops::Env;

use super::edits::{Edits, New};
use super::specs::Specs;
use super::uses::Uses;
use crate::error::Result;
use crate::graph::{Graph, Port};
use crate::program::Bindings;

/// Replaces each pattern that is found.
pub(super) fn collapse(graph: Graph, _: &Bindings<'_>, env: &Env<'_>) -> Result<Graph> {
    let look = CollapseScan {
        graph: &graph,
        uses: Uses::from_graph(&graph),
        specs: Specs::infer(&graph, env),
    };
    let mut edits = Edits::for_graph(&graph);
    // From the end: of two patterns that share nodes, the larger one ends later.
    for root in (0..u32::try_from(graph.nodes.len()).expect("a graph is bounded")).rev() {
        if edits.touches(root) {
            continue;
        }
        let Some(found) = PATTERNS.iter().find_map(|pattern| pattern(&look, root)) else {
            continue;
        };
        let is_free = found.others.iter().all(|node| !edits.touches(*node));
        if is_free && look.uses.are_private(&found.others, root) {
            edits.replace(root, &found.others, found.new?);
        }
    }
    Ok(edits.apply(graph))
}

/// All patterns: each looks for one that ends with a node.
const PATTERNS: &[fn(&CollapseScan<'_>, u32) -> Option<CollapseMatch>] =
    &[layer_norm::find, activation::find, wrap::find];

/// The graph in which patterns look for matches, and its analyses.
struct CollapseScan<'a> {
    graph: &'a Graph,
    uses: Uses,
    specs: Specs,
}

/// A pattern that was found.
struct CollapseMatch {
    /// The op in its place.
    new: Result<New>,
    /// The nodes that it replaces besides the last.
    others: Vec<u32>,
}

impl CollapseScan<'_> {
    fn op(&self, port: Port) -> &'static str {
        if port.output == 0 { self.graph.node(port.node).op_name() } else { "" }
    }

    fn inputs(&self, port: Port) -> &[Port] {
        &self.graph.node(port.node).inputs
    }

    /// The inputs of a node of two.
    fn pair(&self, port: Port) -> Option<(Port, Port)> {
        match self.inputs(port) {
            [a, b] => Some((*a, *b)),
            _ => None,
        }
    }

    /// The inputs of a node of op `name` that has two, in both orders.
    fn either(&self, port: Port, name: &[&str]) -> Vec<(Port, Port)> {
        match self.pair(port).filter(|_| name.contains(&self.op(port))) {
            Some((a, b)) => vec![(a, b), (b, a)],
            None => Vec::new(),
        }
    }

    /// A constant that is one float, without dimensions: it takes the shape of whatever it meets.
    fn number(&self, port: Port) -> Option<f32> {
        let tensor = self.graph.node(port.node).as_const()?;
        let is_one = tensor.dtype() == tensor::DType::F32 && tensor.shape().rank() == 0;
        is_one.then(|| tensor.as_slice::<f32>()[0])
    }
}

/// Returns whether a number is the one that was meant, to within the rounding of exporters.
fn is_about(number: f32, meant: f32) -> bool {
    (number - meant).abs() <= 1e-5 * meant.abs()
}
