//! `Space`: the memory of a logical device, and whose each byte is.
//!
//! Every buffer comes from the space of the device that its thread works for, and is booked to an
//! [`Owner`] and a [`Category`] for as long as it lives; [`booked_to`] says which. Large buffers
//! are chunks of one of three arenas, so that weights, which stay, and everything else, which comes
//! and goes, do not share pages; nor do large weights as they are read, most of which go when they
//! are packed. Small buffers of a host come from its heap and are charged alike.
//!
//! What is held is what the arenas hold from the driver plus what is charged for the heap. A
//! [`Snapshot`] says where all of it is: its rows always sum to what is held. While a thread has
//! said what it takes memory for ([`named`]), that is booked by its name: a weight, packed or not,
//! or a plan; [`Space::ledger`] has a row for each.

mod ahead;
mod aside;
mod charge;
mod events;
mod idle;
mod owner;
mod reserve;
mod scope;
mod sharing;
mod shelf;
mod snapshot;
mod vector;

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Instant;

use self::owner::Place;
use self::shelf::Shelf;
use crate::account::Account;
use crate::arena::{Arena, Chunk, Growth};
use crate::driver::{Driver, Kind};
use crate::error::{Error, Result};
use crate::kept::Kept;
use crate::ledger::{Category, Holder};
use crate::limit::Limited;
use crate::logical::GrowthRule;
use crate::sync::{AtomicU64, Mutex};

pub use ahead::{AHEAD_BYTES_MAX, Pages};
pub use charge::{Booked, Charge};
pub use events::{Change, EVENT_MICROS, Event, EventSum, EventTotal, Recent};
pub use idle::Idle;
pub use owner::{Owner, Tally};
pub use scope::{
    NameScope, Scope, booked_as, booked_on_host, booked_to, named, set_default_owner, settled,
    shared,
};
pub(crate) use scope::{current, current_tensor};
pub use snapshot::Snapshot;
pub use vector::BookedVec;

/// The memory of one logical device; see the module.
pub struct Space {
    name: String,
    kind: Kind,
    growth: GrowthRule,
    driver: Arc<Limited>,
    /// What the heap is charged to: the logical device, and the physical one.
    accounts: Vec<Arc<Account>>,
    context: Mutex<Context>,
    arenas: Arenas,
    /// Smaller buffers come from the heap.
    heap_below_bytes: u64,
    in_use: AtomicU64,
    peak_in_use: AtomicU64,
    /// What was in use of the memory for what passes before the space rested; 0 if it does not.
    rested: AtomicU64,
    /// What runs have outgrown.
    outgrown: ahead::Outgrown,
    /// Whether what is given out is only counted.
    is_rehearsal: bool,
    /// Which allocation from now on is refused, the next one being 1; none if 0.
    fail_in: AtomicU64,
    tallies: Mutex<Vec<Weak<Tally>>>,
    sharing: sharing::Sharing,
    events: events::Events,
    /// What was set aside of it.
    children: Mutex<Vec<Weak<Space>>>,
    /// What it was set aside of, and for whom.
    parent: Option<(Arc<Space>, Holder)>,
    /// What of it stays set aside, if it may grow beyond that.
    kept: Option<Arc<Kept>>,
    /// What it was lent. The last to go: all that was held is free by then.
    _lent: Option<reserve::Lent>,
}

/// The memory of a space, for what passes, for what stays, and for large weights as they are read.
struct Arenas {
    all: [Option<Shelf>; 3],
    /// The space that it goes back to.
    set_aside_of: Option<Arc<Space>>,
}

impl Drop for Arenas {
    /// What was set aside goes back, which is an event of the space it was set aside of.
    fn drop(&mut self) {
        let Some(space) = self.set_aside_of.take() else { return };
        let start = Instant::now();
        let all = std::mem::take(&mut self.all).into_iter().flatten();
        let bytes = all.map(|arena| arena.into_inner().held_bytes()).sum();
        space.events.released(bytes, RESERVATION, start.elapsed());
    }
}

/// What the device's driver has for itself, charged for as long as the space is there.
struct Context {
    accounts: Vec<Arc<Account>>,
    bytes: u64,
}

