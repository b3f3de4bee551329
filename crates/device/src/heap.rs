//! The heap of the process.

/// Lets the heap return the pages that it keeps for later to the system, as far as it knows how.
/// Takes milliseconds: for after an unload, not for a request.
pub fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: glibc takes its own locks; nothing that is in use moves.
    unsafe {
        libc::malloc_trim(0);
    }
}
