//! Where a version is loaded, and whether it fits there.
#![expect(clippy::result_large_err, reason = "a refusal is rare, and says much")]

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Weak};

use device::logical::{GrowthRule, LogicalDevice};
use device::placement::Replicas;
use device::{Account, Amount, Holder, Kind, Owner, Space};
use native::{Executor, WeightKey};

use super::promises::{Promise, Share};
use super::residents::{Board, Resident, Way};
use super::rules::limit_setting;
use super::{Devices, Logical, ModelRule};

/// What a version takes of the device that it is on, and of the host if that is another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Needed {
    /// The most while it is loaded, or with a run on one lane.
    pub(crate) bytes: u64,
    pub(crate) host_bytes: u64,
    /// What stays when it is loaded, what a run of one row then takes, and the largest run that was
    /// asked for; nothing if that is not known before it is loaded.
    pub(crate) resident_bytes: u64,
    pub(crate) run_bytes: u64,
    pub(crate) largest_run_bytes: u64,
}

/// What a version takes of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taken {
    /// What is its own.
    pub(crate) bytes: u64,
    /// What its runs take, which it shares with those of the other models there.
    pub(crate) runs: u64,
}

impl Needed {
    /// What it takes of a device with so many lanes, of which it may have so many bytes: runs on
    /// all lanes have room at once, or one run where even all of the device is too little for that.
    pub(crate) fn on(&self, n_lanes: usize, room_bytes: u64) -> Taken {
        let all = self.largest_run_bytes.saturating_mul(n_lanes as u64);
        let is_enough = self.resident_bytes.saturating_add(all) <= room_bytes;
        let runs = if is_enough { all } else { self.run_bytes };
        Taken { bytes: self.resident_bytes.max(self.bytes.saturating_sub(runs)), runs }
    }
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
    /// What nobody has or was promised.
    pub(crate) free_bytes: u64,
    /// What other models hold there.
    pub(crate) evictable_bytes: u64,
    /// Who holds the most.
    pub(crate) holders: Vec<(Holder, u64)>,
    /// Who is being loaded, and what they will take.
    pub(crate) promised: Vec<(Holder, u64)>,
    /// What runs of the models that are there may still take, which is promised to them.
    pub(crate) runs_bytes: u64,
    /// The model's own limit, if that is too small by itself, and the setting that says it.
    pub(crate) own_limit: Option<(u64, &'static str)>,
    /// What the device may hold, and what is reserved there, with the settings that say so.
    pub(crate) settings: Vec<String>,
}

/// How many holders a refusal names, and how many loads.
const N_HOLDERS: usize = 5;

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, needed_bytes, free_bytes, evictable_bytes, .. } = self;
        write!(
            f,
            "{device} has no room: {needed_bytes} bytes are needed, {free_bytes} are free and \
             {evictable_bytes} would be if other models were unloaded"
        )?;
        let list = |all: &[(Holder, u64)]| {
            let first = all.iter().take(N_HOLDERS);
            first.map(|(holder, bytes)| format!("{holder} {bytes}")).collect::<Vec<_>>().join(", ")
        };
        if !self.holders.is_empty() {
            write!(f, "; held by {}", list(&self.holders))?;
        }
        if !self.promised.is_empty() {
            write!(f, "; promised to loads under way: {}", list(&self.promised))?;
        }
        if self.runs_bytes > 0 {
            write!(f, "; promised to runs of the models there: {}", self.runs_bytes)?;
        }
        if let Some((limit, setting)) = self.own_limit {
            write!(f, "; the model itself may hold {limit} there at most ({setting})")?;
        }
        self.settings.iter().try_for_each(|setting| write!(f, "; {setting}"))
    }
}

