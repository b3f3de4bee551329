//! `Claim`: the memory that a version needs, and the memory it was promised.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use device::{Holder, Owner, Space};
use parking_lot::Mutex;

/// The bytes that a version needs of a device, and of the host if that is another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Needed {
    /// The most while it is loaded, or with a run on one lane.
    pub bytes: u64,
    /// The same of the host, beside a GPU.
    pub host_bytes: u64,
    /// The bytes that stay when it is loaded; 0 if they are not known before.
    pub resident_bytes: u64,
    /// The bytes of a run of one row; 0 if they are not known before.
    pub run_bytes: u64,
    /// The bytes of the largest run that was asked for; 0 if they are not known before.
    pub largest_run_bytes: u64,
    /// The bytes of the host that its worker holds by itself; 0 if they are not known before. The
    /// model's own limit does not count them.
    pub worker_bytes: u64,
}

/// The bytes that a version takes of one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// Its own bytes.
    pub bytes: u64,
    /// The bytes of its runs, which it shares with the other models there.
    pub runs: u64,
}

impl Needed {
    /// The bytes that it takes of a device with `n_lanes` lanes, of which it may have `room_bytes`:
    /// runs on all lanes have room at once, or one run where the device is too small for that.
    pub fn on(&self, n_lanes: usize, room_bytes: u64) -> Taken {
        let all = self.largest_run_bytes.saturating_mul(n_lanes as u64);
        let is_enough = self.resident_bytes.saturating_add(all) <= room_bytes;
        let runs = if is_enough { all } else { self.run_bytes };
        Taken { bytes: self.resident_bytes.max(self.bytes.saturating_sub(runs)), runs }
    }
}

/// A weight, as a checkpoint's index knows it: equal keys are most likely equal weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct WeightKey {
    /// The checksum of its bytes.
    pub checksum: u32,
    /// The number of its bytes.
    pub bytes: u64,
}

/// The devices among which a version has its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Within {
    /// Those of our own engine.
    Devices,
    /// The external GPUs, or the host if the version may be on none of them: it runs in one of
    /// TensorFlow's workers.
    Workers,
}

/// A version, as far as it does not change while it is placed.
#[derive(Debug, Clone)]
pub struct Demand {
    /// The model's name.
    pub model: Arc<str>,
    /// The version's number.
    pub version: i64,
    /// The memory that it needs alone.
    pub needed: Needed,
    /// The keys of its weights.
    pub keys: Vec<WeightKey>,
    /// `true` if requests change the version: then it has one replica, however many are asked for.
    pub keeps_state: bool,
    /// The devices among which it has its place.
    pub within: Within,
}

/// A version's demand, and the memory that it was promised where it is being loaded.
#[derive(Debug)]
pub struct Claim {
    /// The version's demand.
    pub demand: Demand,
    promised: Mutex<Vec<Promise>>,
}

/// Memory that a version is to hold of a device on which it is being loaded. Nobody else gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Promise {
    /// The device's name.
    pub(crate) device: String,
    pub(crate) share: Share,
    /// The memory that it is to hold of the host then, beside GPUs.
    pub(crate) host: Share,
}

/// Memory that a version is to hold of one device, alone and with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Share {
    pub(crate) bytes: u64,
    /// The weights that it shares already, and those that it was known to share: they are no part
    /// of `bytes`. Weights that it turns out to share besides are.
    pub(crate) shared_bytes: u64,
}

impl Promise {
    /// A promise of one device and of nothing beside it.
    pub(crate) fn new(device: &str, bytes: u64) -> Self {
        let share = Share { bytes, shared_bytes: 0 };
        Self { device: device.to_owned(), share, host: Share::default() }
    }
}

impl Share {
    /// The part of it that is not there yet, when `held_bytes` are held and `shared_bytes` are
    /// shared with others.
    pub(crate) fn missing_bytes(&self, held_bytes: u64, shared_bytes: u64) -> u64 {
        let found = shared_bytes.saturating_sub(self.shared_bytes);
        self.bytes.saturating_sub(held_bytes).saturating_sub(found)
    }
}

impl Claim {
    /// A claim to which nothing is promised yet.
    pub fn new(demand: Demand) -> Self {
        Self { demand, promised: Mutex::default() }
    }

    /// The version, as ledgers name it.
    pub fn holder(&self) -> Holder {
        let Demand { model, version, .. } = &self.demand;
        Holder::Version { model: Arc::clone(model), version: *version }
    }

    /// The devices that it is being loaded on.
    pub fn promised(&self) -> Vec<String> {
        self.promised.lock().iter().map(|promise| promise.device.clone()).collect()
    }

