//! The versions on our own devices: where each is, and what has to change so that all that are
//! wanted have their place.

use std::ops::Deref;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use device::placement::{Replicas as Number, Seat, Step, adapt};
use device::{Holder, Kind, Snapshot};
use native::WeightKey;
use parking_lot::{Condvar, Mutex, MutexGuard};
use storage::Storage;
use tokio::sync::Notify;

use super::promises::Promise;
use super::{Devices, Logical, ModelRule, Needed};
use crate::replicas::Replicas;

/// A version that is on devices, is being loaded on some, or waits for a place.
pub(crate) struct Resident {
    known: Newcomer,
    /// What it is to hold of the devices that it is being loaded on.
    promised: Mutex<Vec<Promise>>,
    /// What serves it, once it is loaded.
    replicas: OnceLock<Weak<Replicas>>,
    /// Told when it is gone.
    left: Arc<Left>,
}

/// What is to become a resident.
pub(crate) struct Newcomer {
    pub(crate) model: Arc<str>,
    pub(crate) version: i64,
    /// Where its files are.
    pub(crate) dir: Storage,
    /// The same place, as it is called in metrics.
    pub(crate) path: String,
    /// What it takes alone.
    pub(crate) needed: Needed,
    /// What its weights are known by.
    pub(crate) keys: Vec<WeightKey>,
    /// Whether requests change it: then there is one of it, however many replicas are asked for.
    pub(crate) keeps_state: bool,
    /// Among which devices it has its place.
    pub(crate) within: Within,
}

/// Among which devices a version has its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Within {
    /// Those of our own engine.
    Devices,
    /// TensorFlow's GPUs, or the host if it may be on none of them: it is in a worker.
    Workers,
}

/// What is known of a version does not change while it is there.
impl Deref for Resident {
    type Target = Newcomer;

    fn deref(&self) -> &Newcomer {
        &self.known
    }
}

impl Resident {
    /// Says what serves it from now on.
    pub(crate) fn serve(&self, replicas: &Arc<Replicas>) {
        // A version is loaded once.
        drop(self.replicas.set(Arc::downgrade(replicas)));
        self.promised.lock().clear();
    }

    /// What serves it, if it is loaded.
    pub(crate) fn replicas(&self) -> Option<Arc<Replicas>> {
        self.replicas.get().and_then(Weak::upgrade)
    }

    /// The devices that it is being loaded on.
    pub(crate) fn promised(&self) -> Vec<String> {
        self.promised.lock().iter().map(|promise| promise.device.clone()).collect()
    }

    /// What it was promised where it is being loaded.
    pub(super) fn promises(&self) -> Vec<Promise> {
        self.promised.lock().clone()
    }

    /// What it is to hold of a device that it is being loaded on.
    pub(crate) fn promised_on(&self, device: &str) -> Option<u64> {
        let promised = self.promised.lock();
        promised.iter().find(|promise| promise.device == device).map(|promise| promise.share.bytes)
    }

    /// Says on which device it is being loaded, and what it is to hold there.
    pub(crate) fn promise(&self, promise: Promise) {
        self.promised.lock().push(promise);
    }

    /// Takes a promise back: it is there, or never will be.
    pub(crate) fn forget(&self, device: &str) {
        self.promised.lock().retain(|promise| promise.device != device);
    }

    /// The model and the version.
    pub(crate) fn who(&self) -> (&str, i64) {
        (&self.model, self.version)
    }

    pub(crate) fn holder(&self) -> Holder {
        Holder::Version { model: Arc::clone(&self.model), version: self.version }
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        self.left.tell();
    }
}

/// Who waits for versions to go, or for anything else that changes where versions should be.
#[derive(Default)]
pub(crate) struct Left {
    lock: Mutex<()>,
    gone: Condvar,
    /// For the task that brings versions to where they should be.
    pub(crate) changed: Notify,
}

/// How often one who waits looks for himself.
const LOOK_EVERY: Duration = Duration::from_millis(20);

impl Left {
    fn tell(&self) {
        let _lock = self.lock.lock();
        self.gone.notify_all();
        self.changed.notify_one();
    }

    /// Waits a moment for something to change.
    pub(crate) fn pause(&self) {
        let mut lock = self.lock.lock();
        self.gone.wait_for(&mut lock, LOOK_EVERY);
    }

    /// Waits until a version is gone; whether it is, before `until` and before `gives_up`.
    pub(crate) fn wait(
        &self,
        resident: &Weak<Resident>,
        until: Instant,
        gives_up: impl Fn() -> bool,
    ) -> bool {
        let mut lock = self.lock.lock();
        while resident.strong_count() > 0 {
            if Instant::now() > until || gives_up() {
                return false;
            }
            self.gone.wait_for(&mut lock, LOOK_EVERY);
        }
        true
    }
}

