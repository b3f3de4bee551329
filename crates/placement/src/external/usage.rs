//! The memory that GPUs and TensorFlow's workers hold, as it was measured.

use device::Holder;
use std::sync::Arc;

/// A source of measurements: the driver's management library, and the workers.
pub trait Monitor: Send + Sync {
    /// The memory that GPUs and workers hold at this moment.
    fn usage(&self) -> Usage;
}

/// The memory that GPUs and workers hold at a moment.
#[derive(Debug, Clone, Default)]
pub struct Usage {
    /// The GPUs.
    pub gpus: Vec<GpuUsage>,
    /// The workers.
    pub workers: Vec<WorkerUsage>,
}

/// The memory of a GPU at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuUsage {
    /// The identifier that tells it from all others.
    pub uuid: String,
    /// The name of its make, for people.
    pub name: String,
    /// All of its memory.
    pub total_bytes: u64,
    /// The bytes that are held of it, by all processes and the driver.
    pub used_bytes: u64,
    /// The processes that compute on it.
    pub processes: Vec<ProcessUsage>,
}

/// The memory of a GPU that a process holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessUsage {
    /// The process.
    pub pid: u32,
    /// The bytes that it holds, if the driver tells.
    pub used_bytes: Option<u64>,
}

/// The memory of a worker at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerUsage {
    /// The device that it was placed on.
    pub device: String,
    /// Its process, if there is one.
    pub pid: Option<u32>,
    /// `true` if models without options of their own share the worker.
    pub is_shared: bool,
    /// The models in it.
    pub models: Vec<ModelUsage>,
    /// The memory of its process.
    pub resident_bytes: u64,
    /// The memory that its process held before it had a model.
    pub base_bytes: u64,
}

/// The memory of a model in a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelUsage {
    /// The model's name.
    pub model: Arc<str>,
    /// The version's number.
    pub version: i64,
    /// `true` if the model is loaded.
    pub is_loaded: bool,
    /// `true` if the model is being loaded.
    pub is_loading: bool,
    /// Its variables.
    pub weights_bytes: u64,
}

impl WorkerUsage {
    /// Returns whether the worker has models, all of which are loaded.
    pub(super) fn is_quiet(&self) -> bool {
        !self.models.is_empty() && self.models.iter().all(|model| model.is_loaded)
    }

    /// The version that it is for, or all of them.
    pub(super) fn holder(&self) -> Holder {
        match self.models.first().filter(|_| !self.is_shared) {
            Some(one) => Holder::Version { model: Arc::clone(&one.model), version: one.version },
            None => Holder::Shared,
        }
    }

    /// The part of its resident memory that is not the variables of its models; those are on the
    /// host if it is on no GPU.
    pub(super) fn beside_variables(&self, is_on_gpu: bool) -> u64 {
        let is_there = |model: &&ModelUsage| (model.is_loaded || model.is_loading) && !is_on_gpu;
        let there = self.models.iter().filter(is_there);
        let weights: u64 = there.map(|model| model.weights_bytes).sum();
        // Variables that are not in memory yet are booked already.
        let base = self.base_bytes.min(self.resident_bytes);
        self.resident_bytes.saturating_sub(weights).max(base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A worker of 1000 bytes for models with so many bytes of variables; the states are `loaded`,
    /// `loading` and others.
    fn worker(models: &[(&str, u64)]) -> WorkerUsage {
        let model = |(state, weights_bytes): &(&str, u64)| ModelUsage {
            model: "m".into(),
            version: 3,
            is_loaded: *state == "loaded",
            is_loading: *state == "loading",
            weights_bytes: *weights_bytes,
        };
        WorkerUsage {
            device: "cpu:0".to_owned(),
            pid: Some(1),
            is_shared: false,
            models: models.iter().map(model).collect(),
            resident_bytes: 1000,
            base_bytes: 300,
        }
    }

    #[test]
    fn what_is_not_variables_is_the_workers() {
        let check = |models: &[_], is_on_gpu, expected| {
            assert_eq!(worker(models).beside_variables(is_on_gpu), expected, "{models:?}");
        };
        check(&[], false, 1000);
        check(&[("loaded", 400), ("waiting", 200), ("failed", 100)], false, 600);
        check(&[("loading", 900)], false, 300);
        check(&[("loaded", 400)], true, 1000);
        let version = Holder::Version { model: Arc::from("m"), version: 3 };
        assert_eq!(worker(&[("loaded", 1)]).holder(), version);
        assert_eq!(worker(&[]).holder(), Holder::Shared);
    }
}
