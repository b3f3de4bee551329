//! The error of an image that cannot be decoded.

/// A refusal of a file that is no JPEG, is cut off, is too large or is of a kind that libjpeg
/// refuses, too.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(pub(crate) String);

/// The result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;

/// An `Err` with a format string.
macro_rules! invalid {
    ($($arg:tt)*) => { Err($crate::error::Error(format!($($arg)*))) };
}

pub(crate) use invalid;
