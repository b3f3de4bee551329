//! `BookedVec`: a vector whose memory is booked before it is taken.

use std::ops::{Deref, DerefMut};

use super::Booked;
use crate::error::{Error, Result};

/// Elements on the heap, in the books of the host of whom the thread works for ([`Booked`]): memory
/// is booked before it is taken, and booked as long as it is held. While a vector grows, the books
/// hold the old and the new memory, as the heap may.
#[derive(Debug)]
pub struct BookedVec<T> {
    items: Vec<T>,
    booked: Booked,
}

impl<T> BookedVec<T> {
    /// No elements, without memory.
    pub const fn new() -> Self {
        Self { items: Vec::new(), booked: Booked::nothing() }
    }

    /// No elements, with memory for just `n`.
    ///
    /// # Errors
    /// If a limit or the heap refuses.
    pub fn with_capacity(n: usize) -> Result<Self> {
        let mut vec = Self::new();
        vec.reserve_exact(n)?;
        Ok(vec)
    }

    /// `n` times one element.
    ///
    /// # Errors
    /// If a limit or the heap refuses.
    pub fn filled(item: T, n: usize) -> Result<Self>
    where
        T: Clone,
    {
        let mut vec = Self::with_capacity(n)?;
        vec.items.resize(n, item);
        Ok(vec)
    }

    /// A copy of these elements.
    ///
    /// # Errors
    /// If a limit or the heap refuses.
    pub fn from_slice(items: &[T]) -> Result<Self>
    where
        T: Clone,
    {
        let mut vec = Self::with_capacity(items.len())?;
        vec.items.extend_from_slice(items);
        Ok(vec)
    }

    /// All elements of an iterator. Takes memory once for as many as it surely has.
    ///
    /// # Errors
    /// If a limit or the heap refuses.
    pub fn collect(items: impl IntoIterator<Item = T>) -> Result<Self> {
        let items = items.into_iter();
        let mut vec = Self::with_capacity(items.size_hint().0)?;
        vec.extend(items)?;
        Ok(vec)
    }

    /// Appends an element.
    ///
    /// # Errors
    /// If a limit or the heap refuses.
    pub fn push(&mut self, item: T) -> Result<()> {
        if self.items.len() == self.items.capacity() {
            self.reserve(1)?;
        }
        self.items.push(item);
        Ok(())
    }

    /// Appends all elements of an iterator.
    ///
    /// # Errors
    /// If a limit or the heap refuses.
    pub fn extend(&mut self, items: impl IntoIterator<Item = T>) -> Result<()> {
        items.into_iter().try_for_each(|item| self.push(item))
    }

    /// Appends copies of elements.
    ///
    /// # Errors
    /// If a limit or the heap refuses.
    pub fn extend_from_slice(&mut self, items: &[T]) -> Result<()>
    where
        T: Clone,
    {
        self.reserve(items.len())?;
        self.items.extend_from_slice(items);
        Ok(())
    }

    /// Leaves the first `len` elements, or appends `item` until there are so many.
    ///
    /// # Errors
    /// If a limit or the heap refuses.
    pub fn resize(&mut self, len: usize, item: T) -> Result<()>
    where
        T: Clone,
    {
        self.reserve(len.saturating_sub(self.items.len()))?;
        self.items.resize(len, item);
        Ok(())
    }

    /// Takes memory for `more` elements, at least twice as much as before if there was too little.
    ///
    /// # Errors
    /// If a limit or the heap refuses.
    pub fn reserve(&mut self, more: usize) -> Result<()> {
        let needed = self.items.len().saturating_add(more);
        if needed <= self.items.capacity() {
            return Ok(());
        }
        let least = (64 / size_of::<T>().max(1)).max(4);
        let roomy = self.items.capacity().saturating_mul(2).max(least);
        self.grow_to(needed.max(roomy))
    }

    /// Takes memory for just `more` elements, if there is less.
    ///
    /// # Errors
    /// If a limit or the heap refuses.
    pub fn reserve_exact(&mut self, more: usize) -> Result<()> {
        let needed = self.items.len().saturating_add(more);
        if needed <= self.items.capacity() { Ok(()) } else { self.grow_to(needed) }
    }

