//! Consequences of leaving the floor of a section empty.

use super::problem::Item;
use super::skyline::{DONE, Section, Skyline};

/// The extremes of a range of sections.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reach {
    floor_max: i64,
    floor_min: i64,
    top_max: i64,
}

impl Reach {
    fn with(self, other: Reach) -> Reach {
        Reach {
            floor_max: self.floor_max.max(other.floor_max),
            floor_min: self.floor_min.min(other.floor_min),
            top_max: self.top_max.max(other.top_max),
        }
    }
}

impl Skyline<'_> {
    /// The lowest offset above its floor at which an item that covers the section can begin, given
    /// that it rests on another; `None` if some item could rest on nothing.
    pub(super) fn next_floor(&mut self, section: usize) -> Option<i64> {
        self.find_carriers(section);
        self.find_reaches(section);
        let Section { floor, valley, .. } = self.sections[section];
        let first = valley.0 as usize;
        let mut lowest = DONE;
        for &id in &self.covering[section] {
            if self.placed[id as usize] {
                continue;
            }
            let Item { lo, hi, .. } = self.items[id as usize];
            let begin = if self.fits(id, valley) {
                let carrier = self.carriers[lo - first].min(self.carriers[hi - 1 - first]);
                if carrier == DONE {
                    return None;
                }
                floor + carrier
            } else {
                self.reaches[lo].with(self.reaches[hi - 1]).floor_max
            };
            lowest = lowest.min(begin);
        }
        Some(lowest)
    }

    /// An item that covers the section and would fit into waste: the packings where it lies there
    /// are found elsewhere.
    pub(super) fn sinking(&mut self, section: usize) -> Option<Item> {
        let Section { floor, top, .. } = self.sections[section];
        let is_small = |id: &u32| self.items[*id as usize].units <= floor - top;
        if !self.covering[section].iter().any(is_small) {
            return None;
        }
        self.find_reaches(section);
        let sinks = |id: &&u32| {
            let item = self.items[**id as usize];
            let reach = self.reaches[item.lo].with(self.reaches[item.hi - 1]);
            !self.placed[**id as usize] && reach.top_max + item.units <= reach.floor_min
        };
        let id = self.covering[section].iter().find(sinks)?;
        Some(self.items[*id as usize])
    }

    /// Finds, for each section of this one's valley, the units of the smallest item that could
    /// carry an item reaching from there to here without covering this section itself.
    fn find_carriers(&mut self, section: usize) {
        let valley = self.sections[section].valley;
        let (lo, hi) = (valley.0 as usize, valley.1 as usize);
        self.carriers.clear();
        self.carriers.resize(hi - lo, DONE);
        for at in lo..hi {
            for &id in &self.beginning[at] {
                let item = &self.items[id as usize];
                if self.placed[id as usize] || item.hi > hi || item.covers(section) {
                    continue;
                }
                // An item that reaches from a section touches everything between there and here.
                let edge = if at > section { at } else { item.hi - 1 };
                let smallest = &mut self.carriers[edge - lo];
                *smallest = item.units.min(*smallest);
            }
        }
        for at in section - lo + 1..hi - lo {
            self.carriers[at] = self.carriers[at].min(self.carriers[at - 1]);
        }
        for at in (0..section - lo).rev() {
            self.carriers[at] = self.carriers[at].min(self.carriers[at + 1]);
        }
    }

    /// Finds the extremes between each section and this one.
    fn find_reaches(&mut self, section: usize) {
        let reach = |s: &Section| Reach { floor_max: s.floor, floor_min: s.floor, top_max: s.top };
        self.reaches.clear();
        self.reaches.extend(self.sections.iter().map(reach));
        for at in section + 1..self.reaches.len() {
            self.reaches[at] = self.reaches[at].with(self.reaches[at - 1]);
        }
        for at in (0..section).rev() {
            self.reaches[at] = self.reaches[at].with(self.reaches[at + 1]);
        }
    }
}
