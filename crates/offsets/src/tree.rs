//! One round of the exact search: places items from below until all are placed or no way is left.
//!
//! Each node picks the section in a valley with the fewest ways to go on, and tries them all: every
//! item that can lie on its floor, and then wasting what is there. It thinks only of packings in
//! which nothing can sink, since every packing can be made such. A failure comes with a reason, the
//! sections it depends on; a choice that touches none of these is not tried otherwise.

use super::problem::{Item, Problem};
use super::reasons::Reasons;
use super::search::Taste;
use super::skyline::{DONE, Skyline};

/// A search tree, as far as the way to the current node.
#[derive(Debug)]
pub(super) struct Tree<'a> {
    skyline: Skyline<'a>,
    taste: Taste,
    /// The weight of each section: it grows with the section's failures.
    weights: Vec<f32>,
    nodes: Vec<TreeNode>,
    /// The options left of all nodes, each with its value; the best of a node last.
    options: Vec<(f32, u32)>,
    reasons: Reasons,
    n_nodes: u64,
}

/// The end of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Solved,
    Failed,
    Limit,
    Stopped,
}

#[derive(Debug, Clone, Copy)]
struct TreeNode {
    section: usize,
    /// Its options are those from here on, as far as the next node's.
    first: usize,
    /// The number of options left.
    n_left: usize,
    choice: TreeChoice,
}

#[derive(Debug, Clone, Copy)]
enum TreeChoice {
    Nothing,
    Item(u32),
    /// The floor of the section was raised from here.
    Waste(i64),
}

/// The last step of the search.
enum TreeStep {
    /// A node was added, or has to try its next option.
    Entered,
    /// A choice was made.
    Chose,
    /// The last node failed, and is gone.
    Failed,
    Ended(End),
}

/// The number of nodes visited between two looks at the clock.
const STOP_NODES: u64 = 64;

/// Wasting little by little could lead very deep; this bounds the memory of a tree.
const DEPTH_MAX: usize = 1 << 16;

/// The value that an option gains by lying against a wall, and against one as high as itself.
const WALL_VALUE: f32 = 0.2;
const STEP_VALUE: f32 = 0.7;

