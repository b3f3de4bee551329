//! What a model needs is known before it is loaded, and weights are held once.
#![allow(clippy::unwrap_used, clippy::maybe_infinite_iter, reason = "tests")]

use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use device::{
    Account, Buffer, Category, Driver, Holder, Limited, Owner, Simulated, Space, SpaceOptions,
};
use native::measure::measure;
use native::{Executor, Loaded, Opened, Options, Sizes};
use pool::Pool;
use schedule::Lanes;
use session::{Batching, Endpoint, Engine as _, Error, Run};
use tensor::{DType, Tensor};

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
            // Loads are known to the byte; runs are at most 1 % less than predicted (goal M6).
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
    let options = schedule::Options { n_lanes: 1, inline_max: Duration::ZERO };
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
    let folder = storage::open(&digits.to_string_lossy()).unwrap();
    let options = Options { tags: vec!["serve".to_owned()], plans_max: 8 };
    let opened = Opened::open(&folder, &options).unwrap();
    opened.load(&options, executor, Some(Arc::clone(owner))).unwrap()
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
    let alone = space.in_use_bytes();
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
    assert!(space.in_use_bytes() - alone < packed_alone / 5, "{rows:?}");
    drop((two, other));
    assert_eq!((space.in_use_bytes(), packed(&owner)), (alone, packed_alone));
    drop((one, owner));
    settles(|| space.in_use_bytes(), 0);
}

/// A lane lets go of what it ran shortly after it has answered.
#[track_caller]
fn settles(bytes: impl Fn() -> u64, expected: u64) {
    for _ in 0..100_000 {
        if bytes() <= expected {
            return;
        }
        std::thread::yield_now();
    }
    assert_eq!(bytes(), expected, "something is left");
}

type Answer = session::Result<Vec<Tensor>>;

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
    assert!(matches!(error, Error::ResourceExhausted(_)), "{error}");
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
    assert!(matches!(ask(&loaded, &[8])[0], Err(Error::ResourceExhausted(_))));
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
    assert!(matches!(error, Error::ResourceExhausted(_)), "{error}");
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
    let aside = space.set_aside(holder.clone(), account).unwrap();
    let owner = Owner::new(&aside, holder, None);
    let loaded = load_for(&executor, &owner);
    let fill = |bytes: u64| {
        Buffer::allocate_for(&owner, Category::Requests, usize::try_from(bytes).unwrap())
    };
    let mut filler: Vec<Buffer> = std::iter::from_fn(|| fill(8 << 10).ok()).collect();
    let room = one + 32 * 1024;
    assert!(room + 64 * 1024 < eight && filler.len() as u64 * (8 << 10) > eight);
    filler.truncate(filler.len() - usize::try_from(room.div_ceil(8 << 10)).unwrap());
    let outside = space.in_use_bytes();
    let answers = ask(&loaded, &[1, 8, 1]);
    assert!(answers[0].is_ok() && answers[2].is_ok(), "{answers:?}");
    assert!(matches!(answers[1], Err(Error::ResourceExhausted(_))), "{answers:?}");
    let held = owner.categories();
    assert!(held.contains(&(Category::Activations, one)), "{held:?} for {one}");
    assert_eq!(space.in_use_bytes(), outside, "nothing of what is everybody's");
    drop(filler);
    assert!(ask(&loaded, &[8])[0].is_ok());
    drop((answers, loaded));
    settles(|| aside.in_use_bytes(), 0);
}

#[test]
fn every_allocation_of_a_run_fails_in_turn_and_the_next_run_works() {
    let space = space();
    let executor = executor(&space);
    let (loaded, _owner) = load_digits(1, &executor, &space, None);
    assert!(ask(&loaded, &[2])[0].is_ok());
    let used = space.in_use_bytes();
    let mut n_failed = 0;
    for n in 1.. {
        space.fail_allocation(n);
        let answer = ask(&loaded, &[2]).remove(0);
        if space.fails_in().is_some() {
            assert!(answer.is_ok());
            break;
        }
        n_failed += 1;
        let error = answer.unwrap_err();
        assert!(matches!(error, Error::ResourceExhausted(_)), "{error}");
        settles(|| space.in_use_bytes(), used);
        assert!(ask(&loaded, &[2])[0].is_ok());
    }
    space.fail_allocation(0);
    assert!(n_failed > 0);
}
