//! `Cancel`: how a run learns that nobody waits for it any more.
//!
//! A kernel that takes long looks while it runs: the threads of a run watch its [`Stop`]
//! ([`Cancel::watch`]), and
//! - the pool leaves out the tasks of a run that should stop;
//! - loops that are not shared among threads say how much they do ([`pace`]), and end early;
//! - the steps of a plan and the iterations of a loop check before each, so that nobody reads the
//!   result of a kernel that was left early.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use pool::{Reason, Stop, Watch};

use crate::error::{Error, Result};

/// A flag that the caller may set, and a deadline. Cheap to ask; clones share the flag.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Stop);

impl Cancel {
    /// Cancelled when `flag` is set or `deadline` passes.
    pub fn new(flag: Arc<AtomicBool>, deadline: Option<Instant>) -> Self {
        Self(Stop::new(flag, deadline))
    }

    /// Asks the run to stop.
    pub fn cancel(&self) {
        self.0.set();
    }

    /// Makes this thread and those that help it watch: their kernels stop early then.
    #[must_use = "the thread watches for as long as this lives"]
    pub fn watch(&self) -> Watch {
        self.0.watch()
    }

    /// Fails if the run should stop. Called between steps and between iterations of loops.
    pub fn check(&self) -> Result<()> {
        self.0.reason().map_or(Ok(()), |reason| Err(stopped(reason)))
    }
}

impl From<Stop> for Cancel {
    fn from(stop: Stop) -> Self {
        Self(stop)
    }
}

/// The elements that a loop of simple steps takes before it says so: enough that vectors pay.
pub(crate) const AT_ONCE: usize = 1 << 12;

/// Takes note of so many elementary operations that a kernel does next: an element that is copied,
/// added or compared is one. Fails if its run should stop; looks when it is time.
pub(crate) fn pace(n_operations: usize) -> Result<()> {
    pool::pace(n_operations).map_or(Ok(()), |reason| Err(stopped(reason)))
}

/// The same for code that cannot fail: it returns at once, and leaves what it should have written.
pub(crate) fn is_stopped(n_operations: usize) -> bool {
    pool::pace(n_operations).is_some()
}

/// The items of an iterator that are worth so many operations each. There are fewer of them if the
/// run should stop: then the next [`pace`] fails.
pub(crate) fn paced<I: Iterator + Clone>(
    items: I,
    n_operations: usize,
) -> impl Iterator<Item = I::Item> + Clone {
    items.take_while(move |_| !is_stopped(n_operations))
}

fn stopped(reason: Reason) -> Error {
    match reason {
        Reason::Cancelled => Error::Cancelled,
        Reason::Late => Error::DeadlineExceeded,
    }
}
