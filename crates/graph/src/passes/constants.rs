//! Folds what does not depend on any feed: constants, weights, handles.

use std::collections::BTreeMap;
use std::sync::Arc;

use ops::{Attrs, Env, Op};
use proto::tensorflow::AttrValue;
use tensor::{Spec, Tensor};

use crate::error::{Error, Result};
use crate::fold;
use crate::graph::{Body, Graph, Node, Port};
use crate::program::Bindings;

/// Replaces each node that can be computed now by its values.
pub(super) fn fold(graph: Graph, bindings: &Bindings<'_>, env: &Env<'_>) -> Result<Graph> {
    let mut folder = Folder { bindings, env, graph: Graph::default(), specs: Vec::new() };
    folder.graph.args = graph.args;
    // What each output of the old graph is in the new one.
    let mut ports: Vec<Vec<Port>> = Vec::with_capacity(graph.nodes.len());
    let lost = |port: &Port| Error::Malformed(format!("output {} is not there", port.output));
    let find = |ports: &[Vec<Port>], port: &Port| {
        ports[port.node as usize].get(port.output as usize).copied().ok_or_else(|| lost(port))
    };
    for mut node in graph.nodes {
        for input in &mut node.inputs {
            *input = find(&ports, input)?;
        }
        ports.push(folder.take(node)?);
    }
    let fetches = graph.fetches.iter().map(|port| find(&ports, port));
    folder.graph.fetches = fetches.collect::<Result<_>>()?;
    Ok(folder.graph)
}

struct Folder<'a> {
    bindings: &'a Bindings<'a>,
    env: &'a Env<'a>,
    graph: Graph,
    /// The specs of the outputs of each node of the new graph.
    specs: Vec<Vec<Spec>>,
}

impl Folder<'_> {
    /// Adds a node, or its values; gives where its outputs are.
    fn take(&mut self, node: Node) -> Result<Vec<Port>> {
        let (def, op) = match &node.body {
            Body::Arg(number) => {
                let spec = self.graph.args[*number].clone();
                return Ok(self.push(node, vec![spec]));
            }
            Body::Const(tensor) => {
                let spec = Spec::constant(tensor.clone());
                return Ok(self.push(node, vec![spec]));
            }
            Body::Op { def, op } => (*def, Arc::clone(op)),
        };
        if let Some(weight) = self.weight(&node) {
            return Ok(self.push_values(&node, vec![weight]));
        }
        let inputs: Vec<Spec> = node.inputs.iter().map(|port| self.spec(port)).collect();
        let outputs = infer(&*op, &node, &inputs, self.env)?;
        if outputs.is_empty() {
            return Ok(self.push(node, outputs));
        }
        match fold::fold((&*op, def.kind), &inputs, &outputs, self.env) {
            Some(values) => Ok(self.push_values(&node, values)),
            None => Ok(self.push(node, outputs)),
        }
    }

    fn spec(&self, port: &Port) -> Spec {
        self.specs[port.node as usize][port.output as usize].clone()
    }

    fn push(&mut self, node: Node, specs: Vec<Spec>) -> Vec<Port> {
        let n_outputs = u32::try_from(specs.len()).expect("a node has few outputs");
        let number = self.graph.push(node);
        self.specs.push(specs);
        (0..n_outputs).map(|output| Port { node: number, output }).collect()
    }

    fn push_values(&mut self, node: &Node, values: Vec<Tensor>) -> Vec<Port> {
        let ports = values.into_iter().flat_map(|value| {
            let spec = Spec::constant(value.clone());
            // The attributes of a handle tell which variable it is of.
            let attrs = Arc::clone(&node.attrs);
            let name = Arc::clone(&node.name);
            self.push(
                Node { name, body: Body::Const(value), inputs: Vec::new(), attrs },
                vec![spec],
            )
        });
        ports.collect()
    }

    /// The value of a variable that no signature writes, if that is what the node reads.
    fn weight(&self, node: &Node) -> Option<Tensor> {
        if node.op_name() != "ReadVariableOp" {
            return None;
        }
        let handle = self.graph.node(node.inputs.first()?.node);
        handle.as_const()?;
        self.bindings.weight(&variable_key(&handle.attrs)?)
    }
}

/// The container and name of the variable that a handle's attributes name.
fn variable_key(attrs: &BTreeMap<String, AttrValue>) -> Option<(String, String)> {
    let attrs = Attrs::new(attrs);
    let container = attrs.str_or("container", "").ok()?;
    Some((container.to_owned(), attrs.str("shared_name").ok()?.to_owned()))
}

/// The specs of a node's outputs.
pub(crate) fn infer(op: &dyn Op, node: &Node, inputs: &[Spec], env: &Env<'_>) -> Result<Vec<Spec>> {
    op.infer_with(inputs, env.functions).map_err(|error| Error::node(&node.name, error))
}
