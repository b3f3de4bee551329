//! Where an arena grows: the place with the fewest bytes missing.

use std::ops::Range;

use super::Arena;
use super::records::{NONE, State};

/// A place for a chunk among neighbours that are not in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// The lowest of the chunks around it that are not in use.
    pub(super) first: u32,
    /// The units of the new chunk.
    pub(super) units: Range<u32>,
    /// How many units have no memory.
    pub(super) missing: u32,
}

impl Arena {
    /// The place for `units` units with the fewest missing, the lowest among equals.
    pub(super) fn find_place(&self, side: u8, units: u32) -> Option<Place> {
        let mut best: Option<Place> = None;
        let mut end = 0;
        for &void in &self.sides[usize::from(side)].voids {
            if self.records.get(void).start < end {
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
        let open = |id: u32| id != NONE && self.records.get(id).state != State::InUse;
        let (mut first, mut last) = (void, void);
        while open(self.records.get(first).prev) {
            first = self.records.get(first).prev;
        }
        while open(self.records.get(last).next) {
            last = self.records.get(last).next;
        }
        (first, self.records.get(first).start..self.records.get(last).end())
    }

    fn place_at(&self, first: u32, units: Range<u32>) -> Place {
        let mut missing = 0;
        let mut id = first;
        while id != NONE && self.records.get(id).start < units.end {
            missing += self.missing_in(id, &units).len();
            id = self.records.get(id).next;
        }
        let missing = u32::try_from(missing).expect("no more than the run has");
        Place { first, units, missing }
    }

    /// The granules of a void chunk that `units` touch; empty for other chunks.
    pub(super) fn missing_in(&self, id: u32, units: &Range<u32>) -> Range<u32> {
        let record = self.records.get(id);
        if record.state != State::Void {
            return 0..0;
        }
        let granule = self.granule_units;
        let start = record.start.max(units.start / granule * granule);
        // Cannot overflow where it matters: a void ends at a granule.
        let end = record.end().min(units.end.checked_next_multiple_of(granule).unwrap_or(u32::MAX));
        start..end.max(start)
    }
}
