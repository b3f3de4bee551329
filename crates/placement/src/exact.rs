//! The best there is, found by trying everything: what a placement is measured by.

/// The most bytes of items of these sizes that can be on devices with so much free, each item on
/// one of them.
///
/// Takes time exponential in the number of items: for tests.
pub(crate) fn most_bytes(free: &[u64], sizes: &[u64]) -> u64 {
    let mut sizes = sizes.to_vec();
    sizes.sort_unstable_by_key(|bytes| std::cmp::Reverse(*bytes));
    let mut rest = vec![0u64; sizes.len() + 1];
    for (at, bytes) in sizes.iter().enumerate().rev() {
        rest[at] = rest[at + 1].saturating_add(*bytes);
    }
    let mut search = Search { sizes: &sizes, rest, free: free.to_vec(), best: 0 };
    search.run(0, 0);
    search.best
}

struct Search<'a> {
    /// The largest first.
    sizes: &'a [u64],
    /// The bytes of each item and those behind it together.
    rest: Vec<u64>,
    free: Vec<u64>,
    best: u64,
}

impl Search<'_> {
    /// Tries every place for the items from `at` on, when `placed` bytes are placed.
    fn run(&mut self, at: usize, placed: u64) {
        self.best = self.best.max(placed);
        let Some(bytes) = self.sizes.get(at).copied() else { return };
        let smallest = self.sizes.last().copied().unwrap_or(0);
        // Room in which not even the smallest fits is of no use.
        let room = self.free.iter().filter(|free| **free >= smallest);
        let room = room.fold(0u64, |sum, free| sum.saturating_add(*free));
        if placed.saturating_add(room.min(self.rest[at])) <= self.best {
            return;
        }
        for device in 0..self.free.len() {
            let free = self.free[device];
            // Devices with as much free are the same to what follows.
            if bytes > free || self.free[..device].contains(&free) {
                continue;
            }
            self.free[device] -= bytes;
            self.run(at + 1, placed + bytes);
            self.free[device] = free;
        }
        self.run(at + 1, placed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_is_found() {
        assert_eq!(most_bytes(&[], &[1]), 0);
        assert_eq!(most_bytes(&[10], &[]), 0);
        assert_eq!(most_bytes(&[10], &[7, 5, 5]), 10);
        assert_eq!(most_bytes(&[10, 7], &[7, 5, 5]), 17);
        assert_eq!(most_bytes(&[10, 7], &[8, 6, 5, 5]), 16);
        assert_eq!(most_bytes(&[3, 3, 3], &[2, 2, 2, 2]), 6);
        assert_eq!(most_bytes(&[1 << 60, 5], &[1 << 60, 5]), (1 << 60) + 5);
    }
}
