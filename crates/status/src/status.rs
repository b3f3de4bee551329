//! A canonical code and a message, as clients see them.

use std::borrow::Cow;
use std::time::Duration;

use crate::code::Code;

/// The longest message that gRPC carries, in bytes (`grpc_status_util.cc`).
const GRPC_MESSAGE_MAX: usize = 1024;

/// The longest message that a status keeps, in bytes: clients choose the names in it.
const MESSAGE_MAX: usize = 16 << 10;

/// The longest name in a message, in bytes.
const NAME_MAX: usize = 4 << 10;

/// The end of a text that was cut.
const TRUNCATED: &str = "...TRUNCATED";

/// The longest hint, in bytes: what is longer is cut.
const HINT_BYTES_MAX: usize = 600;

/// A failure, as a client is told of it. Shown as text, it is its message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Status {
    /// The canonical code.
    pub code: Code,
    /// The message.
    pub message: String,
    /// The time after which to try again, if that is worth it.
    pub retry_after: Option<Duration>,
    /// The way to mend it. It stands behind the message, which it does not change.
    pub hint: Option<Box<str>>,
}

/// The result of a call that fails with a status.
pub type Result<T, E = Status> = std::result::Result<T, E>;

impl Status {
    /// A status of any code. A message of more than 16 KiB is cut.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        let message = message.into();
        let message = match clip(&message, MESSAGE_MAX) {
            Cow::Owned(cut) => cut,
            Cow::Borrowed(_) => message,
        };
        Self { code, message, retry_after: None, hint: None }
    }

    /// An `InvalidArgument`: the request or the file is wrong.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    /// A `NotFound`.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(Code::NotFound, message)
    }

    /// A `FailedPrecondition`.
    pub fn failed_precondition(message: impl Into<String>) -> Self {
        Self::new(Code::FailedPrecondition, message)
    }

    /// An `Unimplemented`.
    pub fn unimplemented(message: impl Into<String>) -> Self {
        Self::new(Code::Unimplemented, message)
    }

    /// A `ResourceExhausted`.
    pub fn exhausted(message: impl Into<String>) -> Self {
        Self::new(Code::ResourceExhausted, message)
    }

    /// A `DeadlineExceeded`.
    pub fn deadline_exceeded(message: impl Into<String>) -> Self {
        Self::new(Code::DeadlineExceeded, message)
    }

    /// A `Cancelled`.
    pub fn cancelled(message: impl Into<String>) -> Self {
        Self::new(Code::Cancelled, message)
    }

    /// An `Unavailable`.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(Code::Unavailable, message)
    }

    /// An `Internal`.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(Code::Internal, message)
    }

    /// The same status with a time after which to try again, as far as that can be told.
    #[must_use]
    pub fn with_retry_after(self, retry_after: Option<Duration>) -> Self {
        Self { retry_after, ..self }
    }

    /// The same status with a hint, in place of the one that it has. A long hint is cut.
    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> Self {
        let mut hint = hint.into();
        if hint.len() > HINT_BYTES_MAX {
            hint.truncate(hint.floor_char_boundary(HINT_BYTES_MAX));
            hint.push('…');
        }
        Self { hint: Some(hint.into()), ..self }
    }

    /// The same status with a hint, which is made only if it has none.
    #[must_use]
    pub fn or_hint(self, hint: impl FnOnce() -> String) -> Self {
        if self.hint.is_some() { self } else { self.with_hint(hint()) }
    }

    /// The same status without a hint.
    #[must_use]
    pub fn without_hint(self) -> Self {
        Self { hint: None, ..self }
    }

    /// The same status with another message.
    #[must_use]
    pub fn map_message(self, change: impl FnOnce(&str) -> String) -> Self {
        let (retry_after, hint) = (self.retry_after, self.hint);
        Self { retry_after, hint, ..Self::new(self.code, change(&self.message)) }
    }

    /// The message as gRPC sends it: a long one is cut. The hint is a line of its own behind it.
    pub fn grpc_message(&self) -> Cow<'_, str> {
        let mut message = clip(&self.message, GRPC_MESSAGE_MAX);
        if let Some(hint) = &self.hint {
            message.to_mut().push_str("\nhint: ");
            message.to_mut().push_str(hint);
        }
        message
    }

    /// The milliseconds after which gRPC clients with a retry policy try again
    /// (`grpc-retry-pushback-ms`).
    pub fn retry_pushback_millis(&self) -> Option<u128> {
        self.retry_after.map(|after| after.as_millis().max(1))
    }

    /// The whole seconds after which HTTP clients may try again (`Retry-After`).
    pub fn retry_after_seconds(&self) -> Option<u64> {
        self.retry_after.map(|after| after.as_secs() + u64::from(after.subsec_nanos() > 0))
    }
}

