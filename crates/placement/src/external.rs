//! External devices: GPUs that only TensorFlow's workers can use. They are placed, limited and in
//! the ledger, without an arena of ours; a monitor tells who holds how much of their memory.

mod books;
mod group;
mod reserve;
#[cfg(test)]
mod tests;
mod usage;

use std::sync::{Arc, Weak};

use device::logical::{GrowthRule, LogicalDevice};
use device::{Account, Holder};
use parking_lot::Mutex;

pub use books::Booked;
pub(crate) use group::ExternalGroup;
pub use usage::{GpuUsage, ModelUsage, Monitor, ProcessUsage, Usage, WorkerUsage};

use crate::claim::{Claim, Claims};
use crate::models::{Models, ServedModel};
use crate::own::OwnDevices;
use crate::refusal::{Figures, Refusal};
use books::Books;

/// A share of an external GPU.
pub struct ExternalDevice {
    /// Its configuration, as it is by now.
    pub device: Mutex<LogicalDevice>,
    /// `true` if a setting gave the device a limit that TensorFlow has to be told.
    pub is_limited: bool,
    /// The GPU, as it was found.
    pub gpu: GpuUsage,
    /// The bytes that were promised to models, against the limit.
    pub account: Account,
    /// The admissions of versions.
    admissions: Mutex<Vec<Weak<Admission>>>,
    /// The bytes that a worker holds of the GPU beside variables, as last measured.
    pub context_bytes: Mutex<Option<u64>>,
}

/// Memory of an external GPU that is charged to a version until it is unloaded.
pub struct Admission {
    device: Arc<ExternalDevice>,
    /// The model's name.
    pub model: Arc<str>,
    /// The version's number.
    pub version: i64,
    /// The memory that it needs.
    pub needed: ExternalNeed,
}

/// The memory that a version needs of an external GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExternalNeed {
    /// Its variables.
    pub weights_bytes: u64,
    /// The bytes that are reserved for it at least.
    pub reserved_bytes: u64,
    /// The part of its worker that counts for it.
    pub context_bytes: u64,
}

impl ExternalNeed {
    /// All bytes that it needs.
    pub fn bytes(&self) -> u64 {
        self.weights_bytes.max(self.reserved_bytes) + self.context_bytes
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.device.account.refund(self.needed.bytes());
    }
}

impl ExternalDevice {
    /// A device of which nothing is promised yet.
    pub fn new(device: LogicalDevice, gpu: GpuUsage, is_limited: bool) -> Self {
        let account = Account::new(device.name.clone(), device.limit_bytes);
        let (admissions, context_bytes) = (Mutex::default(), Mutex::default());
        Self { device: Mutex::new(device), is_limited, gpu, account, admissions, context_bytes }
    }

    /// Its name.
    pub fn name(&self) -> String {
        self.device.lock().name.clone()
    }

    /// The admissions of versions that are not unloaded.
    pub fn admissions(&self) -> Vec<Arc<Admission>> {
        let mut all = self.admissions.lock();
        all.retain(|one| one.strong_count() > 0);
        all.iter().filter_map(Weak::upgrade).collect()
    }

    /// The bytes that a process holds of the GPU, if the driver tells.
    pub fn held_by(&self, gpus: &[GpuUsage], pid: Option<u32>) -> Option<u64> {
        let gpu = gpus.iter().find(|gpu| gpu.uuid == self.gpu.uuid)?;
        gpu.processes.iter().find(|process| Some(process.pid) == pid)?.used_bytes
    }

    /// The bytes that all workers hold of the GPU, as far as the driver tells.
    fn held_by_workers(&self, usage: &Usage) -> u64 {
        let name = self.name();
        let on_it = usage.workers.iter().filter(|worker| worker.device == name);
        on_it.filter_map(|worker| self.held_by(&usage.gpus, worker.pid)).sum()
    }

    /// The bytes that were admitted for a version.
    fn admitted_bytes(&self, claim: &Claim) -> u64 {
        let (model, version) = (&claim.demand.model, claim.demand.version);
        let admissions = self.admissions();
        let own = admissions.iter().filter(|one| one.model == *model && one.version == version);
        own.map(|one| one.needed.bytes()).sum()
    }

