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

/// How a place for so many units of a side is found.
pub(super) type Find = fn(&Arena, u8, u32) -> Option<Place>;

impl Arena {
    /// The place beside the chunk before; if there is none, where most units are to follow.
    pub(super) fn find_beside(&self, side: u8, units: u32) -> Option<Place> {
        let place = |first: u32, run: Range<u32>| {
            let fits = run.end - run.start >= units;
            fits.then(|| self.place_at(first, run.start..run.start + units))
        };
        let (last, end) = self.sides[usize::from(side)].last;
        if let Some(next) = self.open_behind(last, end)
            && let Some(beside) = place(next, self.run_around(next).1)
        {
            return Some(beside);
        }
        let (mut widest, mut end) = ((NONE, 0..0), 0);
        for &void in &self.sides[usize::from(side)].voids {
            if self.records.get(void).start < end {
                continue; // In the run of the void before it.
            }
            let (first, run) = self.run_around(void);
            end = run.end;
            if run.len() > widest.1.len() {
                widest = (first, run);
            }
        }
        place(widest.0, widest.1)
    }

    /// What is behind a chunk that ended there, if that is still in use and what follows is not.
    fn open_behind(&self, last: u32, end: u32) -> Option<u32> {
        let record = self.records.find(last)?;
        let next = record.next;
        let is_there = record.state == State::InUse && record.end() == end && next != NONE;
        let next = is_there.then_some(next)?;
        (self.records.get(next).state != State::InUse).then_some(next)
    }

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

    /// The place of units in a run that has a void chunk among them.
    pub(super) fn place_on(&self, side: u8, units: &Range<u32>) -> Place {
        let voids = &self.sides[usize::from(side)].voids;
        let at = voids.partition_point(|void| self.records.get(*void).end() <= units.start);
        let (first, run) = self.run_around(voids[at]);
        assert!(run.start <= units.start && units.end <= run.end, "{units:?} in {run:?}");
        self.place_at(first, units.clone())
    }

    /// The chunks not in use around one of them: the lowest, and the units of all.
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