/// A name that a client chose, for a message: a very long one is cut before the message is made.
pub fn clipped(name: &str) -> Cow<'_, str> {
    clip(name, NAME_MAX)
}

/// A text of at most so many bytes, and a mark if it was cut.
fn clip(text: &str, max: usize) -> Cow<'_, str> {
    if text.len() <= max {
        return Cow::Borrowed(text);
    }
    Cow::Owned([&text[..text.floor_char_boundary(max)], TRUNCATED].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_keeps_no_more_than_its_bound_whoever_made_it() {
        let long = "a".repeat(10 << 20);
        let expected = format!("{}...TRUNCATED", "a".repeat(MESSAGE_MAX));
        let after = Some(Duration::from_secs(1));
        for status in [
            Status::invalid(long.clone()),
            Status::unavailable("a").with_retry_after(after).map_message(|_| long.clone()),
        ] {
            assert!(status.message == expected && status.message.capacity() < 2 * MESSAGE_MAX);
        }
        let whole = "a".repeat(MESSAGE_MAX);
        assert_eq!(Status::invalid(whole.clone()).message, whole);
        assert_eq!(clipped(&long).len(), NAME_MAX + TRUNCATED.len());
        assert_eq!(clipped("a name"), "a name");
    }

    #[test]
    fn a_busy_server_says_when_to_try_again() {
        let check = |micros, seconds, millis| {
            let after = Some(Duration::from_micros(micros));
            let status = Status::unavailable("full").with_retry_after(after);
            assert_eq!(status.retry_after_seconds(), Some(seconds), "{micros}");
            assert_eq!(status.retry_pushback_millis(), Some(millis), "{micros}");
        };
        check(30_000, 1, 30);
        check(2_000_000, 2, 2_000);
        check(2_000_001, 3, 2_000);
        check(7, 1, 1);
        assert_eq!(Status::unavailable("gone").retry_after_seconds(), None);
        assert_eq!(Status::unavailable("gone").retry_pushback_millis(), None);
    }

    #[test]
    fn a_hint_stands_behind_the_message_and_is_cut() {
        let status = Status::invalid("TensorFlow's text").with_hint("mend it so");
        assert_eq!(status.to_string(), "TensorFlow's text");
        assert_eq!(status.grpc_message(), "TensorFlow's text\nhint: mend it so");
        assert_eq!(status.clone().or_hint(|| "other".to_owned()), status);
        assert_eq!(status.without_hint().grpc_message(), "TensorFlow's text");
        let long = Status::invalid("a".repeat(2000)).with_hint("ä".repeat(2000));
        assert!(long.grpc_message().len() < 1024 + 700, "{}", long.grpc_message().len());
        assert!(long.grpc_message().ends_with("ä…"));
    }

    #[test]
    fn grpc_cuts_long_messages_at_a_character() {
        let check = |message: &str, expected: &str| {
            assert_eq!(Status::invalid(message).grpc_message(), expected);
        };
        check("short", "short");
        check(&"a".repeat(1024), &"a".repeat(1024));
        check(&"a".repeat(1025), &format!("{}...TRUNCATED", "a".repeat(1024)));
        let umlauts = "ä".repeat(513);
        check(&format!("a{umlauts}"), &format!("a{}...TRUNCATED", "ä".repeat(511)));
    }
}
