//! Placement: which model goes to which device.
//!
//! A pure function from needs, limits, pins and replicas to devices. It packs as many bytes as it
//! can onto devices of unequal size, leaves what is placed where it is if everything fits that way,
//! and spreads models so that no device idles while another has several. [`adapt`] is run again
//! when devices or models change: it goes out from what is there, and says in which steps. A server
//! asks it as versions arrive, and [`fleet`] asks it for all of them, before anything is served.
//! [`place`] says what could be placed at most, whoever came first.

mod adapt;
mod assign;
mod exact;
mod fleet;
mod subset;
mod together;

use std::collections::BTreeSet;

pub use adapt::{Seat, Step, adapt};
use assign::{Item, assign};
pub use exact::most_bytes;
pub use fleet::{Fleet, fleet};

/// A device that models can be placed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// The logical device's name.
    pub device: String,
    /// What models may need on it together.
    pub free_bytes: u64,
}

/// A model to be placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// What it needs on each device it is on.
    pub bytes: u64,
    /// The devices it may be on, by their index; empty for any.
    pub pins: Vec<usize>,
    /// On how many devices.
    pub replicas: Replicas,
    /// Models with a higher priority are placed first, and never give way to others.
    pub priority: i32,
    /// Where it is now, by index.
    pub current: Vec<usize>,
}

/// On how many devices a model is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replicas {
    /// On this many, or as many of them as possible.
    Number(usize),
    /// On every device it may be on and fits.
    All,
}

/// Where each model goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// For each need the devices, by index, in ascending order; empty if there is no room for it.
    pub devices: Vec<Vec<usize>>,
    /// What is left on each device.
    pub free_bytes: Vec<u64>,
}

/// Places the needs on the slots: one replica of each first, further ones where there is room left.
///
/// Takes a few milliseconds for a hundred models.
///
/// # Panics
/// If a pin or a current device is no index of a slot.
pub fn place(slots: &[Slot], needs: &[Need]) -> Placement {
    for need in needs {
        let known = |at: &usize| *at < slots.len();
        assert!(need.pins.iter().chain(&need.current).all(known), "{need:?}");
    }
    let mut board = Board::new(slots, needs);
    if !board.keep_all() {
        board = Board::new(slots, needs);
        board.place_anew();
    }
    board.replicate();
    board.spread();
    let devices = board.devices.into_iter().map(|set| set.into_iter().collect()).collect();
    Placement { devices, free_bytes: board.free }
}

struct Board<'a> {
    needs: &'a [Need],
    free: Vec<u64>,
    devices: Vec<BTreeSet<usize>>,
}

impl<'a> Board<'a> {
    fn new(slots: &[Slot], needs: &'a [Need]) -> Board<'a> {
        let free = slots.iter().map(|slot| slot.free_bytes).collect();
        Board { needs, free, devices: vec![BTreeSet::new(); needs.len()] }
    }

    /// Whether a need could be added to a device now.
    fn fits(&self, need: usize, device: usize) -> bool {
        let Need { bytes, pins, .. } = &self.needs[need];
        (pins.is_empty() || pins.contains(&device))
            && !self.devices[need].contains(&device)
            && *bytes <= self.free[device]
    }

    fn add(&mut self, need: usize, device: usize) {
        assert!(self.fits(need, device), "{:?} on {device}", self.needs[need]);
        self.free[device] -= self.needs[need].bytes;
        self.devices[need].insert(device);
    }

    fn remove(&mut self, need: usize, device: usize) {
        assert!(self.devices[need].remove(&device), "{need} is not on {device}");
        self.free[device] += self.needs[need].bytes;
    }

    /// Leaves every need where it is, and adds the new ones where they fit most tightly; whether
    /// all found a place.
    fn keep_all(&mut self) -> bool {
        for need in 0..self.needs.len() {
            let current = self.needs[need].current.iter().copied();
            if let Some(device) = current.filter(|device| self.fits(need, *device)).min() {
                self.add(need, device);
            }
        }
        for need in self.order() {
            if self.devices[need].is_empty() {
                let fitting = (0..self.free.len()).filter(|device| self.fits(need, *device));
                match fitting.min_by_key(|device| (self.free[*device], *device)) {
                    Some(device) => self.add(need, device),
                    None => return false,
                }
            }
        }
        true
    }

    /// Places as many bytes as it can, priority by priority.
    fn place_anew(&mut self) {
        let order = self.order();
        for class in order.chunk_by(|a, b| self.needs[*a].priority == self.needs[*b].priority) {
            let item = |need: &usize| Item {
                bytes: self.needs[*need].bytes,
                pins: self.needs[*need].pins.clone(),
            };
            let items: Vec<Item> = class.iter().map(item).collect();
            for (need, device) in class.iter().zip(assign(&items, &self.free)) {
                if let Some(device) = device {
                    self.add(*need, device);
                }
            }
        }
    }

    /// By priority, and the largest first, since small ones find gaps.
    fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.needs.len()).collect();
        order.sort_by_key(|need| {
            let need = &self.needs[*need];
            (-i64::from(need.priority), u64::MAX - need.bytes)
        });
        order
    }

    /// Adds replicas: where there are some already, then where most is free.
    fn replicate(&mut self) {
        for need in self.order() {
            let wanted = match self.needs[need].replicas {
                Replicas::Number(n) => n,
                Replicas::All => self.free.len(),
            };
            while !self.devices[need].is_empty() && self.devices[need].len() < wanted {
                let is_new = |device: usize| !self.needs[need].current.contains(&device);
                let fitting = (0..self.free.len()).filter(|device| self.fits(need, *device));
                let best = fitting.min_by_key(|d| (is_new(*d), u64::MAX - self.free[*d], *d));
                match best {
                    Some(device) => self.add(need, device),
                    None => break,
                }
            }
        }
    }

    /// Moves needs from devices with several to devices with none, the largest that fits; by way
    /// of a third device if none fits.
    fn spread(&mut self) {
        for to in 0..self.free.len() {
            if !self.on(to).is_empty() {
                continue;
            }
            let crowded: Vec<usize> =
                (0..self.free.len()).filter(|from| self.on(*from).len() > 1).collect();
            let movable = crowded
                .iter()
                .flat_map(|from| self.on(*from).into_iter().map(move |need| (need, *from)))
                .filter(|(need, _)| self.fits(*need, to))
                .max_by_key(|(need, _)| self.needs[*need].bytes);
            match movable {
                Some((need, from)) => {
                    self.remove(need, from);
                    self.add(need, to);
                }
                None => self.spread_around(&crowded, to),
            }
        }
    }

    /// Moves the need of another device to an idle one, and one of a crowded device in its place.
    fn spread_around(&mut self, crowded: &[usize], to: usize) {
        for between in 0..self.free.len() {
            let [first] = self.on(between)[..] else { continue };
            if !self.fits(first, to) {
                continue;
            }
            self.remove(first, between);
            for from in crowded {
                let second = self.on(*from).into_iter().find(|need| self.fits(*need, between));
                if let Some(second) = second {
                    self.remove(second, *from);
                    self.add(second, between);
                    self.add(first, to);
                    return;
                }
            }
            self.add(first, between);
        }
    }

    fn on(&self, device: usize) -> Vec<usize> {
        (0..self.needs.len()).filter(|need| self.devices[*need].contains(&device)).collect()
    }
}

#[cfg(test)]
mod tests;
