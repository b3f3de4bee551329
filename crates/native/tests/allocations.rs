//! A run in steady state allocates nothing for its activations: what it takes from the heap does
//! not depend on the number of its steps, nor on how often its loops go around.
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "tests")]

use std::alloc::System;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use device::Workspace;
use native::{Executor, Loaded, Options};
use ops::Observer;
use pool::Pool;
use schedule::Lanes;
use session::Run;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tensor::{DType, Shape, Strings, Tensor};
use testkit::zoo::small_zoo;

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

/// A model of the small zoo, or else of the project.
fn dir(zoo: &Path, model: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let places = [zoo.to_path_buf(), root.join("models"), root.join("testdata/models")];
    let mut versions = places.iter().map(|place| place.join(model).join("1"));
    let found = versions.find(|dir| dir.join("saved_model.pb").is_file());
    found.unwrap_or_else(|| panic!("there is no model {model}"))
}

/// The numbers of threads that compute, in turn.
const THREADS: [usize; 2] = [1, 2];

fn load(dir: &Path, n_threads: usize) -> Loaded {
    let lanes =
        Lanes::start(schedule::Options { n_lanes: 1, inline_max: Duration::ZERO, run_max: None })
            .unwrap();
    let (lanes, pool) = (Arc::new(lanes), Arc::new(Pool::new(n_threads)));
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

/// The heap calls of a run once it has run a few times: the least of some runs, for threads that
/// start or end meanwhile count too.
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
    let zoo = small_zoo();
    for (model, n_threads) in models.iter().flat_map(|model| THREADS.map(|n| (model, n))) {
        let loaded = load(&dir(&zoo, model), n_threads);
        let run = run(&loaded, 16);
        let n_steps = loaded.engine.plan(&run).unwrap().snapshot().len();
        assert!(n_steps >= 7, "{model}: the digits alone have seven steps");
        let calls = measure(&loaded, &run);
        let most = 4 + 3 * run.outputs.len();
        let what = format!("{model} on {n_threads} threads");
        assert!(calls <= most, "{what}: {calls} calls in {n_steps} steps, but {most} at most");
    }
}

/// Counts the calls of each step of a plan, those of the functions within it included.
#[derive(Default)]
struct Count {
    /// The number of plans that run, each called by the one before.
    depth: AtomicUsize,
    before: AtomicUsize,
    calls: Mutex<Vec<usize>>,
}

impl Observer for Count {
    fn enter(&self, _: &dyn std::any::Any) {
        if self.depth.fetch_add(1, Relaxed) == 0 {
            *self.calls.lock().unwrap() = Vec::with_capacity(10_000);
            self.before.store(n_calls(), Relaxed);
        }
    }

    fn step(&self, _: usize) {
        if self.depth.load(Relaxed) == 1 {
            let calls = n_calls() - self.before.load(Relaxed);
            self.calls.lock().unwrap().push(calls);
            self.before.store(n_calls(), Relaxed);
        }
    }

    fn leave(&self) {
        self.depth.fetch_sub(1, Relaxed);
    }
}

/// The calls of each step of a warm run that takes any, by op.
fn by_op(loaded: &Loaded, run: &Run) -> BTreeMap<&'static str, (usize, usize)> {
    let mut workspace = Workspace::allocate(0).unwrap();
    let count = Count::default();
    let mut plan = None;
    for _ in 0..3 {
        plan = Some(loaded.engine.observe(run, &mut workspace, &count).unwrap());
    }
    let calls = count.calls.into_inner().unwrap();
    let mut by_op: BTreeMap<&'static str, (usize, usize)> = BTreeMap::new();
    for (step, calls) in plan.unwrap().snapshot().iter().zip(&calls) {
        if *calls > 0 {
            let entry = by_op.entry(step.op).or_default();
            *entry = (entry.0 + 1, entry.1 + calls);
        }
    }
    by_op
}

/// Models whose runs take more, and how much more at most: for their loops, for strings, for
/// products in 16 bits, and for tensors that grow.
const MORE: &[(&str, usize)] = &[
    ("bidirectional", 60),
    ("control_flow", 9),
    ("decoder", GROWN * 31 + 16),
    ("gru", 44),
    ("lstm", 29),
    ("masked", 63),
    ("mixed_bfloat16", 156),
    ("mixed_float16", 156),
    ("tf1_loops", 17),
    ("tf1_variables", 7),
];

/// For each iteration of the small decoder: two for each of the fourteen tensors whose size is only
/// known when they are made. To plan an iteration takes hundreds.
const GROWN: usize = 28;

/// Some of those that are fed numbers and have no loops: these must be there.
const PLAIN: &[&str] = &["conv1d", "conv3d", "embeddings", "ssd", "unet", "vgg16", "wide_and_deep"];

