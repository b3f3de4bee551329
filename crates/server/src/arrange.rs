//! Brings versions to where they should be: moves them, adds replicas and takes them away, while
//! they serve.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lifecycle::{Id, Lifecycle, LoadError};
use native::Opened;
use session::{Leaving, Member, Servable};
use status::{Code, Result, Status};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio_util::sync::CancellationToken;

use placement::{ChangeKind, Lease, Within};

use crate::devices::{Change, Resident, Way};
use crate::loader::{Engines, refused};
use crate::{loads, warmup};

/// The number of times that one looks for its place when others have made way for it.
const N_TRIES_MAX: usize = 4;

/// The number of times that it is looked again whether versions are where they should be, when some
/// were moved.
const N_ROUNDS_MAX: usize = 4;

/// The longest time that a version that gives way may take to answer its requests.
const GIVE_WAY_MAX: Duration = Duration::from_secs(60);

/// Versions that give way to others, and why: who asks, and who is asked. There are no more than
/// versions.
pub(crate) type GivingWay = UnboundedSender<(Id, LoadError)>;
pub(crate) type GiveWay = UnboundedReceiver<(Id, LoadError)>;

impl Engines {
    /// The devices that a version is to be loaded on, once others have made way for it if that is
    /// what it takes.
    pub(crate) fn find_place(
        &self,
        resident: &Arc<Resident>,
        cancel: &CancellationToken,
    ) -> Result<Vec<Lease>> {
        let (model, version) = (&**resident.model(), resident.version());
        // Held until the place is taken, so that nobody else takes it.
        let mut arranging = None;
        let mut n_tries = 0;
        while n_tries < N_TRIES_MAX {
            let way = self.devices.placement.lease(resident);
            match way.map_err(|refusal| refused(resident, &refusal))? {
                Way::Free(leases) => return Ok(leases),
                // Others may have changed things until it is this one's turn.
                Way::After(_) if arranging.is_none() => arranging = Some(self.arranging.lock()),
                Way::After(changes) => {
                    n_tries += 1;
                    for change in changes {
                        self.carry_out(&change, model, cancel)?;
                    }
                }
                Way::Later if cancel.is_cancelled() => {
                    let text = format!("{model} version {version} is not wanted any more");
                    return Err(Status::cancelled(text));
                }
                // Those that are being loaded end, well or not; others may move meanwhile.
                Way::Later => {
                    arranging = None;
                    self.devices.left.pause();
                }
            }
        }
        let text = format!("{model} version {version}: others take the room made for it");
        Err(Status::exhausted(text))
    }

    /// Makes one change for the sake of a model.
    fn carry_out(&self, change: &Change, whom: &str, cancel: &CancellationToken) -> Result<()> {
        let Some(resident) = change.resident.upgrade() else { return Ok(()) };
        let (model, version) = (Arc::clone(resident.model()), resident.version());
        let device = &change.device;
        match change.kind {
            ChangeKind::Add => {
                self.add(&resident, device)?;
                tracing::info!(model = &*model, version, device, "is on one more device");
                Ok(())
            }
            ChangeKind::Remove => {
                let leaving =
                    resident.payload.replicas().and_then(|replicas| replicas.take(device));
                leaving.map_or(Ok(()), Leaving::free)?;
                tracing::info!(model = &*model, version, device, "is on one device less");
                Ok(())
            }
            ChangeKind::GiveWay => {
                tracing::warn!(model = &*model, version, "gives way to {whom}");
                let text = format!("gave way to {whom}, which has a higher priority");
                let why = LoadError::new(Code::ResourceExhausted, text);
                drop(resident);
                let stopping = || Status::unavailable("the server stops");
                self.giving_way.send((Id { model, version }, why)).map_err(|_| stopping())?;
                let until = Instant::now() + GIVE_WAY_MAX;
                let gives_up = || cancel.is_cancelled();
                if self.devices.left.wait(&change.resident, until, gives_up) {
                    return Ok(());
                }
                Err(Status::exhausted(format!("{whom}: what was to give way is busy")))
            }
        }
    }

    /// Loads a version that serves on one more device.
    fn add(&self, resident: &Resident, device: &str) -> Result<()> {
        let (model, version) = (&**resident.model(), resident.version());
        let loaded = match resident.demand().within {
            Within::Devices => {
                let opened = Opened::open(&resident.payload.dir, &self.options)?;
                let lease = self.devices.placement.lease_on(resident, device);
                let lease = lease.map_err(|refusal| refused(resident, &refusal))?;
                self.load_on(opened, &lease, resident).map(|servable| (servable, None))
            }
            Within::Workers => self.load_in_worker(resident, device),
        };
        let added = loaded.and_then(|(servable, booked)| {
            if let Some(options) = self.settings.warmup {
                let (dir, path) = (&resident.payload.dir, &*resident.payload.path);
                let fresh = warmup::Version { model, version, servable: &servable, dir, path };
                let token = CancellationToken::new();
                let warm = fresh.warm_up(options, &self.settings.warmups, &token);
                warm.map_err(|error| Status::failed_precondition(error.to_string()))?;
            }
            // One that was unloaded meanwhile needs no replica.
            let Some(replicas) = resident.payload.replicas() else { return Ok(()) };
            replicas.add(Member::new(device.to_owned(), servable.engine).with(booked))
        });
        resident.forget(device);
        added
    }

    /// Brings versions to where they should be, as far as that goes without anybody giving way.
    fn rearrange(&self) {
        let _arranging = self.arranging.lock();
        for _ in 0..N_ROUNDS_MAX {
            let changes = self.devices.placement.changes();
            if changes.is_empty() {
                return;
            }
            for change in changes {
                let (whom, cancel) = ("others", CancellationToken::new());
                if let Err(error) = self.carry_out(&change, whom, &cancel) {
                    tracing::warn!("models stay where they are: {error}");
                    return;
                }
            }
        }
    }
}

/// Brings versions to where they should be whenever devices, models or their configs have changed,
/// and unloads those that give way, until the token is cancelled.
pub(crate) async fn watch(
    engines: Arc<Engines>,
    mut give_way: GiveWay,
    lifecycle: Arc<Lifecycle<Servable>>,
    token: CancellationToken,
) {
    let left = Arc::clone(&engines.devices.left);
    let unloads = async {
        while let Some((id, why)) = give_way.recv().await {
            lifecycle.give_way(id, why).await;
        }
    };
    let moves = async {
        loop {
            left.changed.notified().await;
            rearrange(Arc::clone(&engines)).await;
        }
    };
    let both = async { tokio::join!(unloads, moves) };
    token.run_until_cancelled(both).await;
}

async fn rearrange(engines: Arc<Engines>) {
    let job = move || loads::aside(|| engines.rearrange());
    match tokio::task::spawn_blocking(job).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!("no thread to move models: {error}"),
        Err(error) => tracing::error!("moving models panicked: {error}"),
    }
}
