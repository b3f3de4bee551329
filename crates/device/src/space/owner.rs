//! Owners: the holders of memory of a space, and their purposes.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use super::{Block, Space};
use crate::account::Account;
use crate::error::Result;
use crate::ledger::{Category, Holder};
use crate::sync::{AtomicU64, Mutex};

/// A holder of memory in one space: the server, or a version of a model with its limit.
#[derive(Debug)]
pub struct Owner {
    holder: Holder,
    space: Arc<Space>,
    account: Option<Arc<Account>>,
    /// The owner that holds its strings and tables, if they are elsewhere.
    host: Option<Arc<Owner>>,
    tallies: [Arc<Tally>; CATEGORIES.len()],
    /// The most workspace that a run needed.
    work: AtomicU64,
    /// The most that a run may take.
    peak: AtomicU64,
}

/// The categories that an owner can hold memory for.
const CATEGORIES: [Category; 8] = [
    Category::Weights,
    Category::PackedWeights,
    Category::Plans,
    Category::Activations,
    Category::Requests,
    Category::Context,
    Category::Reserve,
    Category::Workspace,
];

impl Owner {
    /// A holder of memory in `space`, limited by `account` if it has one.
    pub fn new(space: &Arc<Space>, holder: Holder, account: Option<Arc<Account>>) -> Arc<Owner> {
        Owner::make(space, holder, account, None)
    }

    /// The same for the memory of a GPU: what cannot be there, strings and tables, is held by
    /// `host`.
    pub fn beside(
        host: Arc<Owner>,
        space: &Arc<Space>,
        holder: Holder,
        account: Option<Arc<Account>>,
    ) -> Arc<Owner> {
        Owner::make(space, holder, account, Some(host))
    }

    fn make(
        space: &Arc<Space>,
        holder: Holder,
        account: Option<Arc<Account>>,
        host: Option<Arc<Owner>>,
    ) -> Arc<Owner> {
        let tallies = CATEGORIES.map(|category| Tally::new(space, &holder, category, &account));
        let (work, peak) = (AtomicU64::new(0), AtomicU64::new(0));
        let space = Arc::clone(space);
        Arc::new(Owner { holder, space, account, host, tallies, work, peak })
    }

    /// The owner that holds its strings and tables: often itself.
    pub fn host(self: &Arc<Self>) -> &Arc<Owner> {
        self.host.as_ref().unwrap_or(self)
    }

    /// Returns whether its strings and tables are elsewhere.
    pub fn is_split(&self) -> bool {
        self.host.is_some()
    }

    /// Notes that a run needs so much of its lane's workspace, which is the device's and not its
    /// own.
    pub fn note_work(&self, bytes: u64) {
        if self.work.load(Ordering::Relaxed) < bytes {
            self.work.fetch_max(bytes, Ordering::Relaxed);
        }
    }

    /// Notes what a run may take at most, its results included.
    pub fn note_peak(&self, bytes: u64) {
        self.peak.store(bytes, Ordering::Relaxed);
    }

    /// The most bytes that a run may take, as far as that is known.
    pub fn peak_bytes(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// The most workspace that a run needed.
    pub fn work_bytes(&self) -> u64 {
        self.work.load(Ordering::Relaxed)
    }

    /// The holder that the owner stands for.
    pub fn holder(&self) -> &Holder {
        &self.holder
    }

    /// The space in which the owner holds memory.
    pub fn space(&self) -> &Arc<Space> {
        &self.space
    }

    /// The account that limits the owner.
    pub fn account(&self) -> Option<&Arc<Account>> {
        self.account.as_ref()
    }

    /// The owner's tally for a category.
    pub(crate) fn tally(&self, category: Category) -> &Arc<Tally> {
        let at = CATEGORIES.iter().position(|other| *other == category);
        &self.tallies[at.unwrap_or(CATEGORIES.len() - 1)]
    }

    /// The bytes it holds.
    pub fn bytes(&self) -> u64 {
        self.tallies.iter().map(|tally| tally.bytes()).sum()
    }

    /// The bytes it holds for each category, without those that are none.
    pub fn categories(&self) -> Vec<(Category, u64)> {
        let of = |(category, tally): (&Category, &Arc<Tally>)| (*category, tally.bytes());
        CATEGORIES.iter().zip(&self.tallies).map(of).filter(|(_, bytes)| *bytes > 0).collect()
    }
}

/// The bytes that an owner holds for a category.
#[derive(Debug)]
pub struct Tally {
    space: Arc<Space>,
    holder: Holder,
    category: Category,
    account: Option<Arc<Account>>,
    heap: AtomicU64,
    chunks: AtomicU64,
    /// The bytes of each tensor that has a name; no more than are booked.
    tensors: Mutex<BTreeMap<Arc<str>, u64>>,
}

/// The location of booked bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// On the heap.
    Heap,
    /// In an arena, whose lock the caller has.
    Chunk,
}

