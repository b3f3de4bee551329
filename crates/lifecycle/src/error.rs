//! Errors of models and versions, with the texts that TensorFlow Serving's clients know.

use std::fmt;
use std::time::Duration;

use status::{Code, Status};

use crate::models::Target;

/// The reason that a version could not be loaded, or a model's versions not be listed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {status}", status.code.name())]
pub struct LoadError {
    /// The code and the text, for `GetModelStatus`.
    pub status: Status,
    /// `true` if the same files fail in the same way at every attempt.
    pub is_final: bool,
}

impl LoadError {
    /// An error with this code and text. It is final if the code says that the files are wrong.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Status::new(code, message).into()
    }

    /// The same error, known to come at every attempt.
    #[must_use]
    pub fn finally(self) -> Self {
        LoadError { is_final: true, ..self }
    }
}

impl From<Status> for LoadError {
    fn from(status: Status) -> Self {
        let is_final = match status.code {
            Code::InvalidArgument | Code::OutOfRange | Code::Unimplemented | Code::DataLoss => true,
            Code::Cancelled
            | Code::Unknown
            | Code::DeadlineExceeded
            | Code::NotFound
            | Code::AlreadyExists
            | Code::PermissionDenied
            | Code::ResourceExhausted
            | Code::FailedPrecondition
            | Code::Aborted
            | Code::Internal
            | Code::Unavailable
            | Code::Unauthenticated => false,
        };
        LoadError { status, is_final }
    }
}

/// The reasons that a model has no available version, as far as loads failed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Absence {
    /// The version that failed last, and how.
    pub failure: Option<(i64, LoadError)>,
    /// The time until that version is tried again; zero while it is.
    pub retry_in: Option<Duration>,
}

impl fmt::Display for Absence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.failure, self.retry_in) {
            (Some((version, error)), None) => {
                write!(f, "; version {version} failed to load: {error}")
            }
            (Some((version, error)), Some(Duration::ZERO)) => {
                write!(f, "; version {version} failed to load and is being tried again: {error}")
            }
            (Some((version, error)), Some(wait)) => {
                let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
                write!(
                    f,
                    "; version {version} failed to load and is tried again in {seconds} s: {error}"
                )
            }
            (None, _) => Ok(()),
        }
    }
}

/// The reason that a request for a model or a change of the configuration was refused.
///
/// Texts are those of TensorFlow Serving's `server_core.cc`, `manager.cc` and
/// `get_model_status_impl.cc`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The request names no model.
    #[error("ModelSpec has no name specified.")]
    NoName,
    /// No available version answers to the target.
    #[error("Servable not found for request: {target}{why}")]
    NotFound {
        /// The target.
        target: Target,
        /// The known failures of the model, behind TensorFlow Serving's text.
        why: Box<Absence>,
    },
    /// The model has no such label.
    #[error("Unrecognized servable version label: {0}")]
    UnknownLabel(String),
    /// No configuration was applied yet, so that no label has a meaning.
    #[error("Model labels does not init yet.{0}")]
    LabelsNotReady(String),
    /// The model is not known, or never had a version.
    #[error("Could not find any versions of model {0}")]
    NoVersions(String),
    /// The model never had this version.
    #[error("Could not find version {version} of model {model}")]
    NoVersion {
        /// The model.
        model: String,
        /// The version.
        version: i64,
    },
    /// Two models of one name.
    #[error("Illegal to list model {0} multiple times in config list")]
    DuplicateModel(String),
    /// A model's path depends on where the server was started.
    #[error("Expected model {model} to have an absolute path or URI; got base_path()={base_path}")]
    RelativePath {
        /// The model.
        model: String,
        /// Its path.
        base_path: String,
    },
    /// A model of this name is there, of another platform.
    #[error(
        "Illegal to change a model's platform. For model {model} platform was {old} and new \
         platform requested is {new}"
    )]
    PlatformChange {
        /// The model.
        model: String,
        /// Its platform.
        old: String,
        /// The platform asked for.
        new: String,
    },
    /// A label points to a version that is not available.
    #[error(
        "Request to assign label to version {version} of model {model}, which is not currently \
         available for inference"
    )]
    LabelUnavailable {
        /// The model.
        model: String,
        /// The version.
        version: i64,
    },
    /// The configuration was applied, but some new models have no available version.
    #[error("{0}")]
    Unavailable(Unavailable),
    /// The server is shutting down.
    #[error("the server is shutting down")]
    Stopping,
}

