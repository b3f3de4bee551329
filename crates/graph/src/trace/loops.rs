//! Loops of TensorFlow 1 (`Enter`, `Merge`, `Switch`, `NextIteration`, `Exit`) as `While`.
//!
//! The nodes of a loop are traced three times: what its condition depends on, what the values of
//! the next iteration depend on, and what its results depend on. The first two become functions of
//! the loop's variables and of what enters as a constant, the third goes behind the `While`.

use std::collections::BTreeMap;
use std::sync::Arc;

use ops::{Attrs, Kind};
use proto::tensorflow::attr_value::Value as AttrKind;
use proto::tensorflow::{AttrValue, NameAttrList};
use tensor::{DType, Spec};

use super::live::Live;
use super::scope::{Emitted, Outputs, Part, Scope, Value, What};
use super::switch::dtype_of;
use super::{LOOPS_MAX, Tracer};
use crate::error::{Error, Result};
use crate::graph::{Graph, Port};
use crate::reference::Reference;

/// Something that a loop is given: the node in the loop that stands for it, and its value.
struct LoopsState {
    node: usize,
    /// The node that leads to the next iteration; none for a constant.
    next: Option<usize>,
    start: Value,
    dtype: DType,
}

impl<'a> Tracer<'a> {
    /// Emits a loop, and gives what leads out of it.
    pub(super) fn emit_loop(
        &mut self,
        scope: &Scope<'a>,
        frame: usize,
    ) -> Result<Vec<(usize, Emitted)>> {
        self.n_loops += 1;
        if self.n_loops > LOOPS_MAX {
            return Err(Error::Malformed(format!("more than {LOOPS_MAX} loops")));
        }
        let frames = Arc::clone(&scope.frames);
        let name = &frames.frames[frame].name;
        let states = self.enter(scope, frame)?;
        let exits = &frames.frames[frame].exits;
        if self.live == Live::NEVER {
            let dead = Emitted { live: Live::NEVER, outputs: Outputs::Dead };
            return Ok(exits.iter().map(|exit| (*exit, dead.clone())).collect());
        }
        let Some(condition) = frames.frames[frame].condition else {
            return Err(Error::Malformed(format!("loop {name} has no condition")));
        };
        let goes_on =
            self.trace_part(scope.of_loop(frame, Part::Condition), &states, &[condition])?;
        let next: Vec<usize> = states.iter().filter_map(|state| state.next).collect();
        let mut body = self.trace_part(scope.of_loop(frame, Part::Body), &states, &next)?;
        // The first nodes of a part are its arguments; constants are handed on.
        let constants = next.len()..states.len();
        let argument = |i: usize| Port { node: u32::try_from(i).expect("few states"), output: 0 };
        body.fetches.extend(constants.map(argument));
        let results = self.push_while(scope, name, &states, [goes_on, body])?;
        self.emit_after(scope, frame, &states, results)
    }

    /// The values that a loop is given, variables first.
    fn enter(&mut self, scope: &Scope<'a>, frame: usize) -> Result<Vec<LoopsState>> {
        let frames = Arc::clone(&scope.frames);
        let frame = &frames.frames[frame];
        let mut live = scope.live;
        let mut starts = BTreeMap::new();
        for enter in &frame.enters {
            let def = &scope.body.nodes[*enter];
            let (inputs, alive) = self.inputs(scope, *enter)?;
            live = self.lives.both(live, alive)?;
            let Some(Some(value)) = inputs.first() else {
                return Err(Error::Malformed(format!("node {} has no input", def.name)));
            };
            starts.insert(*enter, *value);
        }
        self.live = live;
        let mut states = Vec::new();
        for variable in &frame.variables {
            let value = self.value_of(starts[&variable.enter]);
            let state = self.state(scope, variable.enter, value)?;
            states.push(LoopsState { node: variable.merge, next: Some(variable.next), ..state });
        }
        for enter in &frame.enters {
            let def = &scope.body.nodes[*enter];
            let is_constant = Attrs::new(&def.attr).bool_or("is_constant", false).unwrap_or(false);
            if is_constant {
                let value = starts[enter];
                let value = if def.op == "RefEnter" { value } else { self.value_of(value) };
                states.push(self.state(scope, *enter, value)?);
            }
        }
        Ok(states)
    }

    /// A value that is no reference.
    fn value_of(&mut self, value: Value) -> Value {
        if self.live == Live::NEVER {
            return value;
        }
        Value { what: What::Port(self.read(value)), live: value.live }
    }

    /// A constant that a loop is given by an `Enter`, which stands for it in the loop.
    fn state(&self, scope: &Scope<'a>, enter: usize, start: Value) -> Result<LoopsState> {
        let def = &scope.body.nodes[enter];
        let lost = || Error::Malformed(format!("node {} has no dtype", def.name));
        let dtype = dtype_of(start, &scope.attrs(def)).ok_or_else(lost)?;
        Ok(LoopsState { node: enter, next: None, start, dtype })
    }

