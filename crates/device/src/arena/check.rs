//! Whether an arena is what it says.

use super::records::{NONE, State};
use super::{Arena, Placed};

impl Arena {
    /// Asserts everything that the module promises. Looks at each chunk.
    ///
    /// # Panics
    /// If the arena is broken: a bug.
    pub fn check(&self) {
        let mut sums = Sums::default();
        let mut end = 0;
        for placed in &self.regions {
            assert!(placed.first_unit >= end, "regions overlap");
            end = placed.end();
            self.check_region(placed, &mut sums);
        }
        assert_eq!(sums.n_chunks, self.records.len(), "a chunk belongs to no region");
        let in_use = sums.in_use - self.slabs.free_units();
        assert_eq!(in_use * self.unit_bytes, self.counters.in_use_bytes);
        self.slabs.check(&self.records);
        let held: u64 = self.regions.iter().map(|placed| placed.region.held_bytes()).sum();
        assert_eq!((sums.in_use + sums.free) * self.unit_bytes, held, "in use + free == held");
        assert_eq!(held, self.counters.held_bytes);
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

    fn check_region(&self, placed: &Placed, sums: &mut Sums) {
        let (mut id, mut prev, mut at) = (placed.head, NONE, placed.first_unit);
        let mut last = State::InUse;
        while id != NONE {
            let record = self.records.get(id);
            assert_eq!((record.start, record.prev), (at, prev), "chunk {id} is linked wrong");
            assert_eq!(record.side, placed.side);
            assert!(record.units > 0, "chunk {id} is empty");
            assert!(record.state == State::InUse || record.state != last, "{id} is not merged");
            if record.state == State::Void {
                assert_eq!(record.start % self.granule_units, 0, "a void of whole granules");
                assert_eq!(record.units % self.granule_units, 0, "a void of whole granules");
            }
            sums.add(record.state, record.units);
            (last, prev, at, id) = (record.state, id, record.end(), record.next);
        }
        assert_eq!(at, placed.end(), "a region without gaps");
    }
}

/// What the chunks add up to, in units.
#[derive(Debug, Default)]
struct Sums {
    in_use: u64,
    free: u64,
    n_chunks: u32,
    n_free: usize,
    n_void: usize,
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