impl Error {
    /// The time until the version that was asked for is loaded again, if it is.
    pub fn retry_in(&self) -> Option<Duration> {
        if let Error::NotFound { why, .. } = self { why.retry_in } else { None }
    }

    /// The canonical code that clients get.
    pub fn code(&self) -> Code {
        match self {
            Error::NoName
            | Error::UnknownLabel(_)
            | Error::DuplicateModel(_)
            | Error::RelativePath { .. }
            | Error::PlatformChange { .. } => Code::InvalidArgument,
            Error::NotFound { .. } | Error::NoVersions(_) | Error::NoVersion { .. } => {
                Code::NotFound
            }
            Error::LabelsNotReady(_) | Error::Stopping => Code::Unavailable,
            Error::LabelUnavailable { .. } => Code::FailedPrecondition,
            Error::Unavailable(_) => Code::Unknown,
        }
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        // One that is being loaded right now has no time to wait for.
        let retry_after = error.retry_in().filter(|wait| !wait.is_zero());
        Self::new(error.code(), error.to_string()).with_retry_after(retry_after)
    }
}

/// The new models of a configuration that did not become available.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unavailable {
    /// `true` if it was the first configuration: the text is another one then.
    pub is_first: bool,
    /// Model, version if one was found, and why.
    pub failures: Vec<(String, Option<i64>, LoadError)>,
}

impl Unavailable {
    /// The code for a caller who asked for these models and no others: what to do about them.
    /// TensorFlow Serving says `UNKNOWN` whatever the reason is.
    pub fn cause(&self) -> Code {
        let codes = self.failures.iter().map(|(_, _, error)| error.status.code);
        let causes = codes.map(|code| match code {
            Code::ResourceExhausted | Code::Unavailable | Code::DeadlineExceeded => code,
            Code::Unknown | Code::Internal => Code::Internal,
            Code::Cancelled
            | Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::PermissionDenied
            | Code::FailedPrecondition
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unimplemented
            | Code::DataLoss
            | Code::Unauthenticated => Code::FailedPrecondition,
        });
        causes.reduce(|first, _| first).unwrap_or(Code::Unknown)
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.is_first { "servable(s)" } else { "model(s)" };
        write!(f, "{} {what} did not become available: {{", self.failures.len())?;
        for (model, version, error) in &self.failures {
            match version {
                Some(version) => write!(f, "{{{{name: {model} version: {version}}}")?,
                None => write!(f, "{{{{name: {model}}}")?,
            }
            write!(f, " due to error: {error}}}, ")?;
        }
        f.write_str("}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_that_is_loaded_again_says_when() {
        let status = |retry_in| {
            let error = LoadError::new(Code::Unavailable, "disk");
            let why = Box::new(Absence { failure: Some((2, error)), retry_in });
            Status::from(Error::NotFound { target: Target::latest("m"), why })
        };
        let later = status(Some(Duration::from_millis(3500)));
        assert_eq!((later.code, later.retry_after_seconds()), (Code::NotFound, Some(4)));
        assert!(later.message.ends_with("is tried again in 4 s: UNAVAILABLE: disk"));
        assert_eq!(status(None).retry_after, None);
        assert_eq!(status(Some(Duration::ZERO)).retry_after, None);
    }

    #[test]
    fn models_that_did_not_come_are_named_as_tensorflow_serving_does() {
        let error = LoadError::new(Code::NotFound, "no file");
        let unavailable = |is_first, version| {
            let failures = vec![("m".to_owned(), version, error.clone())];
            Error::Unavailable(Unavailable { is_first, failures }).to_string()
        };
        assert_eq!(
            unavailable(true, Some(3)),
            "1 servable(s) did not become available: \
             {{{name: m version: 3} due to error: NOT_FOUND: no file}, }"
        );
        assert_eq!(
            unavailable(false, None),
            "1 model(s) did not become available: {{{name: m} due to error: NOT_FOUND: no file}, }"
        );
    }
}
