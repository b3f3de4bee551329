//! Passes: each takes a graph and gives an equivalent one that runs faster or smaller.

mod bypass;
mod collapse;
mod constants;
mod edits;
mod fuse;
mod linear;
mod pad;
mod specs;
mod unused;
mod uses;

use ops::Env;

use crate::error::Result;
use crate::graph::Graph;
use crate::program::Bindings;

/// A pass.
type Pass = fn(Graph, &Bindings<'_>, &Env<'_>) -> Result<Graph>;

/// The passes that come first, in the order in which they run.
const TIDY: &[Pass] = &[unused::remove, constants::fold, unused::remove];

/// The passes that find patterns of nodes that always run, in the order in which they run.
const PATTERNS: &[Pass] = &[
    bypass::bypass,
    unused::remove,
    pad::pad,
    linear::linear,
    collapse::collapse,
    fuse::fuse,
    unused::remove,
];

/// Runs all passes.
pub(crate) fn run(graph: Graph, bindings: &Bindings<'_>, env: &Env<'_>) -> Result<Graph> {
    let apply = |graph, pass: &Pass| pass(graph, bindings, env);
    TIDY.iter().chain(PATTERNS).try_fold(graph, apply)
}
