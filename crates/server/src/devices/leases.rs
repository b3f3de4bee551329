//! Where a version is loaded, and whether it fits there.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Weak};

use device::logical::GrowthRule;
use device::placement::Replicas;
use device::{Account, Holder, Kind, Owner, Space};
use native::{Executor, WeightKey};

use super::{Devices, Logical, ModelRule};

/// A version that is to be loaded.
pub(crate) struct Want<'a> {
    pub(crate) model: &'a str,
    pub(crate) version: i64,
    /// What it takes alone.
    pub(crate) needed: Needed,
    /// What its weights are known by.
    pub(crate) keys: &'a [WeightKey],
    /// Whether requests change it: then there is one of it, however many replicas are asked for.
    pub(crate) keeps_state: bool,
}

/// What a version takes of the device that it is on, and of the host if that is another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Needed {
    pub(crate) bytes: u64,
    pub(crate) host_bytes: u64,
}

/// A device that a version may be loaded on, and who pays for it there.
pub(crate) struct Lease {
    pub(crate) executor: Executor,
    pub(crate) owner: Arc<Owner>,
}

/// Why there is no room for a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) device: String,
    pub(crate) needed_bytes: u64,
    pub(crate) free_bytes: u64,
    /// What other models hold there.
    pub(crate) evictable_bytes: u64,
    /// Who holds the most.
    pub(crate) holders: Vec<(Holder, u64)>,
    /// The model's own limit, if that is too small by itself.
    pub(crate) own_limit_bytes: Option<u64>,
}

/// How many holders a refusal names.
const N_HOLDERS: usize = 5;

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, needed_bytes, free_bytes, evictable_bytes, .. } = self;
        write!(
            f,
            "{device} has no room: {needed_bytes} bytes are needed, {free_bytes} are free and \
             {evictable_bytes} would be if other models were unloaded"
        )?;
        let holders = self.holders.iter().take(N_HOLDERS);
        let holders: Vec<String> =
            holders.map(|(holder, bytes)| format!("{holder} {bytes}")).collect();
        if !holders.is_empty() {
            write!(f, "; held by {}", holders.join(", "))?;
        }
        if let Some(limit) = self.own_limit_bytes {
            write!(f, "; the model itself may hold {limit} there at most")?;
        }
        Ok(())
    }
}

impl Devices {
    /// Whether a model could take so many bytes on each device that it may be on, and on the host.
    pub(crate) fn has_room(&self, model: &str, bytes: u64) -> bool {
        let rule = self.rule(model);
        let has = |room: Option<u64>| room.is_some_and(|room| bytes <= room);
        let candidates = self.candidates(&rule);
        let on_host = || self.host().is_none_or(|host| has(self.host_room(model, &host)));
        candidates.iter().all(|logical| has(self.room(model, &rule, logical))) && on_host()
    }

    /// How many bytes a model that is on GPUs could still take on the host. Nothing is set aside
    /// for it there.
    fn host_room(&self, model: &str, host: &Logical) -> Option<u64> {
        let account = self.account(model, host);
        Some(host.space.free_bytes().min(account.free_bytes()))
    }

    /// The kind of the devices that a model may be on.
    pub(crate) fn kind_for(&self, model: &str) -> Kind {
        let candidates = self.candidates(&self.rule(model));
        candidates.first().map_or(Kind::Cpu, |logical| logical.space.kind())
    }

    /// The devices that a version is to be loaded on.
    pub(crate) fn lease(&self, want: &Want<'_>) -> Result<Vec<Lease>, Refusal> {
        loop {
            let leases = self.choose(want)?;
            // Devices that were not in use yet may have become others meanwhile.
            if leases.iter().all(|lease| self.is_there(lease)) {
                return Ok(leases);
            }
        }
    }

    /// Whether the device of a lease is still one of the devices. From now on it stays, since it is
    /// in use.
    fn is_there(&self, lease: &Lease) -> bool {
        self.all().iter().any(|one| Arc::ptr_eq(&one.space, lease.owner.space().root()))
    }

