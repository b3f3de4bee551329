//! From a request to a flat graph: follows the fetches back to the feeds, and puts the bodies of
//! functions in place of their calls.
//!
//! Everything here is iterative over nodes; only calls of functions recurse, to a bounded depth.

mod frames;
mod live;
mod loops;
mod order;
mod scope;
mod switch;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ops::{Attrs, FunctionCall, Kind};
use proto::tensorflow::attr_value::Value as AttrKind;
use proto::tensorflow::{AttrValue, NodeDef};
use smallvec::SmallVec;
use tensor::{DType, Spec};

use crate::error::{Error, MissingOps, Result};
use crate::graph::{Body, Graph, Node, Port};
use crate::reference::Reference;
use crate::source::{Request, Source};
use frames::Frames;
use live::{Live, Lives};
use scope::{Emitted, Outputs, Part, Scope, Value, What};

/// The most nodes of a flat graph: hostile functions could multiply without end.
const NODES_MAX: usize = 4 << 20;

/// The most calls that are replaced by the bodies of their functions.
const CALLS_MAX: usize = 100_000;

/// The most loops of TensorFlow 1.
const LOOPS_MAX: usize = 4096;

/// The most conditions of nodes, all together.
const CONDITIONS_MAX: usize = 16 << 20;

/// The deepest calls of functions within functions.
const DEPTH_MAX: usize = 200;

impl Source {
    /// The flat graph of a request. Fails with all missing ops at once, those in the bodies of
    /// loops and branches included.
    pub fn trace(&self, request: &Request) -> Result<Graph> {
        let mut tracer = Tracer::new(self, self.next_name());
        tracer.trace_main(request)?;
        let (graph, called, mut missing) = (tracer.graph, tracer.called, tracer.missing);
        self.missing_in_functions(called, &mut missing)?;
        if missing.0.is_empty() { Ok(graph) } else { Err(Error::MissingOps(missing)) }
    }

    /// Counts each op in the graph of a request, function bodies in place of their calls, ops that
    /// we do not have included. A body that is called while running counts once.
    pub fn op_counts(&self, request: &Request) -> Result<BTreeMap<String, usize>> {
        let mut tracer = Tracer::new(self, self.next_name());
        tracer.trace_main(request)?;
        let mut counts = tracer.counts;
        let mut waiting: Vec<String> = tracer.called.into_iter().collect();
        let mut seen = BTreeSet::new();
        while let Some(name) = waiting.pop() {
            if seen.insert(name.clone()) {
                let mut tracer = Tracer::new(self, name.clone());
                tracer.trace_function(&name)?;
                waiting.extend(tracer.called);
                for (op, count) in tracer.counts {
                    *counts.entry(op).or_insert(0) += count;
                }
            }
        }
        Ok(counts)
    }

    /// The flat graph of a function: its arguments are the feeds, its results the fetches.
    pub(crate) fn trace_function(&self, name: &str) -> Result<Graph> {
        let mut tracer = Tracer::new(self, name.to_owned());
        tracer.trace_function(name)?;
        if tracer.missing.0.is_empty() {
            Ok(tracer.graph)
        } else {
            Err(Error::MissingOps(tracer.missing))
        }
    }

    /// The functions that nodes of a graph call and those that these call, each after all it calls.
    /// Fails if one calls itself.
    pub(crate) fn called_functions(&self, graph: &Graph) -> Result<Vec<(String, Graph)>> {
        let mut waiting: Vec<String> = graph.nodes.iter().flat_map(functions_of).collect();
        let mut bodies = BTreeMap::new();
        let mut loops = graph.functions.clone();
        while let Some(name) = waiting.pop() {
            if bodies.contains_key(&name) {
                continue;
            }
            let mut graph = match loops.remove(&name) {
                Some(part) => part,
                None => self.trace_function(&name)?,
            };
            loops.append(&mut graph.functions);
            let calls: BTreeSet<String> = graph.nodes.iter().flat_map(functions_of).collect();
            waiting.extend(calls.iter().cloned());
            bodies.insert(name, (graph, calls));
        }
        let mut ordered = Vec::with_capacity(bodies.len());
        while !bodies.is_empty() {
            let ready = bodies
                .iter()
                .find(|(_, (_, calls))| calls.iter().all(|call| !bodies.contains_key(call)));
            let Some(name) = ready.map(|(name, _)| name.clone()) else {
                return Err(Error::Malformed("functions call each other in a circle".to_owned()));
            };
            let (graph, _) = bodies.remove(&name).expect("it was just found");
            ordered.push((name, graph));
        }
        Ok(ordered)
    }

