//! External devices as a group.

use std::sync::Arc;

use device::logical::GrowthRule;

use super::{ExternalDevice, ExternalDevices, Usage, WorkerUsage};
use crate::claim::{Claim, Promise, Taken, Within};
use crate::group::{DeviceGroup, Entry, Held, Lease};
use crate::models::ServedModel;
use crate::refusal::Refusal;

/// External devices at a moment.
pub(crate) struct ExternalGroup<'a> {
    external: &'a ExternalDevices,
    usage: Usage,
}

impl<'a> ExternalGroup<'a> {
    /// The devices as they are now. The books are brought up to date: what a worker held that is
    /// gone is free, though its model only left a moment ago.
    pub(crate) fn new(external: &'a ExternalDevices) -> Self {
        let usage = external.usage();
        external.refresh_to(&usage);
        Self { external, usage }
    }

    fn device(&self, device: usize) -> &Arc<ExternalDevice> {
        &self.external.devices[device]
    }

    fn model(&self, claim: &Claim) -> Arc<ServedModel> {
        self.external.models.get(&claim.demand.model)
    }
}

impl DeviceGroup for ExternalGroup<'_> {
    fn names(&self) -> Vec<String> {
        self.external.devices.iter().map(|one| one.name()).collect()
    }

    fn entry(&self, claim: &Claim, device: usize) -> Entry {
        let candidates = || self.external.candidates(&self.model(claim));
        let is_open = claim.demand.within == Within::Workers
            && candidates().iter().any(|one| Arc::ptr_eq(one, self.device(device)));
        if is_open { Entry::Open } else { Entry::Closed }
    }

    fn room(&self, device: usize) -> u64 {
        self.device(device).account.limit_bytes()
    }

    fn free(&self, device: usize) -> u64 {
        let one = self.device(device);
        let promised: u64 = self.external.promises(one, None).iter().map(|(_, bytes)| bytes).sum();
        one.room(&self.usage).saturating_sub(promised)
    }

    fn held(&self, claim: &Claim, device: usize) -> Held {
        let one = self.device(device);
        let bytes = one.admitted_bytes(claim);
        Held { bytes, freed_bytes: freed_by(claim, one, &self.usage, bytes), runs: 0 }
    }

    fn takes(&self, claim: &Claim, device: usize) -> Option<Taken> {
        let weights_bytes = claim.demand.needed.bytes;
        let needed = self.device(device).needed(&self.model(claim), &self.usage, weights_bytes);
        // TensorFlow runs within what its worker has.
        Some(Taken { bytes: needed.bytes(), runs: 0 })
    }

    fn shares_reservations(&self) -> bool {
        false
    }

    fn promise(&self, claim: &Claim, on: &[(usize, u64)]) -> Result<Vec<Lease>, Box<Refusal>> {
        let lease = |(at, bytes): &(usize, u64)| {
            let device = self.device(*at).name();
            claim.promise(Promise::new(&device, *bytes));
            Lease { device, owner: None }
        };
        Ok(on.iter().map(lease).collect())
    }

    fn refusal(&self, claim: &Claim, device: usize) -> Refusal {
        let weights_bytes = claim.demand.needed.bytes;
        self.external.refusal(claim, self.device(device), &self.usage, weights_bytes)
    }
}

/// The bytes that could be promised besides if a version went for which `held` bytes were admitted.
/// A worker that has other models too keeps what it took: TensorFlow gives nothing back.
fn freed_by(claim: &Claim, device: &ExternalDevice, usage: &Usage, held: u64) -> u64 {
    if device.device.lock().growth == GrowthRule::Reserved {
        return held;
    }
    let name = device.name();
    let is_its_own = |worker: &&WorkerUsage| {
        let mut models = worker.models.iter();
        let is_here = worker.device == name && !worker.is_shared;
        is_here && models.any(|one| one.model == claim.demand.model)
    };
    if let Some(own) = usage.workers.iter().find(is_its_own) {
        return device.held_by(&usage.gpus, own.pid).map_or(held, |bytes| bytes.min(held));
    }
    held.min(device.account.held_bytes().saturating_sub(device.held_by_workers(usage)))
}
