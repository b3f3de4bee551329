//! What can go wrong when memory is asked for.

/// A refusal of this crate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The host or a device has no room for `bytes` more.
    #[error("out of memory: {bytes} bytes were asked for")]
    OutOfMemory {
        /// What was asked for.
        bytes: usize,
    },
}

/// The result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;
