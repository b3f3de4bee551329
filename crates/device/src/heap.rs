//! The heap of the process: jemalloc, which serves many threads without their waiting for each
//! other, and can be told to give back what it keeps.

use std::ffi::CStr;
use std::ptr;

use tikv_jemallocator::Jemalloc;

#[global_allocator]
static HEAP: Jemalloc = Jemalloc;

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
