//! The skyline of the items placed so far, from below: a floor for each section.
//!
//! A *valley* is a run of sections with one floor, between higher ones. The buffers that can lie on
//! the floor of a section in a valley are those that live nowhere but there: its options. Whatever
//! else covers the section lies higher, and if nothing lies on its floor, that is waste. Each
//! section can waste no more than its slack, the capacity less its floor and all that is to come.

use super::problem::{Item, Problem};
use super::waste::Reach;

/// A floor above which nothing is to come.
pub(super) const DONE: i64 = i64::MAX;

/// The state of a search: floors, and what follows from them.
#[derive(Debug)]
pub(super) struct Skyline<'a> {
    pub(super) items: &'a [Item],
    capacity: i64,
    pub(super) sections: Vec<Section>,
    /// The items that begin in each section, those that end with it, and those that cover it.
    pub(super) beginning: Vec<Vec<u32>>,
    ending: Vec<Vec<u32>>,
    pub(super) covering: Vec<Vec<u32>>,
    pub(super) placed: Vec<bool>,
    pub(super) n_left: usize,
    pub(super) offsets: Vec<i64>,
    /// Tops before placements, to be restored in reverse.
    tops: Vec<i64>,
    /// Scratch of `waste.rs`.
    pub(super) carriers: Vec<i64>,
    pub(super) reaches: Vec<Reach>,
}

/// The state of a section.
#[derive(Debug, Clone, Copy)]
pub(super) struct Section {
    /// The height at which the next item can begin.
    pub(super) floor: i64,
    /// The end of the highest placed item; the room between here and the floor is waste.
    pub(super) top: i64,
    /// The units still to be placed.
    pub(super) left: i64,
    /// The valley it is in, as sections; empty if in none.
    pub(super) valley: (u32, u32),
    /// The number of items that can lie on its floor, if it is in a valley.
    pub(super) n_options: i32,
    /// The units of those together.
    pub(super) fill: i64,
    /// The least that is wasted if nothing lies on its floor.
    pub(super) waste: i64,
    /// The units of what begins in its valley and crosses the right wall.
    right: i64,
    /// The lowest offset of what covers it and is no option; `DONE` if there is nothing such.
    pub(super) crossing: i64,
}

impl Section {
    /// The floor, or `DONE` if nothing is to come.
    fn level(&self) -> i64 {
        if self.left == 0 { DONE } else { self.floor }
    }

    pub(super) fn in_valley(&self) -> bool {
        self.valley.1 > 0
    }
}

