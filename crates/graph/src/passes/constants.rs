//! Folds what does not depend on any feed: constants, weights, handles.

use std::collections::BTreeMap;
use std::sync::Arc;

use ops::{Attrs, Env, VariableAccess};
use proto::tensorflow::AttrValue;
use proto::tensorflow::attr_value::Value;
use tensor::{Spec, Tensor};

use crate::error::{Error, Result};
use crate::fold;
use crate::graph::{Body, Graph, Node, Port};
use crate::infer::{Inferred, infer_node, operands, surely_holds};
use crate::merge::{Merge, holds, is_result};
use crate::program::Bindings;

/// Replaces each node that can be computed now by its values, and drops what surely does not run.
pub(super) fn fold(graph: Graph, bindings: &Bindings<'_>, env: &Env<'_>) -> Result<Graph> {
    let mut folder = ConstantsFolder { bindings, env, graph: Graph::default(), specs: Vec::new() };
    folder.graph.args = graph.args;
    let mut taken: Vec<NodeReplacement> = Vec::with_capacity(graph.nodes.len());
    for mut node in graph.nodes {
        let inputs: Option<Vec<Port>> =
            node.inputs.iter().map(|port| folder.find(&taken, *port)).collect();
        let Some(inputs) = inputs else {
            let why = format!("node {} asks for an output that is not there", node.name);
            return Err(Error::Malformed(why));
        };
        node.inputs = inputs;
        taken.push(folder.take(node)?);
    }
    let lost = |port: &Port| Error::Malformed(format!("output {} is not there", port.output));
    let mut fetches = Vec::with_capacity(graph.fetches.len());
    for port in &graph.fetches {
        fetches.push(folder.find(&taken, *port).ok_or_else(|| lost(port))?);
    }
    folder.graph.fetches = fetches;
    Ok(folder.graph)
}

/// The replacement of a node of the old graph.
enum NodeReplacement {
    /// Its outputs are these.
    Ports(Vec<Port>),
    /// It is this node, but it is not known how many outputs it has: it fails if it runs.
    Fails(u32),
    /// It surely does not run.
    Dead,
}

struct ConstantsFolder<'a> {
    bindings: &'a Bindings<'a>,
    env: &'a Env<'a>,
    graph: Graph,
    /// The specs of the outputs of each node of the new graph; none for a node that fails.
    specs: Vec<Vec<Spec>>,
}

