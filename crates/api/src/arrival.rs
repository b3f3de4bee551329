//! `Arrival`: says when a request that comes too slowly is given up.
//!
//! A client that sends a byte now and then would keep its connection, and what has come of its
//! request, for ever. So there are three limits: a time without a byte, a least rate on average,
//! and a time for all of it.

use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

/// Limits on how slowly a request may arrive.
#[derive(Debug, Clone, Copy)]
pub struct ArrivalLimits {
    /// The most time without a byte. For so long no request is too slow.
    pub idle_max: Duration,
    /// The most time for all of a request; no limit without one.
    pub total_max: Option<Duration>,
    /// The least bytes a second on average; no limit if it is 0.
    pub bytes_per_second_min: u64,
}

/// A request, or a message of a stream, that is coming.
#[derive(Debug)]
pub(crate) struct Arrival {
    limits: ArrivalLimits,
    begun: Instant,
    last: Instant,
    n_bytes: u64,
}

/// The limit that a request misses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TooSlow {
    Idle(Duration),
    Total(Duration),
    Rate(u64),
}

impl Arrival {
    pub(crate) fn new(limits: ArrivalLimits, now: Instant) -> Self {
        Self { limits, begun: now, last: now, n_bytes: 0 }
    }

    /// Takes note of bytes that came.
    pub(crate) fn came(&mut self, n_bytes: usize, now: Instant) {
        self.n_bytes += n_bytes as u64;
        self.last = now;
    }

    /// The time at which the request is given up unless more of it comes, and the limit that it
    /// misses then.
    pub(crate) fn end(&self) -> (Instant, TooSlow) {
        let ArrivalLimits { idle_max, total_max, bytes_per_second_min: rate } = self.limits;
        let idle = Some((self.last + idle_max, TooSlow::Idle(idle_max)));
        let total = total_max.map(|total| (self.begun + total, TooSlow::Total(total)));
        let earned = |rate| Duration::from_millis(self.n_bytes.saturating_mul(1000) / rate);
        let paced = (rate > 0).then(|| self.begun.checked_add(idle_max + earned(rate))).flatten();
        let paced = paced.map(|end| (end, TooSlow::Rate(rate)));
        let ends = [idle, total, paced].into_iter().flatten();
        ends.min_by_key(|(end, _)| *end).expect("there is a limit without a byte")
    }
}

impl fmt::Display for TooSlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the body did not arrive in time: ")?;
        match self {
            Self::Idle(time) => write!(f, "nothing came for {} s", time.as_secs_f64()),
            Self::Total(time) => write!(f, "it took more than {} s", time.as_secs_f64()),
            Self::Rate(rate) => write!(f, "fewer than {rate} bytes a second came"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ArrivalLimits = ArrivalLimits {
        idle_max: Duration::from_secs(30),
        total_max: Some(Duration::from_secs(300)),
        bytes_per_second_min: 100,
    };

    /// Sends `n_bytes` every `every` seconds until the request is given up: after how many seconds,
    /// and why.
    #[track_caller]
    fn check(n_bytes: usize, every: u64, limits: ArrivalLimits, expected: (u64, TooSlow)) {
        let start = Instant::now();
        let mut arrival = Arrival::new(limits, start);
        for n in 1.. {
            let (end, why) = arrival.end();
            let now = start + Duration::from_secs(n * every);
            if end < now {
                assert_eq!(((end - start).as_secs(), why), expected);
                return;
            }
            arrival.came(n_bytes, now);
        }
    }

    #[test]
    fn a_request_is_given_up_at_the_first_limit_that_it_misses() {
        check(1 << 20, 31, LIMITS, (30, TooSlow::Idle(LIMITS.idle_max)));
        check(1, 10, LIMITS, (30, TooSlow::Rate(100)));
        check(500, 10, LIMITS, (55, TooSlow::Rate(100)));
        check(1001, 10, LIMITS, (300, TooSlow::Total(Duration::from_secs(300))));
        let patient = ArrivalLimits { total_max: None, bytes_per_second_min: 0, ..LIMITS };
        check(usize::MAX >> 8, 29, ArrivalLimits { total_max: LIMITS.total_max, ..patient }, {
            (300, TooSlow::Total(Duration::from_secs(300)))
        });
    }
}
