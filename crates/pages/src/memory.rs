//! `GET /v1/memory`, and the answer to `POST /v1/memory:trim`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::devices::{DeviceKind, EngineName, GrowthMode};
use crate::workers::WorkerEntry;

/// The holders of the memory of every device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MemoryPage {
    /// The resident memory of the server's process; null if the system does not tell.
    pub resident_bytes: Option<u64>,
    /// The heap of the process.
    pub heap: HeapBytes,
    /// The logical devices.
    pub devices: Vec<DeviceMemory>,
    /// TensorFlow's worker processes.
    pub workers: Vec<WorkerEntry>,
}

/// The heap of the process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct HeapBytes {
    /// The bytes that the program uses.
    pub allocated_bytes: u64,
    /// The bytes that the heap has of the system.
    pub resident_bytes: u64,
}

/// Bytes by what they are held for.
pub type Categories = BTreeMap<MemoryCategory, u64>;

/// The memory of a logical device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DeviceMemory {
    /// The device's name, such as `gpu:1`.
    pub name: String,
    /// The kind of the device.
    pub kind: DeviceKind,
    /// The name of the physical device that it is a share of.
    pub physical: String,
    /// The driver: `host`, `simulated`, `cuda`, or `nvml` for a GPU that only TensorFlow uses.
    pub driver: String,
    /// The engine that alone can use the device, if it is not ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineName>,
    /// The product's name, of a GPU that only TensorFlow uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The most that the device may hold.
    pub limit_bytes: u64,
    /// The setting that says so.
    pub limit_setting: String,
    /// The rule by which the device takes its memory.
    pub growth: GrowthMode,
    /// The setting that says so.
    pub growth_setting: String,
    /// The bytes held from the driver or the system.
    pub reserved_bytes: u64,
    /// The most that was held at once, of a device of our engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_reserved_bytes: Option<u64>,
    /// The bytes given out.
    pub in_use_bytes: u64,
    /// The most that was given out at once.
    pub peak_in_use_bytes: u64,
    /// The bytes that may still be given out.
    pub free_bytes: u64,
    /// The bytes that loads under way and runs of loaded models may still take; of a GPU that only
    /// TensorFlow uses, all that was promised to models.
    pub promised_bytes: u64,
    /// The bytes that other processes hold, of a GPU that only TensorFlow uses, if its driver
    /// tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others_bytes: Option<u64>,
    /// The bytes that a worker takes without a model, of a GPU that only TensorFlow uses, once
    /// they were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_bytes: Option<u64>,
    /// The largest piece that could be given out without growing, of a device of our engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest_free_bytes: Option<u64>,
    /// The share of the idle bytes that is outside the largest piece, from 0 to 1, of a device of
    /// our engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fragmentation: Option<f64>,
    /// The bytes of the host that keeping the books takes, of a device of our engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bookkeeping_bytes: Option<u64>,
    /// The number of times that the device took memory, of a device of our engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub growths: Option<u64>,
    /// The number of times that the device returned memory, of a device of our engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub releases: Option<u64>,
    /// The bytes that are held and not in use, by reason.
    pub idle: Vec<IdleBytes>,
    /// All bytes held, by category.
    #[cfg_attr(test, schemars(extend("propertyNames" = {"$ref": "#/$defs/MemoryCategory"})))]
    pub categories: Categories,
    /// The memory of lanes, of a device of our engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspaces: Option<WorkspaceMemory>,
    /// The bytes that belong to no model.
    pub server: ServerMemory,
    /// The bytes in use that carry the name of a tensor or of a plan's signature, of a device of
    /// our engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub named_bytes: Option<u64>,
    /// The bytes that several versions hold together.
    pub shared: SharedMemory,
    /// The versions on the device.
    pub models: Vec<VersionMemory>,
}

/// Bytes that are held and not in use.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct IdleBytes {
    /// The number of bytes.
    pub bytes: u64,
    /// The reason, for programs.
    pub kind: IdleKind,
    /// The reason, for people.
    pub reason: String,
}

/// The reason why bytes that are not in use are held.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum IdleKind {
    /// Kept for the next request; returned after a while, under pressure and when asked for.
    #[default]
    Kept,
    /// The rest of granules that are partly in use.
    PartlyUsed,
    /// The device does not grow: it is held up to its limit.
    Reserved,
    /// Set aside for a model.
    SetAside,
    /// Lost to alignment.
    Rounding,
}

