//! The table of chunks: each is a record with an index, linked to its neighbours in the region.

/// The index of no record.
pub(super) const NONE: u32 = u32::MAX;

/// The records that a table has room for at first.
const FIRST_RECORDS: usize = 1 << 16;

const PAGE_BYTES: usize = 4 << 10;

/// The state of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Given out.
    InUse,
    /// Memory that nobody uses; stands in a bin.
    Free,
    /// Address space without memory; made of whole granules.
    Void,
}

/// A chunk: `units` units from `start` on, both counted over all regions of the arena.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record {
    pub(super) start: u32,
    pub(super) units: u32,
    /// The neighbours in the region, or `NONE` at its ends.
    pub(super) prev: u32,
    pub(super) next: u32,
    pub(super) state: State,
    /// The side of the arena that the region belongs to.
    pub(super) side: u8,
}

impl Record {
    pub(super) fn end(&self) -> u32 {
        self.start + self.units
    }
}

/// All chunks of an arena. Unused records are linked through `next`.
#[derive(Debug, Default)]
pub(super) struct Records {
    table: Vec<Record>,
    unused: Option<u32>,
    n_unused: u32,
}

impl Records {
    #[inline]
    pub(super) fn get(&self, id: u32) -> &Record {
        &self.table[id as usize]
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: u32) -> &mut Record {
        &mut self.table[id as usize]
    }

    /// Bins are sorted by this: smaller first, then lower.
    #[inline]
    pub(super) fn key(&self, id: u32) -> u64 {
        let &Record { units, start, .. } = self.get(id);
        u64::from(units) << 32 | u64::from(start)
    }

    #[inline]
    pub(super) fn insert(&mut self, record: Record) -> u32 {
        let Some(id) = self.unused else {
            return self.append(record);
        };
        let next = self.get(id).next;
        self.unused = (next != NONE).then_some(next);
        self.n_unused -= 1;
        let unused = self.get_mut(id);
        unused.start = record.start;
        unused.units = record.units;
        unused.prev = record.prev;
        unused.next = record.next;
        unused.state = record.state;
        unused.side = record.side;
        id
    }

    #[inline]
    pub(super) fn remove(&mut self, id: u32) {
        let next = self.unused.unwrap_or(NONE);
        self.get_mut(id).next = next;
        self.unused = Some(id);
        self.n_unused += 1;
    }

    /// Cuts `id` after `units` units; returns the new upper part, of the same state.
    #[inline]
    pub(super) fn split(&mut self, id: u32, units: u32) -> u32 {
        // Fields are read one by one here and below: a copy of a record that was just written in
        // parts would have to wait for all of them.
        let &Record { start, units: whole, next, state, side, .. } = self.get(id);
        assert!(0 < units && units < whole, "split of {whole} at {units}");
        let (start, rest) = (start + units, whole - units);
        let upper = self.insert(Record { start, units: rest, prev: id, next, state, side });
        if next != NONE {
            self.get_mut(next).prev = upper;
        }
        let lower = self.get_mut(id);
        lower.units = units;
        lower.next = upper;
        upper
    }

    /// Joins `id` with the neighbour above it, whose record goes.
    #[inline]
    pub(super) fn join_next(&mut self, id: u32) {
        let upper = self.get(id).next;
        let &Record { start, units, next, .. } = self.get(upper);
        if next != NONE {
            self.get_mut(next).prev = id;
        }
        let lower = self.get_mut(id);
        debug_assert_eq!(lower.end(), start, "neighbours touch");
        lower.units += units;
        lower.next = next;
        self.remove(upper);
    }

    /// The number of chunks.
    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.table.len()).expect("ids fit 32 bits") - self.n_unused
    }

    /// The bytes that the table takes: the pages ever written. Room beyond them is only addresses.
    pub(super) fn bytes(&self) -> usize {
        (self.table.len() * size_of::<Record>()).next_multiple_of(PAGE_BYTES)
    }

    /// Room for so many records is asked for at once, and then for twice as many, so that nobody
    /// waits for a large table to be copied: the heap gives so much as pages of its own, which cost
    /// nothing until they are written, and moves them by their addresses.
    #[cold]
    fn append(&mut self, record: Record) -> u32 {
        if self.table.len() == self.table.capacity() {
            self.table.reserve_exact(FIRST_RECORDS.max(self.table.len()));
        }
        let id = u32::try_from(self.table.len()).expect("ids fit 32 bits");
        assert_ne!(id, NONE, "more chunks than indices");
        self.table.push(record);
        id
    }

    /// Asserts that the records that are not used are linked, and counted.
    pub(super) fn check(&self) {
        let mut unused = self.unused.unwrap_or(NONE);
        for _ in 0..self.n_unused {
            assert_ne!(unused, NONE, "a record that is not used is lost");
            unused = self.get(unused).next;
        }
        assert_eq!(unused, NONE, "more records are not used than are counted");
    }
}
