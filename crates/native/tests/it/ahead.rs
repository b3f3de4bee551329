//! Memory for the batches that a model can have is taken when it is loaded, and after a rest when a
//! request is on its way: never on the thread of a request.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use device::logical::GrowthRule;
use device::{Change, Driver, Holder, Host, Limited, Owner, Simulated, Space, SpaceOptions};
use native::measure::{made_up_run, server_beside};
use native::{Batch, Executor, Loaded, Opened, Options};
use pool::Pool;
use schedule::Lanes;
use session::{Batching, Engine as _};
use status::Result;
use tensor::{Shape, Tensor};

const GIB: u64 = 1 << 30;

/// The sizes that batches may have; what the largest needs is more than an idle device keeps.
const SIZES: [usize; 4] = [1, 64, 512, 4096];

fn space(driver: Arc<dyn Driver>, limit_bytes: u64) -> Arc<Space> {
    let name = driver.properties().name.clone();
    let driver = Arc::new(Limited::new(driver, name, limit_bytes));
    let physical = Arc::clone(driver.account());
    let growth = GrowthRule::OnDemand;
    Space::new(SpaceOptions { driver, physical, growth, step_bytes: 1 << 16, context_bytes: 0 })
        .unwrap()
}

/// A model on a played GPU of its own, which knows the threads that took its memory.
struct Setup {
    gpu: Arc<Simulated>,
    owner: Arc<Owner>,
    lanes: Arc<Lanes>,
    loaded: Loaded,
}

fn setup(model: &str, limit_bytes: u64) -> Setup {
    let gpu = Arc::new(Simulated::gpu("gpu:0", GIB));
    let host = space(Arc::new(Host::new("cpu:0", GIB)), GIB);
    let holder = Holder::Version { model: Arc::from(model), version: 1 };
    let host = Owner::new(&host, holder.clone(), None);
    let driver = Arc::clone(&gpu) as Arc<dyn Driver>;
    let owner = Owner::beside(host, &space(driver, limit_bytes), holder, None);
    let options = schedule::Options { n_lanes: 2, inline_max: Duration::ZERO, run_max: None };
    let lanes = Lanes::start_for(options, Some(server_beside(&owner)));
    let lanes = Arc::new(lanes.unwrap());
    let executor = Executor {
        lanes: Arc::clone(&lanes),
        pool: Arc::new(Pool::new(2)),
        device: "gpu:0".into(),
        pace: None,
    };
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models").join(model);
    let folder = storage::open(&dir.join("1").to_string_lossy()).unwrap();
    let options = Options { tags: vec!["serve".to_owned()], plans_max: 8 };
    let opened = Opened::open(&folder, &options).unwrap();
    let loaded = opened.load(&options, &executor, Some(Arc::clone(&owner))).unwrap();
    let batch = batch::Options {
        task_rows_max: SIZES[3],
        batch_rows_max: SIZES[3],
        allowed_sizes: SIZES.to_vec(),
        ..batch::Options::unbatched(100)
    };
    loaded.engine.set_batching(&Batching::Asked(batch)).unwrap();
    Setup { gpu, owner, lanes, loaded }
}

impl Setup {
    /// Runs the default signature on so many rows, twice at once so that both lanes may run.
    fn ask(&self, rows: usize) {
        self.ask_at_once(rows, 2);
    }

    /// Runs the default signature on so many rows, so many times at once.
    fn ask_at_once(&self, rows: usize, n: usize) {
        let signature = self.loaded.servable.signature("").unwrap().unwrap();
        let input = |endpoint: &session::Endpoint| {
            let dims = endpoint.spec.dims().unwrap().iter();
            let sizes: Vec<usize> = dims.map(|dim| dim.size().unwrap_or(rows)).collect();
            (endpoint.spec.dtype, Shape::of(&sizes))
        };
        let inputs = signature.inputs.values().map(input).collect();
        let batch = Batch { signature: signature.name.clone(), inputs };
        let start = |_| {
            let run = made_up_run(&batch, 1).unwrap();
            let (send, receive) = mpsc::channel();
            let reply = Box::new(move |answer: Result<Vec<Tensor>>| drop(send.send(answer)));
            self.loaded.engine.start(run, reply);
            receive
        };
        let answers: Vec<_> = (0..n).map(start).collect();
        for answer in answers {
            assert_eq!(answer.recv().unwrap().unwrap()[0].shape()[0], rows);
        }
    }

    /// The number of times that threads which run batches took memory of the GPU.
    fn taken_by_lanes(&self) -> u64 {
        let takers = self.gpu.takers();
        let runs = |name: &str| name.starts_with("lane-") && name != "lane-clock";
        takers.iter().filter(|(name, _)| runs(name)).map(|(_, n)| n).sum()
    }