/// The purpose of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum MemoryCategory {
    /// Tensors that the steps of a plan pass on.
    Activations,
    /// Memory that a GPU's driver, or a TensorFlow worker, takes for itself.
    Context,
    /// Bytes lost to alignment and between chunks.
    Fragmentation,
    /// Weights in the layout of a kernel.
    PackedWeights,
    /// Compiled plans and the values kept with them.
    Plans,
    /// Tensors and messages of requests and answers.
    Requests,
    /// Memory that is held for a model or a device and not in use.
    Reserve,
    /// Weights as the checkpoint has them.
    #[default]
    Weights,
    /// Scratch memory of kernels.
    Workspace,
}

impl MemoryCategory {
    /// The word for it on the pages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Activations => "activations",
            Self::Context => "context",
            Self::Fragmentation => "fragmentation",
            Self::PackedWeights => "packed_weights",
            Self::Plans => "plans",
            Self::Requests => "requests",
            Self::Reserve => "reserve",
            Self::Weights => "weights",
            Self::Workspace => "workspace",
        }
    }
}

/// The memory of a device's lanes, which all models on the device share.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct WorkspaceMemory {
    /// The bytes held for all lanes.
    pub bytes: u64,
    /// The number of lanes.
    pub lanes: usize,
    /// The bytes that each version needs in one lane.
    pub models: Vec<PlanBytes>,
}

/// The bytes that a version needs in a lane.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PlanBytes {
    /// The model's name.
    pub name: String,
    /// The version.
    pub version: i64,
    /// The bytes of its largest plan.
    pub largest_plan_bytes: u64,
}

/// The bytes that belong to no model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ServerMemory {
    /// The bytes by category.
    #[cfg_attr(test, schemars(extend("propertyNames" = {"$ref": "#/$defs/MemoryCategory"})))]
    pub categories: Categories,
}

/// The bytes that several versions hold together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SharedMemory {
    /// The bytes held; of a GPU that only TensorFlow uses, those of shared workers beside the
    /// variables of their models.
    pub bytes: u64,
    /// The bytes that the versions would hold besides if nothing were shared.
    pub saved_bytes: u64,
    /// The versions, each with the bytes that it has a part in.
    pub holders: Vec<SharedBytes>,
    /// The largest of the shared weights.
    pub largest_tensors: Vec<TensorBytes>,
}

/// The bytes that a version shares with others.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SharedBytes {
    /// The model's name.
    pub name: String,
    /// The version.
    pub version: i64,
    /// The number of bytes.
    pub bytes: u64,
}

/// The bytes of a weight.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TensorBytes {
    /// The weight's name.
    pub name: String,
    /// The number of bytes.
    pub bytes: u64,
    /// `weights` or `packed_weights`.
    pub category: MemoryCategory,
    /// The versions that share it, as `model:version`; left out if it is not shared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sharers: Vec<String>,
}

/// The memory of a version on a device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct VersionMemory {
    /// The model's name.
    pub name: String,
    /// The version.
    pub version: i64,
    /// The bytes that the version holds alone.
    pub bytes: u64,
    /// The most that the model may hold on the device, of a device of our engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u64>,
    /// The bytes that the version is to hold: while our engine loads it, and always on a GPU that
    /// only TensorFlow uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promised_bytes: Option<u64>,
    /// The bytes of its largest plan, of a device of our engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest_plan_bytes: Option<u64>,
    /// The bytes by category.
    #[cfg_attr(test, schemars(extend("propertyNames" = {"$ref": "#/$defs/MemoryCategory"})))]
    pub categories: Categories,
    /// The largest of its weights, shared ones included.
    pub largest_tensors: Vec<TensorBytes>,
}

/// The answer to `POST /v1/memory:trim`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TrimPage {
    /// The bytes that all devices returned.
    pub released_bytes: u64,
    /// The bytes that each device returned.
    pub devices: Vec<TrimmedDevice>,
}

/// The bytes that a device returned.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TrimmedDevice {
    /// The device's name.
    pub name: String,
    /// The number of bytes.
    pub bytes: u64,
}
