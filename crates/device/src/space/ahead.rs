//! Memory that is taken before a request needs it, and not on its thread.
//!
//! When a model is loaded, what its batches need is taken ahead ([`Space::grow_ahead`]). A space
//! that was idle gives all but a little back and remembers how much was used ([`Space::rest`]);
//! when a request is on its way, as much is taken again ([`Space::wake`]). A run that needs more
//! than any before it grows the space itself; afterwards some more is taken, so that the next
//! larger one does not ([`Space::catch_up`]). What is taken ahead is free memory like any other:
//! whoever needs it gets it, and limits hold.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::Space;
use super::arenas::{Arenas, IDLE};
use super::shelf::Shelf;
use crate::arena::{Arena, Chunk};
use crate::driver::Driver as _;
use crate::error::Result;
use crate::logical::GrowthRule;
use crate::sync::{AtomicU64, Mutex};

/// The most that an idle space holds of what nobody uses.
const KEPT_BYTES: u64 = 4 << 20;

/// The most that is taken ahead for what may come.
pub const AHEAD_BYTES_MAX: u64 = 256 << 20;

/// The bytes that get their pages before other threads get their turn.
const STEP_BYTES: u64 = 256 << 10;

/// The cause of growths.
const AHEAD: &str = "ahead";

/// Memory that was taken ahead, and whose pages are not all there yet.
pub struct Pages {
    /// Addresses, and whose memory they are.
    left: Vec<(Arc<Arenas>, Range<u64>)>,
}

/// The need of past runs for passing memory.
#[derive(Debug, Default)]
pub(super) struct Demand {
    /// The bytes in use before the space rested; 0 if it does not rest.
    rested: AtomicU64,
    /// The memory of runs that was larger than any before it, or that the space grew for, and that
    /// nothing is behind yet.
    outgrown: Mutex<Vec<Large>>,
    /// The largest since the space rested.
    most_bytes: AtomicU64,
}

/// Memory of a run.
#[derive(Debug)]
struct Large {
    address: u64,
    bytes: u64,
    /// Set when the space grew for the run: no such run was known before.
    is_growth: bool,
}

/// So many lanes are thought of at once.
const N_OUTGROWN_MAX: usize = 64;

impl Demand {
    /// Notes memory that a run got. In steady state that costs next to nothing.
    pub(super) fn note(&self, chunk: &Chunk, is_growth: bool) {
        let most = self.most_bytes.fetch_max(chunk.bytes(), Ordering::Relaxed);
        if is_growth || chunk.bytes() > most {
            let mut outgrown = self.outgrown.lock();
            if outgrown.len() < N_OUTGROWN_MAX {
                let (address, bytes) = (chunk.address(), chunk.bytes());
                outgrown.push(Large { address, bytes, is_growth });
            }
        }
    }

    /// Returns whether a run was larger than any before it, or the space grew for it.
    fn is_outgrown(&self) -> bool {
        !self.outgrown.lock().is_empty()
    }

    /// Takes the runs that nothing is behind yet.
    fn take_outgrown(&self) -> Vec<Large> {
        std::mem::take(&mut *self.outgrown.lock())
    }

    /// Remembers how much was used, if less is held by now; runs from now on are the first.
    fn remember(&self, used_bytes: u64, held_bytes: u64) {
        self.most_bytes.store(0, Ordering::Relaxed);
        self.outgrown.lock().clear();
        if used_bytes > held_bytes {
            self.rested.fetch_max(used_bytes, Ordering::Relaxed);
        }
    }

    fn is_at_rest(&self) -> bool {
        self.rested.load(Ordering::Relaxed) > 0
    }

    /// Takes what was in use before the space rested; it does not rest any more.
    fn take_rested(&self) -> u64 {
        self.rested.swap(0, Ordering::Relaxed)
    }

