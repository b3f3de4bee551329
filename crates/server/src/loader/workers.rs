//! Versions in TensorFlow's workers: they are loaded on the devices that they may be on, and follow
//! those when they become others.

use std::sync::Arc;

use native::Opened;
use parking_lot::Mutex;
use session::{Error, Result, Servable};
use tensorflow::{HOW_TO_INSTALL, Request, Workers};
use tokio_util::sync::CancellationToken;

use super::{Engines, Wanted};
use crate::external::{ExternalDevice, Placed, Settled, Wish};
use crate::replicas::{Leaving, Member, Replicas};
use crate::warmup;

/// The device of versions that are on no GPU.
const HOST: &str = "cpu:0";

impl Engines {
    /// Loads a version in a worker: on the GPUs that it is placed on, else on the host.
    pub(super) fn tensorflow(&self, wanted: &Wanted<'_>) -> Result<Servable> {
        let Some(workers) = self.external.workers() else {
            let text = format!("there is no TensorFlow: {HOW_TO_INSTALL}");
            return Err(Error::FailedPrecondition(text));
        };
        let (model, version) = (wanted.model, wanted.version);
        let (config, rule) = (self.settings.active.get(model), self.devices.rule(model));
        let wish = Wish { model, version, config: &config, rule: &rule };
        // Without GPUs there is nowhere else to go.
        if self.external.all().is_empty() {
            return self.load_in(workers, wanted, (&wish, None));
        }
        let weights_bytes = workers.weights_bytes(&wanted.dir)?;
        let (mut servable, mut members) = (None, Vec::new());
        for device in self.places(&wish, weights_bytes) {
            let loaded = self.load_in(workers, wanted, (&wish, device.as_ref()))?;
            members.push(Member::new(name(device.as_ref()), Arc::clone(&loaded.engine)));
            servable.get_or_insert(loaded);
        }
        let mut servable: Servable = servable.expect("there is at least one place");
        let replicas = Arc::new(Replicas::new(members, None));
        self.external.settle(Settled {
            model: model.to_owned(),
            version,
            dir: wanted.dir.clone(),
            path: wanted.path.to_owned(),
            weights_bytes,
            // One that we cannot read has nothing that we know of.
            keeps_state: Opened::open(&wanted.dir, &self.options).is_ok_and(|it| it.keeps_state()),
            replicas: Arc::downgrade(&replicas),
        });
        servable.engine = replicas;
        Ok(servable)
    }

    /// The GPUs that a version is to be on; the host if there is none.
    fn places(&self, wish: &Wish<'_>, weights_bytes: u64) -> Vec<Option<Arc<ExternalDevice>>> {
        let gpus = self.external.choose(wish, weights_bytes);
        if gpus.is_empty() { vec![None] } else { gpus.into_iter().map(Some).collect() }
    }

    /// Loads a version in a worker on one device.
    fn load_in(
        &self,
        workers: &Workers,
        wanted: &Wanted<'_>,
        (wish, device): (&Wish<'_>, Option<&Arc<ExternalDevice>>),
    ) -> Result<Servable> {
        let booked = Mutex::new(None);
        let mut servable = workers.load(&Request {
            model: wanted.model,
            version: wanted.version,
            dir: &wanted.dir,
            settings: &self.external.settings(wish, device, (&self.settings.session, workers)),
            is_cancelled: &|| wanted.cancel.is_cancelled(),
            admit: &|needed| {
                // What was booked for an attempt before this one is given up first.
                drop(booked.lock().take());
                *booked.lock() = Some(self.external.book(wish, device, *needed)?);
                Ok(())
            },
        })?;
        servable.engine = Arc::new(Placed::new(servable.engine, booked.into_inner()));
        Ok(servable)
    }

    /// Moves versions in workers whose `devices` are others by now. One that cannot be moved stays
    /// where it is, and serves.
    pub(crate) fn follow_devices(&self) {
        for settled in self.external.settled() {
            if let Err(error) = self.follow(&settled) {
                let Settled { model, version, .. } = &*settled;
                tracing::warn!(model, version, "stays where it is: {error}");
            }
        }
    }

    /// Moves a version if it is where it may not be any more: it is loaded where it may be, gets
    /// requests there, and goes when the last one is answered.
    fn follow(&self, settled: &Settled) -> Result<()> {
        let Settled { model, dir, path, .. } = settled;
        let (model, version) = (model.as_str(), settled.version);
        let workers = self.external.workers();
        let (Some(workers), Some(replicas)) = (workers, settled.replicas.upgrade()) else {
            return Ok(());
        };
        if !self.settings.active.has(model) {
            return Ok(());
        }
        let (config, rule) = (self.settings.active.get(model), self.devices.rule(model));
        let wish = Wish { model, version, config: &config, rule: &rule };
        let may_be = self.external.candidates(&wish);
        let may_be_on = |device: &str| match may_be.is_empty() {
            true => device == HOST,
            false => may_be.iter().any(|one| one.name() == device),
        };
        let before = replicas.devices();
        let strays: Vec<&String> = before.iter().filter(|one| !may_be_on(one)).collect();
        if strays.is_empty() {
            return Ok(());
        }
        if settled.keeps_state {
            let text = "requests change its variables, which would be lost".to_owned();
            return Err(Error::FailedPrecondition(text));
        }
        for device in self.places(&wish, settled.weights_bytes) {
            let device_name = name(device.as_ref());
            if before.contains(&device_name) {
                continue;
            }
            let cancel = &CancellationToken::new();
            let wanted = Wanted { model, version, dir: dir.clone(), path, cancel };
            let servable = self.load_in(workers, &wanted, (&wish, device.as_ref()))?;
            if let Some(options) = self.settings.warmup {
                let fresh = warmup::Version { model, version, servable: &servable, dir, path };
                let warm = fresh.warm_up(options, &self.settings.warmups, cancel);
                warm.map_err(|error| Error::FailedPrecondition(error.to_string()))?;
            }
            tracing::info!(model, version, device = device_name, "is on one more device");
            replicas.add(Member::new(device_name, servable.engine))?;
        }
        for device in strays {
            replicas.take(device).map_or(Ok(()), Leaving::free)?;
            tracing::info!(model, version, device, "is on one device less");
        }
        Ok(())
    }
}

/// What a place is called.
fn name(device: Option<&Arc<ExternalDevice>>) -> String {
    device.map_or_else(|| HOST.to_owned(), |device| device.name())
}
