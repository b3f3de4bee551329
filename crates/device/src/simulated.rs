//! A GPU that is not there: host memory of a fixed size, with the speed and the failures asked for.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::driver::{Driver, Kind, Properties};
use crate::error::{Error, Result};
use crate::host::Host;
use parking_lot::Mutex;

/// A driver that plays a GPU. It gives no more than its capacity, in granules of 2 MiB as CUDA
/// does, copies and computes at given rates, and can be told to fail.
#[derive(Debug)]
pub struct Simulated {
    host: Host,
    context_bytes: u64,
    copy_bytes_per_second: Option<u64>,
    compute_per_second: Option<u64>,
    pace: Pace,
    /// Time that copies take at that rate.
    copy_nanos: AtomicU64,
    n_calls: AtomicU64,
    /// How often each thread, by its name, took memory.
    takers: Mutex<BTreeMap<String, u64>>,
    /// The call that fails; `u64::MAX` for none.
    fail_at: AtomicU64,
    /// Every so many calls one fails; 0 for none.
    fail_every: AtomicU64,
    /// The largest piece of memory that is refused; 0 for none.
    refused_bytes: AtomicU64,
}

/// What a simulated GPU is like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimulatedOptions {
    /// The device's name, as in `gpu:0`.
    pub name: String,
    /// Its memory.
    pub capacity_bytes: u64,
    /// What of it the driver takes for itself, as CUDA's contexts do.
    pub context_bytes: u64,
    /// The rate of copies between host and device; `None` costs no time.
    pub copy_bytes_per_second: Option<u64>,
    /// How many operations its kernels do in a second; `None` for as many as the host's do.
    pub compute_per_second: Option<u64>,
    /// Whether copies last as long as the rate says.
    pub pace: Pace,
    /// Whether regions grow in place, as with CUDA; otherwise they are committed as a whole.
    pub grows_in_place: bool,
    /// Which calls fail.
    pub failures: Failures,
}

/// What a simulated rate means for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// The time is counted, and nobody waits for it.
    Counted,
    /// The caller waits for it.
    Waited,
}

/// Which of the fallible calls fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failures {
    /// None.
    Never,
    /// The one of this number, the first being 0.
    Call(u64),
    /// One of so many: the last of each; none if 0.
    Every(u64),
}

impl SimulatedOptions {
    /// A GPU of `capacity_bytes` that grows in place, costs no time and never fails.
    pub fn gpu(name: impl Into<String>, capacity_bytes: u64) -> SimulatedOptions {
        SimulatedOptions {
            name: name.into(),
            capacity_bytes,
            context_bytes: 0,
            copy_bytes_per_second: None,
            compute_per_second: None,
            pace: Pace::Counted,
            grows_in_place: true,
            failures: Failures::Never,
        }
    }
}

impl Simulated {
    /// A GPU as the options say.
    ///
    /// # Panics
    /// If its context takes more than it has.
    pub fn new(options: SimulatedOptions) -> Simulated {
        let host = Host::with(Properties {
            name: options.name,
            kind: Kind::Gpu,
            capacity_bytes: options.capacity_bytes,
            granule_bytes: GRANULE_BYTES,
            alignment_bytes: ALIGNMENT_BYTES,
            region_bytes_max: REGION_BYTES_MAX,
            grows_in_place: options.grows_in_place,
            host_visible: true,
        });
        host.charge(options.context_bytes).expect("a context is a part of the memory");
        let (fail_at, fail_every) = match options.failures {
            Failures::Never => (u64::MAX, 0),
            Failures::Call(n) => (n, 0),
            Failures::Every(n) => (u64::MAX, n),
        };
        Simulated {
            host,
            context_bytes: options.context_bytes,
            copy_bytes_per_second: options.copy_bytes_per_second,
            compute_per_second: options.compute_per_second,
            pace: options.pace,
            copy_nanos: AtomicU64::new(0),
            n_calls: AtomicU64::new(0),
            takers: Mutex::default(),
            fail_at: AtomicU64::new(fail_at),
            fail_every: AtomicU64::new(fail_every),
            refused_bytes: AtomicU64::new(0),
        }
    }

    /// A GPU of `capacity_bytes` that grows in place and copies in no time.
    pub fn gpu(name: impl Into<String>, capacity_bytes: u64) -> Simulated {
        Simulated::new(SimulatedOptions::gpu(name, capacity_bytes))
    }

