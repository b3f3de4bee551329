//! `Chunks`: how the units of an arena are divided, and which of them can be had.
//!
//! A *run* is the gapless list of the chunks of one region. Nothing here knows of a driver: a chunk
//! is made free when there is memory behind it, and void when there is none.

use std::ops::Range;

use super::bins::{self, Bins};
use super::records::{NONE, Record, Records, State};

/// The chunks of an arena: their records, and the lists of those that are not in use.
#[derive(Debug)]
pub(super) struct Chunks {
    records: Records,
    sides: [ChunksSide; 2],
    /// The units of a granule.
    granule: u32,
}

/// The chunks of small requests, or those of large ones.
#[derive(Debug)]
struct ChunksSide {
    bins: Bins,
    /// Void chunks, from below.
    voids: Vec<u32>,
}

/// The sums over the chunks of runs, in units.
#[derive(Debug, Default)]
pub(super) struct Sums {
    pub(super) in_use: u64,
    pub(super) free: u64,
    n_chunks: u32,
    n_free: usize,
    n_void: usize,
}

/// Void chunks that a side has room for from the start: a list that grows while a model is loaded
/// would be on pages of the heap that go with the model.
const FEW_VOIDS: usize = 32;

pub(super) const SMALL: u8 = 0;
pub(super) const LARGE: u8 = 1;

impl Chunks {
    pub(super) fn new(granule: u32) -> Chunks {
        let side = || ChunksSide { bins: Bins::new(), voids: Vec::with_capacity(FEW_VOIDS) };
        Chunks { records: Records::default(), sides: [side(), side()], granule }
    }

    #[inline]
    pub(super) fn get(&self, id: u32) -> &Record {
        self.records.get(id)
    }

    /// The number of chunks in any state.
    pub(super) fn len(&self) -> u32 {
        self.records.len()
    }

    /// The smallest free chunk of at least `units` units, the lowest among equals.
    #[inline]
    pub(super) fn find(&self, side: u8, units: u32) -> Option<bins::Place> {
        self.sides[usize::from(side)].bins.find(units)
    }

    /// Takes the free chunk at a place, and leaves there what is over.
    #[inline]
    pub(super) fn take(&mut self, side: u8, place: bins::Place, units: u32) -> u32 {
        let bins = &mut self.sides[usize::from(side)].bins;
        let id = bins.get(place);
        if self.records.get(id).units > units {
            let rest = self.records.split(id, units);
            bins.replace(&self.records, place, rest);
        } else {
            bins.remove_at(place);
        }
        self.records.get_mut(id).state = State::InUse;
        id
    }

    /// Makes a chunk in use free; returns its units.
    #[inline]
    pub(super) fn put(&mut self, id: u32) -> u32 {
        let record = self.records.get(id);
        assert!(record.state == State::InUse, "chunk {id} is not in use");
        let units = record.units;
        self.make_free(id);
        units
    }

    /// Makes a chunk that is in no list free: it stands in a bin then, joined with its free
    /// neighbours. Returns the chunk that it is part of.
    #[inline]
    fn make_free(&mut self, id: u32) -> u32 {
        self.records.get_mut(id).state = State::Free;
        let &Record { prev, next, side, .. } = self.records.get(id);
        let bins = &mut self.sides[usize::from(side)].bins;
        let is_free = |id: u32| id != NONE && self.records.get(id).state == State::Free;
        match (is_free(prev), is_free(next)) {
            (false, false) => {
                bins.insert(&self.records, id);
                return id;
            }
            (false, true) => {
                let place = bins.place_of(&self.records, next);
                self.records.join_next(id);
                bins.replace(&self.records, place, id);
                return id;
            }
            (true, true) => {
                bins.remove(&self.records, next);
                self.records.join_next(id);
            }
            (true, false) => {}
        }
        let place = bins.place_of(&self.records, prev);
        self.records.join_next(prev);
        bins.replace(&self.records, place, prev);
        prev
    }

    /// The position of a free chunk in its bin.
    pub(super) fn place_of(&self, id: u32) -> bins::Place {
        self.sides[usize::from(self.get(id).side)].bins.place_of(&self.records, id)
    }

    /// Adds a run of one chunk, free or void.
    pub(super) fn add_run(&mut self, side: u8, units: &Range<u32>, state: State) -> u32 {
        assert_ne!(state, State::InUse, "nobody has it yet");
        let (start, units) = (units.start, units.end - units.start);
        let (prev, next) = (NONE, NONE);
        let id = self.records.insert(Record { start, units, prev, next, state, side });
        if state == State::Free { self.make_free(id) } else { self.make_void(id) }
    }

