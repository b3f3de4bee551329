//! A step whose outputs are in planned memory takes nothing from the heap, but for the ops in
//! `testdata/ops_that_allocate.txt`. The cases are those of `testdata/ops`.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::alloc::System;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ops::{Attrs, Cancel, Ctx, Env, NoFiles, NoFunctions, Op, Output, Packed, Resources};
use pool::Pool;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tensor::{DType, Shape, Spec, Strings, Tensor, ViewMut};
use testkit::opcases::{self, Case, Node};

/// Counts every call of every thread.
#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn n_calls() -> usize {
    let stats = HEAP.stats();
    stats.allocations + stats.reallocations
}

fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata")
}

/// The ops that may allocate.
fn listed() -> Vec<String> {
    let text = std::fs::read_to_string(testdata().join("ops_that_allocate.txt")).unwrap();
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.flat_map(str::split_whitespace).map(str::to_owned).collect()
}

#[test]
fn steps_in_planned_memory_take_nothing_from_the_heap_but_for_the_ops_listed() {
    let mut found: BTreeMap<String, Found> = BTreeMap::new();
    for case in opcases::read_all(&testdata().join("ops")) {
        survey(&case, &mut found);
    }
    let n_planned = found.len();
    found.retain(|_, found| found.n_calls > 0);
    let listed = listed();
    let show = |(op, found): &(&String, &Found)| format!("{op}: {found:?}");
    let more: Vec<String> =
        found.iter().filter(|(op, _)| !listed.contains(op)).map(|all| show(&all)).collect();
    assert!(more.is_empty(), "{} more ops allocate:\n{}", more.len(), more.join("\n"));
    let fewer: Vec<&String> = listed.iter().filter(|op| !found.contains_key(*op)).collect();
    assert!(fewer.is_empty(), "these are listed but do not allocate: {fewer:?}");
    assert!(n_planned > 400, "only {n_planned} ops ran in planned memory");
}

/// Results of no planned size, strings and rows of any length, become tensors, which are on the
/// heap: these calls are left out.
#[test]
fn parsing_takes_from_the_heap_what_its_results_take() {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut more = Vec::new();
    for case in opcases::read_all(&testdata().join("ops")) {
        if !PARSERS.contains(&&*case.nodes[0].op) {
            continue;
        }
        let (pool, resources) = (Pool::new(1), Resources::default());
        let env = Env {
            pool: &pool,
            functions: &NoFunctions,
            files: &NoFiles,
            resources: &resources,
            cancel: &Cancel::default(),
        };
        let inputs = case.inputs.iter().enumerate();
        let values = inputs.map(|(i, input)| (format!("in{i}:0"), input.clone())).collect();
        let Some((op, inputs)) = build(&case.nodes[0], &values) else { continue };
        let Some(outputs) = run(&*op, &inputs, &env) else { continue };
        *seen.entry(case.nodes[0].op.clone()).or_default() += 1;
        let (calls, most) = open_calls(&*op, &inputs, &outputs, &env);
        if calls > most {
            more.push(format!("{} {}: {calls} calls, not {most}", case.nodes[0].op, case.name));
        }
    }
    assert!(more.is_empty(), "{}", more.join("\n"));
    assert!(PARSERS.iter().all(|op| seen.get(*op).is_some_and(|n| *n >= 3)), "{seen:?}");
}

/// The ops that parse examples.
const PARSERS: &[&str] = &[
    "ParseExample",
    "ParseExampleV2",
    "ParseSequenceExample",
    "ParseSequenceExampleV2",
    "ParseSingleExample",
    "ParseSingleSequenceExample",
];

/// The calls of a run whose outputs are planned as far as their sizes are known, and those that
/// tensors for the others take.
fn open_calls(op: &dyn Op, inputs: &[Tensor], made: &[Tensor], env: &Env<'_>) -> (usize, usize) {
    let specs: Vec<Spec> = inputs.iter().map(known).collect();
    let outputs = op.infer_with(&specs, env.functions).unwrap();
    let is_planned = |spec: &Spec| spec.dtype.is_plain() && spec.shape().is_some();
    let mut memory: Vec<Memory> = made
        .iter()
        .map(|tensor| Memory::new(if tensor.dtype().is_plain() { tensor.n_bytes() } else { 0 }))
        .collect();
    let mut scratch = Memory::new(op.scratch_bytes(&specs, &outputs));
    let room = (Vec::with_capacity(inputs.len()), Vec::with_capacity(made.len()));
    let mut ctx = Ctx::empty(env);
    ctx.set_room(room);
    let places = outputs.iter().zip(made).zip(&mut memory).map(|((spec, made), memory)| {
        if !is_planned(spec) {
            return Output::Open(None);
        }
        Output::Planned(ViewMut::plain(made.dtype(), made.shape(), memory.bytes()))
    });
    ctx.fill(inputs.iter().map(Tensor::view), places);
    ctx.set_scratch(scratch.bytes());
    let before = n_calls();
    op.run(&mut ctx).unwrap();
    let calls = n_calls() - before;
    let open = outputs.iter().zip(made).filter(|(spec, _)| !is_planned(spec));
    (calls, open.map(|(_, made)| calls_to_make(made)).sum())
}

/// The calls that a tensor like another takes.
fn calls_to_make(tensor: &Tensor) -> usize {
    let before = n_calls();
    let shape = tensor.shape().clone();
    let copy = if tensor.dtype() == DType::String {
        let strings = tensor.strings();
        let n_bytes = strings.iter().map(<[u8]>::len).sum();
        let mut copy = Strings::with_capacity(strings.len(), n_bytes).unwrap();
        strings.iter().for_each(|string| copy.push(string).unwrap());
        Tensor::from_strings(shape, copy).unwrap()
    } else {
        Tensor::zeros(tensor.dtype(), shape).unwrap()
    };
    let calls = n_calls() - before;
    drop(copy);
    calls
}

