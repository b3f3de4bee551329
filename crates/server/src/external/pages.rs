//! What REST says about memory and devices, TensorFlow's included.

use std::sync::Arc;

use api::Status;
use serde_json::{Map, Value as Json, json};
use tensorflow::{Gpu, ModelSnapshot, WorkerSnapshot};

use super::{Admission, External, ExternalDevice};
use crate::devices::Devices;
use crate::memory;

/// What REST says and does about memory: our own, and what TensorFlow has.
pub(crate) struct Pages {
    own: memory::Pages,
    devices: Arc<Devices>,
    external: Arc<External>,
}

impl Pages {
    pub(crate) fn new(devices: &Arc<Devices>, external: &Arc<External>) -> Self {
        let own = memory::Pages(Arc::clone(devices));
        Self { own, devices: Arc::clone(devices), external: Arc::clone(external) }
    }
}

impl api::Memory for Pages {
    fn memory(&self) -> Vec<u8> {
        self.external.refresh();
        let mut page = memory::memory(&self.devices);
        self.external.add_memory(&mut page);
        memory::print(&page)
    }

    fn devices(&self) -> Vec<u8> {
        let mut page = memory::devices(&self.devices);
        self.external.add_devices(&mut page);
        memory::print(&page)
    }

    fn change_devices(&self, change: &[u8]) -> Result<Vec<u8>, Status> {
        let text = std::str::from_utf8(change);
        let text = text.map_err(|_| Status::invalid("a device config is text, or JSON"))?;
        // Whichever refuses, nothing has changed.
        let (ours, undo) = self.devices.change_external(text, &self.external)?;
        let changed = self.own.change_devices(change)?;
        undo.keep();
        let mut page: Json = serde_json::from_slice(&changed).unwrap_or_default();
        if let Some(warnings) = page["warnings"].as_array_mut() {
            // They are not among the devices with arenas, but they were found.
            let is_ours = |warning: &Json| {
                let text = warning.as_str().unwrap_or_default();
                ours.iter()
                    .any(|name| *text == format!("{name} was not found, its rule has no effect"))
            };
            warnings.retain(|warning| !is_ours(warning));
        }
        self.external.add_devices(&mut page);
        Ok(memory::print(&page))
    }

    fn trim(&self) -> Vec<u8> {
        self.own.trim()
    }
}

impl External {
    /// Adds TensorFlow's GPUs and workers to the memory page.
    pub(crate) fn add_memory(&self, page: &mut Json) {
        let (gpus, workers) = (self.gpus(), self.worker_snapshots());
        let all = self.all();
        if let Some(devices) = page["devices"].as_array_mut() {
            devices.extend(all.iter().map(|one| device(one, &gpus, &workers)));
        }
        let worker = |worker: &WorkerSnapshot| {
            let held = all.iter().filter(|one| one.name() == worker.device);
            let held = held.filter_map(|one| {
                let bytes = one.held_by(&gpus, worker.pid)?;
                Some(json!({"device": one.name(), "bytes": bytes}))
            });
            let mut shown = show_worker(worker);
            shown["booked_bytes"] = json!(self.books.booked_bytes(worker.pid));
            shown["gpu_memory"] = json!(held.collect::<Vec<_>>());
            shown
        };
        page["workers"] = workers.iter().map(worker).collect();
    }

    /// Adds TensorFlow's GPUs to the page of devices.
    pub(crate) fn add_devices(&self, page: &mut Json) {
        let gpus = self.gpus();
        if let Some(physical) = page["physical"].as_array_mut() {
            physical.extend(self.found.iter().enumerate().map(|(number, found)| {
                let now = gpus.iter().find(|gpu| gpu.uuid == found.uuid).unwrap_or(found);
                json!({
                    "name": format!("gpu:{number}"),
                    "kind": "gpu",
                    "driver": "nvml",
                    "engine": "tensorflow",
                    "description": found.name,
                    "uuid": found.uuid,
                    "total_bytes": found.total_bytes,
                    "held_bytes": now.used_bytes,
                })
            }));
        }
        if let Some(logical) = page["logical"].as_array_mut() {
            logical.extend(self.all().iter().map(|one| {
                let device = one.device.lock();
                json!({
                    "name": device.name,
                    "kind": "gpu",
                    "physical": format!("gpu:{}", device.physical),
                    "engine": "tensorflow",
                    "limit_bytes": one.account.limit_bytes(),
                    "promised_bytes": one.account.held_bytes(),
                    "limit_setting": device.limit_by,
                    "growth": memory::growth(device.growth),
                    "growth_setting": device.growth_by.to_string(),
                    "priority": device.priority,
                })
            }));
        }
    }
}

