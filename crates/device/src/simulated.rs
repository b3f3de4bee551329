//! A GPU that is not there: host memory of a fixed size that fails on demand.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::driver::{Driver, Kind, Properties};
use crate::error::{Error, Result};
use crate::host::Host;

/// A driver that plays a GPU. It gives no more than its capacity, in granules of 2 MiB as CUDA
/// does, and can be told to fail.
#[derive(Debug)]
pub struct Simulated {
    host: Host,
    copy_bytes_per_second: Option<u64>,
    /// Time that copies would have taken at that rate.
    copy_nanos: AtomicU64,
    n_calls: AtomicU64,
    fail_at: AtomicU64,
}

/// What a simulated GPU is like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimulatedOptions {
    /// The device's name, as in `gpu:0`.
    pub name: String,
    /// Its memory.
    pub capacity_bytes: u64,
    /// The rate of copies between host and device; `None` costs no time.
    pub copy_bytes_per_second: Option<u64>,
    /// Whether regions grow in place, as with CUDA; otherwise they are committed as a whole.
    pub grows_in_place: bool,
}

impl Simulated {
    /// A GPU as the options say.
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
        Simulated {
            host,
            copy_bytes_per_second: options.copy_bytes_per_second,
            copy_nanos: AtomicU64::new(0),
            n_calls: AtomicU64::new(0),
            fail_at: AtomicU64::new(u64::MAX),
        }
    }

    /// A GPU of `capacity_bytes` that grows in place and copies in no time.
    pub fn gpu(name: impl Into<String>, capacity_bytes: u64) -> Simulated {
        Simulated::new(SimulatedOptions {
            name: name.into(),
            capacity_bytes,
            copy_bytes_per_second: None,
            grows_in_place: true,
        })
    }

    /// Lets the `n`-th fallible call from now on fail, the next one being 0; the others succeed.
    /// With `u64::MAX` none fails.
    pub fn fail_call(&self, n: u64) {
        self.fail_at.store(self.n_calls().saturating_add(n), Ordering::Relaxed);
    }

    /// How many fallible calls there were.
    pub fn n_calls(&self) -> u64 {
        self.n_calls.load(Ordering::Relaxed)
    }

    /// The time that copies so far would have taken at the rate given.
    pub fn copy_nanos(&self) -> u64 {
        self.copy_nanos.load(Ordering::Relaxed)
    }

    /// Counts a call, and fails if it is its turn.
    fn call(&self, call: &'static str) -> Result<()> {
        let n = self.n_calls.fetch_add(1, Ordering::Relaxed);
        if n != self.fail_at.load(Ordering::Relaxed) {
            return Ok(());
        }
        let device = self.properties().name.clone();
        Err(Error::Driver { device, call, reason: "injected failure".to_owned() })
    }

    fn copied(&self, bytes: u64) {
        if let Some(rate) = self.copy_bytes_per_second {
            let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
            let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
            self.copy_nanos.fetch_add(nanos, Ordering::Relaxed);
        }
    }
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
        self.host.held_bytes()
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
        // SAFETY: the caller's promise is passed on.
        unsafe { self.host.commit(range) }
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
        self.copied(from.len() as u64);
        // SAFETY: the caller's promise is passed on.
        unsafe { self.host.write(to, from) }
    }

    unsafe fn read(&self, from: u64, to: &mut [u8]) -> Result<()> {
        self.call("read")?;
        self.copied(to.len() as u64);
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
        let gpu = Simulated::new(SimulatedOptions {
            name: "gpu:1".to_owned(),
            capacity_bytes: 64 * MIB,
            copy_bytes_per_second: None,
            grows_in_place: false,
        });
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

    #[test]
    fn copies_take_the_time_that_the_rate_says() {
        let gpu = Arc::new(Simulated::new(SimulatedOptions {
            name: "gpu:0".to_owned(),
            capacity_bytes: 64 * MIB,
            copy_bytes_per_second: Some(1 << 30),
            grows_in_place: true,
        }));
        let mut region = Region::committed(gpu.clone(), 2 * MIB).unwrap();
        region.write(0, &vec![1; 1 << 20]).unwrap();
        region.read(0, &mut vec![0; 1 << 20]).unwrap();
        assert_eq!(gpu.copy_nanos(), 2 * (1_000_000_000 / 1024));
    }
}
