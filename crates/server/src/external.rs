//! GPUs that only TensorFlow's workers can use: found, configured, watched and shown. NVIDIA's
//! management library knows them, and who holds how much of their memory.

mod monitor;
mod pages;
mod settings;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use device::Kind;
use device::logical::{self, DeviceRule, GpuOptions, GrowthRule, LogicalDevice, Physical};
pub(crate) use placement::{Admission, ExternalDevice};
use placement::{ExternalDevices, GpuUsage};
use tensorflow::{Gpu, Nvml, WorkerSnapshot, Workers, visible};
use tokio_util::sync::CancellationToken;

use crate::devices::{DeviceOptions, Devices, Undo};
use monitor::Meter;
pub(crate) use pages::Pages;

/// The environment variable that names another library with NVML's functions.
const LIBRARY: &str = "TENSORD_NVML";

/// The device of versions that are on no GPU.
pub(crate) const HOST: &str = "cpu:0";

/// The pause between two looks at what workers hold.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// TensorFlow's GPUs and workers.
pub struct External {
    meter: Arc<Meter>,
    /// The GPUs that were found, as they were then.
    found: Vec<Gpu>,
    pub(crate) placed: Arc<ExternalDevices>,
    /// The growth of GPUs of which a device config says nothing, if a flag says it.
    gpu_memory: Option<GrowthRule>,
    devices: Arc<Devices>,
}

impl External {
    /// Looks for GPUs that our own engine has no kernels for, and makes of them what the options
    /// say. Where GPUs are simulated, those of the machine are left alone.
    pub fn start(
        options: &DeviceOptions,
        workers: Option<Arc<Workers>>,
        devices: Arc<Devices>,
    ) -> Result<Arc<Self>> {
        let nvml = if options.simulated_gpus.is_empty() { open() } else { None };
        let found = nvml.as_ref().map(found).unwrap_or_default();
        let meter = Meter { nvml: nvml.filter(|_| !found.is_empty()), workers };
        let external = Self::new(meter, found, options, devices)?;
        for one in external.all() {
            let device = one.device.lock();
            let (limit, gpu) = (device.limit_bytes >> 20, &one.gpu.name);
            tracing::info!("Found device {} with {limit} MB memory: {gpu}", device.name);
        }
        Ok(Arc::new(external))
    }

    /// The GPUs that were found, as the options configure them.
    fn new(
        meter: Meter,
        found: Vec<Gpu>,
        options: &DeviceOptions,
        devices: Arc<Devices>,
    ) -> Result<Self> {
        let logical = configure(&found, options).context("GPUs of TensorFlow")?;
        let meter = Arc::new(meter);
        let placed = devices.placement.add_external(logical, Arc::clone(&meter) as _);
        Ok(Self { meter, found, placed, gpu_memory: options.gpu.gpu_memory, devices })
    }

    /// TensorFlow's workers, if there is a TensorFlow.
    pub fn workers(&self) -> Option<&Arc<Workers>> {
        self.meter.workers.as_ref()
    }

    /// The devices, by number.
    pub(crate) fn all(&self) -> &[Arc<ExternalDevice>] {
        self.placed.all()
    }

    /// The device of this name; `None` for the host.
    pub(crate) fn device(&self, name: &str) -> Option<Arc<ExternalDevice>> {
        self.all().iter().find(|one| one.name() == name).cloned()
    }

    /// The devices that a model may be on.
    pub fn candidates(&self, model: &str) -> Vec<Arc<ExternalDevice>> {
        self.placed.candidates(&self.devices.placement.models().get(model))
    }

    /// The device with the most room among those that a model may be on.
    pub fn roomiest(&self, model: &str) -> Option<Arc<ExternalDevice>> {
        let usage = self.placed.usage();
        let all = self.candidates(model);
        all.into_iter().min_by_key(|one| u64::MAX - one.room(&usage))
    }

    /// The logical devices of the GPUs, by number.
    pub(crate) fn logical(&self) -> Vec<LogicalDevice> {
        self.all().iter().map(|one| one.device.lock().clone()).collect()
    }

    /// The GPUs at this moment.
    pub(crate) fn gpus(&self) -> Vec<GpuUsage> {
        self.meter.gpus()
    }

    /// The bytes that a worker holds of a GPU, if the driver tells.
    pub fn held(&self, device: &ExternalDevice, worker: &WorkerSnapshot) -> Option<u64> {
        device.held_by(&self.gpus(), worker.pid)
    }

    pub(crate) fn worker_snapshots(&self) -> Vec<WorkerSnapshot> {
        self.meter.workers()
    }

    /// Brings the books up to date. Gives the bytes of workers that there is no room for.
    pub fn refresh(&self) -> u64 {
        self.placed.refresh()
    }

    /// Ends workers that each hold more than everybody together may hold of the host.
    fn end_giants(&self) {
        if let (Some(workers), Some(host)) = (self.workers(), self.devices.own().host()) {
            workers.end_beyond(host.space.account().limit_bytes());
        }
    }

