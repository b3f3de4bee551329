//! Fills what REST says about memory and devices with what TensorFlow has.

use std::sync::Arc;

use device::logical::ConfigWarning;
use pages::{
    Categories, DeviceKind, DeviceMemory, DevicesPage, EngineName, GpuBytes, LogicalEntry,
    MemoryCategory, MemoryPage, PhysicalEntry, ServerMemory, SharedMemory, VersionMemory,
    WorkerEntry, WorkerModel, WorkerModelPhase, WorkerPhase,
};
use placement::GpuUsage;
use status::Status;
use tensorflow::{Gpu, ModelSnapshot, ModelState, WorkerSnapshot, WorkerState};

use super::{Admission, External, ExternalDevice};
use crate::devices::Devices;
use crate::memory;

/// The driver of the GPUs that only TensorFlow uses.
const DRIVER: &str = "nvml";

/// The pages and calls of memory: our own, and what TensorFlow has.
pub(crate) struct Pages {
    devices: Arc<Devices>,
    external: Arc<External>,
}

impl Pages {
    pub(crate) fn new(devices: &Arc<Devices>, external: &Arc<External>) -> Self {
        Self { devices: Arc::clone(devices), external: Arc::clone(external) }
    }

    fn devices_page(&self) -> DevicesPage {
        let mut page = memory::devices(&self.devices);
        self.external.add_devices(&mut page);
        page
    }
}

impl api::Memory for Pages {
    fn memory(&self) -> Vec<u8> {
        self.external.refresh();
        let mut page = memory::memory(&self.devices);
        self.external.add_memory(&mut page);
        pages::print(&page).into_bytes()
    }

    fn devices(&self) -> Vec<u8> {
        pages::print(&self.devices_page()).into_bytes()
    }

    fn change_devices(&self, change: &[u8]) -> Result<Vec<u8>, Status> {
        let text = std::str::from_utf8(change);
        let text = text.map_err(|_| Status::invalid("a device config is text, or JSON"))?;
        // Whichever refuses, nothing has changed.
        let (ours, undo) = self.devices.change_external(text, &self.external)?;
        let mut warnings = self.devices.change(text)?;
        undo.keep();
        // They are not among the devices with arenas, but they were found.
        warnings.retain(|warning| match warning {
            ConfigWarning::NotFound { device } => !ours.contains(device),
            ConfigWarning::Note(_) => true,
        });
        warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        let warnings = warnings.iter().map(ToString::to_string).collect();
        Ok(pages::print(&DevicesPage { warnings, ..self.devices_page() }).into_bytes())
    }

    fn trim(&self) -> Vec<u8> {
        pages::print(&memory::trim(&self.devices)).into_bytes()
    }
}

impl External {
    /// Adds TensorFlow's GPUs and workers to the memory page.
    pub(crate) fn add_memory(&self, page: &mut MemoryPage) {
        let (gpus, workers) = (self.gpus(), self.worker_snapshots());
        let all = self.all();
        page.devices.extend(all.iter().map(|one| device(one, &gpus, &workers)));
        page.workers = workers
            .iter()
            .map(|worker| {
                let held = all.iter().filter(|one| one.name() == worker.device);
                let held = held.filter_map(|one| {
                    let bytes = one.held_by(&gpus, worker.pid)?;
                    Some(GpuBytes { device: one.name(), bytes })
                });
                let booked_bytes = self.placed.booked_bytes(worker.pid);
                worker_entry(worker, booked_bytes, held.collect())
            })
            .collect();
    }

    /// Adds TensorFlow's GPUs to the page of devices.
    pub(crate) fn add_devices(&self, page: &mut DevicesPage) {
        let gpus = self.gpus();
        page.physical.extend(self.found.iter().enumerate().map(|(number, found)| {
            let now = gpus.iter().find(|gpu| gpu.uuid == found.uuid);
            let held_bytes = now.map_or(found.used_bytes, |gpu| gpu.used_bytes);
            physical_entry(number, found, held_bytes)
        }));
        page.logical.extend(self.all().iter().map(|one| logical_entry(one)));
    }
}

fn physical_entry(number: usize, found: &Gpu, held_bytes: u64) -> PhysicalEntry {
    PhysicalEntry {
        name: format!("gpu:{number}"),
        kind: DeviceKind::Gpu,
        driver: DRIVER.to_owned(),
        engine: Some(EngineName::TensorFlow),
        description: Some(found.name.clone()),
        uuid: Some(found.uuid.clone()),
        total_bytes: found.total_bytes,
        limit_bytes: None,
        held_bytes,
        context_bytes: None,
        simulation: None,
    }
}

