//! The memory that workers hold of the host, in its ledger.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use device::{Category, Charge, Holder, Owner};
use parking_lot::Mutex;

use super::reserve::{Drawn, Reserve, ReservePart};
use super::{Admission, ExternalDevice, ExternalDevices, Usage};
use crate::claim::Claim;
use crate::refusal::Refusal;

/// The part of the host's ledger that is about workers.
#[derive(Default)]
pub(super) struct Books {
    /// The memory that workers hold beside variables, by their processes.
    workers: Mutex<BTreeMap<u32, Charge>>,
    /// The memory that is reserved for models on the host.
    reserves: Mutex<Vec<Weak<Reserve>>>,
    /// The memory that the last worker held by itself; 0 before the first one.
    worker_bytes: AtomicU64,
}

/// The memory that was booked for a version in a worker; given back when it is dropped.
pub struct Booked {
    _host: Option<HostBooking>,
    _gpu: Option<Arc<Admission>>,
}

/// The variables of a version on the host, and its part of what is reserved for its model.
struct HostBooking {
    _weights: Charge,
    _part: Option<ReservePart>,
}

impl Books {
    /// The memory that the last worker held by itself; 0 before the first one.
    pub(super) fn worker_bytes(&self) -> u64 {
        self.worker_bytes.load(Ordering::Relaxed)
    }

    /// The memory that is reserved for a model.
    fn reserve_of(&self, model: &Arc<str>) -> Arc<Reserve> {
        let mut reserves = self.reserves.lock();
        reserves.retain(|one| one.strong_count() > 0);
        let known = reserves.iter().filter_map(Weak::upgrade).find(|one| one.model() == &**model);
        known.unwrap_or_else(|| {
            let new = Arc::new(Reserve::new(model));
            reserves.push(Arc::downgrade(&new));
            new
        })
    }

    /// Lets workers have what is reserved for their models, before it is booked as theirs.
    fn leave_reserves(&self, workers: &[(Holder, u64)]) {
        let reserves: Vec<Arc<Reserve>> =
            self.reserves.lock().iter().filter_map(Weak::upgrade).collect();
        reserves.iter().for_each(|one| one.leave(workers));
    }
}

impl ExternalDevices {
    /// Brings the books up to date. Gives the bytes of workers that there is no room for.
    pub fn refresh(&self) -> u64 {
        self.refresh_to(&self.usage())
    }

    /// The same to what was measured.
    pub(super) fn refresh_to(&self, usage: &Usage) -> u64 {
        self.devices.iter().for_each(|device| device.measure_context(usage));
        let Some(host) = self.own.host() else { return 0 };
        let mut workers = self.books.workers.lock();
        workers.retain(|pid, _| usage.workers.iter().any(|worker| worker.pid == Some(*pid)));
        let all = self.beside_variables(usage);
        self.books.leave_reserves(&all);
        let mut missing = 0;
        for (worker, (holder, bytes)) in usage.workers.iter().zip(all) {
            let Some(pid) = worker.pid else { continue };
            let charge = workers.entry(pid).or_insert_with(|| {
                let owner = Owner::new(&host.space, holder, None);
                Charge::new(&owner, Category::Context, 0).expect("nothing always fits")
            });
            missing += bytes - charge.set(bytes);
        }
        missing
    }

    /// The bytes that are booked for a process beside variables.
    pub fn booked_bytes(&self, pid: Option<u32>) -> u64 {
        let workers = self.books.workers.lock();
        pid.and_then(|pid| workers.get(&pid)).map_or(0, Charge::bytes)
    }

    /// Books the memory that a version in a worker needs, on a GPU or else on the host.
    /// `worker_bytes` are those that its worker holds by itself.
    ///
    /// # Errors
    /// If there is no room.
    pub fn book(
        &self,
        claim: &Claim,
        device: Option<&Arc<ExternalDevice>>,
        weights_bytes: u64,
        worker_bytes: u64,
    ) -> Result<Booked, Box<Refusal>> {
        self.books.worker_bytes.store(worker_bytes, Ordering::Relaxed);
        let gpu = device.map(|device| self.admit(claim, device, weights_bytes)).transpose()?;
        // What the worker holds by itself is in the books from now on.
        let usage = self.usage();
        let missing = self.refresh_to(&usage);
        let on_host = if gpu.is_some() { 0 } else { weights_bytes };
        let host = self.book_on_host(claim, gpu.is_none(), on_host, &usage);
        let host =
            host.map_err(|refusal| Refusal { worker_bytes: Some(worker_bytes), ..refusal })?;
        if missing > 0 {
            let host = self.own.host().map_or_else(String::new, |host| host.name().to_owned());
            return Err(Box::new(Refusal::of_worker(&host, missing, worker_bytes)));
        }
        Ok(Booked { _host: host, _gpu: gpu })
    }

    /// Books the variables of a version on the host; and if it is loaded there, what is reserved
    /// for its model beside them and nobody has taken yet.
    #[expect(clippy::result_large_err, reason = "a refusal is rare, and says much")]
    fn book_on_host(
        &self,
        claim: &Claim,
        is_loaded_there: bool,
        bytes: u64,
        usage: &Usage,
    ) -> Result<Option<HostBooking>, Refusal> {
        let Some(host) = self.own.host() else { return Ok(None) };
        let (model, version) = (&claim.demand.model, claim.demand.version);
        let holder = claim.holder();
        let account = Some(self.own.account(model, &host));
        let owner = Owner::new(&host.space, holder.clone(), account);
        self.own.note(&owner);
        let refused = |bytes: u64| self.own.refusal(&holder, &host, bytes);
        let reservation = self.models.get(model).rule.reservation.filter(|_| is_loaded_there);
        let part = host.amount(reservation).map(|all| {
            let workers = self.beside_variables(usage);
            let reserve = self.books.reserve_of(model);
            let worker_bytes = reserve.taken_by(version, &workers);
            let owner = Arc::clone(&owner);
            reserve.take(all, version, Drawn { owner, weights_bytes: bytes, worker_bytes })
        });
        // What is left is booked first: the variables of the next version come out of it.
        let part = part.transpose().map_err(|left| refused(bytes + left))?;
        let weights = Charge::new(&owner, Category::Weights, bytes).map_err(|_| refused(bytes))?;
        Ok(Some(HostBooking { _weights: weights, _part: part }))
    }

    /// The version that each worker is for, and the bytes that it holds of the host beside
    /// variables.
    fn beside_variables(&self, usage: &Usage) -> Vec<(Holder, u64)> {
        let is_on_gpu = |name: &str| self.devices.iter().any(|device| device.name() == name);
        let workers = usage.workers.iter();
        let one = workers.map(|one| (one.holder(), one.beside_variables(is_on_gpu(&one.device))));
        one.collect()
    }
}
