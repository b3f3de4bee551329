//! Our own devices: the memory that versions hold and may take of them.

mod group;
mod leases;
mod promises;
mod room;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::logical::LogicalDevice;
use device::{Account, Amount, Kind, Owner, Space};
use parking_lot::Mutex;

pub(crate) use group::OwnGroup;

use crate::claim::{Claims, Owners, is_beside};
use crate::models::{Models, Rule};

/// A logical device that our own engine runs on.
pub struct OwnDevice {
    /// Its configuration, as it is by now.
    pub device: Mutex<LogicalDevice>,
    /// Its memory.
    pub space: Arc<Space>,
    /// The number of runs that it has at once.
    pub n_lanes: usize,
    /// All memory of the physical device, which fractions are of.
    pub total_bytes: Arc<AtomicU64>,
}

impl OwnDevice {
    /// Its name.
    pub fn name(&self) -> &str {
        self.space.name()
    }

    /// The bytes that an amount is on it: fractions are of all memory of the physical device.
    pub fn amount(&self, amount: Option<Amount>) -> Option<u64> {
        amount.map(|amount| amount.bytes_of(self.total_bytes.load(Ordering::Relaxed)))
    }

    /// The most that a model with a rule may hold on it.
    pub fn limit_for(&self, rule: &Rule) -> u64 {
        self.amount(rule.limit).unwrap_or_else(|| self.space.account().limit_bytes())
    }

    /// The memory that is set aside on it for a model with a rule, if any is.
    pub fn reservation_for(&self, rule: &Rule) -> Option<Reservation> {
        let least = self.amount(rule.reservation)?;
        let limit = self.limit_for(rule);
        let granules = |bytes: u64| self.space.arenas().aside_bytes(bytes, limit);
        // More than the device may hold is not what is left of it in granules.
        let is_too_much = least > self.space.account().limit_bytes();
        let bytes = if is_too_much { least } else { granules(least) };
        Some(Reservation { bytes, limit_bytes: granules(limit) })
    }
}

/// Memory that is set aside for a model on a device, in whole granules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reservation {
    /// The bytes that are set aside.
    pub bytes: u64,
    /// The most that the model may hold there then.
    pub limit_bytes: u64,
}

/// All of our own devices, the accounts of models on them, and the owners of memory.
pub struct OwnDevices {
    devices: Mutex<Vec<Arc<OwnDevice>>>,
    models: Arc<Models>,
    claims: Arc<Claims>,
    /// The limits of models, by model and device.
    accounts: Mutex<BTreeMap<(String, String), Arc<Account>>>,
    owners: Owners,
}

impl OwnDevices {
    pub(crate) fn new(models: Arc<Models>, claims: Arc<Claims>) -> Self {
        let (devices, accounts) = (Mutex::default(), Mutex::default());
        Self { devices, models, claims, accounts, owners: Owners::default() }
    }

    /// Replaces the devices.
    pub fn replace(&self, devices: Vec<Arc<OwnDevice>>) {
        *self.devices.lock() = devices;
    }

    /// The devices, CPUs first.
    pub fn all(&self) -> Vec<Arc<OwnDevice>> {
        self.devices.lock().clone()
    }

    /// The device of this name.
    pub fn get(&self, name: &str) -> Option<Arc<OwnDevice>> {
        self.devices.lock().iter().find(|one| one.name() == name).cloned()
    }

    /// The host: what cannot be on a GPU is there.
    pub fn host(&self) -> Option<Arc<OwnDevice>> {
        self.devices.lock().iter().find(|one| one.space.kind() == Kind::Cpu).cloned()
    }

    /// The devices that a model with a rule may be on: those it names, else GPUs, else the host.
    pub fn candidates(&self, rule: &Rule) -> Vec<Arc<OwnDevice>> {
        let named: Vec<_> = rule.devices.iter().filter_map(|name| self.get(name)).collect();
        if !named.is_empty() {
            return named;
        }
        let (gpus, cpus): (Vec<_>, Vec<_>) =
            self.all().into_iter().partition(|one| one.space.kind() == Kind::Gpu);
        if gpus.is_empty() { cpus } else { gpus }
    }

