//! Memory of a space that is set aside for somebody: a space of its own, inside the other.
//!
//! Either all that it may hold is taken at once, and it never grows; or some of it, and it grows up
//! to its limit as it is used. What it holds beyond what was set aside goes back like any other
//! memory, and whoever of the device needs it gets it.

use std::sync::{Arc, Weak};
use std::time::Instant;

use super::Space;
use super::arenas::{Arenas, PRESSURE, RESERVATION};
use super::books::Books;
use super::heap::HeapCharges;
use super::reserve::Loan;
use crate::account::Account;
use crate::driver::Driver;
use crate::error::Result;
use crate::kept::Kept;
use crate::ledger::Holder;
use crate::limit::Limited;
use crate::logical::GrowthRule;
use crate::sync::Mutex;

/// The least by which memory grows beyond what was set aside.
const STEP_BYTES: u64 = 256 << 10;

/// The space that another was set aside of, and for whom.
pub(super) struct Parent {
    pub(super) space: Arc<Space>,
    pub(super) holder: Holder,
    /// The last to go: all that was held is free by then.
    _loan: Loan,
}

/// The spaces that were set aside of another.
#[derive(Default)]
pub(super) struct Children(Mutex<Vec<Weak<Space>>>);

impl Children {
    fn add(&self, child: &Arc<Space>) {
        let mut children = self.0.lock();
        children.retain(|child| child.strong_count() > 0);
        children.push(Arc::downgrade(child));
    }

    /// Those that are still there.
    pub(super) fn living(&self) -> Vec<Arc<Space>> {
        self.0.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Those of them that may grow beyond what was set aside.
    pub(super) fn growing(&self) -> Vec<Arc<Space>> {
        let mut children = self.living();
        children.retain(|child| child.arenas.kept().is_some());
        children
    }

    /// Returns whether `is` holds of one of the spaces. Lanes ask after each run, so nothing is
    /// allocated.
    pub(super) fn any(&self, is: impl Fn(&Space) -> bool) -> bool {
        self.0.lock().iter().filter_map(Weak::upgrade).any(|child| is(&child))
    }

    /// The idle bytes that the spaces, but for one of them, hold beyond the part set aside. Lanes
    /// ask before each run, so nothing is allocated.
    pub(super) fn excess_bytes(&self, but: Option<&Space>) -> u64 {
        let is_other =
            |child: &Arc<Space>| but.is_none_or(|but| !std::ptr::eq(&raw const **child, but));
        let children = self.0.lock();
        let others = children.iter().filter_map(Weak::upgrade).filter(is_other);
        others.map(|child| child.arenas.excess_bytes()).sum()
    }

    /// Lets them give back what they hold beyond what was set aside.
    ///
    /// # Errors
    /// As [`Space::trim`].
    pub(super) fn trim(&self, cause: &'static str) -> Result<u64> {
        self.growing().iter().map(|child| child.trim(cause)).sum()
    }

    /// Asserts that all of them are in `parent`, and as they say.
    #[cfg(test)]
    pub(super) fn check(&self, parent: &Space) {
        for child in self.living() {
            let of = child.parent.as_ref().expect("it was set aside");
            assert!(std::ptr::eq(&raw const *of.space, parent), "it was set aside of this");
            child.check();
        }
    }
}

impl Space {
    /// Sets memory aside for `holder`: as much as `account` allows is taken now, and given back
    /// when the space that is returned is dropped. In a snapshot it is part of this one.
    ///
    /// # Errors
    /// If that much cannot be had.
    pub fn set_aside(
        self: &Arc<Self>,
        holder: Holder,
        account: &Arc<Account>,
    ) -> Result<Arc<Space>> {
        let bytes = self.arenas.aside_bytes(account.limit_bytes(), account.limit_bytes());
        self.adopt(holder, bytes, || {
            let inner = Arc::clone(self.arenas.driver()) as Arc<dyn Driver>;
            Arenas::reserved(Arc::new(Limited::with(inner, Arc::clone(account))), 0)
        })
    }

