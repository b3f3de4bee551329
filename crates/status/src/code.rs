//! The canonical codes.

/// The canonical codes, as in `google/rpc/code.proto`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum Code {
    /// The caller, or whoever un-aspired the version, gave up.
    Cancelled = 1,
    /// Anything that has no code of its own.
    Unknown = 2,
    /// The request or the file is wrong in itself.
    InvalidArgument = 3,
    /// It took too long.
    DeadlineExceeded = 4,
    /// There is no such thing.
    NotFound = 5,
    /// There is such a thing already.
    AlreadyExists = 6,
    /// The caller may not.
    PermissionDenied = 7,
    /// A limit is reached.
    ResourceExhausted = 8,
    /// Not in this state.
    FailedPrecondition = 9,
    /// Someone else was faster.
    Aborted = 10,
    /// Past the end.
    OutOfRange = 11,
    /// Not built in.
    Unimplemented = 12,
    /// A bug.
    Internal = 13,
    /// Not now; trying again may help.
    Unavailable = 14,
    /// The file is damaged.
    DataLoss = 15,
    /// The caller is not known.
    Unauthenticated = 16,
}

impl Code {
    /// All codes, by their numbers.
    pub const ALL: [Self; 16] = [
        Self::Cancelled,
        Self::Unknown,
        Self::InvalidArgument,
        Self::DeadlineExceeded,
        Self::NotFound,
        Self::AlreadyExists,
        Self::PermissionDenied,
        Self::ResourceExhausted,
        Self::FailedPrecondition,
        Self::Aborted,
        Self::OutOfRange,
        Self::Unimplemented,
        Self::Internal,
        Self::Unavailable,
        Self::DataLoss,
        Self::Unauthenticated,
    ];

    /// The code of a number, which is that of gRPC and of TensorFlow. Zero, which means success,
    /// and numbers above 16 have none.
    pub fn from_number(number: i32) -> Option<Self> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        Self::ALL.get(index).copied()
    }

    /// The number on the wire.
    pub fn number(self) -> i32 {
        self as i32
    }

    /// The name as it stands in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cancelled => "CANCELLED",
            Self::Unknown => "UNKNOWN",
            Self::InvalidArgument => "INVALID_ARGUMENT",
            Self::DeadlineExceeded => "DEADLINE_EXCEEDED",
            Self::NotFound => "NOT_FOUND",
            Self::AlreadyExists => "ALREADY_EXISTS",
            Self::PermissionDenied => "PERMISSION_DENIED",
            Self::ResourceExhausted => "RESOURCE_EXHAUSTED",
            Self::FailedPrecondition => "FAILED_PRECONDITION",
            Self::Aborted => "ABORTED",
            Self::OutOfRange => "OUT_OF_RANGE",
            Self::Unimplemented => "UNIMPLEMENTED",
            Self::Internal => "INTERNAL",
            Self::Unavailable => "UNAVAILABLE",
            Self::DataLoss => "DATA_LOSS",
            Self::Unauthenticated => "UNAUTHENTICATED",
        }
    }

    /// The code of an HTTP answer (`http_server.cc`).
    pub fn to_http(self) -> u16 {
        match self {
            Self::Cancelled => 499,
            Self::InvalidArgument | Self::FailedPrecondition | Self::OutOfRange => 400,
            Self::DeadlineExceeded => 504,
            Self::NotFound => 404,
            Self::AlreadyExists | Self::Aborted => 409,
            Self::PermissionDenied => 403,
            Self::ResourceExhausted => 429,
            Self::Unimplemented => 501,
            Self::Unavailable => 503,
            Self::Unauthenticated => 401,
            Self::Unknown | Self::Internal | Self::DataLoss => 500,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_leads_to_its_code_and_back() {
        for (index, code) in Code::ALL.into_iter().enumerate() {
            assert_eq!(usize::try_from(code.number()), Ok(index + 1));
            assert_eq!(Code::from_number(code.number()), Some(code));
        }
        for none in [0, 17, -1, i32::MIN, i32::MAX] {
            assert_eq!(Code::from_number(none), None, "{none}");
        }
    }
}
