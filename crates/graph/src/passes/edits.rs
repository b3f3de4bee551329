//! `Edits`: new nodes in place of old ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use ops::Attrs;
use proto::tensorflow::AttrValue;
use proto::tensorflow::attr_value::{ListValue, Value};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use tensor::Tensor;

use crate::error::{Error, Result};
use crate::graph::{Body, Graph, Node, Port, Scaled};

/// A node's attributes.
pub(super) type NodeAttrs = BTreeMap<String, AttrValue>;

/// The changes that a pass makes in a graph.
pub(super) struct Edits {
    /// Nodes that may not run; they stay as they are.
    conditional: FxHashSet<u32>,
    /// The op that takes the place of a node.
    new: FxHashMap<u32, New>,
    /// Nodes that are no longer needed.
    gone: FxHashSet<u32>,
}

/// An op in place of others. Its inputs are outputs of the old graph, then constants.
pub(super) struct New {
    name: Arc<str>,
    body: Body,
    attrs: Arc<NodeAttrs>,
    inputs: Vec<Input>,
}

/// An input of a new op.
pub(super) enum Input {
    /// An output of the old graph.
    Old(Port),
    /// A value of its own.
    Value(Tensor),
    /// A weight times a scale for each channel.
    Scaled(Tensor, Arc<[f32]>),
}

impl New {
    /// The op `op` with these attributes. Fails if it refuses them.
    pub(super) fn build(
        name: &Arc<str>,
        op: &str,
        attrs: NodeAttrs,
        inputs: Vec<Input>,
    ) -> Result<Self> {
        let missing = || Error::Malformed(format!("{op} is not built in"));
        let def = ops::find(op).ok_or_else(missing)?;
        let op = (def.build)(&Attrs::new(&attrs)).map_err(|error| Error::node(name, error))?;
        let body = Body::Op { def, op: Arc::from(op) };
        Ok(Self { name: Arc::clone(name), body, attrs: Arc::new(attrs), inputs })
    }
}

impl Edits {
    /// No changes yet to this graph.
    pub(super) fn for_graph(graph: &Graph) -> Self {
        let numbered = (0u32..).zip(&graph.nodes);
        let conditional = numbered.filter(|(_, node)| node.is_conditional());
        let conditional = conditional.map(|(number, _)| number).collect();
        Self { conditional, new: FxHashMap::default(), gone: FxHashSet::default() }
    }

    /// Puts `new` in place of node `root`, and removes `others`, which only it and they read. Does
    /// nothing if any of them runs only under conditions, which `new` does not have.
    pub(super) fn replace(&mut self, root: u32, others: &[u32], new: New) {
        if others.iter().chain([&root]).any(|node| self.conditional.contains(node)) {
            return;
        }
        self.gone.extend(others);
        self.gone.remove(&root);
        let before = self.new.insert(root, new);
        assert!(before.is_none(), "a node is replaced once");
    }

    /// Returns whether a node is part of a change already.
    pub(super) fn touches(&self, node: u32) -> bool {
        self.gone.contains(&node) || self.new.contains_key(&node)
    }

    /// The changed graph.
    pub(super) fn apply(mut self, graph: Graph) -> Graph {
        if self.new.is_empty() {
            return graph;
        }
        let mut numbers = vec![0; graph.nodes.len()];
        let mut changed = Graph { args: graph.args, ..Graph::default() };
        let moved = |numbers: &[u32], port: Port| Port {
            node: numbers[port.node as usize],
            output: port.output,
        };
        for (number, mut node) in (0u32..).zip(graph.nodes) {
            if let Some(mut new) = self.new.remove(&number) {
                let mut inputs = Vec::with_capacity(new.inputs.len());
                for input in std::mem::take(&mut new.inputs) {
                    inputs.push(match input {
                        Input::Old(port) => moved(&numbers, port),
                        Input::Value(value) => {
                            constant(&mut changed, &new.name, Body::Const(value))
                        }
                        Input::Scaled(weight, scale) => {
                            let body = Body::Scaled(Scaled { weight, scale });
                            constant(&mut changed, &new.name, body)
                        }
                    });
                }
                let New { name, body, attrs, .. } = new;
                let node = Node { name, body, inputs, when: SmallVec::new(), attrs };
                numbers[number as usize] = changed.push(node);
            } else if !self.gone.contains(&number) {
                node.inputs.iter_mut().for_each(|port| *port = moved(&numbers, *port));
                numbers[number as usize] = changed.push(node);
            }
        }
        changed.fetches = graph.fetches.iter().map(|port| moved(&numbers, *port)).collect();
        changed
    }
}

fn constant(graph: &mut Graph, name: &Arc<str>, body: Body) -> Port {
    let (name, inputs, when) = (Arc::clone(name), Vec::new(), SmallVec::new());
    let node = Node { name, body, inputs, when, attrs: Arc::default() };
    Port { node: graph.push(node), output: 0 }
}

/// Sets an attribute.
pub(super) fn set(attrs: &mut NodeAttrs, name: &str, value: Value) {
    attrs.insert(name.to_owned(), AttrValue { value: Some(value) });
}

/// A text as an attribute.
pub(super) fn text(value: &str) -> Value {
    Value::S(value.as_bytes().to_vec().into())
}

/// Texts as an attribute.
pub(super) fn texts(values: &[&str]) -> Value {
    let s = values.iter().map(|value| value.as_bytes().to_vec().into()).collect();
    Value::List(Box::new(ListValue { s, ..ListValue::default() }))
}

/// Numbers as an attribute.
pub(super) fn ints(values: impl IntoIterator<Item = i64>) -> Value {
    Value::List(Box::new(ListValue { i: values.into_iter().collect(), ..ListValue::default() }))
}
