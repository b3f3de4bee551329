//! Snapshots of workers, for those who show them.

/// A worker at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerSnapshot {
    /// Its name: that of its model, or of what it shares.
    pub name: String,
    /// How it is.
    pub state: WorkerState,
    /// Its process, if there is one.
    pub pid: Option<u32>,
    /// The version of TensorFlow that it loaded.
    pub tensorflow_version: String,
    /// The models in it, as `name/version`.
    pub models: Vec<String>,
    /// The devices that TensorFlow sees.
    pub devices: Vec<String>,
    /// How often its process was started again because it had ended.
    pub n_restarts: u64,
    /// The runs in it.
    pub n_running: usize,
    /// The runs that wait for it.
    pub n_waiting: usize,
    /// The memory of its process: the library, the models, and what it shares with the server.
    pub resident_bytes: u64,
}

/// How a worker is.
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