    /// Calls `each` with the nodes of a graph and of the functions that it calls. Fails as tracing
    /// does.
    pub fn visit(&self, graph: &Graph, each: &mut dyn FnMut(&Node)) -> Result<()> {
        graph.nodes.iter().for_each(&mut *each);
        for (_, body) in self.called_functions(graph)? {
            body.nodes.iter().for_each(&mut *each);
        }
        Ok(())
    }

    /// Adds what is missing in functions that are called, and in those that these call.
    fn missing_in_functions(
        &self,
        called: BTreeSet<String>,
        missing: &mut MissingOps,
    ) -> Result<()> {
        let mut waiting: Vec<String> = called.into_iter().collect();
        let mut seen = BTreeSet::new();
        while let Some(name) = waiting.pop() {
            if seen.insert(name.clone()) {
                let mut tracer = Tracer::new(self, name.clone());
                tracer.trace_function(&name)?;
                waiting.extend(tracer.called);
                for (op, count) in tracer.missing.0 {
                    *missing.0.entry(op).or_insert(0) += count;
                }
            }
        }
        Ok(())
    }
}

/// The functions that a node's attributes name.
fn functions_of(node: &Node) -> Vec<String> {
    node.attrs.values().flat_map(functions_in).collect()
}

fn functions_in(attr: &AttrValue) -> Vec<String> {
    match &attr.value {
        Some(AttrKind::Func(function)) => vec![function.name.clone()],
        Some(AttrKind::List(list)) => list.func.iter().map(|f| f.name.clone()).collect(),
        _ => Vec::new(),
    }
}

struct Tracer<'a> {
    source: &'a Source,
    graph: Graph,
    missing: MissingOps,
    /// The number of times that each op was met.
    counts: BTreeMap<String, usize>,
    /// Functions that ops call while they run.
    called: BTreeSet<String>,
    /// The functions that are being put in place, outermost first.
    calls: Vec<&'a str>,
    /// The number of calls replaced so far.
    n_calls: usize,
    /// The number of loops traced so far.
    n_loops: usize,
    /// The conditions under which nodes are alive.
    lives: Lives,
    /// The condition under which the nodes being emitted are alive.
    live: Live,
    /// The number of conditions that nodes have so far.
    n_conditions: usize,
    /// The name of the traced graph, a prefix of the names of nodes made of it.
    name: String,
}

impl<'a> Tracer<'a> {
    fn new(source: &'a Source, name: String) -> Self {
        Self {
            source,
            graph: Graph::default(),
            missing: MissingOps::default(),
            counts: BTreeMap::new(),
            called: BTreeSet::new(),
            calls: Vec::new(),
            n_calls: 0,
            n_loops: 0,
            lives: Lives::new(),
            live: Live::ALWAYS,
            n_conditions: 0,
            name,
        }
    }

    fn trace_main(&mut self, request: &Request) -> Result<()> {
        let mut scope = Scope::new(&self.source.main, String::new());
        for (name, spec) in &request.feeds {
            let (node, output) = self.locate(&scope, name)?;
            let port = self.push_arg(name, spec.clone());
            scope.feeds.insert((node, output), port);
        }
        let mut roots = Vec::new();
        for fetch in &request.fetches {
            let at = self.locate(&scope, fetch)?;
            if !scope.feeds.contains_key(&at) {
                roots.push(at.0);
            }
        }
        for target in &request.targets {
            roots.push(scope.body.find(target).ok_or_else(|| not_found(target, ""))?);
        }
        self.emit(&mut scope, roots)?;
        for fetch in &request.fetches {
            let reference = Reference::parse(fetch).ok_or_else(|| not_found(fetch, ""))?;
            let value = self.value(&scope, reference, "")?;
            let port = self.fetch(value, fetch)?;
            self.graph.fetches.push(port);
        }
        Ok(())
    }

