//! The tests' control of the library, and its counters.

use crate::state::{STATE, State};

/// A GPU as a test wants it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gpu {
    /// All of its memory.
    pub bytes: u64,
    /// The bytes of the GPU that other processes hold.
    pub taken_bytes: u64,
    /// The bytes of the GPU that each context takes.
    pub context_bytes: u64,
    /// The granule of memory and addresses.
    pub granule_bytes: u64,
    /// The major number of its compute capability.
    pub major: i32,
    /// The minor one.
    pub minor: i32,
    /// 1 if addresses can be reserved apart from memory, else 0.
    pub has_virtual_memory: i32,
}

impl Gpu {
    /// A GPU of compute capability 8.0 with so many bytes, all of them free; contexts are for free.
    pub fn new(bytes: u64) -> Gpu {
        Gpu {
            bytes,
            taken_bytes: 0,
            context_bytes: 0,
            // As on every NVIDIA GPU so far.
            granule_bytes: 2 << 20,
            major: 8,
            minor: 0,
            has_virtual_memory: 1,
        }
    }
}

/// The counts at a moment; a program that has given back everything leaves only calls.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// The number of calls.
    pub n_calls: u64,
    /// The number of times that contexts are retained, and the number that were made.
    pub n_contexts: u64,
    /// Ranges of addresses that are reserved.
    pub n_ranges: u64,
    /// Pieces of memory that are held by a handle.
    pub n_handles: u64,
    /// Pieces of memory that are behind an address.
    pub n_mapped: u64,
    /// The bytes of both, and of contexts.
    pub used_bytes: u64,
}

impl Counters {
    /// Returns whether nothing is held.
    pub fn is_empty(&self) -> bool {
        *self == Counters { n_calls: self.n_calls, ..Counters::default() }
    }
}

/// The ways into the library that CUDA's own has not.
#[repr(C)]
pub(crate) struct Control {
    pub(crate) reset: unsafe extern "C" fn(*const Gpu, usize),
    pub(crate) fail_call: extern "C" fn(u64, i32),
    pub(crate) counters: extern "C" fn() -> Counters,
}

/// The symbol that [`Fake`](crate::Fake) looks for in the library that it loaded.
#[unsafe(no_mangle)]
pub(crate) static FAKECUDA_CONTROL: Control = Control { reset, fail_call, counters };

/// Forgets what was, and begins anew with GPUs like these.
///
/// # Safety
/// `gpus` is a pointer to `n` of them.
unsafe extern "C" fn reset(gpus: *const Gpu, n: usize) {
    let gpus = match n {
        0 => &[][..],
        // SAFETY: the caller's promise; they are only read before this returns.
        n => unsafe { std::slice::from_raw_parts(gpus, n) },
    };
    STATE.lock().replace(gpus);
}

/// Lets the `n`-th call from now on answer with this code, the next one being 0.
extern "C" fn fail_call(n: u64, code: i32) {
    let mut state = STATE.lock();
    let at = state.n_calls.saturating_add(n);
    state.failure = Some((at, code));
}

extern "C" fn counters() -> Counters {
    State::counters(&STATE.lock())
}
