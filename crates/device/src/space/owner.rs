//! Who holds memory of a space, and for what.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::Space;
use crate::account::Account;
use crate::ledger::{Category, Holder};

/// A holder of memory in one space: the server, or a version of a model with its limit.
#[derive(Debug)]
pub struct Owner {
    holder: Holder,
    space: Arc<Space>,
    account: Option<Arc<Account>>,
    tallies: [Arc<Tally>; CATEGORIES.len()],
}

/// What an owner can hold memory for.
const CATEGORIES: [Category; 6] = [
    Category::Weights,
    Category::PackedWeights,
    Category::Plans,
    Category::Activations,
    Category::Requests,
    Category::Workspace,
];

impl Owner {
    /// A holder of memory in `space`, limited by `account` if it has one.
    pub fn new(space: &Arc<Space>, holder: Holder, account: Option<Arc<Account>>) -> Arc<Owner> {
        let tallies = CATEGORIES.map(|category| Tally::new(space, &holder, category, &account));
        Arc::new(Owner { holder, space: Arc::clone(space), account, tallies })
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
