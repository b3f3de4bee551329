//! The task with a source and a loader of ours, in a time that only passes when all is quiet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::SystemTime;

use metrics::HeadwaySnapshot;
use status::Code;

use super::*;
use crate::look::Tree;
use crate::models::{ModelSnapshot, Target};
use crate::options::{LabelRule, Missing, Poll, StartWhen};
use crate::versions::{Child, VersionPolicy};

/// The settings of the tests, and the record of source and loader.
#[derive(Default)]
struct World {
    state: Mutex<WorldState>,
    changed: Condvar,
}

#[derive(Default)]
struct WorldState {
    /// The fingerprints of versions in base paths.
    files: BTreeMap<String, BTreeMap<i64, u64>>,
    /// Base paths whose listing hangs.
    hanging: BTreeSet<String>,
    /// The number of times that the load of a version is still to fail.
    failing: BTreeMap<i64, u32>,
    /// Versions whose load hangs until it is cancelled or they are taken out.
    stuck: BTreeSet<i64>,
    n_loads: usize,
    n_loading: usize,
    n_loading_max: usize,
    n_alive: usize,
    freed_on: Vec<ThreadId>,
}

impl World {
    fn lock(&self) -> MutexGuard<'_, WorldState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut WorldState)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    fn wait_while(&self, mut condition: impl FnMut(&mut WorldState) -> bool) {
        let state = self.lock();
        drop(self.changed.wait_while(state, |state| condition(state)));
    }

    /// Puts versions into the folder of a model; all others are gone.
    fn put(&self, model: &str, versions: &[i64]) {
        self.put_with(model, versions, 0);
    }

    fn put_with(&self, model: &str, versions: &[i64], fingerprint: u64) {
        let versions = versions.iter().map(|version| (*version, fingerprint)).collect();
        self.change(|state| {
            state.files.insert(format!("/models/{model}"), versions);
        });
    }
}

struct FakeSource(Arc<World>);

impl Source for FakeSource {
    fn list(&self, base_path: &str) -> Result<Vec<Child>, LoadError> {
        self.0.wait_while(|state| state.hanging.contains(base_path));
        let state = self.0.lock();
        let folder = state.files.get(base_path);
        let folder = folder.ok_or_else(|| LoadError::new(Code::NotFound, "no base path"))?;
        let child = |version: &i64| Child { name: version.to_string(), is_folder: true };
        Ok(folder.keys().map(child).collect())
    }

    fn tree(&self, path: &str) -> Result<Tree, LoadError> {
        let (base_path, name) = path.rsplit_once('/').unwrap();
        let folder = &self.0.lock().files[base_path];
        let fingerprint = folder[&name.parse::<i64>().unwrap()];
        // What a test changes has never rested, but what has no fingerprint has.
        let is_old = fingerprint == 0;
        let modified = if is_old { SystemTime::UNIX_EPOCH } else { SystemTime::now() };
        Ok(Tree { fingerprint, modified, names: vec!["model.pb".to_owned()] })
    }

    fn check(&self, _path: &str) -> Result<(), LoadError> {
        Ok(())
    }
}

struct FakeLoader(Arc<World>);

/// A servable that says where it was freed.
struct Servable {
    name: String,
    world: Arc<World>,
}

impl Drop for Servable {
    fn drop(&mut self) {
        self.world.change(|state| {
            state.n_alive -= 1;
            state.freed_on.push(std::thread::current().id());
        });
    }
}

impl Loader for FakeLoader {
    type Servable = Servable;

