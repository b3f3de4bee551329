//! Passes: each takes a graph and gives an equivalent one that runs faster or smaller.

mod constants;
mod fuse;
mod unused;

use ops::Env;

use crate::error::Result;
use crate::graph::Graph;
use crate::program::Bindings;

/// A pass.
type Pass = fn(Graph, &Bindings<'_>, &Env<'_>) -> Result<Graph>;

/// All passes, in the order in which they run.
const PASSES: &[Pass] =
    &[unused::remove, constants::fold, unused::remove, fuse::fuse, unused::remove];

/// Runs all passes.
pub(crate) fn run(graph: Graph, bindings: &Bindings<'_>, env: &Env<'_>) -> Result<Graph> {
    PASSES.iter().try_fold(graph, |graph, pass| pass(graph, bindings, env))
}