impl Devices {
    /// Whether a model could take so many bytes on each device that it may be on, and on the host.
    pub(crate) fn has_room(&self, model: &str, bytes: u64) -> bool {
        let rule = self.rule(model);
        let has = |room: Option<u64>| room.is_some_and(|room| bytes <= room);
        let candidates = self.candidates(&rule);
        let free = |logical: &Logical| self.unpromised_bytes(logical, None);
        let room = |logical: &Logical| self.room(model, &rule, (logical, free(logical)));
        let host_room = |host: &Logical| self.host_room(model, (host, free(host)));
        let on_host = || self.host().is_none_or(|host| bytes <= host_room(&host));
        candidates.iter().all(|logical| has(room(logical))) && on_host()
    }

    /// How many bytes a model could still take on a device.
    pub(crate) fn room_for(&self, model: &str, logical: &Logical) -> u64 {
        let free = self.unpromised_bytes(logical, None);
        self.room(model, &self.rule(model), (logical, free)).unwrap_or(free)
    }

    /// How many bytes a model that is on GPUs could still take on the host. Nothing is set aside
    /// for it there.
    fn host_room(&self, model: &str, (host, free): (&Logical, u64)) -> u64 {
        free.min(self.account(model, host).free_bytes())
    }

    /// The kind of the devices that a model may be on.
    pub(crate) fn kind_for(&self, model: &str) -> Kind {
        let candidates = self.candidates(&self.rule(model));
        candidates.first().map_or(Kind::Cpu, |logical| logical.space.kind())
    }

    /// The devices that a version is to be loaded on, or what has to change first, on a board that
    /// has our own devices first.
    pub(crate) fn lease(
        &self,
        resident: &Arc<Resident>,
        board: impl FnOnce() -> Board,
    ) -> Result<Way<Vec<Lease>>, Refusal> {
        let _leasing = self.leasing();
        let (logical, board) = (self.all(), board());
        let on = match board.way(resident).ok_or_else(|| self.no_place(resident))? {
            Way::Free(on) => on,
            Way::After(changes) => return Ok(Way::After(changes)),
            Way::Later => return Ok(Way::Later),
        };
        let on: Vec<(&Arc<Logical>, u64)> = on
            .into_iter()
            .map(|device| (&logical[device], board.takes(resident, device)))
            .collect();
        self.tell_of_replicas(resident, on.len());
        Ok(Way::Free(self.take_all(resident, &on)?))
    }

    /// One more device for a version that serves.
    pub(crate) fn lease_on(&self, resident: &Resident, device: &str) -> Result<Lease, Refusal> {
        let _leasing = self.leasing();
        let Some(logical) = self.logical(device) else {
            return Err(nowhere(resident.needed.bytes));
        };
        let free = self.unpromised_bytes(&logical, None);
        let takes = self.takes(resident, &self.rule(&resident.model), &logical);
        let promised = self.promised_for_runs(&logical);
        let takes = takes.map(|taken| taken.bytes + taken.runs.saturating_sub(promised));
        let Some(bytes) = takes.filter(|bytes| *bytes <= free) else {
            return Err(self.refusal(resident.who(), &logical, resident.needed.bytes));
        };
        let mut leases = self.take_all(resident, &[(&logical, bytes)])?;
        leases.pop().ok_or_else(|| nowhere(resident.needed.bytes))
    }

    /// Says it when a version gets fewer replicas than were asked for.
    fn tell_of_replicas(&self, resident: &Resident, n_replicas: usize) {
        let model = &*resident.model;
        match self.rule(model).replicas {
            Replicas::All | Replicas::Number(1) => {}
            Replicas::Number(_) if resident.keeps_state => {
                tracing::warn!(model, "requests change its variables: it has no replicas");
            }
            Replicas::Number(wanted) if wanted > n_replicas => {
                tracing::warn!(model, "there is room for {n_replicas} of {wanted} replicas");
            }
            Replicas::Number(_) => {}
        }
    }

