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

pub(crate) use constants::infer;
use ops::Env;

use crate::error::Result;
use crate::graph::Graph;
use crate::program::Bindings;

/// A pass.
type Pass = fn(Graph, &Bindings<'_>, &Env<'_>) -> Result<Graph>;

/// All passes, in the order in which they run.
const PASSES: &[Pass] = &[
    unused::remove,
    constants::fold,
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
    PASSES.iter().try_fold(graph, |graph, pass| pass(graph, bindings, env))
}