fn logical_entry(one: &ExternalDevice) -> LogicalEntry {
    let device = one.device.lock();
    LogicalEntry {
        name: device.name.clone(),
        kind: DeviceKind::Gpu,
        physical: format!("gpu:{}", device.physical),
        engine: Some(EngineName::TensorFlow),
        limit_bytes: one.account.limit_bytes(),
        limit_setting: device.limit_by.to_owned(),
        promised_bytes: Some(one.account.held_bytes()),
        growth: memory::growth(device.growth),
        growth_setting: device.growth_by.to_string(),
        priority: device.priority,
        lanes: None,
        fails_in: None,
    }
}

/// The holders of the bytes of a GPU.
fn device(one: &ExternalDevice, gpus: &[GpuUsage], workers: &[WorkerSnapshot]) -> DeviceMemory {
    let device = one.device.lock().clone();
    let on_it = || workers.iter().filter(|worker| worker.device == device.name);
    let held = |worker: &WorkerSnapshot| one.held_by(gpus, worker.pid);
    let ours: u64 = on_it().filter_map(held).sum();
    let used = gpus.iter().find(|gpu| gpu.uuid == one.gpu.uuid).map(|gpu| gpu.used_bytes);
    let admissions = one.admissions();
    let models = admissions.iter().map(|admission| {
        let own = on_it().find(|worker| !worker.is_shared && has(worker, admission));
        version(admission, own.and_then(held))
    });
    // What a shared worker holds beside its models' variables.
    let shared = on_it().filter(|worker| worker.is_shared).map(|worker| {
        let in_it = admissions.iter().filter(|admission| has(worker, admission));
        let weights: u64 = in_it.map(|admission| admission.needed.weights_bytes).sum();
        held(worker).map_or(0, |held| held.saturating_sub(weights))
    });
    // What is held by workers of which the driver tells, by what it is for.
    let told = |admission: &&Arc<Admission>| {
        on_it().any(|worker| has(worker, admission) && held(worker).is_some())
    };
    let weights = admissions.iter().filter(told).map(|admission| admission.needed.weights_bytes);
    DeviceMemory {
        name: device.name.clone(),
        kind: DeviceKind::Gpu,
        physical: format!("gpu:{}", device.physical),
        driver: DRIVER.to_owned(),
        engine: Some(EngineName::TensorFlow),
        description: Some(one.gpu.name.clone()),
        limit_bytes: one.account.limit_bytes(),
        limit_setting: device.limit_by.to_owned(),
        growth: memory::growth(device.growth),
        growth_setting: device.growth_by.to_string(),
        reserved_bytes: ours,
        in_use_bytes: ours,
        peak_in_use_bytes: one.account.peak_bytes(),
        free_bytes: one.account.free_bytes(),
        promised_bytes: one.account.held_bytes(),
        others_bytes: used.map(|used| used.saturating_sub(ours)),
        worker_bytes: *one.context_bytes.lock(),
        categories: categories(weights.sum(), ours),
        server: ServerMemory::default(),
        shared: SharedMemory { bytes: shared.sum(), ..SharedMemory::default() },
        models: models.collect(),
        // It has no arena of ours.
        ..DeviceMemory::default()
    }
}

/// The bytes that workers hold: variables, and what TensorFlow and its driver need beside them.
/// Sums to what is held.
fn categories(weights_bytes: u64, held_bytes: u64) -> Categories {
    let weights = weights_bytes.min(held_bytes);
    Categories::from([
        (MemoryCategory::Weights, weights),
        (MemoryCategory::Context, held_bytes - weights),
    ])
}

/// Returns whether a version is in a worker.
fn has(worker: &WorkerSnapshot, admission: &Admission) -> bool {
    let is_it = |model: &ModelSnapshot| {
        *model.model == *admission.model && model.version == admission.version
    };
    worker.models.iter().any(is_it)
}

/// A version on a GPU; `held` is what its own worker holds, if it has one and the driver tells.
fn version(admission: &Admission, held: Option<u64>) -> VersionMemory {
    let weights = admission.needed.weights_bytes;
    let mut categories = Categories::from([(MemoryCategory::Weights, weights)]);
    if let Some(held) = held {
        categories.insert(MemoryCategory::Context, held.saturating_sub(weights));
    }
    VersionMemory {
        name: admission.model.to_string(),
        version: admission.version,
        bytes: held.map_or(weights, |held| held.max(weights)),
        limit_bytes: None,
        promised_bytes: Some(admission.needed.bytes()),
        largest_plan_bytes: None,
        categories,
        largest_tensors: Vec::new(),
    }
}

