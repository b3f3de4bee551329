//! `Placement`: all devices and versions of a process, and the one way in which versions get their
//! places.

#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock, Weak};

use parking_lot::{Mutex, MutexGuard};

use crate::adapt::Seat;
use crate::board::{Board, Groups};
use crate::claim::{Claim, Claims, Demand, Within};
use crate::external::{ExternalDevice, ExternalDevices, ExternalGroup, Monitor};
use crate::fleet::{Fleet, fleet};
use crate::group::{DeviceGroup, Entry, Lease};
use crate::models::{Models, Replicas};
use crate::own::{OwnDevices, OwnGroup};
use crate::refusal::Refusal;
use crate::resident::{Change, Resident, Version, Way};

/// All devices of a process, and the versions that are on them or look for a place. `V` is what a
/// version is.
pub struct Placement<V> {
    models: Arc<Models>,
    claims: Arc<Claims>,
    own: Arc<OwnDevices>,
    external: OnceLock<Arc<ExternalDevices>>,
    residents: Mutex<Vec<Weak<Resident<V>>>>,
    /// Held while a place is looked for, and while devices become others.
    leasing: Mutex<()>,
}

/// A fleet before anything of it is served.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The names of the devices: our own, then external ones.
    pub names: Vec<String>,
    /// The bytes that versions may have of each device.
    pub room_bytes: Vec<u64>,
    /// The seat of each version.
    pub seats: Vec<Seat>,
    /// For each version the devices, by index, that it may be on.
    pub open: Vec<Vec<usize>>,
    /// The devices of each version.
    pub fleet: Fleet,
}

impl<V> Default for Placement<V> {
    fn default() -> Self {
        let (models, claims) = (Arc::<Models>::default(), Arc::<Claims>::default());
        Self {
            own: Arc::new(OwnDevices::new(Arc::clone(&models), Arc::clone(&claims))),
            models,
            claims,
            external: OnceLock::new(),
            residents: Mutex::default(),
            leasing: Mutex::default(),
        }
    }
}

impl<V: Version> Placement<V> {
    /// The models that are to be served.
    pub fn models(&self) -> &Models {
        &self.models
    }

    /// Our own devices.
    pub fn own(&self) -> &Arc<OwnDevices> {
        &self.own
    }

    /// Takes in external devices, once.
    pub fn add_external(
        &self,
        devices: Vec<Arc<ExternalDevice>>,
        monitor: Arc<dyn Monitor>,
    ) -> Arc<ExternalDevices> {
        let (models, claims, own) = (&self.models, &self.claims, &self.own);
        let (models, claims, own) = (Arc::clone(models), Arc::clone(claims), Arc::clone(own));
        let make = || Arc::new(ExternalDevices::new(devices, monitor, models, claims, own));
        Arc::clone(self.external.get_or_init(make))
    }

    /// Takes in a version that looks for its place. It stays until it is dropped.
    pub fn admit(&self, demand: Demand, payload: V) -> Arc<Resident<V>> {
        let claim = Arc::new(Claim::new(demand));
        self.claims.add(&claim);
        let resident = Arc::new(Resident::new(claim, payload));
        self.residents.lock().push(Arc::downgrade(&resident));
        resident
    }

