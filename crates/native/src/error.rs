//! From the executor's errors to those of a session.

use proto::error::Code;
use session::Error;

/// What a failed run or build is to a client.
pub(crate) fn session_error(error: graph::Error) -> Error {
    let text = error.to_string();
    match error {
        graph::Error::MissingOps(_) => Error::Unimplemented(text),
        graph::Error::NotFound { .. } | graph::Error::Malformed(_) | graph::Error::BadInput(_) => {
            Error::InvalidArgument(text)
        }
        graph::Error::Memory(_) => Error::ResourceExhausted(text),
        graph::Error::Node { error, .. } | graph::Error::Stopped(error) => op_error(&error, text),
    }
}

pub(crate) fn op_error(error: &ops::Error, text: String) -> Error {
    match error {
        ops::Error::InvalidArgument(_) => Error::InvalidArgument(text),
        ops::Error::Unimplemented(_) => Error::Unimplemented(text),
        ops::Error::OutOfRange(_) => Error::OutOfRange(text),
        ops::Error::NotFound(_) => Error::NotFound(text),
        ops::Error::FailedPrecondition(_) => Error::FailedPrecondition(text),
        ops::Error::ResourceExhausted(_) => Error::ResourceExhausted(text),
        ops::Error::DataLoss(_) => Error::DataLoss(text),
        ops::Error::Cancelled => Error::Cancelled(text),
        ops::Error::DeadlineExceeded => Error::DeadlineExceeded(text),
        ops::Error::Internal(_) => Error::Internal(text),
    }
}

/// What a SavedModel that cannot be read is to a client.
pub(crate) fn read_error(error: &savedmodel::Error) -> Error {
    let text = error.to_string();
    match error.code() {
        Code::NotFound => Error::NotFound(text),
        Code::Unimplemented => Error::Unimplemented(text),
        Code::DataLoss => Error::DataLoss(text),
        Code::FailedPrecondition | Code::PermissionDenied => Error::FailedPrecondition(text),
        Code::ResourceExhausted => Error::ResourceExhausted(text),
        Code::Unavailable => Error::Unavailable(text),
        _ => Error::InvalidArgument(text),
    }
}
