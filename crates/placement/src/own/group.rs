//! Our own devices as a group.

use std::sync::Arc;

use device::{Kind, Snapshot};

use super::promises::held;
use super::{OwnDevice, OwnDevices};
use crate::claim::{Claim, Promise, Taken, Within};
use crate::group::{DeviceGroup, Entry, Held, Lease};
use crate::models::ServedModel;
use crate::refusal::Refusal;

/// Our own devices at a moment.
pub(crate) struct OwnGroup<'a> {
    own: &'a OwnDevices,
    devices: Vec<Arc<OwnDevice>>,
    snapshots: Vec<Snapshot>,
}

impl<'a> OwnGroup<'a> {
    /// The devices as they are now.
    pub(crate) fn new(own: &'a OwnDevices) -> Self {
        let devices = own.all();
        let snapshots = devices.iter().map(|one| one.space.snapshot()).collect();
        Self { own, devices, snapshots }
    }

    fn model(&self, claim: &Claim) -> Arc<ServedModel> {
        self.own.models.get(&claim.demand.model)
    }
}

impl DeviceGroup for OwnGroup<'_> {
    fn names(&self) -> Vec<String> {
        self.devices.iter().map(|one| one.name().to_owned()).collect()
    }

    fn entry(&self, claim: &Claim, device: usize) -> Entry {
        let one = &self.devices[device];
        let places = self.own.places(claim, &self.model(claim).rule);
        let is_place = places.iter().any(|place| Arc::ptr_eq(place, one));
        match (claim.demand.within, is_place) {
            (Within::Workers, true) => Entry::Fallback,
            (Within::Devices, true) => Entry::Open,
            // The host runs whatever a GPU does, if more slowly.
            (Within::Devices, false)
                if one.space.kind() == Kind::Cpu && !claim.demand.keeps_state =>
            {
                Entry::Parking
            }
            (Within::Workers | Within::Devices, false) => Entry::Closed,
        }
    }

    fn room(&self, device: usize) -> u64 {
        self.devices[device].space.room_bytes()
    }

    fn free(&self, device: usize) -> u64 {
        self.own.unpromised_bytes(&self.devices[device], None)
    }

    fn held(&self, claim: &Claim, device: usize) -> Held {
        let holder = claim.holder();
        let bytes = held(&self.snapshots[device], &holder);
        let runs = self.own.runs_of(&holder, &self.devices[device]);
        Held { bytes, freed_bytes: bytes, runs }
    }

    fn takes(&self, claim: &Claim, device: usize) -> Option<Taken> {
        self.own.takes(claim, &self.model(claim).rule, &self.devices[device])
    }

    fn shares_reservations(&self) -> bool {
        true
    }

    fn promise(&self, claim: &Claim, on: &[(usize, u64)]) -> Result<Vec<Lease>, Box<Refusal>> {
        if claim.demand.within == Within::Devices {
            let on: Vec<_> = on.iter().map(|(at, bytes)| (&self.devices[*at], *bytes)).collect();
            return self.own.take_all(claim, &on);
        }
        let lease = |(at, bytes): &(usize, u64)| {
            let device = self.devices[*at].name().to_owned();
            claim.promise(Promise::new(&device, *bytes));
            Lease { device, owner: None }
        };
        Ok(on.iter().map(lease).collect())
    }

    fn refusal(&self, claim: &Claim, device: usize) -> Refusal {
        let needed = claim.demand.needed.bytes;
        self.own.refusal(&claim.holder(), &self.devices[device], needed)
    }
}
