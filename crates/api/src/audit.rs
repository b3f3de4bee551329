//! The audit log: a line for every call that changes the server, also for those that are refused.
//! Both faces write it through [`Audit`].

use std::fmt;

use status::{Code, Status};

use crate::listen::Peer;
use crate::trace::Short;

/// The caller of a method: its address and the name of its key.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) peer: Peer,
    /// The name of the key, if the call was admitted with one.
    pub(crate) key: Option<String>,
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.key {
            Some(key) => write!(f, "key {} at {}", Short(key), self.peer),
            None => write!(f, "{}", self.peer),
        }
    }
}

/// A change under way, whose line is written when it ends, however it ends.
pub(crate) struct Audit {
    pub(crate) caller: Caller,
    what: String,
    is_written: bool,
}

impl Audit {
    /// Begins a change.
    pub(crate) fn begin(caller: Caller, what: String) -> Self {
        Self { caller, what, is_written: false }
    }

    /// Ends it with its result.
    pub(crate) fn end(mut self, failure: Option<&Status>) {
        match failure {
            None => self.write("OK", ""),
            Some(Status { code, message, .. }) => self.write(code.name(), message),
        }
    }

    fn write(&mut self, result: &str, text: &str) {
        self.is_written = true;
        tracing::info!(
            target: "tensord::audit",
            who = %self.caller,
            what = %Short(&self.what),
            result,
            "{}",
            Short(text)
        );
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        if !self.is_written {
            self.write(
                Code::Cancelled.name(),
                "the caller went away; the change may have been made",
            );
        }
    }
}
