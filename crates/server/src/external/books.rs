//! What workers hold, in the books: of the host always, of GPUs where the driver tells.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use device::logical::GrowthRule;
use device::{Amount, Category, Charge, Holder, Kind, Owner};
use parking_lot::Mutex;
use tensorflow::{ModelState, WorkerSnapshot};
use tokio_util::sync::CancellationToken;

use super::{External, ExternalDevice};
use crate::devices::{Devices, Logical};

/// How often the books are brought up to date.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The part of the host's books that is about workers.
pub(super) struct Books {
    host: Option<Arc<Logical>>,
    /// What workers hold beside variables, by their processes.
    workers: Mutex<BTreeMap<u32, Charge>>,
    /// What is reserved for versions on the host.
    reserves: Mutex<Vec<Weak<Reserve>>>,
}

/// The variables of a version in a worker, and what is reserved for it beside.
pub(crate) struct Booking {
    _weights: Charge,
    _reserve: Option<Arc<Reserve>>,
}

/// What is reserved for a version beside its variables: its worker takes it as it needs it, and
/// nobody else gets it.
struct Reserve {
    holder: Holder,
    bytes: u64,
    charge: Mutex<Charge>,
}

impl Reserve {
    /// Gives up what the worker has taken of it by now.
    fn leave(&self, workers: &[(Holder, u64)]) {
        let taken = taken_by(&self.holder, workers);
        self.charge.lock().set(self.bytes.saturating_sub(taken));
    }
}

/// What a version's own worker holds beside its variables.
fn taken_by(version: &Holder, workers: &[(Holder, u64)]) -> u64 {
    let own = workers.iter().filter(|(holder, _)| holder == version);
    own.map(|(_, bytes)| bytes).sum()
}

impl Books {
    pub(super) fn new(devices: &Devices) -> Self {
        let host = devices.all().into_iter().find(|one| one.space.kind() == Kind::Cpu);
        Self { host, workers: Mutex::default(), reserves: Mutex::default() }
    }

    /// Books the variables of a version, and what is reserved for it beside them and its worker has
    /// not taken yet. Fails, in words, if there is no room for them.
    pub(super) fn book(
        &self,
        devices: &Devices,
        (model, version): (&str, i64),
        (bytes, reserved): (u64, Option<Amount>),
        workers: &[(Holder, u64)],
    ) -> Result<Option<Booking>, String> {
        let Some(host) = &self.host else { return Ok(None) };
        let holder = Holder::Version { model: Arc::from(model), version };
        let account = Some(devices.account(model, host));
        let owner = Owner::new(&host.space, holder.clone(), account);
        devices.note(&owner);
        let who = (model, version);
        let refused = |_| devices.refusal(who, host, bytes).to_string();
        let weights = Charge::new(&owner, Category::Weights, bytes).map_err(refused)?;
        let rest = devices.amount_on(reserved, host).map_or(0, |all| all.saturating_sub(bytes));
        if rest == 0 {
            return Ok(Some(Booking { _weights: weights, _reserve: None }));
        }
        let left = rest.saturating_sub(taken_by(&holder, workers));
        let refused = |_| devices.refusal(who, host, bytes + left).to_string();
        let charge = Charge::new(&owner, Category::Reserve, left).map_err(refused)?;
        let reserve = Arc::new(Reserve { holder, bytes: rest, charge: Mutex::new(charge) });
        let mut reserves = self.reserves.lock();
        reserves.retain(|one| one.strong_count() > 0);
        reserves.push(Arc::downgrade(&reserve));
        Ok(Some(Booking { _weights: weights, _reserve: Some(reserve) }))
    }

    /// Lets workers have what is reserved for their versions, before it is booked as theirs.
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
    use tensorflow::{ModelSnapshot, WorkerState};

    use super::*;
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

    #[test]
    fn what_is_reserved_and_not_taken_yet_is_a_reserve() {
        let flags = crate::cli::parse(&[]);
        let options = DeviceOptions::new(&flags).unwrap();
        let (inline_max, pool) = (Duration::ZERO, Arc::new(Pool::new(1)));
        let lanes = LaneOptions { n_lanes: 1, inline_max, pool };
        let devices = Devices::start(&options, &lanes, Arc::default()).unwrap();
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
