//! `Board`: all devices and all versions at a moment, as the algorithm sees them.

use std::sync::Arc;

use crate::adapt::{Seat, Step, adapt};
use crate::claim::Claim;
use crate::group::{DeviceGroup, Entry};
use crate::models::{Models, Replicas};
use crate::resident::{Change, ChangeKind, Resident, Version, Way};

/// All devices of some groups, one after another.
pub(crate) struct Groups<'a> {
    all: Vec<Box<dyn DeviceGroup + 'a>>,
    /// For each device its group, and its index there.
    at: Vec<(usize, usize)>,
    pub(crate) names: Vec<String>,
}

impl<'a> Groups<'a> {
    pub(crate) fn new(all: Vec<Box<dyn DeviceGroup + 'a>>) -> Self {
        let (mut at, mut names) = (Vec::new(), Vec::new());
        for (number, group) in all.iter().enumerate() {
            let own = group.names();
            at.extend((0..own.len()).map(|index| (number, index)));
            names.extend(own);
        }
        Self { all, at, names }
    }

    /// The group of a device, and its index there.
    pub(crate) fn find(&self, device: usize) -> (&dyn DeviceGroup, usize) {
        let (group, index) = self.at[device];
        (&*self.all[group], index)
    }

    /// The entry of a version to each device: a fallback is open to a version that has no other
    /// device, and closed to all others.
    pub(crate) fn entries(&self, claim: &Claim) -> Vec<Entry> {
        let mut entries: Vec<Entry> = (0..self.names.len())
            .map(|device| {
                let (group, at) = self.find(device);
                group.entry(claim, at)
            })
            .collect();
        let has_other = entries.contains(&Entry::Open);
        for entry in entries.iter_mut().filter(|entry| **entry == Entry::Fallback) {
            *entry = if has_other { Entry::Closed } else { Entry::Open };
        }
        entries
    }

    /// The seat of a version that serves on some devices, as if it could move.
    pub(crate) fn seat(&self, claim: &Claim, served: &[String], models: &Models) -> Seat {
        let entries = self.entries(claim);
        let (mut bytes, mut runs, mut current) = (Vec::new(), Vec::new(), Vec::new());
        let mut park = None;
        for (device, name) in self.names.iter().enumerate() {
            let (group, at) = self.find(device);
            let is_open = entries[device] == Entry::Open;
            let promised = claim.promised_on(name);
            if promised.is_some() || served.contains(name) {
                let held = group.held(claim, at);
                current
                    .push((device, promised.map_or(held.freed_bytes, |all| all.max(held.bytes))));
                bytes.push(is_open.then_some(held.bytes));
                runs.push(held.runs);
                continue;
            }
            let takes = group.takes(claim, at);
            if entries[device] == Entry::Parking {
                park = park.or(takes.map(|taken| (device, taken.bytes)));
            }
            bytes.push(takes.filter(|_| is_open).map(|taken| taken.bytes));
            runs.push(takes.map_or(0, |taken| taken.runs));
        }
        let rule = &models.get(&claim.demand.model).rule;
        let replicas = if claim.demand.keeps_state { Replicas::Number(1) } else { rule.replicas };
        Seat { bytes, runs, current, replicas, priority: rule.priority, stays: false, park }
    }
}

/// Versions and devices at a moment.
pub(crate) struct Board<'a, V> {
    pub(crate) groups: Groups<'a>,
    residents: Vec<Arc<Resident<V>>>,
    /// The bytes of each device that nobody holds or was promised, but for runs.
    free_bytes: Vec<u64>,
    seats: Vec<Seat>,
    /// `true` for each seat that is being loaded, and stays for no other reason.
    is_loading: Vec<bool>,
}

