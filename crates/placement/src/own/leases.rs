//! Leases: our own devices that a version may be loaded on, and the owners of its memory there.

use std::sync::Arc;

use device::{Account, Kind, Owner, Space};

use super::{OwnDevice, OwnDevices};
use crate::claim::{Claim, Promise, Share};
use crate::group::Lease;
use crate::models::Rule;
use crate::refusal::Refusal;

impl OwnDevices {
    /// Takes devices for a version, and promises it so many bytes of each, and of the host what it
    /// needs there.
    pub(super) fn take_all(
        &self,
        claim: &Claim,
        on: &[(&Arc<OwnDevice>, u64)],
    ) -> Result<Vec<Lease>, Box<Refusal>> {
        let served = self.models.get(&claim.demand.model);
        let n_gpus = on.iter().filter(|(one, _)| one.space.kind() == Kind::Gpu).count();
        let host = self.beside(claim, n_gpus)?;
        let host_share = self.host_share_beside(claim, n_gpus);
        let mut leases = Vec::new();
        let mut refused = None;
        for (device, bytes) in on {
            // Before its own are among them.
            let shared_bytes = self.shareable_bytes(claim, &served.rule, device);
            match self.take(claim, &served.rule, device, host.as_ref()) {
                Ok(owner) => {
                    let name = device.name().to_owned();
                    let share = Share { bytes: *bytes, shared_bytes };
                    claim.promise(Promise { device: name.clone(), share, host: host_share });
                    leases.push(Lease { device: name, owner: Some(owner) });
                }
                Err(refusal) => refused = Some(refusal),
            }
        }
        match refused {
            Some(refusal) if leases.is_empty() => Err(refusal),
            Some(_) | None => Ok(leases),
        }
    }

    /// The owner that pays on the host for a version on so many more GPUs. Fails if its strings and
    /// tables would not fit there.
    fn beside(&self, claim: &Claim, n_gpus: usize) -> Result<Option<Arc<Owner>>, Box<Refusal>> {
        let Some(host) = self.host().filter(|_| n_gpus > 0) else { return Ok(None) };
        let (model, holder) = (&claim.demand.model, claim.holder());
        let needed = claim.demand.needed.host_bytes.saturating_mul(n_gpus as u64);
        let free = self.unpromised_bytes(&host, Some(&holder));
        if needed > self.host_room(model, &host, free) {
            return Err(Box::new(self.refusal(&holder, &host, needed)));
        }
        // All replicas have one that pays for them there.
        let known = self.owners_on(&host.space).into_iter().find(|owner| *owner.holder() == holder);
        if known.is_some() {
            return Ok(known);
        }
        let owner = Owner::new(&host.space, holder, Some(self.account(model, &host)));
        self.note(&owner);
        Ok(Some(owner))
    }

    /// The owner that pays for a version on a device, and on the host beside it.
    fn take(
        &self,
        claim: &Claim,
        rule: &Rule,
        device: &Arc<OwnDevice>,
        host: Option<&Arc<Owner>>,
    ) -> Result<Arc<Owner>, Box<Refusal>> {
        let (model, holder) = (&claim.demand.model, claim.holder());
        let account = self.account(model, device);
        // Where it only waits while others move, nothing is set aside for it, and nothing limits
        // it.
        let is_place = self.places(claim, rule).iter().any(|one| Arc::ptr_eq(one, device));
        let reservation = rule.reservation.filter(|_| is_place);
        let (space, account) = match device.amount(reservation) {
            None => (Arc::clone(&device.space), Some(account).filter(|_| is_place)),
            Some(bytes) => (self.set_aside(claim, &account, device, bytes)?, None),
        };
        let host = host.filter(|_| device.space.kind() == Kind::Gpu);
        let owner = match host {
            Some(host) => Owner::beside(Arc::clone(host), &space, holder, account),
            None => Owner::new(&space, holder, account),
        };
        self.note(&owner);
        self.owners.add_keys(&owner, &claim.demand.keys);
        Ok(owner)
    }

    /// The memory that is set aside for a model on a device; its versions share it.
    fn set_aside(
        &self,
        claim: &Claim,
        account: &Arc<Account>,
        device: &OwnDevice,
        bytes: u64,
    ) -> Result<Arc<Space>, Box<Refusal>> {
        if let Some(space) = self.owners.set_aside(&claim.demand.model, &device.space) {
            return Ok(space);
        }
        let holder = claim.holder();
        let made = match bytes < account.limit_bytes() {
            true => device.space.set_aside_at_least(holder.clone(), account, bytes),
            false => device.space.set_aside(holder.clone(), account),
        };
        made.map_err(|_| Box::new(self.refusal(&holder, device, bytes)))
    }
}