    /// A function of a loop's state for one of its parts: its results are what `wanted` nodes give.
    fn trace_part(
        &mut self,
        mut inner: Scope<'a>,
        states: &[LoopsState],
        wanted: &[usize],
    ) -> Result<Graph> {
        let mut tracer = Tracer::new(self.source, String::new());
        tracer.calls.clone_from(&self.calls);
        (tracer.n_calls, tracer.n_loops) = (self.n_calls, self.n_loops);
        tracer.name.clone_from(&self.name);
        for state in states {
            let name = &inner.body.nodes[state.node].name;
            let port = tracer.push_arg(name, Spec::unknown(state.dtype));
            bind(&mut inner, state, port);
        }
        tracer.emit(&mut inner, wanted.to_vec())?;
        for node in wanted {
            let name = &inner.body.nodes[*node].name;
            let value = tracer.value(&inner, Reference::Output(name, 0), name)?;
            if value.live != Live::ALWAYS {
                let why = format!("node {name} of a loop may be dead");
                return Err(Error::Malformed(why));
            }
            let port = tracer.read(value);
            tracer.graph.fetches.push(port);
        }
        (self.n_calls, self.n_loops) = (tracer.n_calls, tracer.n_loops);
        for (op, count) in tracer.missing.0 {
            *self.missing.0.entry(op).or_insert(0) += count;
        }
        for (op, count) in tracer.counts {
            *self.counts.entry(op).or_insert(0) += count;
        }
        self.called.extend(tracer.called);
        self.graph.functions.append(&mut tracer.graph.functions);
        Ok(tracer.graph)
    }

    /// The loop as a node; gives where its results are.
    fn push_while(
        &mut self,
        scope: &Scope<'a>,
        name: &str,
        states: &[LoopsState],
        parts: [Graph; 2],
    ) -> Result<Vec<Port>> {
        let has_effects =
            |graph: &Graph| graph.nodes.iter().any(|node| matches!(node.kind(), Kind::Writes));
        let op = if parts.iter().any(has_effects) { "While" } else { "StatelessWhile" };
        let name = format!("{}{name}", scope.prefix);
        let mut attrs = BTreeMap::new();
        for (attr, part) in ["cond", "body"].into_iter().zip(parts) {
            // No function of the graph has such a name, and no two loops of a model have one.
            let function = format!("{} {name} #{} {attr}", self.name, self.n_loops);
            let call = NameAttrList { name: function.clone(), attr: BTreeMap::new() };
            let value = Some(AttrKind::Func(Box::new(call)));
            attrs.insert(attr.to_owned(), AttrValue { value });
            self.graph.functions.insert(function, part);
        }
        let name: Arc<str> = name.into();
        let body = self.op(op, &name, &attrs)?;
        let inputs = states.iter().map(|state| match state.start.what {
            What::Port(port) | What::Reference(port) => port,
        });
        let inputs: Vec<Port> = inputs.collect();
        let node = self.push(name, body, inputs, Arc::new(attrs)).node;
        let output = |i: usize| Port { node, output: u32::try_from(i).expect("few states") };
        Ok((0..states.len()).map(output).collect())
    }

    /// Emits the nodes behind a loop, for when it does not go on.
    fn emit_after(
        &mut self,
        scope: &Scope<'a>,
        frame: usize,
        states: &[LoopsState],
        results: Vec<Port>,
    ) -> Result<Vec<(usize, Emitted)>> {
        let live = self.live;
        let mut after = scope.of_loop(frame, Part::After);
        after.live = live;
        for (state, port) in states.iter().zip(results) {
            // What entered as a constant is still what it was.
            let port = match state.start.what {
                What::Port(start) | What::Reference(start) if state.next.is_none() => start,
                _ => port,
            };
            bind(&mut after, state, port);
        }
        let exits = scope.frames.frames[frame].exits.clone();
        self.emit(&mut after, exits.clone())?;
        let emitted =
            exits.into_iter().filter_map(|exit| Some((exit, after.emitted.remove(&exit)?)));
        Ok(emitted.collect())
    }
}

/// Makes `port` what a node that stands for a loop's state gives.
fn bind(scope: &mut Scope<'_>, state: &LoopsState, port: Port) {
    let what = match state.start.what {
        What::Port(_) => What::Port(port),
        What::Reference(_) => What::Reference(port),
    };
    let live = scope.live;
    let outputs = Outputs::Values(vec![Value { what, live }]);
    scope.emitted.insert(state.node, Emitted { live, outputs });
}
