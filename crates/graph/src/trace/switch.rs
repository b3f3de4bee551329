//! `Switch` and `Merge`: conditionals of TensorFlow 1. What depends on a switch has a condition.

use std::collections::BTreeMap;
use std::sync::Arc;

use ops::{Attrs, PassThrough};
use proto::tensorflow::AttrValue;
use tensor::{DType, Tensor};

use super::Tracer;
use super::live::Live;
use super::scope::{Emitted, Outputs, Part, Scope, Value, What};
use crate::error::{Error, Result};
use crate::graph::Port;
use crate::merge::{self, Conditions};

impl<'a> Tracer<'a> {
    /// Of the two outputs of a switch the one is alive if the condition does not hold, the other if
    /// it does. The condition of a loop is decided in each part of it.
    pub(super) fn emit_switch(
        &mut self,
        scope: &Scope<'a>,
        node: usize,
        inputs: &[Option<Value>],
    ) -> Result<Emitted> {
        let live = self.live;
        let name = &scope.body.nodes[node].name;
        let few = || Error::Malformed(format!("switch {name} needs two inputs"));
        let Some(Some(value)) = inputs.first().copied() else { return Err(few()) };
        let lives = if scope.frames.is_loop_switch(node) {
            match scope.part {
                Part::After => [live, Live::NEVER],
                Part::Body | Part::Condition | Part::Whole => [Live::NEVER, live],
            }
        } else {
            let Some(Some(condition)) = inputs.get(1).copied() else { return Err(few()) };
            let port = self.read(condition);
            let port = self.origin(port);
            [self.lives.with(live, port, false)?, self.lives.with(live, port, true)?]
        };
        let values = lives.map(|live| Value { live, ..value });
        Ok(Emitted { live, outputs: Outputs::Values(values.to_vec()) })
    }

    /// The port that a value comes from, identities left out: one condition must look like one.
    fn origin(&self, mut port: Port) -> Port {
        loop {
            let node = self.graph.node(port.node);
            match node.inputs.first() {
                Some(input) if node.facts().passes == PassThrough::Anything => port = *input,
                _ => return port,
            }
        }
    }

    /// A merge gives the first of its inputs that is alive, and is alive if any is.
    pub(super) fn emit_merge(
        &mut self,
        name: Arc<str>,
        inputs: &[Value],
        attrs: &BTreeMap<String, AttrValue>,
    ) -> Result<Emitted> {
        let alive: Vec<(usize, Value)> = (0..)
            .zip(inputs.iter().copied())
            .filter(|(_, value)| value.live != Live::NEVER)
            .collect();
        let Some(first) = alive.first() else {
            return Ok(Emitted { live: Live::NEVER, outputs: Outputs::Dead });
        };
        if alive.len() == 1 || first.1.live == Live::ALWAYS {
            let index = self.push_number(&name, first.0)?;
            let (live, values) = (first.1.live, vec![first.1, Value::from_port(index)]);
            return Ok(Emitted { live, outputs: Outputs::Values(values) });
        }
        self.live = self.any_alive(&name, &alive)?;
        let dtype = Attrs::new(attrs).dtype("T").map_err(|error| Error::node(&name, error))?;
        let mut values: Vec<(Port, Conditions)> = Vec::with_capacity(inputs.len());
        for value in inputs {
            // Those that are never alive keep their places, for the number of the one that is.
            let (port, live) = if value.live == Live::NEVER {
                (self.read(first.1), first.1.live)
            } else {
                (self.read(*value), value.live)
            };
            values.push((port, self.lives.conditions(live).clone()));
        }
        let (body, inputs) = merge::merge(dtype, &values);
        let live = self.live;
        let port = self.push(name, body, inputs, Arc::default());
        Ok(Emitted { live, outputs: Outputs::Node(port.node) })
    }

    /// The condition under which any of several values is alive: conditions that they share, or a
    /// new one.
    fn any_alive(&mut self, name: &Arc<str>, values: &[(usize, Value)]) -> Result<Live> {
        let mut lives: Vec<Live> = values.iter().map(|(_, value)| value.live).collect();
        // Pairs that complete each other become one, until nothing changes.
        'again: loop {
            for i in 0..lives.len() {
                for j in i + 1..lives.len() {
                    if let Some(either) = self.lives.either(lives[i], lives[j])? {
                        lives[i] = either;
                        lives.swap_remove(j);
                        continue 'again;
                    }
                }
            }
            break;
        }
        if let [live] = lives[..] {
            return Ok(live);
        }
        let conditions: Vec<Conditions> =
            lives.iter().map(|live| self.lives.conditions(*live).clone()).collect();
        let (body, inputs) = merge::any(&conditions);
        self.live = Live::ALWAYS;
        let port = self.push(Arc::clone(name), body, inputs, Arc::default());
        self.lives.with(Live::ALWAYS, port, true)
    }

    fn push_number(&mut self, name: &Arc<str>, number: usize) -> Result<Port> {
        let number = i32::try_from(number).unwrap_or(i32::MAX);
        let tensor = Tensor::scalar(number).map_err(|error| Error::node(name, error.into()))?;
        let body = crate::graph::Body::Const(tensor);
        Ok(self.push(Arc::clone(name), body, Vec::new(), Arc::default()))
    }

    /// A value as a result of the graph: one that may be dead says so when it is asked for.
    pub(super) fn fetch(&mut self, value: Value, name: &str) -> Result<Port> {
        if value.live == Live::NEVER {
            return Err(Error::Malformed(format!("{name} never has a value")));
        }
        self.live = value.live;
        let port = self.read(value);
        let fetched = if value.live == Live::ALWAYS {
            port
        } else {
            self.push(name.into(), merge::result(), vec![port], Arc::default())
        };
        self.live = Live::ALWAYS;
        Ok(fetched)
    }
}

/// The dtype of a reference's handle, or of a value.
pub(super) fn dtype_of(value: Value, attrs: &BTreeMap<String, AttrValue>) -> Option<DType> {
    match value.what {
        What::Reference(_) => Some(DType::Resource),
        What::Port(_) => Attrs::new(attrs).dtype("T").ok(),
    }
}
