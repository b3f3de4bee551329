//! Choice of the place where an arena grows: the one with the fewest bytes missing.

use std::ops::Range;

use super::chunks::Chunks;
use super::records::{NONE, State};

/// A place for a chunk among neighbours that are not in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// The lowest of the chunks around it that are not in use.
    pub(super) first: u32,
    /// The units of the new chunk.
    pub(super) units: Range<u32>,
    /// The number of units without memory.
    pub(super) missing: u32,
}

impl Chunks {
    /// The place for `units` units with the fewest missing, the lowest among equals.
    pub(super) fn find_place(&self, side: u8, units: u32) -> Option<Place> {
        let mut best: Option<Place> = None;
        let mut end = 0;
        for &void in self.voids(side) {
            if self.get(void).start < end {
                continue; // In the run of the void before it.
            }
            let (first, run) = self.run_around(void);
            end = run.end;
            if run.end - run.start < units {
                continue;
            }
            for start in [run.start, run.end - units] {
                let place = self.place_at(first, start..start + units);
                if best.as_ref().is_none_or(|best| place.missing < best.missing) {
                    best = Some(place);
                }
            }
        }
        best
    }

    /// The chunks not in use around a void one: the lowest, and the units of all.
    fn run_around(&self, void: u32) -> (u32, Range<u32>) {
        let open = |id: u32| id != NONE && self.get(id).state != State::InUse;
        let (mut first, mut last) = (void, void);
        while open(self.get(first).prev) {
            first = self.get(first).prev;
        }
        while open(self.get(last).next) {
            last = self.get(last).next;
        }
        (first, self.get(first).start..self.get(last).end())
    }

    fn place_at(&self, first: u32, units: Range<u32>) -> Place {
        let mut missing = 0;
        let mut id = first;
        while id != NONE && self.get(id).start < units.end {
            missing += self.missing_in(id, &units).len();
            id = self.get(id).next;
        }
        let missing = u32::try_from(missing).expect("no more than the run has");
        Place { first, units, missing }
    }
}
