//! `Arenas`: the memory that a space holds from its driver.

use std::sync::Arc;
use std::time::Instant;

use super::Block;
use super::ahead::Demand;
use super::events::Events;
use super::owner::Place;
use super::shelf::Shelf;
use crate::arena::{Arena, Chunk, Growth};
use crate::driver::Driver;
use crate::error::Result;
use crate::kept::Kept;
use crate::ledger::Category;
use crate::limit::Limited;
use crate::logical::GrowthRule;

/// The memory of a space, for what passes, for what stays, and for large weights as they are read.
/// Each arena has a lock of its own; growths and releases are in the journal of the device.
pub struct Arenas {
    driver: Arc<Limited>,
    growth: GrowthRule,
    all: [Option<Shelf>; 3],
    journal: Arc<Events>,
    pub(super) demand: Demand,
    /// The part that stays set aside, if the space may grow beyond it.
    kept: Option<Arc<Kept>>,
    /// The memory that it was set aside of, and goes back to.
    lender: Option<Arc<Arenas>>,
}

/// The bytes given back before other threads get their turn.
pub(super) const TRIM_STEP_BYTES: u64 = 16 << 20;

/// Causes of events: memory that was set aside, that somebody else needs, or that nobody used.
pub(super) const RESERVATION: &str = "reservation";
pub(super) const PRESSURE: &str = "pressure";
pub(super) const IDLE: &str = "idle";

/// The indices of the arenas, by the buffers that they give out.
pub(super) const PASSING: usize = 0;
const STAYING: usize = 1;
pub(super) const READ: usize = 2;

/// Weights of fewer bytes are with those that stay from the start: they would keep pages of others
/// if they were not packed.
const READ_BYTES: u64 = 64 << 10;

impl Arenas {
    /// Memory that is taken as it is needed, at least `step_bytes` at a time.
    ///
    /// # Errors
    /// As [`Arena::new`].
    pub(super) fn growing(driver: Arc<Limited>, step_bytes: u64) -> Result<Arenas> {
        let arena = || Arena::new(driver.clone(), Growth::OnDemand { step_bytes }).map(Shelf::new);
        let all = [Some(arena()?), Some(arena()?), Some(arena()?)];
        Ok(Arenas::new(driver, GrowthRule::OnDemand, all))
    }

    /// Memory that is taken now, as far as the limit goes, but for `context_bytes`; it never grows.
    ///
    /// # Errors
    /// If that much cannot be had.
    pub(super) fn reserved(driver: Arc<Limited>, context_bytes: u64) -> Result<Arenas> {
        let bytes = whole_bytes(&driver, context_bytes);
        let arena = Arena::new(driver.clone(), Growth::Reserved { bytes })?;
        Ok(Arenas::new(driver, GrowthRule::Reserved, [Some(Shelf::new(arena)), None, None]))
    }

    /// Memory of which as much as `kept` promises is taken now and stays; it may grow beyond that.
    ///
    /// # Errors
    /// If that much cannot be had.
    pub(super) fn keeping(
        driver: Arc<Limited>,
        kept: Arc<Kept>,
        step_bytes: u64,
    ) -> Result<Arenas> {
        let mut arena = Arena::new(driver.clone(), Growth::OnDemand { step_bytes })?;
        arena.keep(kept.least_bytes())?;
        // One arena for all, so that what is set aside is for whatever comes.
        let all = [Some(Shelf::new(arena)), None, None];
        let mut arenas = Arenas::new(driver, GrowthRule::OnDemand, all);
        arenas.kept = Some(kept);
        Ok(arenas)
    }

    fn new(driver: Arc<Limited>, growth: GrowthRule, all: [Option<Shelf>; 3]) -> Arenas {
        let (journal, demand) = (Arc::default(), Demand::default());
        Arenas { driver, growth, all, journal, demand, kept: None, lender: None }
    }

    /// Says that it was set aside of `lender`: its growths and releases are noted there, and what
    /// it gives back goes there.
    pub(super) fn set_lender(&mut self, lender: &Arc<Arenas>) {
        self.journal = Arc::clone(&lender.journal);
        self.lender = Some(Arc::clone(lender));
    }

    /// The rule by which the arenas take memory: as needed, or all at once.
    pub fn growth(&self) -> GrowthRule {
        self.growth
    }

