//! The heap of the process: jemalloc, which serves many threads without their waiting for each
//! other, and can be told to give back what it keeps. A program chooses its heap, so the one that
//! serves says that it is this one; in others what is here does nothing.

use std::ffi::CStr;
use std::ptr;

pub use tikv_jemallocator::Jemalloc as Heap;

#[cfg(test)]
#[global_allocator]
static HEAP: Heap = Heap;

/// The name of a call that returns the free pages of all arenas: 4096 stands for all of them.
const PURGE_ALL: &CStr = c"arena.4096.purge";

/// Lets the heap return the pages that it keeps for later to the system. Takes milliseconds: for
/// after an unload, not for a request.
pub fn trim_heap() {
    let (old, old_len, new) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    // SAFETY: the call takes its own locks, reads nothing but the name and writes nothing.
    let code = unsafe { tikv_jemalloc_sys::mallctl(PURGE_ALL.as_ptr(), old, old_len, new, 0) };
    debug_assert_eq!(code, 0, "the heap knows how to be trimmed");
}

/// What the heap says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeapBytes {
    /// What the program has asked for and not given back.
    pub allocated_bytes: u64,
    /// What the heap has in memory for it, what it keeps for later included.
    pub resident_bytes: u64,
}

/// What the heap says of itself now.
pub fn heap_bytes() -> HeapBytes {
    let mut epoch = 1u64;
    let (old, old_len) = (ptr::null_mut(), ptr::null_mut());
    let new = (&raw mut epoch).cast();
    // SAFETY: the call reads 8 bytes of a number that outlives it: figures are brought up to date.
    unsafe { tikv_jemalloc_sys::mallctl(c"epoch".as_ptr(), old, old_len, new, size_of::<u64>()) };
    let (allocated, resident) = (figure(c"stats.allocated"), figure(c"stats.resident"));
    HeapBytes { allocated_bytes: allocated as u64, resident_bytes: resident as u64 }
}

/// A figure of the heap's; 0 if it does not tell.
fn figure(name: &CStr) -> usize {
    let (mut value, mut len) = (0usize, size_of::<usize>());
    let (old, new) = ((&raw mut value).cast(), ptr::null_mut());
    // SAFETY: the call writes a number of the length that it is told, and reads nothing.
    let code = unsafe { tikv_jemalloc_sys::mallctl(name.as_ptr(), old, &raw mut len, new, 0) };
    if code == 0 { value } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the system says that this process has in memory.
    fn resident_bytes() -> usize {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        let n_pages: usize = text.split(' ').nth(1).unwrap().parse().unwrap();
        n_pages * 4096
    }

    /// Many small allocations of different sizes, all written to.
    fn fill(bytes: usize) -> Vec<Vec<u8>> {
        let sizes = (0..).map(|n| 40 + n * 7919 % 1900);
        let mut left = bytes;
        let fits = |size: &usize| {
            left = left.saturating_sub(*size);
            left > 0
        };
        sizes.take_while(fits).map(|size| vec![1; size]).collect()
    }

    #[test]
    fn the_heap_tells_what_was_asked_of_it() {
        const BYTES: u64 = 64 << 20;
        let before = heap_bytes();
        let all = vec![1u8; 64 << 20];
        let with = heap_bytes();
        assert!(with.allocated_bytes >= before.allocated_bytes + BYTES, "{before:?} {with:?}");
        assert!(with.resident_bytes >= BYTES, "{with:?}");
        drop(all);
        let after = heap_bytes();
        assert!(after.allocated_bytes < with.allocated_bytes - BYTES / 2, "{with:?} {after:?}");
    }

    #[test]
    fn pages_of_the_heap_go_back_even_between_others_that_stay() {
        const BYTES: usize = 48 << 20;
        let before = resident_bytes();
        let other = std::thread::spawn(|| fill(BYTES));
        let (mut mine, mut theirs) = (fill(BYTES), other.join().unwrap());
        assert!(resident_bytes() > before + 2 * BYTES - (8 << 20), "all of it is in memory");
        // A few stay, all over the heap, as what other models hold would.
        for all in [&mut mine, &mut theirs] {
            let mut n = 0;
            all.retain(|_| {
                n += 1;
                n % 1000 == 0
            });
        }
        trim_heap();
        let kept = resident_bytes().saturating_sub(before);
        assert!(kept < BYTES / 5, "{kept} bytes of {} are still there", 2 * BYTES);
        assert!(mine.len() + theirs.len() > 50);
    }
}
