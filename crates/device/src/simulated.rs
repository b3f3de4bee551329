//! A GPU that is not there: host memory of a fixed size, with the failures asked for.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::driver::{Driver, Kind, Properties};
use crate::error::{Error, Result};
use crate::host::Host;
use parking_lot::Mutex;

/// A driver that plays a GPU. It gives no more than its capacity, in granules of 2 MiB as CUDA
/// does, and can be told to fail. The speed of a played GPU is kept by `native::Pace`.
#[derive(Debug)]
pub struct Simulated {
    host: Host,
    context_bytes: u64,
    n_calls: AtomicU64,
    /// The number of times each thread, by its name, took memory.
    takers: Mutex<BTreeMap<String, u64>>,
    /// The call that fails; `u64::MAX` for none.
    fail_at: AtomicU64,
    /// Every so many calls one fails; 0 for none.
    fail_every: AtomicU64,
    /// The largest piece of memory that is refused; 0 for none.
    refused_bytes: AtomicU64,
}

/// The properties of a simulated GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimulatedOptions {
    /// The device's name, as in `gpu:0`.
    pub name: String,
    /// Its memory.
    pub capacity_bytes: u64,
    /// The bytes of it that the driver takes for itself, as CUDA's contexts do.
    pub context_bytes: u64,
    /// `true` if regions grow in place, as with CUDA; otherwise they are committed as a whole.
    pub grows_in_place: bool,
    /// The calls that fail.
    pub failures: Failures,
}

/// The choice of the fallible calls that fail.
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
    /// A GPU of `capacity_bytes` that grows in place and never fails.
    pub fn gpu(name: impl Into<String>, capacity_bytes: u64) -> SimulatedOptions {
        SimulatedOptions {
            name: name.into(),
            capacity_bytes,
            context_bytes: 0,
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
            n_calls: AtomicU64::new(0),
            takers: Mutex::default(),
            fail_at: AtomicU64::new(fail_at),
            fail_every: AtomicU64::new(fail_every),
            refused_bytes: AtomicU64::new(0),
        }
    }

    /// A GPU of `capacity_bytes` that grows in place.
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

    /// The number of fallible calls so far.
    pub fn n_calls(&self) -> u64 {
        self.n_calls.load(Ordering::Relaxed)
    }

    /// The number of times each thread, by its name, took memory.
    pub fn takers(&self) -> BTreeMap<String, u64> {
        self.takers.lock().clone()
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
}

/// The granule of CUDA's virtual memory.
const GRANULE_BYTES: u64 = 2 << 20;

/// The alignment of CUDA's allocations.
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
        // SAFETY: the caller's promise is passed on.
        unsafe { self.host.write(to, from) }
    }

    unsafe fn read(&self, from: u64, to: &mut [u8]) -> Result<()> {
        self.call("read")?;
        // SAFETY: the caller's promise is passed on.
        unsafe { self.host.read(from, to) }
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

    /// Checks which of eight calls fail.
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
}
