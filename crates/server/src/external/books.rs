//! What workers hold, in the books: of the host always, of GPUs where the driver tells.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use device::logical::GrowthRule;
use device::{Amount, Category, Charge, Holder, Kind, Owner};
use parking_lot::Mutex;
use tensorflow::{ModelState, WorkerSnapshot};
use tokio_util::sync::CancellationToken;

use super::reserve::{Part, Reserve};
use super::{External, ExternalDevice};
use crate::devices::{Devices, Logical};

/// How often the books are brought up to date.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The part of the host's books that is about workers.
pub(super) struct Books {
    host: Option<Arc<Logical>>,
    /// What workers hold beside variables, by their processes.
    workers: Mutex<BTreeMap<u32, Charge>>,
    /// What is reserved for models on the host.
    reserves: Mutex<Vec<Weak<Reserve>>>,
}

/// The variables of a version in a worker, and its part of what is reserved for its model.
pub(crate) struct Booking {
    _weights: Charge,
    _part: Option<Part>,
}

impl Books {
    pub(super) fn new(devices: &Devices) -> Self {
        let host = devices.all().into_iter().find(|one| one.space.kind() == Kind::Cpu);
        Self { host, workers: Mutex::default(), reserves: Mutex::default() }
    }

    /// Books the variables of a version, and what is reserved for its model beside and nobody has
    /// taken yet. Fails, in words, if there is no room for them.
    pub(super) fn book(
        &self,
        devices: &Devices,
        (model, version): (&str, i64),
        (bytes, reserved): (u64, Option<Amount>),
        workers: &[(Holder, u64)],
    ) -> Result<Option<Booking>, String> {
        let Some(host) = &self.host else { return Ok(None) };
        let name: Arc<str> = Arc::from(model);
        let holder = Holder::Version { model: Arc::clone(&name), version };
        let account = Some(devices.account(model, host));
        let owner = Owner::new(&host.space, holder, account);
        devices.note(&owner);
        let refused = |bytes: u64| devices.refusal((model, version), host, bytes).to_string();
        let part = devices.amount_on(reserved, host).map(|all| {
            let taken = (bytes, workers);
            self.reserve_of(&name).take(all, (version, &owner), taken)
        });
        // What is left is booked first: the variables of the next version come out of it.
        let part = part.transpose().map_err(|left| refused(bytes + left))?;
        let weights = Charge::new(&owner, Category::Weights, bytes).map_err(|_| refused(bytes))?;
        Ok(Some(Booking { _weights: weights, _part: part }))
    }

    /// What is reserved for a model.
    fn reserve_of(&self, model: &Arc<str>) -> Arc<Reserve> {
        let mut reserves = self.reserves.lock();
        reserves.retain(|one| one.strong_count() > 0);
        let known = reserves.iter().filter_map(Weak::upgrade).find(|one| one.model() == &**model);
        known.unwrap_or_else(|| {
            let new = Arc::new(Reserve::new(model));
            reserves.push(Arc::downgrade(&new));
            new
        })
    }

    /// Lets workers have what is reserved for their models, before it is booked as theirs.
    fn leave_reserves(&self, workers: &[(Holder, u64)]) {
        let reserves: Vec<Arc<Reserve>> =
            self.reserves.lock().iter().filter_map(Weak::upgrade).collect();
        reserves.iter().for_each(|one| one.leave(workers));
    }

    /// What is booked for a process beside variables.
    pub(super) fn booked_bytes(&self, pid: Option<u32>) -> u64 {
        let workers = self.workers.lock();
        pid.and_then(|pid| workers.get(&pid)).map_or(0, Charge::bytes)
    }
}

impl External {
    /// Brings the books up to date. Gives the bytes of workers that there is no room for.
    pub(crate) fn refresh(&self) -> u64 {
        let snapshots = self.worker_snapshots();
        self.measure_contexts(&snapshots);
        let Some(host) = &self.books.host else { return 0 };
        let mut workers = self.books.workers.lock();
        workers.retain(|pid, _| snapshots.iter().any(|worker| worker.pid == Some(*pid)));
        let all = self.beside_variables_in(&snapshots);
        self.books.leave_reserves(&all);
        let mut missing = 0;
        for (worker, (_, bytes)) in snapshots.iter().zip(all) {
            let Some(pid) = worker.pid else { continue };
            let charge = workers.entry(pid).or_insert_with(|| {
                let owner = Owner::new(&host.space, holder(worker), None);
                Charge::new(&owner, Category::Context, 0).expect("nothing always fits")
            });
            missing += bytes - charge.set(bytes);
        }
        missing
    }

