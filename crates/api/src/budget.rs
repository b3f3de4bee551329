//! `Budget`: the bytes that requests and their answers hold besides tensors, over all connections.
//!
//! Bytes are taken from [`Books`] before they are held, and given back when a request or an answer
//! is gone. Whoever keeps the books says how many there may be, and may change that at any time.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use status::{Code, Status};

/// Keeps count of bytes, and says how many there may be.
pub trait Books: Send + Sync + fmt::Debug {
    /// Takes so many bytes for a request that holds `held` already.
    ///
    /// # Errors
    /// A text for the client, if there is no room for them. None is taken then.
    fn take(&self, bytes: usize, held: usize) -> Result<(), String>;

    /// Takes back bytes that were taken.
    fn give_back(&self, bytes: usize);
}

/// The bytes in flight. Clones share them.
#[derive(Debug, Clone)]
pub struct Budget {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    books: Box<dyn Books>,
    used: AtomicUsize,
}

impl Budget {
    /// A budget that is kept in some books.
    pub fn new(books: impl Books + 'static) -> Self {
        Self { shared: Arc::new(Shared { books: Box::new(books), used: AtomicUsize::new(0) }) }
    }

    /// A budget of so many bytes.
    pub fn of_bytes(max: usize) -> Self {
        Self::new(Fixed { max, used: AtomicUsize::new(0) })
    }

    /// The bytes in flight now.
    pub fn used(&self) -> usize {
        self.shared.used.load(Ordering::Relaxed)
    }

    /// A charge of no bytes yet.
    pub(crate) fn charge(&self) -> Charge {
        Charge { budget: self.clone(), bytes: 0, taken: 0 }
    }

    /// A charge of so many bytes. Fails if there is no room for them.
    pub(crate) fn charged(&self, bytes: usize) -> Result<Charge, Status> {
        let mut charge = self.charge();
        charge.grow(bytes)?;
        Ok(charge)
    }
}

/// Bytes are taken from the books in steps of this size, and a few of them are kept: a small
/// request asks the books once.
const STEP: usize = 16 << 10;
const STEPS_KEPT: usize = 4;

/// Bytes that count as in flight until this is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    budget: Budget,
    bytes: usize,
    /// The bytes that were taken from the books: no less than `bytes`.
    taken: usize,
}

impl Charge {
    /// The bytes that are charged.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes more bytes. Fails, and takes none, if there is no room for them.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), Status> {
        let wanted = self.bytes.saturating_add(bytes);
        if wanted > self.taken {
            let more = wanted - self.taken;
            let more = more.checked_next_multiple_of(STEP).unwrap_or(more);
            let Shared { books, used } = &*self.budget.shared;
            if let Err(refusal) = books.take(more, self.taken) {
                let text = format!("the request or its answer needs {more} more bytes: {refusal}");
                return Err(Status::new(Code::ResourceExhausted, text));
            }
            used.fetch_add(more, Ordering::Relaxed);
            self.taken += more;
        }
        self.bytes = wanted;
        Ok(())
    }

    /// Gives back what there is beyond so many bytes.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        self.bytes = self.bytes.min(bytes);
        let kept = self.bytes.next_multiple_of(STEP);
        if self.taken - self.bytes > STEPS_KEPT * STEP {
            self.give_back(self.taken - kept);
        }
    }

    /// Takes or gives back what makes it so many bytes. Fails if there is no room for them.
    pub(crate) fn set(&mut self, bytes: usize) -> Result<(), Status> {
        self.shrink_to(bytes);
        self.grow(bytes - self.bytes)
    }

    /// Gives so many bytes back.
    pub(crate) fn shrink_by(&mut self, bytes: usize) {
        self.shrink_to(self.bytes.saturating_sub(bytes));
    }

    /// Bytes that take the charge along: it ends when the last of them is dropped, sent or not.
    pub(crate) fn onto(self, bytes: impl AsRef<[u8]> + Send + 'static) -> Bytes {
        held_with(bytes, self)
    }

    fn give_back(&mut self, bytes: usize) {
        let Shared { books, used } = &*self.budget.shared;
        self.taken -= bytes;
        used.fetch_sub(bytes, Ordering::Relaxed);
        books.give_back(bytes);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.taken > 0 {
            self.give_back(self.taken);
        }
    }
}

/// Bytes that keep something until the last of them is dropped.
pub(crate) fn held_with<T, K>(bytes: T, kept: K) -> Bytes
where
    T: AsRef<[u8]> + Send + 'static,
    K: Send + 'static,
{
    Bytes::from_owner(Held { bytes, _kept: kept })
}

/// Bytes and what goes with them.
struct Held<T, K> {
    bytes: T,
    /// Kept for its drop.
    _kept: K,
}

impl<T: AsRef<[u8]>, K> AsRef<[u8]> for Held<T, K> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

/// Books with a limit of their own.
#[derive(Debug)]
struct Fixed {
    max: usize,
    used: AtomicUsize,
}

impl Books for Fixed {
    fn take(&self, bytes: usize, _held: usize) -> Result<(), String> {
        let fits = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.max);
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        let refused = |_| format!("more than {} bytes would be in flight", self.max);
        taken.map(drop).map_err(refused)
    }

    fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_given_back_when_their_request_ends() {
        let budget = Budget::of_bytes(100 * STEP);
        let (mut first, mut second) = (budget.charge(), budget.charge());
        first.grow(60 * STEP).unwrap();
        second.grow(40 * STEP).unwrap();
        assert_eq!(second.grow(1).unwrap_err().code, Code::ResourceExhausted);
        assert_eq!(first.grow(usize::MAX).unwrap_err().code, Code::ResourceExhausted);
        drop(first);
        assert_eq!(budget.used(), 40 * STEP);
        second.grow(60 * STEP).unwrap();
        second.shrink_to(70 * STEP);
        assert_eq!(budget.used(), 70 * STEP);
        second.shrink_to(80 * STEP);
        second.set(90 * STEP).unwrap();
        assert_eq!(budget.used(), 90 * STEP);
        drop(second);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_small_request_asks_the_books_once() {
        let budget = Budget::of_bytes(100 * STEP);
        let mut charge = budget.charge();
        for bytes in [100, 7000, 0, 500] {
            charge.set(bytes).unwrap();
            assert_eq!(budget.used(), STEP);
        }
    }

    #[test]
    fn bytes_on_their_way_stay_charged_until_the_last_part_is_gone() {
        let budget = Budget::of_bytes(100 * STEP);
        let mut answer = budget.charged(10).unwrap().onto(vec![7; 10]);
        let part = answer.split_to(3);
        drop(answer);
        assert_eq!((budget.used(), &part[..]), (STEP, &[7, 7, 7][..]));
        drop(part);
        assert_eq!(budget.used(), 0);
    }
}
