//! Handles that loops and branches capture: where every call gives a function the same variable,
//! the function finds it itself. Its weights are then known when it is built, and folded and
//! packed.

use std::sync::Arc;

use ops::{Attrs, PassThrough, VariableAccess};
use rustc_hash::FxHashMap;

use crate::graph::{Body, Graph, Node, Port};

/// For each function, what its arguments are in all calls.
#[derive(Debug, Default)]
pub(crate) struct Captures(FxHashMap<String, Vec<Capture>>);

/// The value of an argument in the calls seen so far.
#[derive(Debug, Clone)]
enum Capture {
    /// The handle that this node gives.
    Handle(Box<Node>),
    /// Anything.
    Other,
}

impl Captures {
    /// Looks at the calls in a graph, and in the functions that it calls, which are ordered such
    /// that each comes after all it calls. Puts the handles into those functions. Gives which of
    /// them were changed by a handle that earlier graphs did not give, and so must be built anew.
    pub(crate) fn apply(
        &mut self,
        graph: &Graph,
        functions: &mut [(String, Graph)],
    ) -> Vec<String> {
        let before = self.0.clone();
        self.look(graph, functions);
        let mut stale = Vec::new();
        for at in (0..functions.len()).rev() {
            let (callees, rest) = functions.split_at_mut(at);
            let (name, body) = &mut rest[0];
            if let Some(captures) = self.0.get(name.as_str()) {
                put_in(body, captures);
                let old = before.get(name.as_str());
                if old.is_some_and(|old| !old.iter().zip(captures).all(|(a, b)| a.is(b))) {
                    stale.push(name.clone());
                }
            }
            self.look(body, callees);
        }
        stale
    }

    /// Takes note of the calls in a graph of some functions.
    fn look(&mut self, graph: &Graph, functions: &[(String, Graph)]) {
        for node in &graph.nodes {
            let Some((names, first)) = calls(node) else { continue };
            let given: Vec<Capture> = node
                .inputs
                .iter()
                .skip(first)
                .map(|port| Capture::from_port(graph, *port))
                .collect();
            let kept: Vec<bool> = match names.get(1).filter(|_| first == 0) {
                Some(body) => (0..given.len()).map(|arg| keeps(functions, body, arg)).collect(),
                None => vec![true; given.len()],
            };
            for name in names {
                let known = self.0.entry(name).or_insert_with(|| given.clone());
                for (i, known) in known.iter_mut().enumerate() {
                    let same = kept.get(i) == Some(&true)
                        && given.get(i).is_some_and(|given| known.is(given));
                    if !same {
                        *known = Capture::Other;
                    }
                }
            }
        }
    }
}

impl Capture {
    fn from_port(graph: &Graph, port: Port) -> Self {
        let node = origin(graph, port);
        if node.facts().variable == VariableAccess::Handle {
            return Self::Handle(Box::new(node.clone()));
        }
        Self::Other
    }

    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Handle(a), Self::Handle(b)) => a.attrs == b.attrs,
            (Self::Other, Self::Other) => true,
            _ => false,
        }
    }
}

/// The functions that a node calls, and its first input that is an argument. A loop's body is the
/// second of two.
fn calls(node: &Node) -> Option<(Vec<String>, usize)> {
    let calls = node.facts().calls;
    if !calls.is_control_flow() {
        return None;
    }
    let names = calls.functions(&Attrs::new(&node.attrs)).ok()?;
    Some((names.into_iter().map(str::to_owned).collect(), calls.first_arg()))
}

/// Returns whether a loop's body gives an argument on as it got it.
fn keeps(functions: &[(String, Graph)], body: &str, arg: usize) -> bool {
    let Some((_, graph)) = functions.iter().find(|(name, _)| name == body) else { return false };
    let given = graph.fetches.get(arg).map(|port| &origin(graph, *port).body);
    matches!(given, Some(Body::Arg(number)) if *number == arg)
}

/// The node that a value comes from, before identities.
fn origin(graph: &Graph, mut port: Port) -> &Node {
    loop {
        let node = graph.node(port.node);
        match node.inputs.first() {
            Some(input) if node.facts().passes == PassThrough::Anything => port = *input,
            _ => return node,
        }
    }
}

/// Lets a function's nodes read the handles that are known instead of its arguments. What it gives
/// back stays its argument.
fn put_in(graph: &mut Graph, captures: &[Capture]) {
    let mut new = Graph { args: std::mem::take(&mut graph.args), ..Graph::default() };
    let mut numbers = Vec::with_capacity(graph.nodes.len());
    let mut readers = Vec::with_capacity(graph.nodes.len());
    for mut node in std::mem::take(&mut graph.nodes) {
        let moved = |port: &mut Port| port.node = readers[port.node as usize];
        node.inputs.iter_mut().for_each(moved);
        let handle = match &node.body {
            Body::Arg(number) => captures.get(*number),
            Body::Const(_) | Body::Scaled(_) | Body::Op { .. } => None,
        };
        let handle = match handle {
            Some(Capture::Handle(handle)) => Some(Node {
                name: Arc::clone(&node.name),
                inputs: Vec::new(),
                ..(**handle).clone()
            }),
            Some(Capture::Other) | None => None,
        };
        let number = new.push(node);
        numbers.push(number);
        readers.push(handle.map_or(number, |handle| new.push(handle)));
    }
    // An identity of an argument now reads the handle, which is as good.
    let fetches = graph.fetches.iter();
    new.fetches = fetches.map(|port| Port { node: numbers[port.node as usize], ..*port }).collect();
    *graph = new;
}

#[cfg(test)]
mod tests {
    use smallvec::SmallVec;

    use super::*;

    fn node(name: &str, body: Body, inputs: &[u32]) -> Node {
        let inputs = inputs.iter().map(|node| Port { node: *node, output: 0 }).collect();
        Node { name: name.into(), body, inputs, when: SmallVec::new(), attrs: Arc::default() }
    }

    fn op(op: &str) -> Body {
        let def = ops::find(op).expect("an op");
        let attrs = std::collections::BTreeMap::new();
        let op = (def.build)(&Attrs::new(&attrs)).expect("it needs no attributes");
        Body::Op { def, op: Arc::from(op) }
    }

    #[test]
    fn a_handle_takes_the_place_of_the_argument_for_readers_only() {
        let unknown = tensor::Spec::unknown(tensor::DType::F32);
        let mut graph = Graph { args: vec![unknown.clone(), unknown], ..Graph::default() };
        graph.push(node("a", Body::Arg(0), &[]));
        graph.push(node("b", Body::Arg(1), &[]));
        graph.push(node("sum", op("AddV2"), &[0, 1]));
        graph.fetches = vec![Port { node: 2, output: 0 }, Port { node: 1, output: 0 }];
        let handle = node("handle", op("Neg"), &[]);
        put_in(&mut graph, &[Capture::Other, Capture::Handle(Box::new(handle))]);
        let names: Vec<&str> = graph.nodes.iter().map(Node::op_name).collect();
        assert_eq!(names, ["Arg", "Arg", "Neg", "AddV2"]);
        let inputs: Vec<u32> = graph.nodes[3].inputs.iter().map(|port| port.node).collect();
        assert_eq!(inputs, [0, 2]);
        let fetches: Vec<u32> = graph.fetches.iter().map(|port| port.node).collect();
        assert_eq!(fetches, [3, 1]);
    }
}
