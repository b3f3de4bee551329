//! `Time`: a moment on a clock that never goes back.

use std::time::Duration;

/// Nanoseconds since whoever keeps the clock began to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub u64);

impl Time {
    /// The moment `after` this one; the end of time if there is none.
    #[must_use]
    pub fn plus(self, after: Duration) -> Self {
        Self(self.0.saturating_add(nanos(after)))
    }

    /// The moment `before` this one; the beginning of time if there is none.
    #[must_use]
    pub fn minus(self, before: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(before)))
    }

    /// The time since `earlier`; zero if it is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
