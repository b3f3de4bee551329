//! Why a run failed. Engines turn their own errors into this one, so that one map leads to status
//! codes.

use std::time::Duration;

/// A failed run or load. Each variant is a canonical status code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the names are those of the canonical codes")]
pub enum Error {
    #[error("{0}")]
    InvalidArgument(String),
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    FailedPrecondition(String),
    #[error("{0}")]
    OutOfRange(String),
    #[error("{0}")]
    Unimplemented(String),
    #[error("{0}")]
    ResourceExhausted(String),
    #[error("{0}")]
    DataLoss(String),
    #[error("{0}")]
    DeadlineExceeded(String),
    #[error("{0}")]
    Cancelled(String),
    #[error("{0}")]
    Unavailable(String),
    /// Unavailable too, but not for long.
    #[error("{text}")]
    Busy { text: String, retry_after: Option<Duration> },
    #[error("{0}")]
    Internal(String),
}

/// The result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;