    fn load(
        &self,
        model: &str,
        version: i64,
        path: &str,
        Attempt { cancel, headway }: &Attempt,
    ) -> Result<Servable, LoadError> {
        headway.begin("reading", 10);
        headway.add(4);
        assert_eq!(path, format!("/models/{model}/{version}"));
        self.0.change(|state| {
            state.n_loads += 1;
            state.n_loading += 1;
            state.n_loading_max = state.n_loading_max.max(state.n_loading);
        });
        if self.0.lock().stuck.contains(&version) {
            // The world changes when a test cancels, so that nothing here needs a clock.
            self.0.wait_while(|state| state.stuck.contains(&version) && !cancel.is_cancelled());
        }
        let mut state = self.0.lock();
        state.n_loading -= 1;
        if cancel.is_cancelled() {
            return Err(LoadError::new(Code::Cancelled, "given up"));
        }
        match state.failing.get_mut(&version) {
            Some(&mut u32::MAX) => panic!("a bug in the loader"),
            Some(n_failures) if *n_failures > 0 => {
                *n_failures -= 1;
                Err(LoadError::new(Code::DataLoss, "damaged"))
            }
            Some(_) | None => {
                state.n_alive += 1;
                drop(state);
                Ok(Servable { name: format!("{model}/{version}"), world: Arc::clone(&self.0) })
            }
        }
    }
}

struct Bench {
    world: Arc<World>,
    lifecycle: Lifecycle<Servable>,
    token: CancellationToken,
}

pub(super) fn options() -> Options {
    Options {
        poll: Poll::Every(Duration::from_secs(1)),
        settle: Duration::from_millis(200),
        complete_with: vec!["model.pb".to_owned()],
        n_looks_max: 2,
        look_timeout: Duration::from_secs(30),
        n_load_threads: 2,
        n_unload_threads: 1,
        load_retries_max: 5,
        load_retry_rule: crate::options::RetryRule::All,
        load_retry_first: Duration::from_secs(60),
        load_retry_interval: Duration::from_secs(60),
        missing: Missing::Fails,
        label_rule: LabelRule::Available,
        start_when: StartWhen::All,
    }
}

impl Bench {
    fn new() -> Self {
        Bench::with(options())
    }

    fn with(options: Options) -> Self {
        let world = Arc::new(World::default());
        let (source, loader) = (FakeSource(Arc::clone(&world)), FakeLoader(Arc::clone(&world)));
        let token = CancellationToken::new();
        let lifecycle = Lifecycle::start(options, source, loader, token.clone());
        Bench { world, lifecycle, token }
    }

    fn models(&self) -> &Models<Servable> {
        self.lifecycle.models()
    }

    async fn set(&self, models: &[&str]) -> Result<(), Error> {
        self.lifecycle.set_config(list(models)).await
    }

    /// The name of the servable that a request for a model gets.
    fn serves(&self, model: &str) -> String {
        match self.models().get(&Target::latest(model)) {
            Ok(handle) => handle.name.clone(),
            Err(error) => error.to_string(),
        }
    }

    /// `number:state` of all versions of a model, lowest first.
    fn states(&self, model: &str) -> String {
        self.models().model(model).map_or_else(String::new, |snapshot| show(&snapshot))
    }

    /// Waits until a model has these states.
    async fn reaches(&self, model: &str, states: &str) {
        let mut changes = self.models().changes();
        while self.states(model) != states {
            changes.changed().await.expect("the models are there");
        }
    }

    async fn stop(self) {
        self.token.cancel();
        self.world.change(|_| {});
        self.lifecycle.stopped().await;
        assert_eq!(self.world.lock().n_alive, 0, "everything is freed");
    }
}

fn list(models: &[&str]) -> Vec<ModelOptions> {
    models.iter().map(|name| ModelOptions::for_test(name)).collect()
}

fn show(snapshot: &ModelSnapshot) -> String {
    let show = |status: &crate::state::VersionStatus| {
        format!("{}:{}", status.version, status.state.name().to_lowercase())
    };
    let states: Vec<String> = snapshot.versions.iter().rev().map(show).collect();
    states.join(" ")
}