    /// Whose each worker is, and what it holds of the host beside variables.
    pub(super) fn beside_variables(&self) -> Vec<(Holder, u64)> {
        self.beside_variables_in(&self.worker_snapshots())
    }

    fn beside_variables_in(&self, snapshots: &[WorkerSnapshot]) -> Vec<(Holder, u64)> {
        let devices = self.all();
        let one = |worker: &WorkerSnapshot| {
            let on_host = !devices.iter().any(|device| device.name() == worker.device);
            (holder(worker), beside_variables(worker, on_host))
        };
        snapshots.iter().map(one).collect()
    }

    /// Notes what workers hold of GPUs beside variables.
    fn measure_contexts(&self, snapshots: &[WorkerSnapshot]) {
        let gpus = self.gpus();
        for device in self.all() {
            let name = device.name();
            for worker in snapshots.iter().filter(|worker| worker.device == name) {
                let Some(held) = device.held_by(&gpus, worker.pid) else { continue };
                if let Some(context) = context(&device, worker, held) {
                    *device.context_bytes.lock() = Some(context);
                }
            }
        }
    }
}

/// What a worker holds of a GPU beside variables, or beside what it took at once.
fn context(device: &ExternalDevice, worker: &WorkerSnapshot, held: u64) -> Option<u64> {
    let is_quiet = worker.models.iter().all(|model| model.state == ModelState::Loaded);
    if !is_quiet || worker.models.is_empty() {
        return None;
    }
    let logical = device.device.lock();
    let known = match logical.growth {
        GrowthRule::OnDemand => worker.models.iter().map(|model| model.weights_bytes).sum(),
        GrowthRule::Reserved => logical.limit_bytes,
    };
    Some(held.saturating_sub(known))
}

/// Whose a worker is.
fn holder(worker: &WorkerSnapshot) -> Holder {
    match worker.models.first().filter(|_| !worker.is_shared) {
        Some(one) => Holder::Version { model: Arc::from(&*one.model), version: one.version },
        None => Holder::Shared,
    }
}

/// What of a worker's resident memory is not the variables of its models.
fn beside_variables(worker: &WorkerSnapshot, on_host: bool) -> u64 {
    let is_there = |state| matches!(state, ModelState::Loading | ModelState::Loaded);
    let there = worker.models.iter().filter(|model| is_there(model.state) && on_host);
    let weights: u64 = there.map(|model| model.weights_bytes).sum();
    // Variables that are not in memory yet are booked already.
    let base = worker.base_bytes.min(worker.resident_bytes);
    worker.resident_bytes.saturating_sub(weights).max(base)
}

/// Keeps the books up to date until the token is cancelled.
pub(crate) async fn watch(external: Arc<External>, token: CancellationToken) {
    let mut was_missing = false;
    while token.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await.is_some() {
        let missing = external.refresh();
        if missing > 0 && !was_missing {
            tracing::warn!("workers hold {missing} bytes more than cpu:0 has room for");
        }
        was_missing = missing > 0;
    }
}

#[cfg(test)]
pub(super) mod tests {
    use pool::Pool;
    use proto::serving::ModelConfig;
    use tensorflow::{ModelSnapshot, WorkerState};

    use super::*;
    use crate::active::Active;
    use crate::devices::{DeviceOptions, LaneOptions};

    /// A worker with models in these states and with so many bytes of variables.
    pub(in crate::external) fn worker(models: &[(ModelState, u64)]) -> WorkerSnapshot {
        let model = |(state, weights_bytes): &(ModelState, u64)| ModelSnapshot {
            model: "m".to_owned(),
            version: 3,
            state: *state,
            weights_bytes: *weights_bytes,
            loading_for: None,
            grown_bytes: 0,
        };
        WorkerSnapshot {
            name: "m/3".to_owned(),
            is_shared: false,
            device: "cpu:0".to_owned(),
            state: WorkerState::Up,
            pid: Some(1),
            tensorflow_version: String::new(),
            models: models.iter().map(model).collect(),
            devices: Vec::new(),
            n_restarts: 0,
            n_running: 0,
            n_abandoned: 0,
            n_waiting: 0,
            resident_bytes: 1000,
            base_bytes: 300,
            limit_bytes: None,
            load_timeout: Duration::ZERO,
        }
    }

