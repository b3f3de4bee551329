//! `GET /v1/devices` and `tensord devices`.

use serde::{Deserialize, Serialize};

/// The devices that were found, and the logical devices made of them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DevicesPage {
    /// The devices that drivers found.
    pub physical: Vec<PhysicalEntry>,
    /// The logical devices that models are placed on.
    pub logical: Vec<LogicalEntry>,
    /// Settings that had no effect, and other things to know, for people.
    pub warnings: Vec<String>,
}

/// A device that a driver found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PhysicalEntry {
    /// The device's name, such as `gpu:0`.
    pub name: String,
    /// The kind of the device.
    pub kind: DeviceKind,
    /// The driver: `host`, `simulated`, `cuda`, or `nvml` for a GPU that only TensorFlow uses.
    pub driver: String,
    /// The engine that alone can use the device, if it is not ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineName>,
    /// The product's name, of a GPU that only TensorFlow uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The driver's id of the device, of a GPU that only TensorFlow uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// The memory of the device.
    pub total_bytes: u64,
    /// The most that all its logical devices may hold together, of a device of our engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u64>,
    /// The bytes held now: by this server, or by all processes on a GPU that only TensorFlow uses.
    pub held_bytes: u64,
    /// The bytes that the driver takes for itself, of a device of our engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_bytes: Option<u64>,
    /// The speed of a simulated device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulation: Option<SimulationRates>,
}

/// The speed of a simulated device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SimulationRates {
    /// Floating-point operations a second; null means as fast as the host.
    pub flops_per_second: Option<u64>,
    /// Bytes of inputs and results copied a second; null means as fast as the host.
    pub copy_bytes_per_second: Option<u64>,
    /// The least time of a step.
    pub launch_nanos: u64,
    /// The bytes that the device refused because it plays a full one.
    pub refused_bytes: u64,
}

/// A logical device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LogicalEntry {
    /// The device's name, such as `gpu:1`.
    pub name: String,
    /// The kind of the device.
    pub kind: DeviceKind,
    /// The name of the physical device that it is a share of.
    pub physical: String,
    /// The engine that alone can use the device, if it is not ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineName>,
    /// The most that the device may hold.
    pub limit_bytes: u64,
    /// The setting that says so.
    pub limit_setting: String,
    /// The bytes promised to models, of a GPU that only TensorFlow uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promised_bytes: Option<u64>,
    /// The rule by which the device takes its memory.
    pub growth: GrowthMode,
    /// The setting that says so.
    pub growth_setting: String,
    /// The priority of the device's streams; 0 if not set.
    pub priority: i32,
    /// The number of batches that run at once, of a device of our engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lanes: Option<usize>,
    /// The number of allocations that succeed before one is refused on purpose, for tests of
    /// clients; null if none is to be.
    pub fails_in: Option<u64>,
}

/// The kind of a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DeviceKind {
    /// The host.
    #[default]
    Cpu,
    /// An accelerator with memory of its own.
    Gpu,
}

/// The way a device takes its memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum GrowthMode {
    /// As it is needed.
    #[default]
    OnDemand,
    /// Up to the limit, when the server starts.
    Reserved,
}

impl GrowthMode {
    /// The word for it on the pages.
    pub fn name(self) -> &'static str {
        match self {
            Self::OnDemand => "on_demand",
            Self::Reserved => "reserved",
        }
    }
}

/// The engine that runs a model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum EngineName {
    /// Our own executor.
    #[default]
    Native,
    /// TensorFlow, in a worker process.
    TensorFlow,
}

impl EngineName {
    /// The engine of this name; `None` if there is none.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "native" => Some(Self::Native),
            "tensorflow" => Some(Self::TensorFlow),
            _ => None,
        }
    }
}