    /// Sets `least_bytes` of memory aside for `holder`, in whole granules: they are taken now, and
    /// given back when the space that is returned is dropped. Until then it may hold more, up to
    /// what `account` allows. In a snapshot it is part of this one.
    ///
    /// # Errors
    /// If that much cannot be had.
    pub fn set_aside_at_least(
        self: &Arc<Self>,
        holder: Holder,
        account: &Arc<Account>,
        least_bytes: u64,
    ) -> Result<Arc<Space>> {
        let least = self.arenas.aside_bytes(least_bytes, account.limit_bytes());
        self.adopt(holder, least, || {
            let device = Arc::clone(self.arenas.driver()) as Arc<dyn Driver>;
            let kept = Arc::new(Kept::new(device, least)?);
            let inner = Arc::clone(&kept) as Arc<dyn Driver>;
            let driver = Arc::new(Limited::with(inner, Arc::clone(account)));
            Arenas::keeping(driver, kept, STEP_BYTES)
        })
    }

    /// Takes memory in that `make` makes of so many bytes; what nobody uses goes back first if it
    /// has to, and a space that does not grow lends them.
    fn adopt(
        self: &Arc<Self>,
        holder: Holder,
        bytes: u64,
        make: impl Fn() -> Result<Arenas>,
    ) -> Result<Arc<Space>> {
        let start = Instant::now();
        // What is held on the way goes back if it comes to nothing.
        let loan = Loan(Arc::clone(&self.arenas));
        self.lend(bytes)?;
        let made = make().or_else(|error| {
            let trimmed = self.root().trim(PRESSURE);
            // Somebody was faster, or it came back with what others gave.
            let lent = self.lend(bytes);
            if trimmed.unwrap_or(0) + lent.unwrap_or(0) > 0 { make() } else { Err(error) }
        });
        let mut arenas = made.map_err(|error| self.with_holders(error))?;
        arenas.set_lender(&self.arenas);
        arenas.journal().changed(0, arenas.held_bytes(), RESERVATION, start);
        let accounts = vec![Arc::clone(arenas.driver().account()), Arc::clone(self.account())];
        let books = Books::new(accounts.clone(), 0)?;
        let mut child = Space::from_parts(books, HeapCharges::no_buffers(accounts), arenas);
        child.faults = Arc::clone(&self.faults);
        child.parent = Some(Parent { space: Arc::clone(self), holder, _loan: loan });
        let child = Arc::new(child);
        self.children.add(&child);
        Ok(child)
    }

    /// The space that it was set aside of, or itself.
    pub fn root(self: &Arc<Self>) -> &Arc<Space> {
        self.parent.as_ref().map_or(self, |parent| parent.space.root())
    }

    /// Gives up `bytes` of what a space without growth holds, for one that is set aside of it: what
    /// nobody uses, also of others that were set aside. How many went; 0 if the space grows.
    fn lend(&self, bytes: u64) -> Result<u64> {
        if self.growth() != GrowthRule::Reserved {
            return Ok(0);
        }
        let lent = self.arenas.lend(bytes)?;
        if lent < bytes && self.children.trim(PRESSURE)? > 0 {
            // With what they gave, what was lent before came back too.
            return self.arenas.lend(bytes);
        }
        Ok(lent)
    }

    /// The bytes that the space could take besides those it holds: also those that others of the
    /// device have to spare, as far as its own limit goes.
    pub(super) fn available_bytes(&self) -> u64 {
        let driver = self.arenas.driver();
        let bytes = match (&self.parent, self.arenas.kept()) {
            (Some(Parent { space, .. }), Some(kept)) => {
                let elsewhere =
                    space.arenas.unused_bytes() + space.children.excess_bytes(Some(self));
                let most = kept.available_bytes().saturating_add(elsewhere);
                self.account().free_bytes().min(most)
            }
            _ => driver.available_bytes().saturating_add(self.children.excess_bytes(None)),
        };
        self.heap.takeable_bytes(bytes, driver.properties().granule_bytes)
    }

