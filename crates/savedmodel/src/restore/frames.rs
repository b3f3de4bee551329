//! Finding one's way in a graph through function calls.
//!
//! A frame is the graph, or the body of a function as one node calls it. Everything is a loop
//! with a limit: a hostile graph may be cyclic, and its functions may call themselves.

use std::collections::HashMap;

use proto::tensorflow as tf;
use proto::tensorflow::attr_value::Value;
use status::Code;

use crate::error::{Error, Result};

use super::{attr, unsupported, wrong};

/// Functions that restore are called by the graph, seldom by another function.
const DEPTH_MAX: usize = 32;
const N_FRAMES_MAX: usize = 10_000;
/// The most nodes of all frames together, counted once for each call.
const N_NODES_MAX: usize = 10_000_000;
/// The most nodes on the way of a value from where it is made.
const N_HOPS_MAX: usize = 1_000;

/// The graph, and its functions as they are called.
pub(super) struct Frames<'g> {
    scopes: Vec<Scope<'g>>,
    functions: HashMap<&'g str, &'g tf::FunctionDef>,
    scope_of: HashMap<&'g str, usize>,
    frames: Vec<Frame<'g>>,
    callees: HashMap<(usize, &'g str), usize>,
    n_nodes: usize,
}

/// A node as seen in one frame.
#[derive(Clone, Copy)]
pub(super) struct Place<'g> {
    frame: usize,
    pub(super) node: &'g tf::NodeDef,
}

impl<'g> Place<'g> {
    /// Returns the id that tells the frame from others.
    pub(super) fn id(&self) -> (usize, &'g str) {
        (self.frame, &self.node.name)
    }
}

/// The names that are visible in the graph or in a function.
struct Scope<'g> {
    nodes: HashMap<&'g str, &'g tf::NodeDef>,
    args: HashMap<&'g str, usize>,
    function: Option<&'g tf::FunctionDef>,
}

struct Frame<'g> {
    scope: usize,
    caller: Option<Place<'g>>,
    depth: usize,
}

impl<'g> Frames<'g> {
    /// The frame 0 is the graph itself.
    pub(super) fn of(graph: &'g tf::GraphDef) -> Self {
        let functions = graph.library.iter().flat_map(|library| &library.function);
        let name = |function: &'g tf::FunctionDef| Some(function.signature.as_ref()?.name.as_str());
        Self {
            scopes: vec![Scope {
                nodes: graph.node.iter().map(|node| (node.name.as_str(), node)).collect(),
                args: HashMap::new(),
                function: None,
            }],
            functions: functions.filter_map(|f| Some((name(f)?, f))).collect(),
            scope_of: HashMap::new(),
            frames: vec![Frame { scope: 0, caller: None, depth: 0 }],
            callees: HashMap::new(),
            n_nodes: 0,
        }
    }

