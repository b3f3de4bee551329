//! `Pace`: how long a played device takes.

use std::time::{Duration, Instant};

use graph::Plan;
use parking_lot::{Condvar, Mutex};

/// What a device that is played by the host would take for its work. Kernels run as fast as they
/// do, and the lane then waits until the played device would have been done. Its lanes share it,
/// one run after the other, as streams share a GPU.
#[derive(Debug)]
pub struct Pace {
    rates: Mutex<Rates>,
    /// When the device is done with all it was given.
    busy_until: Mutex<Option<Instant>>,
    /// Never signalled: lanes wait on it for the time to pass.
    done: Condvar,
}

/// The rates of a played device. What has no rate takes no time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rates {
    /// Floating-point operations.
    pub flops_per_second: Option<u64>,
    /// Copies of inputs and results.
    pub copy_bytes_per_second: Option<u64>,
    /// What each step takes at least.
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
    /// A device with these rates.
    pub fn new(rates: Rates) -> Self {
        Self { rates: Mutex::new(rates), busy_until: Mutex::default(), done: Condvar::new() }
    }

    /// The rates.
    pub fn rates(&self) -> Rates {
        *self.rates.lock()
    }

    /// Puts other rates in force.
    pub fn set_rates(&self, rates: Rates) {
        *self.rates.lock() = rates;
    }

    /// Gives the device work that came at `start` and takes `time`; says when it is done.
    pub(crate) fn book(&self, start: Instant, time: Duration) -> Instant {
        let mut busy_until = self.busy_until.lock();
        let done = busy_until.map_or(start, |until| until.max(start)) + time;
        *busy_until = Some(done);
        done
    }

    /// Waits until work is done.
    pub(crate) fn wait(&self, done: Instant) {
        let mut busy_until = self.busy_until.lock();
        while Instant::now() < done {
            self.done.wait_until(&mut busy_until, done);
        }
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

    #[test]
    fn lanes_share_the_device_one_run_after_the_other() {
        let pace = Pace::new(Rates::default());
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        assert_eq!(pace.book(start, second), start + second);
        assert_eq!(pace.book(start, second), start + 2 * second);
        assert_eq!(pace.book(start + 5 * second, second), start + 6 * second);
    }

    #[test]
    fn work_takes_what_its_rate_says() {
        assert_eq!(nanos(3_000, Some(1_000)), Duration::from_secs(3));
        assert_eq!(nanos(3_000, None), Duration::ZERO);
        assert_eq!(nanos(u64::MAX, Some(1)), Duration::from_nanos(u64::MAX));
    }
}
