//! Memory comes back.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use proto::tensorflow::ConfigProto;
use session::{Run, Servable};
use status::Code;
use tensor::Tensor;
use tensorflow::{
    GpuOptions, ModelSettings, Options, Places, Program, Renewal, Request, Sandbox, Threads,
    WorkerState, Workers, session_config,
};

use super::{fallback, is_alive, until};
use crate::support::python;

/// Workers without a server around them.
fn start(renewal: Renewal) -> Workers {
    Workers::new(options(renewal))
}

pub(super) fn options(renewal: Renewal) -> Options {
    let python = python();
    let prefix = Path::new(python.get_program()).parent().and_then(Path::parent);
    let places = Places { given: prefix.map(Path::to_path_buf), ..Places::default() };
    let library = tensorflow::find(&places).unwrap().unwrap();
    let threads = Threads { intra: 1, inter: 1 };
    Options {
        library,
        program: Program {
            file: env!("CARGO_BIN_EXE_tensord").into(),
            words: vec!["worker".into()],
        },
        environment: vec![
            ("TF_CPP_MIN_LOG_LEVEL".into(), "2".into()),
            ("CUDA_VISIBLE_DEVICES".into(), "".into()),
        ],
        tags: vec!["serve".to_owned()],
        area_bytes: 1 << 28,
        n_threads: 4,
        queue_max: 100,
        run_max: None,
        load_timeout: Duration::from_secs(120),
        sandbox: Sandbox::Auto,
        renewal,
        gpu_devices: Vec::new(),
        session: session_config(&ConfigProto::default(), threads, &GpuOptions::default()),
        memory: None,
    }
}

pub(super) fn load(workers: &Workers, model: &str, settings: &ModelSettings) -> Servable {
    try_load(workers, model, settings).unwrap()
}

fn try_load(workers: &Workers, model: &str, settings: &ModelSettings) -> status::Result<Servable> {
    let settings = &ModelSettings { neighbours: vec![fallback()], ..settings.clone() };
    let dir = storage::open(&fallback().join(model).join("1").to_string_lossy()).unwrap();
    let (is_cancelled, admit) = (&|| false, &|_: &_| Ok(()));
    let request = Request { model, version: 1, dir: &dir, settings, is_cancelled, admit };
    workers.load(&request)
}

pub(super) fn run(servable: &Servable, signature: &str, inputs: Vec<Tensor>) -> Vec<Tensor> {
    let outputs = (0..servable.signatures[signature].outputs.len()).collect();
    let run = Run {
        signature: signature.to_owned(),
        inputs,
        outputs,
        deadline: None,
        level: None,
        is_cancelled: Arc::default(),
    };
    let (send, receive) = std::sync::mpsc::channel();
    servable.engine.start(run, Box::new(move |answer| send.send(answer).unwrap()));
    receive.recv().unwrap().unwrap()
}

pub(super) fn spin(servable: &Servable) {
    let outputs = run(servable, "serving_default", vec![Tensor::scalar(3i64).unwrap()]);
    assert_eq!(outputs[0].as_slice::<i64>(), [3]);
}

#[test]
fn two_hundred_loads_and_unloads_leave_the_memory_of_a_shared_worker_as_it_was() {
    let workers = start(Renewal::Never);
    let stays = load(&workers, "spin", &ModelSettings::default());
    let cycle = || {
        let servable = load(&workers, "keeper", &ModelSettings::default());
        run(&servable, "serving_default", Vec::new());
    };
    // TensorFlow keeps some memory the first time it does a thing.
    (0..30).for_each(|_| cycle());
    let before = workers.snapshot()[0].resident_bytes;
    (0..170).for_each(|_| cycle());
    spin(&stays);
    let snapshot = workers.snapshot();
    assert_eq!(snapshot.len(), 1);
    let names: Vec<&str> = snapshot[0].models.iter().map(|one| one.model.as_str()).collect();
    assert_eq!(names, ["spin"]);
    let after = snapshot[0].resident_bytes;
    assert!(after < before + before / 50 + (4 << 20), "{before} bytes became {after}");
}

#[test]
fn a_model_with_settings_of_its_own_has_a_worker_that_ends_with_it() {
    let workers = start(Renewal::WhenIdle);
    let stays = load(&workers, "spin", &ModelSettings::default());
    let own = ModelSettings { session: Some(ConfigProto::default()), ..ModelSettings::default() };
    for _ in 0..2 {
        let servable = load(&workers, "keeper", &own);
        run(&servable, "serving_default", Vec::new());
        let snapshot = workers.snapshot();
        assert_eq!(snapshot.len(), 2);
        let pid = snapshot[1].pid.unwrap();
        assert!(snapshot[1].resident_bytes > 50 << 20, "{snapshot:?}");
        drop(servable);
        assert!(!is_alive(pid), "it is gone when the model is");
        assert_eq!(workers.snapshot().len(), 1);
    }
    spin(&stays);
    drop(stays);
    assert!(workers.snapshot().is_empty());
}

#[test]
fn a_load_that_takes_too_long_is_given_up_and_leaves_nothing_behind() {
    let load_timeout = Duration::from_millis(1);
    let workers = Workers::new(Options { load_timeout, ..options(Renewal::WhenIdle) });
    let error = try_load(&workers, "spin", &ModelSettings::default()).map(drop).unwrap_err();
    assert_eq!(error.code, Code::DeadlineExceeded, "{error}");
    assert!(workers.snapshot().is_empty());
}

