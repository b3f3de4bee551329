//! Needs of a model: known before it is loaded; and weights are held once.
#![allow(clippy::unwrap_used, clippy::maybe_infinite_iter, reason = "tests")]

use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use device::{
    Account, Buffer, Category, Driver, Holder, Limited, Owner, Row, Simulated, Space, SpaceOptions,
};
use graph::Searches;
use native::measure::{self, measure};
use native::{Executor, Loaded, Opened, Options, Sizes};
use pool::Pool;
use schedule::Lanes;
use session::{Batching, Endpoint, Engine as _, Run};
use status::{Code, Status};
use tensor::{DType, Tensor};
use testkit::tight::{BEST_UNITS, GREEDY_UNITS};
use testkit::zoo::small_zoo;

/// Every version of every small model in the project, and those of the small zoo if it is there.
fn versions() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let children = |dir: &Path| {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        paths.sort();
        paths
    };
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let folders =
        [root.join("models"), root.join("testdata/models"), home.join(".cache/tensord/zoo-small")];
    let models = folders.iter().flat_map(|dir| children(dir));
    let dirs = models.flat_map(|model| std::iter::once(model.clone()).chain(children(&model)));
    dirs.filter(|dir| dir.join("saved_model.pb").is_file()).collect()
}

#[test]
fn what_is_predicted_before_loading_is_what_is_then_held() {
    let pool = Arc::new(Pool::new(2));
    let batches = [(1, 1), (2, 1), (8, 1), (3, 7)].map(|(rows, length)| Sizes { rows, length });
    let (mut wrong, mut n_static) = (Vec::new(), 0);
    for dir in versions() {
        let folder = storage::open(&dir.to_string_lossy()).unwrap();
        // What cannot be loaded needs nothing: others test that.
        let Ok(rows) = measure(&folder, &batches, &pool, device::Kind::Cpu) else { continue };
        for row in rows {
            let is_batch = row.what.starts_with("batch");
            n_static += usize::from(is_batch && row.is_static);
            let (predicted, measured) = (row.predicted_bytes, row.measured_bytes);
            // Loads are known to the byte; runs are at most 1 % less than predicted.
            let is_right = match is_batch {
                true => predicted >= measured && predicted <= measured + measured / 100,
                false => predicted == measured,
            };
            if row.is_static && !is_right {
                wrong.push(format!("{}: {row:?}", dir.display()));
            }
        }
    }
    assert!(n_static > 20, "only {n_static} runs of static graphs");
    assert!(wrong.is_empty(), "{} figures are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_weight_that_is_only_used_packed_is_held_once() {
    let pool = Arc::new(Pool::new(2));
    let digits = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/digits/1");
    let folder = storage::open(&digits.to_string_lossy()).unwrap();
    let rows = measure(&folder, &[Sizes::of_rows(1)], &pool, device::Kind::Cpu).unwrap();
    let of = |what: &str| rows.iter().find(|row| row.what == what).unwrap().measured_bytes;
    assert!(of("packed_weights") > 0, "{rows:?}");
    // What is left is what kernels read as it is: biases and the like.
    assert!(of("weights") * 4 < of("packed_weights"), "{rows:?}");
}

#[test]
fn weights_that_a_loop_reads_by_their_handles_are_held_once() {
    let (pool, zoo) = (Arc::new(Pool::new(2)), small_zoo());
    for name in ["lstm", "gru", "bidirectional"] {
        let dir = zoo.join(name).join("1");
        let weights = open(&dir).unwrap().weights_bytes();
        let folder = storage::open(&dir.to_string_lossy()).unwrap();
        let rows = measure(&folder, &[], &pool, device::Kind::Cpu).unwrap();
        let of = |what: &str| rows.iter().find(|row| row.what == what).unwrap().measured_bytes;
        assert!(of("packed_weights") > 0, "{name}: {rows:?}");
        // What is left is what kernels read as it is: biases and the like.
        assert!(of("weights") < weights / 2, "{name}: {weights} bytes, {rows:?}");
    }
}

const MIB: u64 = 1 << 20;

/// A device of its own.
fn space() -> Arc<Space> {
    let gpu = Arc::new(Simulated::gpu("gpu:0", 1 << 30)) as Arc<dyn Driver>;
    let driver = Arc::new(Limited::new(gpu, "gpu:0", 1 << 30));
    let physical = Arc::clone(driver.account());
    let growth = device::logical::GrowthRule::OnDemand;
    Space::new(SpaceOptions { driver, physical, growth, step_bytes: MIB, context_bytes: 0 })
        .unwrap()
}

fn executor(space: &Arc<Space>) -> Executor {
    let options = schedule::Options { n_lanes: 1, inline_max: Duration::ZERO, run_max: None };
    let server = Owner::new(space, Holder::Server, None);
    let lanes = Arc::new(Lanes::start_for(options, Some(server)).unwrap());
    Executor { lanes, pool: Arc::new(Pool::new(1)), device: "gpu:0".into(), pace: None }
}

/// Loads the digits as a version of a model, which may hold as much as its account says.
fn load_digits(
    version: i64,
    executor: &Executor,
    space: &Arc<Space>,
    account: Option<Arc<Account>>,
) -> (Loaded, Arc<Owner>) {
    let holder = Holder::Version { model: Arc::from("digits"), version };
    let owner = Owner::new(space, holder, account);
    (load_for(executor, &owner), owner)
}

/// Loads the digits for an owner.
fn load_for(executor: &Executor, owner: &Arc<Owner>) -> Loaded {
    let digits = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/digits/2");
    load_dir(&digits, executor, owner).unwrap()
}

/// Loads a version for an owner.
fn load_dir(dir: &Path, executor: &Executor, owner: &Arc<Owner>) -> status::Result<Loaded> {
    let options = options();
    open(dir)?.load(&options, executor, Some(Arc::clone(owner)))
}

fn options() -> Options {
    Options { tags: vec!["serve".to_owned()], plans_max: 8 }
}

fn open(dir: &Path) -> status::Result<Opened> {
    let folder = storage::open(&dir.to_string_lossy()).unwrap();
    Opened::open(&folder, &options())
}

#[test]
fn while_a_model_is_loaded_no_more_than_one_weight_is_there_twice() {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let zoo = home.join(".cache/tensord/zoo-small");
    let pool = Arc::new(Pool::new(1));
    let digits = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/digits/2");
    let zoo = ["resnet50", "mobilenet_v2", "xception", "densenet121"].map(|name| zoo.join(name));
    let mut n_models = 0;
    for dir in [digits].into_iter().chain(zoo.map(|dir| dir.join("1"))) {
        if !dir.join("saved_model.pb").is_file() {
            continue;
        }
        n_models += 1;
        let folder = storage::open(&dir.to_string_lossy()).unwrap();
        let options = Options { tags: vec!["serve".to_owned()], plans_max: 1 };
        let opened = Opened::open(&folder, &options).unwrap();
        let largest = opened.weight_keys().iter().map(|key| key.bytes).max().unwrap();
        let weights = opened.weights_bytes();
        let rows = measure(&folder, &[], &pool, device::Kind::Cpu).unwrap();
        let of = |what: &str| rows.iter().find(|row| row.what == what).unwrap().measured_bytes;
        // One weight times its scale, and packed: twice the largest, padding included.
        let most = weights.max(of("resident")) + 3 * largest + weights / 4;
        assert!(of("load") <= most, "{}: {} of {weights}, {rows:?}", dir.display(), of("load"));
    }
    assert!(n_models > 0);
}

#[test]
fn packed_weights_of_equal_versions_are_held_once_and_booked_as_shared() {
    let space = space();
    let executor = executor(&space);
    let (one, owner) = load_digits(1, &executor, &space, None);
    let alone = space.books().in_use_bytes();
    let packed = |owner: &Owner| {
        let all = owner.categories();
        let of = all.iter().filter(|(category, _)| *category == Category::PackedWeights);
        of.map(|(_, bytes)| *bytes).sum::<u64>()
    };
    let packed_alone = packed(&owner);
    assert!(packed_alone > 50_000, "{packed_alone}");
    let (two, other) = load_digits(2, &executor, &space, None);
    let rows = space.snapshot().rows;
    let shared = rows.iter().filter(|row| row.holder == Holder::Shared);
    let shared: u64 =
        shared.filter(|row| row.category == Category::PackedWeights).map(|row| row.bytes).sum();
    assert!(shared * 10 > packed_alone * 9, "{shared} of {packed_alone} are shared");
    assert!(space.books().in_use_bytes() - alone < packed_alone / 5, "{rows:?}");
    drop((two, other));
    assert_eq!((space.books().in_use_bytes(), packed(&owner)), (alone, packed_alone));
    drop((one, owner));
    settles(|| space.books().in_use_bytes(), 0);
}

/// A lane lets go of what it ran shortly after it has answered.
#[track_caller]
fn settles(bytes: impl Fn() -> u64, expected: u64) {
    let end = Instant::now() + Duration::from_secs(30);
    while Instant::now() < end {
        if bytes() <= expected {
            return;
        }
        std::thread::yield_now();
    }
    assert_eq!(bytes(), expected, "something is left");
}

type Answer = status::Result<Vec<Tensor>>;

/// Starts runs of so many rows each and waits for their answers.
fn ask(loaded: &Loaded, rows: &[usize]) -> Vec<Answer> {
    start(loaded, rows).iter().map(|answer| answer.recv().unwrap()).collect()
}

/// Starts runs of so many rows each; their answers will come.
fn start(loaded: &Loaded, rows: &[usize]) -> Vec<mpsc::Receiver<Answer>> {
    let (name, signature) = loaded.servable.signatures.first_key_value().unwrap();
    rows.iter()
        .map(|n_rows| {
            let sizes = |endpoint: &Endpoint| {
                let dims = endpoint.spec.dims().unwrap().iter().skip(1);
                std::iter::once(*n_rows).chain(dims.map(|dim| dim.size().unwrap())).collect()
            };
            let input = |endpoint: &Endpoint| Tensor::zeros(DType::F32, sizes(endpoint)).unwrap();
            let run = Run {
                signature: name.clone(),
                inputs: signature.inputs.values().map(input).collect(),
                outputs: vec![0],
                deadline: None,
                level: None,
                is_cancelled: Arc::default(),
            };
            let (send, receive) = mpsc::channel();
            loaded.engine.start(run, Box::new(move |answer| drop(send.send(answer))));
            receive
        })
        .collect()
}

/// The digits with a limit that leaves room for runs of some rows but not of many; and that limit.
fn tight() -> (Loaded, Arc<Owner>, Arc<Account>) {
    let space = space();
    let executor = executor(&space);
    let account = Arc::new(Account::new("model digits", u64::MAX >> 1));
    let (loaded, owner) = load_digits(1, &executor, &space, Some(Arc::clone(&account)));
    // The plans of both sizes are made before the limit is set.
    assert!(ask(&loaded, &[1, 8]).iter().all(Result::is_ok));
    let many = owner.work_bytes();
    account.set_limit(account.held_bytes() + many / 2).unwrap();
    (loaded, owner, account)
}

#[test]
fn a_run_whose_workspace_exceeds_its_models_limit_fails_alone() {
    let (loaded, _owner, account) = tight();
    let held = account.held_bytes();
    let answers = ask(&loaded, &[1, 8, 1]);
    assert!(answers[0].is_ok() && answers[2].is_ok(), "{answers:?}");
    let error = answers[1].as_ref().unwrap_err();
    assert_eq!(error.code, Code::ResourceExhausted, "{error}");
    assert!(error.to_string().contains("model digits has no room"), "{error}");
    drop(answers);
    settles(|| account.held_bytes(), held);
}

#[test]
fn a_batch_that_does_not_fit_is_split_and_tried_again() {
    let (loaded, _owner, account) = tight();
    let held = account.held_bytes();
    let base = batch::Options::unbatched(100);
    let timeout = Duration::from_secs(600);
    // Only a full batch runs, and that is too large.
    let options = batch::Options { task_rows_max: 8, batch_rows_max: 8, timeout, ..base };
    loaded.engine.set_batching(&Batching::Asked(options.clone())).unwrap();
    let answers = ask(&loaded, &[1; 8]);
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    // One that is too large by itself is refused, and nobody else.
    assert!(matches!(ask(&loaded, &[8])[0], Err(Status { code: Code::ResourceExhausted, .. })));
    // From now on batches need not be full.
    let options = batch::Options { timeout: Duration::ZERO, ..options };
    loaded.engine.set_batching(&Batching::Asked(options)).unwrap();
    assert!(ask(&loaded, &[1; 8]).iter().all(Result::is_ok));
    drop(answers);
    settles(|| account.held_bytes(), held);
}

/// Batches of up to eight rows of digits, where the limit of the model leaves room for the
/// workspace of about four.
#[test]
fn batches_have_no_more_rows_than_fit_within_the_limit_of_their_model() {
    let space = space();
    let executor = executor(&space);
    let account = Arc::new(Account::new("model digits", u64::MAX >> 1));
    let (loaded, owner) = load_digits(1, &executor, &space, Some(Arc::clone(&account)));
    let base = batch::Options::unbatched(100);
    let options = batch::Options { task_rows_max: 8, batch_rows_max: 8, ..base };
    let patient = batch::Options { timeout: Duration::from_secs(600), ..options.clone() };
    // What a row needs is told by the first.
    loaded.engine.set_batching(&Batching::Proved(options.clone())).unwrap();
    assert!(ask(&loaded, &[1])[0].is_ok());
    settles(|| account.held_bytes(), owner.bytes());
    account.set_limit(account.held_bytes() + 4 * owner.work_bytes()).unwrap();
    // They wait until there are eight of them, and then leave in batches of those that fit.
    loaded.engine.set_batching(&Batching::Proved(patient)).unwrap();
    let answers = start(&loaded, &[1; 40]);
    loaded.engine.set_batching(&Batching::Proved(options)).unwrap();
    let answers: Vec<Answer> = answers.iter().map(|answer| answer.recv().unwrap()).collect();
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    let queue = || {
        let queues = loaded.engine.queues().into_iter();
        queues.map(|queue| queue.snapshot).max_by_key(|queue| queue.stats.n_asked).unwrap()
    };
    settles(|| 41 - queue().stats.n_rows, 0);
    let (stats, rows_fit) = (queue().stats, queue().rows_fit);
    assert_eq!((stats.n_asked, stats.n_rows, stats.n_rerun), (41, 41, 0), "{stats:?}");
    assert!(rows_fit.is_some_and(|rows| (2..8).contains(&rows)), "{rows_fit:?}");
    assert!(stats.n_batches < 30, "most leave together: {stats:?}");
    assert!(account.peak_bytes() <= account.limit_bytes());
    // Eight rows together would not have fitted.
    let error = ask(&loaded, &[8]).remove(0).unwrap_err();
    assert_eq!(error.code, Code::ResourceExhausted, "{error}");
}

#[test]
fn what_is_set_aside_for_a_model_holds_its_workspace_too() {
    // The workspaces of a run of one row and of a run of eight, where there is room for both.
    let space = space();
    let executor = executor(&space);
    let (loaded, owner) = load_digits(1, &executor, &space, None);
    assert!(ask(&loaded, &[1])[0].is_ok());
    let one = owner.work_bytes();
    assert!(ask(&loaded, &[8])[0].is_ok());
    let eight = owner.work_bytes();
    drop((loaded, owner));

    // What is set aside is filled up, but for room for the workspace of one row and not of eight.
    let holder = Holder::Version { model: Arc::from("digits"), version: 2 };
    let account = Arc::new(Account::new("model digits", 2 * MIB));
    let aside = space.set_aside(holder.clone(), &account).unwrap();
    let owner = Owner::new(&aside, holder, None);
    let loaded = load_for(&executor, &owner);
    let fill = |bytes: u64| {
        Buffer::allocate_for(&owner, Category::Requests, usize::try_from(bytes).unwrap())
    };
    let mut filler: Vec<Buffer> = std::iter::from_fn(|| fill(8 << 10).ok()).collect();
    let room = one + 32 * 1024;
    assert!(room + 64 * 1024 < eight && filler.len() as u64 * (8 << 10) > eight);
    filler.truncate(filler.len() - usize::try_from(room.div_ceil(8 << 10)).unwrap());
    let outside = space.books().in_use_bytes();
    let answers = ask(&loaded, &[1, 8, 1]);
    assert!(answers[0].is_ok() && answers[2].is_ok(), "{answers:?}");
    assert!(matches!(answers[1], Err(Status { code: Code::ResourceExhausted, .. })), "{answers:?}");
    let held = owner.categories();
    let is_work =
        |category: &Category| matches!(category, Category::Activations | Category::Workspace);
    let work = held.iter().filter(|(category, _)| is_work(category)).map(|(_, bytes)| bytes);
    assert_eq!(work.sum::<u64>(), one, "{held:?}");
    assert_eq!(space.books().in_use_bytes(), outside, "nothing of what is everybody's");
    drop(filler);
    assert!(ask(&loaded, &[8])[0].is_ok());
    drop((answers, loaded));
    settles(|| aside.books().in_use_bytes(), 0);
}

/// A run of the default signature, or the first, on one made-up row; `None` if none can be made
/// up.
fn made_up_run(opened: &Opened, pool: &Arc<Pool>, kind: device::Kind) -> Option<Run> {
    let rehearsal = opened.rehearse(&options(), pool, kind).ok()?;
    let batch = rehearsal.batch(None, Sizes::of_rows(1)).ok()??;
    let n_outputs = rehearsal.signatures()[&batch.signature].outputs.len();
    measure::made_up_run(&batch, n_outputs)
}

fn ask_once(loaded: &Loaded, run: &Run) -> Answer {
    let (send, receive) = mpsc::channel();
    loaded.engine.start(run.clone(), Box::new(move |answer| drop(send.send(answer))));
    receive.recv().unwrap()
}

/// Fails the allocations of a run in turn, and asserts that only that run fails; how many did.
fn fail_each(name: &str, loaded: &Loaded, run: &Run, space: &Arc<Space>) -> u32 {
    let used = space.books().in_use_bytes();
    let mut n_failed = 0;
    for n in 1.. {
        space.faults().fail_allocation(n);
        let answer = ask_once(loaded, run);
        if space.faults().fails_in().is_some() {
            assert!(answer.is_ok(), "{name}: {answer:?}");
            break;
        }
        match answer {
            // Room that is asked for beforehand can be done without.
            Ok(answer) => drop(answer),
            Err(error) => {
                n_failed += 1;
                assert_eq!(error.code, Code::ResourceExhausted, "{name}, {n}: {error}");
            }
        }
        settles(|| space.books().in_use_bytes(), used);
        let next = ask_once(loaded, run);
        assert!(next.is_ok(), "{name}, after allocation {n}: {next:?}");
        drop(next);
        settles(|| space.books().in_use_bytes(), used);
    }
    space.faults().fail_allocation(0);
    n_failed
}

#[test]
fn every_allocation_of_a_run_fails_in_turn_and_the_next_run_works() {
    let (mut n_models, mut n_failed) = (0, 0);
    let space = space();
    let executor = executor(&space);
    for dir in versions() {
        let name = dir.display().to_string();
        let holder = Holder::Version { model: Arc::from("m"), version: 1 };
        let owner = Owner::new(&space, holder, None);
        let Ok(opened) = open(&dir) else { continue };
        // A run that leaves something behind is another each time.
        let is_stateful = opened.keeps_state();
        let run = made_up_run(&opened, &executor.pool, device::Kind::Cpu);
        let Some(run) = run.filter(|_| !is_stateful) else { continue };
        let Ok(loaded) = load_dir(&dir, &executor, &owner) else { continue };
        // What made-up inputs cannot be run on is left out. Plans and workspace are there then.
        if (0..2).any(|_| ask_once(&loaded, &run).is_err()) {
            continue;
        }
        n_models += 1;
        n_failed += fail_each(&name, &loaded, &run, &space);
        drop(loaded);
        settles(|| owner.bytes(), 0);
    }
    executor.lanes.trim();
    settles(|| space.books().in_use_bytes(), 0);
    assert!(n_models > 5 && n_failed > n_models, "{n_failed} runs of {n_models} models failed");
}

/// The digits with room for the workspace of one row and not of six: eight rows are one batch.
#[test]
fn of_the_tasks_of_a_batch_only_those_that_do_not_fit_alone_are_refused() {
    let space = space();
    let executor = executor(&space);
    let account = Arc::new(Account::new("model digits", u64::MAX >> 1));
    let (loaded, owner) = load_digits(1, &executor, &space, Some(Arc::clone(&account)));
    // The plans of all sizes are made before the limit is set.
    assert!(ask(&loaded, &[1])[0].is_ok());
    let one = owner.work_bytes();
    assert!(ask(&loaded, &[6])[0].is_ok());
    let six = owner.work_bytes();
    assert!(ask(&loaded, &[8])[0].is_ok() && 2 * one < six, "{one} and {six}");
    settles(|| account.held_bytes(), owner.bytes());
    let held = account.held_bytes();
    account.set_limit(held + one.midpoint(six)).unwrap();
    let base = batch::Options::unbatched(100);
    let timeout = Duration::from_secs(600);
    let options = batch::Options { task_rows_max: 8, batch_rows_max: 8, timeout, ..base };
    loaded.engine.set_batching(&Batching::Asked(options.clone())).unwrap();
    let answers = ask(&loaded, &[1, 6, 1]);
    assert!(answers[0].is_ok() && answers[2].is_ok(), "{answers:?}");
    let error = answers[1].as_ref().unwrap_err();
    assert_eq!(error.code, Code::ResourceExhausted, "{error}");
    assert_eq!(answers[0].as_ref().unwrap()[0].shape().iter().next(), Some(&1));
    let queue = || {
        let queues = loaded.engine.queues().into_iter();
        queues.map(|queue| queue.snapshot).find(|queue| queue.stats.n_rerun > 0)
    };
    // The count may come after the answers.
    settles(|| u64::from(queue().is_none()), 0);
    let stats = queue().map(|queue| queue.stats).unwrap();
    assert_eq!((stats.n_asked, stats.n_rerun), (3, 1), "{stats:?}");
    // Replies are in the books for as long as somebody has them.
    let is_reply =
        |(category, bytes): &(Category, u64)| *category == Category::Requests && *bytes > 0;
    assert!(owner.categories().iter().any(is_reply), "{:?}", owner.categories());
    drop(answers);
    settles(|| account.held_bytes(), held);
    // From now on batches need not be full.
    let options = batch::Options { timeout: Duration::ZERO, ..options };
    loaded.engine.set_batching(&Batching::Asked(options)).unwrap();
    let full = ask(&loaded, &[1; 8]);
    assert!(full.iter().all(Result::is_ok), "{full:?}");
    drop(full);
    settles(|| account.held_bytes(), held);
}

/// The share of the bytes in use that carry the name of a tensor or a plan, for each version.
#[test]
fn every_byte_of_weights_and_plans_carries_its_name() {
    let (mut n_models, mut all, mut named) = (0, 0, 0);
    let space = space();
    let executor = executor(&space);
    for dir in versions() {
        let holder = Holder::Version { model: Arc::from("m"), version: 1 };
        let owner = Owner::new(&space, holder.clone(), None);
        let Ok(opened) = open(&dir) else { continue };
        let run = made_up_run(&opened, &executor.pool, device::Kind::Cpu);
        let Ok(loaded) = load_dir(&dir, &executor, &owner) else { continue };
        if let Some(run) = run {
            drop(ask_once(&loaded, &run));
        }
        n_models += 1;
        let ledger = space.ledger();
        let sum: u64 = ledger.rows.iter().map(|row| row.bytes).sum();
        assert_eq!(sum, ledger.held_bytes);
        let used = ledger.rows.iter().filter(|row| row.category < Category::Fragmentation);
        // What a model holds for a request is gone when that is answered.
        let used: Vec<&Row> = used.filter(|row| row.category != Category::Requests).collect();
        let bytes = |rows: &mut dyn Iterator<Item = &&Row>| rows.map(|row| row.bytes).sum::<u64>();
        let of_model = bytes(&mut used.iter());
        let without: Vec<&Row> = used.into_iter().filter(|row| row.tensor.is_empty()).collect();
        let nameless = bytes(&mut without.iter());
        (all, named) = (all + of_model, named + of_model - nameless);
        assert!(nameless * 1000 <= of_model, "{}: of {of_model} {without:?}", dir.display());
    }
    assert!(n_models > 5 && named * 1000 >= all * 999, "{named} of {all} of {n_models} models");
}

/// A model whose greedy offsets take more than the best ones, on a host of its own, which
/// may hold so much beside what it holds when it is loaded.
fn tight_model(dir: &Path, room: u64) -> (Loaded, Arc<Owner>, Arc<Account>) {
    let space = space();
    let executor = executor(&space);
    let account = Arc::new(Account::new("model tight", u64::MAX >> 1));
    let holder = Holder::Version { model: Arc::from("tight"), version: 1 };
    let owner = Owner::new(&space, holder, Some(Arc::clone(&account)));
    let loaded = load_dir(dir, &executor, &owner).unwrap();
    account.set_limit(account.held_bytes() + room).unwrap();
    (loaded, owner, account)
}

const UNIT_BYTES: usize = 64 << 10;

/// The bytes that plans, results and scalars take beside the buffers.
const SLACK_BYTES: usize = 48 << 10;

#[test]
fn a_run_that_greedy_offsets_have_no_room_for_is_packed_again_and_answered() {
    let dir = tempfile::tempdir().unwrap();
    testkit::tight::write(dir.path(), UNIT_BYTES);
    let expected = 0.0 + testkit::tight::answer(0.0);
    let room = |units: usize| (units * UNIT_BYTES + SLACK_BYTES) as u64;
    // As much as the best offsets take; as much as greedy ones do; and less than any.
    let cases = [
        (room(BEST_UNITS), true, (1, 1)),
        (room(BEST_UNITS + 6), true, (0, 0)),
        (room(BEST_UNITS - 1), false, (0, 0)),
    ];
    for (bytes, is_enough, (n_searches, n_found)) in cases {
        let (loaded, owner, account) = tight_model(dir.path(), bytes);
        for _ in 0..3 {
            let answer = ask(&loaded, &[2]).remove(0);
            match answer {
                Ok(outputs) => assert_eq!(outputs[0].as_slice::<f32>(), [expected; 2]),
                Err(error) => assert!(!is_enough, "{bytes}: {error}"),
            }
        }
        assert!(is_enough || ask(&loaded, &[2])[0].is_err());
        assert_eq!(loaded.engine.searches(), Searches { n_searches, n_found }, "{bytes}");
        assert!(account.peak_bytes() <= account.limit_bytes());
        assert!(!is_enough || owner.work_bytes() <= bytes);
    }
}

#[test]
fn a_rehearsal_searches_where_it_decides_whether_a_version_fits() {
    let dir = tempfile::tempdir().unwrap();
    testkit::tight::write(dir.path(), UNIT_BYTES);
    let pool = Arc::new(Pool::new(1));
    let opened = open(dir.path()).unwrap();
    let rehearse = || opened.rehearse(&options(), &pool, device::Kind::Cpu).unwrap();
    let rehearsal = rehearse();
    let stays = rehearsal.need().resident_bytes();
    let batch = rehearsal.batch(None, Sizes::of_rows(1)).unwrap().unwrap();
    let within = |device_bytes: u64| {
        let room = graph::Room { device_bytes, host_bytes: u64::MAX };
        rehearse().plan_within(&batch, room).unwrap()
    };
    let greedy = within(u64::MAX);
    assert!(greedy.work_bytes >= (GREEDY_UNITS * UNIT_BYTES) as u64 && !greedy.is_searched);
    let room = stays + (BEST_UNITS * UNIT_BYTES + SLACK_BYTES) as u64;
    let best = within(room);
    assert!(best.is_searched && stays + best.total_bytes() <= room, "{best:?} in {room}");
    assert_eq!((best.plan_bytes, best.dynamic_bytes), (greedy.plan_bytes, greedy.dynamic_bytes));
    assert_eq!(within(room / 2), greedy, "nothing could be enough");
    // A version that fits only so has its plan before the first request.
    opened.plan_ahead(batch);
    let space = space();
    let executor = executor(&space);
    let holder = Holder::Version { model: Arc::from("tight"), version: 1 };
    let account = Arc::new(Account::new("model tight", room));
    let owner = Owner::new(&space, holder, Some(account));
    let loaded = opened.load(&options(), &executor, Some(Arc::clone(&owner))).unwrap();
    let once = Searches { n_searches: 1, n_found: 1 };
    assert_eq!(loaded.engine.searches(), once);
    assert!(ask(&loaded, &[1])[0].is_ok());
    assert_eq!(loaded.engine.searches(), once);
}
