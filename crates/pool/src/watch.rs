//! The way in which code deep inside of a kernel learns that its run should stop.
//!
//! A thread that runs a kernel *watches* the [`Stop`] of the run: its lane for the whole run, a
//! worker of the pool for each task of it. Loops say how much they do with [`pace`], which looks
//! from time to time. So no clock and no flag is handed from function to function, and a loop of a
//! few elements asks nobody.

use std::cell::{Cell, RefCell};

use crate::stop::{Reason, Stop};

/// The elementary operations between two looks: less than a millisecond.
pub const OPERATIONS_BETWEEN_LOOKS: usize = 1 << 18;

thread_local! {
    static WATCHED: RefCell<Option<Stop>> = const { RefCell::new(None) };
    /// The operations that are left before the next look.
    static LEFT: Cell<usize> = const { Cell::new(OPERATIONS_BETWEEN_LOOKS) };
}

/// While it lives, its thread watches a [`Stop`]; afterwards the one before.
#[derive(Debug)]
pub struct Watch {
    before: Option<Stop>,
}

impl Stop {
    /// Makes this thread watch it.
    #[must_use = "the thread watches for as long as this lives"]
    pub fn watch(&self) -> Watch {
        Watch { before: WATCHED.replace(Some(self.clone())) }
    }

    /// The one that this thread watches, if any.
    pub(crate) fn watched() -> Option<Self> {
        WATCHED.with_borrow(Clone::clone)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        WATCHED.set(self.before.take());
    }
}

/// Takes note of so many elementary operations (an element that is copied, added or compared is
/// one), and looks when it is time: why the run of this thread should stop, if it should. A kernel
/// that is told so returns at once, and leaves what it should have written.
pub fn pace(n_operations: usize) -> Option<Reason> {
    let left = LEFT.get();
    if n_operations < left {
        LEFT.set(left - n_operations);
        return None;
    }
    let reason = look();
    // Who should stop looks at once the next time, too.
    LEFT.set(if reason.is_some() { 0 } else { OPERATIONS_BETWEEN_LOOKS });
    reason
}

/// Returns the reason for which the run of this thread should stop, if there is one.
pub(crate) fn look() -> Option<Reason> {
    WATCHED.with_borrow(|stop| stop.as_ref()?.reason())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_looks_when_it_has_done_enough() {
        let (outer, inner) = (Stop::at_look(usize::MAX), Stop::at_look(0));
        let _outer = outer.watch();
        for _ in 0..1000 {
            assert_eq!(pace(OPERATIONS_BETWEEN_LOOKS / 100), None);
        }
        assert!((9..=10).contains(&outer.n_looks()), "{outer:?}");
        {
            let _inner = inner.watch();
            assert_eq!(pace(OPERATIONS_BETWEEN_LOOKS), Some(Reason::Late));
        }
        assert_eq!(pace(1), None, "it looks at the other one at once");
        assert_eq!(pace(1), None);
        assert_eq!(inner.n_looks(), 1);
    }
}
