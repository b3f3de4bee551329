//! `Charge`: memory that a space knows of but did not give out.

use std::sync::Arc;

use super::{Block, Owner, Tally, scope};
use crate::error::Result;
use crate::ledger::Category;

/// Memory of the device that somebody else took for an owner, as another process does: limited and
/// in the books like memory that the space gave out. Dropping it takes the charge back.
#[derive(Debug)]
pub struct Charge {
    owner: Arc<Owner>,
    category: Category,
    bytes: u64,
}

impl Charge {
    /// Charges an owner `bytes`.
    ///
    /// # Errors
    /// If a limit refuses.
    pub fn new(owner: &Arc<Owner>, category: Category, bytes: u64) -> Result<Charge> {
        let mut charge = Charge { owner: Arc::clone(owner), category, bytes: 0 };
        charge.add(bytes)?;
        Ok(charge)
    }

    /// The bytes charged.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Charges `bytes` instead, or as many of them as the limits allow. Gives how many.
    pub fn set(&mut self, bytes: u64) -> u64 {
        if bytes < self.bytes {
            self.take_back(self.bytes - bytes);
        } else if self.add(bytes - self.bytes).is_err() {
            // Others may charge meanwhile; what is missing then is charged next time.
            let room = self.owner.space().heap.room_bytes(self.owner.account());
            drop(self.add(room.min(bytes - self.bytes)));
        }
        self.bytes
    }

