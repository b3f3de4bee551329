//! The states of a version, as clients see them.

use std::fmt;
use std::time::Duration;

use crate::error::LoadError;

/// The state of a version: the five states of `GetModelStatus`, and no others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Aspired, but not yet being loaded.
    Start,
    /// Being loaded, or waiting for the next attempt.
    Loading,
    /// Served.
    Available,
    /// No longer served; waiting for requests in flight, or being freed.
    Unloading,
    /// Gone, or failed to load.
    End,
}

impl State {
    /// The number on the wire (`ModelVersionStatus.State`).
    pub fn number(self) -> i32 {
        match self {
            State::Start => 10,
            State::Loading => 20,
            State::Available => 30,
            State::Unloading => 40,
            State::End => 50,
        }
    }

    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            State::Start => "START",
            State::Loading => "LOADING",
            State::Available => "AVAILABLE",
            State::Unloading => "UNLOADING",
            State::End => "END",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One version's state, and why it failed if it did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionStatus {
    /// The version's number.
    pub version: i64,
    /// The version's state.
    pub state: State,
    /// The reason for which it ended, if it failed to load.
    pub error: Option<LoadError>,
    /// The last failure to load it, while it is tried again.
    pub retried: Option<Retried>,
}

impl VersionStatus {
    /// The reason for which the load failed, whether it is tried again or not.
    pub fn failure(&self) -> Option<&LoadError> {
        self.error.as_ref().or(self.retried.as_ref().map(|retried| &retried.error))
    }
}

/// A failure to load a version that is tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retried {
    /// The error of the last attempt.
    pub error: LoadError,
    /// The time of the next attempt, since the lifecycle was started; `None` once it has begun.
    pub at: Option<Duration>,
}