    /// Asserts that the runs are as few as they may be, and no larger than the largest.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let outgrown = self.outgrown.lock();
        assert!(outgrown.len() <= N_OUTGROWN_MAX, "so many lanes are thought of at once");
        let most = self.most_bytes.load(Ordering::Relaxed);
        assert!(outgrown.iter().all(|large| large.bytes <= most), "the largest is remembered");
    }
}

impl Pages {
    /// Puts some of the pages there; `false` when all are.
    pub fn step(&mut self) -> bool {
        let Some((arenas, range)) = self.left.last_mut() else { return false };
        let step = STEP_BYTES.max(arenas.driver().properties().granule_bytes);
        let some = range.start..range.end.min(range.start + step);
        range.start = some.end;
        let is_done = range.is_empty();
        // With the lock, so that nobody takes the memory away meanwhile.
        arenas.passing().lock().populate(&some);
        if is_done {
            self.left.pop();
        }
        !self.left.is_empty()
    }
}

impl std::fmt::Debug for Pages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.left.iter().map(|(_, addresses)| addresses)).finish()
    }
}

impl Arenas {
    /// Gives back all that nobody uses but a few megabytes, and remembers how much was used.
    fn rest(&self) -> Result<u64> {
        let is_other = |shelf: &&Shelf| !std::ptr::eq(*shelf, self.passing());
        let mut went = 0;
        for shelf in self.iter().filter(is_other) {
            went += self.trim(shelf, 0, IDLE)?;
        }
        let idle: u64 = self.iter().filter(is_other).map(Shelf::idle_bytes).sum();
        let used = self.passing().lock().take_recent_peak();
        went += self.trim(self.passing(), KEPT_BYTES.saturating_sub(idle), IDLE)?;
        self.demand.remember(used, self.passing().lock().held_bytes());
        Ok(went)
    }

    /// Takes as much memory as was in use before the space rested, if it does.
    fn wake(self: &Arc<Self>) -> Option<Pages> {
        let used = self.demand.take_rested();
        let in_use = if used > 0 { self.passing().lock().in_use_bytes() } else { 0 };
        let more = used.checked_sub(in_use).filter(|more| *more > 0)?;
        Some(self.take_ahead(|arena| arena.grow_again(more)))
    }

    /// Takes some memory behind that of runs which needed more than any before them.
    fn catch_up(self: &Arc<Self>) -> Option<Pages> {
        let outgrown = self.demand.take_outgrown();
        if outgrown.is_empty() {
            return None;
        }
        Some(self.take_ahead(|arena| {
            let grow = |Large { address, bytes, is_growth }| {
                // What was known of had its memory before it came.
                let most_elsewhere = if is_growth { AHEAD_BYTES_MAX } else { 0 };
                arena.grow_behind(address, bytes, most_elsewhere)
            };
            outgrown.into_iter().flat_map(grow).collect()
        }))
    }

    /// Has memory taken for what passes, and notes it.
    fn take_ahead(self: &Arc<Self>, take: impl FnOnce(&mut Arena) -> Vec<Range<u64>>) -> Pages {
        let (mut arena, start) = (self.passing().lock(), Instant::now());
        let held = arena.held_bytes();
        let left = take(&mut arena);
        self.journal().changed(held, arena.held_bytes(), AHEAD, start);
        drop(arena);
        Pages { left: left.into_iter().map(|range| (Arc::clone(self), range)).collect() }
    }
}

impl Space {
    /// Takes memory for `n` times buffers of these sizes, each first buffers first, as far as
    /// limits, half of what is left and [`AHEAD_BYTES_MAX`] allow. One time of them counts as
    /// having been used.
    pub fn grow_ahead(&self, sizes: &[u64], n: usize) -> Pages {
        let is_chunk = |bytes: &u64| *bytes > 0 && !self.heap.takes(*bytes);
        let sizes: Vec<u64> = sizes.iter().copied().filter(is_chunk).collect();
        let once: u64 = sizes.iter().sum();
        let all: Vec<u64> = std::iter::repeat_n(sizes, n).flatten().collect();
        self.arenas.take_ahead(|arena| {
            let left = arena.grow_ahead(&all, AHEAD_BYTES_MAX);
            arena.note_use(once.min(AHEAD_BYTES_MAX));
            left
        })
    }