#[test]
fn a_worker_that_holds_far_too_much_is_ended_and_started_again() {
    let workers = start(Renewal::Never);
    let servable = load(&workers, "spin", &ModelSettings::default());
    spin(&servable);
    let before = workers.snapshot().remove(0);
    workers.end_beyond(2 * before.resident_bytes);
    spin(&servable);
    assert_eq!(workers.snapshot()[0].pid, before.pid, "it holds less");
    let is_cancelled = Arc::new(AtomicBool::new(false));
    let (send, receive) = std::sync::mpsc::channel();
    let endless = Run {
        signature: "serving_default".to_owned(),
        inputs: vec![Tensor::scalar(i64::MAX).unwrap()],
        outputs: vec![0],
        deadline: None,
        level: None,
        is_cancelled,
    };
    servable.engine.start(endless, Box::new(move |answer| send.send(answer).unwrap()));
    until("it runs", || workers.snapshot()[0].n_running == 1);
    workers.end_beyond(before.resident_bytes / 2);
    let error = receive.recv().unwrap().unwrap_err();
    assert_eq!(error.code, Code::Unavailable);
    assert!(error.message.contains("bytes of at most"), "{error}");
    spin(&servable);
    let after = workers.snapshot().remove(0);
    assert_ne!(after.pid, before.pid);
    assert_eq!(after.n_restarts, 1);
}

#[test]
fn a_shared_worker_is_renewed_when_a_model_leaves_if_asked() {
    let workers = start(Renewal::AtOnce);
    let stays = load(&workers, "spin", &ModelSettings::default());
    let leaves = load(&workers, "keeper", &ModelSettings::default());
    let before = workers.snapshot()[0].pid.unwrap();
    drop(leaves);
    // What arrives meanwhile waits, and is answered.
    spin(&stays);
    until("the worker is another", || {
        let snapshot = workers.snapshot().remove(0);
        snapshot.state == WorkerState::Up && snapshot.pid != Some(before)
    });
    spin(&stays);
    assert_eq!(workers.snapshot()[0].n_restarts, 0);
}

#[test]
fn many_runs_at_once_are_all_answered() {
    let workers = start(Renewal::WhenIdle);
    let servable = load(&workers, "keeper", &ModelSettings::default());
    let input = Tensor::from_slice(tensor::Shape::of(&[4, 1024]), &vec![1f32; 4096]).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let outputs = run(&servable, "put", vec![input.clone()]);
                    assert_eq!(outputs[0].as_slice::<f32>(), [4096.0]);
                }
            });
        }
    });
    assert_eq!(workers.snapshot()[0].n_running, 0);
}

#[test]
fn what_does_not_fit_is_refused_and_the_rest_goes_on() {
    let workers = start(Renewal::WhenIdle);
    let servable = load(&workers, "keeper", &ModelSettings::default());
    let huge = Tensor::zeros(tensor::DType::F32, tensor::Shape::of(&[1 << 27])).unwrap();
    let (send, receive) = std::sync::mpsc::channel();
    let order = Run {
        signature: "put".to_owned(),
        inputs: vec![huge],
        outputs: vec![0],
        deadline: None,
        level: None,
        is_cancelled: Arc::default(),
    };
    servable.engine.start(order, Box::new(move |answer| send.send(answer).unwrap()));
    let error = receive.recv().unwrap().unwrap_err();
    assert_eq!(error.code, Code::ResourceExhausted, "{error}");
    run(&servable, "serving_default", Vec::new());
}

/// Starts a run that never ends, and gives what tells it that nobody waits for it.
pub(super) fn spin_for_ever(servable: &Servable) -> Arc<AtomicBool> {
    let is_cancelled = Arc::new(AtomicBool::new(false));
    let run = Run {
        signature: "serving_default".to_owned(),
        inputs: vec![Tensor::scalar(i64::MAX).unwrap()],
        outputs: vec![0],
        level: None,
        deadline: None,
        is_cancelled: Arc::clone(&is_cancelled),
    };
    servable.engine.start(run, Box::new(drop));
    is_cancelled
}

#[test]
fn a_run_that_is_given_up_gives_its_place_to_the_next() {
    // TensorFlow's own threads are held by what it cannot end.
    let threads = Threads { intra: 1, inter: 4 };
    let session = session_config(&ConfigProto::default(), threads, &GpuOptions::default());
    let options = Options { n_threads: 1, session, ..options(Renewal::Never) };
    let workers = Workers::new(options);
    let servable = load(&workers, "spin", &ModelSettings::default());
    let pid = workers.snapshot()[0].pid;
    let first = spin_for_ever(&servable);
    let waits = std::thread::scope(|scope| {
        let next = scope.spawn(|| spin(&servable));
        until("the next waits", || workers.snapshot()[0].n_waiting == 1);
        first.store(true, Ordering::Relaxed);
        next.join()
    });
    waits.unwrap();
    let snapshot = workers.snapshot().remove(0);
    assert_eq!((snapshot.n_running, snapshot.n_abandoned, snapshot.pid), (0, 1, pid));
    // What nobody waits for takes no more than its share: then the worker is started anew.
    spin_for_ever(&servable).store(true, Ordering::Relaxed);
    spin(&servable);
    let snapshot = workers.snapshot().remove(0);
    assert_eq!((snapshot.n_abandoned, snapshot.n_restarts), (0, 0));
    assert_ne!(snapshot.pid, pid);
}
