//! Why TensorFlow could not be used, loaded or run.

use std::path::PathBuf;

use session::Error as SessionError;

/// A failure of the engine or of a worker process.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// TensorFlow itself refused, with its code and its words.
    #[error("{text}")]
    TensorFlow {
        /// The canonical status code.
        code: i32,
        /// TensorFlow's message.
        text: String,
    },
    /// The library cannot be used.
    #[error("cannot use {}: {reason}", path.display())]
    Library {
        /// Where it is.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The system refused something that a worker needs.
    #[error("{what}: {reason}")]
    System {
        /// What was wanted.
        what: &'static str,
        /// The system's words.
        reason: String,
    },
    /// The sandbox is required, and the kernel lacks parts of it.
    #[error(
        "no worker starts: --worker_sandbox=required, but this system lacks {0}; \
         --worker_sandbox=auto starts workers with what there is"
    )]
    Unconfined(String),
    /// The shared memory is full.
    #[error("{wanted} bytes do not fit into the memory shared with a worker ({limit} bytes)")]
    Full {
        /// The bytes wanted.
        wanted: usize,
        /// The bytes there are.
        limit: usize,
    },
    /// The books of the host have no room for it.
    #[error(transparent)]
    Memory(#[from] device::Error),
    /// A message that is too long to be sent.
    #[error("a message of {0} bytes is too long")]
    TooLong(usize),
    /// A message that makes no sense.
    #[error("malformed message: {0}")]
    Malformed(String),
}

/// The result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The system's last error, while `what` was wanted.
    pub(crate) fn last(what: &'static str) -> Self {
        Self::system(what, &std::io::Error::last_os_error())
    }

    /// An error of the system, while `what` was wanted.
    pub(crate) fn system(what: &'static str, error: &std::io::Error) -> Self {
        Self::System { what, reason: error.to_string() }
    }

    /// The canonical status code.
    pub(crate) fn code(&self) -> i32 {
        match self {
            Self::TensorFlow { code, .. } => *code,
            Self::Library { .. } | Self::Unconfined(_) => 9,
            Self::Full { .. } | Self::Memory(_) => 8,
            Self::System { .. } => 14,
            Self::TooLong(_) => 3,
            Self::Malformed(_) => 13,
        }
    }
}

impl From<Error> for SessionError {
    fn from(error: Error) -> Self {
        session_error(error.code(), error.to_string())
    }
}

/// The error of a canonical code. Codes that a session does not know are internal errors.
pub(crate) fn session_error(code: i32, text: String) -> SessionError {
    match code {
        1 => SessionError::Cancelled(text),
        3 => SessionError::InvalidArgument(text),
        4 => SessionError::DeadlineExceeded(text),
        5 => SessionError::NotFound(text),
        8 => SessionError::ResourceExhausted(text),
        9 => SessionError::FailedPrecondition(text),
        11 => SessionError::OutOfRange(text),
        12 => SessionError::Unimplemented(text),
        14 => SessionError::Unavailable(text),
        15 => SessionError::DataLoss(text),
        _ => SessionError::Internal(text),
    }
}
