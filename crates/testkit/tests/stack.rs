//! The stack of a predict on its caller's thread, from the gRPC handler to the kernel of an op:
//! printed for a reader to judge, and not limited. See it with
//! `cargo nextest run -p testkit --test stack --no-capture`.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that says what it saw")]

use std::alloc::System;
use std::backtrace::Backtrace;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use api::{ArrivalLimits, Budget, Codec, Context, Grpc, GrpcOptions, Hints, MethodNames, Stats};
use lifecycle::{
    Child, LabelRule, Lifecycle, LoadError, Loader, ModelOptions, Options, Policy, Poll, Source,
    StartWhen, Target, Tree, VersionPolicy,
};
use native::Executor;
use pool::Pool;
use proto::serving::prediction_service_server::PredictionService;
use proto::serving::{ModelSpec, PredictRequest};
use schedule::Lanes;
use session::Servable;
use tensor::{Layout, Shape, Strings, Tensor};
use tokio_util::sync::CancellationToken;
use tonic::Request;
use tracking_allocator::{AllocationGroupId, AllocationRegistry, AllocationTracker, Allocator};

#[global_allocator]
static HEAP: Allocator<System> = Allocator::system();

thread_local! {
    /// Set while this thread looks at its stack when it allocates.
    static IS_LOOKING: Cell<bool> = const { Cell::new(false) };
    /// The frames of the first allocation in a kernel, from the kernel to the handler.
    static STACK: RefCell<Vec<Frame>> = const { RefCell::new(Vec::new()) };
}

/// A function on the stack, inlined or not, and where it stands.
struct Frame {
    name: String,
    file: String,
}

impl Frame {
    /// Returns whether the frame is of our own crates.
    fn is_own(&self) -> bool {
        self.file.contains("crates/") && self.file.contains("/src/") && !self.is_of("testkit")
    }

    fn is_of(&self, place: &str) -> bool {
        self.file.contains(&format!("crates/{place}"))
    }
}

/// Looks at the stack of allocations until one is in a kernel.
struct Watch;

impl AllocationTracker for Watch {
    fn allocated(&self, _: usize, _: usize, _: usize, _: AllocationGroupId) {
        if IS_LOOKING.replace(false) {
            let stack = kernel_to_handler(&Backtrace::force_capture().to_string());
            IS_LOOKING.set(stack.is_none());
            stack.into_iter().for_each(|stack| STACK.set(stack));
        }
    }

    fn deallocated(
        &self,
        _: usize,
        _: usize,
        _: usize,
        _: AllocationGroupId,
        _: AllocationGroupId,
    ) {
    }
}

/// Our own frames of a backtrace from the kernel of an op, which the steps of a plan call, to the
/// gRPC handler; `None` if there is no kernel in it.
fn kernel_to_handler(backtrace: &str) -> Option<Vec<Frame>> {
    let mut own: Vec<Frame> = frames(backtrace).into_iter().filter(Frame::is_own).collect();
    let step = own.iter().position(|frame| frame.is_of("graph/src/run.rs"))?;
    let handler = own.iter().rposition(|frame| frame.is_of("api/src/grpc.rs"))?;
    let kernel = step.checked_sub(1)?;
    let is_run = own[kernel].name == "run" || own[kernel].name.ends_with("::run");
    if !(own[kernel].is_of("ops/src/") && is_run) {
        return None;
    }
    own.truncate(handler + 1);
    Some(own.split_off(kernel))
}

/// The frames of a backtrace, the innermost first: `3: name`, and `at file:line:column` below it.
fn frames(backtrace: &str) -> Vec<Frame> {
    let mut frames: Vec<Frame> = Vec::new();
    for line in backtrace.lines().map(str::trim_start) {
        let named = line.split_once(": ").filter(|(number, _)| number.parse::<usize>().is_ok());
        if let Some((_, name)) = named {
            frames.push(Frame { name: name.to_owned(), file: String::new() });
        } else if let (Some(file), Some(frame)) = (line.strip_prefix("at "), frames.last_mut()) {
            frame.file = file.to_owned();
        }
    }
    frames
}

/// Lists version 1 of the only model.
struct Folder;

impl Source for Folder {
    fn list(&self, _base_path: &str) -> Result<Vec<Child>, LoadError> {
        Ok(vec![Child { name: "1".to_owned(), is_folder: true }])
    }

    fn tree(&self, _path: &str) -> Result<Tree, LoadError> {
        let (modified, names) = (SystemTime::UNIX_EPOCH, vec!["saved_model.pb".to_owned()]);
        Ok(Tree { fingerprint: 0, modified, names })
    }

    fn check(&self, _path: &str) -> Result<(), LoadError> {
        Ok(())
    }
}

/// Loads the model with our own engine, whose quick runs take their caller's thread.
struct Native(Executor);

impl Loader for Native {
    type Servable = Servable;