    /// The bytes that may still be promised: within the limit, and beside what others hold.
    pub fn room(&self, usage: &Usage) -> u64 {
        let promised = self.account.held_bytes();
        let ours = self.held_by_workers(usage);
        let limit = self.account.limit_bytes();
        let gpu = usage.gpus.iter().find(|gpu| gpu.uuid == self.gpu.uuid);
        let there = gpu.map_or(limit, |gpu| {
            let others = gpu.used_bytes.saturating_sub(ours);
            limit.min(gpu.total_bytes.saturating_sub(others))
        });
        // Growth that is off takes all at once, of which models use what they were promised.
        let held = match self.device.lock().growth {
            GrowthRule::OnDemand => promised.max(ours),
            GrowthRule::Reserved => promised,
        };
        there.saturating_sub(held)
    }

    /// The memory that a version of a model needs by now.
    fn needed(&self, model: &ServedModel, usage: &Usage, weights_bytes: u64) -> ExternalNeed {
        let name = self.name();
        let is_shared_here = |worker: &WorkerUsage| worker.is_shared && worker.device == name;
        let has_worker = self.admissions().iter().any(|one| one.needed.context_bytes > 0)
            && usage.workers.iter().any(is_shared_here);
        let measured = self.context_bytes.lock().unwrap_or(0);
        let context_bytes = if has_worker && !model.has_own_worker() { 0 } else { measured };
        let reserved_bytes = model.rule.reservation;
        let reserved_bytes =
            reserved_bytes.map_or(0, |amount| amount.bytes_of(self.gpu.total_bytes));
        ExternalNeed { weights_bytes, reserved_bytes, context_bytes }
    }

    /// Notes the bytes that workers hold beside variables, or beside what they took at once.
    fn measure_context(&self, usage: &Usage) {
        let (name, logical) = (self.name(), self.device.lock().clone());
        for worker in usage.workers.iter().filter(|worker| worker.device == name) {
            let held = self.held_by(&usage.gpus, worker.pid).filter(|_| worker.is_quiet());
            let Some(held) = held else { continue };
            let known = match logical.growth {
                GrowthRule::OnDemand => worker.models.iter().map(|model| model.weights_bytes).sum(),
                GrowthRule::Reserved => logical.limit_bytes,
            };
            *self.context_bytes.lock() = Some(held.saturating_sub(known));
        }
    }
}

/// All external devices, and the memory that workers hold of them and of the host.
pub struct ExternalDevices {
    devices: Vec<Arc<ExternalDevice>>,
    monitor: Arc<dyn Monitor>,
    models: Arc<Models>,
    claims: Arc<Claims>,
    own: Arc<OwnDevices>,
    books: Books,
}

impl ExternalDevices {
    pub(crate) fn new(
        devices: Vec<Arc<ExternalDevice>>,
        monitor: Arc<dyn Monitor>,
        models: Arc<Models>,
        claims: Arc<Claims>,
        own: Arc<OwnDevices>,
    ) -> Self {
        Self { devices, monitor, models, claims, own, books: Books::default() }
    }

    /// The devices, by number.
    pub fn all(&self) -> &[Arc<ExternalDevice>] {
        &self.devices
    }

    /// The memory that GPUs and workers hold at this moment.
    pub fn usage(&self) -> Usage {
        self.monitor.usage()
    }

    /// The devices that a model may be on: those it names, else all of them. None if it names only
    /// other devices, or its own options list none of them.
    pub fn candidates(&self, model: &ServedModel) -> Vec<Arc<ExternalDevice>> {
        let may_be = |one: &&Arc<ExternalDevice>| {
            let number = one.device.lock().physical.to_string();
            let name = one.name();
            let (listed, named) = (&model.visible_gpus, &model.rule.devices);
            (listed.is_empty() || listed.contains(&number))
                && (named.is_empty() || named.contains(&name))
        };
        self.devices.iter().filter(may_be).cloned().collect()
    }

