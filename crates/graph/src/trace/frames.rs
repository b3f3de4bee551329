//! `Frames`: the loops of TensorFlow 1, found by their `Enter` nodes, and which nodes are in which.

use proto::tensorflow::NodeDef;
use proto::tensorflow::attr_value::Value as AttrKind;
use rustc_hash::{FxHashMap, FxHashSet};

use super::order::target;
use super::scope::Scope;
use crate::error::{Error, Result};
use crate::reference::Reference;

/// The frame outside of all loops.
pub(super) const OUTSIDE: usize = 0;

/// Stands for what is fed, or is an argument: it comes from outside.
const GIVEN: usize = usize::MAX;

/// The deepest loops within loops.
const DEPTH_MAX: usize = 32;

/// The loops of a scope, as far as its roots depend on them.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// The frames; the one outside of all loops comes first.
    pub(super) frames: Vec<Frame>,
    /// The frame in which each node runs.
    of: FxHashMap<usize, usize>,
    /// Switches on the condition of their loop.
    switches: FxHashSet<usize>,
}

/// One loop.
#[derive(Debug, Default)]
pub(super) struct Frame {
    pub(super) name: String,
    pub(super) parent: usize,
    depth: usize,
    /// The nodes that lead into it.
    pub(super) enters: Vec<usize>,
    /// The inputs of those nodes, by node and number: what must be there before it begins.
    pub(super) entries: Vec<(usize, usize)>,
    /// The nodes that lead out of it.
    pub(super) exits: Vec<usize>,
    /// Its variables.
    pub(super) variables: Vec<Variable>,
    /// Its condition.
    pub(super) condition: Option<usize>,
}

/// A value that goes around: it begins at an enter and goes on at a next iteration.
#[derive(Debug, Clone, Copy)]
pub(super) struct Variable {
    pub(super) merge: usize,
    pub(super) enter: usize,
    pub(super) next: usize,
}

/// An op's name without the prefix of its form for references.
pub(super) fn plain_name(op: &str) -> &str {
    match op {
        "RefEnter" => "Enter",
        "RefExit" => "Exit",
        "RefMerge" => "Merge",
        "RefNextIteration" => "NextIteration",
        "RefSwitch" => "Switch",
        "RefIdentity" => "Identity",
        other => other,
    }
}

fn is(node: &NodeDef, op: &str) -> bool {
    plain_name(&node.op) == op
}

impl Frames {
    /// Finds the loops that `roots` depend on. Fails if nodes do not lie in loops as TensorFlow
    /// wants them to, and if they depend on themselves other than by going around.
    pub(super) fn find(scope: &Scope<'_>, roots: &[usize]) -> Result<Self> {
        let inputs = reach(scope, roots)?;
        let outputs = [(GIVEN, OUTSIDE)].into_iter().collect();
        let names = FxHashMap::default();
        let mut finder = Finder { scope, found: Self::default(), outputs, names };
        finder.found.frames.push(Frame::default());
        for node in sort(scope, &inputs)? {
            finder.take(node, &inputs[&node])?;
        }
        for (node, inputs) in &inputs {
            finder.close(*node, inputs)?;
        }
        for root in roots {
            if finder.outputs.get(root) != Some(&OUTSIDE) {
                let name = &scope.body.nodes[*root].name;
                return Err(Error::Malformed(format!("node {name} is inside of a loop")));
            }
        }
        let mut found = finder.found;
        for frame in &mut found.frames {
            // In the order of the graph, whatever the order of the search was.
            frame.variables.sort_by_key(|variable| variable.merge);
            frame.enters.sort_unstable();
            let n_inputs = |node: usize| scope.body.nodes[node].input.len();
            let inputs =
                |node: &usize| (0..n_inputs(*node)).map(|i| (*node, i)).collect::<Vec<_>>();
            frame.entries = frame.enters.iter().flat_map(inputs).collect();
            frame.exits.sort_unstable();
        }
        Ok(found)
    }

