//! The host's memory: `mmap` reserves, `mprotect` commits, `madvise` decommits.
//!
//! Pages without memory are inaccessible, so that a stray access faults where it happens.

use std::ops::Range;
use std::ptr;
use std::sync::atomic::Ordering;

use crate::driver::{Driver, Kind, Properties};
use crate::error::{Error, Result};
use crate::sync::AtomicU64;

/// A driver of the host's memory. Many may live in one process, each with its own capacity.
#[derive(Debug)]
pub struct Host {
    properties: Properties,
    held: AtomicU64,
}

impl Host {
    /// A device of `capacity_bytes` with the host's own page size.
    pub fn new(name: impl Into<String>, capacity_bytes: u64) -> Host {
        Host::with(Properties {
            name: name.into(),
            kind: Kind::Cpu,
            capacity_bytes,
            granule_bytes: page_bytes(),
            alignment_bytes: ALIGNMENT_BYTES,
            region_bytes_max: REGION_BYTES_MAX,
            grows_in_place: true,
            host_visible: true,
        })
    }

    /// A device made of host memory that says of itself what `properties` say.
    ///
    /// # Panics
    /// If the properties contradict each other, or the granule is no multiple of a page.
    pub fn with(properties: Properties) -> Host {
        properties.check();
        assert_eq!(properties.granule_bytes % page_bytes(), 0, "the granule is whole pages");
        Host { properties, held: AtomicU64::new(0) }
    }

    fn failed(&self, call: &'static str) -> Error {
        let reason = std::io::Error::last_os_error().to_string();
        Error::Driver { device: self.properties.name.clone(), call, reason }
    }

    fn out_of_memory(&self, needed_bytes: u64) -> Error {
        Error::Exhausted {
            device: self.properties.name.clone(),
            needed_bytes,
            free_bytes: self.available_bytes(),
            limit_bytes: self.properties.capacity_bytes,
        }
    }

    /// Adds `bytes` to what is held, unless that would exceed the capacity.
    pub(crate) fn charge(&self, bytes: u64) -> Result<()> {
        let add = |held: u64| {
            held.checked_add(bytes).filter(|held| *held <= self.properties.capacity_bytes)
        };
        match self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add) {
            Ok(_) => Ok(()),
            Err(_) => Err(self.out_of_memory(bytes)),
        }
    }

    fn refund(&self, bytes: u64) {
        let before = self.held.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "{bytes} bytes given back of {before} held");
    }
}

/// The alignment of the host's buffers: a cache line, and the widest vector register.
const ALIGNMENT_BYTES: u64 = 64;

/// More address space than any host has memory, and little of what a process has.
const REGION_BYTES_MAX: u64 = 1 << 40;

