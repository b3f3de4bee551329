//! Random events, and what must hold after each of them.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, RngSeed, TestRunner};
use status::Code;

use super::super::*;
use crate::policy::Policy;
use crate::state::State;

const MODELS: [&str; 2] = ["a", "b"];

#[derive(Debug, Clone, PartialEq)]
enum Op {
    Config(Vec<bool>, Policy),
    Aspire(usize, BTreeSet<i64>, u64),
    LookFailed(usize),
    /// Ends one of the loads in progress, well or not.
    EndLoad(usize, bool),
    /// Refuses one of them for want of memory.
    Refuse(usize),
    /// One of a model's versions gives way.
    GiveWay(usize, i64),
    /// There may be room.
    Room,
    /// Ends one of the unloads in progress.
    EndUnload(usize),
    Pass(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let policy = prop_oneof![
        3 => Just(Policy::AvailabilityPreserving),
        1 => Just(Policy::ResourcePreserving),
    ];
    let versions = prop::collection::btree_set(0..5_i64, 0..4);
    prop_oneof![
        1 => (prop::collection::vec(any::<bool>(), 2), policy).prop_map(|(m, p)| Op::Config(m, p)),
        4 => (0..2_usize, versions, 0..2_u64).prop_map(|(m, v, f)| Op::Aspire(m, v, f)),
        1 => (0..2_usize).prop_map(Op::LookFailed),
        6 => (any::<usize>(), any::<bool>()).prop_map(|(i, ok)| Op::EndLoad(i, ok)),
        2 => any::<usize>().prop_map(Op::Refuse),
        1 => (0..2_usize, 0..5_i64).prop_map(|(model, version)| Op::GiveWay(model, version)),
        1 => Just(Op::Room),
        4 => any::<usize>().prop_map(Op::EndUnload),
        2 => (0..20_u64).prop_map(Op::Pass),
    ]
}

/// A machine, and what the world around it has been ordered to do.
struct World {
    machine: Machine,
    now: Duration,
    loading: Vec<Id>,
    unloading: Vec<Id>,
}

impl World {
    fn run(&mut self, op: Op) {
        let error = LoadError::new(Code::Internal, "bad");
        let event = match op {
            Op::Config(listed, policy) => {
                let listed = MODELS.iter().zip(listed).filter(|(_, is_listed)| *is_listed);
                let options = |(name, _): (&&str, bool)| {
                    Arc::new(ModelOptions { policy, ..ModelOptions::for_test(name) })
                };
                Event::Configured(listed.map(options).collect())
            }
            Op::Aspire(model, versions, fingerprint) => {
                let path = String::new();
                let versions = versions
                    .into_iter()
                    .map(|version| Aspired { version, path: path.clone(), fingerprint })
                    .collect();
                Event::Aspired { model: MODELS[model].into(), versions }
            }
            Op::LookFailed(model) => Event::LookFailed { model: MODELS[model].into(), error },
            Op::EndLoad(index, is_fine) => match pick(&mut self.loading, index) {
                None => return,
                Some(id) if is_fine => Event::Loaded(id),
                Some(id) => Event::LoadFailed(id, error),
            },
            Op::Refuse(index) => match pick(&mut self.loading, index) {
                None => return,
                Some(id) => Event::LoadFailed(id, LoadError::new(Code::ResourceExhausted, "full")),
            },
            Op::GiveWay(model, version) => {
                let why = LoadError::new(Code::ResourceExhausted, "gave way");
                Event::GiveWay(Id { model: MODELS[model].into(), version }, why)
            }
            Op::Room => Event::Room,
            Op::EndUnload(index) => match pick(&mut self.unloading, index) {
                None => return,
                Some(id) => Event::Freed(id),
            },
            Op::Pass(seconds) => {
                self.now += Duration::from_secs(seconds);
                Event::Tick
            }
        };
        self.apply(event);
    }

    fn apply(&mut self, event: Event) {
        let gives_way = matches!(event, Event::GiveWay(..));
        let is_kept = |model: &&str| self.is_served(model) && !gives_way;
        let before: Vec<bool> = MODELS.iter().map(is_kept).collect();
        for order in self.machine.apply(event, self.now) {
            match order {
                Order::Publish(_) => {}
                Order::Load { id, .. } => {
                    assert!(!self.loading.contains(&id) && !self.unloading.contains(&id));
                    self.loading.push(id);
                }
                Order::Cancel(id) => assert!(self.loading.contains(&id)),
                Order::Unload(id) => {
                    assert!(!self.loading.contains(&id) && !self.unloading.contains(&id));
                    self.unloading.push(id);
                }
            }
        }
        self.check(&before);
    }

    fn check(&self, was_served: &[bool]) {
        self.machine.check();
        for (model, was_served) in MODELS.iter().zip(was_served) {
            let Some(snapshot) = self.machine.snapshot(model) else { continue };
            for status in &snapshot.versions {
                let id = Id { model: (*model).into(), version: status.version };
                let is_unloading = self.unloading.contains(&id);
                assert_eq!(is_unloading, status.state == State::Unloading, "{id}");
                assert!(!self.loading.contains(&id) || status.state == State::Loading, "{id}");
            }
            let options = self.machine.options(model);
            let preserves = options.is_some_and(|o| o.policy == Policy::AvailabilityPreserving);
            let wants = self.machine.models[*model].wants_something();
            if *was_served && preserves && wants {
                assert!(self.is_served(model), "{model}: no gap while something is wanted");
            }
        }
    }

    fn is_served(&self, model: &str) -> bool {
        let is_available = |snapshot: Arc<ModelSnapshot>| {
            snapshot.versions.iter().any(|status| status.state == State::Available)
        };
        self.machine.snapshot(model).is_some_and(is_available)
    }
}

fn pick(ids: &mut Vec<Id>, index: usize) -> Option<Id> {
    (!ids.is_empty()).then(|| ids.remove(index % ids.len()))
}

#[test]
fn random_events_break_no_invariant_and_stopping_ends_everything() {
    let config = Config {
        cases: 512,
        rng_algorithm: RngAlgorithm::ChaCha,
        rng_seed: RngSeed::Fixed(7),
        failure_persistence: None,
        ..Config::default()
    };
    let mut runner = TestRunner::new(config);
    let outcome = runner.run(&prop::collection::vec(op(), 1..80), |ops| {
        let interval = Duration::from_secs(10);
        let retries = Retries { max: 1, rule: RetryRule::All, first: interval, interval };
        let machine = Machine::new(retries, Missing::Fails);
        let (loading, unloading) = (Vec::new(), Vec::new());
        let mut world = World { machine, now: Duration::ZERO, loading, unloading };
        world.run(Op::Config(vec![true, true], Policy::AvailabilityPreserving));
        for op in ops {
            world.run(op);
        }
        world.apply(Event::Stopped);
        while !world.loading.is_empty() || !world.unloading.is_empty() {
            world.run(Op::EndLoad(0, true));
            world.run(Op::EndUnload(0));
        }
        assert!(world.machine.is_idle());
        Ok(())
    });
    assert_eq!(outcome, Ok(()));
}