    /// Gives back all that nobody uses but a few megabytes, and remembers how much was used at
    /// most since the last time: for a space that was idle. What was set aside of it and may grow
    /// rests too. Returns how many bytes went.
    ///
    /// # Errors
    /// As [`Space::trim`].
    pub fn rest(&self) -> Result<u64> {
        self.books.forget_gone();
        if self.growth() == GrowthRule::Reserved {
            return Ok(0);
        }
        let mut went = 0;
        for child in self.children.growing() {
            let passing = child.arenas.passing();
            let used = passing.lock().take_recent_peak();
            went += child.trim(IDLE)?;
            child.arenas.demand.remember(used, passing.lock().held_bytes());
        }
        Ok(went + self.arenas.rest()?)
    }

    /// Returns whether [`Space::wake`] would do something. Costs next to nothing.
    pub fn is_at_rest(&self) -> bool {
        self.arenas.demand.is_at_rest()
    }

    /// Takes as much memory as was in use before the space rested, if that much is left; its pages
    /// come step by step. `None` if it does not rest. For a thread that no request waits for.
    pub fn wake(&self) -> Option<Pages> {
        self.arenas.wake()
    }

    /// Returns whether [`Space::catch_up`] would do something. Costs next to nothing.
    pub fn is_outgrown(&self) -> bool {
        let is = |space: &Space| space.arenas.demand.is_outgrown();
        is(self) || self.children.any(is)
    }

