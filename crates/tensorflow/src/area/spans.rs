//! `Spans`: which parts of a stretch of memory are free.

use std::collections::BTreeMap;

/// The free spans of a stretch, by where they begin. No two of them touch.
pub(super) struct Spans {
    free: BTreeMap<usize, usize>,
    in_use: usize,
    /// The distance from the beginning below which anything was ever given out.
    touched: usize,
}

impl Spans {
    /// All of `len` bytes are free.
    pub(super) fn new(len: usize) -> Self {
        Self { free: BTreeMap::from([(0, len)]), in_use: 0, touched: 0 }
    }

    /// Takes the lowest span that is long enough, so that few pages are touched.
    pub(super) fn allocate(&mut self, len: usize) -> Option<usize> {
        assert!(len > 0);
        let (start, free) = self.free.iter().find(|(_, free)| **free >= len)?;
        let (start, free) = (*start, *free);
        self.free.remove(&start);
        if free > len {
            self.free.insert(start + len, free - len);
        }
        self.in_use += len;
        self.touched = self.touched.max(start + len);
        Some(start)
    }

    /// Takes a span back, and merges it with its neighbours.
    pub(super) fn free(&mut self, start: usize, len: usize) {
        assert!(len > 0 && len <= self.in_use);
        self.in_use -= len;
        let (mut start, mut len) = (start, len);
        if let Some((before, free)) = self.free.range(..start).next_back() {
            let (before, free) = (*before, *free);
            assert!(before + free <= start, "a span is freed once");
            if before + free == start {
                self.free.remove(&before);
                (start, len) = (before, free + len);
            }
        }
        if let Some(after) = self.free.remove(&(start + len)) {
            len += after;
        }
        self.free.insert(start, len);
    }

    /// If nothing is given out, how far the memory was touched since it was last asked.
    pub(super) fn reset_if_idle(&mut self) -> Option<usize> {
        (self.in_use == 0).then(|| std::mem::take(&mut self.touched))
    }

    /// The bytes given out.
    #[cfg(test)]
    pub(super) fn in_use(&self) -> usize {
        self.in_use
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_neighbours_become_one() {
        let mut spans = Spans::new(100);
        let all: Vec<usize> = (0..10).map(|_| spans.allocate(10).unwrap()).collect();
        assert_eq!(spans.allocate(1), None);
        for start in [all[1], all[3], all[2], all[0], all[9]] {
            spans.free(start, 10);
        }
        assert_eq!(spans.allocate(40), Some(0));
        assert_eq!(spans.allocate(10), Some(90));
        assert_eq!(spans.in_use(), 100);
    }

    #[test]
    fn any_order_of_freeing_leaves_one_span() {
        let mut state = 1u64;
        let mut random = move |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            usize::try_from(state >> 40).unwrap() % below
        };
        let mut spans = Spans::new(1 << 16);
        let mut held = Vec::new();
        for _ in 0..2000 {
            let len = 64 * (1 + random(16));
            match spans.allocate(len) {
                Some(start) if random(3) > 0 => held.push((start, len)),
                Some(start) => spans.free(start, len),
                None => held.drain(..).for_each(|(start, len)| spans.free(start, len)),
            }
        }
        held.drain(..).for_each(|(start, len)| spans.free(start, len));
        assert_eq!(spans.free, BTreeMap::from([(0, 1 << 16)]));
        assert!(spans.reset_if_idle().is_some());
    }
}