#[tokio::test(start_paused = true)]
async fn a_configured_model_is_served() {
    let bench = Bench::new();
    bench.world.put("m", &[1, 2]);
    assert!(!bench.models().is_ready());
    bench.set(&["m"]).await.unwrap();
    assert_eq!(bench.serves("m"), "m/2");
    assert!(bench.models().is_ready());
    assert_eq!(bench.states("m"), "2:available");
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn starting_takes_no_time_when_the_files_are_at_rest() {
    let bench = Bench::new();
    bench.world.put("m", &[1]);
    let start = Instant::now();
    bench.set(&["m"]).await.unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO);
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn files_that_are_new_at_the_start_are_looked_at_again_soon() {
    let bench = Bench::new();
    bench.world.put_with("m", &[1], 7);
    let start = Instant::now();
    bench.set(&["m"]).await.unwrap();
    assert_eq!(start.elapsed().as_millis() / 100, 2);
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_new_version_is_found_and_replaces_the_old_one() {
    let bench = Bench::new();
    bench.world.put("m", &[1]);
    bench.set(&["m"]).await.unwrap();
    bench.world.put("m", &[1, 2]);
    bench.reaches("m", "1:end 2:available").await;
    assert_eq!(bench.serves("m"), "m/2");
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_version_still_being_written_is_left_alone() {
    let bench = Bench::new();
    bench.world.put("m", &[1]);
    bench.set(&["m"]).await.unwrap();
    for fingerprint in 1..20 {
        bench.world.put_with("m", &[2], fingerprint);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!((bench.serves("m").as_str(), bench.world.lock().n_loads), ("m/1", 1));
    }
    bench.reaches("m", "1:end 2:available").await;
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn requests_in_flight_keep_their_version_and_do_not_free_it() {
    let bench = Bench::new();
    bench.world.put("m", &[1]);
    bench.set(&["m"]).await.unwrap();
    let in_flight = bench.models().get(&Target::latest("m")).unwrap();
    bench.world.put("m", &[2]);
    bench.reaches("m", "1:unloading 2:available").await;
    assert_eq!(in_flight.name, "m/1");
    let error = bench.models().get(&Target::version("m", 1)).unwrap_err();
    assert_eq!(error.to_string(), "Servable not found for request: Specific(m, 1)");
    drop(in_flight);
    bench.reaches("m", "1:end 2:available").await;
    let freed_on = bench.world.lock().freed_on.clone();
    assert!(freed_on.len() == 1 && freed_on[0] != std::thread::current().id());
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_missing_base_path_stops_no_other_model() {
    let bench = Bench::new();
    bench.world.put("good", &[1]);
    let error = bench.set(&["good", "none"]).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "1 servable(s) did not become available: \
         {{{name: none} due to error: NOT_FOUND: no base path}, }"
    );
    assert_eq!(error.code(), Code::Unknown);
    assert_eq!(bench.serves("good"), "good/1");
    assert!(bench.models().is_ready());
    bench.world.put("none", &[3]);
    bench.reaches("none", "3:available").await;
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_missing_base_path_is_waited_for_if_that_is_wanted() {
    let bench = Bench::with(Options { missing: Missing::Waits, ..options() });
    bench.world.put("good", &[1]);
    let waits = bench.lifecycle.apply_config(list(&["good", "none"])).await.unwrap();
    bench.reaches("good", "1:available").await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(!bench.models().is_ready());
    bench.world.put("none", &[3]);
    waits.available().await.unwrap();
    assert!(bench.models().is_ready());
    assert_eq!(bench.serves("none"), "none/3");
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn versions_that_come_and_go_are_loaded_no_more_often_than_they_are_looked_at() {
    let bench = Bench::new();
    bench.world.put("m", &[1]);
    bench.set(&["m"]).await.unwrap();
    for round in 0..600 {
        // Ten changes between two looks.
        let versions = if round % 2 == 0 { [1] } else { [2] };
        bench.world.put("m", &versions);
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(bench.serves("m").starts_with("m/"), "something is always served");
    }
    let n_loads = bench.world.lock().n_loads;
    assert!(n_loads <= 62, "{n_loads} loads in 60 looks");
    assert!(bench.world.lock().n_alive <= 2);
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_empty_base_path_is_told() {
    let bench = Bench::new();
    bench.world.put("m", &[]);
    let error = bench.set(&["m"]).await.unwrap_err().to_string();
    assert!(error.contains("Did you forget to name your leaf directory as a number"), "{error}");
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_storage_error_unloads_nothing_but_an_empty_folder_does() {
    let bench = Bench::new();
    bench.world.put("m", &[1]);
    bench.set(&["m"]).await.unwrap();
    bench.world.change(|state| state.files.clear());
    let mut changes = bench.models().changes();
    while bench.models().model("m").unwrap().problem.is_none() {
        changes.changed().await.unwrap();
    }
    assert_eq!(bench.serves("m"), "m/1");
    bench.world.put("m", &[]);
    bench.reaches("m", "1:end").await;
    assert_eq!(bench.serves("m"), "Servable not found for request: Latest(m)");
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_bad_version_is_tried_six_times_while_the_old_one_serves() {
    let bench = Bench::new();
    bench.world.put("m", &[1]);
    bench.set(&["m"]).await.unwrap();
    bench.world.change(|state| {
        state.failing.insert(2, 99);
    });
    bench.world.put("m", &[2]);
    let start = Instant::now();
    bench.reaches("m", "1:available 2:end").await;
    assert_eq!(start.elapsed().as_secs() / 60, 5);
    assert_eq!(bench.world.lock().n_loads, 1 + 6);
    assert_eq!(bench.serves("m"), "m/1");
    let status = bench.models().status("m", Some(2)).unwrap();
    assert_eq!(status[0].error, Some(LoadError::new(Code::DataLoss, "damaged")));
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_version_is_loaded_when_its_files_were_mended() {
    let bench = Bench::with(Options { load_retries_max: 0, ..options() });
    bench.world.change(|state| {
        state.failing.insert(1, 1);
    });
    bench.world.put("m", &[1]);
    bench.set(&["m"]).await.unwrap_err();
    bench.world.put_with("m", &[1], 5);
    bench.reaches("m", "1:available").await;
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_loader_that_panics_fails_only_that_version() {
    let bench = Bench::with(Options { load_retries_max: 0, ..options() });
    bench.world.change(|state| {
        state.failing.insert(9, u32::MAX);
    });
    bench.world.put("bad", &[9]);
    bench.world.put("good", &[1]);
    let error = bench.set(&["bad", "good"]).await.unwrap_err().to_string();
    assert!(error.contains("{name: bad version: 9} due to error: INTERNAL: the loader"), "{error}");
    assert_eq!(bench.serves("good"), "good/1");
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn no_more_versions_are_loaded_at_once_than_there_are_threads() {
    let bench = Bench::new();
    let names: Vec<String> = (0..20).map(|model| format!("m{model}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.iter().for_each(|name| bench.world.put(name, &[1]));
    bench.set(&names).await.unwrap();
    let (n_loads, n_max) = {
        let state = bench.world.lock();
        (state.n_loads, state.n_loading_max)
    };
    assert!(n_loads == 20 && n_max <= 2, "{n_loads} loads, {n_max} at once");
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_model_that_leaves_while_it_loads_is_cancelled() {
    let bench = Bench::new();
    bench.world.change(|state| {
        state.stuck.insert(1);
    });
    bench.world.put("m", &[1]);
    let applied = bench.lifecycle.apply_config(list(&["m"])).await.unwrap();
    bench.reaches("m", "1:loading").await;
    bench.set(&[]).await.unwrap();
    applied.available().await.unwrap();
    bench.world.change(|_| {});
    bench.reaches("m", "1:end").await;
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_load_tells_how_far_it_is_until_it_ends() {
    let bench = Bench::new();
    bench.world.change(|state| {
        state.stuck.insert(1);
    });
    bench.world.put("m", &[1]);
    let applied = bench.lifecycle.apply_config(list(&["m"])).await.unwrap();
    bench.reaches("m", "1:loading").await;
    let world = Arc::clone(&bench.world);
    let begun = move || world.wait_while(|state| state.n_loading == 0);
    tokio::task::spawn_blocking(begun).await.unwrap();
    let expected = HeadwaySnapshot { phase: "reading", done_bytes: 4, total_bytes: 10 };
    assert_eq!(bench.models().headway("m", 1), Some(expected));
    assert_eq!(bench.models().headway("m", 2), None);
    bench.world.change(|state| state.stuck.clear());
    applied.available().await.unwrap();
    assert_eq!(bench.models().headway("m", 1), None);
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_stuck_load_holds_up_no_other_model() {
    let bench = Bench::new();
    bench.world.change(|state| {
        state.stuck.insert(1);
    });
    bench.world.put("stuck", &[1]);
    bench.world.put("good", &[2]);
    let both = bench.lifecycle.apply_config(list(&["stuck", "good"])).await.unwrap();
    bench.reaches("good", "2:available").await;
    assert!(!bench.models().is_ready());
    bench.world.change(|state| {
        state.stuck.remove(&1);
    });
    both.available().await.unwrap();
    assert!(bench.models().is_ready());
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_first_available_model_is_enough_when_any_will_do() {
    let bench = Bench::with(Options { start_when: StartWhen::Any, ..options() });
    bench.world.change(|state| {
        state.stuck.insert(1);
    });
    bench.world.put("stuck", &[1]);
    bench.world.put("good", &[2]);
    let applied = bench.lifecycle.apply_config(list(&["stuck", "good"])).await.unwrap();
    bench.models().readiness().wait_for(|ready| *ready).await.unwrap();
    assert_eq!(bench.serves("good"), "good/2");
    bench.world.change(|state| state.stuck.clear());
    applied.available().await.unwrap();
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_hanging_file_system_holds_up_no_other_model() {
    let bench = Bench::with(Options { n_looks_max: 1, ..options() });
    bench.world.change(|state| {
        state.hanging.insert("/models/a".to_owned());
    });
    bench.world.put("a", &[1]);
    let applied = bench.lifecycle.apply_config(list(&["a"])).await.unwrap();
    // Lets the look begin, and then take too long.
    tokio::task::yield_now().await;
    tokio::time::advance(Duration::from_secs(31)).await;
    let error = applied.available().await.unwrap_err().to_string();
    assert!(error.contains("/models/a was not listed within 30 s"), "{error}");
    bench.world.put("b", &[2]);
    bench.set(&["a", "b"]).await.unwrap();
    assert_eq!(bench.serves("b"), "b/2");
    bench.world.change(|state| state.hanging.clear());
    bench.reaches("a", "1:available").await;
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn reloads_that_race_are_all_answered_and_the_last_one_wins() {
    let bench = Bench::new();
    for model in ["a", "b", "c"] {
        bench.world.put(model, &[1]);
    }
    let (a, b, c) = tokio::join!(bench.set(&["a"]), bench.set(&["a", "b"]), bench.set(&["c"]));
    assert_eq!((a, b, c), (Ok(()), Ok(()), Ok(())));
    assert_eq!(bench.serves("c"), "c/1");
    let configured = bench.models().snapshot();
    let configured: Vec<&str> =
        configured.iter().filter(|m| m.is_configured).map(|m| m.name.as_str()).collect();
    assert_eq!(configured, ["c"]);
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_configuration_changes_nothing() {
    let bench = Bench::new();
    bench.world.put("m", &[1]);
    bench.set(&["m"]).await.unwrap();
    let error = bench.set(&["x", "x"]).await.unwrap_err();
    assert_eq!(error, Error::DuplicateModel("x".to_owned()));
    let mut labelled = list(&["m"]);
    labelled[0].labels.insert("canary".to_owned(), 2);
    let error = bench.lifecycle.set_config(labelled).await.unwrap_err();
    assert_eq!(error, Error::LabelUnavailable { model: "m".to_owned(), version: 2 });
    assert_eq!(bench.serves("m"), "m/1");
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_label_moves_when_its_version_is_available() {
    let bench = Bench::with(Options { label_rule: LabelRule::Anywhere, ..options() });
    bench.world.put("m", &[1, 2]);
    let with_label = |versions: &[i64], label| {
        let mut list = list(&["m"]);
        list[0].versions = VersionPolicy::Specific(versions.to_vec());
        list[0].labels.insert("stable".to_owned(), label);
        list
    };
    bench.lifecycle.set_config(with_label(&[1], 1)).await.unwrap();
    let stable = || bench.models().get(&Target::label("m", "stable")).map(|h| h.name.clone());
    assert_eq!(stable(), Ok("m/1".to_owned()));
    bench.world.change(|state| {
        state.stuck.insert(2);
    });
    bench.lifecycle.set_config(with_label(&[1, 2], 2)).await.unwrap();
    bench.reaches("m", "1:available 2:loading").await;
    assert_eq!(stable(), Ok("m/1".to_owned()));
    bench.world.change(|state| state.stuck.clear());
    bench.reaches("m", "1:available 2:available").await;
    assert_eq!(stable(), Ok("m/2".to_owned()));
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_drained_is_not_ready_and_serves_on() {
    let bench = Bench::new();
    bench.world.put("m", &[1]);
    bench.set(&["m"]).await.unwrap();
    assert!(bench.models().is_ready());
    bench.lifecycle.drain();
    assert!(!bench.models().is_ready());
    bench.world.put("n", &[1]);
    bench.set(&["m", "n"]).await.unwrap();
    assert!(!bench.models().is_ready(), "a new model does not make it ready again");
    assert!(bench.models().get(&Target::latest("m")).is_ok());
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn stopping_waits_for_requests_and_refuses_new_configurations() {
    let bench = Bench::new();
    bench.world.put("m", &[1]);
    bench.set(&["m"]).await.unwrap();
    let in_flight = bench.models().get(&Target::latest("m")).unwrap();
    bench.token.cancel();
    bench.reaches("m", "1:unloading").await;
    assert!(!bench.models().is_ready());
    assert_eq!(bench.set(&["m"]).await, Err(Error::Stopping));
    let mut stopped = Box::pin(bench.lifecycle.stopped());
    let yet = tokio::time::timeout(Duration::from_secs(60), &mut stopped).await;
    assert!(yet.is_err(), "a request is still in flight");
    drop(in_flight);
    stopped.await;
    assert_eq!(bench.set(&["m"]).await, Err(Error::Stopping));
    assert_eq!(bench.world.lock().n_alive, 0);
}

#[tokio::test(start_paused = true)]
async fn stopping_while_loading_answers_whoever_waits() {
    let bench = Bench::new();
    bench.world.change(|state| {
        state.stuck.insert(1);
    });
    bench.world.put("m", &[1]);
    let applied = bench.lifecycle.apply_config(list(&["m"])).await.unwrap();
    bench.reaches("m", "1:loading").await;
    bench.token.cancel();
    assert_eq!(applied.available().await, Err(Error::Stopping));
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_thousand_swaps_under_load_lose_no_request_and_no_servable() {
    let bench = Bench::new();
    bench.world.put("m", &[0]);
    bench.set(&["m"]).await.unwrap();
    let (models, done) = (bench.models().clone(), CancellationToken::new());
    let is_done = done.clone();
    let requests = tokio::spawn(async move {
        let mut n_requests = 0_usize;
        let mut changes = models.changes();
        while !is_done.is_cancelled() {
            let handle = models.get(&Target::latest("m")).expect("a version is always available");
            tokio::select! {
                _ = changes.changed() => {}
                () = is_done.cancelled() => {}
            }
            assert!(handle.name.starts_with("m/"));
            n_requests += 1;
        }
        n_requests
    });
    for version in 1..=1000 {
        bench.world.put("m", &[version]);
        let mut changes = bench.models().changes();
        while bench.serves("m") != format!("m/{version}") {
            changes.changed().await.unwrap();
        }
    }
    done.cancel();
    assert!(requests.await.unwrap() > 1000);
    bench.stop().await;
}
