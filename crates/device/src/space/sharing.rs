//! Weights that are equal are held once.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::BuildHasher as _;
use std::sync::Arc;

use super::arenas::READ;
use super::named;
use super::owner::Owner;
use crate::buffer::{Buffer, WeakBuffer};
use crate::driver::Driver as _;
use crate::error::Result;
use crate::ledger::{Category, Holder};
use crate::sync::Mutex;

/// The weights of a space that may be shared, by a hash of their bytes.
#[derive(Debug, Default)]
pub struct Sharing {
    entries: Mutex<HashMap<u64, Vec<SharingEntry>>>,
    hasher: std::hash::RandomState,
}

#[derive(Debug)]
struct SharingEntry {
    buffer: WeakBuffer,
    category: Category,
    sharers: Vec<Arc<Owner>>,
}

/// Smaller buffers are not worth looking for.
const SHARED_FROM_BYTES: usize = 4 << 10;

impl Sharing {
    /// The buffer that holds the same bytes as `buffer`, if there is one already; else `buffer`,
    /// from now on to be found by others. What several share is booked to nobody in particular.
    ///
    /// The bytes must not change any more. Those of a rehearsal are not known, and so not shared.
    pub fn share(&self, buffer: Buffer, owner: &Arc<Owner>, category: Category) -> Buffer {
        if buffer.len() < SHARED_FROM_BYTES || owner.space().is_rehearsal() {
            return buffer;
        }
        let hash = self.hash(buffer.bytes());
        let mut entries = self.entries.lock();
        let alike = entries.entry(hash).or_default();
        alike.retain(|entry| entry.buffer.upgrade().is_some());
        for entry in alike.iter_mut() {
            let Some(other) = entry.buffer.upgrade() else { continue };
            let is_same = entry.category == category && other.len() == buffer.len();
            if is_same && other.bytes() == buffer.bytes() {
                entry.sharers.push(Arc::clone(owner));
                book_shared(&other, entry);
                return other;
            }
        }
        let (weak, sharers) = (buffer.downgrade(), vec![Arc::clone(owner)]);
        alike.push(SharingEntry { buffer: weak, category, sharers });
        buffer
    }

    /// A copy of a weight among those that stay, to be put in place of all the `n_holders` buffers
    /// of its owner that hold it as it was read, where it would keep a granule for itself. `None`
    /// if it is well where it is, or somebody else holds it too.
    ///
    /// # Errors
    /// If there is no memory for the copy.
    pub fn settle(
        &self,
        buffer: &Buffer,
        n_holders: usize,
        owner: &Arc<Owner>,
    ) -> Result<Option<Buffer>> {
        let may_move = || buffer.chunk_of() == Some((READ, n_holders));
        if !may_move()
            || buffer.len() as u64 >= owner.space().arenas.driver().properties().granule_bytes
        {
            return Ok(None);
        }
        let _name = buffer.tensor().map(named);
        let mut copy = Buffer::allocate_for(owner, Category::PackedWeights, buffer.len())?;
        copy.rebook(owner.tally(Category::Weights));
        if !copy.is_rehearsed() {
            let bytes = copy.bytes_mut().expect("a new buffer has one owner");
            bytes.copy_from_slice(buffer.bytes());
        }
        if owner.space().is_rehearsal() {
            return Ok(Some(copy));
        }
        let hash = self.hash(buffer.bytes());
        // From here on nobody else finds it.
        let mut entries = self.entries.lock();
        if !may_move() {
            return Ok(None);
        }
        for entry in entries.get_mut(&hash).into_iter().flatten() {
            if entry.buffer.is_of(buffer) {
                entry.buffer = copy.downgrade();
            }
        }
        Ok(Some(copy))
    }

    /// Says that an owner shares nothing any more: it was unloaded.
    pub fn unshare(&self, owner: &Arc<Owner>) {
        let mut entries = self.entries.lock();
        for alike in entries.values_mut() {
            for entry in alike.iter_mut() {
                let before = entry.sharers.len();
                entry.sharers.retain(|sharer| !Arc::ptr_eq(sharer, owner));
                if entry.sharers.len() < before
                    && let Some(buffer) = entry.buffer.upgrade()
                {
                    book_shared(&buffer, entry);
                }
            }
            alike.retain(|entry| !entry.sharers.is_empty() && entry.buffer.upgrade().is_some());
        }
        entries.retain(|_, alike| !alike.is_empty());
        entries.shrink_to_fit();
    }