    /// The host, and models of these configs.
    fn devices(configs: &[ModelConfig]) -> Arc<Devices> {
        let active = Arc::new(Active::default());
        drop(active.replace(configs));
        let flags = crate::cli::parse(&[]);
        let options = DeviceOptions::new(&flags).unwrap();
        let (inline_max, pool) = (Duration::ZERO, Arc::new(Pool::new(1)));
        let lanes = LaneOptions { n_lanes: 1, inline_max, run_max: None, pool };
        Devices::start(&options, &lanes, active).unwrap()
    }

    #[test]
    fn what_is_reserved_and_not_taken_yet_is_a_reserve() {
        let devices = devices(&[]);
        let books = Books::new(&devices);
        let version = Holder::Version { model: Arc::from("m"), version: 3 };
        let book = |workers: &[(Holder, u64)]| {
            let needs = (100, Some(Amount::Bytes(1000)));
            books.book(&devices, ("m", 3), needs, workers).unwrap()
        };
        let booking = book(&[]);
        let booked = || {
            let rows = devices.host().unwrap().space.snapshot().rows;
            let own = rows.into_iter().filter(|row| row.holder == version);
            own.map(|row| (row.category, row.bytes)).collect::<Vec<_>>()
        };
        assert_eq!(booked(), [(Category::Weights, 100), (Category::Reserve, 900)]);
        // What the worker takes is booked as its own.
        books.leave_reserves(&[(version.clone(), 300)]);
        assert_eq!(booked(), [(Category::Weights, 100), (Category::Reserve, 600)]);
        drop(booking);
        assert_eq!(booked(), []);
        // Its worker is there before its variables are; those of others take nothing of it.
        let other = Holder::Version { model: Arc::from("n"), version: 3 };
        let workers = [(version.clone(), 250), (other, 70), (Holder::Shared, 80)];
        let _booking = book(&workers);
        assert_eq!(booked(), [(Category::Weights, 100), (Category::Reserve, 650)]);
    }

    #[test]
    fn versions_of_a_model_take_what_is_reserved_for_it_together() {
        use Category::{Reserve, Weights};
        let config = "name: \"m\" memory { reservation: \"1000\" }";
        let devices = devices(&[proto::text::parse(config).unwrap()]);
        let books = Books::new(&devices);
        let book = |version: i64, bytes: u64| {
            let needs = (bytes, Some(Amount::Bytes(1000)));
            books.book(&devices, ("m", version), needs, &[])
        };
        let booked = || {
            let rows = devices.host().unwrap().space.snapshot().rows;
            let own = rows.into_iter().filter_map(|row| match row.holder {
                Holder::Version { version, .. } => Some((version, row.category, row.bytes)),
                Holder::Server | Holder::Shared => None,
            });
            own.collect::<Vec<_>>()
        };
        let old = book(1, 600).unwrap();
        assert_eq!(booked(), [(1, Weights, 600), (1, Reserve, 400)]);
        // One that does not fit beside it changes nothing.
        assert!(book(2, 500).is_err());
        assert_eq!(booked(), [(1, Weights, 600), (1, Reserve, 400)]);
        let new = book(2, 300).unwrap();
        assert_eq!(booked(), [(1, Weights, 600), (2, Weights, 300), (2, Reserve, 100)]);
        drop(old);
        assert_eq!(booked(), [(2, Weights, 300), (2, Reserve, 700)]);
        drop(new);
        assert_eq!(booked(), []);
    }

    #[test]
    fn what_is_not_variables_is_the_workers() {
        use ModelState::{Failed, Loaded, Loading, Waiting};
        let check = |models: &[_], on_host, expected| {
            assert_eq!(beside_variables(&worker(models), on_host), expected, "{models:?}");
        };
        check(&[], true, 1000);
        check(&[(Loaded, 400), (Waiting, 200), (Failed, 100)], true, 600);
        check(&[(Loading, 900)], true, 300);
        check(&[(Loaded, 400)], false, 1000);
        assert_eq!(worker(&[]).limit_bytes, None);
        let version = Holder::Version { model: Arc::from("m"), version: 3 };
        assert_eq!(holder(&worker(&[(Loaded, 1)])), version);
        assert_eq!(holder(&worker(&[])), Holder::Shared);
    }
}
