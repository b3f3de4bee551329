//! From a program to a draft of a plan: shapes inferred, constants folded, places chosen.

use std::sync::Arc;

use device::Home;
use ops::{Env, FunctionCall, Kind, Op, Packed};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use tensor::{DType, Shape, Spec, Tensor};

use super::homes::Homes;
use crate::error::{Error, Result};
use crate::fold;
use crate::graph::{Body, Graph, Node, Port};
use crate::infer::{Inferred, infer_node, operands, surely_holds};
use crate::merge::{Merge, refusal};
use crate::program::Program;

/// A plan whose workspace tensors have no offsets yet.
pub(super) struct Draft {
    pub(super) steps: Vec<DraftStep>,
    pub(super) consts: Vec<Tensor>,
    /// The constants that are copies on the host.
    pub(super) host_consts: FxHashSet<usize>,
    /// The tensors in the workspace.
    pub(super) values: Vec<Size>,
    /// The open slots; what is not known beforehand counts as nothing.
    pub(super) open: Vec<Size>,
    /// The bytes of each input.
    pub(super) input_bytes: Vec<usize>,
    pub(super) outputs: Vec<Spot>,
    /// For each input of a function the open slot that it comes in, if it is in no span.
    pub(super) handed: Vec<Option<usize>>,
    /// The open slots of lists.
    pub(super) lists: FxHashSet<usize>,
    /// `true` if the size of every tensor is known.
    pub(super) is_static: bool,
}

/// The bytes of a tensor, and where they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) bytes: usize,
    pub(crate) home: Home,
}

/// The purpose of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// A run: inputs and results are tensors.
    Run,
    /// Calls from a step of another plan: plain inputs and results of known size are in spans.
    Call,
}

pub(super) struct DraftStep {
    pub(super) node: Arc<str>,
    pub(super) op_name: &'static str,
    pub(super) op: Arc<dyn Op>,
    pub(super) kind: Kind,
    /// The home that the step runs in.
    pub(super) home: Home,
    pub(super) inputs: SmallVec<[Spot; 4]>,
    pub(super) when: SmallVec<[bool; 2]>,
    pub(super) outputs: SmallVec<[Spot; 2]>,
    pub(super) scratch_bytes: usize,
    /// The least that it could be with other offsets in functions that it calls.
    pub(super) least_scratch_bytes: usize,
    pub(super) kernel_bytes: usize,
    pub(super) inner_bytes: usize,
    pub(super) flops: u64,
    pub(super) packed: Arc<[Option<Packed>]>,
}

impl DraftStep {
    /// Returns whether other offsets in functions that it calls could do with less.
    pub(super) fn can_be_lowered(&self) -> bool {
        self.least_scratch_bytes < self.scratch_bytes
    }
}

/// The future location of a tensor.
#[derive(Debug, Clone)]
pub(super) enum Spot {
    /// An input; with a shape if it is seen in another than its own.
    Input(usize, Option<Shape>),
    Const(usize),
    /// A tensor in the workspace, by its number.
    Value(usize, DType, Shape),
    Open(usize),
    /// A plain input of a function whose size is known.
    Given(usize, DType, Shape),
}

/// The identity of a spot, whatever shape it is seen in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Key {
    Input(usize),
    Const(usize),
    Value(usize),
    Open(usize),
    Given(usize),
}

impl Spot {
    pub(super) fn key(&self) -> Key {
        match self {
            Spot::Input(number, _) => Key::Input(*number),
            Spot::Const(number) => Key::Const(*number),
            Spot::Value(value, ..) => Key::Value(*value),
            Spot::Open(open) => Key::Open(*open),
            Spot::Given(number, ..) => Key::Given(*number),
        }
    }
}

