//! Who holds memory of a space, and for what.

use std::sync::Arc;
use std::sync::atomic::Ordering;

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
    /// The tensors that were named, and their bytes.
    tensors: Mutex<Vec<(Arc<str>, u64)>>,
    /// The most workspace that a run needed.
    work: AtomicU64,
}

/// What an owner can hold memory for.
const CATEGORIES: [Category; 7] = [
    Category::Weights,
    Category::PackedWeights,
    Category::Plans,
    Category::Activations,
    Category::Requests,
    Category::Context,
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
        let (space, tensors, work) = (Arc::clone(space), Mutex::default(), AtomicU64::new(0));
        Arc::new(Owner { holder, space, account, host, tallies, tensors, work })
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

    /// The most workspace that a run needed.
    pub fn work_bytes(&self) -> u64 {
        self.work.load(Ordering::Relaxed)
    }

    /// Notes that it holds a tensor of this name, for people to see.
    pub fn note(&self, tensor: &str, bytes: u64) {
        self.tensors.lock().push((Arc::from(tensor), bytes));
    }

    /// The `n` largest of the tensors that were noted.
    pub fn largest(&self, n: usize) -> Vec<(Arc<str>, u64)> {
        let mut tensors = self.tensors.lock().clone();
        tensors.sort_by_key(|(_, bytes)| u64::MAX - bytes);
        tensors.truncate(n);
        tensors
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
    pub(super) heap: AtomicU64,
    pub(super) chunks: AtomicU64,
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

    pub(super) fn category(&self) -> Category {
        self.category
    }

    pub(super) fn account(&self) -> Option<&Arc<Account>> {
        self.account.as_ref()
    }

    pub(super) fn bytes(&self) -> u64 {
        use std::sync::atomic::Ordering::Relaxed;
        self.heap.load(Relaxed) + self.chunks.load(Relaxed)
    }
}
