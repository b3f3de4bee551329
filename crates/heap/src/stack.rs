//! The stack of a thread, whose pages stay once they were used.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ptr;

/// The bytes left below the frame of the caller: the calls that give the rest back need some of it.
const MARGIN_BYTES: usize = 8 << 10;

/// Gives back the pages of this thread's stack that lie below what it uses now: for one that is
/// about to wait or to end, after it used much of it. The system keeps the stack of a thread that
/// has ended for the next one, with its last pages.
pub fn settle_stack() {
    let Some(lowest) = lowest() else { return };
    let here = 0u8;
    let page_bytes = 4 << 10;
    let used = (&raw const here).addr().saturating_sub(MARGIN_BYTES) / page_bytes * page_bytes;
    let start = lowest.next_multiple_of(page_bytes);
    if start >= used {
        return;
    }
    let at = ptr::with_exposed_provenance_mut(start);
    // SAFETY: the range lies between the lowest address of this thread's stack and this frame, as
    // just computed, with a margin for the frame of this call; nobody uses what is below a frame.
    unsafe { libc::madvise(at, used - start, libc::MADV_DONTNEED) };
}

/// Lets the C library give back the stacks of threads that have ended, which it keeps for the next
/// ones: 40 MiB at most, so that a stack of more makes it let go of all of them. Takes about as
/// long as a thread that does nothing.
pub(crate) fn release_stacks() {
    const MORE_THAN_IS_KEPT: usize = 64 << 20;
    let thread = std::thread::Builder::new().name("stacks".to_owned());
    // Without room for a thread they stay, which is no harm.
    if let Ok(thread) = thread.stack_size(MORE_THAN_IS_KEPT).spawn(|| {}) {
        thread.join().unwrap_or_default();
    }
}

/// The lowest address of this thread's stack, if the system tells. It is asked once, since it takes
/// memory from the C library's own heap for its answer.
fn lowest() -> Option<usize> {
    thread_local! {
        static LOWEST: Cell<Option<usize>> = const { Cell::new(None) };
    }
    let found = LOWEST.get().or_else(ask_lowest);
    LOWEST.set(found);
    found
}

fn ask_lowest() -> Option<usize> {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: a query of the calling thread itself.
    let own = unsafe { libc::pthread_self() };
    // SAFETY: the call writes the attributes if it succeeds.
    if unsafe { libc::pthread_getattr_np(own, attributes.as_mut_ptr()) } != 0 {
        return None;
    }
    let (mut start, mut bytes) = (ptr::null_mut(), 0);
    let attributes = attributes.as_mut_ptr();
    // SAFETY: the attributes were written by the call above, and both results are ours.
    let code = unsafe { libc::pthread_attr_getstack(attributes, &raw mut start, &raw mut bytes) };
    // SAFETY: as above; nobody uses them any more.
    unsafe { libc::pthread_attr_destroy(attributes) };
    (code == 0).then(|| start.addr())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses so many pages of the stack.
    #[inline(never)]
    fn dig(n_pages: usize) -> u8 {
        let page = std::hint::black_box([1u8; 4096]);
        if n_pages == 0 { page[17] } else { page[n_pages % 4096].wrapping_add(dig(n_pages - 1)) }
    }

    /// The number of pages of this thread's stack that are in memory.
    fn n_resident() -> usize {
        let start = lowest().unwrap().next_multiple_of(4096);
        let here = 0u8;
        let n_pages = ((&raw const here).addr() - start) / 4096;
        let mut pages = vec![0u8; n_pages];
        let at = ptr::with_exposed_provenance_mut(start);
        // SAFETY: the range is this thread's stack, and there is a byte for each of its pages.
        assert_eq!(unsafe { libc::mincore(at, n_pages * 4096, pages.as_mut_ptr()) }, 0);
        pages.iter().filter(|page| **page & 1 == 1).count()
    }

    #[test]
    fn the_stacks_of_threads_that_ended_go_back() {
        fn is_mapped(address: usize) -> bool {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            maps.lines().any(|line| {
                let (start, rest) = line.split_once('-').unwrap();
                let end = rest.split(' ').next().unwrap();
                let [start, end] =
                    [start, end].map(|text| usize::from_str_radix(text, 16).unwrap());
                (start..end).contains(&address)
            })
        }
        // Of a size that no other thread has, so that nobody takes them over.
        let threads = (0..8).map(|_| {
            let thread = std::thread::Builder::new().stack_size(3 << 20);
            thread.spawn(|| lowest().unwrap()).unwrap()
        });
        let threads: Vec<_> = threads.collect();
        let stacks: Vec<usize> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        let n_mapped = || stacks.iter().filter(|lowest| is_mapped(**lowest + 8192)).count();
        assert!(n_mapped() > 0, "the library keeps them");
        release_stacks();
        assert_eq!(n_mapped(), 0);
    }

    #[test]
    fn a_thread_gives_back_what_it_used_of_its_stack() {
        let thread = std::thread::spawn(|| {
            let sum = dig(100);
            let used = n_resident();
            settle_stack();
            // What is used again is there again.
            assert_eq!(dig(3), dig(3));
            (sum, used, n_resident())
        });
        let (_, used, left) = thread.join().unwrap();
        assert!(used >= 100 && left < 20, "{used} pages became {left}");
    }
}