    /// The bytes of weights that a holder shares with others.
    pub(super) fn shared_bytes(&self, holder: &Holder) -> u64 {
        let is_shared = |entry: &&SharingEntry| {
            let mut holders = entry.sharers.iter().map(|owner| owner.holder());
            distinct(&entry.sharers).count() > 1 && holders.any(|other| other == holder)
        };
        let bytes =
            |entry: &SharingEntry| entry.buffer.upgrade().map_or(0, |buffer| buffer.len() as u64);
        let entries = self.entries.lock();
        entries.values().flatten().filter(is_shared).map(bytes).sum()
    }

    /// The bytes of a device's weights that sharing saved.
    pub fn saved_bytes(&self) -> u64 {
        let entries = self.entries.lock();
        let saved = |entry: &SharingEntry| {
            let bytes = entry.buffer.upgrade().map_or(0, |buffer| buffer.len() as u64);
            bytes * (distinct(&entry.sharers).count() as u64).saturating_sub(1)
        };
        entries.values().flatten().map(saved).sum()
    }

    /// The holders that share each tensor booked as shared.
    pub(super) fn sharers(&self) -> BTreeMap<(Category, Arc<str>), BTreeSet<Holder>> {
        let mut all: BTreeMap<(Category, Arc<str>), BTreeSet<Holder>> = BTreeMap::new();
        let entries = self.entries.lock();
        for entry in entries.values().flatten().filter(|e| distinct(&e.sharers).count() > 1) {
            let Some(tensor) = entry.buffer.upgrade().and_then(|buffer| buffer.tensor()) else {
                continue;
            };
            let holders = entry.sharers.iter().map(|owner| owner.holder().clone());
            all.entry((entry.category, tensor)).or_default().extend(holders);
        }
        all
    }

    /// The bytes that the list of shareable buffers takes itself.
    pub(super) fn books_bytes(&self) -> usize {
        let entries = self.entries.lock();
        let alike = entries.values().map(|alike| {
            let sharers = alike.iter().map(|entry| entry.sharers.capacity());
            alike.capacity() * size_of::<SharingEntry>()
                + sharers.sum::<usize>() * size_of::<usize>()
        });
        alike.sum::<usize>() + entries.capacity() * size_of::<(u64, Vec<SharingEntry>)>()
    }

    /// A hash that no file can foresee; what it says is checked byte by byte.
    fn hash(&self, bytes: &[u8]) -> u64 {
        let seed = self.hasher.hash_one(bytes.len());
        let mut lanes = [seed, !seed, seed.rotate_left(17), seed.rotate_left(43)];
        let (blocks, rest) = bytes.as_chunks::<32>();
        for block in blocks {
            for (lane, word) in lanes.iter_mut().zip(block.as_chunks::<8>().0) {
                let mixed = (*lane ^ u64::from_le_bytes(*word)).wrapping_mul(MIX);
                *lane = mixed ^ (mixed >> 29);
            }
        }
        self.hasher.hash_one((lanes, rest))
    }

    /// Asserts that what may be shared is listed once, by the hash of its bytes, and shared by
    /// somebody.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let entries = self.entries.lock();
        for (hash, alike) in entries.iter() {
            for (at, entry) in alike.iter().enumerate() {
                assert!(!entry.sharers.is_empty(), "somebody shares it");
                let Some(buffer) = entry.buffer.upgrade() else { continue };
                assert_eq!(self.hash(buffer.bytes()), *hash, "listed by its bytes");
                let is_same = |other: &SharingEntry| {
                    let bytes = other.buffer.upgrade().filter(|_| other.category == entry.category);
                    bytes.is_some_and(|other| other.bytes() == buffer.bytes())
                };
                assert!(!alike[..at].iter().any(is_same), "what is equal is held once");
            }
        }
    }
}

/// Books a buffer to its only holder, or as shared.
fn book_shared(buffer: &Buffer, entry: &SharingEntry) {
    let mut owners = distinct(&entry.sharers);
    let tally = match (owners.next(), owners.next()) {
        (Some(only), None) => Arc::clone(only.tally(entry.category)),
        (Some(first), Some(_)) => first.space().books.shared_tally(first.space(), entry.category),
        (None, _) => return,
    };
    buffer.rebook(&tally);
}

/// An odd number whose bits are well spread.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// Each owner once.
fn distinct(owners: &[Arc<Owner>]) -> impl Iterator<Item = &Arc<Owner>> {
    let is_first = |at: usize| !owners[..at].iter().any(|owner| Arc::ptr_eq(owner, &owners[at]));
    (0..owners.len()).filter(move |at| is_first(*at)).map(|at| &owners[at])
}
