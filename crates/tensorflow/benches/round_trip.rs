//! Benchmark of a worker's cost: the same runs in a worker and in this process, one after the
//! other.
//!
//! `TENSORD_TENSORFLOW=VENV cargo bench -p tensorflow` prints a line for each size: the median of
//! each, and of the difference between neighbours. The model gives its input's first element, so
//! that the way in is measured, or its input, for both ways. A number behind `--` says how often
//! all of it is measured.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a program for people"
)]

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use proto::tensorflow::ConfigProto;
use session::{Run, Servable};
use tensor::{DType, Shape, Tensor};
use tensorflow::{
    Direct, GpuOptions, ModelSettings, Options, Places, Program, Renewal, Request, Sandbox,
    Threads, Workers, session_config,
};

/// The bytes of inputs.
const SIZES: &[usize] = &[64, 602_112, 6_021_120];
const ROUNDS: usize = 2000;

/// Makes the model, with the project's Python.
const MODEL: &str = r#"
import sys
import tensorflow as tf
class Echo(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def first(self, x):
        return {"y": x[:1]}
    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def same(self, x):
        return {"y": tf.identity(x)}
echo = Echo()
tf.saved_model.save(echo, sys.argv[1], {"first": echo.first, "same": echo.same})
"#;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    if args.get(1).is_some_and(|arg| arg == "worker") {
        tensorflow::worker_main(&args[2..]).unwrap();
        return ExitCode::SUCCESS;
    }
    let Some(given) = std::env::var_os("TENSORD_TENSORFLOW").map(PathBuf::from) else {
        println!("TENSORD_TENSORFLOW names no TensorFlow: nothing is measured");
        return ExitCode::SUCCESS;
    };
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("1");
    let mut python = Command::new(given.join("bin/python"));
    python.env("TF_CPP_MIN_LOG_LEVEL", "2").arg("-c").arg(MODEL).arg(&dir);
    assert!(python.status().unwrap().success());
    let library = tensorflow::find(&Places { given: Some(given), ..Places::default() });
    let library = library.unwrap().unwrap();
    let workers = Workers::new(options(&library));
    let storage = storage::open(&dir.to_string_lossy()).unwrap();
    let servable = workers
        .load(&Request {
            model: "echo",
            version: 1,
            dir: &storage,
            settings: &ModelSettings::default(),
            is_cancelled: &|| false,
            admit: &|_| Ok(()),
        })
        .unwrap();
    let direct = Direct::load(&library, &dir, &servable, &options(&library)).unwrap();
    let head = ["direct", "worker", "more"].map(|name| format!("{name} µs"));
    println!("{:>6} {:>9}  {:>10} {:>10} {:>10}", "run", "bytes", head[0], head[1], head[2]);
    for _ in 0..args.iter().find_map(|arg| arg.parse().ok()).unwrap_or(1) {
        for signature in ["first", "same"] {
            SIZES.iter().for_each(|size| measure(signature, *size, &servable, &direct));
        }
    }
    ExitCode::SUCCESS
}

fn options(library: &Path) -> Options {
    let threads = Threads { intra: 1, inter: 1 };
    Options {
        library: library.to_owned(),
        program: Program { file: "/proc/self/exe".into(), words: vec!["worker".into()] },
        environment: vec![("TF_CPP_MIN_LOG_LEVEL".into(), "2".into())],
        tags: vec!["serve".to_owned()],
        area_bytes: 1 << 30,
        n_threads: 4,
        queue_max: 100,
        run_max: None,
        load_timeout: Duration::from_secs(120),
        sandbox: Sandbox::Auto,
        renewal: Renewal::WhenIdle,
        gpu_devices: Vec::new(),
        session: session_config(&ConfigProto::default(), threads, &GpuOptions::default()),
        memory: None,
    }
}

/// Runs both in turn, and prints the medians.
fn measure(signature: &str, size: usize, servable: &Servable, direct: &Direct) {
    let input = Tensor::zeros(DType::F32, Shape::of(&[size / 4])).unwrap();
    let (send, receive) = mpsc::channel();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let start = Instant::now();
        drop(direct.run(signature, std::slice::from_ref(&input)).unwrap());
        theirs.push(start.elapsed());
        let run = Run {
            signature: signature.to_owned(),
            inputs: vec![input.clone()],
            outputs: vec![0],
            deadline: None,
            level: None,
            is_cancelled: Arc::default(),
        };
        let send = send.clone();
        let start = Instant::now();
        servable.engine.start(run, Box::new(move |answer| send.send(answer).unwrap()));
        let outputs = receive.recv().unwrap().unwrap();
        ours.push(start.elapsed());
        drop(outputs);
    }
    let micros = |times: &[Duration]| times.iter().map(|time| time.as_secs_f64() * 1e6).collect();
    let (ours, theirs): (Vec<f64>, Vec<f64>) = (micros(&ours), micros(&theirs));
    let more = ours.iter().zip(&theirs).map(|(ours, theirs)| ours - theirs).collect();
    let (direct, worker, more) = (median(theirs), median(ours), median(more));
    println!("{signature:>6} {size:>9}  {direct:>10.1} {worker:>10.1} {more:>10.1}");
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