impl Driver for Host {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn held_bytes(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    fn available_bytes(&self) -> u64 {
        self.properties.capacity_bytes.saturating_sub(self.held_bytes())
    }

    fn reserve(&self, bytes: u64) -> Result<u64> {
        let Properties { granule_bytes, region_bytes_max, .. } = self.properties;
        if bytes > region_bytes_max {
            return Err(Error::TooLarge {
                device: self.properties.name.clone(),
                needed_bytes: bytes,
                largest_bytes: region_bytes_max,
            });
        }
        // A granule larger than a page needs room to align in; what is over is unmapped again.
        let padded = bytes + granule_bytes - page_bytes();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: no address is asked for, so the mapping overlaps nothing; its size is checked.
        let base =
            unsafe { libc::mmap(ptr::null_mut(), size(padded), libc::PROT_NONE, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(self.failed("reserve"));
        }
        let start = base.expose_provenance() as u64;
        let aligned = start.next_multiple_of(granule_bytes);
        unmap(start..aligned);
        unmap(aligned + bytes..start + padded);
        Ok(aligned)
    }

    unsafe fn commit(&self, range: Range<u64>) -> Result<()> {
        let bytes = range.end - range.start;
        self.charge(bytes)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the caller promises that the range was reserved from this driver.
        if unsafe { libc::mprotect(pointer(range.start), size(bytes), access) } != 0 {
            self.refund(bytes);
            return Err(match std::io::Error::last_os_error().raw_os_error() {
                Some(libc::ENOMEM) => self.out_of_memory(bytes),
                _ => self.failed("commit"),
            });
        }
        Ok(())
    }

    unsafe fn populate(&self, range: Range<u64>) {
        let bytes = size(range.end - range.start);
        // SAFETY: the caller promises that the range is committed; no byte of it changes. A kernel
        // that does not know this advice leaves the pages to the first access.
        unsafe { libc::madvise(pointer(range.start), bytes, libc::MADV_POPULATE_WRITE) };
    }

    unsafe fn decommit(&self, range: Range<u64>) -> Result<()> {
        let bytes = range.end - range.start;
        let at = pointer(range.start);
        // SAFETY: the caller promises that the range is this driver's and unused.
        if unsafe { libc::madvise(at, size(bytes), libc::MADV_DONTNEED) } != 0 {
            return Err(self.failed("decommit"));
        }
        // The memory is gone. That the kernel may run out of mappings here costs only the guard.
        // SAFETY: as above.
        unsafe { libc::mprotect(at, size(bytes), libc::PROT_NONE) };
        self.refund(bytes);
        Ok(())
    }

    unsafe fn release(&self, range: Range<u64>, held_bytes: u64) {
        unmap(range);
        self.refund(held_bytes);
    }

    unsafe fn write(&self, to: u64, from: &[u8]) -> Result<()> {
        // SAFETY: the caller promises that the bytes at `to` are committed and used by nobody else.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), pointer(to).cast(), from.len()) };
        Ok(())
    }

    unsafe fn read(&self, from: u64, to: &mut [u8]) -> Result<()> {
        // SAFETY: the caller promises that the bytes at `from` are committed and not written.
        unsafe { ptr::copy_nonoverlapping(pointer(from).cast(), to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    unsafe fn copy(&self, from: u64, to: u64, bytes: u64) -> Result<()> {
        let (from, to) = (pointer(from).cast::<u8>(), pointer(to).cast::<u8>());
        // SAFETY: the caller promises that both pieces are committed, apart, and unused.
        unsafe { ptr::copy_nonoverlapping(from, to, size(bytes)) };
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }
}

/// Gives a range that `mmap` gave back to the system.
fn unmap(range: Range<u64>) {
    if range.is_empty() {
        return;
    }
    // SAFETY: only ranges reserved above come here, each once.
    let failed = unsafe { libc::munmap(pointer(range.start), size(range.end - range.start)) } != 0;
    assert!(!failed, "munmap of a range of our own: {}", std::io::Error::last_os_error());
}

/// The host's page size.
fn page_bytes() -> u64 {
    // SAFETY: a query without side effects.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).expect("Linux knows its page size")
}

fn pointer(address: u64) -> *mut libc::c_void {
    ptr::with_exposed_provenance_mut(size(address))
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).expect("sizes of the host fit its pointers")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Region, conformance};

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_host_is_a_driver() {
        conformance::check(&(Arc::new(Host::new("cpu:0", 32 * MIB)) as Arc<dyn Driver>));
    }

    #[test]
    fn memory_given_back_is_no_longer_resident() {
        let mut region = Region::committed(Arc::new(Host::new("cpu:0", 8 * MIB)), 8 * MIB).unwrap();
        region.write(0, &vec![1; 8 << 20]).unwrap();
        assert_eq!(resident_bytes(&region), 8 * MIB);
        region.decommit(2 * MIB..7 * MIB).unwrap();
        assert_eq!(resident_bytes(&region), 3 * MIB);
    }

    #[test]
    fn memory_can_get_its_pages_before_it_is_used() {
        let mut region = Region::reserve(Arc::new(Host::new("cpu:0", 8 * MIB)), 8 * MIB).unwrap();
        region.commit(MIB..3 * MIB).unwrap();
        region.commit(4 * MIB..8 * MIB).unwrap();
        assert_eq!(resident_bytes(&region), 0);
        let base = region.base();
        region.populate(&(base + 2 * MIB + 77..base + 5 * MIB - 77));
        assert_eq!(resident_bytes(&region), 2 * MIB, "what is committed of it, in whole pages");
    }

    fn resident_bytes(region: &Region) -> u64 {
        let n_pages = size(region.bytes() / page_bytes());
        let mut pages = vec![0; n_pages];
        let (at, bytes) = (pointer(region.base()), size(region.bytes()));
        // SAFETY: the region is mapped, and there is a byte for each of its pages.
        let answer = unsafe { libc::mincore(at, bytes, pages.as_mut_ptr()) };
        assert_eq!(answer, 0);
        pages.iter().filter(|page| **page & 1 == 1).count() as u64 * page_bytes()
    }
}
