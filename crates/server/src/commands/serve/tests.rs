//! Versions that come and go by the hundred on the real engine: no request is lost, and no byte.

mod host;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use api::Replayed;
use lifecycle::{ModelOptions, Policy, Poll, State, Target, VersionPolicy};
use proto::serving::PredictionLog;

use super::*;

/// The time between two looks at the folders.
const POLL: Duration = Duration::from_millis(1);

/// A server without doors.
struct Inner {
    lifecycle: Lifecycle<Servable>,
    devices: Arc<Devices>,
    active: Arc<Active>,
    unload: CancellationToken,
}

impl Inner {
    fn start() -> Self {
        Self::start_with(|_| {})
    }

    /// One with settings that flags could not say.
    fn start_with(change: impl FnOnce(&mut Config)) -> Self {
        let flags = config::flags::parse(&["--model_base_path=/m", "--engine=native"]);
        let mut config = Config::new(Persona::Tensord, &flags).unwrap();
        change(&mut config);
        let active = Arc::new(Active::default());
        let versions = Arc::new(Versions::new(config.batching.clone(), Arc::clone(&active)));
        let devices = start_devices(&config, &active).unwrap();
        let scheduler = Scheduler { versions, devices: Arc::clone(&devices) };
        let warmups = Arc::new(Warmups::default());
        let external = start_external(&config, &flags, &devices).unwrap();
        let folders = Models { fence: Arc::default(), tags: config.tags.clone() };
        let parts = EngineParts {
            scheduler: &scheduler,
            external: &external,
            active: &active,
            folders: &folders,
            warmups: &warmups,
        };
        let (loader, _) = start_engines(&config, &flags, &parts).unwrap();
        let loader = Counted { loader, loads: Arc::default() };
        let options = lifecycle::Options { poll: Poll::Every(POLL), ..config.lifecycle };
        let unload = CancellationToken::new();
        let lifecycle = Lifecycle::start(options, folders, loader, unload.clone());
        Self { lifecycle, devices, active, unload }
    }

    /// The bytes that all devices hold, what is kept for the next model given back; but for plans,
    /// of which there are as many as there were sizes of batches.
    fn held_bytes(&self) -> u64 {
        self.devices.trim("test");
        let held = self.devices.all().into_iter().map(|logical| {
            let snapshot = logical.space.snapshot();
            let is_plan = |row: &&device::Row| row.category == device::Category::Plans;
            let plans = snapshot.rows.iter().filter(is_plan).map(|row| row.bytes).sum::<u64>();
            snapshot.held_bytes - plans
        });
        held.sum()
    }

    /// Runs a request on the newest version of a model.
    async fn ask(&self, model: &str) {
        let handle = self.lifecycle.models().get(&Target::latest(model));
        let handle = handle.unwrap_or_else(|error| panic!("{error}"));
        let replayed = api::replay(&handle, &request()).await;
        assert_eq!(replayed.map_err(|status| status.message), Ok(Replayed::Run));
    }

    /// Waits until the states of a model are as wanted.
    async fn until(&self, model: &str, is_wanted: impl Fn(&[lifecycle::VersionStatus]) -> bool) {
        let mut changes = self.lifecycle.models().changes();
        loop {
            let states = self.lifecycle.models().status(model, None).unwrap_or_default();
            if is_wanted(&states) {
                return;
            }
            changes.changed().await.unwrap();
        }
    }

    async fn stop(self) {
        self.unload.cancel();
        self.lifecycle.stopped().await;
    }
}

/// `half_plus_two` of 1.
fn request() -> PredictionLog {
    proto::text::parse(
        "predict_log { request { inputs { key: 'x' value { dtype: DT_FLOAT
           tensor_shape { dim { size: 1 } } float_val: 1 } } } }",
    )
    .unwrap()
}

fn model(name: &str, base_path: &Path) -> ModelOptions {
    ModelOptions {
        name: name.to_owned(),
        base_path: base_path.to_string_lossy().into_owned(),
        platform: "tensorflow".to_owned(),
        versions: VersionPolicy::Latest(1),
        policy: Policy::AvailabilityPreserving,
        labels: [].into(),
    }
}

fn half_plus_two() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/half_plus_two")
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

const N_SWAPS: usize = 1000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_swaps_under_load_lose_no_request_and_no_byte() {
    let folder = tempfile::tempdir().unwrap();
    copy(&half_plus_two().join("00000123"), &folder.path().join("1"));
    let inner = Arc::new(Inner::start());
    inner.lifecycle.set_config(vec![model("m", folder.path())]).await.unwrap();
    inner.ask("m").await;
    let (n_answers, done) = (Arc::new(AtomicUsize::new(0)), CancellationToken::new());
    let load = (0..4).map(|_| {
        let (inner, n_answers, done) = (Arc::clone(&inner), Arc::clone(&n_answers), done.clone());
        tokio::spawn(async move {
            while !done.is_cancelled() {
                inner.ask("m").await;
                n_answers.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        })
    });
    let load: Vec<_> = load.collect();
    let mut held = Vec::new();
    for version in 1..=N_SWAPS {
        let path = |version: usize| folder.path().join(version.to_string());
        fs::rename(path(version), path(version + 1)).unwrap();
        let next = i64::try_from(version + 1).unwrap();
        // The new one is served, and the old one is gone.
        let is_swapped = |states: &[lifecycle::VersionStatus]| {
            let available = |status: &&lifecycle::VersionStatus| status.state != State::End;
            let left: Vec<i64> = states.iter().filter(available).map(|s| s.version).collect();
            left == [next]
        };
        inner.until("m", is_swapped).await;
        held.push(inner.held_bytes());
    }
    done.cancel();
    for task in load {
        task.await.unwrap();
    }
    assert!(n_answers.load(Ordering::Relaxed) > N_SWAPS, "there was no load to speak of");
    let (early, late) = (held[N_SWAPS / 10], inner.held_bytes());
    assert!(late <= early, "{early} bytes were held at first, {late} in the end: {held:?}");
    Arc::into_inner(inner).unwrap().stop().await;
}

/// Fault 31 of `docs/faults.md`: what is counted is what the program has asked the heap for, which
/// neither pages nor other processes blur.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_loads_and_unloads_leave_the_heap_as_it_was() {
    const N_MODELS: usize = 10;
    const N_CYCLES: usize = 300;
    let inner = Inner::start();
    let base = half_plus_two();
    let names: Vec<String> = (0..N_MODELS).map(|number| format!("m{number}")).collect();
    let held_before = inner.held_bytes();
    let mut allocated = Vec::new();
    for _ in 0..N_CYCLES {
        let models = names.iter().map(|name| model(name, &base)).collect();
        inner.lifecycle.set_config(models).await.unwrap();
        for name in &names {
            inner.ask(name).await;
        }
        inner.lifecycle.set_config(Vec::new()).await.unwrap();
        for name in &names {
            inner.until(name, |states| states.iter().all(|s| s.state == State::End)).await;
        }
        allocated.push(heap::bytes().allocated_bytes);
    }
    assert_eq!(inner.held_bytes(), held_before);
    // What threads keep for themselves comes and goes by megabytes. A version that stayed behind at
    // each load would take far more than this.
    let most = |range: std::ops::Range<usize>| *allocated[range].iter().max().unwrap();
    let (early, late) = (most(0..N_CYCLES / 3), most(2 * N_CYCLES / 3..N_CYCLES));
    assert!(late < early + (12 << 20), "{early} bytes became {late}: {allocated:?}");
    inner.stop().await;
}