    /// Puts other limits in force, all or none. Gives the names of the devices that are ours
    /// to change, and how to take the change back.
    pub(crate) fn change(
        &self,
        rules: &[DeviceRule],
    ) -> Result<(Vec<String>, Undo<'_>), device::Error> {
        let physical = physical(&self.found);
        let configured = logical::configure_rules(rules, &physical, self.gpu_memory)?;
        let all = self.all();
        let before: Vec<LogicalDevice> = all.iter().map(|one| one.device.lock().clone()).collect();
        // Workers were told which there are and how large they may become.
        logical::check_change(&before, &configured.devices, |_| true)?;
        let mut undo = Undo::default();
        for (one, new) in all.iter().zip(&configured.devices) {
            let limit = one.account.limit_bytes();
            one.account.set_limit(new.limit_bytes)?;
            let before = std::mem::replace(&mut *one.device.lock(), new.clone());
            undo.push(move || {
                drop(one.account.set_limit(limit));
                *one.device.lock() = before;
            });
        }
        Ok((physical.into_iter().map(|one| one.name).collect(), undo))
    }
}

/// Keeps the books up to date until the token is cancelled.
pub(crate) async fn watch(external: Arc<External>, token: CancellationToken) {
    let mut was_missing = false;
    while token.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await.is_some() {
        external.end_giants();
        let missing = external.refresh();
        if missing > 0 && !was_missing {
            tracing::warn!("workers hold {missing} bytes more than cpu:0 has room for");
        }
        was_missing = missing > 0;
    }
}

/// NVIDIA's management library: the one that is named, else the driver's.
fn open() -> Option<Nvml> {
    match std::env::var_os(LIBRARY).filter(|path| !path.is_empty()) {
        Some(path) => {
            let nvml = Nvml::open_at(path.as_ref());
            if nvml.is_none() {
                tracing::warn!("{LIBRARY} names no library with NVML's functions");
            }
            nvml
        }
        None => Nvml::open(),
    }
}

/// The GPUs that CUDA's programs see.
fn found(nvml: &Nvml) -> Vec<Gpu> {
    let list = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    visible(nvml.snapshot(), list.as_deref())
}

/// The names of the GPUs that only TensorFlow could use, for people.
pub fn names() -> Vec<String> {
    open().as_ref().map(found).unwrap_or_default().into_iter().map(|gpu| gpu.name).collect()
}

fn physical(found: &[Gpu]) -> Vec<Physical> {
    let physical = |(number, gpu): (usize, &Gpu)| Physical {
        name: format!("gpu:{number}"),
        kind: Kind::Gpu,
        total_bytes: gpu.total_bytes,
        free_bytes: gpu.total_bytes.saturating_sub(gpu.used_bytes),
        compute_capability: gpu.compute_capability,
        // As CUDA says of its streams.
        priorities: (0, -5),
    };
    found.iter().enumerate().map(physical).collect()
}

fn configure(found: &[Gpu], options: &DeviceOptions) -> Result<Vec<Arc<ExternalDevice>>> {
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let physical = physical(found);
    let (configured, is_limited) = match &options.rules {
        Some(rules) => (logical::configure_rules(rules, &physical, options.gpu.gpu_memory)?, true),
        None => {
            // What means nothing to our own engine, TensorFlow may do.
            let gpu = GpuOptions { without_effect: Vec::new(), ..options.gpu.clone() };
            let is_limited = !gpu.virtual_devices.is_empty() || gpu.num_virtual_devices_per_gpu > 1;
            (logical::configure(&gpu, &options.environment, &physical)?, is_limited)
        }
    };
    configured.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    let device = |device: LogicalDevice| {
        let gpu = monitor::gpu(&found[device.physical]);
        Arc::new(ExternalDevice::new(device, gpu, is_limited))
    };
    Ok(configured.devices.into_iter().map(device).collect())
}

#[cfg(test)]
pub(crate) mod tests {
    use pool::Pool;

    use super::*;
    use crate::active::Active;
    use crate::devices::LaneOptions;

    /// TensorFlow with GPUs of so many GiB beside the host.
    pub(crate) fn external_with(
        gpus: &[u64],
        options: &DeviceOptions,
        active: Arc<Active>,
    ) -> External {
        let (inline_max, pool) = (Duration::ZERO, Arc::new(Pool::new(1)));
        let lanes = LaneOptions { n_lanes: 1, inline_max, run_max: None, pool };
        let devices = Devices::start(options, &lanes, active).unwrap();
        let gpu = |(number, gib): (usize, &u64)| Gpu {
            index: u32::try_from(number).unwrap(),
            uuid: format!("GPU-{number}"),
            name: "a GPU".to_owned(),
            total_bytes: gib << 30,
            used_bytes: 0,
            compute_capability: None,
            processes: Vec::new(),
        };
        let found: Vec<Gpu> = gpus.iter().enumerate().map(gpu).collect();
        External::new(Meter { nvml: None, workers: None }, found, options, devices).unwrap()
    }
}