    /// Takes some memory behind that of runs which needed more than any before them, so that the
    /// next larger ones need not grow; its pages come step by step. Those in what was set aside of
    /// it get theirs too, as far as they may hold more. `None` if there were none. For a thread
    /// that no request waits for.
    pub fn catch_up(&self) -> Option<Pages> {
        let children = self.children.living();
        let all = children.iter().map(|child| &child.arenas).chain([&self.arenas]);
        let taken: Vec<Pages> = all.filter_map(Arenas::catch_up).collect();
        let is_any = !taken.is_empty();
        let left = taken.into_iter().flat_map(|pages| pages.left).collect();
        is_any.then_some(Pages { left })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Account;
    use crate::buffer::Buffer;
    use crate::ledger::{Category, Holder};
    use crate::space::{Change, Owner, SpaceOptions};
    use crate::{Host, Limited};

    const MIB: u64 = 1 << 20;

    fn space(limit_bytes: u64, growth: GrowthRule) -> Arc<Space> {
        let driver = Arc::new(Host::new("cpu:0", 1 << 30));
        let driver = Arc::new(Limited::new(driver, "cpu:0", limit_bytes));
        let physical = Arc::clone(driver.account());
        Space::new(SpaceOptions { driver, physical, growth, step_bytes: 1 << 16, context_bytes: 0 })
            .unwrap()
    }

    fn take(space: &Arc<Space>, category: Category, bytes: u64) -> Result<Buffer> {
        let owner = Owner::new(space, Holder::Server, None);
        Buffer::allocate_for(&owner, category, usize::try_from(bytes).unwrap())
    }

    fn all_pages(mut pages: Pages) {
        while pages.step() {}
    }

    /// The bytes of growths with a cause.
    fn grown(space: &Space, cause: &str) -> u64 {
        let events = space.snapshot().events;
        let of =
            |total: &&crate::EventTotal| total.change == Change::Growth && total.cause == cause;
        events.iter().find(of).map_or(0, |total| total.bytes)
    }

    #[test]
    fn what_was_taken_ahead_is_given_out_without_growth() {
        let space = space(64 * MIB, GrowthRule::OnDemand);
        all_pages(space.grow_ahead(&[3 * MIB, 0, 100, MIB], 2));
        assert_eq!(space.snapshot().held_bytes, 8 * MIB);
        assert_eq!(grown(&space, AHEAD), 8 * MIB);
        let sizes = [MIB, 3 * MIB, 3 * MIB, MIB];
        let taken = sizes.map(|bytes| take(&space, Category::Activations, bytes).unwrap());
        assert_eq!(space.snapshot().n_growths, 1);
        drop(taken);
        // All of it is there already.
        all_pages(space.grow_ahead(&[4 * MIB], 2));
        assert_eq!((space.snapshot().n_growths, space.snapshot().held_bytes), (1, 8 * MIB));
    }

    #[test]
    fn no_more_is_taken_ahead_than_half_of_what_is_left() {
        let space = space(16 * MIB, GrowthRule::OnDemand);
        all_pages(space.grow_ahead(&[3 * MIB], 9));
        assert_eq!(space.snapshot().held_bytes, 6 * MIB);
        // Others get it when they need it.
        let weights = take(&space, Category::Weights, 15 * MIB).unwrap();
        assert_eq!(space.snapshot().in_use_bytes, 15 * MIB);
        drop(weights);
        let all = super::tests::space(1 << 30, GrowthRule::OnDemand);
        all_pages(all.grow_ahead(&[AHEAD_BYTES_MAX / 2], 9));
        assert_eq!(all.snapshot().held_bytes, AHEAD_BYTES_MAX);
    }

    #[test]
    fn the_next_larger_run_does_not_grow_the_space_itself() {
        let space = space(64 * MIB, GrowthRule::OnDemand);
        assert!(!space.is_outgrown() && space.catch_up().is_none());
        let first = take(&space, Category::Activations, 4 * MIB).unwrap();
        assert_eq!(grown(&space, "activations"), 4 * MIB);
        assert!(space.is_outgrown());
        all_pages(space.catch_up().unwrap());
        assert_eq!(grown(&space, AHEAD), MIB);
        assert!(!space.is_outgrown() && space.catch_up().is_none());
        // As a lane grows: the old memory goes first.
        drop(first);
        let second = take(&space, Category::Activations, 5 * MIB).unwrap();
        assert_eq!(grown(&space, "activations"), 4 * MIB);
        // That was all of it, so that there is more for the next.
        all_pages(space.catch_up().unwrap());
        assert_eq!(grown(&space, AHEAD), MIB + 5 * MIB / 4);
        drop(second);
        let third = take(&space, Category::Activations, 6 * MIB).unwrap();
        assert_eq!(grown(&space, "activations"), 4 * MIB);
        // It is idle memory like any other.
        drop(third);
        assert_eq!(space.trim("test").unwrap(), space.account().peak_bytes());
        assert_eq!(space.snapshot().held_bytes, 0);
    }

    #[test]
    fn a_run_with_another_behind_it_gets_another_place() {
        let space = space(64 * MIB, GrowthRule::OnDemand);
        let first = take(&space, Category::Activations, 4 * MIB).unwrap();
        let second = take(&space, Category::Activations, 4 * MIB).unwrap();
        let address = |buffer: &Buffer| buffer.bytes().as_ptr().addr();
        assert_eq!(address(&first) + (4 << 20), address(&second), "it is right behind");
        all_pages(space.catch_up().unwrap());
        // All of it for the one, and some of that is behind the other.
        assert_eq!(grown(&space, AHEAD), 5 * MIB);
        let before = grown(&space, "activations");
        drop(first);
        let first = take(&space, Category::Activations, 5 * MIB).unwrap();
        drop(second);
        let second = take(&space, Category::Activations, 5 * MIB).unwrap();
        assert_eq!(grown(&space, "activations"), before);
        drop((first, second));
        // It is idle memory like any other.
        space.rest().unwrap();
        assert_eq!(space.snapshot().held_bytes, KEPT_BYTES);
        // Runs that were known of need no other place.
        all_pages(space.grow_ahead(&[4 * MIB], 2));
        let before = space.snapshot().held_bytes;
        let runs = [(); 2].map(|()| take(&space, Category::Activations, 4 * MIB).unwrap());
        all_pages(space.catch_up().unwrap());
        let held = space.snapshot().held_bytes;
        assert!(held <= before + MIB, "{held} after {before}");
        drop(runs);
    }

    #[test]
    fn runs_in_what_was_set_aside_get_memory_ahead_up_to_their_limit() {
        let space = space(64 * MIB, GrowthRule::OnDemand);
        let account = Arc::new(Account::new("model a", 12 * MIB));
        let child = space.set_aside_at_least(Holder::Server, &account, 4 * MIB).unwrap();
        let run = |mib: u64| drop(take(&child, Category::Activations, mib * MIB).unwrap());
        run(8);
        assert_eq!(grown(&space, "activations"), 4 * MIB);
        assert!(space.is_outgrown());
        all_pages(space.catch_up().unwrap());
        assert_eq!((grown(&space, AHEAD), space.is_outgrown()), (2 * MIB, false));
        // Its workspace was given back meanwhile, and the next larger one does not grow.
        run(10);
        assert_eq!(grown(&space, "activations"), 4 * MIB);
        all_pages(space.catch_up().unwrap());
        // Half of what its limit leaves.
        assert_eq!((grown(&space, AHEAD), account.held_bytes()), (3 * MIB, 11 * MIB));
        // Whoever needs it gets it, and without use it goes.
        drop(take(&space, Category::Weights, 60 * MIB).unwrap());
        assert_eq!(account.held_bytes(), 4 * MIB);
        run(8);
        space.rest().unwrap();
        assert_eq!((account.held_bytes(), space.is_outgrown()), (4 * MIB, false));
    }

    #[test]
    fn what_was_set_aside_wakes_with_what_its_runs_used_beyond_it() {
        let space = space(64 * MIB, GrowthRule::OnDemand);
        let account = Arc::new(Account::new("model a", 32 * MIB));
        let child = space.set_aside_at_least(Holder::Server, &account, 4 * MIB).unwrap();
        let run = || drop(take(&child, Category::Activations, 8 * MIB).unwrap());
        run();
        assert!(!child.is_at_rest() && child.wake().is_none());
        assert_eq!(space.rest().unwrap(), 4 * MIB);
        assert_eq!(account.held_bytes(), 4 * MIB);
        assert!(child.is_at_rest() && !space.is_at_rest());
        let before = grown(&space, "activations");
        all_pages(child.wake().unwrap());
        assert!(!child.is_at_rest() && child.wake().is_none());
        run();
        assert_eq!((grown(&space, "activations"), account.held_bytes()), (before, 8 * MIB));
    }

    #[test]
    fn what_is_taken_behind_runs_is_within_limits_and_whoever_needs_it_gets_it() {
        let space = space(10 * MIB, GrowthRule::OnDemand);
        let run = take(&space, Category::Activations, 8 * MIB).unwrap();
        all_pages(space.catch_up().unwrap());
        // Half of what was left.
        assert_eq!(space.snapshot().held_bytes, 9 * MIB);
        let weights = take(&space, Category::Weights, 2 * MIB).unwrap();
        assert_eq!((space.snapshot().held_bytes, space.snapshot().idle), (10 * MIB, vec![]));
        // What is full, gone, or not to grow gets nothing.
        drop(run);
        let run = take(&space, Category::Activations, 8 * MIB).unwrap();
        assert!(space.catch_up().is_none_or(|pages| pages.left.is_empty()));
        drop((weights, run));
        let gone = take(&space, Category::Activations, 9 * MIB).unwrap();
        drop(gone);
        space.trim("test").unwrap();
        assert!(space.catch_up().is_none_or(|pages| pages.left.is_empty()));
        let fixed = super::tests::space(8 * MIB, GrowthRule::Reserved);
        let run = take(&fixed, Category::Activations, MIB).unwrap();
        assert!(fixed.catch_up().is_none_or(|pages| pages.left.is_empty()));
        drop(run);
        assert_eq!(fixed.snapshot().held_bytes, 8 * MIB);
    }

    #[test]
    fn a_space_that_rests_keeps_little_and_wakes_with_what_it_used() {
        let space = space(64 * MIB, GrowthRule::OnDemand);
        let kept = take(&space, Category::Requests, MIB).unwrap();
        drop(take(&space, Category::Activations, 20 * MIB).unwrap());
        assert!(!space.is_at_rest() && space.wake().is_none());
        assert_eq!(space.rest().unwrap(), 16 * MIB);
        assert_eq!(space.snapshot().held_bytes, 5 * MIB);
        // Nothing was used since, and it rests as before.
        assert_eq!(space.rest().unwrap(), 0);
        assert!(space.is_at_rest());
        all_pages(space.wake().unwrap());
        assert!(!space.is_at_rest() && space.wake().is_none());
        assert_eq!(grown(&space, AHEAD), 16 * MIB);
        let n_growths = space.snapshot().n_growths;
        // This time less is used, so that less comes back the next time.
        drop(take(&space, Category::Activations, 9 * MIB).unwrap());
        assert_eq!(space.snapshot().n_growths, n_growths);
        assert_eq!(space.rest().unwrap(), 16 * MIB);
        all_pages(space.wake().unwrap());
        assert_eq!(space.snapshot().held_bytes, 10 * MIB);
        drop(kept);
        // What fits in what is kept needs no waking.
        space.rest().unwrap();
        assert_eq!(space.snapshot().held_bytes, 4 * MIB);
        space.wake();
        drop(take(&space, Category::Activations, 2 * MIB).unwrap());
        space.rest().unwrap();
        assert!(!space.is_at_rest());
    }

    #[test]
    fn a_space_wakes_with_all_that_it_used_though_that_is_most_of_what_is_left() {
        let space = space(24 * MIB, GrowthRule::OnDemand);
        let run = || drop(take(&space, Category::Activations, 20 * MIB).unwrap());
        run();
        let before = grown(&space, "activations");
        space.rest().unwrap();
        assert_eq!(space.snapshot().held_bytes, KEPT_BYTES);
        all_pages(space.wake().unwrap());
        assert_eq!(space.snapshot().held_bytes, 20 * MIB);
        run();
        assert_eq!(grown(&space, "activations"), before);
        space.rest().unwrap();
        assert_eq!(space.snapshot().held_bytes, KEPT_BYTES);
        // Whoever needs it gets it, and it does not come when there is too little left.
        all_pages(space.wake().unwrap());
        let weights = take(&space, Category::Weights, 24 * MIB).unwrap();
        drop(weights);
        run();
        space.rest().unwrap();
        let weights = take(&space, Category::Weights, 8 * MIB).unwrap();
        all_pages(space.wake().unwrap());
        assert_eq!(space.snapshot().held_bytes, 8 * MIB + KEPT_BYTES);
        drop(weights);
    }

    #[test]
    fn what_was_prepared_and_never_used_comes_back_once_when_it_wakes() {
        let space = space(64 * MIB, GrowthRule::OnDemand);
        all_pages(space.grow_ahead(&[5 * MIB, 3 * MIB], 2));
        assert_eq!(space.rest().unwrap(), 12 * MIB);
        all_pages(space.wake().unwrap());
        assert_eq!(space.snapshot().held_bytes, 8 * MIB);
    }

    #[test]
    fn pages_of_memory_that_went_back_are_left_alone() {
        let space = space(64 * MIB, GrowthRule::OnDemand);
        let mut pages = space.grow_ahead(&[8 * MIB], 1);
        assert!(pages.step());
        space.trim("asked").unwrap();
        all_pages(pages);
        assert_eq!(space.snapshot().held_bytes, 0);
    }

    #[test]
    fn a_space_that_does_not_grow_neither_rests_nor_takes_ahead() {
        let space = space(8 * MIB, GrowthRule::Reserved);
        all_pages(space.grow_ahead(&[MIB], 2));
        assert_eq!((space.rest().unwrap(), space.is_at_rest()), (0, false));
        assert_eq!(space.snapshot().held_bytes, 8 * MIB);
    }
}
