//! `Space`: the memory of a logical device, and whose each byte is.
//!
//! Every buffer comes from the space of the device that its thread works for, and is booked to an
//! [`Owner`] and a [`Category`] for as long as it lives; [`booked_to`] says which. Large buffers
//! are chunks of one of two arenas, so that weights, which stay, and everything else, which comes
//! and goes, do not share pages. Small buffers of a host come from its heap and are charged alike.
//!
//! What is held is what the arenas hold from the driver plus what is charged for the heap. A
//! [`Snapshot`] says where all of it is: its rows always sum to what is held.

mod owner;
mod scope;
mod sharing;
mod snapshot;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::account::Account;
use crate::arena::{Arena, Chunk, Growth};
use crate::driver::{Driver, Kind};
use crate::error::{Error, Result};
use crate::ledger::{Category, Holder};
use crate::limit::Limited;
use crate::logical::GrowthRule;

pub use owner::{Owner, Tally};
pub(crate) use scope::current;
pub use scope::{Scope, booked_as, booked_to, set_default_owner, shared};
pub use snapshot::{Event, Snapshot};

/// The memory of one logical device; see the module.
pub struct Space {
    name: String,
    kind: Kind,
    growth: GrowthRule,
    driver: Arc<Limited>,
    /// What the heap is charged to: the logical device, and the physical one.
    accounts: Vec<Arc<Account>>,
    arenas: [Option<Mutex<Arena>>; 2],
    /// Smaller buffers come from the heap.
    heap_below_bytes: u64,
    in_use: AtomicU64,
    peak_in_use: AtomicU64,
    /// Whether what is given out is only counted.
    is_rehearsal: bool,
    /// Which allocation from now on is refused, the next one being 1; none if 0.
    fail_in: AtomicU64,
    tallies: Mutex<Vec<Weak<Tally>>>,
    sharing: sharing::Sharing,
    events: snapshot::Events,
    /// What was set aside of it.
    children: Mutex<Vec<Weak<Space>>>,
    /// What it was set aside of, and for whom.
    parent: Option<(Arc<Space>, Holder)>,
}

/// What a space is made of.
#[derive(Debug)]
pub struct SpaceOptions {
    /// The memory: a logical device's share of a physical one.
    pub driver: Arc<Limited>,
    /// The physical device's account, which the heap is charged to as well.
    pub physical: Arc<Account>,
    /// Whether memory is taken as it is needed, or all at once.
    pub growth: GrowthRule,
    /// The least by which it grows.
    pub step_bytes: u64,
}

/// Buffers of the host that are smaller come from the heap.
const HEAP_BELOW_BYTES: u64 = 64 << 10;

/// Which arena a buffer comes from.
const PASSING: usize = 0;
const STAYING: usize = 1;

impl Space {
    /// The memory of a logical device; all of it is taken now if it does not grow.
    ///
    /// # Errors
    /// If that much cannot be had.
    pub fn new(options: SpaceOptions) -> Result<Arc<Space>> {
        Space::make(options).map(Arc::new)
    }

    /// A space in which something is only rehearsed, to learn what it would take: large buffers are
    /// counted as ever, but nobody writes their bytes, so that they take no memory.
    ///
    /// # Errors
    /// As [`Space::new`].
    pub fn rehearsal(options: SpaceOptions) -> Result<Arc<Space>> {
        let space = Space::make(options)?;
        Ok(Arc::new(Space { is_rehearsal: true, ..space }))
    }

    /// Whether it is a rehearsal's.
    pub fn is_rehearsal(&self) -> bool {
        self.is_rehearsal
    }

    /// The most bytes that were given out at once.
    pub fn peak_in_use_bytes(&self) -> u64 {
        self.peak_in_use.load(Ordering::Relaxed)
    }