    fn add(&mut self, bytes: u64) -> Result<()> {
        self.owner.take(self.category, bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    fn take_back(&mut self, bytes: u64) {
        self.owner.give_back(self.category, bytes);
        self.bytes -= bytes;
    }
}

impl Owner {
    /// Charges bytes of the device that somebody else took, until they are given back.
    ///
    /// # Errors
    /// If a limit refuses.
    pub fn take(&self, category: Category, bytes: u64) -> Result<()> {
        self.tally(category).charge(bytes, None)
    }

    /// Takes back a charge of [`Owner::take`].
    pub fn give_back(&self, category: Category, bytes: u64) {
        self.tally(category).free(Block::Heap, bytes, None);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.take_back(self.bytes);
    }
}

/// Bytes of the heap that hold something else than a buffer's elements, as strings and the keys of
/// tables: limited and in the books of the host of whom the thread works for, until it is dropped.
#[derive(Debug)]
pub struct Booked {
    /// The tally that pays, and the block taken; nobody counts the buffer without them.
    taken: Option<(Arc<Tally>, Block)>,
    /// The tensor's name, if it was given.
    tensor: Option<Arc<str>>,
    bytes: u64,
}

impl Booked {
    /// Books nothing.
    pub const fn nothing() -> Booked {
        Booked { taken: None, tensor: None, bytes: 0 }
    }

    /// Books `bytes` to whom this thread works for.
    ///
    /// # Errors
    /// If a limit refuses.
    pub fn new(bytes: usize) -> Result<Booked> {
        let bytes = bytes as u64;
        let tally = if bytes == 0 { None } else { scope::current_on_host() };
        let Some(tally) = tally else {
            return Ok(Booked::nothing());
        };
        let tensor = scope::current_tensor(tally.category());
        let block = tally.allocate_on_heap(bytes, tensor.as_ref())?;
        Ok(Booked { taken: Some((tally, block)), tensor, bytes })
    }

    /// The bytes in the books.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Booked {
    fn drop(&mut self) {
        if let Some((tally, block)) = self.taken.take() {
            tally.free(block, self.bytes, self.tensor.as_ref());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logical::GrowthRule;
    use crate::{Account, Driver, Holder, Host, Limited, Space, SpaceOptions};

    const MIB: u64 = 1 << 20;

    fn space() -> Arc<Space> {
        let host = Arc::new(Host::new("cpu:0", 64 * MIB)) as Arc<dyn Driver>;
        let whole = Arc::new(Limited::new(host, "cpu:0", 64 * MIB));
        let physical = Arc::clone(whole.account());
        let driver = Arc::new(Limited::new(whole as Arc<dyn Driver>, "cpu:0", 10 * MIB));
        let growth = GrowthRule::OnDemand;
        Space::new(SpaceOptions { driver, physical, growth, step_bytes: MIB, context_bytes: 0 })
            .unwrap()
    }

    #[test]
    fn a_charge_is_limited_and_in_the_books_until_it_is_dropped() {
        let space = space();
        let account = Arc::new(Account::new("model m", 4 * MIB));
        let holder = Holder::Version { model: Arc::from("m"), version: 1 };
        let owner = Owner::new(&space, holder.clone(), Some(Arc::clone(&account)));
        assert!(Charge::new(&owner, Category::Weights, 5 * MIB).is_err());
        assert_eq!((account.held_bytes(), space.account().held_bytes()), (0, 0));
        let mut charge = Charge::new(&owner, Category::Weights, 2 * MIB).unwrap();
        let rows = space.snapshot().rows;
        let row = rows.iter().find(|row| row.holder == holder && row.bytes > 0).unwrap();
        assert_eq!((row.category, row.bytes), (Category::Weights, 2 * MIB));
        assert_eq!(space.snapshot().held_bytes, rows.iter().map(|row| row.bytes).sum::<u64>());
        assert_eq!(charge.set(9 * MIB), 4 * MIB, "no more than the limit");
        assert_eq!(charge.set(MIB), MIB);
        assert_eq!((charge.bytes(), account.held_bytes()), (MIB, MIB));
        drop(charge);
        assert_eq!((account.held_bytes(), space.snapshot().in_use_bytes), (0, 0));
    }

    #[test]
    fn a_charge_takes_what_is_kept_for_later() {
        let space = space();
        let owner = Owner::new(&space, Holder::Server, None);
        let scope = crate::booked_to(&owner, Category::Requests);
        drop(crate::Buffer::allocate(8 << 20).unwrap());
        assert!(space.account().free_bytes() < 4 * MIB, "the arena keeps its memory");
        let strings = Booked::new(9 << 20).unwrap();
        assert_eq!(owner.bytes(), 9 * MIB);
        drop((scope, strings));
        owner.take(Category::Requests, 10 * MIB).unwrap();
        assert!(owner.take(Category::Requests, MIB).is_err());
        owner.give_back(Category::Requests, 10 * MIB);
        assert_eq!((owner.bytes(), space.account().held_bytes()), (0, 0));
    }

    #[test]
    fn what_a_device_needs_for_itself_is_booked_as_that() {
        let space = space();
        let owner = Owner::new(&space, Holder::Shared, None);
        let mut charge = Charge::new(&owner, Category::Context, 0).unwrap();
        assert_eq!(charge.set(20 * MIB), 10 * MIB);
        let rows = space.snapshot().rows;
        let row = rows.iter().find(|row| row.bytes > 0).unwrap();
        assert_eq!((&row.holder, row.category), (&Holder::Shared, Category::Context));
        assert_eq!(space.free_bytes(), 0);
    }

    #[test]
    fn strings_of_a_split_owner_are_booked_on_its_host() {
        let (host, gpu) = (space(), space());
        let holder = Holder::Version { model: Arc::from("m"), version: 1 };
        let account = Arc::new(Account::new("model m", 4 * MIB));
        let on_host = Owner::new(&host, holder.clone(), Some(Arc::clone(&account)));
        let owner = Owner::beside(on_host, &gpu, holder, None);
        let scope = crate::booked_to(&owner, Category::Weights);
        let strings = Booked::new(3 << 20).unwrap();
        let buffer = crate::Buffer::allocate(5 << 20).unwrap();
        assert_eq!((host.books().in_use_bytes(), gpu.books().in_use_bytes()), (3 * MIB, 5 * MIB));
        assert!(Booked::new(2 << 20).is_err(), "more than the model may hold");
        let inner = crate::booked_on_host();
        let small = crate::Buffer::allocate(100).unwrap();
        assert_eq!((owner.host().bytes(), owner.bytes()), (3 * MIB + 100, 5 * MIB));
        drop((inner, scope, strings, small, buffer));
        assert_eq!(
            (host.books().in_use_bytes(), gpu.books().in_use_bytes(), account.held_bytes()),
            (0, 0, 0)
        );
    }
}
