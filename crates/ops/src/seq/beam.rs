//! Beam search over label sequences with blanks.
//!
//! Follows `ctc_beam_search.h` of TensorFlow, without a language model: a beam is a label sequence
//! with the probabilities that it ends in a blank and that it ends in its last label.

use std::cmp::Ordering;

use rustc_hash::FxHashMap;

use super::ctc::Paths;
use crate::prelude::*;

/// The logarithm of no probability.
const NONE: f64 = f64::NEG_INFINITY;

/// Logarithms of the probabilities of a sequence.
#[derive(Debug, Clone, Copy)]
struct Score {
    total: f64,
    blank: f64,
    label: f64,
}

impl Score {
    const ZERO: Self = Self { total: NONE, blank: NONE, label: NONE };
}

/// A label sequence: that of its parent and one more label.
struct BeamNode {
    parent: Option<usize>,
    label: i64,
    before: Score,
    now: Score,
}

/// All sequences that were ever in the beam, by number, and those that are.
struct Beam {
    nodes: BookedVec<BeamNode>,
    children: FxHashMap<(usize, i64), usize>,
    /// For the places of the children.
    booked: Booked,
    leaves: BookedVec<usize>,
    width: usize,
    /// The place among the leaves of the least likely one and its probability, once asked for.
    bottom: Option<(usize, f64)>,
}

/// The best sequences of a row of outputs over time, best first. Fails if there are too few.
pub(super) fn search<'a>(
    steps: impl Iterator<Item = &'a [f64]>,
    width: usize,
    n_paths: usize,
    merge: bool,
) -> Result<Paths> {
    let root = Score { total: 0.0, blank: 0.0, label: NONE };
    let node = BeamNode { parent: None, label: -1, before: root, now: root };
    let mut beam = Beam {
        nodes: BookedVec::collect([node])?,
        children: FxHashMap::default(),
        booked: Booked::nothing(),
        leaves: BookedVec::filled(0, 1)?,
        width,
        bottom: None,
    };
    for step in steps {
        pace(1 << 16)?;
        beam.step(step)?;
    }
    beam.sort();
    if beam.leaves.len() < n_paths {
        // The text is TensorFlow's.
        return invalid!("Less leaves in the beam search than requested.");
    }
    let mut paths = BookedVec::with_capacity(n_paths)?;
    for leaf in &beam.leaves[..n_paths] {
        paths.push((beam.labels(*leaf, merge)?, beam.nodes[*leaf].now.total))?;
    }
    Ok(paths)
}

impl Beam {
    /// Orders the leaves by falling probability.
    fn sort(&mut self) {
        let nodes = &self.nodes;
        let total = |leaf: &usize| nodes[*leaf].now.total;
        self.leaves.sort_by(|a, b| total(b).partial_cmp(&total(a)).unwrap_or(Ordering::Equal));
    }

    fn step(&mut self, x: &[f64]) -> Result<()> {
        let max = x.iter().copied().fold(NONE, f64::max);
        let norm = max + x.iter().map(|x| (x - max).exp()).sum::<f64>().ln();
        self.sort();
        let branches = std::mem::take(&mut self.leaves);
        for branch in branches.iter() {
            self.nodes[*branch].before = self.nodes[*branch].now;
        }
        for branch in branches.iter() {
            self.stay(*branch, x, norm);
            self.leaves.push(*branch)?;
        }
        self.bottom = None;
        for branch in branches.iter() {
            self.grow(*branch, x, norm)?;
        }
        Ok(())
    }

    /// The sequence stays as it is: its last label is repeated, or a blank follows.
    fn stay(&mut self, at: usize, x: &[f64], norm: f64) {
        let node = &self.nodes[at];
        let mut now = node.now;
        if let Some(parent) = node.parent.map(|parent| &self.nodes[parent]) {
            if parent.now.total > NONE {
                let same = node.label == parent.label;
                let previous = if same { parent.before.blank } else { parent.before.total };
                now.label = log_sum(now.label, previous);
            }
            now.label += x[node.label as usize] - norm;
        }
        now.blank = node.before.total + x[x.len() - 1] - norm;
        now.total = log_sum(now.blank, now.label);
        self.nodes[at].now = now;
    }

