//! `Room`: what a run may take, and whether other offsets could make it fit.

use std::sync::atomic::{AtomicU64, Ordering};

use device::Home;

use super::Plan;

/// The bytes that a run may take: its workspace, its results, and what else it fills.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Of the device.
    pub device_bytes: u64,
    /// Of the host, where that is another.
    pub host_bytes: u64,
}

impl Room {
    fn bytes_in(&self, home: Home) -> u64 {
        match home {
            Home::Device => self.device_bytes,
            Home::Host => self.host_bytes,
        }
    }
}

/// The most bytes that the workspace may have in each home.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Capacities {
    device: u64,
    host: u64,
}

impl Capacities {
    /// So much of the device, and nothing of the host.
    pub(crate) fn of_device(bytes: u64) -> Self {
        Self { device: bytes, host: 0 }
    }

    pub(super) fn bytes_in(&self, home: Home) -> u64 {
        match home {
            Home::Device => self.device,
            Home::Host => self.host,
        }
    }
}

/// The most bytes of workspace in each home for which offsets were searched in vain.
#[derive(Debug, Default)]
pub(super) struct Missed {
    device: AtomicU64,
    host: AtomicU64,
}

impl Missed {
    fn bytes_in(&self, home: Home) -> &AtomicU64 {
        match home {
            Home::Device => &self.device,
            Home::Host => &self.host,
        }
    }
}

/// The fit of one home in a room.
enum RoomFit {
    /// It is within it.
    Fits,
    /// It is not, and no offsets are, or none were found.
    Hopeless,
    /// It is not, but other offsets may be.
    Worth(u64),
}

impl Plan {
    /// Returns whether no offsets could do with less workspace.
    pub fn is_lowest(&self) -> bool {
        let is_lowest = |home| self.work_bytes_of(home) <= self.live_bytes_of(home);
        is_lowest(Home::Device) && is_lowest(Home::Host)
    }

    /// Returns whether a run is within a room, as far as sizes are known.
    pub fn fits(&self, room: &Room) -> bool {
        let fits = |home| self.work_bytes_of(home) <= self.capacity(home, room);
        fits(Home::Device) && fits(Home::Host)
    }

    /// The heights that offsets are to be searched for, if that is worth it: the plan is not within
    /// the room, another may be, and none was looked for in vain.
    pub(crate) fn worth(&self, room: &Room) -> Option<Capacities> {
        let (device, host) = (self.fit(Home::Device, room), self.fit(Home::Host, room));
        let capacity = |fit: &RoomFit, home| match fit {
            RoomFit::Fits => Some(self.work_bytes_of(home)),
            RoomFit::Worth(capacity) => Some(*capacity),
            RoomFit::Hopeless => None,
        };
        let all = Capacities {
            device: capacity(&device, Home::Device)?,
            host: capacity(&host, Home::Host)?,
        };
        (!matches!((device, host), (RoomFit::Fits, RoomFit::Fits))).then_some(all)
    }

    /// Notes that no offsets below these heights were found.
    pub(crate) fn note_missed(&self, capacities: &Capacities) {
        for home in [Home::Device, Home::Host] {
            if capacities.bytes_in(home) < self.work_bytes_of(home) {
                self.missed.bytes_in(home).fetch_max(capacities.bytes_in(home), Ordering::Relaxed);
            }
        }
    }

    fn fit(&self, home: Home, room: &Room) -> RoomFit {
        let (work, capacity) = (self.work_bytes_of(home), self.capacity(home, room));
        if work <= capacity {
            return RoomFit::Fits;
        }
        // Room that comes and goes by a little is no reason to search each time: it takes half of
        // what was missing, so that there are few searches for a plan.
        let missed = self.missed.bytes_in(home).load(Ordering::Relaxed);
        let is_tried = missed > 0 && capacity < missed.midpoint(work);
        if capacity < self.live_bytes_of(home) || is_tried {
            return RoomFit::Hopeless;
        }
        RoomFit::Worth(capacity)
    }

    /// The bytes that a room leaves for the workspace.
    fn capacity(&self, home: Home, room: &Room) -> u64 {
        room.bytes_in(home).saturating_sub(self.dynamic_bytes_of(home) as u64)
    }

    fn work_bytes_of(&self, home: Home) -> u64 {
        match home {
            Home::Device => self.work_bytes as u64,
            Home::Host => self.host_work_bytes as u64,
        }
    }

    fn live_bytes_of(&self, home: Home) -> u64 {
        match home {
            Home::Device => self.live_bytes as u64,
            Home::Host => self.host_live_bytes as u64,
        }
    }
}