    /// The frame in which a node runs; an `Exit` runs in the loop that it leads out of.
    pub(super) fn frame_of(&self, node: usize) -> usize {
        self.of.get(&node).copied().unwrap_or(OUTSIDE)
    }

    /// Returns whether a node is a switch on the condition of its loop.
    pub(super) fn is_loop_switch(&self, node: usize) -> bool {
        self.switches.contains(&node)
    }
}

/// The inputs of each node that `roots` depend on: nodes, and whether the edge leads back.
fn reach(scope: &Scope<'_>, roots: &[usize]) -> Result<FxHashMap<usize, Vec<(usize, bool)>>> {
    let nodes = &scope.body.nodes;
    let mut found: FxHashMap<usize, Vec<(usize, bool)>> = FxHashMap::default();
    let mut waiting = roots.to_vec();
    while let Some(node) = waiting.pop() {
        if found.contains_key(&node) {
            continue;
        }
        let def = &nodes[node];
        let mut inputs = Vec::with_capacity(def.input.len());
        for input in &def.input {
            let Some(target) = target(scope, input, &def.name)? else {
                inputs.push((GIVEN, false));
                continue;
            };
            inputs.push((target, is(def, "Merge") && is(&nodes[target], "NextIteration")));
            waiting.push(target);
        }
        found.insert(node, inputs);
    }
    Ok(found)
}

/// The nodes, each after its inputs, edges that lead back left out.
fn sort(scope: &Scope<'_>, inputs: &FxHashMap<usize, Vec<(usize, bool)>>) -> Result<Vec<usize>> {
    let mut users: FxHashMap<usize, Vec<usize>> = FxHashMap::default();
    let mut missing: FxHashMap<usize, usize> = FxHashMap::default();
    let mut ready = Vec::new();
    for (node, inputs) in inputs {
        let forward = inputs.iter().filter(|(input, leads_back)| !leads_back && *input != GIVEN);
        let n = forward.map(|(input, _)| users.entry(*input).or_default().push(*node)).count();
        missing.insert(*node, n);
        if n == 0 {
            ready.push(*node);
        }
    }
    let mut sorted = Vec::with_capacity(inputs.len());
    while let Some(node) = ready.pop() {
        sorted.push(node);
        for user in users.remove(&node).unwrap_or_default() {
            let n = missing.get_mut(&user).expect("every node is counted");
            *n -= 1;
            if *n == 0 {
                ready.push(user);
            }
        }
    }
    if sorted.len() < inputs.len() {
        let stuck = missing.iter().filter(|(_, n)| **n > 0).map(|(node, _)| *node).min();
        let name = &scope.body.nodes[stuck.expect("some node was not sorted")].name;
        return Err(Error::Malformed(format!("node {name} depends on itself")));
    }
    Ok(sorted)
}

struct Finder<'a, 'b> {
    scope: &'a Scope<'b>,
    found: Frames,
    /// The frame in which each node's outputs are.
    outputs: FxHashMap<usize, usize>,
    /// Frames by the frame around them and their name.
    names: FxHashMap<(usize, String), usize>,
}

impl Finder<'_, '_> {
    /// Places a node whose inputs are placed.
    fn take(&mut self, node: usize, inputs: &[(usize, bool)]) -> Result<()> {
        let def = &self.scope.body.nodes[node];
        let mut forward = inputs.iter().filter(|(_, back)| !back).map(|(input, _)| *input);
        let frame = forward.clone().next().map_or(OUTSIDE, |input| self.outputs[&input]);
        if let Some(other) = forward.find(|input| self.outputs[input] != frame) {
            // The text is TensorFlow's (`control_flow.cc`).
            let (name, op) = (&def.name, &def.op);
            let (mine, theirs) = (self.name(frame), self.name(self.outputs[&other]));
            return Err(Error::Malformed(format!(
                "{{{{node {name}}}}} ({op}) has inputs from different frames: '{mine}' and \
                 '{theirs}'"
            )));
        }
        self.found.of.insert(node, frame);
        let after = match plain_name(&def.op) {
            "Enter" => self.enter(node, frame)?,
            "Exit" if frame == OUTSIDE => {
                let why = format!("node {} leaves a loop where there is none", def.name);
                return Err(Error::Malformed(why));
            }
            "Exit" => {
                self.found.frames[frame].exits.push(node);
                self.found.frames[frame].parent
            }
            "LoopCond" => {
                if self.found.frames[frame].condition.replace(node).is_some() {
                    let name = self.name(frame);
                    return Err(Error::Malformed(format!("loop {name} has two conditions")));
                }
                frame
            }
            "Switch" => {
                if self.is_on_loop_condition(node) {
                    self.found.switches.insert(node);
                }
                frame
            }
            _ => frame,
        };
        self.outputs.insert(node, after);
        Ok(())
    }