    /// Lets the `n`-th fallible call from now on fail, the next one being 0; the others succeed.
    /// With `u64::MAX` none fails.
    pub fn fail_call(&self, n: u64) {
        self.fail_every.store(0, Ordering::Relaxed);
        self.fail_at.store(self.n_calls().saturating_add(n), Ordering::Relaxed);
    }

    /// Refuses pieces of memory of up to so many bytes from now on; with 0 none.
    pub fn refuse_up_to(&self, bytes: u64) {
        self.refused_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Up to how many bytes pieces of memory are refused; 0 if none is.
    pub fn refused_bytes(&self) -> u64 {
        self.refused_bytes.load(Ordering::Relaxed)
    }

    /// How many fallible calls there were.
    pub fn n_calls(&self) -> u64 {
        self.n_calls.load(Ordering::Relaxed)
    }

    /// How often each thread, by its name, took memory.
    pub fn takers(&self) -> BTreeMap<String, u64> {
        self.takers.lock().clone()
    }

    /// The time that copies so far would have taken at the rate given.
    pub fn copy_nanos(&self) -> u64 {
        self.copy_nanos.load(Ordering::Relaxed)
    }

    /// How long kernels need for so many operations; `None` if the host's own speed counts.
    pub fn compute_time(&self, operations: u64) -> Option<Duration> {
        self.compute_per_second.map(|rate| time(operations, rate))
    }

    /// Counts a call, and fails if it is its turn.
    fn call(&self, call: &'static str) -> Result<()> {
        let n = self.n_calls.fetch_add(1, Ordering::Relaxed);
        let every = self.fail_every.load(Ordering::Relaxed);
        let is_turn = every > 0 && n % every == every - 1;
        if !is_turn && n != self.fail_at.load(Ordering::Relaxed) {
            return Ok(());
        }
        Err(self.injected(call))
    }

    fn injected(&self, call: &'static str) -> Error {
        let device = self.properties().name.clone();
        Error::Driver { device, call, reason: "injected failure".to_owned() }
    }

    /// Copies, and lets it last as long as the rate says.
    fn copied(&self, bytes: u64, copy: impl FnOnce() -> Result<()>) -> Result<()> {
        let start = Instant::now();
        copy()?;
        let Some(rate) = self.copy_bytes_per_second else { return Ok(()) };
        let lasts = time(bytes, rate);
        let nanos = u64::try_from(lasts.as_nanos()).unwrap_or(u64::MAX);
        self.copy_nanos.fetch_add(nanos, Ordering::Relaxed);
        #[expect(clippy::disallowed_methods, reason = "the caller asked to wait")]
        if self.pace == Pace::Waited {
            std::thread::sleep(lasts.saturating_sub(start.elapsed()));
        }
        Ok(())
    }
}

/// How long `n` take at so many a second.
fn time(n: u64, per_second: u64) -> Duration {
    let nanos = u128::from(n) * 1_000_000_000 / u128::from(per_second.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// The granule of CUDA's virtual memory.
const GRANULE_BYTES: u64 = 2 << 20;

/// What CUDA aligns its allocations to.
const ALIGNMENT_BYTES: u64 = 256;

const REGION_BYTES_MAX: u64 = 1 << 40;

impl Driver for Simulated {
    fn properties(&self) -> &Properties {
        self.host.properties()
    }

    fn held_bytes(&self) -> u64 {
        self.host.held_bytes() - self.context_bytes
    }

    fn context_bytes(&self) -> u64 {
        self.context_bytes
    }

    fn available_bytes(&self) -> u64 {
        self.host.available_bytes()
    }

    fn reserve(&self, bytes: u64) -> Result<u64> {
        self.call("reserve")?;
        self.host.reserve(bytes)
    }

    unsafe fn commit(&self, range: Range<u64>) -> Result<()> {
        self.call("commit")?;
        if range.end - range.start <= self.refused_bytes() {
            return Err(self.injected("commit"));
        }
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        *self.takers.lock().entry(name).or_default() += 1;
        // SAFETY: the caller's promise is passed on.
        unsafe { self.host.commit(range) }
    }

    unsafe fn populate(&self, range: Range<u64>) {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.host.populate(range) };
    }

    unsafe fn decommit(&self, range: Range<u64>) -> Result<()> {
        self.call("decommit")?;
        // SAFETY: the caller's promise is passed on.
        unsafe { self.host.decommit(range) }
    }

    unsafe fn release(&self, range: Range<u64>, held_bytes: u64) {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.host.release(range, held_bytes) }
    }

    unsafe fn write(&self, to: u64, from: &[u8]) -> Result<()> {
        self.call("write")?;
        self.copied(from.len() as u64, || {
            // SAFETY: the caller's promise is passed on.
            unsafe { self.host.write(to, from) }
        })
    }

    unsafe fn read(&self, from: u64, to: &mut [u8]) -> Result<()> {
        self.call("read")?;
        self.copied(to.len() as u64, || {
            // SAFETY: the caller's promise is passed on.
            unsafe { self.host.read(from, to) }
        })
    }

    unsafe fn copy(&self, from: u64, to: u64, bytes: u64) -> Result<()> {
        self.call("copy")?;
        // SAFETY: the caller's promise is passed on.
        unsafe { self.host.copy(from, to, bytes) }
    }

    fn sync(&self) -> Result<()> {
        self.call("sync")?;
        self.host.sync()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Region, conformance};

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_simulated_gpu_is_a_driver() {
        conformance::check(&(Arc::new(Simulated::gpu("gpu:0", 64 * MIB)) as Arc<dyn Driver>));
    }

    #[test]
    fn a_simulated_gpu_that_commits_whole_regions_is_a_driver() {
        let options = SimulatedOptions::gpu("gpu:1", 64 * MIB);
        let gpu = Simulated::new(SimulatedOptions { grows_in_place: false, ..options });
        conformance::check(&(Arc::new(gpu) as Arc<dyn Driver>));
    }

    #[test]
    fn a_context_takes_room_and_is_not_held() {
        let options = SimulatedOptions::gpu("gpu:0", 64 * MIB);
        let gpu = Simulated::new(SimulatedOptions { context_bytes: 20 * MIB, ..options });
        assert_eq!((gpu.available_bytes(), gpu.held_bytes()), (44 * MIB, 0));
        conformance::check(&(Arc::new(gpu) as Arc<dyn Driver>));
    }

    #[test]
    fn only_the_call_that_was_named_fails() {
        let gpu = Arc::new(Simulated::gpu("gpu:0", 64 * MIB));
        gpu.fail_call(1);
        let mut region = Region::reserve(gpu.clone(), 4 * MIB).unwrap();
        let error = region.commit(0..4 * MIB).unwrap_err();
        assert_eq!(error.to_string(), "commit failed on gpu:0: injected failure");
        assert_eq!(gpu.held_bytes(), 0);
        region.commit(0..4 * MIB).unwrap();
        assert_eq!((gpu.n_calls(), gpu.held_bytes()), (3, 4 * MIB));
    }

    /// Which of eight calls fail.
    #[track_caller]
    fn check_failures(failures: Failures, expected: &[usize]) {
        let options = SimulatedOptions { failures, ..SimulatedOptions::gpu("gpu:0", 64 * MIB) };
        let gpu = Simulated::new(options);
        let failed: Vec<usize> = (0..8).filter(|_| gpu.sync().is_err()).collect();
        assert_eq!(failed, expected);
    }

    #[test]
    fn failures_are_as_the_options_say() {
        check_failures(Failures::Never, &[]);
        check_failures(Failures::Call(2), &[2]);
        check_failures(Failures::Every(3), &[2, 5]);
        check_failures(Failures::Every(0), &[]);
    }

    #[test]
    fn copies_and_kernels_take_the_time_that_their_rates_say() {
        for pace in [Pace::Counted, Pace::Waited] {
            let gpu = Arc::new(Simulated::new(SimulatedOptions {
                copy_bytes_per_second: Some(1 << 30),
                compute_per_second: Some(1_000_000),
                pace,
                ..SimulatedOptions::gpu("gpu:0", 64 * MIB)
            }));
            let mut region = Region::committed(gpu.clone(), 2 * MIB).unwrap();
            let start = Instant::now();
            region.write(0, &vec![1; 1 << 20]).unwrap();
            region.read(0, &mut vec![0; 1 << 20]).unwrap();
            let nanos = 2 * (1_000_000_000 / 1024);
            assert_eq!(gpu.copy_nanos(), nanos);
            assert_eq!(gpu.compute_time(500), Some(Duration::from_micros(500)));
            // A wait can only be too long, so that this cannot fail by chance.
            assert!(pace == Pace::Counted || start.elapsed() >= Duration::from_nanos(nanos));
        }
        assert_eq!(Simulated::gpu("gpu:0", MIB * 2).compute_time(500), None);
    }
}
