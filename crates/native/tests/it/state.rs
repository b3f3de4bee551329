//! A variable that a signature writes stays a variable, and so does a table: it is counted in once
//! for each request, whatever else goes on, and is nobody else's.
#![allow(clippy::unwrap_used, clippy::maybe_infinite_iter, reason = "tests")]

use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use device::{Driver, Holder, Limited, Owner, Simulated, Space, SpaceOptions};
use native::{Executor, Loaded, Opened, Options};
use pool::Pool;
use schedule::Lanes;
use session::{Batching, Engine as _, Run};
use status::{Code, Result};
use tensor::{Shape, Strings, Tensor};

const COUNTERS: [&str; 2] = ["counter", "counter_tf2"];

/// A device of its own.
fn space() -> Arc<Space> {
    let gpu = Arc::new(Simulated::gpu("gpu:0", 1 << 30)) as Arc<dyn Driver>;
    let driver = Arc::new(Limited::new(gpu, "gpu:0", 1 << 30));
    let physical = Arc::clone(driver.account());
    let growth = device::logical::GrowthRule::OnDemand;
    Space::new(SpaceOptions { driver, physical, growth, step_bytes: 1 << 20, context_bytes: 0 })
        .unwrap()
}

/// A version of one of the counters, in the space.
fn load(model: &str, version: i64, space: &Arc<Space>) -> Loaded {
    load_on(2, model, version, space)
}

/// The same, on so many lanes.
fn load_on(n_lanes: usize, model: &str, version: i64, space: &Arc<Space>) -> Loaded {
    let options = schedule::Options { n_lanes, inline_max: Duration::ZERO, run_max: None };
    let server = Owner::new(space, Holder::Server, None);
    let lanes = Arc::new(Lanes::start_for(options, Some(server)).unwrap());
    let executor =
        Executor { lanes, pool: Arc::new(Pool::new(2)), device: "gpu:0".into(), pace: None };
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/models").join(model);
    let folder = storage::open(&dir.join("1").to_string_lossy()).unwrap();
    let options = Options { tags: vec!["serve".to_owned()], plans_max: 8 };
    let opened = Opened::open(&folder, &options).unwrap();
    assert!(opened.keeps_state(), "{model}");
    let holder = Holder::Version { model: Arc::from(model), version };
    opened.load(&options, &executor, Some(Owner::new(space, holder, None))).unwrap()
}

/// Starts a run of a signature for each of some inputs, all at once; the answers, in that order.
fn ask(loaded: &Loaded, signature: &str, inputs: &[Vec<Tensor>]) -> Vec<Result<f32>> {
    let answers = answers(loaded, signature, inputs).into_iter();
    answers.map(|answer| answer.map(|output| output.as_slice::<f32>()[0])).collect()
}

fn answers(loaded: &Loaded, signature: &str, inputs: &[Vec<Tensor>]) -> Vec<Result<Tensor>> {
    let start = |inputs: &Vec<Tensor>| {
        let (send, receive) = mpsc::channel();
        let run = Run {
            signature: signature.to_owned(),
            inputs: inputs.clone(),
            outputs: vec![0],
            deadline: None,
            level: None,
            is_cancelled: Arc::default(),
        };
        let reply = Box::new(move |answer: Result<Vec<Tensor>>| drop(send.send(answer)));
        loaded.engine.start(run, reply);
        receive
    };
    let receivers: Vec<_> = inputs.iter().map(start).collect();
    let answers = receivers.into_iter().map(|receive| receive.recv().unwrap());
    answers.map(|answer| answer.map(|mut outputs| outputs.remove(0))).collect()
}

fn count(loaded: &Loaded) -> f32 {
    ask(loaded, "get_counter", &[Vec::new()]).remove(0).unwrap()
}

#[track_caller]
fn check(got: f32, expected: f32, what: &str) {
    assert!((got - expected).abs() < f32::EPSILON, "{what}: {got} instead of {expected}");
}

