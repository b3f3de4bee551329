//! Memory that does not grow: all that its limit allows is held, and all of that anew when the
//! limit becomes another. It lends what is set aside of it.

use std::sync::Arc;
use std::time::Instant;

use super::arenas::{Arenas, RESERVATION, whole_bytes};
use crate::error::Result;
use crate::logical::GrowthRule;

/// The cause of what goes because a limit becomes another.
const LIMIT: &str = "limit";

impl Arenas {
    /// Gives back all that is held without growth, so that the limit can become another; `false`
    /// if something of it is in use or somebody else holds what it lent, and then it keeps
    /// everything. Others know nothing of this, and hold what they held.
    pub fn give_up_reserve(&self) -> bool {
        if self.growth() != GrowthRule::Reserved {
            return true;
        }
        let (mut arena, start) = (self.passing().lock(), Instant::now());
        // What was lent and is free again is nobody's, even if the driver did not give it back.
        let is_lent = arena.lent_bytes() > self.driver().account().free_bytes();
        if arena.in_use_bytes() > 0 || is_lent {
            return false;
        }
        let held = arena.held_bytes();
        arena.give_up();
        self.journal().changed(held, 0, LIMIT, start);
        true
    }

    /// Takes all that the limit allows beside the device's context, where there is no growth and
    /// what was held was given up; others are as they are.
    ///
    /// # Errors
    /// If that much cannot be had; it is tried again when somebody needs memory of it.
    pub fn take_reserve(&self, context_bytes: u64) -> Result<()> {
        let (mut arena, start) = (self.passing().lock(), Instant::now());
        if self.growth() != GrowthRule::Reserved || arena.held_bytes() > 0 {
            return Ok(());
        }
        let taken = arena.take_again(whole_bytes(self.driver(), context_bytes));
        self.journal().changed(0, arena.held_bytes(), RESERVATION, start);
        taken
    }

    /// Gives up `bytes` that nobody uses of what is held without growth, for memory that is set
    /// aside of it. How many went.
    ///
    /// # Errors
    /// If the driver refuses; what it took until then is gone.
    pub(super) fn lend(&self, bytes: u64) -> Result<u64> {
        let (mut arena, start) = (self.passing().lock(), Instant::now());
        let held = arena.held_bytes();
        let lent = arena.lend(bytes);
        self.journal().changed(held, arena.held_bytes(), RESERVATION, start);
        lent
    }

    /// Takes what was lent and is free again. A driver that refuses is asked again the next time,
    /// and when somebody needs memory or gives some back. Costs next to nothing if there is
    /// nothing to take.
    pub fn take_lent(&self) {
        if self.growth() == GrowthRule::Reserved {
            let (mut arena, start) = (self.passing().lock(), Instant::now());
            if arena.lent_bytes() == 0 {
                return;
            }
            let held = arena.held_bytes();
            drop(arena.take_lent());
            self.journal().changed(held, arena.held_bytes(), RESERVATION, start);
        }
    }
}

/// A loan: what was lent goes back when it is no more.
pub(super) struct Loan(pub(super) Arc<Arenas>);