    /// Takes devices for a version, and promises it so many bytes of each, and of the host what it
    /// needs there.
    fn take_all(
        &self,
        resident: &Resident,
        on: &[(&Arc<Logical>, u64)],
    ) -> Result<Vec<Lease>, Refusal> {
        let rule = self.rule(&resident.model);
        let n_gpus = on.iter().filter(|(one, _)| one.space.kind() == Kind::Gpu).count();
        let host = self.beside(resident, n_gpus)?;
        let host_share = self.host_share_beside(resident, n_gpus);
        let mut leases = Vec::new();
        let mut refused = None;
        for (logical, bytes) in on {
            // Before its own are among them.
            let shared_bytes = self.shareable_bytes(resident, &rule, logical);
            match self.take(resident, &rule, (logical, host.as_ref())) {
                Ok(lease) => {
                    let device = logical.space.name().to_owned();
                    let share = Share { bytes: *bytes, shared_bytes };
                    resident.promise(Promise { device, share, host: host_share });
                    leases.push(lease);
                }
                Err(refusal) => refused = Some(refusal),
            }
        }
        match refused {
            Some(refusal) if leases.is_empty() => Err(refusal),
            Some(_) | None => Ok(leases),
        }
    }

    /// What a version would take of a device that it is not on; `None` if its own limit there is
    /// too small.
    pub(super) fn takes(
        &self,
        resident: &Resident,
        rule: &ModelRule,
        logical: &Logical,
    ) -> Option<Taken> {
        let own = |bytes| Taken { bytes, runs: 0 };
        // Weights that are there already are not needed again.
        let shareable = self.shareable_bytes(resident, rule, logical);
        let needed = resident.needed.bytes.saturating_sub(shareable);
        let account = self.account(&resident.model, logical);
        let Some((reserved, limit)) = self.aside_on(rule, logical) else {
            let room = logical.space.room_bytes().min(account.limit_bytes());
            let taken = resident.needed.on(logical.executor.lanes.n_lanes(), room);
            let bytes = taken.bytes.saturating_sub(shareable);
            return (needed <= account.free_bytes()).then_some(Taken { bytes, ..taken });
        };
        // What is set aside already is the model's to use.
        match self.aside(&resident.model, logical) {
            Some(space) if space.kept_bytes() > 0 => {
                let more = needed.saturating_sub(space.idle_bytes());
                let held = account.held_bytes().max(space.kept_bytes());
                (more <= account.limit_bytes().saturating_sub(held)).then_some(own(more))
            }
            Some(_) => (needed <= limit).then_some(own(0)),
            None => (needed <= limit).then_some(own(needed.max(reserved))),
        }
    }

    /// What a version with a rule takes of a device that has nothing of its model yet, as before
    /// anything is served; `None` if its own limit there is too small.
    pub(crate) fn takes_alone(
        &self,
        needed: &Needed,
        rule: &ModelRule,
        logical: &Logical,
    ) -> Option<Taken> {
        match self.aside_on(rule, logical) {
            Some((reserved, limit)) => {
                let bytes = needed.bytes.max(reserved);
                (needed.bytes <= limit).then_some(Taken { bytes, runs: 0 })
            }
            None => {
                let limit = self.limit_on(Some(rule), logical);
                let room = logical.space.room_bytes().min(limit);
                let taken = needed.on(logical.executor.lanes.n_lanes(), room);
                (needed.bytes <= limit).then_some(taken)
            }
        }
    }

    /// Says why a version found no place: of the device where the most is free.
    pub(crate) fn no_place(&self, resident: &Resident) -> Refusal {
        let mut candidates = self.places_of(resident, &self.rule(&resident.model));
        candidates.sort_by_cached_key(|one| u64::MAX - self.unpromised_bytes(one, None));
        let needed = resident.needed.bytes;
        let best = candidates.first();
        best.map_or_else(|| nowhere(needed), |best| self.refusal(resident.who(), best, needed))
    }

