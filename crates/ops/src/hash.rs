//! A hash that clients cannot aim at, and an index of keys by it.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::OnceLock;

use device::BookedVec;

use crate::error::Result;

const MIX: [u64; 3] = [0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93, 0xa076_1d64_78bd_642f];

/// The hash of a number.
pub(crate) fn of_u64(value: u64) -> u64 {
    fold(value ^ seed(), MIX[0])
}

/// The hash of a byte string.
pub(crate) fn of_bytes(bytes: &[u8]) -> u64 {
    let mut state = seed() ^ (bytes.len() as u64).wrapping_mul(MIX[2]);
    let mut chunks = bytes.chunks_exact(16);
    for chunk in &mut chunks {
        state = fold(state ^ word(&chunk[..8]), MIX[1] ^ word(&chunk[8..]));
    }
    let rest = chunks.remainder();
    let (low, high) = rest.split_at(rest.len().min(8));
    fold(state ^ word(low), MIX[0] ^ word(high))
}

/// The bytes as a number.
fn word(bytes: &[u8]) -> u64 {
    if let Ok(full) = bytes.try_into() {
        return u64::from_le_bytes(full);
    }
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

/// A full product, its halves folded together: every bit of the factors reaches every bit.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

/// Another number in each process, so that no request is slow by design.
fn seed() -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    *SEED.get_or_init(|| RandomState::new().build_hasher().finish())
}

/// Finds the numbers of keys that are stored elsewhere, in the order they were added.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// Open addressing over a power of two of slots: the number plus one, or zero.
    slots: BookedVec<u32>,
    n_keys: usize,
}

impl Index {
    /// The number of keys.
    pub(crate) fn len(&self) -> usize {
        self.n_keys
    }

    /// The bytes held.
    pub(crate) fn n_bytes(&self) -> usize {
        self.slots.len() * size_of::<u32>()
    }

    /// The number of the key with this hash for which `is_key` holds.
    pub(crate) fn find(&self, hash: u64, is_key: impl Fn(usize) -> bool) -> Option<usize> {
        let mask = self.slots.len().checked_sub(1)?;
        let mut at = hash as usize & mask;
        loop {
            let number = self.slots[at].checked_sub(1)? as usize;
            if is_key(number) {
                return Some(number);
            }
            at = (at + 1) & mask;
        }
    }

    /// Adds a key that is not there, and gives it the next number. `hash_of` hashes the keys before
    /// it again. Fails without memory.
    ///
    /// # Panics
    /// After four billion keys.
    pub(crate) fn add(&mut self, hash: u64, hash_of: impl Fn(usize) -> u64) -> Result<usize> {
        if (self.n_keys + 1) * 4 > self.slots.len() * 3 {
            self.slots = BookedVec::filled(0, (self.slots.len() * 2).max(8))?;
            (0..self.n_keys).for_each(|number| self.put(hash_of(number), number));
        }
        let number = self.n_keys;
        self.put(hash, number);
        self.n_keys += 1;
        Ok(number)
    }

    /// A copy of its own. Fails without memory.
    pub(crate) fn try_clone(&self) -> Result<Self> {
        Ok(Self { slots: self.slots.try_clone()?, n_keys: self.n_keys })
    }

    fn put(&mut self, hash: u64, number: usize) {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        while self.slots[at] != 0 {
            at = (at + 1) & mask;
        }
        self.slots[at] = u32::try_from(number + 1).expect("fewer keys than that");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_by_what_they_are() {
        let keys: Vec<String> = (0..1000).map(|i| "x".repeat(i % 40) + &i.to_string()).collect();
        let mut index = Index::default();
        for (i, key) in keys.iter().enumerate() {
            let hash = of_bytes(key.as_bytes());
            assert_eq!(index.find(hash, |at| keys[at] == *key), None);
            assert_eq!(index.add(hash, |at| of_bytes(keys[at].as_bytes())), Ok(i));
        }
        for (i, key) in keys.iter().enumerate() {
            assert_eq!(index.find(of_bytes(key.as_bytes()), |at| keys[at] == *key), Some(i));
        }
        assert_eq!((index.len(), index.find(of_bytes(b"y"), |at| keys[at] == "y")), (1000, None));
    }

    #[test]
    fn like_keys_have_unlike_hashes() {
        let mut low: Vec<u64> = (0..4096).map(|i| of_u64(i << 32) & 0xffff).collect();
        low.sort_unstable();
        low.dedup();
        assert!(low.len() > 3500, "{}", low.len());
        assert_ne!(of_bytes(b"a"), of_bytes(b"a\0"));
    }
}
