//! TensorFlow's workers, on `GET /v1/memory`.

use serde::{Deserialize, Serialize};

/// A process that runs models with TensorFlow.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct WorkerEntry {
    /// The worker's name: that of its model, or `shared`.
    pub name: String,
    /// The logical device that the worker was placed on; empty if none was chosen.
    pub device: String,
    /// The state of the process.
    pub state: WorkerPhase,
    /// The process id; null without a process.
    pub pid: Option<u32>,
    /// True if models without settings of their own share the worker.
    pub shared: bool,
    /// The version of TensorFlow in the worker.
    pub tensorflow_version: String,
    /// The devices that TensorFlow sees.
    pub tensorflow_devices: Vec<String>,
    /// The resident memory of the process.
    pub resident_bytes: u64,
    /// The resident memory with the library and without a model; 0 before it is known.
    pub base_bytes: u64,
    /// The bytes of the host that the books have for the worker.
    pub booked_bytes: u64,
    /// The resident memory that the process should stay below; null without a limit.
    pub limit_bytes: Option<u64>,
    /// True if the process holds more than its limit.
    pub over_limit: bool,
    /// The bytes of GPUs that the process holds, as far as their driver tells.
    pub gpu_memory: Vec<GpuBytes>,
    /// The number of times that the process was started again.
    pub restarts: u64,
    /// The runs that a client waits for.
    pub running: usize,
    /// The runs that no client waits for any more, and that cannot be ended.
    pub abandoned: usize,
    /// The runs that wait for the worker.
    pub waiting: usize,
    /// The versions in the worker.
    pub models: Vec<WorkerModel>,
}

/// The state of a worker's process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum WorkerPhase {
    /// The process starts.
    #[default]
    Starting,
    /// The process runs what it is given.
    Up,
    /// The process is to be started anew when its runs have ended.
    Renewing,
    /// The process ended more than once, and is started again after a while.
    BackingOff,
    /// The worker is not wanted any more.
    Ended,
}

impl WorkerPhase {
    /// The word for it on the pages.
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

/// The bytes of a GPU that a worker holds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GpuBytes {
    /// The name of the logical device.
    pub device: String,
    /// The bytes that the driver says the process holds.
    pub bytes: u64,
}

/// A version in a worker.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct WorkerModel {
    /// The model's name.
    pub name: String,
    /// The version.
    pub version: i64,
    /// The progress of its load.
    pub state: WorkerModelPhase,
    /// The bytes of the version's variables.
    pub weights_bytes: u64,
    /// The seconds since the load began, while it is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loading_seconds: Option<f64>,
    /// The most seconds that a load may take, while one is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loading_seconds_max: Option<f64>,
    /// The bytes by which the worker has grown since the load began, while it is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loading_grown_bytes: Option<u64>,
}

/// The progress of a version in a worker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum WorkerModelPhase {
    /// Its worker is not there yet.
    #[default]
    Waiting,
    /// TensorFlow restores its variables, or runs its init op.
    Loading,
    /// It can run.
    Loaded,
    /// It cannot be loaded.
    Failed,
}
