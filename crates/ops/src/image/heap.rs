//! `Heap`: the largest of many, in memory that is given.

/// Elements of a slice of which the largest is at hand.
pub(super) struct Heap<'a, T> {
    slots: &'a mut [T],
    /// The number of elements in use: none is smaller than the two at twice its place.
    len: usize,
}

impl<'a, T: Ord + Copy> Heap<'a, T> {
    /// An empty heap of at most as many elements as there are slots.
    pub(super) fn new(slots: &'a mut [T]) -> Self {
        Self { slots, len: 0 }
    }

    /// Adds an element.
    ///
    /// # Panics
    /// If there is no slot left.
    pub(super) fn push(&mut self, element: T) {
        let mut at = self.len;
        self.len += 1;
        self.slots[at] = element;
        while at > 0 && self.slots[at] > self.slots[(at - 1) / 2] {
            self.slots.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
    }

    /// Takes the largest element.
    pub(super) fn pop(&mut self) -> Option<T> {
        self.len = self.len.checked_sub(1)?;
        self.slots.swap(0, self.len);
        let mut at = 0;
        loop {
            let children = 2 * at + 1..(2 * at + 3).min(self.len);
            let Some(child) = children.max_by_key(|child| self.slots[*child]) else { break };
            if self.slots[child] <= self.slots[at] {
                break;
            }
            self.slots.swap(at, child);
            at = child;
        }
        Some(self.slots[self.len])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_come_out_from_large_to_small() {
        let mut slots = [0; 50];
        let mut heap = Heap::new(&mut slots);
        let mut sorted: Vec<u32> = (0..50u32).map(|i| i * i % 37).collect();
        sorted.iter().for_each(|x| heap.push(*x));
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        let mut popped: Vec<u32> = (0..20).filter_map(|_| heap.pop()).collect();
        heap.push(sorted[0] + 1);
        assert_eq!(heap.pop(), Some(sorted[0] + 1));
        popped.extend((0..40).filter_map(|_| heap.pop()));
        assert_eq!(popped, sorted);
    }
}
