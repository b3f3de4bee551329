//! The room that a model has on our own devices, and the refusal of one that has none.

use std::sync::Arc;

use device::logical::{GrowthRule, LogicalDevice};
use device::{Holder, Kind};

use super::{OwnDevice, OwnDevices, Reservation};
use crate::claim::{Claim, Taken, Within};
use crate::models::{Rule, ServedModel};
use crate::refusal::{Figures, Refusal};

impl OwnDevices {
    /// Returns whether a model could take so many bytes on each device that it may be on, and on
    /// the host.
    pub fn has_room(&self, model: &str, bytes: u64) -> bool {
        let served = self.models.get(model);
        let free = |device: &OwnDevice| self.unpromised_bytes(device, None);
        let has = |device: &Arc<OwnDevice>| {
            let room = self.room(model, &served.rule, device, free(device));
            room.is_some_and(|room| bytes <= room)
        };
        let on_host = |host: Arc<OwnDevice>| bytes <= self.host_room(model, &host, free(&host));
        self.candidates(&served.rule).iter().all(has) && self.host().is_none_or(on_host)
    }

    /// The most bytes that a model could still take on a device of a kind that it may be on.
    pub fn room_among(&self, model: &str, kind: Kind) -> u64 {
        let names = &self.models.get(model).rule.devices;
        let all = self.all();
        let may_be = |one: &&Arc<OwnDevice>| {
            one.space.kind() == kind
                && (names.is_empty() || names.iter().any(|name| name == one.name()))
        };
        let room = |one: &Arc<OwnDevice>| self.room_for(model, one);
        all.iter().filter(may_be).map(room).max().unwrap_or(0)
    }

    /// The bytes that a model could still take on a device.
    pub fn room_for(&self, model: &str, device: &OwnDevice) -> u64 {
        let free = self.unpromised_bytes(device, None);
        self.room(model, &self.models.get(model).rule, device, free).unwrap_or(free)
    }

    /// Returns whether a version would find a place if nobody else held anything.
    pub fn could_hold(&self, claim: &Claim) -> bool {
        let served = self.models.get(&claim.demand.model);
        self.places(claim, &served.rule).iter().any(|device| {
            let needed = claim.demand.needed.bytes;
            let shareable = self.shareable_bytes(claim, &served.rule, device);
            let most = device.space.account().limit_bytes().min(device.limit_for(&served.rule));
            needed.saturating_sub(shareable) <= most
        })
    }

    /// The refusal of a version that needs so many bytes of a device.
    pub fn refusal(&self, holder: &Holder, device: &OwnDevice, needed_bytes: u64) -> Refusal {
        let model = match holder {
            Holder::Version { model, .. } => &**model,
            Holder::Server | Holder::Shared => "",
        };
        let holders = device.space.snapshot().holders();
        let others = holders.iter().filter(|(holder, _)| match holder {
            Holder::Version { model: other, .. } => **other != *model,
            Holder::Shared => true,
            Holder::Server => false,
        });
        let evictable_bytes = others.map(|(_, bytes)| bytes).sum();
        let served = self.models.get(model);
        let ServedModel { rule, limit_setting, .. } = &*served;
        let limit = device.limit_for(rule);
        let free = self.unpromised_bytes(device, Some(holder));
        let room = self.room(model, rule, device, free);
        // What cannot be set aside is missing as a whole.
        let reserved = device.reservation_for(rule).map_or(0, |reservation| reservation.bytes);
        let needed_bytes = if room.is_none() { needed_bytes.max(reserved) } else { needed_bytes };
        let runs_bytes = self.missing_for_runs(device);
        Refusal {
            device: device.name().to_owned(),
            needed_bytes,
            free_bytes: room.unwrap_or(free),
            holders,
            promised: self.promises(device, Some(holder)),
            figures: Figures::Own { evictable_bytes, runs_bytes },
            own_limit: rule.limit.filter(|_| limit < needed_bytes).map(|_| (limit, *limit_setting)),
            settings: settings(&device.device.lock(), reserved),
            worker_bytes: None,
        }
    }

