//! The error of an image that cannot be decoded.

/// The reason for which there are no pixels.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The file is no JPEG, is cut off, is too large or is of a kind that libjpeg refuses, too.
    #[error("{0}")]
    Invalid(String),
    /// The caller said that nobody needs the pixels any more.
    #[error("decoding was stopped")]
    Stopped,
}

/// The result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;

/// An `Err` with a format string.
macro_rules! invalid {
    ($($arg:tt)*) => { Err($crate::error::Error::Invalid(format!($($arg)*))) };
}

pub(crate) use invalid;

/// Asks the caller, before so many samples are worked on, whether to go on.
pub(crate) fn ask(go_on: &mut dyn FnMut(usize) -> bool, n_samples: usize) -> Result<()> {
    if go_on(n_samples) { Ok(()) } else { Err(Error::Stopped) }
}