    fn trace_function(&mut self, name: &str) -> Result<()> {
        let function = self.source.function(name).ok_or_else(|| not_found(name, ""))?;
        let mut args = Vec::new();
        for arg in &function.signature.input_arg {
            let dtype = DType::from_number(arg.r#type).unwrap_or(DType::F32);
            args.push(Value::from_port(self.push_arg(&arg.name, Spec::unknown(dtype))));
        }
        let outputs = self.place(name, String::new(), args, &BTreeMap::new())?;
        let fetches = outputs.into_iter().map(|value| self.fetch(value, name));
        self.graph.fetches = fetches.collect::<Result<_>>()?;
        Ok(())
    }

    fn push_arg(&mut self, name: &str, spec: Spec) -> Port {
        self.graph.args.push(spec);
        let body = Body::Arg(self.graph.args.len() - 1);
        self.push(name.into(), body, Vec::new(), Arc::default())
    }

    fn push(
        &mut self,
        name: Arc<str>,
        body: Body,
        mut inputs: Vec<Port>,
        attrs: Arc<BTreeMap<String, AttrValue>>,
    ) -> Port {
        let mut when = SmallVec::new();
        // A value or a handle is there whether anybody wants it or not.
        if matches!(&body, Body::Op { def, .. } if def.kind != Kind::Handle) {
            let conditions = self.lives.conditions(self.live);
            self.n_conditions += conditions.len();
            inputs.extend(conditions.iter().map(|(port, _)| *port));
            when.extend(conditions.iter().map(|(_, when)| *when));
        }
        Port { node: self.graph.push(Node { name, body, inputs, when, attrs }), output: 0 }
    }

    /// The place of a tensor of the main graph.
    fn locate(&self, scope: &Scope<'_>, name: &str) -> Result<(usize, usize)> {
        let reference = Reference::parse(name).ok_or_else(|| not_found(name, ""))?;
        let node = scope.body.find(reference.node()).ok_or_else(|| not_found(name, ""))?;
        match reference {
            Reference::Output(_, output) => Ok((node, output)),
            Reference::Control(_) | Reference::Named(..) => Err(not_found(name, "")),
        }
    }

    /// Emits `roots` and all they depend on.
    fn emit(&mut self, scope: &mut Scope<'a>, roots: Vec<usize>) -> Result<()> {
        if scope.part == Part::Whole && scope.body.has_loops {
            scope.frames = Arc::new(Frames::find(scope, &roots)?);
        }
        for node in order::order(scope, roots)? {
            if self.graph.nodes.len() > NODES_MAX || self.n_conditions > CONDITIONS_MAX {
                return Err(Error::Malformed(format!("more than {NODES_MAX} nodes")));
            }
            if scope.emitted.contains_key(&node) {
                continue;
            }
            if let Some(frame) = scope.left_by(node) {
                scope.emitted.extend(self.emit_loop(scope, frame)?);
            } else {
                let emitted = self.emit_node(scope, node)?;
                scope.emitted.insert(node, emitted);
            }
        }
        Ok(())
    }

    /// A node's inputs, without those that only come before it, and the condition under which all
    /// are alive. The condition of a loop counts as nothing.
    fn inputs(&mut self, scope: &Scope<'a>, node: usize) -> Result<(Vec<Option<Value>>, Live)> {
        let def = &scope.body.nodes[node];
        let (mut inputs, mut live) = (Vec::with_capacity(def.input.len()), scope.live);
        for (number, input) in def.input.iter().enumerate() {
            let reference = Reference::parse(input).ok_or_else(|| not_found(input, &def.name))?;
            if number == 1 && scope.frames.is_loop_switch(node) {
                inputs.push(None);
                continue;
            }
            let alive = match reference {
                Reference::Control(name) => {
                    let before = scope.body.find(name).and_then(|node| scope.emitted.get(&node));
                    before.map_or(Live::ALWAYS, |emitted| emitted.live)
                }
                reference => {
                    let value = self.value(scope, reference, &def.name)?;
                    inputs.push(Some(value));
                    value.live
                }
            };
            live = self.lives.both(live, alive)?;
        }
        Ok((inputs, live))
    }

    fn emit_node(&mut self, scope: &Scope<'a>, node: usize) -> Result<Emitted> {
        let def = &scope.body.nodes[node];
        let (inputs, live) = self.inputs(scope, node)?;
        let op = frames::plain_name(&def.op);
        self.live = if op == "ControlTrigger" { scope.live } else { live };
        if op == "Switch" && live != Live::NEVER {
            return self.emit_switch(scope, node, &inputs);
        }
        let inputs: Vec<Value> = inputs.into_iter().flatten().collect();
        let attrs = scope.attrs(def);
        let name: Arc<str> = format!("{}{}", scope.prefix, def.name).into();
        if op == "Merge" {
            return self.emit_merge(name, &inputs, &attrs);
        }
        if self.live == Live::NEVER {
            return Ok(Emitted { live: Live::NEVER, outputs: Outputs::Dead });
        }
        let live = self.live;
        let outputs = self.emit_alive(def, (name, attrs), inputs)?;
        Ok(Emitted { live, outputs })
    }

    /// Emits a node that may run.
    fn emit_alive(
        &mut self,
        def: &'a NodeDef,
        (name, attrs): (Arc<str>, BTreeMap<String, AttrValue>),
        inputs: Vec<Value>,
    ) -> Result<Outputs> {
        // What a `BatchFunction` captures comes after what it batches, as in its function. It is a
        // call like any other: we batch requests, not calls inside of one.
        let plain = FunctionCall::Plain;
        let called = if ops::find(&def.op).is_some_and(|op| op.facts.calls == plain) {
            let names = plain.functions(&Attrs::new(&attrs));
            names.map_err(|error| Error::node(&name, error))?.first().map(|f| (*f).to_owned())
        } else {
            self.source.function(&def.op).map(|_| def.op.clone())
        };
        if let Some(function) = called {
            let outputs = self.place(&function, format!("{name}/"), inputs, &attrs)?;
            return Ok(Outputs::Values(outputs));
        }
        *self.counts.entry(def.op.clone()).or_insert(0) += 1;
        match def.op.as_str() {
            "NoOp" | "ControlTrigger" => Ok(Outputs::Values(Vec::new())),
            "LoopCond" | "NextIteration" | "RefNextIteration" | "Exit" | "RefExit"
            | "RefIdentity" => self.emit_same(&def.name, &inputs),
            "Enter" | "RefEnter" => {
                let why = "enters a loop, but is neither constant in it nor merged";
                Err(Error::Malformed(format!("node {} {why}", def.name)))
            }
            "VariableV2" | "Variable" => self.emit_variable(name, attrs),
            "Assign" | "AssignAdd" | "AssignSub" => self.emit_assign(&def.op, name, &inputs, attrs),
            "IsVariableInitialized" => self.emit_op("VarIsInitializedOp", name, inputs, attrs),
            op => self.emit_op(op, name, inputs, attrs),
        }
    }

    /// Emits the outputs of a node that hands on its inputs.
    fn emit_same(&self, name: &str, inputs: &[Value]) -> Result<Outputs> {
        match inputs {
            [value] => Ok(Outputs::Values(vec![Value { live: self.live, ..*value }])),
            _ => Err(Error::Malformed(format!("node {name} needs one input"))),
        }
    }

    /// Puts the body of a function in place of its call, and gives its results.
    fn place(
        &mut self,
        function: &str,
        prefix: String,
        args: Vec<Value>,
        attrs: &BTreeMap<String, AttrValue>,
    ) -> Result<Vec<Value>> {
        let (name, function) = self.source.function_by_name(function)?;
        if self.calls.contains(&name) || self.calls.len() >= DEPTH_MAX {
            let why = "calls itself or calls too deep";
            return Err(Error::Malformed(format!("function {name} {why}")));
        }
        if args.len() != function.signature.input_arg.len() {
            let (want, got) = (function.signature.input_arg.len(), args.len());
            return Err(Error::Malformed(format!(
                "function {name} takes {want} inputs, not {got}"
            )));
        }
        self.n_calls += 1;
        if self.n_calls > CALLS_MAX {
            return Err(Error::Malformed(format!("more than {CALLS_MAX} calls of functions")));
        }
        let live = self.live;
        let mut scope = Scope::of_function(function, prefix, args, attrs.clone());
        scope.live = live;
        let mut roots = Vec::new();
        let results = function.ret.values().chain(&function.control_ret);
        for result in results {
            let reference = Reference::parse(result).ok_or_else(|| not_found(result, name))?;
            if let Some(node) = scope.body.find(reference.node()) {
                roots.push(node);
            }
        }
        self.calls.push(name);
        self.emit(&mut scope, roots)?;
        self.calls.pop();
        self.live = live;
        let output = |arg: &proto::tensorflow::op_def::ArgDef| {
            let result = function.ret.get(&arg.name).ok_or_else(|| not_found(&arg.name, name))?;
            let reference = Reference::parse(result).ok_or_else(|| not_found(result, name))?;
            self.value(&scope, reference, name)
        };
        function.signature.output_arg.iter().map(output).collect()
    }

    /// The value that a reference of a scope means.
    fn value(&self, scope: &Scope<'a>, reference: Reference<'_>, by: &str) -> Result<Value> {
        let lost = || not_found(reference.node(), by);
        let Some(node) = scope.body.find(reference.node()) else {
            let function = scope.function.ok_or_else(lost)?;
            let arg = function.arg(reference.node()).ok_or_else(lost)?;
            return Ok(scope.args[arg]);
        };
        let output = match reference {
            Reference::Output(_, output) => output,
            Reference::Named(_, arg, index) => {
                let def = &scope.body.nodes[node];
                self.source.output_number(def, arg, index, |name| scope.attr(def, name))?
            }
            Reference::Control(_) => return Err(lost()),
        };
        if let Some(port) = scope.feeds.get(&(node, output)) {
            return Ok(Value::from_port(*port));
        }
        let emitted = scope.emitted.get(&node).ok_or_else(lost)?;
        let live = emitted.live;
        match &emitted.outputs {
            Outputs::Node(number) => {
                let output = u32::try_from(output).map_err(|_| lost())?;
                Ok(Value { what: What::Port(Port { node: *number, output }), live })
            }
            Outputs::Reference(handle) => Ok(Value { what: What::Reference(*handle), live }),
            Outputs::Values(outputs) => outputs.get(output).copied().ok_or_else(lost),
            // Nobody reads it.
            Outputs::Dead => {
                Ok(Value { what: What::Port(Port { node: 0, output: 0 }), live: Live::NEVER })
            }
        }
    }

    /// A value as a tensor: a reference to a variable is read here and now.
    fn read(&mut self, value: Value) -> Port {
        match value.what {
            What::Port(port) => port,
            What::Reference(handle) => {
                let name = Arc::clone(&self.graph.node(handle.node).name);
                let attrs = Arc::clone(&self.graph.node(handle.node).attrs);
                let read = self.op("ReadVariableOp", &name, &attrs);
                match read {
                    Ok(body) => self.push(name, body, vec![handle], attrs),
                    Err(_) => handle,
                }
            }
        }
    }

    fn emit_op(
        &mut self,
        op: &str,
        name: Arc<str>,
        inputs: Vec<Value>,
        attrs: BTreeMap<String, AttrValue>,
    ) -> Result<Outputs> {
        let handles = op == "VarIsInitializedOp";
        let inputs = inputs
            .into_iter()
            .map(|value| match value.what {
                What::Reference(handle) if handles => handle,
                _ => self.read(value),
            })
            .collect();
        if op == "Const" {
            let tensor = Attrs::new(&attrs).tensor("value");
            let tensor = tensor.map_err(|error| Error::node(&name, error))?;
            let port = self.push(name, Body::Const(tensor), inputs, Arc::default());
            return Ok(Outputs::Node(port.node));
        }
        // Resource variables without a name are one and the same in TensorFlow.
        let attrs = if op == "VarHandleOp" { attrs } else { named(op, &name, attrs) };
        let attrs = Arc::new(attrs);
        self.called.extend(attrs.values().flat_map(functions_in));
        let body = self.op(op, &name, &attrs)?;
        Ok(Outputs::Node(self.push(name, body, inputs, attrs).node))
    }

    /// A variable of TensorFlow 1 is a handle, and those who use its value read it first.
    fn emit_variable(
        &mut self,
        name: Arc<str>,
        attrs: BTreeMap<String, AttrValue>,
    ) -> Result<Outputs> {
        let attrs = Arc::new(named("VarHandleOp", &name, attrs));
        let body = self.op("VarHandleOp", &name, &attrs)?;
        Ok(Outputs::Reference(self.push(name, body, Vec::new(), attrs)))
    }

    fn emit_assign(
        &mut self,
        op: &str,
        name: Arc<str>,
        inputs: &[Value],
        attrs: BTreeMap<String, AttrValue>,
    ) -> Result<Outputs> {
        let resource_op = match op {
            "Assign" => "AssignVariableOp",
            "AssignAdd" => "AssignAddVariableOp",
            _ => "AssignSubVariableOp",
        };
        let [Value { what: What::Reference(handle), .. }, value] = inputs else {
            let why = format!("node {name} assigns to what is no variable");
            return Err(Error::Malformed(why));
        };
        let value = self.read(*value);
        let mut attrs = attrs;
        if let Some(dtype) = attrs.get("T").cloned() {
            attrs.insert("dtype".to_owned(), dtype);
        }
        let attrs = Arc::new(attrs);
        let body = self.op(resource_op, &name, &attrs)?;
        self.push(name, body, vec![*handle, value], attrs);
        Ok(Outputs::Reference(*handle))
    }

    /// The body of an op; counts it as missing, with a stand-in, if we do not have it.
    fn op(&mut self, op: &str, node: &str, attrs: &BTreeMap<String, AttrValue>) -> Result<Body> {
        let Some(def) = ops::find(op) else {
            *self.missing.0.entry(op.to_owned()).or_insert(0) += 1;
            return Ok(Body::Arg(usize::MAX));
        };
        let built = (def.build)(&Attrs::new(attrs));
        let op = built.map_err(|error| Error::node(node, error))?;
        Ok(Body::Op { def, op: Arc::from(op) })
    }
}

/// An op that finds an object by name takes the node's name if it is given none.
fn named(
    op: &str,
    node: &str,
    mut attrs: BTreeMap<String, AttrValue>,
) -> BTreeMap<String, AttrValue> {
    let is_handle = ops::find(op).is_some_and(|def| def.kind == Kind::Handle);
    let unnamed = Attrs::new(&attrs).bytes("shared_name").is_ok_and(<[u8]>::is_empty)
        || !attrs.contains_key("shared_name");
    if is_handle && unnamed {
        let value = Some(AttrKind::S(node.as_bytes().to_vec().into()));
        attrs.insert("shared_name".to_owned(), AttrValue { value });
    }
    attrs
}

fn not_found(wanted: &str, by: &str) -> Error {
    Error::NotFound { wanted: wanted.to_owned(), by: by.to_owned() }
}
