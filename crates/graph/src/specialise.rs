//! Gives loops and branches the constants that they are called with: weights that a loop's body
//! takes as an argument are packed and fused like any others, once, instead of being handed around.

use std::collections::BTreeMap;
use std::sync::Arc;

use ops::{Attrs, Env, Functions, Observer, PassThrough, Ready};
use proto::tensorflow::AttrValue;
use proto::tensorflow::attr_value::Value as AttrKind;
use rustc_hash::FxHashSet;
use tensor::{Spec, Tensor};

use crate::error::{Error, Result};
use crate::functions::Library;
use crate::graph::{Body, Graph, Node, Port};
use crate::program::{Build, Program};

/// The most calls of one program that get functions of their own.
const CALLS_MAX: usize = 16;

/// Inputs of nodes that nobody reads any more: a loop that has them as constants of its own only
/// hands them around.
pub(crate) type Handed = FxHashSet<(u32, usize)>;

/// Replaces the functions that nodes call with constants by functions of their own, and gives
/// those, with what calls then only hand around. Nested ones are specialised as often as the
/// functions around allow.
pub(crate) fn specialise(graph: &mut Graph, build: &Build<'_>) -> Result<(Library, Handed)> {
    let (mut library, mut handed) = (Library::default(), Handed::default());
    let levels = build.env.functions.levels();
    if levels == 0 {
        return Ok((library, handed));
    }
    let inner = Nested { outer: build.env.functions, levels: levels - 1 };
    let env = Env { functions: &inner, ..*build.env };
    let build = Build { env: &env, options: build.options.of_functions(), ..*build };
    let mut n_calls = 0;
    for number in 0..graph.nodes.len() {
        let Some(call) = SpecialiseCall::from_node(graph, &graph.nodes[number], &inner) else {
            continue;
        };
        n_calls += 1;
        if n_calls > CALLS_MAX {
            break;
        }
        let attrs = call.build(&mut library, number, &build)?;
        handed.extend(call.handed(graph, u32::try_from(number).expect("a graph is bounded")));
        let node = &mut graph.nodes[number];
        let Body::Op { def, .. } = &node.body else { continue };
        let op =
            (def.build)(&Attrs::new(&attrs)).map_err(|error| Error::node(&node.name, error))?;
        node.body = Body::Op { def, op: Arc::from(op) };
        node.attrs = Arc::new(attrs);
    }
    Ok((library, handed))
}

/// A call of functions with constants.
struct SpecialiseCall<'a> {
    attrs: &'a BTreeMap<String, AttrValue>,
    /// The bodies of the functions, by name.
    bodies: BTreeMap<String, &'a Graph>,
    /// The arguments that are constant: their numbers, and the nodes that give them.
    constants: Vec<(usize, &'a Node)>,
    is_loop: bool,
}

impl<'a> SpecialiseCall<'a> {
    /// The call that a node is; `None` if it is none, or nothing it gives is constant.
    fn from_node(graph: &'a Graph, node: &'a Node, functions: &'a Nested<'_>) -> Option<Self> {
        let calls = node.facts().calls;
        calls.is_control_flow().then_some(())?;
        let mut bodies = BTreeMap::new();
        for name in node.attrs.values().flat_map(names) {
            bodies.insert(name.to_owned(), functions.graph(name)?);
        }
        let goes_around = Attrs::new(&node.attrs).function("body").ok();
        let goes_around = goes_around.and_then(|body| bodies.get(body).copied());
        let constant = |(number, port): (usize, &Port)| {
            let given = graph.node(port.node);
            // What a loop changes is constant only at first.
            let stays = goes_around.is_none_or(|body| hands_on(body, number));
            (stays && given.as_const().is_some()).then_some((number, given))
        };
        let operands = node.operands().get(calls.first_arg()..)?;
        let constants: Vec<_> = operands.iter().enumerate().filter_map(constant).collect();
        let is_loop = goes_around.is_some();
        (!constants.is_empty()).then_some(Self { attrs: &node.attrs, bodies, constants, is_loop })
    }