    /// Returns whether it is being loaded anywhere.
    pub fn is_loading(&self) -> bool {
        !self.promised.lock().is_empty()
    }

    /// The bytes that it is to hold of a device on which it is being loaded.
    pub fn promised_on(&self, device: &str) -> Option<u64> {
        let promised = self.promised.lock();
        promised.iter().find(|promise| promise.device == device).map(|promise| promise.share.bytes)
    }

    /// All promises to it.
    pub(crate) fn promises(&self) -> Vec<Promise> {
        self.promised.lock().clone()
    }

    /// Promises it memory of a device on which it is about to be loaded.
    pub(crate) fn promise(&self, promise: Promise) {
        self.promised.lock().push(promise);
    }

    /// Takes the promise of a device back: the version is there, or never will be.
    pub fn forget(&self, device: &str) {
        self.promised.lock().retain(|promise| promise.device != device);
    }

    /// Takes all promises back: the version is loaded.
    pub fn forget_all(&self) {
        self.promised.lock().clear();
    }
}

/// All claims there are. One is gone when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Claims(Mutex<Vec<Weak<Claim>>>);

impl Claims {
    pub(crate) fn add(&self, claim: &Arc<Claim>) {
        self.0.lock().push(Arc::downgrade(claim));
    }

    pub(crate) fn all(&self) -> Vec<Arc<Claim>> {
        self.0.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Forgets those that are gone.
    pub(crate) fn forget_gone(&self) {
        let mut claims = self.0.lock();
        claims.retain(|claim| claim.strong_count() > 0);
        claims.shrink_to_fit();
    }
}

/// The owners of memory whose versions are loaded or being loaded, and the keys of their weights.
#[derive(Default)]
pub(crate) struct Owners {
    all: Mutex<Vec<Weak<Owner>>>,
    keys: Mutex<Vec<(Weak<Owner>, Vec<WeightKey>)>>,
}

impl Owners {
    pub(crate) fn add(&self, owner: &Arc<Owner>) {
        self.all.lock().push(Arc::downgrade(owner));
    }

    /// Notes by which keys the weights of an owner are known.
    pub(crate) fn add_keys(&self, owner: &Arc<Owner>, keys: &[WeightKey]) {
        self.keys.lock().push((Arc::downgrade(owner), keys.to_vec()));
    }

    pub(crate) fn all(&self) -> Vec<Arc<Owner>> {
        self.all.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// The owners of memory of a device, also of memory that was set aside there.
    pub(crate) fn on(&self, space: &Arc<Space>) -> Vec<Arc<Owner>> {
        let mut all = self.all();
        all.retain(|owner| Arc::ptr_eq(owner.space().root(), space));
        all
    }

    /// The memory that was set aside for a model on a device, if any was.
    pub(crate) fn set_aside(&self, model: &str, space: &Arc<Space>) -> Option<Arc<Space>> {
        let is_of_model = |owner: &Arc<Owner>| match owner.holder() {
            Holder::Version { model: other, .. } => **other == *model,
            Holder::Server | Holder::Shared => false,
        };
        let is_aside = |owner: &&Arc<Owner>| !Arc::ptr_eq(owner.space(), space);
        let owners = self.on(space);
        let found = owners.iter().filter(|owner| is_of_model(owner)).find(is_aside);
        found.map(|owner| Arc::clone(owner.space()))
    }

    /// The bytes of weights that a space has already.
    pub(crate) fn known_bytes(&self, space: &Arc<Space>, wanted: &[WeightKey]) -> u64 {
        let keys = self.keys.lock();
        let is_here = |owner: &Weak<Owner>| {
            owner.upgrade().is_some_and(|owner| Arc::ptr_eq(owner.space(), space))
        };
        let here = keys.iter().filter(|(owner, _)| is_here(owner)).flat_map(|(_, keys)| keys);
        let here: BTreeSet<&WeightKey> = here.collect();
        wanted.iter().filter(|key| here.contains(key)).map(|key| key.bytes).sum()
    }

    /// Forgets those that are gone. The list would hold pages of the heap that loads use, and with
    /// each page what else there was on it.
    pub(crate) fn forget_gone(&self) {
        let mut all = self.all.lock();
        all.retain(|owner| owner.strong_count() > 0);
        all.shrink_to_fit();
        let mut keys = self.keys.lock();
        keys.retain(|(owner, _)| owner.strong_count() > 0);
        keys.shrink_to_fit();
    }
}

/// Returns whether an owner holds only the host's part of one of these, beside a GPU.
pub(crate) fn is_beside(owner: &Arc<Owner>, all: &[Arc<Owner>]) -> bool {
    all.iter().any(|other| other.is_split() && Arc::ptr_eq(other.host(), owner))
}
