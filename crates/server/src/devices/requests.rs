//! `RequestBooks`: requests and answers in the books of the host.

use std::sync::Arc;

use device::{Category, Owner};

/// The bytes that requests and answers hold besides tensors, in the books of the host.
#[derive(Debug)]
pub(super) struct RequestBooks(pub(super) Arc<Owner>);

/// A request that holds more is large.
const LARGE_BYTES: u64 = 256 << 10;

/// Before so many bytes are taken at once, the heap returns what it keeps of others: the limit is
/// on what the process holds, and pages that were just freed are held too.
const PURGE_BYTES: u64 = 16 << 20;

impl RequestBooks {
    /// Refuses a large request what is left for small ones, so that a client whose requests fill
    /// the host does not shut others out.
    fn check_large(&self, bytes: u64) -> Result<(), String> {
        let space = self.0.space();
        let (limit, free) = (space.account().limit_bytes(), space.free_bytes());
        let left = (limit / 16).min(64 << 20);
        if bytes.saturating_add(left) <= free {
            return Ok(());
        }
        let name = space.name();
        Err(format!(
            "{name} has no room for {bytes} bytes: {free} of {limit} are free, {left} of them for \
             small requests"
        ))
    }
}

impl api::Books for RequestBooks {
    fn take(&self, bytes: usize, held: usize) -> Result<(), String> {
        let (bytes, held) = (bytes as u64, held as u64);
        if held.saturating_add(bytes) > LARGE_BYTES {
            self.check_large(bytes)?;
        }
        if bytes >= PURGE_BYTES {
            heap::purge();
        }
        self.0.take(Category::Requests, bytes).map_err(|error| error.to_string())
    }

    fn give_back(&self, bytes: usize) {
        self.0.give_back(Category::Requests, bytes as u64);
    }
}
