//! The heap of the process: jemalloc, which serves many threads without their waiting for each
//! other, and can be told to give back what it keeps. A program chooses its heap, so the one that
//! serves says that it is this one; in others what is here does nothing.

mod stack;

use std::cell::Cell;
use std::ffi::CStr;
use std::num::NonZero;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use stack::release_stacks;

pub use stack::settle_stack;
pub use tikv_jemallocator::Jemalloc as Heap;

#[cfg(test)]
#[global_allocator]
static HEAP: Heap = Heap;

/// The heap reads this when it starts. A thread looks through what it keeps for itself after so
/// many bytes, which small requests would reach every few times; threads that wait give it back
/// anyway ([`settle`]). It keeps few pieces of each size, and pages for pieces of one size are
/// taken three at a time, not up to seven: one piece that stays holds them all.
#[unsafe(export_name = "_rjem_malloc_conf")]
static SETTINGS: &[u8; 99] = b"tcache_gc_incr_bytes:1048576,\
    tcache_nslots_small_max:20,tcache_nslots_large:4,slab_sizes:65-2048:3\0";

/// The name of a call that returns the free pages of all arenas: 4096 stands for all of them.
const PURGE_ALL: &CStr = c"arena.4096.purge";

/// The name of a call that returns what the calling thread keeps for itself.
const FLUSH: &CStr = c"thread.tcache.flush";

/// The names of a call that makes a part of the heap, and of one that lets this thread use it.
const CREATE: &CStr = c"arenas.create";
const USE: &CStr = c"thread.arena";

/// The name of whether this thread keeps anything for itself.
const KEEP: &CStr = c"thread.tcache.enabled";

/// The part of the heap that loads use, if there is one.
static LOADS: OnceLock<Option<u32>> = OnceLock::new();

/// The number of threads that share the parts of the heap.
static N_SHARING: AtomicUsize = AtomicUsize::new(0);

/// The number of times that the heap was trimmed.
static N_TRIMS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The number of trims of the heap when this thread last gave back its cache.
    static SETTLED: Cell<u64> = const { Cell::new(0) };
}

/// Lets the heap return the pages that it keeps for later to the system, and asks all threads to
/// give back what they keep for themselves. Takes milliseconds: for after an unload, not for a
/// request.
pub fn trim() {
    N_TRIMS.fetch_add(1, Ordering::Relaxed);
    settle();
    release_stacks();
    #[cfg(target_env = "gnu")]
    // SAFETY: the call takes a number, and gives pages of the C library's own heap back under its
    // own locks.
    unsafe {
        libc::malloc_trim(0)
    };
}

/// Lets the heap return the pages that nobody uses to the system. For before something large is
/// taken: what was freed a moment ago would be held beside it.
pub fn purge() {
    let code = call(PURGE_ALL);
    debug_assert_eq!(code, 0, "the heap knows what to do");
}

/// The bytes that the heap would return to the system if it were told to purge. Takes some tens of
/// microseconds: the heap brings its figures up to date first.
pub fn purgeable_bytes() -> u64 {
    let _ = set(c"epoch", 1u64);
    let n_pages = figure(c"stats.arenas.4096.pdirty") + figure(c"stats.arenas.4096.pmuzzy");
    (n_pages * figure(c"arenas.page")) as u64
}

/// Lets all threads share one heap of the C library's own, which it uses for little more than to
/// start threads. Each new one would keep some pages for that, for ever. For the start of a
/// program.
pub fn share_system() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call sets a number under a lock of its own.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1)
    };
}

/// Gives back what this thread keeps of the heap for itself, a megabyte or so, and what it does not
/// use of its stack, if it has not done so since the heap was last trimmed; with it go the pages
/// that have become free. For a thread that is about to wait: no other can do it.
pub fn settle() {
    let n_trims = N_TRIMS.load(Ordering::Relaxed);
    if SETTLED.replace(n_trims) != n_trims {
        // A thread that keeps nothing for itself cannot give it back, which is an error there.
        let _ = call(FLUSH);
        let code = call(PURGE_ALL);
        debug_assert_eq!(code, 0, "the heap knows what to do");
        settle_stack();
    }
}

/// Lets this thread share a part of the heap with others. There is one for each CPU, since no more
/// threads run at once, and each further one would have pages of its own for the little that stays.
/// For the start of a thread.
pub fn share() {
    let n_parts = std::thread::available_parallelism().map_or(1, NonZero::get);
    let part = N_SHARING.fetch_add(1, Ordering::Relaxed) % n_parts;
    // With fewer parts than that, which somebody must have set, the heap chooses one itself.
    let _ = set(USE, u32::try_from(part).unwrap_or(0));
}

/// Lets this thread take what it allocates from a part of the heap that only loads use, and keep
/// nothing for itself. What a model consists of is then not on the same pages as what stays when it
/// goes, and its pages go with it. For a thread that does nothing but load.
pub fn use_for_loads() {
    let Some(part) = *LOADS.get_or_init(create) else { return };
    let codes = [set(USE, part), set(KEEP, false)];
    debug_assert_eq!(codes, [0, 0], "the heap knows its parts");
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
    get(CREATE)
}

/// Makes the heap do something that takes and gives no value; its code of what became of it.
fn call(name: &CStr) -> i32 {
    let (old, old_len, new) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    // SAFETY: the call takes its own locks, reads nothing but the name and writes nothing.
    unsafe { tikv_jemalloc_sys::mallctl(name.as_ptr(), old, old_len, new, 0) }
}

/// The heap's statistics of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes {
    /// The bytes that the program has asked for and not given back.
    pub allocated_bytes: u64,
    /// The bytes that the heap has in memory for the program, its cache for later included.
    pub resident_bytes: u64,
}

