//! The exact search, in rounds.
//!
//! A round is a [`Tree`] with its own preferences and a limit of nodes. In every other round
//! sections that failed often are important, and stay so for the next such round; the rounds
//! between begin anew, since what was learned from bad choices misleads as often as it helps. Of
//! both kinds there are rounds of every length, the short ones often: a bad early choice costs
//! little, and a round without a limit would find what there is.

use super::problem::{Item, Problem};
use super::tree::{End, Tree};

/// The outcome of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// With an offset for each item, in units.
    Packed(Vec<i64>),
    /// There is no such packing.
    Impossible,
    /// It was told to stop.
    Stopped,
}

/// Searches for a packing until there is one, there is none, or `should_stop` says so.
pub(super) fn search(problem: &Problem, should_stop: &mut dyn FnMut() -> bool) -> Outcome {
    let fresh = vec![1.0; problem.n_sections];
    let mut learned = fresh.clone();
    let mut round = 0;
    loop {
        round += 1;
        let learns = round % 2 == 0;
        let taste = taste(problem, round, if learns { LESSON } else { 0.0 });
        let weights = if learns { &learned } else { &fresh };
        let mut tree = Tree::new(problem, weights.clone(), taste);
        let n_nodes_max = ROUND_NODES * problem.items.len() as u64 * luby(round.div_ceil(2));
        match tree.run(n_nodes_max, should_stop) {
            End::Solved => return Outcome::Packed(tree.into_offsets()),
            End::Failed => return Outcome::Impossible,
            End::Stopped => return Outcome::Stopped,
            End::Limit if learns => learned = tree.into_weights(),
            End::Limit => {}
        }
    }
}

/// The weight that a section gains by a failure, in the rounds that learn.
const LESSON: f32 = 0.1;

/// The preferences of a round.
#[derive(Debug)]
pub(super) struct Taste {
    /// From 0 to 1 for each item: the higher the earlier it is tried.
    pub(super) preference: Vec<f32>,
    /// The most that chance may add to that.
    pub(super) noise: f32,
    /// The weight that a section gains by a failure.
    pub(super) lesson: f32,
    pub(super) random: Random,
}

/// The number of nodes that the shortest round may visit for each item.
const ROUND_NODES: u64 = 5;

const NOISES: [f32; 4] = [0.1, 0.3, 0.6, 1.0];

fn taste(problem: &Problem, round: u64, lesson: f32) -> Taste {
    let mut random = Random(round.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let order = ORDERS[random.below_four()];
    let noise = NOISES[random.below_four()];
    let mut ranks: Vec<usize> = (0..problem.items.len()).collect();
    let load = load(problem);
    ranks.sort_by_cached_key(|&i| std::cmp::Reverse(order(&problem.items[i], &load)));
    let mut preference = vec![0.0; ranks.len()];
    for (rank, i) in ranks.iter().enumerate() {
        preference[*i] = 1.0 - rank as f32 / ranks.len() as f32;
    }
    Taste { preference, noise, lesson, random }
}

type SearchOrder = fn(&Item, &[i64]) -> (i64, i64);

/// The orders of items: by area, by length, by the fullest section that an item is in, by size.
const ORDERS: [SearchOrder; 4] = [
    |item, _| (item.n_sections().saturating_mul(item.units), 0),
    |item, _| (item.n_sections(), item.units),
    |item, load| (load[item.lo..item.hi].iter().copied().max().unwrap_or(0), item.n_sections()),
    |item, _| (item.units, item.n_sections()),
];

/// The units that live in each section.
fn load(problem: &Problem) -> Vec<i64> {
    let mut load = vec![0; problem.n_sections];
    for item in &problem.items {
        load[item.lo..item.hi].iter_mut().for_each(|section| *section += item.units);
    }
    load
}

/// The sequence 1, 1, 2, 1, 1, 2, 4, …: every length, the short ones often.
fn luby(n: u64) -> u64 {
    let mut power = 1;
    while (1 << power) - 1 < n {
        power += 1;
    }
    if (1 << power) - 1 == n { 1 << (power - 1) } else { luby(n - (1 << (power - 1)) + 1) }
}

/// Random numbers, the same for each search.
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    /// A number from 0 to 1.
    pub(super) fn unit(&mut self) -> f32 {
        (self.step() >> 40) as f32 / (1u32 << 24) as f32
    }

    fn below_four(&mut self) -> usize {
        usize::try_from(self.step() >> 62).expect("two bits")
    }

    fn step(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_have_every_length_and_the_short_ones_are_frequent() {
        let lengths: Vec<u64> = (1..=15).map(luby).collect();
        assert_eq!(lengths, [1, 1, 2, 1, 1, 2, 4, 1, 1, 2, 1, 1, 2, 4, 8]);
    }
}