/// One change of where a version is.
pub(crate) struct Change {
    pub(crate) resident: Weak<Resident>,
    pub(crate) device: String,
    pub(crate) kind: ChangeKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    /// One more replica.
    Add,
    /// One less, of several.
    Remove,
    /// The only one less: it gives way to one of a higher priority.
    GiveWay,
}

/// How a version gets its place.
pub(crate) enum Way<T> {
    /// It is free.
    Free(T),
    /// Others have to move or to go first.
    After(Vec<Change>),
    /// Others have to move that are being loaded: they can when they are.
    Later,
}

/// Residents and devices, as placement sees them.
pub(crate) struct Board {
    /// The names of the devices.
    pub(crate) names: Vec<String>,
    pub(crate) residents: Vec<Arc<Resident>>,
    /// What nobody has or was promised of each device.
    pub(crate) free_bytes: Vec<u64>,
    pub(crate) seats: Vec<Seat>,
    /// Whether each is being loaded, and stays for no other reason.
    pub(crate) is_loading: Vec<bool>,
}

impl Board {
    /// What a version holds of a device, or would take there, its runs included as far as they take
    /// more than those of others.
    pub(crate) fn takes(&self, resident: &Resident, device: usize) -> u64 {
        let is_it = |other: &Arc<Resident>| std::ptr::eq(&raw const **other, resident);
        let Some(me) = self.residents.iter().position(is_it) else { return 0 };
        let is_on = |seat: &Seat| seat.current.iter().any(|(at, _)| *at == device);
        let others = self.seats.iter().enumerate().filter(|(at, seat)| *at != me && is_on(seat));
        let others = others.map(|(_, seat)| seat.runs[device]).max().unwrap_or(0);
        let runs = self.seats[me].runs[device].saturating_sub(others);
        self.seats[me].bytes[device].map_or(0, |bytes| bytes.saturating_add(runs))
    }

    /// What has to change of versions that serve, one after another.
    pub(crate) fn all_changes(&self) -> Vec<Change> {
        self.changes(&adapt(&self.free_bytes, &self.seats))
    }

    /// The devices, by number, that a version gets which looks for a place; `None` if there is
    /// none for it.
    pub(crate) fn way(&self, resident: &Arc<Resident>) -> Option<Way<Vec<usize>>> {
        self.way_among(resident, &self.seats).or_else(|| {
            let mut seats = self.seats.clone();
            for (seat, is_loading) in seats.iter_mut().zip(&self.is_loading) {
                seat.stays &= !is_loading;
            }
            let has_way = seats != self.seats && self.way_among(resident, &seats).is_some();
            has_way.then_some(Way::Later)
        })
    }

    /// The same with these seats.
    fn way_among(&self, resident: &Arc<Resident>, seats: &[Seat]) -> Option<Way<Vec<usize>>> {
        let steps = adapt(&self.free_bytes, seats);
        let me = self.residents.iter().position(|other| Arc::ptr_eq(other, resident));
        let is_mine = |step: &Step| match *step {
            Step::Add { seat, device } if Some(seat) == me => Some(device),
            Step::Add { .. } | Step::Remove { .. } => None,
        };
        let first = steps.iter().position(|step| is_mine(step).is_some())?;
        let changes = self.changes(&steps[..first]);
        Some(match changes.is_empty() {
            true => Way::Free(steps.iter().filter_map(is_mine).collect()),
            false => Way::After(changes),
        })
    }

    /// The steps that are changes of versions that serve; the others look after themselves.
    fn changes(&self, steps: &[Step]) -> Vec<Change> {
        let mut n_on: Vec<usize> = self.seats.iter().map(|seat| seat.current.len()).collect();
        let mut changes = Vec::new();
        for step in steps {
            let (seat, device, kind) = match *step {
                Step::Add { seat, device } => {
                    n_on[seat] += 1;
                    (seat, device, ChangeKind::Add)
                }
                Step::Remove { seat, device } => {
                    n_on[seat] -= 1;
                    let is_last = n_on[seat] == 0;
                    let kind = if is_last { ChangeKind::GiveWay } else { ChangeKind::Remove };
                    (seat, device, kind)
                }
            };
            if self.residents[seat].replicas().is_some() {
                let resident = Arc::downgrade(&self.residents[seat]);
                let device = self.names[device].clone();
                changes.push(Change { resident, device, kind });
            }
        }
        changes
    }
}

impl Devices {
    /// Takes in a version that looks for its place. It stays until it is dropped.
    pub(crate) fn admit(&self, known: Newcomer) -> Arc<Resident> {
        let resident = Arc::new(Resident {
            known,
            promised: Mutex::default(),
            replicas: OnceLock::new(),
            left: Arc::clone(&self.left),
        });
        self.residents.lock().push(Arc::downgrade(&resident));
        resident
    }

    /// All that are here.
    pub(crate) fn residents(&self) -> Vec<Arc<Resident>> {
        self.residents.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Held while a place is looked for: one after another, so that nothing is promised twice, and
    /// no device becomes another.
    pub(crate) fn leasing(&self) -> MutexGuard<'_, ()> {
        self.leasing.lock()
    }

