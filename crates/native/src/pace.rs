//! `Pace`: how long a played device takes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use graph::Plan;
use parking_lot::{Condvar, Mutex};

/// The pace of a device that is played by the host. Kernels run as fast as they do, and the lane
/// then waits until the played device would have been done. Lanes share it, one run after the
/// other; its logical devices have a share each, and their simultaneous work goes on side by side,
/// each the slower for it, as streams share a GPU.
#[derive(Debug)]
pub struct Pace {
    played: Arc<Played>,
    /// The number of this share.
    number: u64,
}

/// The device that is played.
#[derive(Debug)]
struct Played {
    rates: Mutex<Rates>,
    clock: Mutex<Clock>,
    /// Never signalled: lanes wait on it for the time to pass.
    done: Condvar,
}

/// The time of the device: what a share that is busy has had of it. It passes as fast as ours while
/// one share is busy, or none, and half as fast while two are.
#[derive(Debug)]
struct Clock {
    /// The moment of the last reading; `time` is the device's time then.
    at: Instant,
    time: Duration,
    /// The time at which each share is done with all it was given.
    busy_until: BTreeMap<u64, Duration>,
    n_shares: u64,
}

impl Clock {
    /// The shares that are not done yet, and when the first of them is.
    fn busy(&self) -> (u32, Option<Duration>) {
        let busy = self.busy_until.values().filter(|until| **until > self.time);
        (u32::try_from(busy.clone().count()).unwrap_or(u32::MAX), busy.min().copied())
    }

    /// Lets it pass until `now`; what it is then.
    fn pass(&mut self, now: Instant) -> Duration {
        loop {
            let passed = now.saturating_duration_since(self.at);
            let (n_busy, next) = self.busy();
            // Until the next share is done all of them go on as they do.
            match next.map(|next| (next, (next - self.time).saturating_mul(n_busy))) {
                Some((next, takes)) if takes <= passed => {
                    self.at += takes;
                    self.time = next;
                }
                _ => {
                    self.at += passed;
                    self.time += passed / n_busy.max(1);
                    return self.time;
                }
            }
        }
    }

    /// Gives a share work that came at `start` and takes `time`; says when it is done.
    fn book(&mut self, share: u64, start: Duration, time: Duration) -> Duration {
        let until = self.busy_until.entry(share).or_default();
        *until = start.max(*until).saturating_add(time);
        *until
    }

    /// The time that passes until then, if no more is booked meanwhile.
    fn takes(&self, until: Duration) -> Duration {
        let (mut at, mut lasts) = (self.time, Duration::ZERO);
        while at < until {
            let busy = self.busy_until.values().filter(|other| **other > at);
            let n_busy = u32::try_from(busy.clone().count()).unwrap_or(u32::MAX).max(1);
            let next = busy.min().copied().unwrap_or(until).min(until);
            lasts = lasts.saturating_add((next - at).saturating_mul(n_busy));
            at = next;
        }
        lasts
    }
}

/// The rates of a played device. What has no rate takes no time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rates {
    /// Floating-point operations.
    pub flops_per_second: Option<u64>,
    /// Copies of inputs and results.
    pub copy_bytes_per_second: Option<u64>,
    /// The least time of each step.
    pub launch: Duration,
}

impl Rates {
    /// The time that a plan takes with inputs and results of so many bytes together.
    pub fn time(&self, plan: &Plan, copied_bytes: u64) -> Duration {
        let step = |flops: u64| nanos(flops, self.flops_per_second).max(self.launch);
        let computed: Duration = plan.flops().map(step).sum();
        computed + nanos(copied_bytes, self.copy_bytes_per_second)
    }
}

impl Pace {
    /// A device with these rates, and a share of it.
    pub fn new(rates: Rates) -> Self {
        let clock = Clock {
            at: Instant::now(),
            time: Duration::ZERO,
            busy_until: BTreeMap::new(),
            n_shares: 1,
        };
        let (rates, clock) = (Mutex::new(rates), Mutex::new(clock));
        Self { played: Arc::new(Played { rates, clock, done: Condvar::new() }), number: 0 }
    }

