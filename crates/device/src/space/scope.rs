//! Scopes: the owner that a thread works for, which pays for the buffers that it makes.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use super::owner::{Owner, Tally};
use crate::buffer::Buffer;
use crate::error::Result;
use crate::ledger::Category;

thread_local! {
    static CURRENT: RefCell<Option<(Arc<Owner>, Category)>> = const { RefCell::new(None) };
    static TENSOR: RefCell<Option<Arc<str>>> = const { RefCell::new(None) };
}

/// The owner that pays for buffers made outside every scope, as those of requests being decoded.
static DEFAULT: OnceLock<Arc<Owner>> = OnceLock::new();

/// While it lives, buffers that this thread makes are booked as it says.
#[derive(Debug)]
#[must_use = "the scope ends when it is dropped"]
pub struct Scope {
    before: Option<(Arc<Owner>, Category)>,
    /// A scope ends on the thread it began on.
    _not_send: PhantomData<*const ()>,
}

/// Books the buffers that this thread makes from now on to `owner`, until the scope is dropped.
pub fn booked_to(owner: &Arc<Owner>, category: Category) -> Scope {
    enter(Some((Arc::clone(owner), category)))
}

/// The same for the owner that pays already, if there is one: only the category changes.
pub fn booked_as(category: Category) -> Scope {
    let owner = CURRENT.with_borrow(|current| current.as_ref().map(|(owner, _)| owner.clone()));
    enter(owner.map(|owner| (owner, category)))
}

/// The same on the host that the strings and tables of that owner are on.
pub fn booked_on_host() -> Scope {
    let host = |current: &Option<(Arc<Owner>, Category)>| {
        current.as_ref().map(|(owner, category)| (Arc::clone(owner.host()), *category))
    };
    enter(CURRENT.with_borrow(host))
}

/// While it lives, what this thread takes memory for has a name.
#[derive(Debug)]
#[must_use = "the name is forgotten when it is dropped"]
pub struct NameScope {
    before: Option<Arc<str>>,
    /// A scope ends on the thread it began on.
    _not_send: PhantomData<*const ()>,
}

/// Names what this thread takes memory for from now on, until the scope is dropped: a tensor, or a
/// plan. The tensors of requests and replies are too many and too short-lived to be named.
pub fn named(tensor: Arc<str>) -> NameScope {
    let before = TENSOR.with_borrow_mut(|current| current.replace(tensor));
    NameScope { before, _not_send: PhantomData }
}

/// The name of what is taken for a category now.
pub(crate) fn current_tensor(category: Category) -> Option<Arc<str>> {
    match category {
        Category::Weights
        | Category::PackedWeights
        | Category::Plans
        | Category::Activations
        | Category::Workspace => TENSOR.with_borrow(Clone::clone),
        Category::Requests | Category::Context | Category::Fragmentation | Category::Reserve => {
            None
        }
    }
}

impl Drop for NameScope {
    fn drop(&mut self) {
        let before = self.before.take();
        drop(TENSOR.with_borrow_mut(|current| std::mem::replace(current, before)));
    }
}

/// Says who pays for buffers made outside every scope, once in the life of a process; later calls
/// change nothing.
pub fn set_default_owner(owner: Arc<Owner>) {
    drop(DEFAULT.set(owner));
}

/// The buffer that holds the same bytes as a weight, packed or not, that this thread just made, if
/// its owner's space has one already; see [`Sharing::share`](crate::Sharing::share). Any other
/// buffer is given back as it is.
pub fn shared(buffer: Buffer) -> Buffer {
    let current = CURRENT.with_borrow(Clone::clone);
    match current {
        Some((owner, category @ (Category::Weights | Category::PackedWeights))) => {
            owner.space().sharing().share(buffer, &owner, category)
        }
        _ => buffer,
    }
}

/// The buffer that is best put in the place of a weight that this thread's owner holds `n_holders`
/// times; see [`Sharing::settle`](crate::Sharing::settle).
///
/// # Errors
/// If there is no memory for it.
pub fn settled(buffer: &Buffer, n_holders: usize) -> Result<Option<Buffer>> {
    let current = CURRENT.with_borrow(Clone::clone);
    match current {
        Some((owner, _)) => owner.space().sharing().settle(buffer, n_holders, &owner),
        None => Ok(None),
    }
}

/// The tally that pays for a buffer made now; `None` if nobody counts it.
pub(crate) fn current() -> Option<Arc<Tally>> {
    tally_of(|owner, category| Arc::clone(owner.tally(category)))
}

/// The same for what is always on the host.
pub(super) fn current_on_host() -> Option<Arc<Tally>> {
    tally_of(|owner, category| Arc::clone(owner.host().tally(category)))
}

fn tally_of(tally: impl Fn(&Arc<Owner>, Category) -> Arc<Tally>) -> Option<Arc<Tally>> {
    let current = CURRENT
        .with_borrow(|current| current.as_ref().map(|(owner, category)| tally(owner, *category)));
    current.or_else(|| DEFAULT.get().map(|owner| tally(owner, Category::Requests)))
}

fn enter(now: Option<(Arc<Owner>, Category)>) -> Scope {
    let before = CURRENT.with_borrow_mut(|current| std::mem::replace(current, now));
    Scope { before, _not_send: PhantomData }
}

impl Drop for Scope {
    fn drop(&mut self) {
        let before = self.before.take();
        drop(CURRENT.with_borrow_mut(|current| std::mem::replace(current, before)));
    }
}