/// Reads the heap's statistics of itself.
pub fn bytes() -> Bytes {
    // Figures are brought up to date.
    let _ = set(c"epoch", 1u64);
    let (allocated, resident) = (figure(c"stats.allocated"), figure(c"stats.resident"));
    Bytes { allocated_bytes: allocated as u64, resident_bytes: resident as u64 }
}

/// A figure of the heap's; 0 if it does not tell.
fn figure(name: &CStr) -> usize {
    get(name).unwrap_or(0)
}

/// A number that the heap tells, if it does.
fn get<T: Default>(name: &CStr) -> Option<T> {
    let (mut value, mut len) = (T::default(), size_of::<T>());
    let (old, new) = ((&raw mut value).cast(), ptr::null_mut());
    // SAFETY: the call writes a number of the length that it is told, and reads nothing.
    let code = unsafe { tikv_jemalloc_sys::mallctl(name.as_ptr(), old, &raw mut len, new, 0) };
    (code == 0).then_some(value)
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::*;

    /// The bytes of this process that the system has in memory.
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
        let before = bytes();
        let all = vec![1u8; 64 << 20];
        let with = bytes();
        assert!(with.allocated_bytes >= before.allocated_bytes + BYTES, "{before:?} {with:?}");
        assert!(with.resident_bytes >= BYTES, "{with:?}");
        drop(all);
        let after = bytes();
        assert!(after.allocated_bytes < with.allocated_bytes - BYTES / 2, "{with:?} {after:?}");
    }

    #[test]
    fn what_was_freed_can_be_purged_and_is_then_gone() {
        drop(fill(64 << 20));
        let before = purgeable_bytes();
        purge();
        let after = purgeable_bytes();
        assert!(before >= 48 << 20 && after < 1 << 20, "{before} bytes became {after}");
    }

    #[test]
    fn a_thread_that_waits_gives_back_what_it_keeps_once_the_heap_is_trimmed() {
        /// The bytes that this thread has asked for less those given back since it began; its cache
        /// counts as asked for.
        fn kept() -> u64 {
            // Freed memory that a thread keeps counts as allocated until it is flushed.
            bytes().allocated_bytes
        }
        const N: usize = 200;
        let (to_main, from_thread) = std::sync::mpsc::channel();
        let (to_thread, from_main) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || {
            // As many of each size as a thread keeps at all.
            for size in (1..=64).map(|n| n * 448) {
                drop((0..N).map(|_| vec![1u8; size]).collect::<Vec<_>>());
            }
            settle(); // Nobody trimmed since: it keeps what it has.
            to_main.send(()).unwrap();
            from_main.recv().unwrap();
            settle();
            to_main.send(()).unwrap();
            from_main.recv().unwrap();
        });
        from_thread.recv().unwrap();
        let before = kept();
        trim();
        to_thread.send(()).unwrap();
        from_thread.recv().unwrap();
        let after = kept();
        to_thread.send(()).unwrap();
        other.join().unwrap();
        assert!(after + (256 << 10) < before, "{before} bytes became {after}");
    }

    #[test]
    fn a_thread_that_loads_keeps_nothing_for_itself() {
        let kept = |prepare: fn()| {
            let (to_main, from_thread) = std::sync::mpsc::channel();
            let (to_thread, from_main) = std::sync::mpsc::channel::<()>();
            let before = bytes().allocated_bytes;
            let other = std::thread::spawn(move || {
                prepare();
                for size in (1..=64).map(|n| n * 448) {
                    drop((0..64).map(|_| vec![1u8; size]).collect::<Vec<_>>());
                }
                to_main.send(()).unwrap();
                from_main.recv().unwrap();
            });
            from_thread.recv().unwrap();
            let kept = bytes().allocated_bytes.saturating_sub(before);
            to_thread.send(()).unwrap();
            other.join().unwrap();
            kept
        };
        let (usually, loading) = (kept(|| {}), kept(use_for_loads));
        assert!(4 * loading < usually, "{loading} bytes, and {usually} bytes otherwise");
    }

    #[test]
    fn threads_share_a_part_of_the_heap_for_each_cpu() {
        let n_cpus = std::thread::available_parallelism().unwrap().get();
        let part = || {
            share();
            get::<u32>(USE).unwrap()
        };
        let threads: Vec<_> = (0..3 * n_cpus).map(|_| std::thread::spawn(part)).collect();
        let parts = threads.into_iter().map(|thread| thread.join().unwrap());
        assert_eq!(parts.collect::<std::collections::BTreeSet<_>>().len(), n_cpus);
    }

    #[test]
    fn the_heap_has_read_its_settings() {
        assert_eq!(get::<u32>(c"opt.tcache_nslots_small_max"), Some(20));
        assert_eq!(get::<u32>(c"opt.tcache_nslots_large"), Some(4));
        assert_eq!(get::<usize>(c"opt.tcache_gc_incr_bytes"), Some(1 << 20));
        // Pieces of 448 bytes would be on seven pages.
        let classes = (0..get::<u32>(c"arenas.nbins").unwrap()).map(|number| {
            let name = |what: &str| CString::new(format!("arenas.bin.{number}.{what}")).unwrap();
            (get::<usize>(&name("size")).unwrap(), get::<usize>(&name("slab_size")).unwrap())
        });
        assert!(classes.into_iter().any(|class| class == (448, 3 << 12)));
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
        trim();
        let kept = resident_bytes().saturating_sub(before);
        assert!(kept < BYTES / 5, "{kept} bytes of {} are still there", 2 * BYTES);
        assert!(mine.len() + theirs.len() > 50);
    }
}
