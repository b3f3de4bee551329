//! `Budget`: how many bytes of requests may be in flight at once, over all connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lifecycle::Code;

use crate::status::Status;

/// A limit on the bytes in flight. Clones share it.
#[derive(Debug, Clone)]
pub struct Budget {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    max: usize,
    used: AtomicUsize,
}

impl Budget {
    /// A budget of so many bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self { shared: Arc::new(Shared { max: bytes_max, used: AtomicUsize::new(0) }) }
    }

    /// The bytes in flight now.
    pub fn used(&self) -> usize {
        self.shared.used.load(Ordering::Relaxed)
    }

    /// A charge of no bytes yet.
    pub(crate) fn charge(&self) -> Charge {
        Charge { budget: self.clone(), bytes: 0 }
    }
}

/// Bytes that count as in flight until this is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    budget: Budget,
    bytes: usize,
}

impl Charge {
    /// Takes more bytes. Fails, and takes none, if that would be too many in flight.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), Status> {
        let Shared { max, used } = &*self.budget.shared;
        let fits = |used: usize| used.checked_add(bytes).filter(|sum| sum <= max);
        if used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_err() {
            let text = format!("more than {max} bytes of requests would be in flight");
            return Err(Status::new(Code::ResourceExhausted, text));
        }
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.shared.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_given_back_when_their_request_ends() {
        let budget = Budget::new(100);
        let (mut first, mut second) = (budget.charge(), budget.charge());
        first.grow(60).unwrap();
        second.grow(40).unwrap();
        assert_eq!(second.grow(1).unwrap_err().code, Code::ResourceExhausted);
        assert_eq!(first.grow(usize::MAX).unwrap_err().code, Code::ResourceExhausted);
        drop(first);
        assert_eq!(budget.used(), 40);
        second.grow(60).unwrap();
        drop(second);
        assert_eq!(budget.used(), 0);
    }
}