    /// Another share of the same device.
    pub fn share(&self) -> Self {
        let mut clock = self.played.clock.lock();
        let number = clock.n_shares;
        clock.n_shares += 1;
        Self { played: Arc::clone(&self.played), number }
    }

    /// The rates.
    pub fn rates(&self) -> Rates {
        *self.played.rates.lock()
    }

    /// Puts other rates in force, for all shares.
    pub fn set_rates(&self, rates: Rates) {
        *self.played.rates.lock() = rates;
    }

    /// The present time on the device.
    pub(crate) fn now(&self) -> Duration {
        self.played.clock.lock().pass(Instant::now())
    }

    /// Gives the device work that came at `start` and takes `time`, and waits until it is done.
    pub(crate) fn run(&self, start: Duration, time: Duration) {
        let mut clock = self.played.clock.lock();
        clock.pass(Instant::now());
        let done = clock.book(self.number, start, time);
        while clock.pass(Instant::now()) < done {
            let takes = clock.takes(done);
            self.played.done.wait_for(&mut clock, takes);
        }
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        self.played.clock.lock().busy_until.remove(&self.number);
    }
}

/// The time of so much work at a rate.
fn nanos(work: u64, per_second: Option<u64>) -> Duration {
    let Some(rate) = per_second else { return Duration::ZERO };
    let nanos = u128::from(work) * 1_000_000_000 / u128::from(rate.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn clock() -> (Clock, Instant) {
        let at = Instant::now();
        (Clock { at, time: Duration::ZERO, busy_until: BTreeMap::new(), n_shares: 2 }, at)
    }

    #[test]
    fn lanes_share_the_device_one_run_after_the_other() {
        let (mut clock, start) = clock();
        assert_eq!(clock.book(0, Duration::ZERO, SECOND), SECOND);
        assert_eq!(clock.book(0, Duration::ZERO, SECOND), 2 * SECOND);
        assert_eq!(clock.takes(2 * SECOND), 2 * SECOND);
        assert_eq!(clock.pass(start + 5 * SECOND), 5 * SECOND);
        assert_eq!(clock.book(0, 5 * SECOND, SECOND), 6 * SECOND);
    }

    #[test]
    fn shares_go_on_side_by_side_each_the_slower_for_it() {
        let (mut clock, start) = clock();
        let long = clock.book(0, Duration::ZERO, 10 * SECOND);
        let now = clock.pass(start + SECOND);
        let short = clock.book(1, now, SECOND);
        // Two seconds for the short one, and as long for as much of the long one.
        assert_eq!((clock.takes(short), clock.takes(long)), (2 * SECOND, 10 * SECOND));
        assert_eq!(clock.pass(start + 2 * SECOND), SECOND + SECOND / 2);
        assert_eq!(clock.takes(short), SECOND);
        assert_eq!(clock.pass(start + 4 * SECOND), 3 * SECOND);
        assert_eq!(clock.takes(long), 7 * SECOND);
        assert_eq!(clock.pass(start + 11 * SECOND), long);
        assert_eq!(clock.pass(start + 20 * SECOND), long + 9 * SECOND);
    }

    #[test]
    fn a_share_that_is_gone_slows_nobody() {
        let pace = Pace::new(Rates::default());
        let share = pace.share();
        share.played.clock.lock().book(share.number, Duration::ZERO, 1000 * SECOND);
        assert_eq!(pace.played.clock.lock().busy_until.len(), 1);
        drop(share);
        assert!(pace.played.clock.lock().busy_until.is_empty());
        assert_ne!(pace.share().number, pace.share().number);
    }

    #[test]
    fn work_takes_what_its_rate_says() {
        assert_eq!(nanos(3_000, Some(1_000)), Duration::from_secs(3));
        assert_eq!(nanos(3_000, None), Duration::ZERO);
        assert_eq!(nanos(u64::MAX, Some(1)), Duration::from_nanos(u64::MAX));
    }
}