    /// Forgets the peak: from now on it is what was given out at most since now.
    pub fn reset_peak(&self) {
        self.peak_in_use.store(self.in_use.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// The bytes that are given out.
    pub fn in_use_bytes(&self) -> u64 {
        self.in_use.load(Ordering::Relaxed)
    }

    fn make(options: SpaceOptions) -> Result<Space> {
        let SpaceOptions { driver, physical, growth, step_bytes } = options;
        let properties = driver.properties();
        let (name, kind) = (properties.name.clone(), properties.kind);
        let arena =
            |growth| Arena::new(driver.clone(), growth).map(|arena| Some(Mutex::new(arena)));
        let arenas = match growth {
            GrowthRule::OnDemand => {
                let growth = Growth::OnDemand { step_bytes };
                [arena(growth)?, arena(growth)?]
            }
            GrowthRule::Reserved => {
                let granule = properties.granule_bytes;
                let bytes = driver.limit_bytes() / granule * granule;
                [arena(Growth::Reserved { bytes })?, None]
            }
        };
        let has_heap = kind == Kind::Cpu && growth == GrowthRule::OnDemand;
        Ok(Space {
            name,
            kind,
            growth,
            accounts: vec![driver.account().clone(), physical],
            driver,
            arenas,
            heap_below_bytes: if has_heap { HEAP_BELOW_BYTES } else { 0 },
            in_use: AtomicU64::new(0),
            peak_in_use: AtomicU64::new(0),
            is_rehearsal: false,
            fail_in: AtomicU64::new(0),
            tallies: Mutex::default(),
            sharing: sharing::Sharing::default(),
            events: snapshot::Events::default(),
            children: Mutex::default(),
            parent: None,
        })
    }

    /// Sets memory aside for `holder`: as much as `account` allows is taken now, and given back
    /// when the space that is returned is dropped. In a snapshot it is part of this one.
    ///
    /// # Errors
    /// If that much cannot be had.
    pub fn set_aside(
        self: &Arc<Self>,
        holder: Holder,
        account: Arc<Account>,
    ) -> Result<Arc<Space>> {
        let inner = Arc::clone(&self.driver) as Arc<dyn Driver>;
        let driver = Arc::new(Limited::with(inner, account));
        let physical = Arc::clone(self.account());
        let growth = GrowthRule::Reserved;
        let options = SpaceOptions { driver, physical, growth, step_bytes: 1 };
        let child = Space::make(options).map_err(|error| self.with_holders(error))?;
        let child = Space { parent: Some((Arc::clone(self), holder)), ..child };
        let child = Arc::new(child);
        let mut children = self.children.lock();
        children.retain(|child| child.strong_count() > 0);
        children.push(Arc::downgrade(&child));
        Ok(child)
    }

    /// The space that it was set aside of, or itself.
    pub fn root(self: &Arc<Self>) -> &Arc<Space> {
        self.parent.as_ref().map_or(self, |(parent, _)| parent.root())
    }

    /// The logical device's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What kind of device it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether memory is taken as it is needed, or all at once.
    pub fn growth(&self) -> GrowthRule {
        self.growth
    }

    /// The account of the logical device.
    pub fn account(&self) -> &Arc<Account> {
        self.driver.account()
    }

    /// How many bytes could still be given out, as far as limits and device go.
    pub fn free_bytes(&self) -> u64 {
        let idle: u64 = self.arenas().map(|arena| arena.lock().stats().free_bytes()).sum();
        self.driver.available_bytes().saturating_add(idle)
    }

    /// Gives back all memory that nobody uses; returns how many bytes went. A space that does not
    /// grow keeps what it has.
    ///
    /// # Errors
    /// If the driver refuses; what it took until then is gone.
    pub fn trim(&self, cause: &'static str) -> Result<u64> {
        let mut given = 0;
        for arena in self.arenas() {
            let mut arena = arena.lock();
            let start = std::time::Instant::now();
            let bytes = arena.trim(0)?;
            self.events.released(bytes, cause, start.elapsed());
            given += bytes;
        }
        Ok(given)
    }

    fn arenas(&self) -> impl Iterator<Item = &Mutex<Arena>> {
        self.arenas.iter().flatten()
    }

    /// The arena for a category, and its number.
    fn arena_for(&self, category: Category) -> (usize, &Mutex<Arena>) {
        let stays = matches!(category, Category::Weights | Category::PackedWeights);
        let number = if stays && self.arenas[STAYING].is_some() { STAYING } else { PASSING };
        (number, self.arenas[number].as_ref().expect("the first arena is always there"))
    }

    /// Takes a block for a tally: a chunk, or leave to take it from the heap.
    pub(crate) fn allocate(&self, tally: &Arc<Tally>, bytes: u64) -> Result<Block> {
        if self.fail_in.load(Ordering::Relaxed) != 0 {
            self.count_down(bytes)?;
        }
        let account = tally.account();
        if let Some(account) = account {
            account.charge(bytes).map_err(|error| self.with_holders(error))?;
        }
        let block = match bytes < self.heap_below_bytes {
            true => self.charge_heap(tally, bytes).map(|()| Block::Heap),
            false => self.take_chunk(tally, bytes),
        };
        match block {
            Ok(block) => {
                let now = self.in_use.fetch_add(bytes, Ordering::Relaxed) + bytes;
                self.peak_in_use.fetch_max(now, Ordering::Relaxed);
                Ok(block)
            }
            Err(error) => {
                if let Some(account) = account {
                    account.refund(bytes);
                }
                Err(self.with_holders(error))
            }
        }
    }

    /// Lets the `n`-th allocation from now on be refused, the next one being 1; the others are as
    /// ever. With 0 none is. So can be tried what happens when memory is out anywhere.
    pub fn fail_allocation(&self, n: u64) {
        self.fail_in.store(n, Ordering::Relaxed);
    }

    /// How many allocations from now on go well until the one that is to be refused; `None` if it
    /// was, or none is to be.
    pub fn fails_in(&self) -> Option<u64> {
        self.fail_in.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Counts an allocation, and refuses it if it is its turn.
    #[cold]
    fn count_down(&self, needed_bytes: u64) -> Result<()> {
        let next = |n: u64| n.checked_sub(1);
        let before = self.fail_in.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        if before != Ok(1) {
            return Ok(());
        }
        let (device, call) = (self.name.clone(), "allocate");
        let reason = format!("injected failure for {needed_bytes} bytes");
        Err(Error::Driver { device, call, reason })
    }

    /// Takes a block back.
    pub(crate) fn free(&self, tally: &Tally, block: Block, bytes: u64) {
        match block {
            Block::Heap => {
                self.accounts.iter().for_each(|account| account.refund(bytes));
                tally.heap.fetch_sub(bytes, Ordering::Relaxed);
            }
            Block::Chunk { chunk, arena } => {
                let mut arena = self.arenas[arena].as_ref().expect("it came from there").lock();
                arena.free(chunk);
                tally.chunks.fetch_sub(bytes, Ordering::Relaxed);
            }
        }
        self.in_use.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(account) = tally.account() {
            account.refund(bytes);
        }
    }

    fn charge_heap(&self, tally: &Tally, bytes: u64) -> Result<()> {
        for (number, account) in self.accounts.iter().enumerate() {
            if let Err(error) = account.charge(bytes) {
                self.accounts[..number].iter().for_each(|account| account.refund(bytes));
                return Err(error);
            }
        }
        tally.heap.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn take_chunk(&self, tally: &Tally, bytes: u64) -> Result<Block> {
        let (number, arena) = self.arena_for(tally.category());
        let mut arena = arena.lock();
        let (held, start) = (arena.held_bytes(), std::time::Instant::now());
        let taken = arena.allocate(bytes).or_else(|error| {
            // What the other arena keeps for later is needed now.
            let other = self.arenas[1 - number].as_ref().ok_or_else(|| error.clone())?;
            if other.try_lock().is_none_or(|mut other| !matches!(other.trim(0), Ok(1..))) {
                return Err(error);
            }
            arena.allocate(bytes)
        });
        self.events.changed(held, arena.held_bytes(), tally.category().name(), start);
        let chunk = taken?;
        // Under the arena's lock, so that a snapshot sees both or neither.
        tally.chunks.fetch_add(bytes, Ordering::Relaxed);
        Ok(Block::Chunk { chunk, arena: number })
    }

    #[cold]
    fn with_holders(&self, error: Error) -> Error {
        if !matches!(error, Error::Exhausted { .. }) {
            return error;
        }
        Error::Full { error: Box::new(error), holders: self.snapshot().top_holders() }
    }

    fn register(&self, tally: &Arc<Tally>) {
        let mut tallies = self.tallies.lock();
        tallies.retain(|tally| tally.strong_count() > 0);
        tallies.push(Arc::downgrade(tally));
    }
}

impl fmt::Debug for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Space({})", self.name)
    }
}

/// Where a buffer's bytes are.
#[derive(Debug)]
pub(crate) enum Block {
    /// On the heap, charged to the space.
    Heap,
    /// In an arena.
    Chunk {
        /// The chunk.
        chunk: Chunk,
        /// Which arena it came from.
        arena: usize,
    },
}

#[cfg(test)]
mod tests;