    /// Removes a run of which nothing is in use.
    pub(super) fn remove_run(&mut self, head: u32) {
        let mut id = head;
        while id != NONE {
            let record = *self.records.get(id);
            let side = &mut self.sides[usize::from(record.side)];
            match record.state {
                State::Free => side.bins.remove(&self.records, id),
                State::Void => side.voids.retain(|other| *other != id),
                State::InUse => panic!("chunk {id} is in use"),
            }
            self.records.remove(id);
            id = record.next;
        }
    }

    /// Makes a range of a void chunk free; returns the chunk that it is part of then.
    pub(super) fn fill(&mut self, void: u32, range: &Range<u32>) -> u32 {
        let id = self.cut_void(void, range);
        self.make_free(id)
    }

    /// Splits a void chunk so that `range` is a chunk of its own, and in no list.
    fn cut_void(&mut self, void: u32, range: &Range<u32>) -> u32 {
        let record = *self.records.get(void);
        let voids = &mut self.sides[usize::from(record.side)].voids;
        let at = voids.partition_point(|id| self.records.get(*id).start < record.start);
        assert_eq!(voids[at], void, "a void chunk stands in its list");
        let mut rest = [NONE; 2];
        let mut middle = void;
        if record.start < range.start {
            middle = self.records.split(void, range.start - record.start);
            rest[0] = void;
        }
        if range.end < record.end() {
            rest[1] = self.records.split(middle, range.end - range.start);
        }
        voids.splice(at..=at, rest.into_iter().filter(|id| *id != NONE));
        middle
    }

    /// Makes a range of a free chunk void.
    pub(super) fn empty(&mut self, id: u32, range: &Range<u32>) {
        let record = *self.records.get(id);
        let bins = &mut self.sides[usize::from(record.side)].bins;
        bins.remove(&self.records, id);
        let mut middle = id;
        if record.start < range.start {
            middle = self.records.split(id, range.start - record.start);
            bins.insert(&self.records, id);
        }
        if range.end < record.end() {
            let above = self.records.split(middle, range.end - range.start);
            bins.insert(&self.records, above);
        }
        self.make_void(middle);
    }

    /// Makes a chunk that is in no list void, joins it with void neighbours, and lists it. Returns
    /// the chunk that it is part of.
    fn make_void(&mut self, id: u32) -> u32 {
        self.records.get_mut(id).state = State::Void;
        let Record { side, prev, next, .. } = *self.records.get(id);
        let is_void = |id: u32| id != NONE && self.records.get(id).state == State::Void;
        let (joins_prev, joins_next) = (is_void(prev), is_void(next));
        let voids = &mut self.sides[usize::from(side)].voids;
        let start = self.records.get(id).start;
        let at = voids.partition_point(|other| self.records.get(*other).start < start);
        if joins_next {
            self.records.join_next(id);
            voids.remove(at);
        }
        if joins_prev {
            self.records.join_next(prev);
            return prev;
        }
        voids.insert(at, id);
        id
    }

    /// Cuts the free chunk around `start` there, and returns where the upper part stands.
    pub(super) fn carve(&mut self, id: u32, start: u32) -> bins::Place {
        let record = *self.records.get(id);
        assert!(record.state == State::Free && record.start <= start, "the place was filled");
        let bins = &mut self.sides[usize::from(record.side)].bins;
        if record.start == start {
            return bins.place_of(&self.records, id);
        }
        // For a moment two free chunks are neighbours; the upper one is taken now.
        bins.remove(&self.records, id);
        let upper = self.records.split(id, start - record.start);
        bins.insert(&self.records, id);
        bins.insert(&self.records, upper);
        bins.place_of(&self.records, upper)
    }

    /// Returns whether a run of so many units is one free chunk.
    pub(super) fn is_free_run(&self, head: u32, units: &Range<u32>) -> bool {
        let record = self.records.get(head);
        record.state == State::Free && record.units == units.end - units.start
    }