    fn choose(&self, want: &Want<'_>) -> Result<Vec<Lease>, Refusal> {
        let Want { model, needed, .. } = *want;
        let needed_bytes = needed.bytes;
        let rule = self.rule(model);
        let mut candidates = self.candidates(&rule);
        let rooms: Vec<Option<u64>> =
            candidates.iter().map(|logical| self.room(model, &rule, logical)).collect();
        let mut fitting: Vec<(&Arc<Logical>, u64)> = Vec::new();
        for (logical, room) in candidates.iter().zip(rooms) {
            // Weights that are there already are not needed again.
            let shareable = self.shareable_bytes(&logical.space, want.keys);
            if let Some(room) = room.filter(|room| needed_bytes <= room + shareable) {
                fitting.push((logical, room));
            }
        }
        let n_models = |logical: &Logical| self.owners_on(&logical.space).len();
        fitting.sort_by_key(|(logical, room)| (n_models(logical), u64::MAX - room));
        let wanted = match rule.replicas {
            Replicas::Number(1) => 1,
            _ if want.keeps_state => {
                tracing::warn!(model, "requests change its variables: it has no replicas");
                1
            }
            Replicas::Number(n) => n,
            Replicas::All => usize::MAX,
        };
        let mut leases = Vec::new();
        let mut refused = None;
        let n_gpus = fitting.iter().take(wanted);
        let n_gpus = n_gpus.filter(|(logical, _)| logical.space.kind() == Kind::Gpu).count();
        let host = self.beside(want, n_gpus)?;
        for (logical, _) in fitting.iter().take(wanted) {
            match self.take(want, &rule, (logical, host.as_ref())) {
                Ok(lease) => leases.push(lease),
                Err(refusal) => refused = Some(refusal),
            }
        }
        drop(fitting);
        if leases.is_empty() {
            candidates.sort_by_key(|logical| u64::MAX - logical.space.free_bytes());
            let best = candidates.first().map(|best| self.refusal(model, best, needed_bytes));
            return Err(refused.or(best).unwrap_or_else(|| nowhere(needed_bytes)));
        }
        Ok(leases)
    }

    /// Says why a version found no room on a device.
    pub(crate) fn refusal(&self, model: &str, logical: &Logical, needed_bytes: u64) -> Refusal {
        let snapshot = logical.space.snapshot();
        let holders = snapshot.holders();
        let others = holders.iter().filter(|(holder, _)| match holder {
            Holder::Version { model: other, .. } => **other != *model,
            Holder::Shared => true,
            Holder::Server => false,
        });
        let evictable_bytes = others.map(|(_, bytes)| bytes).sum();
        let rule = self.rule(model);
        let limit = self.limit_on(Some(&rule), logical);
        let room = self.room(model, &rule, logical);
        // What cannot be set aside is missing as a whole.
        let needed_bytes = if room.is_none() { needed_bytes.max(limit) } else { needed_bytes };
        Refusal {
            device: logical.space.name().to_owned(),
            needed_bytes,
            free_bytes: room.unwrap_or_else(|| logical.space.free_bytes()),
            evictable_bytes,
            holders,
            own_limit_bytes: rule.limit.map(|_| limit).filter(|limit| *limit < needed_bytes),
        }
    }

    /// The devices that a model may be on: those it names, else the GPUs, else the host.
    fn candidates(&self, rule: &ModelRule) -> Vec<Arc<Logical>> {
        let named: Vec<Arc<Logical>> =
            rule.devices.iter().filter_map(|name| self.logical(name)).collect();
        if !named.is_empty() {
            return named;
        }
        let (gpus, cpus): (Vec<_>, Vec<_>) =
            self.all().into_iter().partition(|one| one.space.kind() == Kind::Gpu);
        if gpus.is_empty() { cpus } else { gpus }
    }

    /// How many bytes a model could still take on a device; `None` if what is to be set aside for
    /// it cannot be.
    fn room(&self, model: &str, rule: &ModelRule, logical: &Logical) -> Option<u64> {
        let free = logical.space.free_bytes();
        let limit = self.limit_on(Some(rule), logical);
        let account = self.account(model, logical);
        match rule.growth {
            GrowthRule::OnDemand => Some(free.min(account.free_bytes())),
            // What is set aside already is the model's to use.
            GrowthRule::Reserved if account.held_bytes() > 0 => Some(limit),
            GrowthRule::Reserved => (limit <= free).then_some(limit),
        }
    }

    /// The most that a model may hold on a device.
    pub(crate) fn limit_on(&self, rule: Option<&ModelRule>, logical: &Logical) -> u64 {
        let of_device = logical.space.account().limit_bytes();
        let physical = logical.device.lock().physical;
        let total = self.physical[physical].total_bytes();
        rule.and_then(|rule| rule.limit).map_or(of_device, |limit| limit.of(total))
    }

    /// The account of a model on a device, with the limit that it has by now.
    pub(crate) fn account(&self, model: &str, logical: &Logical) -> Arc<Account> {
        let device = logical.space.name().to_owned();
        let rule = self.rule(model);
        let limit = self.limit_on(Some(&rule), logical);
        let mut accounts = self.accounts.lock();
        // Those of models that are gone would stay for ever.
        accounts.retain(|_, account| Arc::strong_count(account) > 1 || account.held_bytes() > 0);
        let account = accounts
            .entry((model.to_owned(), device.clone()))
            .or_insert_with(|| Arc::new(Account::new(format!("model {model} on {device}"), limit)));
        set_limit(account, limit, rule.growth);
        Arc::clone(account)
    }