    /// Whether a version would find a place if nobody else held anything.
    pub(crate) fn could_hold(&self, resident: &Resident) -> bool {
        let rule = self.rule(&resident.model);
        self.places_of(resident, &rule).iter().any(|logical| {
            let shareable = self.shareable_bytes(resident, &rule, logical);
            let limit = self.limit_on(Some(&rule), logical);
            resident.needed.bytes.saturating_sub(shareable)
                <= limit.min(logical.space.account().limit_bytes())
        })
    }

    /// Says why a version found no room on a device.
    pub(crate) fn refusal(
        &self,
        who: (&str, i64),
        logical: &Logical,
        needed_bytes: u64,
    ) -> Refusal {
        let (model, _) = who;
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
        let free = self.unpromised_bytes(logical, Some(who));
        let room = self.room(model, &rule, (logical, free));
        // What cannot be set aside is missing as a whole.
        let reserved = self.aside_on(&rule, logical).map_or(0, |(reserved, _)| reserved);
        let needed_bytes = if room.is_none() { needed_bytes.max(reserved) } else { needed_bytes };
        Refusal {
            device: logical.space.name().to_owned(),
            needed_bytes,
            free_bytes: room.unwrap_or(free),
            evictable_bytes,
            holders,
            promised: self.promises(logical, Some(who)),
            runs_bytes: self.missing_for_runs(logical),
            own_limit: rule
                .limit
                .filter(|_| limit < needed_bytes)
                .map(|_| (limit, limit_setting(&self.config(model)))),
            settings: settings(&logical.device.lock(), reserved),
        }
    }

    /// The devices that a model may be on: those it names, else the GPUs, else the host.
    pub(super) fn candidates(&self, rule: &ModelRule) -> Vec<Arc<Logical>> {
        let named: Vec<Arc<Logical>> =
            rule.devices.iter().filter_map(|name| self.logical(name)).collect();
        if !named.is_empty() {
            return named;
        }
        let (gpus, cpus): (Vec<_>, Vec<_>) =
            self.all().into_iter().partition(|one| one.space.kind() == Kind::Gpu);
        if gpus.is_empty() { cpus } else { gpus }
    }

    /// How many bytes a model could still take on a device of which so many are free; `None` if
    /// what is to be set aside for it cannot be.
    fn room(&self, model: &str, rule: &ModelRule, (logical, free): (&Logical, u64)) -> Option<u64> {
        let account = self.account(model, logical);
        let Some((reserved, limit)) = self.aside_on(rule, logical) else {
            return Some(free.min(account.free_bytes()));
        };
        // What is set aside already is the model's to use.
        match self.aside(model, logical) {
            Some(space) if space.kept_bytes() > 0 => {
                let idle = space.idle_bytes();
                Some(space.free_bytes().min(idle.saturating_add(free)))
            }
            Some(_) => Some(limit),
            None => (reserved <= free).then_some(limit.min(free)),
        }
    }

    /// The most that a model may hold on a device.
    pub(crate) fn limit_on(&self, rule: Option<&ModelRule>, logical: &Logical) -> u64 {
        let of_device = logical.space.account().limit_bytes();
        self.amount_on(rule.and_then(|rule| rule.limit), logical).unwrap_or(of_device)
    }

    /// What is set aside for a model on a device, if anything is, and the most that it may hold
    /// there then: memory comes in whole granules.
    pub(crate) fn aside_on(&self, rule: &ModelRule, logical: &Logical) -> Option<(u64, u64)> {
        let least = self.amount_on(rule.reservation, logical)?;
        let limit = self.limit_on(Some(rule), logical);
        let of = |bytes: u64| logical.space.aside_bytes(bytes, limit);
        // More than the device may hold is not what is left of it in granules.
        let is_too_much = least > logical.space.account().limit_bytes();
        Some((if is_too_much { least } else { of(least) }, of(limit)))
    }