impl Context {
    fn new(accounts: &[Arc<Account>], bytes: u64) -> Result<Context> {
        let mut context = Context { accounts: Vec::new(), bytes };
        for account in accounts {
            account.charge(bytes)?;
            context.accounts.push(Arc::clone(account));
        }
        Ok(context)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.accounts.iter().for_each(|account| account.refund(self.bytes));
    }
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
    /// What the device's driver has taken for itself, which is a part of what the space holds.
    pub context_bytes: u64,
}

/// Buffers of the host that are smaller come from the heap.
const HEAP_BELOW_BYTES: u64 = 64 << 10;

/// How much is given back before others get their turn.
const TRIM_STEP_BYTES: u64 = 16 << 20;

/// Tallies that a space has room for from the start: a list that grows while a model is loaded
/// would be on pages of the heap that go with the model.
const FEW_TALLIES: usize = 256;

/// Causes of events: memory that was set aside, and memory that somebody else needs.
const RESERVATION: &str = "reservation";
const PRESSURE: &str = "pressure";
const IDLE: &str = "idle";

/// Which arena a buffer comes from.
const PASSING: usize = 0;
const STAYING: usize = 1;
const READ: usize = 2;

/// Weights of fewer bytes are with those that stay from the start: they would keep pages of others
/// if they were not packed.
const READ_BYTES: u64 = 64 << 10;