    /// The kind of the devices that a model may be on.
    pub fn kind_for(&self, model: &str) -> Kind {
        let candidates = self.candidates(&self.models.get(model).rule);
        candidates.first().map_or(Kind::Cpu, |device| device.space.kind())
    }

    /// The versions that hold memory of a device.
    pub fn owners_on(&self, space: &Arc<Space>) -> Vec<Arc<Owner>> {
        self.owners.on(space)
    }

    /// Returns whether an owner holds only the host's part of a version on a GPU.
    pub fn is_beside_a_gpu(&self, owner: &Arc<Owner>) -> bool {
        is_beside(owner, &self.owners.all())
    }

    /// Notes one that holds memory of a device.
    pub fn note(&self, owner: &Arc<Owner>) {
        self.owners.add(owner);
    }

    /// Forgets what is known of versions that are gone.
    pub(crate) fn forget_gone(&self) {
        self.accounts.lock().retain(|_, account| is_known(account));
        self.owners.forget_gone();
    }
}

impl OwnDevices {
    /// The account of a model on a device, with the limit that it has by now.
    pub fn account(&self, model: &str, device: &OwnDevice) -> Arc<Account> {
        let name = device.name().to_owned();
        let served = self.models.get(model);
        let limit = device.limit_for(&served.rule);
        let is_fixed = self.is_fixed(model, &served.rule, device);
        let mut accounts = self.accounts.lock();
        // Those of models that are gone would stay for ever.
        accounts.retain(|_, account| is_known(account));
        let account = accounts
            .entry((model.to_owned(), name.clone()))
            .or_insert_with(|| Arc::new(Account::new(format!("model {model} on {name}"), limit)));
        if !is_fixed {
            set_limit(account, limit);
        }
        Arc::clone(account)
    }

    /// Returns whether all that a model may hold on a device is set aside: that stays as it is
    /// while it is held, but for a model that is to have nothing set aside any more.
    fn is_fixed(&self, model: &str, rule: &Rule, device: &OwnDevice) -> bool {
        let is_whole = |space: Arc<Space>| space.arenas().kept_bytes() == 0;
        let aside = || self.owners.set_aside(model, &device.space);
        rule.reservation.is_some() && aside().is_some_and(is_whole)
    }

    /// Puts the limits that models have by now in force on all devices.
    pub fn relimit(&self) {
        let known: Vec<(String, String)> = self.accounts.lock().keys().cloned().collect();
        for (model, name) in known {
            let Some(device) = self.get(&name) else { continue };
            // What it holds beyond what was set aside and does not use goes back first.
            let aside = self.owners.set_aside(&model, &device.space);
            if let Some(space) = aside.filter(|one| one.arenas().kept_bytes() > 0) {
                drop(space.trim("limit"));
            }
            let (account, served) = (self.account(&model, &device), self.models.get(&model));
            let limit = device.limit_for(&served.rule);
            let is_fixed = self.is_fixed(&model, &served.rule, &device);
            if !is_fixed && account.limit_bytes() != limit {
                tracing::warn!("{} holds more than its limit of {limit} bytes", account.name());
            }
        }
    }
}

/// Gives an account another limit. One that holds more already may take nothing more, and has the
/// limit once it has given enough back.
fn set_limit(account: &Account, limit: u64) {
    if account.limit_bytes() == limit || account.set_limit(limit).is_ok() {
        return;
    }
    // More may be given back meanwhile, but no more is taken.
    drop(account.set_limit(account.held_bytes()));
}

/// Returns whether the account of a model is in use, or it still holds memory.
fn is_known(account: &Arc<Account>) -> bool {
    Arc::strong_count(account) > 1 || account.held_bytes() > 0
}
