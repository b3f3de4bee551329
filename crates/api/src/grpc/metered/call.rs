//! `CallCharge`: what a call is charged, and on which threads it is answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::Mutex;
use smallvec::SmallVec;
use status::Status;

use super::{CALL_BYTES, Limits};
use crate::budget::Charge;

/// The charge of a call: for its messages and for the answer that is being written. Held by its
/// body, by the method that answers it and by the answer. Most calls have one message.
#[derive(Debug, Clone, Default)]
pub(crate) struct CallCharge {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    charges: Mutex<Charges>,
    /// One of the three below.
    threads: AtomicU8,
}

/// One for each message. The first is there from the head of the call on.
#[derive(Debug, Default)]
struct Charges {
    all: SmallVec<[Charge; 1]>,
    has_begun: bool,
}

/// The call is answered on the threads that serve connections.
const HERE: u8 = 0;
/// The call has a long message, and is to move to the codec threads.
const LEAVING: u8 = 1;
/// The call is answered on the codec threads.
const APART: u8 = 2;

impl CallCharge {
    /// The charge of a call whose head takes so many bytes. Fails if there is no room for them.
    pub(super) fn open(limits: &Limits, head_bytes: usize) -> Result<Self, Status> {
        let first = limits.budget.charged(CALL_BYTES.saturating_add(head_bytes))?;
        let charges = Charges { all: SmallVec::from([first]), has_begun: false };
        let charges = Mutex::new(charges);
        Ok(Self { shared: Arc::new(Shared { charges, threads: AtomicU8::new(HERE) }) })
    }

    /// Charges the last message of the call, or its answer, so many bytes more. Fails if there is
    /// no room for them.
    pub(crate) fn grow(&self, bytes: usize) -> Result<(), Status> {
        let mut charges = self.shared.charges.lock();
        charges.all.last_mut().map_or(Ok(()), |charge| charge.grow(bytes))
    }

    /// Gives back what messages were charged that are now gone, of a call that has no more of them.
    pub(crate) fn decoded(&self) {
        let mut charges = self.shared.charges.lock();
        charges.all.iter_mut().for_each(|charge| charge.shrink_to(CALL_BYTES));
    }

    /// The bytes that the call is charged.
    pub(super) fn bytes(&self) -> usize {
        self.shared.charges.lock().all.iter().map(Charge::bytes).sum()
    }

    /// Begins a charge for another message. Fails if there is no room for it.
    pub(super) fn begin(&self, limits: &Limits) -> Result<(), Status> {
        let mut charges = self.shared.charges.lock();
        if !std::mem::replace(&mut charges.has_begun, true) {
            return Ok(());
        }
        let charge = limits.budget.charged(CALL_BYTES)?;
        if charges.all.len() == limits.messages_max {
            charges.all.remove(0);
        }
        charges.all.push(charge);
        Ok(())
    }

    /// Answers the call on the codec threads from its beginning.
    pub(super) fn stay_apart(&self) {
        self.shared.threads.store(APART, Ordering::Relaxed);
    }

    /// Asks for the call to be moved. `false` if it is on the codec threads already.
    pub(super) fn leave(&self) -> bool {
        self.exchange(HERE, LEAVING)
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.shared.threads.load(Ordering::Relaxed) == LEAVING
    }

    /// Says that a call that was to be moved is moved. `false` if none was.
    pub(super) fn arrive_apart(&self) -> bool {
        self.exchange(LEAVING, APART)
    }

    pub(super) fn is_apart(&self) -> bool {
        self.shared.threads.load(Ordering::Relaxed) == APART
    }

    fn exchange(&self, from: u8, to: u8) -> bool {
        let exchanged =
            self.shared.threads.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
        exchanged.is_ok()
    }
}
