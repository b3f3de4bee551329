//! Errors: TensorFlow could not be used, loaded or run.

use std::path::PathBuf;

use status::{Code, Status};

use crate::wire::Failure;

/// A failure of the engine or of a worker process.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// TensorFlow itself refused, with its code and its words.
    #[error("{text}")]
    TensorFlow {
        /// The canonical status code.
        code: Code,
        /// TensorFlow's message.
        text: String,
    },
    /// The library cannot be used.
    #[error("cannot use {}: {reason}", path.display())]
    Library {
        /// The path of the library.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The system refused something that a worker needs.
    #[error("{what}: {reason}")]
    System {
        /// The action that failed.
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

    /// The canonical code.
    pub(crate) fn code(&self) -> Code {
        match self {
            Self::TensorFlow { code, .. } => *code,
            Self::Library { .. } | Self::Unconfined(_) => Code::FailedPrecondition,
            Self::Full { .. } | Self::Memory(_) => Code::ResourceExhausted,
            Self::System { .. } => Code::Unavailable,
            Self::TooLong(_) => Code::InvalidArgument,
            Self::Malformed(_) => Code::Internal,
        }
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        Self::new(told(error.code()), error.to_string())
    }
}

/// The status of a SavedModel that cannot be read.
pub(crate) fn read_error(error: &savedmodel::Error) -> Status {
    Status::new(told(error.code()), error.to_string())
}

/// The status of a failure that a worker reports.
pub(crate) fn worker_status(failure: Failure) -> Status {
    Status::new(Code::from_number(failure.code).map_or(Code::Internal, told), failure.text)
}

/// The code that clients are told. Those that say something of the client's rights, or that ask it
/// to try again, would be wrong from inside of a model.
fn told(code: Code) -> Code {
    match code {
        Code::Unknown
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::Aborted
        | Code::Unauthenticated => Code::Internal,
        Code::Cancelled
        | Code::InvalidArgument
        | Code::DeadlineExceeded
        | Code::NotFound
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss => code,
    }
}
