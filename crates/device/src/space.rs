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
mod arenas;
mod aside;
mod books;
mod charge;
mod events;
mod faults;
mod heap;
mod idle;
mod owner;
mod reserve;
mod scope;
mod sharing;
mod shelf;
mod snapshot;
mod vector;

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use self::arenas::{PASSING, RESERVATION};
use self::aside::{Children, Parent};
use self::heap::HeapCharges;
use self::owner::Place;
use crate::account::Account;
use crate::arena::Chunk;
use crate::driver::{Driver, Kind};
use crate::error::{Error, Result};
use crate::ledger::{Category, Holder};
use crate::limit::Limited;
use crate::logical::GrowthRule;

pub use ahead::{AHEAD_BYTES_MAX, Pages};
pub use arenas::Arenas;
pub use books::Books;
pub use charge::{Booked, Charge};
pub use events::{Change, Event, EventSum, EventTotal, Recent};
pub use faults::Faults;
pub use idle::Idle;
pub use owner::{Owner, Tally};
pub use scope::{
    NameScope, Scope, booked_as, booked_on_host, booked_to, named, set_default_owner, settled,
    shared,
};
pub(crate) use scope::{current, current_tensor};
pub use sharing::Sharing;
pub use snapshot::Snapshot;
pub use vector::BookedVec;

/// The memory of one logical device; see the module. Its parts have invariants of their own.
pub struct Space {
    name: String,
    kind: Kind,
    /// `true` if the bytes given out are only counted.
    is_rehearsal: bool,
    books: Books,
    heap: HeapCharges,
    arenas: Arc<Arenas>,
    sharing: Sharing,
    /// One for the whole device.
    faults: Arc<Faults>,
    /// The spaces set aside of this one.
    children: Children,
    /// The space that this one was set aside of. The last to go.
    parent: Option<Parent>,
}

/// The parts that a space is made of.
#[derive(Debug)]
pub struct SpaceOptions {
    /// The memory: a logical device's share of a physical one.
    pub driver: Arc<Limited>,
    /// The physical device's account, which the heap is charged to as well.
    pub physical: Arc<Account>,
    /// The rule by which the space takes memory: as needed, or all at once.
    pub growth: GrowthRule,
    /// The least by which it grows.
    pub step_bytes: u64,
    /// The bytes that the device's driver has taken for itself, a part of those that the space
    /// holds.
    pub context_bytes: u64,
}

