//! The host's pages that play a GPU's memory. Addresses without memory fault, as they do there.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

/// The byte that new memory is full of: a GPU does not clear it.
const OLD: u8 = 0xaa;

/// Memory that is not behind an address yet.
#[derive(Debug)]
pub(crate) struct Memory {
    file: OwnedFd,
}

impl Memory {
    /// So many bytes; `None` if the system has no more files.
    pub(crate) fn new(bytes: usize) -> Option<Memory> {
        // SAFETY: the name ends with a nul.
        let file = unsafe { libc::memfd_create(c"fakecuda".as_ptr(), libc::MFD_CLOEXEC) };
        if file < 0 {
            return None;
        }
        // SAFETY: the file was opened above, and is nobody else's.
        let file = unsafe { OwnedFd::from_raw_fd(file) };
        let end = libc::off_t::try_from(bytes).ok()?;
        // SAFETY: it is a file of ours.
        let outcome = unsafe { libc::ftruncate(file.as_raw_fd(), end) };
        (outcome == 0).then_some(Memory { file })
    }
}

/// Addresses with nothing behind them; 0 if there are none.
pub(crate) fn reserve(bytes: usize, alignment: usize) -> u64 {
    let Some(all) = bytes.checked_add(alignment) else { return 0 };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a mapping of its own, without access.
    let at = unsafe { libc::mmap(ptr::null_mut(), all, libc::PROT_NONE, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        return 0;
    }
    let start = at.expose_provenance();
    let aligned = start.next_multiple_of(alignment);
    // What aligning leaves over, before and after.
    unreserve(start as u64, aligned - start);
    unreserve((aligned + bytes) as u64, start + all - aligned - bytes);
    aligned as u64
}

/// Takes addresses back.
pub(crate) fn unreserve(at: u64, bytes: usize) {
    if bytes > 0 {
        // SAFETY: the caller has just found the range among what `reserve` gave.
        assert_eq!(unsafe { libc::munmap(pointer(at).cast(), bytes) }, 0);
    }
}

/// Puts memory behind addresses that were reserved; nobody may use it yet.
pub(crate) fn map(at: u64, bytes: usize, memory: &Memory) {
    let (flags, file) = (libc::MAP_SHARED | libc::MAP_FIXED, memory.file.as_raw_fd());
    remap(at, bytes, flags, file);
}

/// Takes the memory behind addresses away.
pub(crate) fn unmap(at: u64, bytes: usize) {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    remap(at, bytes, flags, -1);
}

fn remap(at: u64, bytes: usize, flags: i32, file: i32) {
    let to = pointer(at).cast::<c_void>();
    // SAFETY: the caller has just found the range among what `reserve` gave, and what was mapped
    // there is nobody's any more.
    let mapped = unsafe { libc::mmap(to, bytes, libc::PROT_NONE, flags, file, 0) };
    assert_eq!(mapped, to, "addresses that are reserved can be mapped");
}

/// Lets mapped memory be used; it is full of what others left.
pub(crate) fn allow(at: u64, bytes: usize) {
    let flags = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the caller has just found the range among what is mapped.
    assert_eq!(unsafe { libc::mprotect(pointer(at).cast(), bytes, flags) }, 0);
    fill(at, bytes, OLD);
}

/// Writes the same byte everywhere.
pub(crate) fn fill(at: u64, bytes: usize, value: u8) {
    // SAFETY: the caller has just found the range among what may be used.
    unsafe { pointer(at).write_bytes(value, bytes) };
}

/// The host's pointer to a GPU's address.
pub(crate) fn pointer(at: u64) -> *mut u8 {
    ptr::with_exposed_provenance_mut(usize::try_from(at).expect("addresses are the host's"))
}
