//! `Scope`: the main graph, or one call of a function, or a part of a loop, while it is traced.

use std::collections::BTreeMap;
use std::sync::Arc;

use proto::tensorflow::attr_value::Value as AttrKind;
use proto::tensorflow::{AttrValue, NodeDef};
use rustc_hash::FxHashMap;

use super::frames::{Frames, OUTSIDE};
use super::live::Live;
use crate::graph::Port;
use crate::source::{Body, Function};

/// The replacement of a tensor of a `GraphDef`, and the condition under which it is alive.
#[derive(Debug, Clone, Copy)]
pub(super) struct Value {
    pub(super) what: What,
    pub(super) live: Live,
}

/// The replacement of a tensor of a `GraphDef`.
#[derive(Debug, Clone, Copy)]
pub(super) enum What {
    /// An output of a node of the flat graph.
    Port(Port),
    /// A reference to a variable of TensorFlow 1, by its handle.
    Reference(Port),
}

impl Value {
    /// An output of a node that is always alive.
    pub(super) fn from_port(port: Port) -> Self {
        Self { what: What::Port(port), live: Live::ALWAYS }
    }
}

/// The replacement of a node of a `GraphDef`, and the condition under which it is alive.
#[derive(Debug, Clone)]
pub(super) struct Emitted {
    pub(super) live: Live,
    pub(super) outputs: Outputs,
}

/// The outputs of a node of a `GraphDef`.
#[derive(Debug, Clone)]
pub(super) enum Outputs {
    /// Those of a node of the flat graph.
    Node(u32),
    /// The results of a call, or of what is no node any more.
    Values(Vec<Value>),
    /// A reference to a variable.
    Reference(Port),
    /// None is ever alive.
    Dead,
}

/// The part of a loop that a scope is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// No loop.
    Whole,
    /// The nodes that decide whether the loop goes on.
    Condition,
    /// The nodes that run if it does.
    Body,
    /// The nodes that run if it does not.
    After,
}

pub(super) struct Scope<'a> {
    pub(super) body: &'a Body,
    pub(super) function: Option<&'a Function>,
    /// The names of the calls around, each with a slash.
    pub(super) prefix: String,
    /// The arguments of the function.
    pub(super) args: Vec<Value>,
    /// The condition under which the call is alive.
    pub(super) live: Live,
    /// The attributes of the call, for placeholders in the attributes of the body.
    call_attrs: BTreeMap<String, AttrValue>,
    /// Fed tensors, by node and output.
    pub(super) feeds: FxHashMap<(usize, usize), Port>,
    /// The replacement of each node of the body.
    pub(super) emitted: FxHashMap<usize, Emitted>,
    /// The loops of the body.
    pub(super) frames: Arc<Frames>,
    /// The loop that is traced.
    pub(super) frame: usize,
    pub(super) part: Part,
}

impl<'a> Scope<'a> {
    pub(super) fn new(body: &'a Body, prefix: String) -> Self {
        Self {
            body,
            function: None,
            prefix,
            args: Vec::new(),
            live: Live::ALWAYS,
            call_attrs: BTreeMap::new(),
            feeds: FxHashMap::default(),
            emitted: FxHashMap::default(),
            frames: Arc::default(),
            frame: OUTSIDE,
            part: Part::Whole,
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

    /// A part of a loop of this scope. It sees nothing of what is outside.
    pub(super) fn of_loop(&self, frame: usize, part: Part) -> Self {
        Self {
            function: self.function,
            call_attrs: self.call_attrs.clone(),
            frames: Arc::clone(&self.frames),
            frame,
            part,
            ..Self::new(self.body, self.prefix.clone())
        }
    }

    /// Dependency number `next` of a node, and the node that names it; the inner `None` is one that
    /// does not count.
    pub(super) fn dependency(&self, node: usize, next: usize) -> Option<(Option<&'a str>, usize)> {
        let nodes = &self.body.nodes;
        if let Some(frame) = self.left_by(node) {
            // All that leads into a loop comes before all that leads out of it.
            let (enter, input) = *self.frames.frames[frame].entries.get(next)?;
            return Some((Some(&nodes[enter].input[input]), enter));
        }
        let input = nodes[node].input.get(next)?;
        let is_decided = next == 1 && self.frames.is_loop_switch(node);
        Some(((!is_decided).then_some(input), node))
    }

    /// The loop inside of this scope that a node leads out of.
    pub(super) fn left_by(&self, node: usize) -> Option<usize> {
        let frame = self.frames.frame_of(node);
        let is_exit = matches!(self.body.nodes[node].op.as_str(), "Exit" | "RefExit");
        (is_exit && frame != self.frame).then_some(frame)
    }

    /// An attribute of a node; a placeholder is replaced by the attribute of the call.
    pub(super) fn attr<'s>(&'s self, node: &'s NodeDef, name: &str) -> Option<&'s AttrValue> {
        let attr = node.attr.get(name)?;
        match &attr.value {
            Some(AttrKind::Placeholder(actual)) => self.call_attrs.get(actual),
            _ => Some(attr),
        }
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