    /// The node of a name in a frame; `by` is the node that names it.
    pub(super) fn node(&self, frame: usize, name: &str, by: &str) -> Result<Place<'g>> {
        let node = self.scope(frame).nodes.get(name).ok_or_else(|| Error::Restore {
            node: by.to_owned(),
            reason: format!("there is no node {name:?}"),
            code: Code::InvalidArgument,
        })?;
        Ok(Place { frame, node })
    }

    /// The nodes of a function as it is called.
    pub(super) fn nodes(&self, frame: usize) -> impl Iterator<Item = Place<'g>> {
        let body = self.scope(frame).function.into_iter().flat_map(|function| &function.node_def);
        body.map(move |node| Place { frame, node })
    }

    /// The node that an input, or a control input, comes from; `None` for a function's argument.
    pub(super) fn before(&self, place: Place<'g>, input: &str) -> Result<Option<Place<'g>>> {
        let name = input.strip_prefix('^').unwrap_or(input);
        let name = name.split(':').next().unwrap_or_default();
        if self.scope(place.frame).args.contains_key(name) {
            return Ok(None);
        }
        self.node(place.frame, name, &place.node.name).map(Some)
    }

    /// Returns the place where the value that comes in at `input` of a node is made, behind all
    /// nodes that only pass it on: the node and the number of its output.
    pub(super) fn origin(&mut self, place: Place<'g>, input: usize) -> Result<(Place<'g>, usize)> {
        let mut step = self.step(place, input)?;
        for _ in 0..N_HOPS_MAX {
            step = match step {
                Step::Outside(call, arg) => self.step(call, arg)?,
                Step::Made(maker, output) => match maker.node.op.as_str() {
                    "Identity" | "Reshape" | "EnsureShape" | "StopGradient" | "Snapshot" => {
                        self.step(maker, 0)?
                    }
                    "IdentityN" => self.step(maker, output)?,
                    "PartitionedCall" | "StatefulPartitionedCall" => self.result(maker, output)?,
                    _ => return Ok((maker, output)),
                },
            };
        }
        Err(wrong(place.node, format!("its input {input} comes a way of over {N_HOPS_MAX} nodes")))
    }

    /// The frame of the function that a node calls.
    pub(super) fn enter(&mut self, call: Place<'g>) -> Result<usize> {
        if let Some(frame) = self.callees.get(&call.id()) {
            return Ok(*frame);
        }
        let Some(Value::Func(function)) = attr(call.node, "f") else {
            return Err(wrong(call.node, "it does not say which function it calls".to_owned()));
        };
        let scope = self.scope_named(call.node, &function.name)?;
        let depth = self.frames[call.frame].depth + 1;
        self.n_nodes += self.scopes[scope].nodes.len();
        if depth > DEPTH_MAX || self.frames.len() > N_FRAMES_MAX || self.n_nodes > N_NODES_MAX {
            return Err(wrong(call.node, "its functions call one another without end".to_owned()));
        }
        let frame = self.frames.len();
        self.frames.push(Frame { scope, caller: Some(call), depth });
        self.callees.insert(call.id(), frame);
        Ok(frame)
    }

    fn scope(&self, frame: usize) -> &Scope<'g> {
        &self.scopes[self.frames[frame].scope]
    }

    fn scope_named(&mut self, call: &tf::NodeDef, name: &str) -> Result<usize> {
        if let Some(scope) = self.scope_of.get(name) {
            return Ok(*scope);
        }
        let Some((name, function)) = self.functions.get_key_value(name) else {
            return Err(wrong(call, format!("there is no function {name:?}")));
        };
        let args = function.signature.iter().flat_map(|signature| &signature.input_arg);
        let is_list = |arg: &tf::op_def::ArgDef| {
            !arg.number_attr.is_empty() || !arg.type_list_attr.is_empty()
        };
        if args.clone().any(is_list) {
            return Err(unsupported(call, "its function takes a list"));
        }
        self.scopes.push(Scope {
            nodes: function.node_def.iter().map(|node| (node.name.as_str(), node)).collect(),
            args: args.enumerate().map(|(i, arg)| (arg.name.as_str(), i)).collect(),
            function: Some(function),
        });
        self.scope_of.insert(name, self.scopes.len() - 1);
        Ok(self.scopes.len() - 1)
    }

    /// Finds what makes a result of the function that a node calls.
    fn result(&mut self, call: Place<'g>, output: usize) -> Result<Step<'g>> {
        let frame = self.enter(call)?;
        let function = self.scope(frame).function.expect("a call enters a function");
        let arg = function.signature.as_ref().and_then(|s| s.output_arg.get(output));
        let name = arg.and_then(|arg| function.ret.get(&arg.name));
        let missing = || wrong(call.node, format!("its function has no result {output}"));
        self.locate(frame, name.ok_or_else(missing)?, call.node)
    }

    /// Takes one step back from an input of a node.
    fn step(&self, at: Place<'g>, input: usize) -> Result<Step<'g>> {
        let name = at.node.input.get(input).filter(|name| !name.starts_with('^'));
        let name = name.ok_or_else(|| wrong(at.node, format!("it has no input {input}")))?;
        self.locate(at.frame, name, at.node)
    }

    /// Finds what makes the tensor of a name, as `by` names it.
    fn locate(&self, frame: usize, name: &str, by: &tf::NodeDef) -> Result<Step<'g>> {
        if let Some(arg) = self.scope(frame).args.get(name) {
            let caller = self.frames[frame].caller.expect("a function has arguments and a caller");
            return Ok(Step::Outside(caller, *arg));
        }
        // In a graph `node` or `node:1`; in a function `node:name_of_output:1`.
        let (node, output) = name.split_once(':').unwrap_or((name, "0"));
        let output = output.rsplit(':').next().unwrap_or_default();
        let output =
            output.parse().map_err(|_| wrong(by, format!("its input {name:?} is malformed")))?;
        Ok(Step::Made(self.node(frame, node, &by.name)?, output))
    }
}

enum Step<'g> {
    /// The value is an argument of the function that a node calls.
    Outside(Place<'g>, usize),
    /// The value is an output of a node.
    Made(Place<'g>, usize),
}