    /// The loop that an `Enter` leads into: those of one name within one loop are the same.
    fn enter(&mut self, node: usize, parent: usize) -> Result<usize> {
        let def = &self.scope.body.nodes[node];
        let Some(AttrKind::S(name)) = def.attr.get("frame_name").and_then(|a| a.value.as_ref())
        else {
            return Err(Error::Malformed(format!("node {} names no frame", def.name)));
        };
        let name = String::from_utf8_lossy(name).into_owned();
        let frames = &mut self.found.frames;
        let frame = match self.names.get(&(parent, name.clone())) {
            Some(frame) => *frame,
            None => {
                let depth = frames[parent].depth + 1;
                if depth > DEPTH_MAX || frames.len() > super::LOOPS_MAX {
                    return Err(Error::Malformed("too many loops, or nested too deep".to_owned()));
                }
                self.names.insert((parent, name.clone()), frames.len());
                frames.push(Frame { name, parent, depth, ..Frame::default() });
                frames.len() - 1
            }
        };
        frames[frame].enters.push(node);
        Ok(frame)
    }

    fn is_on_loop_condition(&self, switch: usize) -> bool {
        let nodes = &self.scope.body.nodes;
        let mut input = nodes[switch].input.get(1);
        // An identity in between changes nothing; the graph has no circles here.
        while let Some(node) = input.and_then(|input| self.scope.body.find(node_of(input))) {
            match plain_name(&nodes[node].op) {
                "LoopCond" => return true,
                "Identity" => input = nodes[node].input.first(),
                _ => return false,
            }
        }
        false
    }

    /// Finds the variables of loops, once all nodes are placed.
    fn close(&mut self, node: usize, inputs: &[(usize, bool)]) -> Result<()> {
        let back: Vec<usize> = inputs.iter().filter(|(_, back)| *back).map(|(i, _)| *i).collect();
        let [next] = back[..] else {
            return if back.is_empty() { Ok(()) } else { Err(self.odd_merge(node)) };
        };
        let nodes = &self.scope.body.nodes;
        let frame = self.found.of[&node];
        let enters: Vec<usize> = inputs
            .iter()
            .filter(|(input, back)| !back && *input != GIVEN && is(&nodes[*input], "Enter"))
            .map(|(input, _)| *input)
            .collect();
        let n_values = nodes[node].input.iter().filter(|input| !input.starts_with('^')).count();
        let [enter] = enters[..] else { return Err(self.odd_merge(node)) };
        if n_values != 2 || frame == OUTSIDE || self.outputs[&next] != frame {
            return Err(self.odd_merge(node));
        }
        self.found.frames[frame].variables.push(Variable { merge: node, enter, next });
        Ok(())
    }

    fn odd_merge(&self, node: usize) -> Error {
        let name = &self.scope.body.nodes[node].name;
        Error::Malformed(format!(
            "node {name} does not merge one way into a loop with one way around it"
        ))
    }

    fn name(&self, frame: usize) -> &str {
        &self.found.frames[frame].name
    }
}

/// The name of the node that an input refers to.
fn node_of(input: &str) -> &str {
    Reference::parse(input).map_or(input, Reference::node)
}