impl Space {
    /// The memory of a logical device; all of it is taken now if it does not grow.
    ///
    /// # Errors
    /// If that much cannot be had.
    pub fn new(options: SpaceOptions) -> Result<Arc<Space>> {
        let start = Instant::now();
        let space = Space::make(options)?;
        let held = space.arenas.held_bytes();
        space.arenas.journal().changed(0, held, RESERVATION, start);
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

    fn make(options: SpaceOptions) -> Result<Space> {
        let SpaceOptions { driver, physical, growth, step_bytes, context_bytes } = options;
        let accounts = vec![Arc::clone(driver.account()), physical];
        let books = Books::new(accounts.clone(), context_bytes)?;
        let heap = match (driver.properties().kind, growth) {
            (Kind::Cpu, GrowthRule::OnDemand) => HeapCharges::small_buffers(accounts),
            _ => HeapCharges::no_buffers(accounts),
        };
        let arenas = match growth {
            GrowthRule::OnDemand => Arenas::growing(driver, step_bytes)?,
            GrowthRule::Reserved => Arenas::reserved(driver, context_bytes)?,
        };
        Ok(Space::from_parts(books, heap, arenas))
    }

    /// A space of its parts.
    fn from_parts(books: Books, heap: HeapCharges, arenas: Arenas) -> Space {
        let properties = arenas.driver().properties();
        Space {
            name: properties.name.clone(),
            kind: properties.kind,
            is_rehearsal: false,
            books,
            heap,
            arenas: Arc::new(arenas),
            sharing: Sharing::default(),
            faults: Arc::default(),
            children: Children::default(),
            parent: None,
        }
    }

    /// Returns whether the space is a rehearsal's.
    pub fn is_rehearsal(&self) -> bool {
        self.is_rehearsal
    }

    /// The logical device's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The device's kind.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The rule by which the space takes memory: as needed, or all at once.
    pub fn growth(&self) -> GrowthRule {
        self.arenas.growth()
    }

    /// The account of the logical device.
    pub fn account(&self) -> &Arc<Account> {
        self.arenas.driver().account()
    }

    /// The books: the bytes in use and their holders.
    pub fn books(&self) -> &Books {
        &self.books
    }

    /// The memory that it holds.
    pub fn arenas(&self) -> &Arenas {
        &self.arenas
    }

    /// The weights that may be shared.
    pub fn sharing(&self) -> &Sharing {
        &self.sharing
    }

    /// The allocation that is to be refused.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// The bytes that could still be given out, as far as limits and device go.
    pub fn free_bytes(&self) -> u64 {
        self.available_bytes().saturating_add(self.arenas.unused_bytes())
    }

    /// The bytes that could be given out if nobody held anything: all that the space's limit allows
    /// but for the device's context, as far as memory can be taken of that.
    pub fn room_bytes(&self) -> u64 {
        let granule = self.arenas.driver().properties().granule_bytes;
        let bytes = self.account().limit_bytes().saturating_sub(self.books.context_bytes());
        self.heap.takeable_bytes(bytes, granule)
    }

    /// The bytes of weights that a holder shares with others, here and in what was set aside.
    pub fn shared_bytes(&self, holder: &Holder) -> u64 {
        let children = self.children.living();
        let aside: u64 = children.iter().map(|child| child.shared_bytes(holder)).sum();
        self.sharing.shared_bytes(holder) + aside
    }

    /// Gives back all memory that nobody uses; returns how many bytes went. A space that does not
    /// grow keeps what it has, and takes what it lent and is free again. What was set aside of it
    /// stays so.
    ///
    /// # Errors
    /// If the driver refuses; what it took until then is gone.
    pub fn trim(&self, cause: &'static str) -> Result<u64> {
        self.books.forget_gone();
        let went = self.arenas.trim_all(cause)? + self.children.trim(cause)?;
        self.arenas.take_lent();
        Ok(went)
    }

    /// Takes a block for a tally, and books it: a chunk, or leave to take it from the heap.
    fn take(&self, tally: &Tally, bytes: u64, tensor: Option<&Arc<str>>) -> Result<Block> {
        if self.heap.takes(bytes) {
            return self.take_heap(tally, bytes, tensor).map(|()| Block::Heap);
        }
        let number = self.arenas.number_for(tally.category(), bytes);
        let take = || self.take_chunk(tally, bytes, tensor, number);
        take().or_else(|error| match self.relieve(Some(number), bytes) {
            1.. => {
                let taken = take();
                // What it was lent and did not need.
                self.arenas.repay();
                taken
            }
            0 => Err(error),
        })
    }

    /// Charges and books bytes of the heap, however many they are.
    fn take_heap(&self, tally: &Tally, bytes: u64, tensor: Option<&Arc<str>>) -> Result<()> {
        // What is kept for later is in the way of what is needed now.
        self.heap.charge(bytes).or_else(|error| match self.relieve(None, bytes) {
            1.. => self.heap.charge(bytes),
            0 => Err(error),
        })?;
        tally.book(Place::Heap, bytes, tensor);
        Ok(())
    }

    fn take_chunk(
        &self,
        tally: &Tally,
        bytes: u64,
        tensor: Option<&Arc<str>>,
        arena: usize,
    ) -> Result<Block> {
        let category = tally.category();
        let chunk = self.arenas.allocate(arena, bytes, category.name(), |chunk, grown| {
            self.heap.purge_before(grown);
            if arena == PASSING && category == Category::Activations {
                self.arenas.demand.note(chunk, grown > 0);
            }
            tally.book(Place::Chunk, bytes, tensor);
        })?;
        Ok(Block::Chunk { chunk, arena })
    }

    /// Gives back what is kept for later, but for one arena's, and could not be had where it is
    /// needed now; how many bytes.
    #[cold]
    fn relieve(&self, but: Option<usize>, bytes: u64) -> u64 {
        self.arenas.relieve(but) + self.relieve_relatives(bytes)
    }

    #[cold]
    fn with_holders(&self, error: Error) -> Error {
        if !matches!(error, Error::Exhausted { .. }) {
            return error;
        }
        Error::Full { error: Box::new(error), holders: self.snapshot().top_holders() }
    }

    /// Asserts that each part is as it says, those of what was set aside too. Only for a moment in
    /// which nobody takes or gives back memory.
    #[cfg(test)]
    fn check(&self) {
        self.books.check();
        let tallies = self.books.tallies();
        self.heap.check(tallies.iter().map(|tally| tally.copy(false).heap_bytes).sum());
        self.arenas.check();
        self.sharing.check();
        self.children.check(self);
    }
}

impl fmt::Debug for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Space({})", self.name)
    }
}

/// The location of a buffer's bytes.
#[derive(Debug)]
pub(crate) enum Block {
    /// On the heap, charged to the space.
    Heap,
    /// In an arena.
    Chunk {
        /// The chunk.
        chunk: Chunk,
        /// The index of the arena that the chunk came from.
        arena: usize,
    },
}

#[cfg(test)]
mod tests;