/// Batches of eight, whether rows are independent or not.
fn asked() -> Batching {
    let base = batch::Options::unbatched(1);
    Batching::Asked(batch::Options { task_rows_max: 8, batch_rows_max: 8, ..base })
}

#[test]
fn each_request_counts_once_though_many_wait_and_batching_is_asked_for() {
    for model in COUNTERS {
        let loaded = load(model, 1, &space());
        loaded.engine.set_batching(&asked()).unwrap();
        let seen = ask(&loaded, "incr_counter", &vec![Vec::new(); 16]);
        let mut seen: Vec<f32> = seen.into_iter().map(Result::unwrap).collect();
        seen.sort_by(f32::total_cmp);
        // Another may count between a request's count and its look, as in TensorFlow; never less.
        let least = (1u8..).map(f32::from);
        assert!(least.zip(&seen).all(|(least, got)| *got >= least), "{model}: {seen:?}");
        check(seen[15], 16.0, model);
        let deltas = [1.0f32, 2.0, 4.0, 8.0].map(|delta| vec![Tensor::scalar(delta).unwrap()]);
        assert!(ask(&loaded, "incr_counter_by", &deltas).iter().all(Result::is_ok));
        // What reads it is not folded.
        loaded.engine.set_batching(&Batching::Off).unwrap();
        check(count(&loaded), 31.0, model);
        assert!(ask(&loaded, "reset_counter", &[Vec::new()])[0].is_ok());
        check(count(&loaded), 0.0, model);
    }
}

#[test]
fn a_table_that_a_branch_or_a_loop_fills_counts_each_request_once() {
    for signature in ["count", "count_each", "count_case"] {
        // Two at once would both read before either writes, as in TensorFlow.
        let loaded = load_on(1, "tables", 1, &space());
        loaded.engine.set_batching(&asked()).unwrap();
        let word = Strings::collect(["word"]).unwrap();
        let word = Tensor::from_strings(Shape::of(&[1]), word).unwrap();
        let seen = answers(&loaded, signature, &vec![vec![word.clone()]; 16]);
        let seen: Vec<i64> = seen.into_iter().map(|seen| seen.unwrap().as_slice()[0]).collect();
        assert_eq!(seen, (1..=16).collect::<Vec<i64>>(), "{signature}");
        let recalled = answers(&loaded, "recall", &[vec![word]]).remove(0).unwrap();
        assert_eq!(recalled.as_slice::<i64>(), [16], "{signature}");
    }
}

#[test]
fn versions_on_one_device_do_not_share_what_they_write() {
    for model in COUNTERS {
        let space = space();
        let (first, second) = (load(model, 1, &space), load(model, 2, &space));
        assert!(ask(&first, "incr_counter", &[Vec::new(), Vec::new()]).iter().all(Result::is_ok));
        assert!(ask(&second, "incr_counter", &[Vec::new()])[0].is_ok());
        check(count(&first), 2.0, model);
        check(count(&second), 1.0, model);
    }
}

#[test]
fn a_request_that_fails_is_not_tried_again() {
    let space = space();
    let loaded = load("counter_tf2", 1, &space);
    let delta = || vec![Tensor::scalar(1f32).unwrap()];
    assert!(ask(&loaded, "incr_counter_by", &[delta()])[0].is_ok());
    let mut before = count(&loaded);
    for n in 1..100 {
        space.faults().fail_allocation(n);
        let answer = ask(&loaded, "incr_counter_by", &[delta()]).remove(0);
        let is_through = space.faults().fails_in().is_some();
        space.faults().fail_allocation(0);
        let after = count(&loaded);
        match answer {
            Ok(_) => check(after, before + 1.0, "it is counted once"),
            Err(error) => {
                assert_eq!(error.code, Code::ResourceExhausted, "{error}");
                assert!(after <= before + 1.0, "{after} after {before}: it was tried again");
            }
        }
        before = after;
        if is_through {
            break;
        }
    }
    check(count(&loaded), before, "and stays");
}