    /// Lets others of the device give back what they have to spare, since somebody needs `bytes`;
    /// how many bytes.
    pub(super) fn relieve_relatives(&self, bytes: u64) -> u64 {
        let outcome = match (&self.parent, self.arenas.kept()) {
            (Some(Parent { space, .. }), Some(_)) if space.growth() == GrowthRule::Reserved => {
                space.lend(bytes.saturating_add(STEP_BYTES))
            }
            (Some(Parent { space, .. }), Some(_)) => space.trim(PRESSURE),
            // It has all that it may have.
            (Some(_), None) => Ok(0),
            (None, _) => self.children.trim(PRESSURE),
        };
        // A driver that refuses is asked again when the space is trimmed next.
        outcome.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Category;
    use crate::space::{Change, Idle, Owner, SpaceOptions};
    use crate::{Buffer, Simulated};

    const MIB: usize = 1 << 20;

    /// A GPU of 32 MiB with granules of 2 MiB.
    fn gpu() -> Arc<Space> {
        let gpu = Arc::new(Simulated::gpu("gpu:0", 32 << 20)) as Arc<dyn Driver>;
        let driver = Arc::new(Limited::new(gpu, "gpu:0", 32 << 20));
        let physical = Arc::clone(driver.account());
        let growth = GrowthRule::OnDemand;
        Space::new(SpaceOptions { driver, physical, growth, step_bytes: 1, context_bytes: 0 })
            .unwrap()
    }

    fn holder(model: &str) -> Holder {
        Holder::Version { model: Arc::from(model), version: 1 }
    }

    /// Some of a space for a model, which may hold more.
    fn aside(space: &Arc<Space>, least_mib: u64, limit_mib: u64) -> Result<Arc<Owner>> {
        let account = Arc::new(Account::new("model a", limit_mib << 20));
        let aside = space.set_aside_at_least(holder("a"), &account, least_mib << 20)?;
        Ok(Owner::new(&aside, holder("a"), None))
    }

    fn take(owner: &Arc<Owner>, mib: usize) -> Result<Buffer> {
        Buffer::allocate_for(owner, Category::Weights, mib * MIB)
    }

    /// The MiB that a space holds, and those of them that are the reserve of model `a`.
    fn held(space: &Space) -> (u64, u64) {
        let snapshot = space.snapshot();
        assert_eq!(snapshot.held_bytes, space.account().held_bytes());
        let is_reserve = |row: &&crate::Row| row.category == Category::Reserve;
        let rows = snapshot.rows.iter().filter(|row| row.holder == holder("a"));
        let reserve: u64 = rows.filter(is_reserve).map(|row| row.bytes).sum();
        (snapshot.held_bytes >> 20, reserve >> 20)
    }

    #[test]
    fn what_is_set_aside_is_a_reserve_until_it_is_used_and_then_grows_to_the_limit() {
        let space = gpu();
        let a = aside(&space, 8, 16).unwrap();
        assert_eq!(held(&space), (8, 8));
        let first = take(&a, 6).unwrap();
        assert_eq!(held(&space), (8, 2));
        let second = take(&a, 6).unwrap();
        assert_eq!(held(&space), (12, 0));
        assert!(take(&a, 6).is_err(), "more than the limit");
        let third = take(&a, 4).unwrap();
        assert_eq!(held(&space), (16, 0));
        drop((first, second));
        // Beyond what was set aside it goes back.
        assert_eq!(space.trim("test").unwrap(), 8 << 20);
        assert_eq!(held(&space), (8, 4));
        drop((third, a));
        assert_eq!(held(&space), (0, 0));
    }

    #[test]
    fn one_buffer_may_take_all_of_the_limit() {
        // The reserve is smaller, and moves to where it fits.
        let space = gpu();
        let a = aside(&space, 6, 16).unwrap();
        let small = Buffer::allocate_for(&a, Category::Requests, 100).unwrap();
        drop(take(&a, 14).unwrap());
        drop(small);
        drop(take(&a, 16).unwrap());
        assert_eq!(held(&space).0, 16);
    }

    #[test]
    fn nobody_else_gets_what_is_set_aside_and_everybody_what_is_not() {
        let space = gpu();
        let a = aside(&space, 8, 32).unwrap();
        let b = Owner::new(&space, holder("b"), None);
        assert_eq!(space.free_bytes() >> 20, 24);
        assert!(take(&b, 26).is_err());
        drop(take(&b, 24).unwrap());
        // What the device keeps for later is this one's too.
        assert_eq!(a.space().free_bytes() >> 20, 32);
        drop(take(&a, 32).unwrap());
        assert_eq!(held(&space), (32, 32));
        // And what it does not use goes to others, but for what was set aside.
        assert_eq!(space.free_bytes() >> 20, 24);
        let most = take(&b, 24).unwrap();
        assert_eq!(held(&space), (32, 8));
        assert!(take(&a, 10).is_err());
        drop(take(&a, 8).unwrap());
        drop(most);
    }

    #[test]
    fn a_reserve_that_cannot_be_had_is_refused_after_what_is_idle_went_back() {
        let space = gpu();
        let b = Owner::new(&space, holder("b"), None);
        drop(take(&b, 20).unwrap());
        let a = aside(&space, 30, 32).unwrap();
        assert_eq!(held(&space), (30, 30));
        assert!(aside(&space, 4, 8).is_err());
        assert_eq!(held(&space), (30, 30));
        drop(a);
        // Not more than the limit, and at least a granule.
        drop(aside(&space, 9, 8).unwrap());
        let account = Arc::new(Account::new("model a", 8 << 20));
        let one = space.set_aside_at_least(holder("a"), &account, 1).unwrap();
        assert_eq!((held(&space), one.arenas().kept_bytes()), ((2, 2), 2 << 20));
    }

    #[test]
    fn an_allocation_that_is_to_fail_may_be_one_of_what_was_set_aside() {
        let space = gpu();
        let a = aside(&space, 4, 16).unwrap();
        space.faults().fail_allocation(2);
        let kept = take(&a, 2).unwrap();
        assert!(take(&a, 2).unwrap_err().to_string().contains("injected failure"));
        assert_eq!(space.faults().fails_in(), None);
        assert_eq!(held(&space), (4, 2));
        drop((kept, take(&a, 4).unwrap()));
    }

    #[test]
    fn growth_beyond_a_reserve_is_noted_and_each_idle_byte_has_a_reason() {
        let space = gpu();
        let a = aside(&space, 4, 16).unwrap();
        let grown = take(&a, 10).unwrap();
        let sum = |change: Change, cause: &str| -> u64 {
            let totals = space.snapshot().events;
            let of = |total: &&crate::EventTotal| total.change == change && total.cause == cause;
            totals.iter().filter(of).map(|total| total.bytes >> 20).sum()
        };
        assert_eq!(sum(Change::Growth, "reservation"), 4);
        assert_eq!(sum(Change::Growth, "weights"), 6);
        assert!(a.space().arenas().is_beyond_kept());
        drop(grown);
        let idle = space.snapshot().idle;
        assert_eq!(idle, [(Idle::Kept, 6 << 20), (Idle::SetAside, 4 << 20)]);
        space.rest().unwrap();
        assert_eq!((sum(Change::Release, "idle"), a.space().arenas().is_beyond_kept()), (6, false));
        drop(a);
        assert_eq!(sum(Change::Release, "reservation"), 4);
    }

    #[test]
    fn a_limit_changes_while_more_than_the_reserve_is_held() {
        let space = gpu();
        let a = aside(&space, 4, 16).unwrap();
        let kept = take(&a, 10).unwrap();
        let account = a.space().account();
        assert!(account.set_limit(8 << 20).is_err());
        account.set_limit(10 << 20).unwrap();
        assert!(take(&a, 2).is_err());
        account.set_limit(12 << 20).unwrap();
        drop(take(&a, 2).unwrap());
        drop(kept);
        space.trim("test").unwrap();
        account.set_limit(4 << 20).unwrap();
        assert!(take(&a, 6).is_err());
        drop(take(&a, 4).unwrap());
    }
}
