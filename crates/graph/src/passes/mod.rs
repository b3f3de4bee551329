//! Passes: each takes a graph and gives an equivalent one that runs faster or smaller.

mod bypass;
mod collapse;
mod constants;
mod edits;
pub(crate) mod fuse;
pub(crate) mod linear;
mod pad;
mod specs;
mod unused;
mod uses;

use ops::Env;

use crate::error::Result;
use crate::graph::{Body, Graph};
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

/// The same, for those who only want to know what is found.
const SOUGHT: &[Pass] = &[
    bypass::bypass,
    unused::remove,
    pad::pad,
    linear::linear,
    collapse::collapse,
    fuse::fuse_as_is,
    unused::remove,
];

/// Folds what can be folded.
pub(crate) fn tidy(graph: Graph, bindings: &Bindings<'_>, env: &Env<'_>) -> Result<Graph> {
    TIDY.iter().try_fold(graph, |graph, pass| pass(graph, bindings, env))
}

/// Replaces patterns of a graph that was tidied.
pub(crate) fn fuse(graph: Graph, bindings: &Bindings<'_>, env: &Env<'_>) -> Result<Graph> {
    PATTERNS.iter().try_fold(graph, |graph, pass| pass(graph, bindings, env))
}

/// The ops that `fuse` would leave of a graph that was tidied. Makes no weights.
pub(crate) fn n_fused(graph: Graph, bindings: &Bindings<'_>, env: &Env<'_>) -> Result<usize> {
    let graph = SOUGHT.iter().try_fold(graph, |graph, pass| pass(graph, bindings, env))?;
    Ok(n_ops(&graph))
}

/// The number of ops of a graph.
pub(crate) fn n_ops(graph: &Graph) -> usize {
    graph.nodes.iter().filter(|node| matches!(node.body, Body::Op { .. })).count()
}
