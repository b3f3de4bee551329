//! Inference of the specs of a node's outputs, conditional nodes included.

use ops::{Env, Op};
use tensor::Spec;

use crate::error::{Error, Result};
use crate::graph::{Body, Graph, Node, Port};
use crate::merge::{Merge, holds};

/// The result of inference for a node.
pub(crate) enum Inferred {
    /// The specs of its outputs.
    Specs(Vec<Spec>),
    /// It surely does not run.
    Dead,
    /// If it runs it fails with this; or, without an error, what it reads has failed before.
    Fails(Option<ops::Error>),
}

/// Infers the specs of a node's outputs from those of its inputs: nothing of inputs that are dead
/// or come from a node that fails.
pub(crate) fn infer_node(
    op: &dyn Op,
    node: &Node,
    inputs: &[Option<Spec>],
    env: &Env<'_>,
) -> Result<Inferred> {
    assert_eq!(inputs.len(), node.inputs.len());
    let conditions = &inputs[node.operands().len()..];
    for (condition, when) in conditions.iter().zip(&node.when) {
        let known = condition.as_ref().and_then(Spec::as_constant);
        if known.and_then(|flag| holds(&flag.view(), *when)) == Some(false) {
            return Ok(Inferred::Dead);
        }
    }
    let specs = operands(op, node, inputs);
    if specs.len() < node.operands().len() {
        return if node.is_conditional() { Ok(Inferred::Fails(None)) } else { Err(lost(node)) };
    }
    match op.infer_with(&specs, env.functions) {
        Ok(specs) => Ok(Inferred::Specs(specs)),
        Err(error) if node.is_conditional() => Ok(Inferred::Fails(Some(error))),
        Err(error) => Err(Error::node(&node.name, error)),
    }
}

/// The specs of the inputs that a node's op reads, up to the first unknown one. A merge may read
/// dead values.
pub(crate) fn operands(op: &dyn Op, node: &Node, inputs: &[Option<Spec>]) -> Vec<Spec> {
    let merge = Merge::from_op(op);
    let known = |spec: &Option<Spec>| match (spec, merge) {
        (None, Some(merge)) => Some(Spec::unknown(merge.dtype)),
        (spec, _) => spec.clone(),
    };
    inputs[..node.operands().len()].iter().map_while(known).collect()
}

/// Returns whether an assertion with these inputs cannot fail.
pub(crate) fn surely_holds(inputs: &[Spec]) -> bool {
    let known = inputs.first().and_then(Spec::as_constant);
    known.and_then(|condition| holds(&condition.view(), true)) == Some(true)
}

/// The specs of a graph's fetches for inputs of these specs.
pub(crate) fn infer(graph: &Graph, inputs: &[Spec], env: &Env<'_>) -> Result<Vec<Spec>> {
    let mut specs: Vec<Vec<Spec>> = Vec::with_capacity(graph.nodes.len());
    let missing = || Error::Malformed("a node asks for an output that is not there".to_owned());
    let find = |specs: &[Vec<Spec>], port: &Port| {
        specs[port.node as usize].get(port.output as usize).cloned()
    };
    for node in &graph.nodes {
        specs.push(match &node.body {
            Body::Arg(number) => vec![inputs.get(*number).cloned().ok_or_else(missing)?],
            Body::Const(tensor) => vec![Spec::constant(tensor.clone())],
            Body::Scaled(scaled) => vec![scaled.spec()],
            Body::Op { op, .. } => {
                let inputs = node.inputs.iter().map(|port| find(&specs, port));
                let inputs: Vec<Option<Spec>> = inputs.collect();
                match infer_node(&**op, node, &inputs, env)? {
                    Inferred::Specs(specs) => specs,
                    Inferred::Dead | Inferred::Fails(_) => Vec::new(),
                }
            }
        });
    }
    graph.fetches.iter().map(|port| find(&specs, port).ok_or_else(missing)).collect()
}

/// A node that surely runs and reads what is not there.
fn lost(node: &Node) -> Error {
    Error::Malformed(format!("node {} asks for an output that is not there", node.name))
}