    /// Adds the sequences that are longer by a label, if they are likely enough.
    fn grow(&mut self, at: usize, x: &[f64], norm: f64) -> Result<()> {
        if !self.is_candidate(self.nodes[at].before.total) {
            return Ok(());
        }
        for (label, x) in x[..x.len() - 1].iter().enumerate() {
            let label = label as i64;
            let known = self.children.get(&(at, label)).copied();
            if known.is_some_and(|child| self.nodes[child].now.total > NONE) {
                continue;
            }
            let parent = &self.nodes[at];
            let previous =
                if parent.label == label { parent.before.blank } else { parent.before.total };
            let score = x - norm + previous;
            if !self.is_candidate(score) {
                if let Some(child) = known {
                    self.nodes[child].before = Score::ZERO;
                }
                continue;
            }
            if self.leaves.len() == self.width {
                self.drop_worst();
            }
            let now = Score { total: score, blank: NONE, label: score };
            let child = known.unwrap_or(self.nodes.len());
            if known.is_some() {
                // What it was before stays: dropped in this step, it may still grow in this step.
                self.nodes[child].now = now;
            } else {
                self.nodes.push(BeamNode { parent: Some(at), label, before: Score::ZERO, now })?;
                self.add_child((at, label), child)?;
            }
            self.leaves.push(child)?;
            self.bottom = None;
        }
        Ok(())
    }

    fn add_child(&mut self, key: (usize, i64), child: usize) -> Result<()> {
        if self.children.len() == self.children.capacity() {
            // Twice as many places with their marks, and the old ones while they are moved.
            let n_places = 4 * (self.children.len() + 4);
            self.booked = Booked::new(n_places * (size_of::<((usize, i64), usize)>() + 1))?;
        }
        self.children.insert(key, child);
        Ok(())
    }

    /// Returns whether a sequence of this probability belongs to the beam.
    fn is_candidate(&mut self, total: f64) -> bool {
        total > NONE
            && (self.leaves.len() < self.width
                || self.worst().is_none_or(|(_, worst)| total > worst))
    }

    /// The place among the leaves of the least likely one, and its probability.
    fn worst(&mut self) -> Option<(usize, f64)> {
        if self.bottom.is_none() {
            let totals = self.leaves.iter().map(|leaf| self.nodes[*leaf].now.total);
            let compare = |a: &(usize, f64), b: &(usize, f64)| a.1.partial_cmp(&b.1);
            self.bottom =
                totals.enumerate().min_by(|a, b| compare(a, b).unwrap_or(Ordering::Equal));
        }
        self.bottom
    }

    fn drop_worst(&mut self) {
        if let Some((place, _)) = self.worst() {
            let last = self.leaves.len() - 1;
            self.leaves.swap(place, last);
            let Some(leaf) = self.leaves.pop() else { return };
            self.nodes[leaf].now = Score::ZERO;
            self.bottom = None;
        }
    }

    fn labels(&self, leaf: usize, merge: bool) -> Result<BookedVec<i64>> {
        let (mut labels, mut after, mut at) = (BookedVec::new(), -1, leaf);
        while let Some(parent) = self.nodes[at].parent {
            let label = self.nodes[at].label;
            if !merge || label != after {
                labels.push(label)?;
            }
            (after, at) = (label, parent);
        }
        labels.reverse();
        Ok(labels)
    }
}

fn log_sum(a: f64, b: f64) -> f64 {
    match (a, b) {
        (NONE, other) | (other, NONE) => other,
        _ if a > b => a + (b - a).exp().ln_1p(),
        _ => b + (a - b).exp().ln_1p(),
    }
}
