//! Reasons of failed nodes: for each depth, a set of sections.

/// Sets of sections, one for each depth of a tree.
#[derive(Debug)]
pub(super) struct Reasons {
    bits: Vec<u64>,
    words: usize,
}

impl Reasons {
    pub(super) fn new(n_sections: usize) -> Reasons {
        Reasons { bits: Vec::new(), words: n_sections.div_ceil(64) }
    }

    /// Empties the set of `depth`.
    pub(super) fn clear(&mut self, depth: usize) {
        let end = (depth + 2) * self.words;
        if self.bits.len() < end {
            self.bits.resize(end, 0);
        }
        self.bits[depth * self.words..][..self.words].fill(0);
    }

    pub(super) fn add(&mut self, depth: usize, section: usize) {
        self.bits[depth * self.words + section / 64] |= 1 << (section % 64);
    }

    /// Adds the set of the node below to that of `depth`. If it has nothing to do with the sections
    /// `lo..hi`, which the choice there touched, it is the whole reason, and the answer is yes.
    pub(super) fn inherit(&mut self, depth: usize, lo: usize, hi: usize) -> bool {
        let (above, below) = self.bits.split_at_mut((depth + 1) * self.words);
        let (own, child) = (&mut above[depth * self.words..], &below[..self.words]);
        let concerns = |section: usize| child[section / 64] >> (section % 64) & 1 == 1;
        let is_whole = !(lo..hi).any(concerns);
        for (own, child) in own.iter_mut().zip(child) {
            *own = if is_whole { *child } else { *own | *child };
        }
        is_whole
    }
}