/// A copy of a tally.
pub(super) struct Booking {
    pub(super) heap_bytes: u64,
    pub(super) bytes: u64,
    /// The tensors that have a name, if they were asked for.
    pub(super) tensors: Vec<(Arc<str>, u64)>,
}

impl Tally {
    pub(super) fn new(
        space: &Arc<Space>,
        holder: &Holder,
        category: Category,
        account: &Option<Arc<Account>>,
    ) -> Arc<Tally> {
        let tally = Arc::new(Tally {
            space: Arc::clone(space),
            holder: holder.clone(),
            category,
            account: account.clone(),
            heap: AtomicU64::new(0),
            chunks: AtomicU64::new(0),
            tensors: Mutex::default(),
        });
        space.books.register(&tally);
        tally
    }

    pub(crate) fn space(&self) -> &Arc<Space> {
        &self.space
    }

    pub(super) fn holder(&self) -> &Holder {
        &self.holder
    }

    pub(crate) fn category(&self) -> Category {
        self.category
    }

    /// Takes a block of the space, for a tensor if that has a name: a chunk, or leave to take it
    /// from the heap.
    ///
    /// # Errors
    /// If a limit refuses, or there is no memory.
    pub(crate) fn allocate(&self, bytes: u64, tensor: Option<&Arc<str>>) -> Result<Block> {
        self.space.faults.count(self.space.name(), bytes)?;
        self.pay(bytes, || self.space.take(self, bytes, tensor))
    }

    /// Takes bytes of the heap, however many they are. Where everything comes out of what was set
    /// aside at once, they are a part of that.
    ///
    /// # Errors
    /// If a limit refuses.
    pub(super) fn allocate_on_heap(&self, bytes: u64, tensor: Option<&Arc<str>>) -> Result<Block> {
        if self.space.heap.is_off() {
            return self.allocate(bytes, tensor);
        }
        self.space.faults.count(self.space.name(), bytes)?;
        self.charge(bytes, tensor).map(|()| Block::Heap)
    }

    /// Charges bytes that somebody else took.
    ///
    /// # Errors
    /// If a limit refuses.
    pub(super) fn charge(&self, bytes: u64, tensor: Option<&Arc<str>>) -> Result<()> {
        self.pay(bytes, || self.space.take_heap(self, bytes, tensor))
    }

    /// Charges the account for what `take` takes, and counts it.
    fn pay<T>(&self, bytes: u64, take: impl FnOnce() -> Result<T>) -> Result<T> {
        if let Some(account) = &self.account {
            account.charge(bytes).map_err(|error| self.space.with_holders(error))?;
        }
        let taken = take();
        match &taken {
            Ok(_) => self.space.books.add(bytes),
            Err(_) => self.account.iter().for_each(|account| account.refund(bytes)),
        }
        taken.map_err(|error| self.space.with_holders(error))
    }

    /// Takes a block back that was booked here, and to a tensor if that has a name.
    pub(crate) fn free(&self, block: Block, bytes: u64, tensor: Option<&Arc<str>>) {
        match block {
            Block::Heap => {
                // Out of the books first: what is booked never exceeds what is charged.
                self.unbook(Place::Heap, bytes, tensor);
                self.space.heap.refund(bytes);
            }
            Block::Chunk { chunk, arena } => {
                let unbook = || self.unbook(Place::Chunk, bytes, tensor);
                self.space.arenas.free(arena, chunk, unbook);
            }
        }
        self.space.books.subtract(bytes);
        self.account.iter().for_each(|account| account.refund(bytes));
    }