impl Space {
    /// The memory of a logical device; all of it is taken now if it does not grow.
    ///
    /// # Errors
    /// If that much cannot be had.
    pub fn new(options: SpaceOptions) -> Result<Arc<Space>> {
        let start = Instant::now();
        let space = Space::make(options)?;
        space.events.changed(0, space.arenas_bytes(), RESERVATION, start);
        Ok(Arc::new(space))
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
        let SpaceOptions { driver, physical, growth, step_bytes, context_bytes } = options;
        let accounts = vec![driver.account().clone(), physical];
        let context = Context::new(&accounts, context_bytes)?;
        let properties = driver.properties();
        let (name, kind) = (properties.name.clone(), properties.kind);
        let arena =
            |growth| Arena::new(driver.clone(), growth).map(|arena| Some(Shelf::new(arena)));
        let arenas = match growth {
            GrowthRule::OnDemand => {
                let growth = Growth::OnDemand { step_bytes };
                [arena(growth)?, arena(growth)?, arena(growth)?]
            }
            GrowthRule::Reserved => {
                let bytes = reserve::whole_bytes(&driver, context_bytes);
                [arena(Growth::Reserved { bytes })?, None, None]
            }
        };
        let has_heap = kind == Kind::Cpu && growth == GrowthRule::OnDemand;
        Ok(Space {
            name,
            kind,
            growth,
            accounts,
            context: Mutex::new(context),
            driver,
            arenas: Arenas { all: arenas, set_aside_of: None },
            heap_below_bytes: if has_heap { HEAP_BELOW_BYTES } else { 0 },
            in_use: AtomicU64::new(context_bytes),
            peak_in_use: AtomicU64::new(context_bytes),
            rested: AtomicU64::new(0),
            outgrown: ahead::Outgrown::default(),
            is_rehearsal: false,
            fail_in: AtomicU64::new(0),
            tallies: Mutex::new(Vec::with_capacity(FEW_TALLIES)),
            sharing: sharing::Sharing::default(),
            events: events::Events::default(),
            children: Mutex::default(),
            parent: None,
            kept: None,
            _lent: None,
        })
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

    /// What the device's driver has taken for itself, as far as it is in the books here.
    pub fn context_bytes(&self) -> u64 {
        self.context.lock().bytes
    }

    /// Puts something else in the books as what the device's driver has taken for itself.
    ///
    /// # Errors
    /// If a limit refuses; nothing is changed then.
    pub fn set_context(&self, bytes: u64) -> Result<()> {
        let mut context = self.context.lock();
        let new = Context::new(&self.accounts, bytes)?;
        let now = self.in_use.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let before = std::mem::replace(&mut *context, new);
        self.in_use.fetch_sub(before.bytes, Ordering::Relaxed);
        self.peak_in_use.fetch_max(now - before.bytes, Ordering::Relaxed);
        Ok(())
    }

    /// How many bytes could still be given out, as far as limits and device go.
    pub fn free_bytes(&self) -> u64 {
        let idle: u64 = self.arenas().map(Shelf::idle_bytes).sum();
        let more = self.available_bytes();
        more.saturating_add(idle)
    }

    /// How many bytes could be given out if nobody held anything: all that its limit allows but for
    /// the device's context, as far as memory can be taken of that.
    pub fn room_bytes(&self) -> u64 {
        let limit = self.account().limit_bytes();
        self.takeable_bytes(limit.saturating_sub(self.context_bytes()))
    }

    /// How much memory can be taken where so many bytes are left: whole granules, and on the host
    /// the rest from the heap.
    fn takeable_bytes(&self, bytes: u64) -> u64 {
        let granule = self.driver.properties().granule_bytes;
        if self.heap_below_bytes > 0 { bytes } else { bytes / granule * granule }
    }

    /// Gives back all memory that nobody uses; returns how many bytes went. A space that does not
    /// grow keeps what it has, and takes what it lent and is free again. What was set aside of it
    /// stays so.
    ///
    /// # Errors
    /// If the driver refuses; what it took until then is gone.
    pub fn trim(&self, cause: &'static str) -> Result<u64> {
        self.forget_gone();
        let own: u64 =
            self.arenas().map(|arena| self.trim_arena(arena, 0, cause)).sum::<Result<u64>>()?;
        let went = own + self.trim_children(cause)?;
        self.take_lent();
        Ok(went)
    }

    /// Gives back what weights left behind that were read and are packed now: for after a load.
    /// Returns how many bytes went.
    ///
    /// # Errors
    /// As [`Space::trim`].
    pub fn trim_read(&self, cause: &'static str) -> Result<u64> {
        self.arenas.all[READ].as_ref().map_or(Ok(0), |arena| self.trim_arena(arena, 0, cause))
    }

    /// Gives back what an arena has to spare, but for `kept_bytes`, in steps: the system takes its
    /// time to clear pages, and requests that want memory meanwhile get their turn between two of
    /// them.
    fn trim_arena(&self, shelf: &Shelf, kept_bytes: u64, cause: &'static str) -> Result<u64> {
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
        self.journal().changed(trimmed, 0, cause, start);
        if let Some((parent, _)) = self.parent.as_ref().filter(|_| trimmed > 0) {
            parent.take_lent();
        }
        outcome.map(|_| trimmed)
    }

    /// What the arenas hold from the driver.
    fn arenas_bytes(&self) -> u64 {
        self.arenas().map(|arena| arena.lock().held_bytes()).sum()
    }

    fn arenas(&self) -> impl Iterator<Item = &Shelf> {
        self.arenas.all.iter().flatten()
    }

    /// The arena for a buffer, and its number.
    fn arena_for(&self, category: Category, bytes: u64) -> (usize, &Shelf) {
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
        let number = if self.arenas.all[number].is_some() { number } else { PASSING };
        (number, self.arenas.all[number].as_ref().expect("the first arena is always there"))
    }

    /// Takes a block for a tally, and a tensor of it if that has a name: a chunk, or leave to take
    /// it from the heap.
    pub(crate) fn allocate(
        &self,
        tally: &Arc<Tally>,
        bytes: u64,
        tensor: Option<&Arc<str>>,
    ) -> Result<Block> {
        if self.faults().load(Ordering::Relaxed) != 0 {
            self.count_down(bytes)?;
        }
        let account = tally.account();
        if let Some(account) = account {
            account.charge(bytes).map_err(|error| self.with_holders(error))?;
        }
        let take = || self.take_block(tally, bytes, tensor);
        let block = take().or_else(|error| match self.relieve(tally, bytes) {
            1.. => {
                let taken = take();
                // What it was lent and did not need.
                if let Some((parent, _)) = &self.parent {
                    parent.take_lent();
                }
                taken
            }
            0 => Err(error),
        });
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
    /// ever. What was set aside of it counts too. With 0 none is. So can be tried what happens when
    /// memory is out anywhere.
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
        let before = self.faults().fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        if before != Ok(1) {
            return Ok(());
        }
        let (device, call) = (self.name.clone(), "allocate");
        let reason = format!("injected failure for {needed_bytes} bytes");
        Err(Error::Driver { device, call, reason })
    }

    /// Takes a block back that was booked to a tally, and to a tensor of it if that has a name.
    pub(crate) fn free(
        &self,
        (tally, tensor): (&Tally, Option<&Arc<str>>),
        block: Block,
        bytes: u64,
    ) {
        match block {
            Block::Heap => {
                // Out of the books first: what is booked never exceeds what is charged.
                tally.unbook(Place::Heap, bytes, tensor);
                self.accounts.iter().for_each(|account| account.refund(bytes));
            }
            Block::Chunk { chunk, arena: number } => {
                let shelf = self.arenas.all[number].as_ref().expect("it came from there");
                let mut arena = shelf.lock();
                arena.free(chunk);
                tally.unbook(Place::Chunk, bytes, tensor);
                drop(arena);
                // Packed weights take the place of those that were read while a model is loaded.
                if number == READ && shelf.idle_bytes() >= TRIM_STEP_BYTES {
                    // A driver that refuses is asked again when the space is trimmed next.
                    drop(self.trim_arena(shelf, 0, "load"));
                }
            }
        }
        self.in_use.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(account) = tally.account() {
            account.refund(bytes);
        }
    }

    /// Gives back what is kept for later and could not be had where it is needed now.
    #[cold]
    fn relieve(&self, tally: &Tally, bytes: u64) -> u64 {
        let own = self.arena_for(tally.category(), bytes).0;
        let is_other = |number: &usize| self.is_for_heap(bytes) || *number != own;
        let others = (0..self.arenas.all.len()).filter(is_other);
        let others = others.filter_map(|number| self.arenas.all[number].as_ref());
        let own: u64 = others.map(|arena| self.trim_arena(arena, 0, PRESSURE).unwrap_or(0)).sum();
        own + self.relieve_relatives(bytes)
    }

    /// The same for bytes that are on the heap, however many they are.
    #[cold]
    fn relieve_heap(&self, bytes: u64) -> u64 {
        let trim = |arena| self.trim_arena(arena, 0, PRESSURE).unwrap_or(0);
        self.arenas().map(trim).sum::<u64>() + self.relieve_relatives(bytes)
    }

    fn is_for_heap(&self, bytes: u64) -> bool {
        bytes < self.heap_below_bytes
    }

    fn take_block(&self, tally: &Tally, bytes: u64, tensor: Option<&Arc<str>>) -> Result<Block> {
        match self.is_for_heap(bytes) {
            true => self.charge_heap(tally, bytes, tensor).map(|()| Block::Heap),
            false => self.take_chunk(tally, bytes, tensor),
        }
    }

    fn charge_heap(&self, tally: &Tally, bytes: u64, tensor: Option<&Arc<str>>) -> Result<()> {
        for (number, account) in self.accounts.iter().enumerate() {
            if let Err(error) = account.charge(bytes) {
                self.accounts[..number].iter().for_each(|account| account.refund(bytes));
                return Err(error);
            }
        }
        tally.book(Place::Heap, bytes, tensor);
        Ok(())
    }

    fn take_chunk(&self, tally: &Tally, bytes: u64, tensor: Option<&Arc<str>>) -> Result<Block> {
        let (number, arena) = self.arena_for(tally.category(), bytes);
        let mut arena = arena.lock();
        let (held, start) = (arena.held_bytes(), Instant::now());
        let taken = arena.allocate(bytes);
        self.journal().changed(held, arena.held_bytes(), tally.category().name(), start);
        let chunk = taken?;
        if number == PASSING && tally.category() == Category::Activations {
            self.outgrown.note(&chunk, arena.held_bytes() > held);
        }
        // Under the arena's lock, so that a snapshot sees both or neither.
        tally.book(Place::Chunk, bytes, tensor);
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
        self.forget_gone();
        self.tallies.lock().push(Arc::downgrade(tally));
    }

    /// Lets go of what is left of tallies that are gone: each would keep a page of the heap.
    fn forget_gone(&self) {
        let mut tallies = self.tallies.lock();
        tallies.retain(|tally| tally.strong_count() > 0);
        if tallies.capacity() > FEW_TALLIES.max(4 * tallies.len()) {
            tallies.shrink_to(FEW_TALLIES);
        }
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