impl<'a, V: Version> Board<'a, V> {
    pub(crate) fn new(
        groups: Groups<'a>,
        residents: Vec<Arc<Resident<V>>>,
        models: &Models,
    ) -> Self {
        let (mut seats, mut is_loading) = (Vec::new(), Vec::new());
        for resident in &residents {
            let served = resident.payload.serves_on().unwrap_or_default();
            let mut seat = groups.seat(resident, &served, models);
            let is_fixed = resident.demand.keeps_state
                || !models.has(resident.model())
                || shares_reservation(&groups, &seat, resident, &residents, models);
            seat.stays = !seat.current.is_empty() && (is_fixed || resident.is_loading());
            is_loading.push(resident.is_loading() && !is_fixed);
            seats.push(seat);
        }
        // What runs were promised is in the seats.
        let free_bytes = (0..groups.names.len()).map(|device| {
            let is_on = |seat: &&Seat| seat.current.iter().any(|(at, _)| *at == device);
            let runs = seats.iter().filter(is_on).map(|seat| seat.runs[device]).max();
            let (group, at) = groups.find(device);
            group.free(at).saturating_add(runs.unwrap_or(0))
        });
        let free_bytes = free_bytes.collect();
        Self { groups, residents, free_bytes, seats, is_loading }
    }

    /// The bytes that a version holds of a device, or would take there, its runs included as far as
    /// they take more than those of others.
    pub(crate) fn takes(&self, resident: &Resident<V>, device: usize) -> u64 {
        let is_it = |other: &Arc<Resident<V>>| std::ptr::eq(&raw const **other, resident);
        let Some(me) = self.residents.iter().position(is_it) else { return 0 };
        let is_on = |seat: &Seat| seat.current.iter().any(|(at, _)| *at == device);
        let others = self.seats.iter().enumerate().filter(|(at, seat)| *at != me && is_on(seat));
        let others = others.map(|(_, seat)| seat.runs[device]).max().unwrap_or(0);
        let Seat { bytes, runs, park, .. } = &self.seats[me];
        let parked = park.filter(|(at, _)| *at == device).map(|(_, bytes)| bytes);
        let runs = runs[device].saturating_sub(others);
        bytes[device].or(parked).map_or(0, |bytes| bytes.saturating_add(runs))
    }

    /// Returns whether a version has a seat here that says what it takes of a device.
    pub(crate) fn has_figures(&self, resident: &Resident<V>, device: usize) -> bool {
        let is_it = |other: &Arc<Resident<V>>| std::ptr::eq(&raw const **other, resident);
        self.residents.iter().position(is_it).is_some_and(|me| {
            let Seat { bytes, park, .. } = &self.seats[me];
            bytes[device].is_some() || park.is_some_and(|(at, _)| at == device)
        })
    }

    /// The changes of versions that serve, one after another, that bring them to where they should
    /// be.
    pub(crate) fn all_changes(&self) -> Vec<Change<V>> {
        self.changes(&adapt(&self.free_bytes, &self.seats))
    }

    /// The devices, by number, that a version gets which looks for a place; `None` if there is
    /// none for it.
    pub(crate) fn way(&self, resident: &Arc<Resident<V>>) -> Option<Way<V, Vec<usize>>> {
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
    fn way_among(&self, resident: &Arc<Resident<V>>, seats: &[Seat]) -> Option<Way<V, Vec<usize>>> {
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
    fn changes(&self, steps: &[Step]) -> Vec<Change<V>> {
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
            if self.residents[seat].payload.serves_on().is_some() {
                let resident = Arc::downgrade(&self.residents[seat]);
                let device = self.groups.names[device].clone();
                changes.push(Change { resident, device, kind });
            }
        }
        changes
    }
}

/// Returns whether versions share the reservation of their model where one of them is: the
/// reservation stays where it is.
fn shares_reservation<V>(
    groups: &Groups<'_>,
    seat: &Seat,
    resident: &Arc<Resident<V>>,
    all: &[Arc<Resident<V>>],
    models: &Models,
) -> bool {
    let is_other = |other: &Arc<Resident<V>>| {
        other.model() == resident.model() && !Arc::ptr_eq(other, resident)
    };
    let is_shared_on = |device: usize| groups.find(device).0.shares_reservations();
    models.get(resident.model()).rule.reservation.is_some()
        && seat.current.iter().any(|(device, _)| is_shared_on(*device))
        && all.iter().any(is_other)
}