    /// The devices that a version may be on.
    pub(super) fn places(&self, claim: &Claim, rule: &Rule) -> Vec<Arc<OwnDevice>> {
        match claim.demand.within {
            Within::Workers => self.host().into_iter().collect(),
            Within::Devices => self.candidates(rule),
        }
    }

    /// The bytes that a model could still take on a device of which `free_bytes` are free; `None`
    /// if what is to be set aside for it cannot be.
    fn room(&self, model: &str, rule: &Rule, device: &OwnDevice, free_bytes: u64) -> Option<u64> {
        let account = self.account(model, device);
        let Some(Reservation { bytes, limit_bytes }) = device.reservation_for(rule) else {
            return Some(free_bytes.min(account.free_bytes()));
        };
        // What is set aside already is the model's to use.
        match self.owners.set_aside(model, &device.space) {
            Some(space) if space.arenas().kept_bytes() > 0 => {
                let idle = space.arenas().idle_bytes();
                Some(space.free_bytes().min(idle.saturating_add(free_bytes)))
            }
            Some(_) => Some(limit_bytes),
            None => (bytes <= free_bytes).then_some(limit_bytes.min(free_bytes)),
        }
    }

    /// The bytes that a model that is on GPUs could still take on the host, of which `free_bytes`
    /// are free. Nothing is set aside for it there.
    pub(super) fn host_room(&self, model: &str, host: &OwnDevice, free_bytes: u64) -> u64 {
        free_bytes.min(self.account(model, host).free_bytes())
    }

    /// The bytes that a version would take of a device that it is not on; `None` if its own limit
    /// there is too small.
    pub(super) fn takes(&self, claim: &Claim, rule: &Rule, device: &OwnDevice) -> Option<Taken> {
        let own = |bytes| Taken { bytes, runs: 0 };
        let (model, needs) = (&claim.demand.model, &claim.demand.needed);
        // Weights that are there already are not needed again.
        let shareable = self.shareable_bytes(claim, rule, device);
        let needed = needs.bytes.saturating_sub(shareable);
        let all = needed.saturating_add(needs.worker_bytes);
        let account = self.account(model, device);
        let Some(Reservation { bytes: reserved, limit_bytes }) = device.reservation_for(rule)
        else {
            let room = device.space.room_bytes().min(account.limit_bytes());
            let taken = needs.on(device.n_lanes, room);
            let bytes = taken.bytes.saturating_sub(shareable).saturating_add(needs.worker_bytes);
            return (needed <= account.free_bytes()).then_some(Taken { bytes, ..taken });
        };
        // What is set aside already is the model's to use.
        match self.owners.set_aside(model, &device.space) {
            Some(space) if space.arenas().kept_bytes() > 0 => {
                let more = needed.saturating_sub(space.arenas().idle_bytes());
                let held = account.held_bytes().max(space.arenas().kept_bytes());
                (more <= account.limit_bytes().saturating_sub(held)).then_some(own(more))
            }
            Some(_) => (needed <= limit_bytes).then_some(own(0)),
            None => (needed <= limit_bytes).then_some(own(all.max(reserved))),
        }
    }

    /// The bytes of a version's weights that are on a device already, as far as checksums tell.
    /// Memory that is set aside for a model shares nothing with the rest of the device.
    pub(super) fn shareable_bytes(&self, claim: &Claim, rule: &Rule, device: &OwnDevice) -> u64 {
        let space = match device.reservation_for(rule) {
            Some(_) => self.owners.set_aside(&claim.demand.model, &device.space),
            None => Some(Arc::clone(&device.space)),
        };
        space.map_or(0, |space| self.owners.known_bytes(&space, &claim.demand.keys))
    }
}

/// The limit of a device, its growth if it is reserved, and the bytes that are to be set aside on
/// it for a model: each with the setting that says so.
fn settings(device: &LogicalDevice, reserved_bytes: u64) -> Vec<String> {
    let LogicalDevice { name, limit_bytes, limit_by, growth_by, .. } = device;
    let mut all = vec![format!("{name} may hold {limit_bytes} ({limit_by})")];
    if device.growth == GrowthRule::Reserved {
        all.push(format!("all of it was reserved at the start ({growth_by})"));
    }
    if reserved_bytes > 0 {
        all.push(format!("{reserved_bytes} are to be set aside for the model (its reservation)"));
    }
    all
}