impl ConstantsFolder<'_> {
    /// The port in the new graph of an output of the old one.
    fn find(&mut self, taken: &[NodeReplacement], port: Port) -> Option<Port> {
        match &taken[port.node as usize] {
            NodeReplacement::Ports(ports) => ports.get(port.output as usize).copied(),
            NodeReplacement::Fails(node) => Some(Port { node: *node, output: port.output }),
            // A node of its own that has no outputs: nobody who runs reads it.
            NodeReplacement::Dead => {
                let nothing = Tensor::vector::<u8>(&[]).ok()?;
                let node = self.graph.push(Node::constant(&"dead".into(), nothing));
                self.specs.push(Vec::new());
                Some(Port { node, output: 0 })
            }
        }
    }

    /// Adds a node, or its values; gives where its outputs are.
    fn take(&mut self, node: Node) -> Result<NodeReplacement> {
        let mut node = self.without_variable(node)?;
        let (def, op) = match &node.body {
            Body::Arg(number) => {
                let spec = self.graph.args[*number].clone();
                return Ok(self.push(node, vec![spec]));
            }
            Body::Const(tensor) => {
                let spec = Spec::constant(tensor.clone());
                return Ok(self.push(node, vec![spec]));
            }
            Body::Scaled(scaled) => {
                let spec = scaled.spec();
                return Ok(self.push(node, vec![spec]));
            }
            Body::Op { def, op } => (*def, Arc::clone(op)),
        };
        self.drop_what_holds(&mut node);
        if def.facts.variable == VariableAccess::Value
            && let Some(weight) = self.weight(&node)
        {
            return Ok(self.push_values(&node, vec![weight]));
        }
        let known: Vec<Option<Spec>> = node.inputs.iter().map(|port| self.spec(port)).collect();
        let outputs = match infer_node(&*op, &node, &known, self.env)? {
            Inferred::Specs(outputs) => outputs,
            // A result that is dead is an error once it is asked for.
            Inferred::Dead if !is_result(def) => return Ok(NodeReplacement::Dead),
            Inferred::Dead | Inferred::Fails(_) => {
                self.specs.push(Vec::new());
                return Ok(NodeReplacement::Fails(self.graph.push(node)));
            }
        };
        let inputs = operands(&*op, &node, &known);
        if let Some(chosen) = Merge::from_op(&*op).and_then(|merge| merge.chosen(&inputs)) {
            return self.take_chosen(&node, chosen);
        }
        if def.facts.is_check && surely_holds(&inputs) {
            return Ok(NodeReplacement::Ports(Vec::new()));
        }
        if outputs.is_empty() {
            return Ok(self.push(node, outputs));
        }
        let _name = device::named(Arc::clone(&node.name));
        match fold::fold((&*op, def.kind), &inputs, &outputs, self.env) {
            Some(values) => Ok(self.push_values(&node, values)),
            None => Ok(self.push(node, outputs)),
        }
    }

    /// Drops the conditions of a node that surely hold.
    fn drop_what_holds(&self, node: &mut Node) {
        let n_operands = node.operands().len();
        let conditions: Vec<(Port, bool)> = node.conditions().collect();
        node.inputs.truncate(n_operands);
        node.when.clear();
        for (port, when) in conditions {
            let spec = self.spec(&port);
            let known = spec.as_ref().and_then(Spec::as_constant);
            if known.and_then(|flag| holds(&flag.view(), when)) != Some(true) {
                node.inputs.push(port);
                node.when.push(when);
            }
        }
    }

    /// A merge whose choice is known is what it chooses.
    fn take_chosen(&mut self, node: &Node, chosen: usize) -> Result<NodeReplacement> {
        let number = i32::try_from(chosen).expect("a node has few inputs");
        let number =
            Tensor::scalar(number).map_err(|error| Error::node(&node.name, error.into()))?;
        let index = self.graph.push(Node::constant(&node.name, number.clone()));
        self.specs.push(vec![Spec::constant(number)]);
        Ok(NodeReplacement::Ports(vec![node.inputs[chosen], Port { node: index, output: 0 }]))
    }

    fn spec(&self, port: &Port) -> Option<Spec> {
        self.specs[port.node as usize].get(port.output as usize).cloned()
    }

    fn push(&mut self, node: Node, specs: Vec<Spec>) -> NodeReplacement {
        let n_outputs = u32::try_from(specs.len()).expect("a node has few outputs");
        let number = self.graph.push(node);
        self.specs.push(specs);
        NodeReplacement::Ports((0..n_outputs).map(|output| Port { node: number, output }).collect())
    }

    fn push_values(&mut self, node: &Node, values: Vec<Tensor>) -> NodeReplacement {
        let mut ports = Vec::with_capacity(values.len());
        for value in values {
            let spec = Spec::constant(value.clone());
            // The attributes of a handle tell which variable it is of.
            let attrs = Arc::clone(&node.attrs);
            let constant = Node { attrs, ..Node::constant(&node.name, value) };
            ports.push(Port { node: self.graph.push(constant), output: 0 });
            self.specs.push(vec![spec]);
        }
        NodeReplacement::Ports(ports)
    }

    /// A node that gathers from a variable which no signature writes gathers from a constant.
    fn without_variable(&mut self, node: Node) -> Result<Node> {
        let (name, is_nd) = match node.facts().variable {
            VariableAccess::Gather => ("GatherV2", false),
            VariableAccess::GatherNd => ("GatherNd", true),
            VariableAccess::Unknown
            | VariableAccess::Handle
            | VariableAccess::Value
            | VariableAccess::Look => return Ok(node),
        };
        let Some(weight) = self.weight(&node) else { return Ok(node) };
        let old = Attrs::new(&node.attrs);
        let batch_dims =
            old.int_or("batch_dims", 0).map_err(|error| Error::node(&node.name, error))?;
        let mut attrs = BTreeMap::new();
        for (from, to) in [("dtype", "Tparams"), ("Tindices", "Tindices")] {
            attrs.extend(node.attrs.get(from).map(|value| (to.to_owned(), value.clone())));
        }
        let mut inputs = vec![self.push_constant(&node, weight)];
        inputs.extend(node.inputs.iter().skip(1));
        if !is_nd {
            let axis = Tensor::scalar(batch_dims);
            let axis = axis.map_err(|error| Error::node(&node.name, error.into()))?;
            inputs.insert(2.min(inputs.len()), self.push_constant(&node, axis));
            let batch_dims = AttrValue { value: Some(Value::I(batch_dims)) };
            attrs.insert("batch_dims".to_owned(), batch_dims);
        }
        let missing = || Error::Malformed(format!("{name} is not built in"));
        let def = ops::find(name).ok_or_else(missing)?;
        let op =
            (def.build)(&Attrs::new(&attrs)).map_err(|error| Error::node(&node.name, error))?;
        let body = Body::Op { def, op: Arc::from(op) };
        Ok(Node { body, inputs, attrs: Arc::new(attrs), ..node })
    }

    fn push_constant(&mut self, node: &Node, value: Tensor) -> Port {
        let spec = Spec::constant(value.clone());
        let number = self.graph.push(Node::constant(&node.name, value));
        self.specs.push(vec![spec]);
        Port { node: number, output: 0 }
    }

    /// The value of the variable that a node reads, if no signature writes it.
    fn weight(&self, node: &Node) -> Option<Tensor> {
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
