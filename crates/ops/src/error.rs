//! Errors: an op could not be built, inferred or run.

use status::{Code, Status};

/// A refusal of an op. Each variant is a canonical status code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The inputs or attributes are wrong.
    #[error("{0}")]
    InvalidArgument(String),
    /// The inputs are right, but this combination is not built.
    #[error("{0}")]
    Unimplemented(String),
    /// An index is outside of what it indexes.
    #[error("{0}")]
    OutOfRange(String),
    /// Something that was named is not there.
    #[error("{0}")]
    NotFound(String),
    /// The state does not allow it, such as a variable that has no value.
    #[error("{0}")]
    FailedPrecondition(String),
    /// There is no memory for it.
    #[error("{0}")]
    ResourceExhausted(String),
    /// A file does not hold what it should.
    #[error("{0}")]
    DataLoss(String),
    /// The caller no longer wants the answer.
    #[error("the run was cancelled")]
    Cancelled,
    /// The deadline passed.
    #[error("the deadline passed while running")]
    DeadlineExceeded,
    /// We are wrong.
    #[error("{0}")]
    Internal(String),
}

/// The result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;

impl From<tensor::Error> for Error {
    fn from(error: tensor::Error) -> Self {
        match error {
            tensor::Error::Memory(_) => Self::ResourceExhausted(error.to_string()),
            tensor::Error::TooLarge { .. }
            | tensor::Error::NegativeDim { .. }
            | tensor::Error::WrongCount { .. }
            | tensor::Error::Proto { .. } => Self::InvalidArgument(error.to_string()),
        }
    }
}

impl From<device::Error> for Error {
    fn from(error: device::Error) -> Self {
        tensor::Error::from(error).into()
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

impl From<jpeg::Error> for Error {
    fn from(error: jpeg::Error) -> Self {
        match error {
            jpeg::Error::Invalid(text) => Self::InvalidArgument(text),
            jpeg::Error::Stopped => Self::Cancelled,
        }
    }
}

impl Error {
    /// The canonical code.
    pub fn code(&self) -> Code {
        match self {
            Self::InvalidArgument(_) => Code::InvalidArgument,
            Self::Unimplemented(_) => Code::Unimplemented,
            Self::OutOfRange(_) => Code::OutOfRange,
            Self::NotFound(_) => Code::NotFound,
            Self::FailedPrecondition(_) => Code::FailedPrecondition,
            Self::ResourceExhausted(_) => Code::ResourceExhausted,
            Self::DataLoss(_) => Code::DataLoss,
            Self::Cancelled => Code::Cancelled,
            Self::DeadlineExceeded => Code::DeadlineExceeded,
            Self::Internal(_) => Code::Internal,
        }
    }

    /// The same error with `context: ` before its text.
    #[must_use]
    pub fn context(self, context: &str) -> Self {
        self.map_text(|text| format!("{context}: {text}"))
    }

    /// The same error with another text.
    #[must_use]
    pub fn map_text(self, add: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::InvalidArgument(text) => Self::InvalidArgument(add(text)),
            Self::Unimplemented(text) => Self::Unimplemented(add(text)),
            Self::OutOfRange(text) => Self::OutOfRange(add(text)),
            Self::NotFound(text) => Self::NotFound(add(text)),
            Self::FailedPrecondition(text) => Self::FailedPrecondition(add(text)),
            Self::ResourceExhausted(text) => Self::ResourceExhausted(add(text)),
            Self::DataLoss(text) => Self::DataLoss(add(text)),
            Self::Internal(text) => Self::Internal(add(text)),
            Self::Cancelled | Self::DeadlineExceeded => self,
        }
    }
}

/// An `Err` of `InvalidArgument`, with a format string.
macro_rules! invalid {
    ($($arg:tt)*) => { Err($crate::error::Error::InvalidArgument(format!($($arg)*))) };
}

/// An `Err` of `Unimplemented`, with a format string.
macro_rules! unsupported {
    ($($arg:tt)*) => { Err($crate::error::Error::Unimplemented(format!($($arg)*))) };
}

pub(crate) use {invalid, unsupported};