impl Drop for Loan {
    fn drop(&mut self) {
        self.0.take_lent();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Account;
    use crate::buffer::Buffer;
    use crate::driver::Driver;
    use crate::ledger::{Category, Holder};
    use crate::limit::Limited;
    use crate::simulated::{Simulated, SimulatedOptions};
    use crate::space::{Owner, Space, SpaceOptions};

    const MIB: u64 = 1 << 20;

    /// A space that holds 8 MiB of a GPU of 16 MiB, with 2 MiB of them for its context.
    fn reserved(grows_in_place: bool) -> (Arc<Limited>, Arc<Space>) {
        let (_, gpu, space) = played(grows_in_place, 8);
        (gpu, space)
    }

    /// The same of so many MiB, with the GPU itself, which can be told to fail.
    fn played(grows_in_place: bool, mib: u64) -> (Arc<Simulated>, Arc<Limited>, Arc<Space>) {
        let options = SimulatedOptions::gpu("gpu:0", 16 * MIB);
        let played = Arc::new(Simulated::new(SimulatedOptions { grows_in_place, ..options }));
        let inner = Arc::clone(&played) as Arc<dyn Driver>;
        let gpu = Arc::new(Limited::new(inner, "gpu:0", 16 * MIB));
        let driver = Arc::new(Limited::new(gpu.clone(), "gpu:0", mib * MIB));
        let physical = Arc::clone(gpu.account());
        let growth = GrowthRule::Reserved;
        let (step_bytes, context_bytes) = (1, 2 * MIB);
        let options = SpaceOptions { driver, physical, growth, step_bytes, context_bytes };
        (played, gpu, Space::new(options).unwrap())
    }

    fn take(space: &Arc<Space>, mib: u64) -> Result<Buffer> {
        let owner = Owner::new(space, Holder::Server, None);
        let bytes = usize::try_from(mib * MIB).unwrap();
        Buffer::allocate_for(&owner, Category::Weights, bytes)
    }

    #[test]
    fn a_reserve_becomes_another_while_somebody_looks_at_it() {
        for grows_in_place in [true, false] {
            let (gpu, space) = reserved(grows_in_place);
            let looks = Arc::clone(&space);
            let used = take(&space, 1).unwrap();
            assert!(!space.arenas().give_up_reserve(), "something is in use");
            assert_eq!(gpu.held_bytes(), 8 * MIB);
            drop(used);
            assert!(space.arenas().give_up_reserve());
            assert_eq!(gpu.held_bytes(), 2 * MIB);
            assert!(take(&space, 1).is_err(), "it has nothing now");
            // Not a multiple of the granule.
            space.account().set_limit(15 * MIB).unwrap();
            space.arenas().take_reserve(2 * MIB).unwrap();
            assert_eq!((gpu.held_bytes(), space.account().held_bytes()), (14 * MIB, 14 * MIB));
            drop(take(&looks, 12).unwrap());
            assert_eq!(looks.snapshot().held_bytes, 14 * MIB);
        }
    }

    #[test]
    fn a_reserve_that_cannot_be_had_is_taken_when_it_can() {
        let (gpu, space) = reserved(true);
        assert!(space.arenas().give_up_reserve());
        gpu.account().charge(12 * MIB).unwrap();
        assert!(space.arenas().take_reserve(2 * MIB).is_err());
        assert!(take(&space, 1).is_err());
        gpu.account().refund(12 * MIB);
        drop(take(&space, 6).unwrap());
        assert_eq!(space.snapshot().held_bytes, 8 * MIB);
    }

    /// An owner whose memory is set aside of a space: `least` of the `limit` that it may hold.
    fn aside(space: &Arc<Space>, least: u64, limit: u64) -> Result<Arc<Space>> {
        let account = Arc::new(Account::new("model a on gpu:0", limit * MIB));
        match least < limit {
            true => space.set_aside_at_least(Holder::Server, &account, least * MIB),
            false => space.set_aside(Holder::Server, &account),
        }
    }

    #[test]
    fn what_does_not_grow_lends_what_is_set_aside_of_it_and_has_it_again() {
        let (gpu, space) = reserved(true);
        let kept = take(&space, 1).unwrap();
        let child = aside(&space, 2, 2).unwrap();
        // As much is held as before, and nothing is there twice.
        assert_eq!((gpu.held_bytes(), space.snapshot().held_bytes), (8 * MIB, 8 * MIB));
        assert!(take(&space, 4).is_err(), "2 of 6 MiB are set aside, and 1 is in use");
        let used = take(&child, 2).unwrap();
        assert!(take(&child, 1).is_err());
        assert!(!space.arenas().give_up_reserve(), "some of it is lent");
        // No more can be set aside than is free; what was lent on the way is there again.
        assert!(aside(&space, 6, 6).is_err());
        assert_eq!(space.snapshot().held_bytes, 8 * MIB);
        drop((used, child));
        assert_eq!((gpu.held_bytes(), space.snapshot().held_bytes), (8 * MIB, 8 * MIB));
        drop(take(&space, 4).unwrap());
        drop(kept);
        assert!(space.arenas().give_up_reserve());
    }

    #[test]
    fn what_is_set_aside_of_what_does_not_grow_may_grow_itself() {
        let (gpu, space) = reserved(true);
        let child = aside(&space, 2, 4).unwrap();
        let used = take(&child, 4).unwrap();
        assert_eq!(space.snapshot().held_bytes, 8 * MIB);
        assert!(take(&space, 4).is_err(), "4 of 6 MiB are lent");
        drop(used);
        // What it does not use beyond what was set aside is for whoever needs it.
        let other = take(&space, 4).unwrap();
        assert!(take(&child, 4).is_err());
        drop(take(&child, 2).unwrap());
        drop((other, child));
        drop(take(&space, 6).unwrap());
        assert_eq!((gpu.held_bytes(), space.snapshot().held_bytes), (8 * MIB, 8 * MIB));
    }

    #[test]
    fn what_a_driver_did_not_give_back_is_asked_for_again() {
        let (gpu, _, space) = played(true, 8);
        let lend = || {
            let child = aside(&space, 2, 2).unwrap();
            gpu.fail_call(0);
            drop(child);
            assert_eq!(space.account().held_bytes(), 6 * MIB, "the driver refused");
        };
        lend();
        space.arenas().take_lent();
        assert_eq!(space.account().held_bytes(), 8 * MIB);
        lend();
        space.trim("asked").unwrap();
        assert_eq!(space.account().held_bytes(), 8 * MIB);
        // Another limit does not have to wait for that.
        lend();
        assert!(space.arenas().give_up_reserve());
        assert_eq!(space.account().held_bytes(), 2 * MIB);
        space.account().set_limit(16 * MIB).unwrap();
        space.arenas().take_reserve(2 * MIB).unwrap();
        drop(take(&space, 14).unwrap());
        assert_eq!(space.snapshot().held_bytes, 16 * MIB);
    }

    #[test]
    fn what_is_lent_may_come_from_the_space_and_from_others_that_it_lent_to() {
        let (_, _, space) = played(true, 10);
        let first = aside(&space, 2, 4).unwrap();
        let second = aside(&space, 0, 6).unwrap();
        drop(take(&first, 4).unwrap());
        // 4 MiB that the space has, and 2 MiB that the first holds and does not use.
        drop(take(&second, 6).unwrap());
        assert_eq!(space.snapshot().held_bytes, 10 * MIB);
    }

    #[test]
    fn a_device_without_parts_lends_nothing() {
        let (gpu, space) = reserved(false);
        assert!(aside(&space, 2, 2).is_err());
        assert_eq!(gpu.held_bytes(), 8 * MIB);
        drop(take(&space, 6).unwrap());
    }
}
