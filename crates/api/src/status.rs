//! `Status`: a canonical code and a message, as clients see them; and the one map from our errors
//! to the codes.

use std::time::Duration;

use lifecycle::Code;

/// The longest message that gRPC carries, in bytes (`grpc_status_util.cc`).
const GRPC_MESSAGE_MAX: usize = 1024;

/// What a client is told when a call fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The canonical code.
    pub code: Code,
    /// The message.
    pub message: String,
    /// When to try again, if that is worth it.
    pub retry_after: Option<Duration>,
}

impl Status {
    /// A status of any code.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retry_after: None }
    }

    /// The request is wrong.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    /// The status as gRPC sends it: long messages are cut.
    pub fn to_grpc(&self) -> tonic::Status {
        let code = tonic::Code::from_i32(self.code.number());
        let mut status = if self.message.len() <= GRPC_MESSAGE_MAX {
            tonic::Status::new(code, &self.message)
        } else {
            let cut = self.message.floor_char_boundary(GRPC_MESSAGE_MAX);
            tonic::Status::new(code, format!("{}...TRUNCATED", &self.message[..cut]))
        };
        if let Some(after) = self.retry_after {
            let millis = after.as_millis().max(1).to_string();
            let millis = millis.parse().expect("digits are a header");
            // What clients with a retry policy wait for.
            status.metadata_mut().insert("grpc-retry-pushback-ms", millis);
        }
        status
    }

    /// The whole seconds after which HTTP clients may try again.
    pub(crate) fn retry_after_seconds(&self) -> Option<u64> {
        self.retry_after.map(|after| after.as_secs() + u64::from(after.subsec_nanos() > 0))
    }

    /// The code of an HTTP answer (`http_server.cc`).
    pub fn to_http(&self) -> u16 {
        match self.code {
            Code::Cancelled => 499,
            Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => 400,
            Code::DeadlineExceeded => 504,
            Code::NotFound => 404,
            Code::AlreadyExists | Code::Aborted => 409,
            Code::PermissionDenied => 403,
            Code::ResourceExhausted => 429,
            Code::Unimplemented => 501,
            Code::Unavailable => 503,
            Code::Unauthenticated => 401,
            Code::Unknown | Code::Internal | Code::DataLoss => 500,
        }
    }
}

impl From<session::Error> for Status {
    fn from(error: session::Error) -> Self {
        use session::Error as E;
        let code = match &error {
            E::InvalidArgument(_) => Code::InvalidArgument,
            E::NotFound(_) => Code::NotFound,
            E::FailedPrecondition(_) => Code::FailedPrecondition,
            E::OutOfRange(_) => Code::OutOfRange,
            E::Unimplemented(_) => Code::Unimplemented,
            E::ResourceExhausted(_) => Code::ResourceExhausted,
            E::DataLoss(_) => Code::DataLoss,
            E::DeadlineExceeded(_) => Code::DeadlineExceeded,
            E::Cancelled(_) => Code::Cancelled,
            E::Unavailable(_) | E::Busy { .. } => Code::Unavailable,
            E::Internal(_) => Code::Internal,
        };
        let retry_after =
            if let E::Busy { retry_after, .. } = &error { *retry_after } else { None };
        Self { retry_after, ..Self::new(code, error.to_string()) }
    }
}

impl From<lifecycle::Error> for Status {
    fn from(error: lifecycle::Error) -> Self {
        // One that is being loaded right now has no time to wait for.
        let retry_after = error.retry_in().filter(|wait| !wait.is_zero());
        Self { retry_after, ..Self::new(error.code(), error.to_string()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_server_says_when_to_try_again() {
        let retry_after = Some(Duration::from_millis(30));
        let status = Status::from(session::Error::Busy { text: "full".to_owned(), retry_after });
        assert_eq!((status.to_http(), status.retry_after_seconds()), (503, Some(1)));
        let grpc = status.to_grpc();
        assert_eq!(grpc.metadata().get("grpc-retry-pushback-ms").unwrap(), "30");
    }

    #[test]
    fn a_model_that_is_loaded_again_says_when() {
        let status = |retry_in| {
            let error = lifecycle::LoadError::new(Code::Unavailable, "disk");
            let failure = Some((2, error));
            let why = Box::new(lifecycle::Absence { failure, retry_in });
            let target = lifecycle::Target::latest("m");
            Status::from(lifecycle::Error::NotFound { target, why })
        };
        let later = status(Some(Duration::from_millis(3500)));
        assert_eq!((later.to_http(), later.retry_after_seconds()), (404, Some(4)));
        assert!(later.message.ends_with("is tried again in 4 s: UNAVAILABLE: disk"));
        assert_eq!(status(None).retry_after_seconds(), None);
        assert_eq!(status(Some(Duration::ZERO)).retry_after_seconds(), None);
    }

    #[test]
    fn grpc_cuts_long_messages_at_a_character() {
        let check = |message: &str, expected: &str| {
            assert_eq!(Status::invalid(message).to_grpc().message(), expected);
        };
        check("short", "short");
        check(&"a".repeat(1024), &"a".repeat(1024));
        check(&"a".repeat(1025), &format!("{}...TRUNCATED", "a".repeat(1024)));
        let umlauts = "ä".repeat(513);
        check(&format!("a{umlauts}"), &format!("a{}...TRUNCATED", "ä".repeat(511)));
    }
}
