//! GPUs that only TensorFlow's workers can use: placed, limited and in the books, without an arena
//! of ours. NVIDIA's management library knows them, and who holds how much of their memory.

mod board;
mod books;
mod metrics;
mod pages;
mod place;
mod reserve;
mod visible;

use std::sync::{Arc, Weak};

use anyhow::{Context, Result};
use device::logical::{self, DeviceRule, GpuOptions, GrowthRule, LogicalDevice, Physical};
use device::{Account, Kind};
use parking_lot::Mutex;
use tensorflow::{Gpu, GpuProcess, Nvml, WorkerSnapshot, Workers};

pub(crate) use books::watch;
pub(crate) use pages::Pages;
pub(crate) use place::{Placed, Wish};

use crate::devices::{DeviceOptions, Devices, Undo};
use books::Books;

/// The environment variable that names another library with NVML's functions.
const LIBRARY: &str = "TENSORD_NVML";

/// The device of versions that are on no GPU.
pub(crate) const HOST: &str = "cpu:0";

/// What TensorFlow has: its GPUs, its workers, and what they hold.
pub(crate) struct External {
    nvml: Option<Nvml>,
    /// The GPUs that were found, as they were then.
    found: Vec<Gpu>,
    logical: Mutex<Vec<Arc<ExternalDevice>>>,
    workers: Option<Arc<Workers>>,
    /// How GPUs grow of which a device config says nothing, if a flag says it.
    gpu_memory: Option<GrowthRule>,
    devices: Arc<Devices>,
    books: Books,
}

/// A share of such a GPU.
pub(crate) struct ExternalDevice {
    device: Mutex<LogicalDevice>,
    /// Whether somebody gave it a limit that TensorFlow has to be told.
    is_limited: bool,
    gpu: Gpu,
    /// What was promised to models, against the limit.
    account: Account,
    /// What is promised to whom.
    admissions: Mutex<Vec<Weak<Admission>>>,
    /// What a worker holds of the GPU beside variables, as last measured.
    context_bytes: Mutex<Option<u64>>,
}

/// Memory of a GPU that was promised to a version, until it is unloaded.
pub(crate) struct Admission {
    device: Arc<ExternalDevice>,
    model: String,
    version: i64,
    needed: GpuNeed,
}

/// What a version needs of a GPU.
#[derive(Debug, Clone, Copy)]
struct GpuNeed {
    weights_bytes: u64,
    /// What is reserved for it at least.
    reserved_bytes: u64,
    /// What of its worker is counted for it.
    context_bytes: u64,
}

impl GpuNeed {
    fn bytes(&self) -> u64 {
        self.weights_bytes.max(self.reserved_bytes) + self.context_bytes
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.device.account.refund(self.needed.bytes());
    }
}

impl External {
    /// Looks for GPUs that our own engine has no kernels for, and makes of them what the options
    /// say. Where GPUs are simulated, those of the machine are left alone.
    pub(crate) fn start(
        options: &DeviceOptions,
        workers: Option<Arc<Workers>>,
        devices: Arc<Devices>,
    ) -> Result<Arc<Self>> {
        let nvml = if options.simulated_gpus.is_empty() { open() } else { None };
        let found = nvml.as_ref().map(found).unwrap_or_default();
        let logical = configure(&found, options).context("GPUs of TensorFlow")?;
        for one in &logical {
            let device = one.device.lock();
            let (limit, gpu) = (device.limit_bytes >> 20, &one.gpu.name);
            tracing::info!("Found device {} with {limit} MB memory: {gpu}", device.name);
        }
        let books = Books::new(&devices);
        let logical = Mutex::new(logical);
        let gpu_memory = options.gpu.gpu_memory;
        Ok(Arc::new(Self { nvml, found, logical, workers, gpu_memory, devices, books }))
    }

    /// TensorFlow's workers, if there is a TensorFlow.
    pub(crate) fn workers(&self) -> Option<&Arc<Workers>> {
        self.workers.as_ref()
    }

    /// The devices, by number.
    pub(crate) fn all(&self) -> Vec<Arc<ExternalDevice>> {
        self.logical.lock().clone()
    }

    /// What was made of the GPUs, by number.
    pub(crate) fn logical(&self) -> Vec<LogicalDevice> {
        self.all().iter().map(|one| one.device.lock().clone()).collect()
    }

    /// The GPUs at this moment.
    fn gpus(&self) -> Vec<Gpu> {
        let Some(nvml) = self.nvml.as_ref().filter(|_| !self.found.is_empty()) else {
            return Vec::new();
        };
        nvml.snapshot()
    }

    /// What a worker holds of a GPU, if the driver tells.
    pub(crate) fn held(&self, device: &ExternalDevice, worker: &WorkerSnapshot) -> Option<u64> {
        device.held_by(&self.gpus(), worker.pid)
    }

    fn worker_snapshots(&self) -> Vec<WorkerSnapshot> {
        self.workers.as_ref().map(|workers| workers.snapshot()).unwrap_or_default()
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
        for (one, new) in all.into_iter().zip(&configured.devices) {
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

impl ExternalDevice {
    pub(crate) fn name(&self) -> String {
        self.device.lock().name.clone()
    }

    /// The GPU's name, for people.
    pub(crate) fn gpu_name(&self) -> &str {
        &self.gpu.name
    }

    /// The most that may be held.
    pub(crate) fn limit_bytes(&self) -> u64 {
        self.account.limit_bytes()
    }

    fn admissions(&self) -> Vec<Arc<Admission>> {
        let mut all = self.admissions.lock();
        all.retain(|one| one.strong_count() > 0);
        all.iter().filter_map(Weak::upgrade).collect()
    }

    /// What a process holds of the GPU, if the driver tells.
    fn held_by(&self, gpus: &[Gpu], pid: Option<u32>) -> Option<u64> {
        let gpu = gpus.iter().find(|gpu| gpu.uuid == self.gpu.uuid)?;
        let is_it = |process: &&GpuProcess| Some(process.pid) == pid;
        gpu.processes.iter().find(is_it)?.used_bytes
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
    visible::visible(nvml.snapshot(), list.as_deref())
}

/// The names of the GPUs that only TensorFlow could use, for people.
pub(crate) fn names() -> Vec<String> {
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
        let account = Account::new(device.name.clone(), device.limit_bytes);
        let gpu = found[device.physical].clone();
        Arc::new(ExternalDevice {
            device: Mutex::new(device),
            is_limited,
            gpu,
            account,
            admissions: Mutex::default(),
            context_bytes: Mutex::default(),
        })
    };
    Ok(configured.devices.into_iter().map(device).collect())
}