impl<'a> Tree<'a> {
    pub(super) fn new(problem: &'a Problem, weights: Vec<f32>, taste: Taste) -> Tree<'a> {
        assert_eq!(weights.len(), problem.n_sections);
        Tree {
            skyline: Skyline::new(problem),
            taste,
            weights,
            nodes: Vec::new(),
            options: Vec::new(),
            reasons: Reasons::new(problem.n_sections),
            n_nodes: 0,
        }
    }

    /// Searches until the end, or at most so many nodes.
    pub(super) fn run(&mut self, n_nodes_max: u64, should_stop: &mut dyn FnMut() -> bool) -> End {
        if (0..self.skyline.sections.len()).any(|section| self.skyline.slack(section) < 0) {
            return End::Failed;
        }
        let mut step = self.enter();
        loop {
            step = match step {
                TreeStep::Entered => self.choose(),
                TreeStep::Chose if self.n_nodes >= n_nodes_max => return End::Limit,
                TreeStep::Chose if self.nodes.len() >= DEPTH_MAX => return End::Limit,
                TreeStep::Chose if self.n_nodes.is_multiple_of(STOP_NODES) && should_stop() => {
                    return End::Stopped;
                }
                TreeStep::Chose => self.enter(),
                TreeStep::Failed => self.retreat(),
                TreeStep::Ended(end) => return end,
            }
        }
    }

    /// The offset of each item, when the tree is solved.
    pub(super) fn into_offsets(self) -> Vec<i64> {
        assert_eq!(self.skyline.n_left, 0, "every item is placed");
        self.skyline.offsets
    }

    /// The weights that the sections have got.
    pub(super) fn into_weights(self) -> Vec<f32> {
        self.weights
    }

    /// Adds a node.
    fn enter(&mut self) -> TreeStep {
        if self.skyline.n_left == 0 {
            return TreeStep::Ended(End::Solved);
        }
        self.n_nodes += 1;
        let depth = self.nodes.len();
        self.reasons.clear(depth);
        let section = match self.pick() {
            Ok(section) => section,
            Err(section) => {
                self.weights[section] += self.taste.lesson;
                self.explain_walls(depth, section);
                return TreeStep::Failed;
            }
        };
        let first = self.options.len();
        self.push_options(section);
        let n_left = self.options.len() - first;
        self.nodes.push(TreeNode { section, first, n_left, choice: TreeChoice::Nothing });
        TreeStep::Entered
    }

    /// The section in a valley with the fewest ways to go on for its weight; one without any as an
    /// error.
    fn pick(&self) -> Result<usize, usize> {
        let mut best = (f32::INFINITY, DONE, 0);
        for (at, section) in self.skyline.sections.iter().enumerate() {
            if !section.in_valley() {
                continue;
            }
            let n_ways = self.skyline.n_ways(at);
            if n_ways == 0 {
                return Err(at);
            }
            let ways = n_ways as f32 / self.weights[at];
            if ways < best.0 || ways == best.0 && section.floor < best.1 {
                best = (ways, section.floor, at);
            }
        }
        Ok(best.2)
    }

    /// Pushes the items that can lie on the floor of a section.
    fn push_options(&mut self, section: usize) {
        let first = self.options.len();
        let skyline = &self.skyline;
        let floor = skyline.sections[section].floor;
        let valley = skyline.sections[section].valley;
        let (lo, hi) = (valley.0 as usize, valley.1 as usize);
        let left = if lo == 0 { DONE } else { skyline.level(lo - 1) };
        let right = skyline.level(hi);
        for &id in &skyline.covering[section] {
            if skyline.placed[id as usize] || !skyline.fits(id, valley) {
                continue;
            }
            let item = skyline.items[id as usize];
            let mut value = self.taste.preference[id as usize];
            for (touches, wall) in [(item.lo == lo, left), (item.hi == hi, right)] {
                if touches {
                    value += if floor + item.units == wall { STEP_VALUE } else { WALL_VALUE };
                }
            }
            value += self.taste.random.unit() * self.taste.noise;
            self.options.push((value, id));
        }
        self.options[first..].sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    }

    /// Makes the next choice of the last node.
    fn choose(&mut self) -> TreeStep {
        let depth = self.nodes.len() - 1;
        while self.nodes[depth].n_left > 0 {
            self.nodes[depth].n_left -= 1;
            let TreeNode { first, n_left, .. } = self.nodes[depth];
            let id = self.options[first + n_left].1;
            if self.can_place(depth, id) {
                self.skyline.place(id);
                self.nodes[depth].choice = TreeChoice::Item(id);
                return TreeStep::Chose;
            }
        }
        if let Some(floor) = self.waste(depth) {
            self.nodes[depth].choice = TreeChoice::Waste(floor);
            return TreeStep::Chose;
        }
        self.give_up()
    }

    /// Returns whether the item is worth trying at the node; if not, adds the reason.
    fn can_place(&mut self, depth: usize, id: u32) -> bool {
        let TreeNode { section, first, n_left, .. } = self.nodes[depth];
        let floor = self.skyline.sections[section].floor;
        let item = self.skyline.items[id as usize];
        let tried = &self.options[first + n_left + 1..];
        if tried.iter().any(|(_, other)| self.skyline.items[*other as usize] == item) {
            return false; // The same for the rest of the world.
        }
        if let Some(overfull) = self.skyline.overfull(id, floor) {
            self.reasons.add(depth, overfull);
            self.weights[overfull] += self.taste.lesson;
            return false;
        }
        if !self.skyline.is_supported(id, floor) {
            self.add_item(depth, item);
            return false;
        }
        true
    }

    /// Leaves the floor of the node's section empty, if that can be; returns the floor.
    fn waste(&mut self, depth: usize) -> Option<i64> {
        let section = self.nodes[depth].section;
        let slack = self.skyline.slack(section);
        if slack <= 0 {
            return None;
        }
        let (lo, hi) = self.skyline.sections[section].valley;
        let around = (lo as usize).saturating_sub(1)..hi as usize + 1;
        for near in around.start..around.end.min(self.skyline.sections.len()) {
            self.reasons.add(depth, near);
        }
        let floor = self.skyline.sections[section].floor;
        let next = self.skyline.next_floor(section)?;
        if next - floor > slack {
            return None;
        }
        self.skyline.set_floor(section, next);
        if let Some(item) = self.skyline.sinking(section) {
            self.skyline.set_floor(section, floor);
            self.add_item(depth, item);
            return None;
        }
        Some(floor)
    }

    /// Undoes the choice of the last node, since what follows from it failed.
    fn retreat(&mut self) -> TreeStep {
        let Some(depth) = self.nodes.len().checked_sub(1) else {
            return TreeStep::Ended(End::Failed);
        };
        let TreeNode { section, choice, first, .. } = self.nodes[depth];
        let (lo, hi) = match choice {
            TreeChoice::Item(id) => {
                self.skyline.unplace(id);
                let item = self.skyline.items[id as usize];
                (item.lo, item.hi)
            }
            TreeChoice::Waste(floor) => {
                self.skyline.set_floor(section, floor);
                (section, section + 1)
            }
            TreeChoice::Nothing => unreachable!("a node fails only after its choice"),
        };
        if self.reasons.inherit(depth, lo, hi) {
            self.options.truncate(first);
            self.nodes.pop();
            return TreeStep::Failed;
        }
        match choice {
            TreeChoice::Waste(_) => self.give_up(),
            TreeChoice::Item(_) | TreeChoice::Nothing => TreeStep::Entered,
        }
    }

    /// Every choice of the last node failed.
    fn give_up(&mut self) -> TreeStep {
        let node = self.nodes.pop().expect("a node gives up");
        self.options.truncate(node.first);
        self.weights[node.section] += self.taste.lesson;
        self.explain_options(self.nodes.len(), node.section);
        TreeStep::Failed
    }

    /// Adds why a section has no way to go on: its own state, and the walls of its valley.
    fn explain_walls(&mut self, depth: usize, section: usize) {
        self.reasons.add(depth, section);
        let (lo, hi) = self.skyline.sections[section].valley;
        if lo > 0 {
            self.reasons.add(depth, lo as usize - 1);
        }
        if (hi as usize) < self.skyline.sections.len() {
            self.reasons.add(depth, hi as usize);
        }
    }

    /// Adds why no other item can lie on the floor of the section: a wall for each.
    fn explain_options(&mut self, depth: usize, section: usize) {
        self.reasons.add(depth, section);
        let valley = self.skyline.sections[section].valley;
        let (lo, hi) = (valley.0 as usize, valley.1 as usize);
        let (mut left, mut right) = (false, false);
        for &id in &self.skyline.covering[section] {
            let item = self.skyline.items[id as usize];
            if !self.skyline.placed[id as usize] {
                left |= item.lo < lo && item.hi <= hi;
                right |= item.hi > hi;
            }
        }
        if left {
            self.reasons.add(depth, lo - 1);
        }
        if right {
            self.reasons.add(depth, hi);
        }
    }

    fn add_item(&mut self, depth: usize, item: Item) {
        (item.lo..item.hi).for_each(|section| self.reasons.add(depth, section));
    }
}