    /// Puts the limits that models have by now in force on all devices.
    pub(crate) fn relimit(&self) {
        let known: Vec<(String, String)> = self.accounts.lock().keys().cloned().collect();
        for (model, device) in known {
            let Some(logical) = self.logical(&device) else { continue };
            let (account, rule) = (self.account(&model, &logical), self.rule(&model));
            let limit = self.limit_on(Some(&rule), &logical);
            if rule.growth == GrowthRule::OnDemand && account.limit_bytes() != limit {
                tracing::warn!("{} holds more than its limit of {limit} bytes", account.name());
            }
        }
    }

    /// Who pays on the host for a version on so many GPUs. Fails if its strings and tables would
    /// not fit there.
    fn beside(&self, want: &Want<'_>, n_gpus: usize) -> Result<Option<Arc<Owner>>, Refusal> {
        let Want { model, version, .. } = *want;
        let Some(host) = self.host().filter(|_| n_gpus > 0) else { return Ok(None) };
        let needed = want.needed.host_bytes.saturating_mul(n_gpus as u64);
        if self.host_room(model, &host).is_none_or(|room| needed > room) {
            return Err(self.refusal(model, &host, needed));
        }
        let holder = Holder::Version { model: Arc::from(model), version };
        let owner = Owner::new(&host.space, holder, Some(self.account(model, &host)));
        self.note(&owner);
        Ok(Some(owner))
    }

    fn take(
        &self,
        want: &Want<'_>,
        rule: &ModelRule,
        (logical, host): (&Logical, Option<&Arc<Owner>>),
    ) -> Result<Lease, Refusal> {
        let Want { model, version, .. } = *want;
        let holder = Holder::Version { model: Arc::from(model), version };
        let account = self.account(model, logical);
        let (space, account) = match rule.growth {
            GrowthRule::OnDemand => (Arc::clone(&logical.space), Some(account)),
            GrowthRule::Reserved => (self.set_aside(model, &holder, account, logical)?, None),
        };
        let host = host.filter(|_| logical.space.kind() == Kind::Gpu);
        let owner = match host {
            Some(host) => Owner::beside(Arc::clone(host), &space, holder, account),
            None => Owner::new(&space, holder, account),
        };
        self.note(&owner);
        let mut keys = self.keys.lock();
        keys.retain(|(owner, _)| owner.strong_count() > 0);
        keys.push((Arc::downgrade(&owner), want.keys.to_vec()));
        drop(keys);
        Ok(Lease { executor: logical.executor.clone(), owner })
    }

    /// What is set aside for a model on a device; its versions share it.
    fn set_aside(
        &self,
        model: &str,
        holder: &Holder,
        account: Arc<Account>,
        logical: &Logical,
    ) -> Result<Arc<Space>, Refusal> {
        let is_of_model = |owner: &Arc<Owner>| match owner.holder() {
            Holder::Version { model: other, .. } => **other == *model,
            Holder::Server | Holder::Shared => false,
        };
        let owners: Vec<Arc<Owner>> = self.owners.lock().iter().filter_map(Weak::upgrade).collect();
        let known = owners.iter().filter(|owner| is_of_model(owner)).find(|owner| {
            let space = owner.space();
            Arc::ptr_eq(space.root(), &logical.space) && !Arc::ptr_eq(space, &logical.space)
        });
        if let Some(owner) = known {
            return Ok(Arc::clone(owner.space()));
        }
        let needed = account.limit_bytes();
        logical
            .space
            .set_aside(holder.clone(), account)
            .map_err(|_| self.refusal(model, logical, needed))
    }
}

impl Devices {
    /// The bytes of weights that are on a device already, as far as checksums tell.
    fn shareable_bytes(&self, space: &Arc<Space>, wanted: &[WeightKey]) -> u64 {
        let keys = self.keys.lock();
        let is_here = |owner: &Weak<Owner>| {
            owner.upgrade().is_some_and(|owner| Arc::ptr_eq(owner.space(), space))
        };
        let here = keys.iter().filter(|(owner, _)| is_here(owner)).flat_map(|(_, keys)| keys);
        let here: BTreeSet<&WeightKey> = here.collect();
        wanted.iter().filter(|key| here.contains(key)).map(|key| key.bytes).sum()
    }
}

/// Gives an account another limit. One that holds more already may take nothing more, and has the
/// limit once it has given enough back. What is set aside stays as it is while it is held.
fn set_limit(account: &Account, limit: u64, growth: GrowthRule) {
    let is_set_aside = growth == GrowthRule::Reserved && account.held_bytes() > 0;
    if is_set_aside || account.limit_bytes() == limit || account.set_limit(limit).is_ok() {
        return;
    }
    // More may be given back meanwhile, but no more is taken.
    drop(account.set_limit(account.held_bytes()));
}

fn nowhere(needed_bytes: u64) -> Refusal {
    Refusal {
        device: "no device".to_owned(),
        needed_bytes,
        free_bytes: 0,
        evictable_bytes: 0,
        holders: Vec::new(),
        own_limit_bytes: None,
    }
}