    /// Books bytes of a block to another tally of the space instead; whether the other's limit
    /// allows it.
    pub(crate) fn move_booking(
        &self,
        to: &Tally,
        block: &Block,
        bytes: u64,
        tensor: Option<&Arc<str>>,
    ) -> bool {
        // Within one account nothing changes hands, whatever it has left.
        let is_same = match (&self.account, &to.account) {
            (Some(from), Some(to)) => Arc::ptr_eq(from, to),
            _ => false,
        };
        if !is_same {
            if to.account.as_ref().is_some_and(|account| account.charge(bytes).is_err()) {
                return false;
            }
            self.account.iter().for_each(|account| account.refund(bytes));
        }
        // Under the arena's lock, as every change of what it gave out.
        self.space.arenas.while_locked(block, |place| {
            to.book(place, bytes, tensor);
            self.unbook(place, bytes, tensor);
        });
        true
    }

    pub(super) fn bytes(&self) -> u64 {
        self.heap.load(Ordering::Relaxed) + self.chunks.load(Ordering::Relaxed)
    }

    /// Books bytes, to a tensor if it has a name.
    pub(super) fn book(&self, place: Place, bytes: u64, tensor: Option<&Arc<str>>) {
        let Some(tensor) = tensor else {
            self.counter(place).fetch_add(bytes, Ordering::Relaxed);
            return;
        };
        // Both under the lock, so that no copy has more in the names than in the sum.
        let mut tensors = self.tensors.lock();
        self.counter(place).fetch_add(bytes, Ordering::Relaxed);
        *tensors.entry(Arc::clone(tensor)).or_insert(0) += bytes;
    }

    /// Takes a booking back.
    pub(super) fn unbook(&self, place: Place, bytes: u64, tensor: Option<&Arc<str>>) {
        let Some(tensor) = tensor else {
            self.counter(place).fetch_sub(bytes, Ordering::SeqCst);
            return;
        };
        let mut tensors = self.tensors.lock();
        self.counter(place).fetch_sub(bytes, Ordering::SeqCst);
        let booked = tensors.get_mut(tensor).expect("it was booked by this name");
        assert!(*booked >= bytes, "{bytes} bytes given back of {booked} for {tensor}");
        *booked -= bytes;
        if *booked == 0 {
            tensors.remove(tensor);
        }
    }

    /// A copy of what is booked, with the tensors or without.
    pub(super) fn copy(&self, has_tensors: bool) -> Booking {
        let tensors = has_tensors.then(|| self.tensors.lock());
        let heap_bytes = self.heap.load(Ordering::Relaxed);
        let bytes = heap_bytes + self.chunks.load(Ordering::Relaxed);
        let named = tensors.iter().flat_map(|tensors| tensors.iter());
        let tensors = named.map(|(name, bytes)| (Arc::clone(name), *bytes)).collect();
        Booking { heap_bytes, bytes, tensors }
    }

    /// The bytes that the tally takes itself: with its share of its owner, and the names.
    pub(super) fn books_bytes(&self) -> usize {
        // An entry of the map, and the room that its nodes have to spare at worst; the name, and
        // the two counts before it.
        const ENTRY_BYTES: usize = 2 * size_of::<(Arc<str>, u64)>() + 2 * size_of::<usize>();
        let tensors = self.tensors.lock();
        let names: usize = tensors.keys().map(|name| name.len() + ENTRY_BYTES).sum();
        let owner = size_of::<Owner>().div_ceil(CATEGORIES.len());
        size_of::<Tally>() + size_of::<Weak<Tally>>() + owner + names
    }

    fn counter(&self, place: Place) -> &AtomicU64 {
        match place {
            Place::Heap => &self.heap,
            Place::Chunk => &self.chunks,
        }
    }
}
