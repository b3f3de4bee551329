//! Free chunks by size: two bins an octave, each sorted by size and then address.

use super::records::Records;

/// The free chunks of one side of an arena.
#[derive(Debug)]
pub(super) struct Bins {
    /// Bit i is set if bin i has a chunk.
    filled: u64,
    /// Sorted downwards, so that what is taken most often is last.
    bins: Vec<Vec<BinsEntry>>,
}

/// A chunk, and what it is sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BinsEntry {
    key: u64,
    id: u32,
}

/// The position of an entry in its bin; valid until the next change.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    bin: usize,
    at: usize,
}

const N_BINS: usize = 64;

impl Bins {
    pub(super) fn new() -> Bins {
        Bins { filled: 0, bins: vec![Vec::new(); N_BINS] }
    }

    /// The smallest chunk of at least `units` units, the lowest among equals.
    #[inline]
    pub(super) fn find(&self, units: u32) -> Option<Place> {
        let bin = index(units);
        let n = n_at_least(&self.bins[bin], u64::from(units) << 32);
        if n > 0 {
            return Some(Place { bin, at: n - 1 });
        }
        // Every chunk in a higher bin fits; the last of the next one is the smallest.
        let above = self.filled >> bin >> 1;
        if above == 0 {
            return None;
        }
        let bin = bin + 1 + above.trailing_zeros() as usize;
        Some(Place { bin, at: self.bins[bin].len() - 1 })
    }

    /// The position of a chunk that is in a bin.
    #[inline]
    pub(super) fn place_of(&self, records: &Records, id: u32) -> Place {
        let bin = index(records.get(id).units);
        let n = n_at_least(&self.bins[bin], records.key(id));
        assert!(n > 0 && self.bins[bin][n - 1].id == id, "a free chunk stands in its bin");
        Place { bin, at: n - 1 }
    }

    /// The chunk at a place.
    #[inline]
    pub(super) fn get(&self, place: Place) -> u32 {
        self.bins[place.bin][place.at].id
    }

    /// Puts a chunk that is in no bin where another stood. The two are often neighbours in their
    /// order too, and then nothing moves.
    #[inline]
    pub(super) fn replace(&mut self, records: &Records, place: Place, id: u32) {
        let key = records.key(id);
        let list = &mut self.bins[place.bin];
        let fits = index(records.get(id).units) == place.bin
            && (place.at == 0 || list[place.at - 1].key > key)
            && list.get(place.at + 1).is_none_or(|next| next.key < key);
        if fits {
            list[place.at] = BinsEntry { key, id };
        } else {
            self.remove_at(place);
            self.insert(records, id);
        }
    }

    #[inline]
    pub(super) fn insert(&mut self, records: &Records, id: u32) {
        let bin = index(records.get(id).units);
        let key = records.key(id);
        let list = &mut self.bins[bin];
        let at = n_at_least(list, key);
        list.insert(at, BinsEntry { key, id });
        self.filled |= 1 << bin;
    }

    pub(super) fn remove(&mut self, records: &Records, id: u32) {
        let place = self.place_of(records, id);
        self.remove_at(place);
    }

    #[inline]
    pub(super) fn remove_at(&mut self, place: Place) {
        let list = &mut self.bins[place.bin];
        let last = list.len() - 1;
        if place.at < last {
            list.copy_within(place.at + 1.., place.at);
        }
        list.truncate(last);
        self.filled &= !(u64::from(last == 0) << place.bin);
    }

    /// Gives back the room of bins that have been filled and are empty.
    pub(super) fn shrink(&mut self) {
        for list in self.bins.iter_mut().filter(|list| list.is_empty()) {
            *list = Vec::new();
        }
    }

    /// The largest chunk.
    pub(super) fn largest(&self) -> Option<u32> {
        if self.filled == 0 {
            return None;
        }
        self.bins[63 - self.filled.leading_zeros() as usize].first().map(|entry| entry.id)
    }

    /// All chunks, the largest first.
    pub(super) fn iter_down(&self) -> impl Iterator<Item = u32> + '_ {
        self.bins.iter().rev().flatten().map(|entry| entry.id)
    }

    /// The bytes of host memory that the lists take.
    pub(super) fn bytes(&self) -> usize {
        let lists: usize = self.bins.iter().map(Vec::capacity).sum();
        lists * size_of::<BinsEntry>() + self.bins.len() * size_of::<Vec<BinsEntry>>()
    }

    /// Asserts that the lists are sorted, in their places and marked.
    pub(super) fn check(&self, records: &Records) {
        for (bin, list) in self.bins.iter().enumerate() {
            assert_eq!(self.filled >> bin & 1 == 1, !list.is_empty(), "bin {bin} is marked wrong");
            assert!(list.iter().all(|entry| index(records.get(entry.id).units) == bin));
            assert!(list.iter().all(|entry| records.key(entry.id) == entry.key));
            assert!(list.is_sorted_by(|a, b| a.key > b.key), "bin {bin} is not sorted");
        }
    }
}

/// The number of entries of at least `key`: they come first.
#[inline]
fn n_at_least(list: &[BinsEntry], key: u64) -> usize {
    if list.len() > 8 {
        return list.partition_point(|entry| entry.key >= key);
    }
    list.iter().rposition(|entry| entry.key >= key).map_or(0, |at| at + 1)
}

/// The bin of chunks of `units` units: two an octave.
#[inline]
fn index(units: u32) -> usize {
    let octave = units.ilog2();
    (octave * 2 + (units << (31 - octave) >> 30 & 1)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_in_the_order_of_sizes() {
        assert_eq!([1, 2, 3, 4, 5, 6, 7, 8].map(index), [0, 2, 3, 4, 4, 5, 5, 6]);
        assert_eq!(index(u32::MAX), N_BINS - 1);
        assert!((1..100_000).all(|units| index(units) <= index(units + 1)));
    }
}