impl<'a> Skyline<'a> {
    pub(super) fn new(problem: &'a Problem) -> Skyline<'a> {
        let n = problem.n_sections;
        let empty = Section {
            floor: 0,
            top: 0,
            left: 0,
            valley: (0, 0),
            n_options: 0,
            fill: 0,
            waste: 0,
            right: 0,
            crossing: DONE,
        };
        let mut skyline = Skyline {
            items: &problem.items,
            capacity: problem.capacity,
            sections: vec![empty; n],
            beginning: vec![Vec::new(); n],
            ending: vec![Vec::new(); n],
            covering: vec![Vec::new(); n],
            placed: vec![false; problem.items.len()],
            n_left: problem.items.len(),
            offsets: vec![0; problem.items.len()],
            tops: Vec::new(),
            carriers: Vec::new(),
            reaches: Vec::new(),
        };
        for (item, id) in problem.items.iter().zip(0u32..) {
            skyline.beginning[item.lo].push(id);
            skyline.ending[item.hi - 1].push(id);
            for section in item.lo..item.hi {
                skyline.covering[section].push(id);
                skyline.sections[section].left += item.units;
            }
        }
        skyline.update(0, n);
        skyline
    }

    /// The units that a section can still waste; negative if it is too full already.
    pub(super) fn slack(&self, section: usize) -> i64 {
        let Section { floor, left, .. } = self.sections[section];
        self.capacity - floor - left
    }

    /// The level of a section; `DONE` outside.
    pub(super) fn level(&self, section: usize) -> i64 {
        self.sections.get(section).map_or(DONE, Section::level)
    }

    /// Returns whether an item that covers a section of this valley fits into it.
    pub(super) fn fits(&self, item: u32, valley: (u32, u32)) -> bool {
        let Item { lo, hi, .. } = self.items[item as usize];
        valley.0 as usize <= lo && hi <= valley.1 as usize
    }

    /// Returns whether the item rests on another or on the ground at `floor`; otherwise it could
    /// sink.
    pub(super) fn is_supported(&self, item: u32, floor: i64) -> bool {
        let Item { lo, hi, .. } = self.items[item as usize];
        floor == 0 || self.sections[lo..hi].iter().any(|section| section.top == floor)
    }

    /// The first section that would be too full with the item at `floor`.
    pub(super) fn overfull(&self, item: u32, floor: i64) -> Option<usize> {
        let Item { lo, hi, .. } = self.items[item as usize];
        (lo..hi).find(|section| floor + self.sections[*section].left > self.capacity)
    }

    /// Puts an item on the floor of the valley it fits into.
    pub(super) fn place(&mut self, item: u32) {
        let Item { lo, hi, units } = self.items[item as usize];
        let floor = self.sections[lo].floor;
        for section in &mut self.sections[lo..hi] {
            self.tops.push(section.top);
            section.floor = floor + units;
            section.top = floor + units;
            section.left -= units;
        }
        self.offsets[item as usize] = floor;
        self.placed[item as usize] = true;
        self.n_left -= 1;
        self.update(lo, hi);
    }

    /// Undoes the latest placement.
    pub(super) fn unplace(&mut self, item: u32) {
        let Item { lo, hi, units } = self.items[item as usize];
        for section in self.sections[lo..hi].iter_mut().rev() {
            section.top = self.tops.pop().expect("a top for each section of each placement");
            section.floor -= units;
            section.left += units;
        }
        self.placed[item as usize] = false;
        self.n_left += 1;
        self.update(lo, hi);
    }

    /// Moves the floor of a section; what is above its top is waste.
    pub(super) fn set_floor(&mut self, section: usize, floor: i64) {
        self.sections[section].floor = floor;
        self.update(section, section + 1);
    }

    /// Finds the valleys and options anew around sections whose levels have changed.
    fn update(&mut self, lo: usize, hi: usize) {
        let n = self.sections.len();
        let mut start = lo.saturating_sub(1);
        while start > 0 && self.level(start - 1) == self.level(start) {
            start -= 1;
        }
        let mut end = (hi + 1).min(n);
        while end < n && self.level(end) == self.level(end - 1) {
            end += 1;
        }
        let mut at = start;
        let mut before = if start == 0 { DONE } else { self.level(start - 1) };
        while at < end {
            let level = self.level(at);
            let mut next = at + 1;
            while next < end && self.level(next) == level {
                next += 1;
            }
            let after = self.level(next);
            match level != DONE && before.min(after) > level {
                true => {
                    self.set_valley(at, next, before.min(after) - level);
                    self.set_crossing(at, next, before, after);
                }
                false => self.sections[at..next].iter_mut().for_each(|s| s.valley = (0, 0)),
            }
            before = level;
            at = next;
        }
    }

    /// Makes a run of sections a valley below walls of at least `depth`, and finds its options.
    fn set_valley(&mut self, lo: usize, hi: usize, depth: i64) {
        let bound = |section: usize| u32::try_from(section).expect("sections are few");
        let valley = (bound(lo), bound(hi));
        for section in &mut self.sections[lo..hi] {
            section.valley = valley;
            section.n_options = 0;
            section.fill = 0;
        }
        // Each item counts where it begins, and no longer where it has ended.
        let mut smallest = depth;
        for section in lo..hi {
            for &id in &self.beginning[section] {
                let item = self.items[id as usize];
                if !self.placed[id as usize] && item.hi <= hi {
                    smallest = smallest.min(item.units);
                    self.sections[section].n_options += 1;
                    self.sections[section].fill += item.units;
                    if item.hi < hi {
                        self.sections[item.hi].n_options -= 1;
                        self.sections[item.hi].fill -= item.units;
                    }
                }
            }
        }
        let (mut n_options, mut fill) = (0, 0);
        for section in &mut self.sections[lo..hi] {
            n_options += section.n_options;
            fill += section.fill;
            section.n_options = n_options;
            section.fill = fill;
            section.waste = if n_options == 0 { depth } else { smallest };
        }
    }

    /// Finds where what crosses the walls of a valley can begin, at the earliest.
    fn set_crossing(&mut self, lo: usize, hi: usize, before: i64, after: i64) {
        let mut right = 0;
        for at in lo..hi {
            for &id in &self.beginning[at] {
                let item = self.items[id as usize];
                if !self.placed[id as usize] && item.hi > hi {
                    right += item.units;
                }
            }
            let section = &mut self.sections[at];
            section.crossing = if right > 0 { after } else { DONE };
            section.right = right;
        }
        let mut left = 0;
        for at in (lo..hi).rev() {
            for &id in &self.ending[at] {
                let item = self.items[id as usize];
                if !self.placed[id as usize] && item.lo < lo {
                    left += item.units;
                }
            }
            let section = &mut self.sections[at];
            if left > 0 {
                section.crossing = section.crossing.min(before);
            }
            if section.left > section.fill + section.right + left {
                section.crossing = section.crossing.min(before.max(after));
            }
        }
    }

    /// The number of ways to go on in a section of a valley: 0 if it must waste too much.
    pub(super) fn n_ways(&self, section: usize) -> i32 {
        let slack = self.slack(section);
        let Section { floor, n_options, fill, waste, crossing, .. } = self.sections[section];
        if crossing != DONE && crossing - floor - fill > slack {
            return 0;
        }
        n_options + i32::from(waste <= slack)
    }
}