/// Every kind of model of the small zoo that is fed numbers.
#[test]
fn models_of_every_kind_allocate_for_their_results_alone() {
    let _turn = turn();
    let zoo = small_zoo();
    let mut names: Vec<String> = std::fs::read_dir(&zoo)
        .unwrap()
        .flatten()
        .filter(|entry| entry.path().join("1").is_dir())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort_unstable();
    for model in MORE.iter().map(|(model, _)| model).chain(PLAIN) {
        assert!(names.iter().any(|name| name == model), "{model} is not in {names:?}");
    }
    let mut failures = Vec::new();
    for (model, n_threads) in names.iter().flat_map(|model| THREADS.map(|n| (model, n))) {
        let loaded = load(&dir(&zoo, model), n_threads);
        let signature = &loaded.servable.signatures["serving_default"];
        if signature.inputs.values().any(|input| input.spec.dtype == DType::String) {
            continue;
        }
        let run = run(&loaded, 16);
        let more = MORE.iter().find(|(name, _)| name == model).map_or(0, |(_, more)| *more);
        let (calls, most) = (measure(&loaded, &run), 4 + 3 * run.outputs.len() + more);
        if calls > most {
            let by_op = by_op(&loaded, &run);
            failures.push(format!("{model} on {n_threads} threads: {calls} of {most}: {by_op:?}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The layers are LSTMs and GRUs, with and without masks, forwards and backwards; and there is a
/// loop of TensorFlow 1 that reads one tensor array and writes another.
#[test]
fn a_loop_allocates_as_much_however_often_it_goes_around() {
    let _turn = turn();
    let zoo = small_zoo();
    let models = ["lstm", "masked", "tf1_loops"];
    for (model, n_threads) in models.iter().flat_map(|model| THREADS.map(|n| (model, n))) {
        let loaded = load(&dir(&zoo, model), n_threads);
        let calls = [4, 16, 64].map(|length| measure(&loaded, &run(&loaded, length)));
        let is_same = calls.iter().all(|n| *n == calls[0]);
        assert!(is_same, "{model} on {n_threads} threads: {calls:?}");
    }
    let loaded = load(&dir(&zoo, "checks"), 1);
    let calls = [3f32, 300.].map(|start| {
        let run = run_of("count_down", vec![Tensor::vector(&[start]).unwrap()], 1);
        measure(&loaded, &run)
    });
    assert_eq!(calls[0], calls[1], "a loop that counts");
}

/// There are more iterations, each with tensors of other sizes, than plans are kept.
#[test]
fn a_loop_whose_tensors_grow_is_planned_once() {
    let _turn = turn();
    let loaded = load(&dir(&small_zoo(), "decoder"), 1);
    for length in [4, 16, 64] {
        // From the first of those that were given to the last but one of twice as many.
        let (calls, n_iterations) = (measure(&loaded, &run(&loaded, length)), 2 * length - 1);
        let most = GROWN * n_iterations + 16;
        assert!(calls <= most, "{length}: {calls} calls in {n_iterations} iterations");
    }
}

/// A field of a protobuf message with its length, which is below 128 times 128.
fn field(number: u8, parts: &[&[u8]]) -> Vec<u8> {
    let bytes = parts.concat();
    let digit = |n: usize| u8::try_from(n).unwrap();
    let len = [digit(bytes.len() % 128) | 0x80, digit(bytes.len() / 128)];
    [&[number << 3 | 2][..], &len, &bytes].concat()
}

/// An entry of a map of features, or of lists.
fn entry(key: &str, value: &[u8]) -> Vec<u8> {
    field(1, &[&field(1, &[key.as_bytes()]), &field(2, &[value])])
}

/// A feature of strings (1), floats (2) or integers below 128 (3).
fn feature(kind: u8, values: &[&[u8]]) -> Vec<u8> {
    let list = match kind {
        1 => values.iter().flat_map(|value| field(1, &[value])).collect(),
        _ => field(1, values),
    };
    field(kind, &[&list])
}

/// An example of the listing model; the number says how many tags it has, and what is missing.
fn listing(number: usize) -> Vec<u8> {
    let tags = vec![&b"park"[..]; number % 4];
    let mut entries = [
        entry("rooms", &feature(2, &[&2f32.to_le_bytes()])),
        entry("zip", &feature(3, &[&[7]])),
        entry("agent", &feature(1, &[b"agent 7"])),
        entry("text", &feature(1, &[b"old park"])),
        entry("tags", &feature(1, &tags)),
    ]
    .concat();
    if !number.is_multiple_of(3) {
        entries.extend(entry("city", &feature(1, &[b"berlin"])));
    }
    field(1, &[&entries])
}

/// A sequence of as many frames as the number says, from one to four.
fn frames(number: usize) -> Vec<u8> {
    let n_frames = 1 + number % 4;
    let ids = field(1, &[&feature(3, &[&vec![3; number % 3]])]).repeat(n_frames);
    let scores = field(1, &[&feature(2, &[&[0; 8]])]).repeat(n_frames);
    let lists = [entry("ids", &ids), entry("scores", &scores)].concat();
    let context = entry("weight", &feature(2, &[&2f32.to_le_bytes()]));
    [field(1, &[&context]), field(2, &[&lists])].concat()
}

/// The step that parses allocates for its results alone, each of which is one tensor, however
/// large.
#[test]
fn parsing_allocates_as_much_however_many_examples_there_are() {
    let _turn = turn();
    let zoo = small_zoo();
    type Model = (&'static str, &'static str, fn(usize) -> Vec<u8>, usize);
    let models: [Model; 2] = [
        ("tfexample", "ParseExampleV2", listing, 2),
        ("sequence_example", "ParseSequenceExampleV2", frames, 3),
    ];
    for (model, op, example, n_outputs) in models {
        let loaded = load(&dir(&zoo, model), 1);
        let calls = [4, 40, 400].map(|n| {
            let strings = Strings::collect((0..n).map(example)).unwrap();
            let examples = Tensor::from_strings(Shape::of(&[n]), strings).unwrap();
            let run = run_of("serving_default", vec![examples], n_outputs);
            (0..5).map(|_| by_op(&loaded, &run)[op].1).min().unwrap()
        });
        assert!(calls.iter().all(|n| *n == calls[0]), "{model}: {calls:?}");
    }
}