    /// How many bytes an amount is on a device: fractions are of all its memory.
    pub(crate) fn amount_on(&self, amount: Option<Amount>, logical: &Logical) -> Option<u64> {
        let physical = logical.device.lock().physical;
        amount.map(|amount| amount.of(self.physical[physical].total_bytes()))
    }

    /// The account of a model on a device, with the limit that it has by now.
    pub(crate) fn account(&self, model: &str, logical: &Logical) -> Arc<Account> {
        let device = logical.space.name().to_owned();
        let rule = self.rule(model);
        let limit = self.limit_on(Some(&rule), logical);
        let is_fixed = self.is_fixed(model, &rule, logical);
        let mut accounts = self.accounts.lock();
        // Those of models that are gone would stay for ever.
        accounts.retain(|_, account| is_known(account));
        let account = accounts
            .entry((model.to_owned(), device.clone()))
            .or_insert_with(|| Arc::new(Account::new(format!("model {model} on {device}"), limit)));
        if !is_fixed {
            set_limit(account, limit);
        }
        Arc::clone(account)
    }

    /// Whether all that a model may hold on a device is set aside: that stays as it is while it is
    /// held, but for a model that is to have nothing set aside any more.
    fn is_fixed(&self, model: &str, rule: &ModelRule, logical: &Logical) -> bool {
        let is_whole = |space: Arc<Space>| space.kept_bytes() == 0;
        rule.reservation.is_some() && self.aside(model, logical).is_some_and(is_whole)
    }

    /// Puts the limits that models have by now in force on all devices.
    pub(crate) fn relimit(&self) {
        let known: Vec<(String, String)> = self.accounts.lock().keys().cloned().collect();
        for (model, device) in known {
            let Some(logical) = self.logical(&device) else { continue };
            // What it holds beyond what was set aside and does not use goes back first.
            if let Some(space) = self.aside(&model, &logical).filter(|one| one.kept_bytes() > 0) {
                drop(space.trim("limit"));
            }
            let (account, rule) = (self.account(&model, &logical), self.rule(&model));
            let limit = self.limit_on(Some(&rule), &logical);
            let is_fixed = self.is_fixed(&model, &rule, &logical);
            if !is_fixed && account.limit_bytes() != limit {
                tracing::warn!("{} holds more than its limit of {limit} bytes", account.name());
            }
        }
    }

    /// Who pays on the host for a version on so many more GPUs. Fails if its strings and tables
    /// would not fit there.
    fn beside(&self, resident: &Resident, n_gpus: usize) -> Result<Option<Arc<Owner>>, Refusal> {
        let Some(host) = self.host().filter(|_| n_gpus > 0) else { return Ok(None) };
        let model = &resident.model;
        let needed = resident.needed.host_bytes.saturating_mul(n_gpus as u64);
        let free = self.unpromised_bytes(&host, Some(resident.who()));
        if needed > self.host_room(model, (&host, free)) {
            return Err(self.refusal(resident.who(), &host, needed));
        }
        let holder = resident.holder();
        // All replicas have one who pays for them there.
        let known = self.owners_on(&host.space).into_iter().find(|owner| *owner.holder() == holder);
        if known.is_some() {
            return Ok(known);
        }
        let owner = Owner::new(&host.space, holder, Some(self.account(model, &host)));
        self.note(&owner);
        Ok(Some(owner))
    }

