//! `tensord plan --json`.

use serde::{Deserialize, Serialize};

use crate::devices::EngineName;

/// The places of models, before any is served.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PlanPage {
    /// The devices, with the bytes that are left there.
    pub devices: Vec<PlannedDevice>,
    /// The models.
    pub models: Vec<PlanEntry>,
    /// True if all models can be loaded, and have a place.
    pub fits: bool,
}

/// A device that models are placed on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PlannedDevice {
    /// The device's name.
    pub name: String,
    /// The engine that uses it.
    pub engine: EngineName,
    /// The most that the device may hold.
    pub limit_bytes: u64,
    /// The bytes that the models leave.
    pub left_bytes: u64,
}

/// A model of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum PlanEntry {
    /// A model that can be loaded.
    Planned(Box<PlannedModel>),
    /// A model that cannot be loaded.
    Failed(UnplannedModel),
}

impl PlanEntry {
    /// The model's name.
    pub fn name(&self) -> &str {
        match self {
            Self::Planned(model) => &model.name,
            Self::Failed(model) => &model.name,
        }
    }

    /// The plan of a model that can be loaded.
    pub fn planned(&self) -> Option<&PlannedModel> {
        match self {
            Self::Planned(model) => Some(model),
            Self::Failed(_) => None,
        }
    }

    /// The reason why a model cannot be loaded.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Planned(_) => None,
            Self::Failed(model) => Some(&model.error),
        }
    }
}

/// A model that cannot be loaded.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct UnplannedModel {
    /// The model's name.
    pub name: String,
    /// The reason, for people.
    pub error: String,
}

/// A model that can be loaded: its need, and its place.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PlannedModel {
    /// The model's name.
    pub name: String,
    /// The engine that would serve it.
    pub engine: EngineName,
    /// The bytes of weights as the checkpoint has them.
    pub weights_bytes: u64,
    /// The bytes of weights in the layout of kernels.
    pub packed_weights_bytes: u64,
    /// Other bytes that stay while the model is loaded.
    pub other_bytes: u64,
    /// The most that the model holds while it is loaded.
    pub load_peak_bytes: u64,
    /// The bytes that the model takes with a run of one row.
    pub total_bytes: u64,
    /// The bytes of runs, by batch size.
    pub plans: Vec<BatchPlan>,
    /// The measurements of a worker, if TensorFlow would serve the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<PlannedWorker>,
    /// The names of the devices that the model would be on; empty if it would be refused.
    pub devices: Vec<String>,
    /// The rows of the largest batch that fits where the model is; null without a place.
    pub batch_size_max: Option<u64>,
    /// The bytes that the model would be promised on a device; null without a place.
    pub promised_bytes: Option<u64>,
    /// The number of such models that fit on each device alone.
    pub copies_alone: Vec<CopiesAlone>,
    /// The number of devices that the model would be on.
    pub replicas: usize,
    /// The number of devices that was asked for.
    pub replicas_asked: usize,
    /// The reason why there are fewer replicas than asked for, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fewer_replicas: Option<String>,
    /// The bytes of the host that a replica on a GPU takes with a run of one row; left out without
    /// GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_bytes: Option<u64>,
    /// The bytes of the host that a replica on a GPU keeps; left out without GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_resident_bytes: Option<u64>,
    /// The reason why the model would be refused, and the change that would help, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// The bytes of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct BatchPlan {
    /// The rows of the batch.
    pub batch: usize,
    /// The bytes of the lane's memory.
    pub activation_bytes: u64,
    /// The bytes of results and other tensors outside the lane's memory, as far as their sizes are
    /// known.
    pub dynamic_bytes: u64,
    /// The bytes of the plan itself.
    pub plan_bytes: u64,
    /// True if all sizes are known before the run.
    pub is_static: bool,
    /// The bytes that the model takes with batches of up to this size.
    pub total_bytes: u64,
    /// The bytes of the host, if the run is on a GPU.
    pub host_bytes: u64,
}

/// The measurements of a worker with one model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PlannedWorker {
    /// The resident memory before the model was loaded.
    pub base_bytes: u64,
    /// The resident memory with the model.
    pub resident_bytes: u64,
    /// The bytes of the GPU; null without one, or if its driver does not tell.
    pub gpu_bytes: Option<u64>,
}

/// The number of models of a kind that fit on a device alone.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CopiesAlone {
    /// The device's name.
    pub device: String,
    /// The number of copies.
    pub copies: u64,
}