    /// The causes for which the spaces of GPU and host have grown, with their bytes.
    fn growths(&self) -> BTreeMap<&'static str, u64> {
        let mut causes = BTreeMap::new();
        for space in [self.owner.space(), self.owner.host().space()] {
            let events = space.snapshot().events;
            for total in events.iter().filter(|total| total.change == Change::Growth) {
                *causes.entry(total.cause).or_default() += total.bytes;
            }
        }
        causes
    }

    /// Lets the lanes and the devices rest, as they do when they were idle.
    fn rest(&self) {
        // A lane that still ends its turn gives its memory back then.
        while self.owner.space().books().in_use_bytes() > self.owner.bytes() {
            self.lanes.trim();
        }
        self.owner.space().rest().unwrap();
        self.owner.host().space().rest().unwrap();
    }
}

#[test]
fn after_a_load_no_batch_of_a_known_size_grows_anything_on_its_thread() {
    let setup = setup("digits", GIB);
    setup.loaded.engine.prepare();
    let before = setup.growths();
    assert!(before["ahead"] > 0, "{before:?}");
    for rows in SIZES.into_iter().rev().chain(SIZES) {
        setup.ask(rows);
    }
    assert_eq!(setup.growths(), before);
    assert_eq!(setup.taken_by_lanes(), 0, "{:?}", setup.gpu.takers());
}

#[test]
fn without_preparation_the_first_batch_grows_what_it_runs_in() {
    let setup = setup("digits", GIB);
    setup.ask(SIZES[3]);
    assert!(setup.taken_by_lanes() > 0, "{:?}", setup.gpu.takers());
}

#[test]
fn after_a_rest_memory_comes_back_before_the_request_needs_it() {
    let setup = setup("digits", GIB);
    setup.loaded.engine.prepare();
    setup.ask(SIZES[3]);
    let busy = setup.owner.space().account().held_bytes();
    for _ in 0..3 {
        setup.rest();
        let resting = setup.owner.space().account().held_bytes();
        assert!(resting < busy, "{resting} of {busy} bytes are held");
        assert!(resting <= setup.owner.bytes() + (4 << 20), "{resting} bytes are held");
        let before = setup.growths();
        setup.loaded.engine.expect();
        while setup.owner.space().is_at_rest() || setup.growths() == before {
            std::thread::yield_now();
        }
        let mut after = setup.growths();
        setup.ask(SIZES[3]);
        assert_eq!(setup.growths(), after);
        after.remove("ahead");
        assert_eq!(after.get("activations"), before.get("activations"));
    }
    assert_eq!(setup.taken_by_lanes(), 0, "{:?}", setup.gpu.takers());
}

#[test]
fn after_a_rest_a_run_that_takes_most_of_what_is_left_finds_its_memory_too() {
    let roomy = setup("digits", GIB);
    roomy.ask_at_once(SIZES[3], 1);
    let busy = roomy.owner.space().account().peak_bytes();
    let setup = setup("digits", busy + (2 << 20));
    let held = || setup.owner.space().account().held_bytes();
    // The first of them is larger than what is taken ahead, and grows its lane itself.
    setup.ask_at_once(SIZES[3], 1);
    let taken = setup.taken_by_lanes();
    assert!(taken > 0, "{:?}", setup.gpu.takers());
    for _ in 0..3 {
        setup.rest();
        let resting = held();
        assert!(resting <= setup.owner.bytes() + (4 << 20), "{resting} bytes are held");
        let (n_free, n_used) = (busy - resting, busy - setup.owner.bytes());
        assert!(n_used > n_free / 2 + (4 << 20), "{n_used} of {n_free} bytes are most of them");
        setup.loaded.engine.expect();
        while setup.owner.space().is_at_rest() || held() == resting {
            std::thread::yield_now();
        }
        setup.ask_at_once(SIZES[3], 1);
        assert_eq!(setup.taken_by_lanes(), taken, "{:?}", setup.gpu.takers());
    }
}

#[test]
fn what_is_taken_ahead_stays_in_the_limit_and_a_load_never_fails_for_it() {
    let roomy = setup("digits", GIB);
    let needed = roomy.owner.space().account().held_bytes();
    for more in [0, 8 << 20, 16 << 20] {
        let setup = setup("digits", needed + more);
        setup.loaded.engine.prepare();
        let held = setup.owner.space().account().held_bytes();
        assert!(held <= needed + more / 2, "others get half of {more} bytes: {held} are held");
        if more > 0 {
            setup.ask(1);
        }
    }
}