/// Drafts the plan of a program; gives also what is known of its outputs.
pub(super) fn draft(
    program: &Program,
    inputs: &[Spec],
    env: &Env<'_>,
    scope: Scope,
) -> Result<(Draft, Vec<Spec>)> {
    let graph = program.graph();
    let mut drafter = Drafter {
        graph,
        env,
        homes: program.homes(),
        copies: FxHashMap::default(),
        scope,
        results: results(graph),
        read: graph.nodes.iter().flat_map(|node| &node.inputs).copied().collect(),
        specs: Vec::with_capacity(graph.nodes.len()),
        spots: Vec::with_capacity(graph.nodes.len()),
        draft: Draft {
            steps: Vec::new(),
            consts: Vec::new(),
            host_consts: FxHashSet::default(),
            values: Vec::new(),
            open: Vec::new(),
            input_bytes: inputs.iter().map(spec_bytes).collect(),
            outputs: Vec::new(),
            handed: vec![None; inputs.len()],
            lists: FxHashSet::default(),
            is_static: true,
        },
    };
    for (number, node) in graph.nodes.iter().enumerate() {
        drafter.take(program, inputs, number, node)?;
    }
    for port in &graph.fetches {
        let (spot, spec) = (drafter.spot(port), drafter.known(port));
        let output = drafter.bring_out(spot, spec.as_ref());
        drafter.draft.outputs.push(output);
    }
    let specs = match scope {
        Scope::Run => Vec::new(),
        Scope::Call => drafter.outputs()?,
    };
    Ok((drafter.draft, specs))
}

/// The outputs that become results: fetches, and what a fetch is only another shape of.
fn results(graph: &Graph) -> FxHashSet<Port> {
    let mut results: FxHashSet<Port> = graph.fetches.iter().copied().collect();
    for (number, node) in graph.nodes.iter().enumerate().rev() {
        let Body::Op { op, .. } = &node.body else { continue };
        let number = u32::try_from(number).expect("a graph is bounded");
        if let Some(input) = op.alias()
            && results.contains(&Port { node: number, output: 0 })
            && let Some(port) = node.inputs.get(input)
        {
            results.insert(*port);
        }
    }
    results
}

/// A step as it is added: its node with what was packed for it, and what it reads and gives.
struct NewStep<'a> {
    node: &'a Node,
    packed: Arc<[Option<Packed>]>,
    specs: &'a [Spec],
    outputs: Vec<Spec>,
    inputs: SmallVec<[Spot; 4]>,
    home: Home,
}

/// An output of a step whose place is to be chosen.
#[derive(Clone, Copy)]
struct StepOutput<'a> {
    node: &'a Node,
    port: Port,
    spec: &'a Spec,
    /// `true` where an output that nobody reads is dropped.
    drops: bool,
}

pub(super) struct Drafter<'a> {
    graph: &'a Graph,
    env: &'a Env<'a>,
    pub(super) homes: Homes,
    /// The tensors that were copied to where they were not.
    pub(super) copies: FxHashMap<Key, Spot>,
    scope: Scope,
    results: FxHashSet<Port>,
    /// The outputs that any node reads.
    read: FxHashSet<Port>,
    specs: Vec<Vec<Spec>>,
    spots: Vec<SmallVec<[Spot; 2]>>,
    pub(super) draft: Draft,
}

