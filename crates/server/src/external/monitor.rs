//! `Meter`: measures what GPUs and TensorFlow's workers hold.

use std::sync::Arc;

use placement::{GpuUsage, ModelUsage, Monitor, ProcessUsage, Usage, WorkerUsage};
use tensorflow::{Gpu, GpuProcess, ModelSnapshot, ModelState, Nvml, WorkerSnapshot, Workers};

/// The driver's management library and the workers.
pub(super) struct Meter {
    pub(super) nvml: Option<Nvml>,
    pub(super) workers: Option<Arc<Workers>>,
}

impl Meter {
    /// The GPUs at this moment.
    pub(super) fn gpus(&self) -> Vec<GpuUsage> {
        self.nvml.as_ref().map(Nvml::snapshot).unwrap_or_default().iter().map(gpu).collect()
    }

    /// The workers at this moment.
    pub(super) fn workers(&self) -> Vec<WorkerSnapshot> {
        self.workers.as_ref().map(|workers| workers.snapshot()).unwrap_or_default()
    }
}

impl Monitor for Meter {
    fn usage(&self) -> Usage {
        Usage { gpus: self.gpus(), workers: self.workers().iter().map(worker).collect() }
    }
}

/// A GPU, as placement sees it.
pub(super) fn gpu(gpu: &Gpu) -> GpuUsage {
    let process = |one: &GpuProcess| ProcessUsage { pid: one.pid, used_bytes: one.used_bytes };
    GpuUsage {
        uuid: gpu.uuid.clone(),
        name: gpu.name.clone(),
        total_bytes: gpu.total_bytes,
        used_bytes: gpu.used_bytes,
        processes: gpu.processes.iter().map(process).collect(),
    }
}

fn worker(worker: &WorkerSnapshot) -> WorkerUsage {
    let model = |one: &ModelSnapshot| ModelUsage {
        model: one.model.as_str().into(),
        version: one.version,
        is_loaded: one.state == ModelState::Loaded,
        is_loading: one.state == ModelState::Loading,
        weights_bytes: one.weights_bytes,
    };
    WorkerUsage {
        device: worker.device.clone(),
        pid: worker.pid,
        is_shared: worker.is_shared,
        models: worker.models.iter().map(model).collect(),
        resident_bytes: worker.resident_bytes,
        base_bytes: worker.base_bytes,
    }
}
