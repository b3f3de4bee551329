//! Snapshots of workers, for those who show them.

use std::time::Duration;

/// A worker at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerSnapshot {
    /// The worker's name: that of its model, or `shared`.
    pub name: String,
    /// `true` if models without settings of their own share the worker.
    pub is_shared: bool,
    /// The device that it was placed on; empty if nobody chose one.
    pub device: String,
    /// The worker's state.
    pub state: WorkerState,
    /// The worker's process, if there is one.
    pub pid: Option<u32>,
    /// The version of TensorFlow that it loaded.
    pub tensorflow_version: String,
    /// The models in it.
    pub models: Vec<ModelSnapshot>,
    /// The devices that TensorFlow sees.
    pub devices: Vec<String>,
    /// The number of times that the worker's process was started again because it had ended.
    pub n_restarts: u64,
    /// The runs in it that somebody waits for.
    pub n_running: usize,
    /// The runs in it that nobody waits for any more, and that cannot be ended.
    pub n_abandoned: usize,
    /// The runs that wait for it.
    pub n_waiting: usize,
    /// The memory of its process: the library, the models, and what it shares with the server.
    pub resident_bytes: u64,
    /// The bytes that the process held when the library was loaded and no model yet; 0 if the
    /// library was never loaded.
    pub base_bytes: u64,
    /// The limit that the worker's resident memory should stay below.
    pub limit_bytes: Option<u64>,
    /// The longest time that a model may take to load.
    pub load_timeout: Duration,
}

impl WorkerSnapshot {
    /// Returns whether the worker holds more than its limit.
    pub fn is_over_limit(&self) -> bool {
        self.limit_bytes.is_some_and(|limit| self.resident_bytes > limit)
    }
}

/// A model in a worker, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelSnapshot {
    /// The model's name.
    pub model: String,
    /// The number of the version.
    pub version: i64,
    /// The model's state.
    pub state: ModelState,
    /// The bytes of its variables.
    pub weights_bytes: u64,
    /// For how long it has been loading, if it is.
    pub loading_for: Option<Duration>,
    /// By how much the worker has grown since it began to load it, while it does. Others in the
    /// worker may have a part in it.
    pub grown_bytes: u64,
}

/// The state of a model in a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelState {
    /// Its worker is not there yet.
    Waiting,
    /// TensorFlow restores its variables, or runs its init op.
    Loading,
    /// It can run.
    Loaded,
    /// It cannot be loaded.
    Failed,
}

impl ModelState {
    /// Returns the state's name in replies.
    pub fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Loading => "loading",
            Self::Loaded => "loaded",
            Self::Failed => "failed",
        }
    }
}

impl WorkerState {
    /// Returns the state's name in replies.
    pub fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Up => "up",
            Self::Renewing => "renewing",
            Self::BackingOff => "backing_off",
            Self::Ended => "ended",
        }
    }
}

/// The state of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerState {
    /// Its process starts.
    Starting,
    /// It runs what it is given.
    Up,
    /// It is to be started anew when what runs has ended.
    Renewing,
    /// Its process ended more than once, and is started again after a while.
    BackingOff,
    /// It is not wanted any more.
    Ended,
}

/// The resident memory of a process; 0 if there is none.
pub(crate) fn resident_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_resident_memory_and_no_process_has_none() {
        assert!(resident_bytes(std::process::id()) > 100_000);
        assert_eq!(resident_bytes(u32::MAX), 0);
    }
}