impl Drafter<'_> {
    fn take(
        &mut self,
        program: &Program,
        inputs: &[Spec],
        number: usize,
        node: &Node,
    ) -> Result<()> {
        let (def, op) = match &node.body {
            Body::Arg(arg) => {
                self.add_arg(*arg, inputs[*arg].clone());
                return Ok(());
            }
            Body::Const(tensor) => {
                self.add_consts(vec![tensor.clone()]);
                return Ok(());
            }
            // Only in a program that was not packed.
            Body::Scaled(scaled) => {
                let product = scaled.product();
                let product = product.map_err(|error| Error::node(&node.name, error.into()))?;
                self.add_consts(vec![product]);
                return Ok(());
            }
            Body::Op { def, op } => (*def, op),
        };
        let known: Vec<Option<Spec>> = node.inputs.iter().map(|port| self.known(port)).collect();
        let outputs = match infer_node(&**op, node, &known, self.env)? {
            Inferred::Specs(outputs) => outputs,
            Inferred::Dead | Inferred::Fails(None) => {
                self.add(Vec::new(), []);
                return Ok(());
            }
            Inferred::Fails(Some(error)) => {
                self.add_refusal(node, error);
                return Ok(());
            }
        };
        let specs: Vec<Spec> = operands(&**op, node, &known);
        if def.facts.is_check && surely_holds(&specs) {
            self.add(Vec::new(), []);
            return Ok(());
        }
        if let Some(chosen) = Merge::from_op(&**op).and_then(|merge| merge.chosen(&specs)) {
            return self.add_chosen(node, chosen);
        }
        if !outputs.is_empty()
            && let Some(values) = fold::fold((&**op, def.kind), &specs, &outputs, self.env)
        {
            self.add_consts(values);
            return Ok(());
        }
        let inputs: SmallVec<[Spot; 4]> = node.inputs.iter().map(|port| self.spot(port)).collect();
        if let Some(spot) = alias(&**op, &inputs, &outputs) {
            self.add(outputs, [spot]);
            return Ok(());
        }
        let home = self.homes.of_step(&def.facts, &specs, &outputs);
        let inputs = self.bring_all(node, inputs, &known, home)?;
        let packed = Arc::clone(program.packed(number));
        self.add_step(number, NewStep { node, packed, specs: &specs, outputs, inputs, home });
        Ok(())
    }

    /// A node that becomes a step.
    fn add_step(&mut self, number: usize, step: NewStep<'_>) {
        let NewStep { node, packed, specs, outputs, inputs, home } = step;
        let Body::Op { def, op } = &node.body else { unreachable!("only ops become steps") };
        let calls = def.facts.calls != FunctionCall::Nothing;
        let ready = op.ready(specs, &outputs, self.env);
        // What a call gives and nobody reads is dropped rather than copied, unless it is in memory
        // of the call.
        let drops = |output: u32| match &ready {
            Some(ready) => ready.hands_on.contains(&(output as usize)),
            None => calls,
        };
        let mut choose = |(output, spec): (u32, &Spec)| {
            let port = Port { node: u32::try_from(number).expect("a graph is bounded"), output };
            self.choose(StepOutput { node, port, spec, drops: drops(output) }, home)
        };
        let spots: SmallVec<[Spot; 2]> = (0..).zip(&outputs).map(&mut choose).collect();
        // What state there is decides what a step gives, and whether that is shared.
        self.draft.is_static &= match &ready {
            Some(ready) => ready.is_static,
            None => !calls && def.kind == Kind::Pure,
        };
        let inner_bytes = ready.as_ref().map_or(0, |ready| ready.open_bytes);
        let op = ready.map_or_else(|| Arc::clone(op), |ready| ready.op);
        let scratch_bytes = op.scratch_bytes(specs, &outputs);
        let least_scratch_bytes = op.least_scratch_bytes(specs, &outputs);
        let kernel_bytes = op.kernel_bytes(specs, &outputs);
        self.draft.steps.push(DraftStep {
            node: Arc::clone(&node.name),
            op_name: def.name,
            kind: def.kind,
            home,
            inputs,
            when: node.when.clone(),
            outputs: spots.clone(),
            scratch_bytes,
            least_scratch_bytes,
            kernel_bytes,
            op,
            inner_bytes,
            flops: super::flops::flops(def.facts.cost, specs, &outputs),
            packed,
        });
        self.add(outputs, spots);
    }

    /// A node that fails if it runs.
    fn add_refusal(&mut self, node: &Node, error: ops::Error) {
        let inputs = node.conditions().map(|(port, _)| self.spot(&port)).collect();
        self.draft.steps.push(DraftStep {
            node: Arc::clone(&node.name),
            op_name: node.op_name(),
            op: refusal(error),
            // It is never left out as unused.
            kind: Kind::Writes,
            home: Home::Device,
            inputs,
            when: node.when.clone(),
            outputs: SmallVec::new(),
            scratch_bytes: 0,
            least_scratch_bytes: 0,
            kernel_bytes: 0,
            inner_bytes: 0,
            flops: 0,
            packed: Arc::new([]),
        });
        self.add(Vec::new(), []);
    }

    /// A merge whose choice is known is what it chooses.
    fn add_chosen(&mut self, node: &Node, chosen: usize) -> Result<()> {
        let port = node.inputs[chosen];
        let spec = self.known(&port).ok_or_else(|| self.missing(&port))?;
        let number = i32::try_from(chosen).expect("a node has few inputs");
        let number =
            Tensor::scalar(number).map_err(|error| Error::node(&node.name, error.into()))?;
        self.draft.consts.push(number.clone());
        let spots = [self.spot(&port), Spot::Const(self.draft.consts.len() - 1)];
        self.add(vec![spec, Spec::constant(number)], spots);
        Ok(())
    }

    /// The inputs of a node in the home it runs in, and its conditions on the host.
    fn bring_all(
        &mut self,
        node: &Node,
        spots: SmallVec<[Spot; 4]>,
        known: &[Option<Spec>],
        home: Home,
    ) -> Result<SmallVec<[Spot; 4]>> {
        if self.homes == Homes::One {
            return Ok(spots);
        }
        let n_operands = node.operands().len();
        let mut bring = |(number, (spot, known)): (usize, (Spot, &Option<Spec>))| match known {
            Some(spec) if number < n_operands => self.bring(spot, spec, home),
            Some(spec) => self.bring(spot, spec, Home::Host),
            None => Ok(spot),
        };
        spots.into_iter().zip(known).enumerate().map(&mut bring).collect()
    }

    /// An input.
    fn add_arg(&mut self, number: usize, spec: Spec) {
        let spot = match (self.scope, spec.shape()) {
            (Scope::Run, _) => Spot::Input(number, None),
            (Scope::Call, Some(shape)) if spec.dtype.is_plain() => {
                Spot::Given(number, spec.dtype, shape)
            }
            (Scope::Call, _) => {
                let slot = self.open(&spec, Home::Device);
                self.draft.handed[number] = Some(slot);
                Spot::Open(slot)
            }
        };
        self.add(vec![spec], [spot]);
    }

    /// The known sizes of a function's results. Fails if one of its outputs is dead.
    fn outputs(&self) -> Result<Vec<Spec>> {
        let known = |port: &Port| {
            let spec = self.known(port).ok_or_else(|| self.missing(port))?;
            let shape = spec.shape();
            Ok(shape.map_or(Spec::unknown(spec.dtype), |s| Spec::concrete(spec.dtype, &s)))
        };
        self.graph.fetches.iter().map(known).collect()
    }

    /// An open slot for a tensor that is not plain, or whose shape is not known.
    fn open(&mut self, spec: &Spec, home: Home) -> usize {
        let number = self.draft.open.len();
        let is_plain = spec.dtype.is_plain();
        let bytes = match spec.list() {
            Some(list) => list.n_bytes(),
            // What a handle stands for is not of the run.
            None if spec.dtype == DType::Resource => Some(0),
            None => spec.shape().filter(|_| is_plain).map(|shape| n_bytes(spec.dtype, &shape)),
        };
        if spec.dtype == DType::Variant {
            self.draft.lists.insert(number);
        }
        self.draft.is_static &= bytes.is_some();
        self.draft.open.push(Size { bytes: bytes.unwrap_or(0), home });
        number
    }

    /// Chooses the place of an output: the workspace if its size is known and it does not leave the
    /// run. An output that nobody reads is dropped if it may be.
    fn choose(&mut self, output: StepOutput<'_>, home: Home) -> Spot {
        let StepOutput { node, port, spec, drops } = output;
        // A result that is copied to where results are is the copy, unless it may be dead.
        let is_copied = home != self.homes.border() && node.when.is_empty();
        let is_fetched = self.results.contains(&port);
        let is_dropped = drops && !is_fetched && !self.read.contains(&port);
        let leaves = is_fetched && self.scope == Scope::Run && !is_copied;
        match spec.shape() {
            Some(shape) if spec.dtype.is_plain() && !leaves && !is_dropped => {
                self.add_value(spec.dtype, shape, home)
            }
            _ if is_dropped => self.add_open(0, home),
            _ => Spot::Open(self.open(spec, home)),
        }
    }

    /// A tensor in the workspace.
    pub(super) fn add_value(&mut self, dtype: DType, shape: Shape, home: Home) -> Spot {
        self.draft.values.push(Size { bytes: n_bytes(dtype, &shape), home });
        Spot::Value(self.draft.values.len() - 1, dtype, shape)
    }

    /// An open slot.
    pub(super) fn add_open(&mut self, bytes: usize, home: Home) -> Spot {
        self.draft.open.push(Size { bytes, home });
        Spot::Open(self.draft.open.len() - 1)
    }

    fn add(&mut self, specs: Vec<Spec>, spots: impl IntoIterator<Item = Spot>) {
        self.specs.push(specs);
        self.spots.push(spots.into_iter().collect());
    }

    fn add_consts(&mut self, tensors: Vec<Tensor>) {
        let first = self.draft.consts.len();
        let spots: SmallVec<[Spot; 2]> = (first..first + tensors.len()).map(Spot::Const).collect();
        self.add(tensors.iter().cloned().map(Spec::constant).collect(), spots);
        self.draft.consts.extend(tensors);
    }

    /// The known spec of a tensor; `None` if it is dead.
    fn known(&self, port: &Port) -> Option<Spec> {
        self.specs[port.node as usize].get(port.output as usize).cloned()
    }

    /// The spot of a tensor; for a dead one, a slot that nobody fills.
    fn spot(&mut self, port: &Port) -> Spot {
        let spots = &self.spots[port.node as usize];
        let spot = spots.get(port.output as usize).cloned();
        spot.unwrap_or_else(|| self.add_open(0, Home::Device))
    }

    fn missing(&self, port: &Port) -> Error {
        let node = &self.graph.node(port.node).name;
        Error::NotFound { wanted: format!("{node}:{}", port.output), by: String::new() }
    }
}

/// The bytes of a tensor of this spec, if its shape is known; others count as nothing.
fn spec_bytes(spec: &Spec) -> usize {
    spec.shape().map_or(0, |shape| n_bytes(spec.dtype, &shape))
}

/// The bytes of a plain tensor; others count as nothing.
pub(super) fn n_bytes(dtype: DType, shape: &Shape) -> usize {
    if dtype.is_plain() { shape.n_elements() * dtype.size() } else { 0 }
}

/// The place of an output that is an input in another shape, if that place can be seen so.
fn alias(op: &dyn Op, inputs: &[Spot], outputs: &[Spec]) -> Option<Spot> {
    let input = inputs.get(op.alias()?)?;
    let [output] = outputs else { return None };
    let shape = output.shape()?;
    match input {
        Spot::Value(value, dtype, _) => Some(Spot::Value(*value, *dtype, shape)),
        Spot::Input(number, _) if output.dtype.is_plain() => {
            Some(Spot::Input(*number, Some(shape)))
        }
        Spot::Given(number, dtype, _) => Some(Spot::Given(*number, *dtype, shape)),
        // Constants are folded, and open slots share memory when they are forwarded.
        Spot::Input(..) | Spot::Const(_) | Spot::Open(_) => None,
    }
}
