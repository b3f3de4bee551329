//! Memory of a space that is set aside for somebody: a space of its own, inside the other.
//!
//! Either all that it may hold is taken at once, and it never grows; or some of it, and it grows up
//! to its limit as it is used. What it holds beyond what was set aside goes back like any other
//! memory, and whoever of the device needs it gets it.

use std::sync::{Arc, Weak};
use std::time::Instant;

use super::events::Events;
use super::reserve::Lent;
use super::shelf::Shelf;
use super::{Arenas, PASSING, PRESSURE, RESERVATION, Space, SpaceOptions};
use crate::account::Account;
use crate::arena::{Arena, Growth};
use crate::driver::Driver;
use crate::error::Result;
use crate::kept::Kept;
use crate::ledger::Holder;
use crate::limit::Limited;
use crate::logical::GrowthRule;
use crate::sync::AtomicU64;

/// The least by which memory grows beyond what was set aside.
const STEP_BYTES: u64 = 256 << 10;

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
        let bytes = self.aside_bytes(account.limit_bytes(), account.limit_bytes());
        self.adopt(holder, bytes, || {
            let inner = Arc::clone(&self.driver) as Arc<dyn Driver>;
            let driver = Arc::new(Limited::with(inner, Arc::clone(account)));
            Space::make(self.inside(driver, GrowthRule::Reserved))
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
        let least = self.aside_bytes(least_bytes, account.limit_bytes());
        self.adopt(holder, least, || {
            let kept = Kept::new(Arc::clone(&self.driver) as Arc<dyn Driver>, least)?;
            let kept = Arc::new(kept);
            let inner = Arc::clone(&kept) as Arc<dyn Driver>;
            let driver = Arc::new(Limited::with(inner, Arc::clone(account)));
            let growth = Growth::OnDemand { step_bytes: STEP_BYTES };
            let mut arena = Arena::new(Arc::clone(&driver) as Arc<dyn Driver>, growth)?;
            arena.keep(least)?;
            let child = Space::make(self.inside(driver, GrowthRule::OnDemand))?;
            // One arena for all, so that what is set aside is for whatever comes.
            let all = [Some(Shelf::new(arena)), None, None];
            let arenas = Arenas { all, set_aside_of: None };
            Ok(Space { arenas, heap_below_bytes: 0, kept: Some(kept), ..child })
        })
    }

    /// What is held when `least_bytes` are set aside of a space for somebody who may hold
    /// `limit_bytes`: whole granules, and never more than the limit.
    pub fn aside_bytes(&self, least_bytes: u64, limit_bytes: u64) -> u64 {
        let granule = self.driver.properties().granule_bytes;
        let most = limit_bytes / granule * granule;
        least_bytes.checked_next_multiple_of(granule).unwrap_or(u64::MAX).min(most)
    }

    /// What a space inside this one is made of.
    fn inside(&self, driver: Arc<Limited>, growth: GrowthRule) -> SpaceOptions {
        let physical = Arc::clone(self.account());
        SpaceOptions { driver, physical, growth, step_bytes: STEP_BYTES, context_bytes: 0 }
    }

    /// Takes a space that `make` makes of so many bytes in; what nobody uses goes back first if it
    /// has to, and a space that does not grow lends them.
    fn adopt(
        self: &Arc<Self>,
        holder: Holder,
        bytes: u64,
        make: impl Fn() -> Result<Space>,
    ) -> Result<Arc<Space>> {
        let start = Instant::now();
        let lent = Lent::new(self, bytes)?;
        let made = make().or_else(|error| {
            let trimmed = self.root().trim(PRESSURE);
            // Somebody was faster, or it came back with what others gave.
            let lent = self.lend(bytes);
            if trimmed.unwrap_or(0) + lent.unwrap_or(0) > 0 { make() } else { Err(error) }
        });
        let mut child = made.map_err(|error| self.with_holders(error))?;
        self.root().events.changed(0, child.arenas_bytes(), RESERVATION, start);
        child.arenas.set_aside_of = Some(Arc::clone(self.root()));
        let parent = Some((Arc::clone(self), holder));
        let child = Arc::new(Space { parent, _lent: Some(lent), ..child });
        let mut children = self.children.lock();
        children.retain(|child| child.strong_count() > 0);
        children.push(Arc::downgrade(&child));
        Ok(child)
    }

    /// The space that it was set aside of, or itself.
    pub fn root(self: &Arc<Self>) -> &Arc<Space> {
        self.parent.as_ref().map_or(self, |(parent, _)| parent.root())
    }

    /// What of it stays set aside if it may grow beyond that, and 0 if it is no such space.
    pub fn kept_bytes(&self) -> u64 {
        self.kept.as_ref().map_or(0, |kept| kept.least_bytes())
    }

    /// Whether it holds more than was set aside, where it may.
    pub fn is_beyond_kept(&self) -> bool {
        self.kept.is_some() && self.arenas_bytes() > self.kept_bytes()
    }

    /// What it holds and nobody uses, or was promised.
    pub fn idle_bytes(&self) -> u64 {
        self.arenas().map(Shelf::idle_bytes).sum::<u64>() + self.spare_bytes()
    }

    /// What was promised and has no memory behind it while that moves.
    pub(super) fn spare_bytes(&self) -> u64 {
        self.kept.as_ref().map_or(0, |kept| kept.spare_bytes())
    }

    /// How many bytes could be taken besides what it holds: also what others of the device have to
    /// spare, as far as its own limit goes.
    pub(super) fn available_bytes(&self) -> u64 {
        let bytes = match (&self.parent, &self.kept) {
            (Some((parent, _)), Some(kept)) => {
                let idle: u64 = parent.arenas().map(Shelf::idle_bytes).sum();
                let elsewhere = idle + parent.excess_of_children(Some(self));
                let most = kept.available_bytes().saturating_add(elsewhere);
                self.account().free_bytes().min(most)
            }
            _ => self.driver.available_bytes().saturating_add(self.excess_of_children(None)),
        };
        self.takeable_bytes(bytes)
    }

    /// What those that were set aside of it hold beyond that and do not use, but for one of them.
    /// Lanes ask before each run, so nothing is allocated.
    fn excess_of_children(&self, but: Option<&Space>) -> u64 {
        let is_other =
            |child: &Arc<Space>| but.is_none_or(|but| !std::ptr::eq(&raw const **child, but));
        let children = self.children.lock();
        let others = children.iter().filter_map(Weak::upgrade).filter(is_other);
        others.map(|child| child.excess_bytes()).sum()
    }

    /// Which allocation is to be refused: one is said for the whole device.
    pub(super) fn faults(&self) -> &AtomicU64 {
        self.parent.as_ref().map_or(&self.fail_in, |(parent, _)| parent.faults())
    }

    /// What nobody uses of what it holds beyond what was set aside.
    fn excess_bytes(&self) -> u64 {
        let Some(kept) = &self.kept else { return 0 };
        let idle: u64 = self.arenas().map(Shelf::idle_bytes).sum();
        idle.min(self.account().held_bytes().saturating_sub(kept.least_bytes()))
    }

    /// The spaces that were set aside of it.
    pub(super) fn living(&self) -> Vec<Arc<Space>> {
        self.children.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Lets what was set aside of it give back what it holds beyond that.
    pub(super) fn trim_children(&self, cause: &'static str) -> Result<u64> {
        let children = self.living();
        children.iter().filter(|child| child.kept.is_some()).map(|child| child.trim(cause)).sum()
    }

    /// Lets others of the device give back what they have to spare, since somebody needs `bytes`;
    /// how many bytes.
    pub(super) fn relieve_relatives(&self, bytes: u64) -> u64 {
        let outcome = match (&self.parent, &self.kept) {
            (Some((parent, _)), Some(_)) if parent.growth == GrowthRule::Reserved => {
                parent.lend(bytes.saturating_add(STEP_BYTES))
            }
            (Some((parent, _)), Some(_)) => parent.trim(PRESSURE),
            // It has all that it may have.
            (Some(_), None) => Ok(0),
            (None, _) => self.trim_children(PRESSURE),
        };
        // A driver that refuses is asked again when the space is trimmed next.
        outcome.unwrap_or(0)
    }

    /// Where its growths and releases are noted: those of the whole device are together.
    pub(super) fn journal(&self) -> &Events {
        self.parent.as_ref().map_or(&self.events, |(parent, _)| parent.journal())
    }

    /// Its arena for what passes.
    pub(super) fn passing(&self) -> &Shelf {
        self.arenas.all[PASSING].as_ref().expect("the first arena is always there")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Category;
    use crate::space::{Change, Idle, Owner};
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
        assert_eq!((held(&space), one.kept_bytes()), ((2, 2), 2 << 20));
    }

    #[test]
    fn an_allocation_that_is_to_fail_may_be_one_of_what_was_set_aside() {
        let space = gpu();
        let a = aside(&space, 4, 16).unwrap();
        space.fail_allocation(2);
        let kept = take(&a, 2).unwrap();
        assert!(take(&a, 2).unwrap_err().to_string().contains("injected failure"));
        assert_eq!(space.fails_in(), None);
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
        assert!(a.space().is_beyond_kept());
        drop(grown);
        let idle = space.snapshot().idle;
        assert_eq!(idle, [(Idle::Kept, 6 << 20), (Idle::SetAside, 4 << 20)]);
        space.rest().unwrap();
        assert_eq!((sum(Change::Release, "idle"), a.space().is_beyond_kept()), (6, false));
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
