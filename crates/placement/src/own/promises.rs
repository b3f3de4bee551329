//! The memory of our own devices that was promised and is not held yet: to versions that are being
//! loaded, and to runs of those that are.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::{Category, Holder, Kind, Owner, Row, Snapshot};

use super::{OwnDevice, OwnDevices};
use crate::claim::{Claim, Promise, Share, is_beside};

impl OwnDevices {
    /// The versions that are being loaded, and how many bytes of a device each will take besides
    /// what it holds, the most first; but for one.
    pub fn promises(&self, device: &OwnDevice, but: Option<&Holder>) -> Vec<(Holder, u64)> {
        let mut snapshot: Option<Snapshot> = None;
        let mut all = Vec::new();
        for claim in self.claims.all() {
            let holder = claim.holder();
            let promises = claim.promises();
            let promised = promises.iter().map(|promise| on(promise, device)).max();
            let promised = promised.filter(|share| share.bytes > 0 && Some(&holder) != but);
            let Some(promised) = promised else { continue };
            let snapshot = snapshot.get_or_insert_with(|| device.space.snapshot());
            // What turned out to be shared is booked to nobody in particular.
            let shared = device.space.shared_bytes(&holder);
            match promised.missing_bytes(held(snapshot, &holder), shared) {
                0 => {}
                bytes => all.push((holder, bytes)),
            }
        }
        all.sort_by_key(|(_, bytes)| u64::MAX - bytes);
        all
    }

    /// The bytes that a version is to hold of a device that it is being loaded on.
    pub fn promised_to(&self, holder: &Holder, device: &OwnDevice) -> Option<u64> {
        let claims = self.claims.all();
        let claim = claims.iter().find(|claim| claim.holder() == *holder)?;
        claim.promised_on(device.name())
    }

    /// The bytes of a device that nobody holds, nor was promised but for one version.
    pub fn unpromised_bytes(&self, device: &OwnDevice, but: Option<&Holder>) -> u64 {
        let promised: u64 = self.promises(device, but).iter().map(|(_, bytes)| bytes).sum();
        let promised = promised.saturating_add(self.missing_for_runs(device));
        device.space.free_bytes().saturating_sub(promised)
    }

    /// The bytes that the models on a device were promised for their runs, and do not hold now:
    /// memory that nobody uses goes back, and is taken again for the next run. Nobody else is given
    /// it meanwhile, so that growth fails no model that serves.
    pub fn missing_for_runs(&self, device: &OwnDevice) -> u64 {
        let snapshot = device.space.snapshot();
        let is_for_runs = |row: &&Row| {
            matches!(row.category, Category::Activations | Category::Workspace | Category::Requests)
        };
        let held: u64 = snapshot.rows.iter().filter(is_for_runs).map(|row| row.bytes).sum();
        self.promised_for_runs(device).saturating_sub(held)
    }

    /// The bytes that runs of a version that is on a device were promised there.
    pub(super) fn runs_of(&self, holder: &Holder, device: &OwnDevice) -> u64 {
        let owners = self.owners.on(&device.space);
        // What was set aside for a model has its own workspaces.
        let is_its = |owner: &&Arc<Owner>| {
            owner.holder() == holder && Arc::ptr_eq(owner.space(), &device.space)
        };
        let runs = |owner: &Arc<Owner>| runs(owner, device, device.n_lanes);
        owners.iter().filter(is_its).map(runs).max().unwrap_or(0)
    }

    /// The bytes that the models on a device were promised for their runs: on each lane as much as
    /// the largest of them takes, since they share the lanes' memory. On the host also what runs on
    /// each GPU take there.
    fn promised_for_runs(&self, device: &OwnDevice) -> u64 {
        let mut most: BTreeMap<String, u64> = BTreeMap::new();
        let owners = self.owners.all();
        for owner in owners.iter().filter(|owner| !is_beside(owner, &owners)) {
            let root = owner.space().root();
            // What was set aside for a model has its own workspaces.
            let is_there = Arc::ptr_eq(owner.space(), &device.space);
            let on_host = owner.is_split() && Arc::ptr_eq(owner.host().space(), &device.space);
            let n_lanes = self.get(root.name()).map_or(1, |one| one.n_lanes);
            let bytes = match (is_there, on_host) {
                (true, _) => runs(owner, device, n_lanes),
                (false, true) => runs(owner.host(), device, n_lanes),
                (false, false) => continue,
            };
            let entry = most.entry(root.name().to_owned()).or_insert(0);
            *entry = bytes.max(*entry);
        }
        most.values().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    /// The memory that a version is to hold of the host when it is on so many more GPUs.
    pub(super) fn host_share_beside(&self, claim: &Claim, n_gpus: usize) -> Share {
        let more = claim.demand.needed.host_bytes.saturating_mul(n_gpus as u64);
        let Some(host) = self.host().filter(|_| more > 0) else { return Share::default() };
        let holder = claim.holder();
        Share {
            bytes: held(&host.space.snapshot(), &holder).saturating_add(more),
            shared_bytes: host.space.shared_bytes(&holder),
        }
    }
}

/// The bytes that a version holds of a device.
pub(super) fn held(snapshot: &Snapshot, holder: &Holder) -> u64 {
    let rows = snapshot.rows.iter().filter(|row| row.holder == *holder);
    rows.map(|row| row.bytes).sum()
}

/// The share of a device that a promise names.
fn on(promise: &Promise, device: &OwnDevice) -> Share {
    match device.space.kind() {
        _ if promise.device == device.name() => promise.share,
        Kind::Cpu => promise.host,
        Kind::Gpu => Share::default(),
    }
}

/// The bytes that runs of an owner may take of a device at most, as it was planned or as it has
/// been: on so many lanes at once, or on one where even all of the device is too little for that.
fn runs(owner: &Owner, device: &OwnDevice, n_lanes: usize) -> u64 {
    let limit = owner.account().map_or(u64::MAX, |account| account.limit_bytes());
    let room = device.space.room_bytes().min(limit).saturating_sub(owner.bytes());
    let run = owner.peak_bytes().max(owner.work_bytes());
    let all = run.saturating_mul(n_lanes as u64);
    if all <= room { all } else { run.min(room) }
}