    fn take(
        &self,
        resident: &Resident,
        rule: &ModelRule,
        (logical, host): (&Logical, Option<&Arc<Owner>>),
    ) -> Result<Lease, Refusal> {
        let (model, holder) = (&*resident.model, resident.holder());
        let account = self.account(model, logical);
        // Where it only waits while others move, nothing is set aside for it, and nothing limits
        // it.
        let places = self.places_of(resident, rule);
        let is_place = places.iter().any(|one| std::ptr::eq(&raw const **one, logical));
        let reservation = rule.reservation.filter(|_| is_place);
        let (space, account) = match self.amount_on(reservation, logical) {
            None => (Arc::clone(&logical.space), Some(account).filter(|_| is_place)),
            Some(bytes) => (self.set_aside(resident, &account, (bytes, logical))?, None),
        };
        let host = host.filter(|_| logical.space.kind() == Kind::Gpu);
        let owner = match host {
            Some(host) => Owner::beside(Arc::clone(host), &space, holder, account),
            None => Owner::new(&space, holder, account),
        };
        self.note(&owner);
        self.keys.lock().push((Arc::downgrade(&owner), resident.keys.clone()));
        Ok(Lease { executor: logical.executor.clone(), owner })
    }

    /// What is set aside for a model on a device; its versions share it.
    fn set_aside(
        &self,
        resident: &Resident,
        account: &Arc<Account>,
        (bytes, logical): (u64, &Logical),
    ) -> Result<Arc<Space>, Refusal> {
        if let Some(space) = self.aside(&resident.model, logical) {
            return Ok(space);
        }
        let holder = resident.holder();
        let made = match bytes < account.limit_bytes() {
            true => logical.space.set_aside_at_least(holder, account, bytes),
            false => logical.space.set_aside(holder, account),
        };
        made.map_err(|_| self.refusal(resident.who(), logical, bytes))
    }

    /// What was set aside for a model on a device, if anything was.
    fn aside(&self, model: &str, logical: &Logical) -> Option<Arc<Space>> {
        let is_of_model = |owner: &Arc<Owner>| match owner.holder() {
            Holder::Version { model: other, .. } => **other == *model,
            Holder::Server | Holder::Shared => false,
        };
        let owners: Vec<Arc<Owner>> = self.owners.lock().iter().filter_map(Weak::upgrade).collect();
        let known = owners.iter().filter(|owner| is_of_model(owner)).find(|owner| {
            let space = owner.space();
            Arc::ptr_eq(space.root(), &logical.space) && !Arc::ptr_eq(space, &logical.space)
        });
        known.map(|owner| Arc::clone(owner.space()))
    }
}

impl Devices {
    /// The bytes of a version's weights that are on a device already, as far as checksums tell.
    /// What is set aside for a model shares nothing with the rest of the device.
    fn shareable_bytes(&self, resident: &Resident, rule: &ModelRule, logical: &Logical) -> u64 {
        let space = match self.aside_on(rule, logical) {
            Some(_) => self.aside(&resident.model, logical),
            None => Some(Arc::clone(&logical.space)),
        };
        space.map_or(0, |space| self.bytes_there(&space, &resident.keys))
    }

    /// The bytes of weights that a space has already.
    fn bytes_there(&self, space: &Arc<Space>, wanted: &[WeightKey]) -> u64 {
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
/// limit once it has given enough back.
fn set_limit(account: &Account, limit: u64) {
    if account.limit_bytes() == limit || account.set_limit(limit).is_ok() {
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
        promised: Vec::new(),
        runs_bytes: 0,
        own_limit: None,
        settings: Vec::new(),
    }
}

/// What a device may hold, how it takes that if it does not grow, and what is to be set aside on it
/// for a model: each with the setting that says so.
fn settings(device: &LogicalDevice, reserved_bytes: u64) -> Vec<String> {
    let LogicalDevice { name, limit_bytes, limit_by, growth_by, .. } = device;
    let mut all = vec![format!("{name} may hold {limit_bytes} ({limit_by})")];
    if device.growth == GrowthRule::Reserved {
        all.push(format!("all of it was reserved at the start ({growth_by})"));
    }
    if reserved_bytes > 0 {
        all.push(format!("{reserved_bytes} are to be set aside for the model (its reservation)"));
    }
    all
}

/// Whether somebody has the account of a model, or it still holds memory.
pub(super) fn is_known(account: &Arc<Account>) -> bool {
    Arc::strong_count(account) > 1 || account.held_bytes() > 0
}
