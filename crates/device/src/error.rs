//! Errors of requests for memory.

use status::Code;

/// A refusal of this crate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The host or a device has no room for `bytes` more.
    #[error("out of memory: {bytes} bytes were asked for")]
    OutOfMemory {
        /// The bytes asked for.
        bytes: usize,
    },
    /// A limit, or the device itself, leaves too little room.
    #[error(
        "{device} has no room for {needed_bytes} bytes: {free_bytes} of {limit_bytes} are free"
    )]
    Exhausted {
        /// The device, logical device or model whose limit was met.
        device: String,
        /// The bytes asked for.
        needed_bytes: u64,
        /// The bytes that could still have been given.
        free_bytes: u64,
        /// The limit that was met.
        limit_bytes: u64,
    },
    /// The same, with those who hold the most.
    #[error("{error}; held by {holders}")]
    Full {
        /// The refusal.
        error: Box<Error>,
        /// The largest holders, for people.
        holders: String,
    },
    /// One piece was asked for that is larger than the device gives in one.
    #[error("{device} gives at most {largest_bytes} bytes in one piece, not {needed_bytes}")]
    TooLarge {
        /// The device asked.
        device: String,
        /// The bytes asked for.
        needed_bytes: u64,
        /// The largest piece it gives.
        largest_bytes: u64,
    },
    /// The device refused a call for a reason of its own.
    #[error("{call} failed on {device}: {reason}")]
    Driver {
        /// The device asked.
        device: String,
        /// The call that failed, as in `commit`.
        call: &'static str,
        /// The reason that the device gave.
        reason: String,
    },
    /// The devices cannot be configured as asked; TensorFlow's text where it has one.
    #[error("{message}")]
    Config {
        /// The code, as TensorFlow gives it.
        code: Code,
        /// The description of the fault.
        message: String,
    },
}

/// The result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;