    /// Held while a place is looked for: one after another, so that nothing is promised twice, and
    /// no device becomes another.
    pub fn leasing(&self) -> MutexGuard<'_, ()> {
        self.leasing.lock()
    }

    /// Returns whether nobody looks for a place and no device becomes another.
    pub fn is_idle(&self) -> bool {
        self.leasing.try_lock().is_some()
    }

    /// The devices that a version is to be loaded on, or the changes that have to come first.
    ///
    /// # Errors
    /// If there is no place for it.
    pub fn lease(&self, resident: &Arc<Resident<V>>) -> Result<Way<V, Vec<Lease>>, Box<Refusal>> {
        let _leasing = self.leasing();
        let board = self.board(Some(resident));
        let on = match board.way(resident).ok_or_else(|| refusal(&board.groups, resident))? {
            Way::Free(on) => on,
            Way::After(changes) => return Ok(Way::After(changes)),
            Way::Later => return Ok(Way::Later),
        };
        self.tell_of_replicas(resident, on.len());
        Ok(Way::Free(promise(&board, resident, &on)?))
    }

    /// One more device for a version that serves.
    ///
    /// # Errors
    /// If there is no room for it there.
    pub fn lease_on(&self, resident: &Resident<V>, device: &str) -> Result<Lease, Box<Refusal>> {
        let nowhere = || Box::new(Refusal::nowhere(resident.demand.needed.bytes));
        let _leasing = self.leasing();
        let board = self.board(None);
        let at = board.groups.names.iter().position(|name| name == device);
        let at = at.ok_or_else(nowhere)?;
        let (group, index) = board.groups.find(at);
        let fits =
            || board.has_figures(resident, at) && board.takes(resident, at) <= group.free(index);
        // A worker says what it needs when it has been started.
        if resident.demand.within == Within::Devices && !fits() {
            return Err(Box::new(group.refusal(resident, index)));
        }
        promise(&board, resident, &[at])?.pop().ok_or_else(nowhere)
    }

    /// The changes that bring versions to where they should be.
    pub fn changes(&self) -> Vec<Change<V>> {
        let _leasing = self.leasing();
        self.board(None).all_changes()
    }

    /// The places of versions if they came in this order and nobody held anything: the plan before
    /// anything is served.
    pub fn plan(&self, claims: &[Claim]) -> Plan {
        let groups = self.groups();
        let names = groups.names.clone();
        let room = |device: usize| {
            let (group, at) = groups.find(device);
            group.room(at)
        };
        let room_bytes: Vec<u64> = (0..names.len()).map(room).collect();
        let seats: Vec<Seat> =
            claims.iter().map(|claim| groups.seat(claim, &[], &self.models)).collect();
        let open = claims.iter().map(|claim| {
            let entries = groups.entries(claim);
            (0..names.len()).filter(|device| entries[*device] == Entry::Open).collect()
        });
        let (open, fleet) = (open.collect(), fleet(&room_bytes, &seats));
        Plan { names, room_bytes, seats, open, fleet }
    }

    /// Forgets versions that are gone; whether there were any. What is known of them would hold
    /// pages of the heap that loads use, and with each page what else there was on it.
    pub fn forget_gone(&self) -> bool {
        self.own.forget_gone();
        self.claims.forget_gone();
        let mut residents = self.residents.lock();
        let n_before = residents.len();
        residents.retain(|resident| resident.strong_count() > 0);
        residents.shrink_to_fit();
        residents.len() < n_before
    }

    /// Our own devices, and external ones if there are any.
    fn groups(&self) -> Groups<'_> {
        // First, since it brings the books of the host up to date.
        let external = self.external.get().map(|external| ExternalGroup::new(external));
        let own: Box<dyn DeviceGroup + '_> = Box::new(OwnGroup::new(&self.own));
        let external = external.map(|group| Box::new(group) as Box<dyn DeviceGroup + '_>);
        Groups::new([Some(own), external].into_iter().flatten().collect())
    }

    /// All devices, and the versions that have a place, the one that looks for one, and those that
    /// wait for one and come before it.
    fn board(&self, looks: Option<&Resident<V>>) -> Board<'_, V> {
        let priority = |one: &Resident<V>| self.models.get(one.model()).rule.priority;
        let counts = |one: &Arc<Resident<V>>| {
            let comes_first = looks.is_some_and(|looks| {
                std::ptr::eq(&raw const **one, looks) || priority(one) > priority(looks)
            });
            comes_first || one.payload.serves_on().is_some() || one.is_loading()
        };
        let residents = self.residents.lock().iter().filter_map(Weak::upgrade).collect::<Vec<_>>();
        let residents = residents.into_iter().filter(counts).collect();
        Board::new(self.groups(), residents, &self.models)
    }

    /// Says it when a version gets fewer replicas than were asked for.
    fn tell_of_replicas(&self, resident: &Resident<V>, n_replicas: usize) {
        let model = &**resident.model();
        match self.models.get(model).rule.replicas {
            Replicas::All | Replicas::Number(1) => {}
            Replicas::Number(_) if resident.demand.keeps_state => {
                tracing::warn!(model, "requests change its variables: it has no replicas");
            }
            Replicas::Number(wanted) if wanted > n_replicas => {
                tracing::warn!(model, "there is room for {n_replicas} of {wanted} replicas");
            }
            Replicas::Number(_) => {}
        }
    }
}

/// Promises a version what it takes of some devices, which are all of one group.
fn promise<V: Version>(
    board: &Board<'_, V>,
    resident: &Resident<V>,
    on: &[usize],
) -> Result<Vec<Lease>, Box<Refusal>> {
    let Some(first) = on.first() else { return Ok(Vec::new()) };
    let (group, index) = board.groups.find(*first);
    let start = first - index;
    let on = on.iter().map(|at| (at - start, board.takes(resident, *at)));
    group.promise(resident, &on.collect::<Vec<_>>())
}

/// The refusal of a version: of the device with the most room among those that it may be on.
fn refusal(groups: &Groups<'_>, claim: &Claim) -> Box<Refusal> {
    let entries = groups.entries(claim);
    let open = (0..groups.names.len()).filter(|device| entries[*device] == Entry::Open);
    let best = open.min_by_key(|device| {
        let (group, at) = groups.find(*device);
        u64::MAX - group.free(at)
    });
    Box::new(match best {
        None => Refusal::nowhere(claim.demand.needed.bytes),
        Some(device) => {
            let (group, at) = groups.find(device);
            group.refusal(claim, at)
        }
    })
}