fn worker_entry(
    worker: &WorkerSnapshot,
    booked_bytes: u64,
    gpu_memory: Vec<GpuBytes>,
) -> WorkerEntry {
    WorkerEntry {
        name: worker.name.clone(),
        device: worker.device.clone(),
        state: worker_phase(worker.state),
        pid: worker.pid,
        shared: worker.is_shared,
        tensorflow_version: worker.tensorflow_version.clone(),
        tensorflow_devices: worker.devices.clone(),
        resident_bytes: worker.resident_bytes,
        base_bytes: worker.base_bytes,
        booked_bytes,
        limit_bytes: worker.limit_bytes,
        over_limit: worker.is_over_limit(),
        gpu_memory,
        restarts: worker.n_restarts,
        running: worker.n_running,
        abandoned: worker.n_abandoned,
        waiting: worker.n_waiting,
        models: worker.models.iter().map(|model| worker_model(worker, model)).collect(),
    }
}

fn worker_model(worker: &WorkerSnapshot, model: &ModelSnapshot) -> WorkerModel {
    let since = model.loading_for;
    WorkerModel {
        name: model.model.clone(),
        version: model.version,
        state: model_phase(model.state),
        weights_bytes: model.weights_bytes,
        loading_seconds: since.map(|since| since.as_secs_f64()),
        loading_seconds_max: since.map(|_| worker.load_timeout.as_secs_f64()),
        loading_grown_bytes: since.map(|_| model.grown_bytes),
    }
}

fn worker_phase(state: WorkerState) -> WorkerPhase {
    match state {
        WorkerState::Starting => WorkerPhase::Starting,
        WorkerState::Up => WorkerPhase::Up,
        WorkerState::Renewing => WorkerPhase::Renewing,
        WorkerState::BackingOff => WorkerPhase::BackingOff,
        WorkerState::Ended => WorkerPhase::Ended,
    }
}

fn model_phase(state: ModelState) -> WorkerModelPhase {
    match state {
        ModelState::Waiting => WorkerModelPhase::Waiting,
        ModelState::Loading => WorkerModelPhase::Loading,
        ModelState::Loaded => WorkerModelPhase::Loaded,
        ModelState::Failed => WorkerModelPhase::Failed,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A worker with models in these states and with so many bytes of variables.
    fn worker(models: &[(ModelState, u64)]) -> WorkerSnapshot {
        let model = |(state, weights_bytes): &(ModelState, u64)| ModelSnapshot {
            model: "m".to_owned(),
            version: 3,
            state: *state,
            weights_bytes: *weights_bytes,
            loading_for: None,
            grown_bytes: 0,
        };
        WorkerSnapshot {
            name: "m/3".to_owned(),
            is_shared: false,
            device: "cpu:0".to_owned(),
            state: WorkerState::Up,
            pid: Some(1),
            tensorflow_version: String::new(),
            models: models.iter().map(model).collect(),
            devices: Vec::new(),
            n_restarts: 0,
            n_running: 0,
            n_abandoned: 0,
            n_waiting: 0,
            resident_bytes: 1000,
            base_bytes: 300,
            limit_bytes: None,
            load_timeout: Duration::ZERO,
        }
    }

    #[test]
    fn what_workers_hold_beside_variables_is_their_context() {
        let check = |weights, held, expected: [u64; 2]| {
            let categories = categories(weights, held);
            let of = |category| categories[&category];
            assert_eq!([of(MemoryCategory::Weights), of(MemoryCategory::Context)], expected);
        };
        check(300, 1000, [300, 700]);
        check(300, 200, [200, 0]);
    }

    #[test]
    fn a_model_that_is_loading_shows_how_far_it_is_and_how_long_it_may_take() {
        let mut worker = worker(&[(ModelState::Loading, 500), (ModelState::Loaded, 7)]);
        worker.models[0].loading_for = Some(Duration::from_millis(1500));
        worker.models[0].grown_bytes = 125;
        (worker.load_timeout, worker.limit_bytes) = (Duration::from_secs(600), Some(999));
        let shown = worker_entry(&worker, 0, Vec::new());
        let loading = &shown.models[0];
        assert_eq!((loading.state, loading.weights_bytes), (WorkerModelPhase::Loading, 500));
        assert_eq!(loading.loading_seconds, Some(1.5));
        assert_eq!(loading.loading_seconds_max, Some(600.0));
        assert_eq!(loading.loading_grown_bytes, Some(125));
        assert_eq!(shown.models[1].loading_seconds, None);
        assert_eq!((shown.over_limit, shown.limit_bytes), (true, Some(999)));
    }
}