    /// The device's memory that they are made of.
    pub(super) fn driver(&self) -> &Arc<Limited> {
        &self.driver
    }

    /// The journal of growths and releases: those of the whole device are together.
    pub(super) fn journal(&self) -> &Events {
        &self.journal
    }

    /// The part that stays set aside, if the space may grow beyond it.
    pub(super) fn kept(&self) -> Option<&Arc<Kept>> {
        self.kept.as_ref()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Shelf> {
        self.all.iter().flatten()
    }

    fn get(&self, number: usize) -> &Shelf {
        self.all[number].as_ref().expect("there is an arena of this number")
    }

    /// The arena for what passes.
    pub(super) fn passing(&self) -> &Shelf {
        self.get(PASSING)
    }

    /// The number of the arena for a buffer.
    pub(super) fn number_for(&self, category: Category, bytes: u64) -> usize {
        let stays = matches!(category, Category::Weights | Category::PackedWeights);
        let is_read = category == Category::Weights && bytes >= READ_BYTES;
        let number = if is_read {
            READ
        } else if stays {
            STAYING
        } else {
            PASSING
        };
        // What does not grow has one for all.
        if self.all[number].is_some() { number } else { PASSING }
    }

    /// The bytes held from the driver.
    pub(super) fn held_bytes(&self) -> u64 {
        self.iter().map(|arena| arena.lock().held_bytes()).sum()
    }

    /// The bytes held and given out to nobody.
    pub(super) fn unused_bytes(&self) -> u64 {
        self.iter().map(Shelf::idle_bytes).sum()
    }

    /// The bytes held that are neither in use nor promised.
    pub fn idle_bytes(&self) -> u64 {
        self.unused_bytes() + self.spare_bytes()
    }

    /// The bytes promised that have no memory behind them while that moves.
    pub(super) fn spare_bytes(&self) -> u64 {
        self.kept.as_ref().map_or(0, |kept| kept.spare_bytes())
    }

    /// The bytes that stay set aside if more may be held, and 0 otherwise.
    pub fn kept_bytes(&self) -> u64 {
        self.kept.as_ref().map_or(0, |kept| kept.least_bytes())
    }

    /// Returns whether more is held than was set aside, where that may be.
    pub fn is_beyond_kept(&self) -> bool {
        self.kept.is_some() && self.held_bytes() > self.kept_bytes()
    }

    /// The idle bytes among those held beyond the part set aside.
    pub(super) fn excess_bytes(&self) -> u64 {
        let Some(kept) = &self.kept else { return 0 };
        let held = self.driver.account().held_bytes();
        self.unused_bytes().min(held.saturating_sub(kept.least_bytes()))
    }

    /// The bytes held when `least_bytes` are set aside for an owner who may hold `limit_bytes`:
    /// whole granules, and never more than the limit.
    pub fn aside_bytes(&self, least_bytes: u64, limit_bytes: u64) -> u64 {
        let granule = self.driver.properties().granule_bytes;
        let most = limit_bytes / granule * granule;
        least_bytes.checked_next_multiple_of(granule).unwrap_or(u64::MAX).min(most)
    }

    /// Takes a chunk of an arena. `book` is called with the arena's lock, so that a snapshot sees
    /// the chunk and its booking or neither; it is told by how much the arena grew.
    ///
    /// # Errors
    /// As [`Arena::allocate`].
    pub(super) fn allocate(
        &self,
        number: usize,
        bytes: u64,
        cause: &'static str,
        book: impl FnOnce(&Chunk, u64),
    ) -> Result<Chunk> {
        let mut arena = self.get(number).lock();
        let (held, start) = (arena.held_bytes(), Instant::now());
        let taken = arena.allocate(bytes);
        self.journal.changed(held, arena.held_bytes(), cause, start);
        let chunk = taken?;
        book(&chunk, arena.held_bytes().saturating_sub(held));
        Ok(chunk)
    }

    /// Takes a chunk back; `unbook` is called with the arena's lock.
    pub(super) fn free(&self, number: usize, chunk: Chunk, unbook: impl FnOnce()) {
        let shelf = self.get(number);
        let mut arena = shelf.lock();
        arena.free(chunk);
        unbook();
        drop(arena);
        // Packed weights take the place of those that were read while a model is loaded.
        if number == READ && shelf.idle_bytes() >= TRIM_STEP_BYTES {
            // A driver that refuses is asked again when the space is trimmed next.
            drop(self.trim(shelf, 0, "load"));
        }
    }

    /// Calls `rebook` when nothing of the arena that a block came from changes hands.
    pub(super) fn while_locked(&self, block: &Block, rebook: impl FnOnce(Place)) {
        match block {
            Block::Heap => rebook(Place::Heap),
            Block::Chunk { arena, .. } => {
                let _lock = self.get(*arena).lock();
                rebook(Place::Chunk);
            }
        }
    }

    /// Gives back all that nobody uses; returns how many bytes went.
    ///
    /// # Errors
    /// If the driver refuses; what it took until then is gone.
    pub(super) fn trim_all(&self, cause: &'static str) -> Result<u64> {
        self.iter().map(|arena| self.trim(arena, 0, cause)).sum()
    }

    /// Gives back what weights left behind that were read and are packed now: for after a load.
    /// Returns how many bytes went.
    ///
    /// # Errors
    /// As [`Space::trim`](crate::Space::trim).
    pub fn trim_read(&self, cause: &'static str) -> Result<u64> {
        self.all[READ].as_ref().map_or(Ok(0), |arena| self.trim(arena, 0, cause))
    }

    /// Gives back what nobody uses of all arenas but one, as far as the driver takes it, since
    /// somebody else needs it; returns how many bytes went.
    pub(super) fn relieve(&self, but: Option<usize>) -> u64 {
        let others = self.all.iter().enumerate().filter(|(number, _)| Some(*number) != but);
        let others = others.filter_map(|(_, arena)| arena.as_ref());
        others.map(|arena| self.trim(arena, 0, PRESSURE).unwrap_or(0)).sum()
    }

    /// Gives back what an arena has to spare, but for `kept_bytes`, in steps: the system takes its
    /// time to clear pages, and requests that want memory meanwhile get their turn between two of
    /// them.
    pub(super) fn trim(&self, shelf: &Shelf, kept_bytes: u64, cause: &'static str) -> Result<u64> {
        let (start, most) = (Instant::now(), shelf.lock().held_bytes());
        let mut trimmed = 0;
        let outcome = loop {
            let mut arena = shelf.lock();
            let held = arena.held_bytes();
            let least = held - arena.idle_bytes() + kept_bytes;
            let outcome = arena.trim(held.saturating_sub(TRIM_STEP_BYTES).max(least));
            // Also what went before the driver refused.
            let went = held - arena.held_bytes();
            trimmed += went;
            if outcome.is_err() || went == 0 || trimmed >= most {
                break outcome;
            }
        };
        self.journal.changed(trimmed, 0, cause, start);
        if trimmed > 0 {
            self.repay();
        }
        outcome.map(|_| trimmed)
    }

    /// Lets whoever lent memory take what is free again.
    pub(super) fn repay(&self) {
        if let Some(lender) = &self.lender {
            lender.take_lent();
        }
    }

    /// Asserts that each arena is as it says, and that no more is held than may be.
    #[cfg(test)]
    pub(super) fn check(&self) {
        for shelf in self.iter() {
            let arena = shelf.lock();
            arena.check();
            assert_eq!(shelf.idle_bytes(), arena.idle_bytes(), "what is told without the lock");
        }
        self.demand.check();
        let account = self.driver.account();
        assert!(self.held_bytes() <= account.held_bytes(), "what is held is charged");
        assert!(self.held_bytes() + self.spare_bytes() >= self.kept_bytes(), "it stays set aside");
    }
}

impl Drop for Arenas {
    /// Gives back the memory set aside, which is an event of the device.
    fn drop(&mut self) {
        if self.lender.is_some() {
            let start = Instant::now();
            let all = std::mem::take(&mut self.all).into_iter().flatten();
            let bytes = all.map(|arena| arena.into_inner().held_bytes()).sum();
            self.journal.released(bytes, RESERVATION, start.elapsed());
        }
    }
}

/// The bytes of memory that does not grow, beside its device's context: whole granules.
pub(super) fn whole_bytes(driver: &Limited, context_bytes: u64) -> u64 {
    let granule = driver.properties().granule_bytes;
    driver.limit_bytes().saturating_sub(context_bytes) / granule * granule
}