/// The heap calls of an op.
#[derive(Debug, Default)]
struct Found {
    /// The most calls of one run, and the case of it.
    n_calls: usize,
    case: String,
}

/// Runs the nodes of a case as far as they run.
fn survey(case: &Case, found: &mut BTreeMap<String, Found>) {
    let (pool, resources) = (Pool::new(1), Resources::default());
    let env = Env {
        pool: &pool,
        functions: &NoFunctions,
        files: &NoFiles,
        resources: &resources,
        cancel: &Cancel::default(),
    };
    let mut values: HashMap<String, Tensor> = HashMap::new();
    for (i, input) in case.inputs.iter().enumerate() {
        values.insert(format!("in{i}:0"), input.clone());
    }
    for node in &case.nodes {
        let Some((op, inputs)) = build(node, &values) else { return };
        let Some(outputs) = run(&*op, &inputs, &env) else { return };
        if let Some(n_calls) = planned_calls(op, &inputs, &env) {
            let found = found.entry(node.op.clone()).or_default();
            if n_calls > found.n_calls || found.case.is_empty() {
                *found = Found { n_calls, case: case.name.clone() };
            }
        }
        for (i, output) in outputs.into_iter().enumerate() {
            values.insert(format!("{}:{i}", node.name), output);
        }
    }
}

fn build(node: &Node, values: &HashMap<String, Tensor>) -> Option<(Arc<dyn Op>, Vec<Tensor>)> {
    let op = (ops::find(&node.op)?.build)(&Attrs::new(&node.attrs)).ok()?;
    let inputs = node.inputs.iter().map(|input| {
        let name = if input.contains(':') { input.clone() } else { format!("{input}:0") };
        values.get(&name).cloned()
    });
    Some((op.into(), inputs.collect::<Option<_>>()?))
}

fn run(op: &dyn Op, inputs: &[Tensor], env: &Env<'_>) -> Option<Vec<Tensor>> {
    let specs: Vec<Spec> = inputs.iter().cloned().map(Spec::constant).collect();
    let n_outputs = op.infer_with(&specs, env.functions).ok()?.len();
    let outputs = (0..n_outputs).map(|_| Output::Open(None));
    let mut ctx = Ctx::new(inputs.iter().map(Tensor::view), outputs, env);
    op.run(&mut ctx).ok()?;
    Some(ctx.finish().ok()?.into_iter().map(|(_, tensor)| tensor).collect())
}

/// The calls of a run in planned memory; `None` if not all outputs would be there.
fn planned_calls(op: Arc<dyn Op>, inputs: &[Tensor], env: &Env<'_>) -> Option<usize> {
    let specs: Vec<Spec> = inputs.iter().map(known).collect();
    let outputs = op.infer_with(&specs, env.functions).ok()?;
    let shapes: Vec<(DType, Shape)> = outputs
        .iter()
        .map(|spec| Some((spec.dtype, spec.shape().filter(|_| spec.dtype.is_plain())?)))
        .collect::<Option<_>>()?;
    let packed: Vec<Option<Packed>> =
        inputs.iter().enumerate().map(|(i, input)| op.pack(i, input).ok().flatten()).collect();
    let op = op.ready(&specs, &outputs, env).map_or(op, |ready| ready.op);
    let mut scratch = Memory::new(op.scratch_bytes(&specs, &outputs));
    let mut memory: Vec<Memory> = shapes
        .iter()
        .map(|(dtype, shape)| Memory::new(shape.n_elements() * dtype.size()))
        .collect();
    let mut calls = [0; 4];
    // What is made once, tables say, is there in the second run. Weights that are no constants are
    // not packed.
    for (packed, calls) in [&packed[..], &packed, &[], &[]].into_iter().zip(&mut calls) {
        // As the run of a plan has it for steps of many operands.
        let room = (Vec::with_capacity(inputs.len()), Vec::with_capacity(shapes.len()));
        let before = n_calls();
        let outputs = shapes.iter().zip(&mut memory).map(|((dtype, shape), memory)| {
            Output::Planned(ViewMut::plain(*dtype, shape, memory.bytes()))
        });
        let mut ctx = Ctx::empty(env);
        ctx.set_room(room);
        ctx.fill(inputs.iter().map(Tensor::view), outputs);
        ctx.set_packed(packed);
        ctx.set_scratch(scratch.bytes());
        op.run(&mut ctx).ok()?;
        assert!(ctx.finish().unwrap().is_empty());
        drop(ctx);
        *calls = n_calls() - before;
    }
    Some(calls[1].max(calls[3]))
}

/// Returns the spec of an input as a plan knows it: its shape, the values of inputs that give
/// sizes, axes and the like, and the object that a handle stands for.
fn known(input: &Tensor) -> Spec {
    let says_sizes = matches!(input.dtype(), DType::I32 | DType::I64) && input.n_elements() <= 16;
    match says_sizes || input.dtype() == DType::Resource {
        true => Spec::constant(input.clone()),
        false => Spec::concrete(input.dtype(), input.shape()),
    }
}

/// Memory as planned memory is: aligned.
struct Memory {
    lines: Vec<u128>,
    n_bytes: usize,
}

impl Memory {
    fn new(n_bytes: usize) -> Self {
        Self { lines: vec![0; n_bytes.div_ceil(16)], n_bytes }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.lines)[..self.n_bytes]
    }
}