    /// The inputs of a loop that it only hands around, if nobody wants them back.
    fn handed(&self, graph: &Graph, node: u32) -> Vec<(u32, usize)> {
        let is_wanted = |number: usize| {
            let output = u32::try_from(number).expect("a node has few outputs");
            let port = Port { node, output };
            let reads = |node: &Node| node.inputs.contains(&port);
            graph.fetches.contains(&port) || graph.nodes.iter().any(reads)
        };
        let numbers = self.constants.iter().map(|(number, _)| *number);
        let handed = numbers.filter(|number| self.is_loop && !is_wanted(*number));
        handed.map(|number| (node, number)).collect()
    }

    /// Adds the functions with their constants to a library; gives the attributes that name them.
    fn build(
        &self,
        library: &mut Library,
        number: usize,
        build: &Build<'_>,
    ) -> Result<BTreeMap<String, AttrValue>> {
        let mut attrs = self.attrs.clone();
        for (name, body) in &self.bodies {
            let own = format!("{name}#{number}");
            let program = Program::build(with_constants(body, &self.constants), build)?;
            library.insert(own.clone(), program);
            attrs.values_mut().for_each(|attr| rename(attr, name, &own));
        }
        Ok(attrs)
    }
}

/// The names of functions in an attribute.
fn names(attr: &AttrValue) -> Vec<&str> {
    match &attr.value {
        Some(AttrKind::Func(function)) => vec![&function.name],
        Some(AttrKind::List(list)) => list.func.iter().map(|f| f.name.as_str()).collect(),
        _ => Vec::new(),
    }
}

fn rename(attr: &mut AttrValue, from: &str, to: &str) {
    let functions = match &mut attr.value {
        Some(AttrKind::Func(function)) => std::slice::from_mut(&mut **function),
        Some(AttrKind::List(list)) => &mut list.func[..],
        _ => return,
    };
    let same = functions.iter_mut().filter(|function| function.name == from);
    same.for_each(|function| to.clone_into(&mut function.name));
}

/// Returns whether a function gives argument number `arg` on as its result of the same number.
fn hands_on(body: &Graph, arg: usize) -> bool {
    let Some(mut port) = body.fetches.get(arg).copied() else { return false };
    loop {
        let node = body.node(port.node);
        match &node.body {
            Body::Arg(number) => return *number == arg,
            Body::Op { def, .. } if def.facts.passes == PassThrough::Anything => {
                port = node.inputs[0];
            }
            Body::Op { .. } | Body::Const(_) | Body::Scaled(_) => return false,
        }
    }
}

/// A function whose nodes read constants instead of arguments. What it hands on is still what it
/// was given.
fn with_constants(body: &Graph, constants: &[(usize, &Node)]) -> Graph {
    let mut graph = Graph { args: body.args.clone(), ..Graph::default() };
    let mut places = BTreeMap::new();
    for (number, given) in constants {
        let Some(value) = given.as_const() else { continue };
        graph.args[*number] =
            Spec { value: tensor::Value::Unknown, ..Spec::constant(value.clone()) };
        // The attributes of a handle tell which variable it is of.
        let attrs = Arc::clone(&given.attrs);
        let node = Node { attrs, ..Node::constant(&given.name, value.clone()) };
        places.insert(*number, graph.push(node));
    }
    let n_constants = u32::try_from(places.len()).expect("a node has few inputs");
    let moved = |port: Port| Port { node: port.node + n_constants, ..port };
    let read = |port: Port| match body.node(port.node).body {
        Body::Arg(number) => {
            places.get(&number).map_or(moved(port), |node| Port { node: *node, output: 0 })
        }
        Body::Const(_) | Body::Scaled(_) | Body::Op { .. } => moved(port),
    };
    for node in &body.nodes {
        let mut node = node.clone();
        node.inputs.iter_mut().for_each(|port| *port = read(*port));
        graph.push(node);
    }
    let arg = |wanted: usize| {
        let is_it = |node: &Node| matches!(node.body, Body::Arg(number) if number == wanted);
        let node = body.nodes.iter().position(is_it)?;
        Some(Port { node: u32::try_from(node).ok()?, output: 0 })
    };
    let fetch = |(number, port): (usize, &Port)| {
        let is_handed = places.contains_key(&number) && hands_on(body, number);
        moved(is_handed.then(|| arg(number)).flatten().unwrap_or(*port))
    };
    graph.fetches = body.fetches.iter().enumerate().map(fetch).collect();
    graph
}

