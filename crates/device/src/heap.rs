//! The heap of the process: jemalloc, which serves many threads without their waiting for each
//! other, and can be told to give back what it keeps. A program chooses its heap, so the one that
//! serves says that it is this one; in others what is here does nothing.

use std::cell::Cell;
use std::ffi::CStr;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::stack::{release_stacks, settle_stack};

pub use tikv_jemallocator::Jemalloc as Heap;

#[cfg(test)]
#[global_allocator]
static HEAP: Heap = Heap;

/// The heap reads this when it starts. A thread looks through what it keeps for itself after so
/// many bytes, which small requests would reach every few times; threads that wait give it back
/// anyway ([`settle_heap`]).
#[unsafe(export_name = "_rjem_malloc_conf")]
static SETTINGS: &[u8; 29] = b"tcache_gc_incr_bytes:1048576\0";

/// The name of a call that returns the free pages of all arenas: 4096 stands for all of them.
const PURGE_ALL: &CStr = c"arena.4096.purge";

/// The name of a call that returns what the calling thread keeps for itself.
const FLUSH: &CStr = c"thread.tcache.flush";

/// The names of a call that makes a part of the heap, and of one that lets this thread use it.
const CREATE: &CStr = c"arenas.create";
const USE: &CStr = c"thread.arena";

/// The part of the heap that loads use, if there is one.
static LOADS: OnceLock<Option<u32>> = OnceLock::new();

/// How often the heap was trimmed.
static N_TRIMS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// How often the heap had been trimmed when this thread last gave back what it keeps.
    static SETTLED: Cell<u64> = const { Cell::new(0) };
}

/// Lets the heap return the pages that it keeps for later to the system, and asks all threads to
/// give back what they keep for themselves. Takes milliseconds: for after an unload, not for a
/// request.
pub fn trim_heap() {
    N_TRIMS.fetch_add(1, Ordering::Relaxed);
    settle_heap();
    release_stacks();
    #[cfg(target_env = "gnu")]
    // SAFETY: the call takes a number, and gives pages of the C library's own heap back under its
    // own locks.
    unsafe {
        libc::malloc_trim(0)
    };
}

/// Lets all threads share one heap of the C library's own, which it uses for little more than to
/// start threads. Each new one would keep some pages for that, for ever. For the start of a
/// program.
pub fn share_system_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call sets a number under a lock of its own.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1)
    };
}

/// Gives back what this thread keeps of the heap for itself, a megabyte or so, and what it does not
/// use of its stack, if it has not done so since the heap was last trimmed; with it go the pages
/// that have become free. For a thread that is about to wait: no other can do it.
pub fn settle_heap() {
    let n_trims = N_TRIMS.load(Ordering::Relaxed);
    if SETTLED.replace(n_trims) != n_trims {
        let codes = [FLUSH, PURGE_ALL].map(call);
        debug_assert_eq!(codes, [0, 0], "the heap knows what to do");
        settle_stack();
    }
}

/// Lets this thread take what it allocates from a part of the heap that only loads use. What a
/// model consists of is then not on the same pages as what stays when it goes, and its pages go
/// with it. For a thread that does nothing but load.
pub fn use_heap_of_loads() {
    let Some(part) = *LOADS.get_or_init(create) else { return };
    let code = set(USE, part);
    debug_assert_eq!(code, 0, "the heap knows its parts");
}

/// Gives something of the heap's a value; its code of what became of it.
fn set<T>(name: &CStr, mut value: T) -> i32 {
    let (old, old_len) = (ptr::null_mut(), ptr::null_mut());
    let new = (&raw mut value).cast();
    // SAFETY: the call reads a value of the length that it is told, which outlives it.
    unsafe { tikv_jemalloc_sys::mallctl(name.as_ptr(), old, old_len, new, size_of::<T>()) }
}

/// Makes a part of the heap; `None` if it cannot be.
fn create() -> Option<u32> {
    let (mut part, mut len) = (0u32, size_of::<u32>());
    let (old, new) = ((&raw mut part).cast(), ptr::null_mut());
    // SAFETY: the call writes a number of the length that it is told, and reads nothing.
    let code = unsafe { tikv_jemalloc_sys::mallctl(CREATE.as_ptr(), old, &raw mut len, new, 0) };
    (code == 0).then_some(part)
}

/// Makes the heap do something that takes and gives no value; its code of what became of it.
fn call(name: &CStr) -> i32 {
    let (old, old_len, new) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    // SAFETY: the call takes its own locks, reads nothing but the name and writes nothing.
    unsafe { tikv_jemalloc_sys::mallctl(name.as_ptr(), old, old_len, new, 0) }
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
    // Figures are brought up to date.
    let _ = set(c"epoch", 1u64);
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
    fn a_thread_that_waits_gives_back_what_it_keeps_once_the_heap_is_trimmed() {
        /// What this thread has asked for and given back since it began, what it keeps included.
        fn kept() -> u64 {
            // Freed memory that a thread keeps counts as allocated until it is flushed.
            heap_bytes().allocated_bytes
        }
        const N: usize = 200;
        let (to_main, from_thread) = std::sync::mpsc::channel();
        let (to_thread, from_main) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || {
            // As many of each size as a thread keeps at all.
            for size in (1..=64).map(|n| n * 448) {
                drop((0..N).map(|_| vec![1u8; size]).collect::<Vec<_>>());
            }
            settle_heap(); // Nobody trimmed since: it keeps what it has.
            to_main.send(()).unwrap();
            from_main.recv().unwrap();
            settle_heap();
            to_main.send(()).unwrap();
            from_main.recv().unwrap();
        });
        from_thread.recv().unwrap();
        let before = kept();
        trim_heap();
        to_thread.send(()).unwrap();
        from_thread.recv().unwrap();
        let after = kept();
        to_thread.send(()).unwrap();
        other.join().unwrap();
        assert!(after + (256 << 10) < before, "{before} bytes became {after}");
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
