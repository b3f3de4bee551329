//! `Scope`: the main graph, or one call of a function, while it is traced.

use std::collections::BTreeMap;

use proto::tensorflow::attr_value::Value as AttrKind;
use proto::tensorflow::{AttrValue, NodeDef};
use rustc_hash::FxHashMap;

use crate::graph::Port;
use crate::source::{Body, Function};

/// What a tensor of a `GraphDef` has become.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value {
    /// An output of a node of the flat graph.
    Port(Port),
    /// A reference to a variable of TensorFlow 1, by its handle.
    Reference(Port),
}

/// What a node of a `GraphDef` has become.
#[derive(Debug, Clone)]
pub(super) enum Emitted {
    /// A node of the flat graph.
    Node(u32),
    /// The results of a call.
    Call(Vec<Value>),
    /// A reference to a variable.
    Reference(Port),
}

pub(super) struct Scope<'a> {
    pub(super) body: &'a Body,
    pub(super) function: Option<&'a Function>,
    /// The names of the calls around, each with a slash.
    pub(super) prefix: String,
    /// What the arguments of the function are.
    pub(super) args: Vec<Value>,
    /// The attributes of the call, for placeholders in the attributes of the body.
    call_attrs: BTreeMap<String, AttrValue>,
    /// Fed tensors, by node and output.
    pub(super) feeds: FxHashMap<(usize, usize), Port>,
    /// What each node of the body has become.
    pub(super) emitted: Vec<Option<Emitted>>,
}

impl<'a> Scope<'a> {
    pub(super) fn new(body: &'a Body, prefix: String) -> Self {
        Self {
            body,
            function: None,
            prefix,
            args: Vec::new(),
            call_attrs: BTreeMap::new(),
            feeds: FxHashMap::default(),
            emitted: vec![None; body.nodes.len()],
        }
    }

    pub(super) fn of_function(
        function: &'a Function,
        prefix: String,
        args: Vec<Value>,
        call_attrs: BTreeMap<String, AttrValue>,
    ) -> Self {
        let scope = Self::new(&function.body, prefix);
        Self { function: Some(function), args, call_attrs, ..scope }
    }

    /// The attributes of a node, with placeholders replaced by the attributes of the call.
    pub(super) fn attrs(&self, node: &NodeDef) -> BTreeMap<String, AttrValue> {
        let mut attrs = node.attr.clone();
        for value in attrs.values_mut() {
            if let Some(AttrKind::Placeholder(name)) = &value.value
                && let Some(actual) = self.call_attrs.get(name)
            {
                *value = actual.clone();
            }
        }
        attrs
    }
}
