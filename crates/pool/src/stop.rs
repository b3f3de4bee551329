//! `Stop`: when a run should end though it is not done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

/// A flag that the caller of a run may set, and an end. Cheap to ask; clones share the flag. Once a
/// run should stop, it always should.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    flag: Arc<AtomicBool>,
    end: StopCause,
}

/// The end of a run that nobody cancels.
#[derive(Debug, Clone, Default)]
enum StopCause {
    #[default]
    Never,
    At(Instant),
    /// So many looks: a deadline that passes at the same place of a run each time.
    Look(Arc<Looks>),
}

#[derive(Debug)]
struct Looks {
    n: AtomicUsize,
    last: usize,
}

/// The reason for which a run should stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The flag was set.
    Cancelled,
    /// The end has come.
    Late,
}

impl Stop {
    /// A run that should stop when `flag` is set or `deadline` passes.
    pub fn new(flag: Arc<AtomicBool>, deadline: Option<Instant>) -> Self {
        Self { flag, end: deadline.map_or(StopCause::Never, StopCause::At) }
    }

    /// A run that should stop when it has looked `last` times; for tests, which count looks and
    /// have no clock.
    pub fn at_look(last: usize) -> Self {
        let looks = Looks { n: AtomicUsize::new(0), last };
        Self { flag: Arc::default(), end: StopCause::Look(Arc::new(looks)) }
    }

    /// The number of times that such a run has looked.
    pub fn n_looks(&self) -> usize {
        match &self.end {
            StopCause::Look(looks) => looks.n.load(Ordering::Relaxed),
            StopCause::Never | StopCause::At(_) => 0,
        }
    }

    /// Sets the flag.
    pub fn set(&self) {
        self.flag.store(true, Ordering::Relaxed);
    }

    /// Returns the reason for which the run should stop, if there is one.
    pub fn reason(&self) -> Option<Reason> {
        if self.flag.load(Ordering::Relaxed) {
            return Some(Reason::Cancelled);
        }
        let is_late = match &self.end {
            StopCause::Never => false,
            StopCause::At(deadline) => Instant::now() >= *deadline,
            StopCause::Look(looks) => looks.n.fetch_add(1, Ordering::Relaxed) >= looks.last,
        };
        is_late.then_some(Reason::Late)
    }

    /// Returns whether the run should stop.
    pub fn is_set(&self) -> bool {
        self.reason().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_stops_for_its_flag_and_at_its_end() {
        let stop = Stop::default();
        assert_eq!(stop.reason(), None);
        stop.clone().set();
        assert_eq!(stop.reason(), Some(Reason::Cancelled));
        assert_eq!(Stop::new(Arc::default(), Some(Instant::now())).reason(), Some(Reason::Late));
        let third = Stop::at_look(2);
        assert_eq!([(); 4].map(|()| third.is_set()), [false, false, true, true]);
        assert_eq!(third.n_looks(), 4);
    }
}