    fn load(
        &self,
        _model: &str,
        _version: i64,
        path: &str,
        _attempt: &lifecycle::Attempt,
    ) -> Result<Servable, LoadError> {
        let options = native::Options { tags: vec!["serve".to_owned()], plans_max: 8 };
        Ok(native::load(&storage::open(path).unwrap(), &options, &self.0).unwrap().servable)
    }
}

async fn start(token: CancellationToken) -> Lifecycle<Servable> {
    let options = Options {
        poll: Poll::Once,
        settle: Duration::ZERO,
        complete_with: Vec::new(),
        n_looks_max: 1,
        look_timeout: Duration::from_secs(60),
        n_load_threads: 1,
        n_unload_threads: 1,
        load_retries_max: 0,
        load_retry_rule: lifecycle::RetryRule::All,
        load_retry_first: Duration::ZERO,
        load_retry_interval: Duration::ZERO,
        missing: lifecycle::Missing::Fails,
        label_rule: LabelRule::Anywhere,
        start_when: StartWhen::All,
    };
    // On a busy machine no run is quick, so that any time counts as such.
    let inline_max = Duration::from_secs(60);
    let lanes = Lanes::start(schedule::Options { n_lanes: 1, inline_max, run_max: None }).unwrap();
    let (lanes, pool) = (Arc::new(lanes), Arc::new(Pool::new(1)));
    let executor = Executor { lanes, pool, device: "cpu:0".into(), pace: None };
    let lifecycle = Lifecycle::start(options, Folder, Native(executor), token);
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/sentiment");
    let model = ModelOptions {
        name: "m".to_owned(),
        base_path: models.to_string_lossy().into_owned(),
        platform: "tensorflow".to_owned(),
        versions: VersionPolicy::All,
        policy: Policy::AvailabilityPreserving,
        labels: BTreeMap::new(),
    };
    lifecycle.set_config(vec![model]).await.unwrap();
    lifecycle
}

fn handler(lifecycle: &Lifecycle<Servable>) -> Grpc {
    let context = Context {
        models: lifecycle.models().clone(),
        stats: Arc::new(Stats::new()),
        budget: Budget::of_bytes(64 << 20),
        codec: Codec::start(tokio::runtime::Builder::new_multi_thread(), 1).unwrap(),
        method_names: MethodNames::Unchecked,
        recorder: None,
        access: None,
        hints: Hints::Hidden,
    };
    let options = GrpcOptions {
        layout: Layout::Values,
        message_bytes_max: 1 << 20,
        stream_requests_max: 4,
        patience: Duration::from_secs(60),
        arrival: ArrivalLimits {
            idle_max: Duration::from_secs(60),
            total_max: None,
            bytes_per_second_min: 0,
        },
    };
    Grpc::new(context, options, None)
}

fn request(lifecycle: &Lifecycle<Servable>) -> Request<PredictRequest> {
    let servable = lifecycle.models().get(&Target::version("m", 1)).unwrap();
    let signature = servable.signature("").unwrap().unwrap();
    let alias = signature.inputs.keys().next().unwrap().clone();
    let sentences = Strings::repeated(b"what a lovely film", 1).unwrap();
    let tensor = Tensor::from_strings(Shape::of(&[1]), sentences).unwrap();
    let input = tensor.to_proto(Layout::Values).unwrap();
    Request::new(PredictRequest {
        model_spec: Some(ModelSpec { name: "m".to_owned(), ..ModelSpec::default() }),
        inputs: BTreeMap::from([(alias, input)]),
        ..PredictRequest::default()
    })
}

/// The number of runs of the model until it is known how long one takes.
const N_RUNS_MAX: usize = 100;

#[tokio::test]
async fn the_frames_between_the_handler_and_a_kernel_are_printed() {
    let token = CancellationToken::new();
    let lifecycle = start(token.clone()).await;
    let handler = handler(&lifecycle);
    AllocationRegistry::set_global_tracker(Watch).unwrap();
    AllocationRegistry::enable_tracking();
    for _ in 0..N_RUNS_MAX {
        IS_LOOKING.set(true);
        let answer = handler.predict(request(&lifecycle)).await;
        IS_LOOKING.set(false);
        answer.unwrap();
        if !STACK.with_borrow(Vec::is_empty) {
            break;
        }
    }
    AllocationRegistry::disable_tracking();
    let stack = STACK.take();
    for (number, Frame { name, file }) in stack.iter().rev().enumerate() {
        let name: String = name.chars().take(60).collect();
        let at = file.split_once("crates/").map_or(&**file, |(_, at)| at);
        println!("{:>3} {at:40} {name}", number + 1);
    }
    println!("{} frames of our own on the caller's thread; 25 is the aim", stack.len());
    assert!(stack.len() > 1, "a run was on this thread, from the handler to a kernel");
    token.cancel();
}
