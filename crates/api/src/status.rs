//! `Status`: a canonical code and a message, as clients see them; and the one map from our errors
//! to the codes.

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
}

impl Status {
    /// A status of any code.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// The request is wrong.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    /// The status as gRPC sends it: long messages are cut.
    pub fn to_grpc(&self) -> tonic::Status {
        let code = tonic::Code::from_i32(self.code.number());
        if self.message.len() <= GRPC_MESSAGE_MAX {
            return tonic::Status::new(code, &self.message);
        }
        let cut = self.message.floor_char_boundary(GRPC_MESSAGE_MAX);
        tonic::Status::new(code, format!("{}...TRUNCATED", &self.message[..cut]))
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
        Self::new(code, error.to_string())
    }
}

impl From<lifecycle::Error> for Status {
    fn from(error: lifecycle::Error) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