    /// The free chunks, those of large requests first, the largest of each side first.
    pub(super) fn free_down(&self) -> impl Iterator<Item = u32> + '_ {
        self.sides.iter().rev().flat_map(|side| side.bins.iter_down())
    }

    /// The units of the largest free chunk.
    pub(super) fn largest_free_units(&self) -> u32 {
        let largest = self.sides.iter().filter_map(|side| side.bins.largest());
        largest.map(|id| self.records.get(id).units).max().unwrap_or(0)
    }

    /// The void chunks of a side, from below.
    pub(super) fn voids(&self, side: u8) -> &[u32] {
        &self.sides[usize::from(side)].voids
    }

    /// The granules of a free chunk that lie wholly inside it and outside `keep`.
    pub(super) fn whole_granules(&self, id: u32, keep: &Range<u32>) -> Range<u32> {
        let record = self.records.get(id);
        let (mut start, mut end) = (record.start, record.end());
        if start < keep.end && keep.start < end {
            // Never on both sides of it: a chunk around all of `keep` would not have to grow.
            if start < keep.start {
                end = keep.start;
            } else {
                start = keep.end.min(end);
            }
        }
        let start = start.next_multiple_of(self.granule);
        let end = end / self.granule * self.granule;
        if start < end { start..end } else { 0..0 }
    }

    /// The granules of a void chunk that `units` touch; empty for other chunks.
    pub(super) fn missing_in(&self, id: u32, units: &Range<u32>) -> Range<u32> {
        let record = self.records.get(id);
        if record.state != State::Void {
            return 0..0;
        }
        let granule = self.granule;
        let start = record.start.max(units.start / granule * granule);
        // Cannot overflow where it matters: a void ends at a granule.
        let end = record.end().min(units.end.checked_next_multiple_of(granule).unwrap_or(u32::MAX));
        start..end.max(start)
    }

    /// Returns whether any of the units, which are in or behind a chunk, is in use.
    pub(super) fn is_used_in(&self, mut id: u32, units: &Range<u32>) -> bool {
        while id != NONE && self.records.get(id).start < units.end {
            let record = self.records.get(id);
            if record.state == State::InUse {
                return true;
            }
            id = record.next;
        }
        false
    }

    /// Gives back the room of bins that have been filled and are empty.
    pub(super) fn shrink(&mut self) {
        self.sides.iter_mut().for_each(|side| side.bins.shrink());
    }

    /// The bytes of host memory that the records and the lists take.
    pub(super) fn bytes(&self) -> usize {
        let side = |side: &ChunksSide| side.bins.bytes() + side.voids.capacity() * size_of::<u32>();
        self.records.bytes() + self.sides.iter().map(side).sum::<usize>()
    }

    /// Asserts that each chunk belongs to one of the runs that `sums` adds up, and that a chunk
    /// which is not in use stands in exactly one list, that of its state.
    pub(super) fn check(&self, sums: &Sums) {
        assert_eq!(sums.n_chunks, self.records.len(), "a chunk belongs to no region");
        self.records.check();
        let (mut n_free, mut n_void) = (0, 0);
        for side in &self.sides {
            side.bins.check(&self.records);
            n_free += side.bins.iter_down().count();
            n_void += side.voids.len();
            assert!(side.bins.iter_down().all(|id| self.records.get(id).state == State::Free));
            assert!(side.voids.iter().all(|id| self.records.get(*id).state == State::Void));
            assert!(side.voids.is_sorted_by_key(|id| self.records.get(*id).start));
        }
        assert_eq!((n_free, n_void), (sums.n_free, sums.n_void), "each stands in one list");
    }

    /// Asserts that a run of a side is gapless and merged, and adds it to `sums`.
    pub(super) fn check_run(&self, side: u8, head: u32, units: &Range<u32>, sums: &mut Sums) {
        let (mut id, mut prev, mut at) = (head, NONE, units.start);
        let mut last = State::InUse;
        while id != NONE {
            let record = self.records.get(id);
            assert_eq!((record.start, record.prev), (at, prev), "chunk {id} is linked wrong");
            assert_eq!(record.side, side);
            assert!(record.units > 0, "chunk {id} is empty");
            assert!(record.state == State::InUse || record.state != last, "{id} is not merged");
            if record.state == State::Void {
                assert_eq!(record.start % self.granule, 0, "a void of whole granules");
                assert_eq!(record.units % self.granule, 0, "a void of whole granules");
            }
            sums.add(record.state, record.units);
            (last, prev, at, id) = (record.state, id, record.end(), record.next);
        }
        assert_eq!(at, units.end, "a region without gaps");
    }
}

impl Sums {
    fn add(&mut self, state: State, units: u32) {
        self.n_chunks += 1;
        match state {
            State::InUse => self.in_use += u64::from(units),
            State::Free => {
                self.free += u64::from(units);
                self.n_free += 1;
            }
            State::Void => self.n_void += 1,
        }
    }
}
