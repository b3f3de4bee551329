//! All seats in other places, so that one more fits: whatever places there are for all of them
//! together are found, and the steps that lead there.

use std::collections::BTreeMap;

use super::{Arrangement, Seat};
use crate::together::{Device, Item, together};

/// The number of copies of seats that are placed anew at most.
const N_COPIES_MAX: usize = 256;

/// A copy of a seat that is to be somewhere.
#[derive(Clone, Copy)]
struct RearrangeCopy {
    seat: usize,
    /// The device of the copy now, if any.
    now: Option<usize>,
}

impl Arrangement<'_> {
    /// The board with the seat on it, and all others on as many devices as before.
    pub(super) fn rearranged(&self, seat: usize) -> Option<Self> {
        self.clone().reach(seat, &self.copies(&all_but(self.seats.len(), seat), |_| true))
    }

    /// The same with one copy each of those of no higher priority.
    pub(super) fn rearranged_without_replicas(&self, seat: usize) -> Option<Self> {
        let keeps_replicas = |other: usize| comes_before(self.seats, other, seat);
        self.clone().reach(seat, &self.copies(&all_but(self.seats.len(), seat), keeps_replicas))
    }

    /// The board with the seat on it in place of seats of a lower priority: of those, one after
    /// another in the order of their priorities and then as they came, all stay that still fit.
    pub(super) fn without_lower(&self, seat: usize) -> Option<Self> {
        let gives_way = |other: usize| {
            let Seat { priority, stays, .. } = &self.seats[other];
            *priority < self.seats[seat].priority && !stays && !self.on[other].is_empty()
        };
        let mut kept = all_but(self.seats.len(), seat);
        kept.retain(|other| !gives_way(*other));
        let keeps_replicas = |other: usize| comes_before(self.seats, other, seat);
        let only = |kept: &[usize]| self.only(&[kept, &[seat]].concat());
        let mut best = only(&kept).reach(seat, &self.copies(&kept, keeps_replicas))?;
        for other in self.arrivals().into_iter().filter(|other| gives_way(*other)) {
            kept.push(other);
            match only(&kept).reach(seat, &self.copies(&kept, keeps_replicas)) {
                Some(board) => best = board,
                None => drop(kept.pop()),
            }
        }
        Some(best)
    }

    /// The arrangement without the seats that are not among some, and that may go.
    fn only(&self, kept: &[usize]) -> Self {
        let mut board = self.clone();
        for other in (0..self.seats.len()).filter(|other| !kept.contains(other)) {
            let on: Vec<usize> = board.on[other].keys().copied().collect();
            on.into_iter().for_each(|device| board.remove(other, device));
        }
        board
    }

    /// The copies of some seats that may be moved: all of a seat, or the first.
    fn copies(
        &self,
        seats: &[usize],
        keeps_replicas: impl Fn(usize) -> bool,
    ) -> Vec<RearrangeCopy> {
        let movable = seats.iter().copied().filter(|seat| !self.seats[*seat].stays);
        let copies = movable.flat_map(|seat| {
            let n_kept = if keeps_replicas(seat) { usize::MAX } else { 1 };
            let on = self.on[seat].keys().copied().take(n_kept);
            on.map(move |device| RearrangeCopy { seat, now: Some(device) })
        });
        copies.collect()
    }

    /// The board with the seat on it when copies of others have moved to where all fit; nothing if
    /// they fit nowhere, or cannot get there.
    fn reach(self, seat: usize, copies: &[RearrangeCopy]) -> Option<Self> {
        let mut copies = copies.to_vec();
        copies.push(RearrangeCopy { seat, now: None });
        if copies.len() > N_COPIES_MAX {
            return None;
        }
        let items: Vec<Item> =
            copies.iter().map(|copy| item(self.seats, &self.on[copy.seat], *copy)).collect();
        let fixed = self.without_copies(&copies);
        let devices: Vec<Device> = (0..self.free.len())
            .map(|device| Device {
                free_bytes: fixed.free[device],
                runs_bytes: fixed.runs(device, None),
            })
            .collect();
        let to = together(&items, &devices)?;
        self.walk(seat, &copies, &to)
    }

    /// The arrangement as it is without any copy of the seats that are to be placed.
    fn without_copies(&self, copies: &[RearrangeCopy]) -> Self {
        let mut board = self.clone();
        // One that looks for a place may still be where it may not be any more.
        for copy in copies.iter().filter(|copy| copy.now.is_some()) {
            while let Some((device, _)) = board.on[copy.seat].first_key_value() {
                let device = *device;
                board.remove(copy.seat, device);
            }
        }
        board
    }

    /// Takes the steps to where the copies are to be, one after another as they fit; one in the way
    /// of all others waits on the device where it may be parked.
    fn walk(mut self, newcomer: usize, copies: &[RearrangeCopy], to: &[usize]) -> Option<Self> {
        let wanted = |seat: usize| -> Vec<usize> {
            let own = copies.iter().zip(to).filter(|(copy, _)| copy.seat == seat);
            own.map(|(_, device)| *device).collect()
        };
        let mut open: Vec<(usize, Vec<usize>)> = Vec::new();
        for copy in copies {
            if copy.seat != newcomer && open.iter().all(|(seat, _)| *seat != copy.seat) {
                open.push((copy.seat, wanted(copy.seat)));
            }
        }
        let mut parked = Vec::new();
        loop {
            while open.iter().any(|(seat, wanted)| self.step(*seat, wanted)) {}
            open.retain(|(seat, wanted)| !is_at(&self.on[*seat], wanted));
            let waits = open.iter().map(|(seat, _)| *seat).filter(|seat| !parked.contains(seat));
            let smallest = waits
                .filter(|seat| self.can_park(*seat))
                .min_by_key(|seat| (self.on[*seat].values().copied().max(), *seat));
            match smallest {
                _ if open.is_empty() => break,
                Some(seat) => {
                    parked.push(seat);
                    self.park(seat);
                }
                None => return None,
            }
        }
        let device = wanted(newcomer).pop()?;
        self.fits(newcomer, device).then(|| {
            self.add(newcomer, device);
            self
        })
    }

    /// Takes one step of a seat to where it is to be, if there is one that fits; whether there was.
    fn step(&mut self, seat: usize, wanted: &[usize]) -> bool {
        let is_wanted = |device: &usize| wanted.contains(device);
        let n_there = self.on[seat].keys().filter(|device| is_wanted(device)).count();
        // It is always somewhere: where it is to be, or where it was.
        let gone = self.on[seat].keys().copied().find(|device| !is_wanted(device));
        let gone = gone.filter(|_| n_there == wanted.len() || self.on[seat].len() > wanted.len());
        if let Some(device) = gone {
            self.remove(seat, device);
            return true;
        }
        let add = wanted.iter().copied().find(|device| self.fits(seat, *device));
        if let Some(device) = add {
            self.add(seat, device);
        }
        add.is_some()
    }

    /// Returns whether there is room for a seat where it may be parked.
    fn can_park(&self, seat: usize) -> bool {
        let Seat { park, runs, .. } = &self.seats[seat];
        park.is_some_and(|(device, bytes)| {
            let is_new = !self.on[seat].contains_key(&device);
            let runs = self.runs(device, None).max(runs[device]);
            is_new && bytes.saturating_add(runs) <= self.free[device]
        })
    }

    /// Parks a seat: it is nowhere else then.
    fn park(&mut self, seat: usize) {
        let (device, bytes) = self.seats[seat].park.expect("it can be parked");
        let before: Vec<usize> = self.on[seat].keys().copied().collect();
        self.take(seat, device, bytes);
        before.into_iter().for_each(|device| self.remove(seat, device));
    }
}

/// The seats of so many, but for one.
fn all_but(n_seats: usize, seat: usize) -> Vec<usize> {
    (0..n_seats).filter(|other| *other != seat).collect()
}

/// Tells whether a seat has a higher priority than another.
fn comes_before(seats: &[Seat], seat: usize, other: usize) -> bool {
    seats[seat].priority > seats[other].priority
}

/// The bytes that a copy takes where it may be: as many as it holds where it is (`on`).
fn item(seats: &[Seat], on: &BTreeMap<usize, u64>, copy: RearrangeCopy) -> Item {
    let Seat { bytes, runs, .. } = &seats[copy.seat];
    let bytes = bytes.iter().enumerate();
    let bytes = bytes.map(|(device, bytes)| {
        let held = on.get(&device).copied();
        bytes.map(|bytes| held.unwrap_or(bytes))
    });
    Item { group: copy.seat, bytes: bytes.collect(), runs: runs.clone(), now: copy.now }
}

/// Tells whether a seat that is on some devices is where it is wanted, and nowhere else.
fn is_at(on: &BTreeMap<usize, u64>, wanted: &[usize]) -> bool {
    on.len() == wanted.len() && wanted.iter().all(|device| on.contains_key(device))
}
