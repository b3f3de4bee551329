//! A run in steady state allocates nothing for its activations: what it takes from the heap does
//! not depend on the number of its steps, nor on how often its loops go around.
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "tests")]

use std::alloc::System;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use device::Workspace;
use native::{Executor, Loaded, Options};
use pool::Pool;
use schedule::Lanes;
use session::Run;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tensor::{DType, Shape, Tensor};

/// Counts every call of every thread.
#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn n_calls() -> usize {
    let stats = HEAP.stats();
    stats.allocations + stats.reallocations
}

/// Only one test counts at a time.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A model of the project, or of the small zoo if that was made.
fn dir(model: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let places =
        [root.join("models"), root.join("testdata/models"), home.join(".cache/tensord/zoo-small")];
    let versions = places.map(|place| place.join(model).join("1"));
    versions.into_iter().find(|dir| dir.join("saved_model.pb").is_file())
}

fn load(dir: &Path) -> Loaded {
    let lanes = Lanes::start(schedule::Options { n_lanes: 1, inline_max: Duration::ZERO }).unwrap();
    let (lanes, pool) = (Arc::new(lanes), Arc::new(Pool::new(1)));
    let executor = Executor { lanes, pool, device: "cpu:0".into(), pace: None };
    let options = Options { tags: vec!["serve".to_owned()], plans_max: 8 };
    native::load(&storage::open(&dir.to_string_lossy()).unwrap(), &options, &executor).unwrap()
}

/// A run of three rows; `length` is the size of other dimensions that are not known.
fn run(loaded: &Loaded, length: usize) -> Run {
    let signature = &loaded.servable.signatures["serving_default"];
    let input = |endpoint: &session::Endpoint| {
        let dims = endpoint.spec.dims().unwrap().iter().enumerate();
        let size =
            |(i, dim): (usize, &tensor::Dim)| dim.size().unwrap_or(if i == 0 { 3 } else { length });
        let shape: Shape = dims.map(size).collect();
        match endpoint.spec.dtype {
            DType::I32 => Tensor::from_slice(shape.clone(), &vec![1i32; shape.n_elements()]),
            DType::I64 => Tensor::from_slice(shape.clone(), &vec![1i64; shape.n_elements()]),
            dtype => Tensor::zeros(dtype, shape),
        }
    };
    let inputs = signature.inputs.values().map(|endpoint| input(endpoint).unwrap()).collect();
    run_of("serving_default", inputs, signature.outputs.len())
}

fn run_of(signature: &str, inputs: Vec<Tensor>, n_outputs: usize) -> Run {
    Run {
        signature: signature.to_owned(),
        inputs,
        outputs: (0..n_outputs).collect(),
        deadline: None,
        level: None,
        is_cancelled: Arc::default(),
    }
}

/// What a run takes from the heap once it has run a few times: the least of some runs, for threads
/// that start or end meanwhile count too.
fn measure(loaded: &Loaded, run: &Run) -> usize {
    let mut workspace = Workspace::allocate(0).unwrap();
    let mut calls = || {
        let before = n_calls();
        let outputs = loaded.engine.run(run, &mut workspace).unwrap();
        let calls = n_calls() - before;
        drop(outputs);
        calls
    };
    (0..8).map(|_| calls()).min().unwrap()
}

/// Three for each result, and four for lists of results and the like: nothing for steps.
#[test]
fn a_run_allocates_for_its_results_and_not_for_its_steps() {
    let _turn = turn();
    let models = [
        "digits",
        "bert_base",
        "densenet121",
        "efficientnet_b0",
        "minilm",
        "minilm_plain",
        "mobilenet_v2",
        "resnet50",
    ];
    let mut most_steps = 0;
    for model in models {
        let Some(dir) = dir(model) else { continue };
        let loaded = load(&dir);
        let run = run(&loaded, 16);
        let n_steps = loaded.engine.plan(&run).unwrap().snapshot().len();
        most_steps = most_steps.max(n_steps);
        let calls = measure(&loaded, &run);
        let most = 4 + 3 * run.outputs.len();
        assert!(calls <= most, "{model}: {calls} calls in {n_steps} steps, but {most} at most");
    }
    assert!(most_steps >= 7, "the digits alone have seven steps");
}

/// The calls of each step of a warm run that takes any, by op.
fn by_op(loaded: &Loaded, run: &Run) -> BTreeMap<&'static str, (usize, usize)> {
    let mut workspace = Workspace::allocate(0).unwrap();
    let mut calls = Vec::with_capacity(10_000);
    let mut plan = None;
    for _ in 0..3 {
        calls.clear();
        let mut before = n_calls();
        let mut observe = |_| {
            calls.push(n_calls() - before);
            before = n_calls();
        };
        plan = Some(loaded.engine.observe(run, &mut workspace, &mut observe).unwrap());
    }
    let mut by_op: BTreeMap<&'static str, (usize, usize)> = BTreeMap::new();
    for (step, calls) in plan.unwrap().snapshot().iter().zip(&calls) {
        if *calls > 0 {
            let entry = by_op.entry(step.op).or_default();
            *entry = (entry.0 + 1, entry.1 + calls);
        }
    }
    by_op
}

/// Models whose runs take more, but not for each step or iteration: they have loops.
const LOOPS: &[&str] = &["bidirectional", "control_flow", "gru", "lstm", "masked", "tf1_loops"];

/// Every kind of model of the small zoo that is fed numbers.
#[test]
fn models_of_every_kind_allocate_for_their_results_alone() {
    let _turn = turn();
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let zoo = std::fs::read_dir(home.join(".cache/tensord/zoo-small")).into_iter().flatten();
    let names = zoo.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut failures = Vec::new();
    for model in names.chain(["digits".to_owned()]) {
        let Some(dir) = dir(&model) else { continue };
        let loaded = load(&dir);
        let signature = &loaded.servable.signatures["serving_default"];
        if signature.inputs.values().any(|input| input.spec.dtype == DType::String) {
            continue;
        }
        let run = run(&loaded, 16);
        let (calls, most) = (measure(&loaded, &run), 4 + 3 * run.outputs.len());
        if (calls > most) != LOOPS.contains(&&*model) {
            failures.push(format!("{model}: {calls} of {most}: {:?}", by_op(&loaded, &run)));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The layers are LSTMs and GRUs, with and without masks, forwards and backwards; and there is a
/// loop of TensorFlow 1 that reads one tensor array and writes another.
#[test]
fn a_loop_allocates_as_much_however_often_it_goes_around() {
    let _turn = turn();
    for model in ["lstm", "masked", "tf1_loops"] {
        let Some(dir) = dir(model) else { continue };
        let loaded = load(&dir);
        let calls = [4, 16, 64].map(|length| measure(&loaded, &run(&loaded, length)));
        assert!(calls.iter().all(|n| *n == calls[0]), "{model}: {calls:?}");
    }
    let loaded = load(&dir("checks").unwrap());
    let calls = [3f32, 300.].map(|start| {
        let run = run_of("count_down", vec![Tensor::vector(&[start]).unwrap()], 1);
        measure(&loaded, &run)
    });
    assert_eq!(calls[0], calls[1], "a loop that counts");
}
