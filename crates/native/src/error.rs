//! From the failures of reading a model to a status.

use status::{Code, Status};

/// The status of a SavedModel that cannot be read. A file that the server may not read is no right
/// that a client lacks.
pub(crate) fn read_error(error: &savedmodel::Error) -> Status {
    let is_denied = error.code() == Code::PermissionDenied;
    let code = if is_denied { Code::FailedPrecondition } else { error.code() };
    Status::new(code, error.to_string())
}
