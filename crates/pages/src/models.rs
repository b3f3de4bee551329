//! `GET /v1/models:list`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::devices::EngineName;

/// The models of the server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ModelListPage {
    /// The models, of which a client with a key sees those that its key is for.
    pub models: Vec<ModelEntry>,
}

/// A model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ModelEntry {
    /// The model's name.
    pub name: String,
    /// The versions that are known.
    pub versions: Vec<VersionEntry>,
    /// The version of each label.
    pub labels: BTreeMap<String, String>,
    /// The requests so far.
    pub requests: RequestCounts,
}

/// A version.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct VersionEntry {
    /// The version's number, as TensorFlow Serving writes 64-bit integers.
    pub version: String,
    /// The state.
    pub state: VersionState,
    /// The failure of its load.
    pub status: FailureEntry,
    /// The engine that serves it; only while it is served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineName>,
    /// The progress of its load; only while it is being loaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<LoadProgress>,
}

/// The progress of a load.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LoadProgress {
    /// The phase, such as `reading weights`; others may come. Empty while it waits for a thread.
    pub phase: String,
    /// The bytes of this phase that are done.
    pub done_bytes: u64,
    /// All bytes of this phase; 0 if that is not known.
    pub total_bytes: u64,
}

/// The state of a version, by TensorFlow Serving's names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "UPPERCASE")]
pub enum VersionState {
    /// Wanted, and not yet being loaded.
    #[default]
    Start,
    /// Being loaded.
    Loading,
    /// Served.
    Available,
    /// No longer served; requests in flight are answered.
    Unloading,
    /// Gone, or failed to load.
    End,
}

/// The failure of a load.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FailureEntry {
    /// The code, such as `RESOURCE_EXHAUSTED`; `OK` without a failure.
    pub error_code: String,
    /// The message; empty without a failure.
    pub error_message: String,
}

/// The requests of a model so far, over gRPC and REST.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RequestCounts {
    /// The requests that are being answered.
    pub in_flight: i64,
    /// The requests that ended, by code; `OK` is success.
    pub by_code: BTreeMap<String, u64>,
    /// The time of requests that ran the model and were answered with success.
    pub latency_micros: RequestLatency,
}

/// The time of requests.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RequestLatency {
    /// The number of requests.
    pub count: u64,
    /// The mean; 0 without requests.
    pub mean: f64,
    /// The median, rounded up to the next limit of the metrics' histogram; 0 without requests.
    pub p50: f64,
    /// The time that one in ten exceeds, rounded up likewise.
    pub p90: f64,
    /// The time that one in a hundred exceeds, rounded up likewise.
    pub p99: f64,
}