/// The functions of a program around, for those of a program within.
struct Nested<'a> {
    outer: &'a dyn Functions,
    levels: usize,
}

impl Nested<'_> {
    fn graph(&self, function: &str) -> Option<&Graph> {
        self.outer.body(function)?.downcast_ref()
    }
}

impl Functions for Nested<'_> {
    fn infer(&self, function: &str, inputs: &[Spec]) -> ops::Result<Vec<Spec>> {
        self.outer.infer(function, inputs)
    }

    fn call(&self, function: &str, inputs: &[Tensor], env: &Env<'_>) -> ops::Result<Vec<Tensor>> {
        self.outer.call(function, inputs, env)
    }

    fn body(&self, function: &str) -> Option<&dyn std::any::Any> {
        self.outer.body(function)
    }

    fn levels(&self) -> usize {
        self.levels
    }

    fn observer(&self) -> Option<&dyn Observer> {
        self.outer.observer()
    }
}

/// The functions of a program's own before those around it.
pub(crate) struct Overlay<'a> {
    pub(crate) own: &'a Library,
    pub(crate) outer: &'a dyn Functions,
}

impl Functions for Overlay<'_> {
    fn infer(&self, function: &str, inputs: &[Spec]) -> ops::Result<Vec<Spec>> {
        match self.own.has(function) {
            true => self.own.infer_within(function, inputs, self),
            false => self.outer.infer(function, inputs),
        }
    }

    fn call(&self, function: &str, inputs: &[Tensor], env: &Env<'_>) -> ops::Result<Vec<Tensor>> {
        match self.own.has(function) {
            true => self.own.call(function, inputs, env),
            false => self.outer.call(function, inputs, env),
        }
    }

    fn ready(&self, function: &str, inputs: &[Spec], env: &Env<'_>) -> Option<Arc<dyn Ready>> {
        match self.own.has(function) {
            true => self.own.ready(function, inputs, env),
            false => self.outer.ready(function, inputs, env),
        }
    }

    fn observer(&self) -> Option<&dyn Observer> {
        self.outer.observer()
    }
}

/// The functions of a run that somebody watches.
pub(crate) struct Observed<'a> {
    pub(crate) outer: &'a dyn Functions,
    pub(crate) observer: &'a dyn Observer,
}

impl Functions for Observed<'_> {
    fn infer(&self, function: &str, inputs: &[Spec]) -> ops::Result<Vec<Spec>> {
        self.outer.infer(function, inputs)
    }

    fn call(&self, function: &str, inputs: &[Tensor], env: &Env<'_>) -> ops::Result<Vec<Tensor>> {
        self.outer.call(function, inputs, env)
    }

    fn ready(&self, function: &str, inputs: &[Spec], env: &Env<'_>) -> Option<Arc<dyn Ready>> {
        self.outer.ready(function, inputs, env)
    }

    fn body(&self, function: &str) -> Option<&dyn std::any::Any> {
        self.outer.body(function)
    }

    fn levels(&self) -> usize {
        self.outer.levels()
    }

    fn observer(&self) -> Option<&dyn Observer> {
        Some(self.observer)
    }
}