    /// Those that have a place, the one that looks for one, and those that wait for one and come
    /// before it.
    fn seated(&self, looks: Option<&Resident>) -> Vec<Arc<Resident>> {
        let priority = |resident: &Resident| self.rule(&resident.model).priority;
        let counts = |resident: &Arc<Resident>| {
            let comes_first = looks.is_some_and(|one| {
                std::ptr::eq(&raw const **resident, one) || priority(resident) > priority(one)
            });
            comes_first || resident.replicas().is_some() || !resident.promised.lock().is_empty()
        };
        let mut residents = self.residents();
        residents.retain(counts);
        residents
    }

    /// Our own devices, and all versions as far as they are on them or may be. One in a worker may
    /// be on the host.
    pub(crate) fn board(&self, looks: Option<&Resident>) -> Board {
        let logical = self.all();
        let residents = self.seated(looks);
        let snapshots: Vec<Snapshot> = logical.iter().map(|one| one.space.snapshot()).collect();
        let of = |resident| self.seat(resident, &residents, (&logical, &snapshots));
        let (seats, is_loading): (Vec<Seat>, Vec<bool>) = residents.iter().map(of).unzip();
        let names = logical.iter().map(|one| one.space.name().to_owned()).collect();
        // What was promised is not taken yet, but nobody else's either. What runs were promised is
        // in the seats.
        let free_bytes = logical.iter().enumerate().map(|(device, one)| {
            let is_on = |seat: &&Seat| seat.current.iter().any(|(at, _)| *at == device);
            let runs = seats.iter().filter(is_on).map(|seat| seat.runs[device]).max();
            self.unpromised_bytes(one, None).saturating_add(runs.unwrap_or(0))
        });
        let free_bytes = free_bytes.collect();
        Board { names, residents, free_bytes, seats, is_loading }
    }

    /// The devices that a version may be on.
    pub(super) fn places_of(&self, resident: &Resident, rule: &ModelRule) -> Vec<Arc<Logical>> {
        match resident.within {
            Within::Workers => self.host().into_iter().collect(),
            Within::Devices => self.candidates(rule),
        }
    }

    fn seat(
        &self,
        resident: &Arc<Resident>,
        all: &[Arc<Resident>],
        (logical, snapshots): (&[Arc<Logical>], &[Snapshot]),
    ) -> (Seat, bool) {
        let rule = self.rule(&resident.model);
        let candidates = self.places_of(resident, &rule);
        let served = resident.replicas().map(|replicas| replicas.devices());
        let (mut bytes, mut runs, mut current) = (Vec::new(), Vec::new(), Vec::new());
        let mut park = None;
        for (device, one) in logical.iter().enumerate() {
            let is_candidate = candidates.iter().any(|other| Arc::ptr_eq(other, one));
            let name = one.space.name();
            let is_on = |names: &[String]| names.iter().any(|other| other == name);
            let takes = self.takes(resident, &rule, one);
            let held = held(&snapshots[device], resident);
            if let Some(promised) = resident.promised_on(name) {
                current.push((device, held.max(promised)));
            } else if served.as_deref().is_some_and(is_on) {
                current.push((device, held));
            }
            let is_here = current.last().is_some_and(|(at, _)| *at == device);
            if one.space.kind() == Kind::Cpu && !is_candidate && !resident.keeps_state {
                // The host runs whatever a GPU does, if more slowly.
                park = park.or(takes.map(|taken| (device, taken.bytes)));
            }
            runs.push(match is_here {
                true => self.runs_of(resident, one),
                false => takes.map_or(0, |taken| taken.runs),
            });
            let takes = takes.filter(|_| is_candidate).map(|taken| taken.bytes);
            bytes.push(if is_here { is_candidate.then_some(held) } else { takes });
        }
        let is_other =
            |other: &Arc<Resident>| other.model == resident.model && !Arc::ptr_eq(other, resident);
        // Versions share what is set aside for their model, which stays where it is.
        let shares = rule.reservation.is_some() && all.iter().any(is_other);
        let is_loading = !resident.promised.lock().is_empty();
        let is_leaving = !self.active.has(&resident.model);
        let replicas = if resident.keeps_state { Number::Number(1) } else { rule.replicas };
        let is_fixed = resident.keeps_state || shares || is_leaving;
        let stays = !current.is_empty() && (is_fixed || is_loading);
        let park = park.filter(|_| resident.within == Within::Devices);
        let priority = rule.priority;
        let seat = Seat { bytes, runs, current, replicas, priority, stays, park };
        (seat, is_loading && !is_fixed)
    }
}

/// What a version holds of a device.
pub(super) fn held(snapshot: &Snapshot, resident: &Resident) -> u64 {
    let holder = resident.holder();
    let rows = snapshot.rows.iter().filter(|row| row.holder == holder);
    rows.map(|row| row.bytes).sum()
}