/// Who holds which bytes of a GPU.
fn device(one: &ExternalDevice, gpus: &[Gpu], workers: &[WorkerSnapshot]) -> Json {
    let device = one.device.lock().clone();
    let on_it = || workers.iter().filter(|worker| worker.device == device.name);
    let held = |worker: &WorkerSnapshot| one.held_by(gpus, worker.pid);
    let ours: u64 = on_it().filter_map(held).sum();
    let used = gpus.iter().find(|gpu| gpu.uuid == one.gpu.uuid).map(|gpu| gpu.used_bytes);
    let admissions = one.admissions();
    let models = admissions.iter().map(|admission| {
        let own = on_it().find(|worker| !worker.is_shared && has(worker, admission));
        model(admission, own.and_then(held))
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
    let categories = categories(weights.sum(), ours);
    let context = one.context_bytes.lock().map_or(Json::Null, Json::from);
    json!({
        "name": device.name,
        "kind": "gpu",
        "physical": format!("gpu:{}", device.physical),
        "driver": "nvml",
        "engine": "tensorflow",
        "description": one.gpu.name,
        "limit_bytes": one.account.limit_bytes(),
        "limit_setting": device.limit_by,
        "reserved_bytes": ours,
        "in_use_bytes": ours,
        "peak_in_use_bytes": one.account.peak_bytes(),
        "promised_bytes": one.account.held_bytes(),
        "others_bytes": used.map(|used| used.saturating_sub(ours)),
        "free_bytes": one.account.free_bytes(),
        "worker_bytes": context,
        "growth": memory::growth(device.growth),
        "growth_setting": device.growth_by.to_string(),
        "categories": categories,
        "server": { "categories": {} },
        "shared": { "bytes": shared.sum::<u64>(), "saved_bytes": 0 },
        "models": models.collect::<Vec<_>>(),
    })
}

/// What workers hold: variables, and what TensorFlow and its driver need beside them. Sums to it.
fn categories(weights_bytes: u64, held_bytes: u64) -> Json {
    let weights = weights_bytes.min(held_bytes);
    json!({ "weights": weights, "context": held_bytes - weights })
}

/// Whether a version is in a worker.
fn has(worker: &WorkerSnapshot, admission: &Admission) -> bool {
    let is_it = |model: &ModelSnapshot| {
        model.model == admission.model && model.version == admission.version
    };
    worker.models.iter().any(is_it)
}

/// A version on a GPU; `held` is what its own worker holds, if it has one and the driver tells.
fn model(admission: &Admission, held: Option<u64>) -> Json {
    let weights = admission.needed.weights_bytes;
    let mut categories = Map::new();
    categories.insert("weights".to_owned(), weights.into());
    if let Some(held) = held {
        categories.insert("context".to_owned(), held.saturating_sub(weights).into());
    }
    json!({
        "name": admission.model,
        "version": admission.version,
        "bytes": held.map_or(weights, |held| held.max(weights)),
        "promised_bytes": admission.needed.bytes(),
        "categories": categories,
    })
}

fn show_worker(worker: &WorkerSnapshot) -> Json {
    let model = |model: &ModelSnapshot| {
        let mut shown = json!({
            "name": model.model,
            "version": model.version,
            "state": model.state.name(),
            "weights_bytes": model.weights_bytes,
        });
        if let Some(since) = model.loading_for {
            shown["loading_seconds"] = json!(since.as_secs_f64());
            shown["loading_seconds_max"] = json!(worker.load_timeout.as_secs_f64());
            shown["loading_grown_bytes"] = json!(model.grown_bytes);
        }
        shown
    };
    json!({
        "name": worker.name,
        "device": worker.device,
        "state": worker.state.name(),
        "pid": worker.pid,
        "shared": worker.is_shared,
        "tensorflow_version": worker.tensorflow_version,
        "tensorflow_devices": worker.devices,
        "resident_bytes": worker.resident_bytes,
        "base_bytes": worker.base_bytes,
        "limit_bytes": worker.limit_bytes,
        "over_limit": worker.is_over_limit(),
        "restarts": worker.n_restarts,
        "running": worker.n_running,
        "abandoned": worker.n_abandoned,
        "waiting": worker.n_waiting,
        "models": worker.models.iter().map(model).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tensorflow::ModelState;

    use super::*;
    use crate::external::books::tests::worker;

    #[test]
    fn what_workers_hold_beside_variables_is_their_context() {
        assert_eq!(categories(300, 1000), json!({ "weights": 300, "context": 700 }));
        assert_eq!(categories(300, 200), json!({ "weights": 200, "context": 0 }));
    }

    #[test]
    fn a_model_that_is_loading_shows_how_far_it_is_and_how_long_it_may_take() {
        let mut worker = worker(&[(ModelState::Loading, 500), (ModelState::Loaded, 7)]);
        worker.models[0].loading_for = Some(Duration::from_millis(1500));
        worker.models[0].grown_bytes = 125;
        (worker.load_timeout, worker.limit_bytes) = (Duration::from_secs(600), Some(999));
        let shown = show_worker(&worker);
        let loading = &shown["models"][0];
        assert_eq!(
            (&loading["state"], &loading["weights_bytes"]),
            (&"loading".into(), &500.into())
        );
        assert_eq!(loading["loading_seconds"], 1.5);
        assert_eq!(loading["loading_seconds_max"], 600.0);
        assert_eq!(loading["loading_grown_bytes"], 125);
        assert_eq!(shown["models"][1].get("loading_seconds"), None);
        assert_eq!((&shown["over_limit"], &shown["limit_bytes"]), (&true.into(), &999.into()));
    }
}