    /// Returns whether a version would find a place if nobody else held anything: on a device that
    /// it may be on; where there is none, on the host with a worker as large as the last one was
    /// when it had no model.
    pub fn could_hold(&self, claim: &Claim) -> bool {
        let served = self.models.get(&claim.demand.model);
        let (weights_bytes, nobody) = (claim.demand.needed.bytes, Usage::default());
        let candidates = self.candidates(&served);
        let fits = |one: &Arc<ExternalDevice>| {
            let needed = one.needed(&served, &nobody, weights_bytes);
            needed.bytes() <= one.account.limit_bytes()
        };
        let Some(host) = self.own.host().filter(|_| candidates.is_empty()) else {
            return candidates.iter().any(fits);
        };
        let reserved_bytes = host.amount(served.rule.reservation).unwrap_or(0);
        let with_worker = weights_bytes.saturating_add(self.books.worker_bytes());
        weights_bytes <= host.limit_for(&served.rule)
            && with_worker.max(reserved_bytes) <= host.space.account().limit_bytes()
    }

    /// The versions that are being loaded on a device, and the bytes that each will take besides
    /// what was admitted for it; but for one.
    fn promises(&self, device: &ExternalDevice, but: Option<&Claim>) -> Vec<(Holder, u64)> {
        let name = device.name();
        let rest = |claim: Arc<Claim>| {
            let admitted = device.admitted_bytes(&claim);
            let bytes = claim.promised_on(&name)?.saturating_sub(admitted);
            (bytes > 0).then(|| (claim.holder(), bytes))
        };
        let but = but.map(Claim::holder);
        let all = self.claims.all().into_iter();
        all.filter(|claim| Some(claim.holder()) != but).filter_map(rest).collect()
    }

    /// Charges the memory that a version needs of a device to it.
    fn admit(
        &self,
        claim: &Claim,
        device: &Arc<ExternalDevice>,
        weights_bytes: u64,
    ) -> Result<Arc<Admission>, Box<Refusal>> {
        let (usage, served) = (self.usage(), self.models.get(&claim.demand.model));
        let needed = device.needed(&served, &usage, weights_bytes);
        let fits = needed.bytes() <= device.room(&usage);
        if !fits || device.account.charge(needed.bytes()).is_err() {
            return Err(Box::new(self.refusal(claim, device, &usage, weights_bytes)));
        }
        let (model, version) = (Arc::clone(&claim.demand.model), claim.demand.version);
        let admission = Admission { device: Arc::clone(device), model, version, needed };
        let admission = Arc::new(admission);
        device.admissions.lock().push(Arc::downgrade(&admission));
        Ok(admission)
    }

    /// The refusal of a version that has no room on a device.
    fn refusal(
        &self,
        claim: &Claim,
        device: &ExternalDevice,
        usage: &Usage,
        weights_bytes: u64,
    ) -> Refusal {
        let served = self.models.get(&claim.demand.model);
        let needed = device.needed(&served, usage, weights_bytes);
        let ExternalNeed { reserved_bytes, context_bytes, .. } = needed;
        let promised = self.promises(device, Some(claim));
        let promised_bytes: u64 = promised.iter().map(|(_, bytes)| bytes).sum();
        let holders = device.admissions().iter().map(|one| one.holder_and_bytes()).collect();
        let limit_by = device.device.lock().limit_by;
        Refusal {
            device: device.name(),
            needed_bytes: needed.bytes(),
            free_bytes: device.room(usage).saturating_sub(promised_bytes),
            holders,
            promised,
            figures: Figures::External { weights_bytes, reserved_bytes, context_bytes },
            own_limit: None,
            settings: vec![format!("it may hold {} ({limit_by})", device.account.limit_bytes())],
            worker_bytes: None,
        }
    }
}

impl Admission {
    fn holder_and_bytes(&self) -> (Holder, u64) {
        let (model, version) = (Arc::clone(&self.model), self.version);
        (Holder::Version { model, version }, self.needed.bytes())
    }
}