    /// Gives back memory beyond that of the elements. If a limit refuses to book them once more for
    /// the moment in which the heap may hold them twice, the memory stays.
    pub fn shrink_to_fit(&mut self) {
        if self.items.len() == self.items.capacity() {
            return;
        }
        if let Ok(booked) = Booked::new(self.items.len() * size_of::<T>()) {
            self.items.shrink_to_fit();
            self.booked = booked;
        }
    }

    /// Leaves the first `len` elements. Keeps the memory.
    pub fn truncate(&mut self, len: usize) {
        self.items.truncate(len);
    }

    /// Leaves no element. Keeps the memory.
    pub fn clear(&mut self) {
        self.items.clear();
    }

    /// Takes the last element.
    pub fn pop(&mut self) -> Option<T> {
        self.items.pop()
    }

    /// A copy with memory for just its elements.
    ///
    /// # Errors
    /// If a limit or the heap refuses.
    pub fn try_clone(&self) -> Result<Self>
    where
        T: Clone,
    {
        Self::from_slice(&self.items)
    }

    fn grow_to(&mut self, capacity: usize) -> Result<()> {
        let bytes = capacity.saturating_mul(size_of::<T>());
        let booked = Booked::new(bytes)?;
        let more = capacity - self.items.len();
        self.items.try_reserve_exact(more).map_err(|_| Error::OutOfMemory { bytes })?;
        self.booked = booked;
        Ok(())
    }
}

impl<T> Default for BookedVec<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Deref for BookedVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items
    }
}

impl<T> DerefMut for BookedVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.items
    }
}

impl<T: PartialEq> PartialEq for BookedVec<T> {
    fn eq(&self, other: &Self) -> bool {
        self.items == other.items
    }
}

impl<T: Eq> Eq for BookedVec<T> {}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::logical::GrowthRule;
    use crate::{Category, Driver, Holder, Host, Limited, Owner, Space, SpaceOptions};

    const MIB: u64 = 1 << 20;

    fn space() -> Arc<Space> {
        let host = Arc::new(Host::new("cpu:0", 64 * MIB)) as Arc<dyn Driver>;
        let driver = Arc::new(Limited::new(host, "cpu:0", 8 * MIB));
        let physical = Arc::clone(driver.account());
        let growth = GrowthRule::OnDemand;
        Space::new(SpaceOptions { driver, physical, growth, step_bytes: MIB, context_bytes: 0 })
            .unwrap()
    }

    #[test]
    fn memory_is_booked_before_it_is_taken_and_as_long_as_it_is_held() {
        let space = space();
        let owner = Owner::new(&space, Holder::Shared, None);
        let _scope = crate::booked_to(&owner, Category::Requests);
        let mut vec = BookedVec::filled(1u64, 3).unwrap();
        assert_eq!((&vec[..], space.books().in_use_bytes()), (&[1, 1, 1][..], 24));
        (0..1000).for_each(|i| vec.push(i).unwrap());
        assert_eq!(space.books().in_use_bytes(), 8 * 1024, "it grows by doubling");
        vec.shrink_to_fit();
        assert_eq!((vec.len(), space.books().in_use_bytes()), (1003, 8 * 1003));
        let copy = vec.try_clone().unwrap();
        assert_eq!((copy == vec, space.books().in_use_bytes()), (true, 16 * 1003));
        drop((vec, copy));
        assert_eq!(space.books().in_use_bytes(), 0);
    }

    #[test]
    fn a_vector_that_a_limit_refuses_keeps_its_elements() {
        let space = space();
        let owner = Owner::new(&space, Holder::Shared, None);
        let _scope = crate::booked_to(&owner, Category::Requests);
        let mut vec = BookedVec::from_slice(b"abc").unwrap();
        assert!(vec.resize(9 << 20, 0).is_err());
        assert!(vec.reserve(usize::MAX).is_err());
        assert!(BookedVec::filled(0u64, 1 << 61).is_err());
        assert_eq!((&vec[..], space.books().in_use_bytes()), (&b"abc"[..], 3));
    }
}
