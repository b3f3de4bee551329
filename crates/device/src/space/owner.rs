//! Who holds memory of a space, and for what.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use super::Space;
use crate::account::Account;
use crate::ledger::{Category, Holder};
use crate::sync::{AtomicU64, Mutex};

/// A holder of memory in one space: the server, or a version of a model with its limit.
#[derive(Debug)]
pub struct Owner {
    holder: Holder,
    space: Arc<Space>,
    account: Option<Arc<Account>>,
    /// Who holds its strings and tables, if they are elsewhere.
    host: Option<Arc<Owner>>,
    tallies: [Arc<Tally>; CATEGORIES.len()],
    /// The most workspace that a run needed.
    work: AtomicU64,
    /// What a run may take at most.
    peak: AtomicU64,
}

/// What an owner can hold memory for.
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

    /// Who holds its strings and tables: often itself.
    pub fn host(self: &Arc<Self>) -> &Arc<Owner> {
        self.host.as_ref().unwrap_or(self)
    }

    /// Whether its strings and tables are elsewhere.
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

    /// What a run may take at most, as far as that is known.
    pub fn peak_bytes(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// The most workspace that a run needed.
    pub fn work_bytes(&self) -> u64 {
        self.work.load(Ordering::Relaxed)
    }

    /// Who it is.
    pub fn holder(&self) -> &Holder {
        &self.holder
    }

    /// Where it holds memory.
    pub fn space(&self) -> &Arc<Space> {
        &self.space
    }

    /// What limits it.
    pub fn account(&self) -> Option<&Arc<Account>> {
        self.account.as_ref()
    }

    /// What it holds for a category.
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

/// Where bytes are that are booked.
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
        space.register(&tally);
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

    pub(super) fn account(&self) -> Option<&Arc<Account>> {
        self.account.as_ref()
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

    /// What it takes itself: with its share of its owner, and the names.
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
