//! Versions in TensorFlow's workers: they are loaded on the devices that they are placed on.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::Arc;

use native::Opened;
use parking_lot::Mutex;
use session::{Error, Result, Servable};
use tensorflow::{HOW_TO_INSTALL, ModelSettings, Request, Workers};
use tokio_util::sync::CancellationToken;

use super::{Engines, Wanted};
use crate::devices::{Needed, Newcomer, Resident, Within};
use crate::engines::Engine;
use crate::external::{ExternalDevice, HOST, Placed, Wish};
use crate::model_config;
use crate::replicas::{Member, Replicas};

impl Engines {
    /// Loads a version in a worker: on the GPUs that it is placed on, else on the host.
    pub(super) fn tensorflow(&self, wanted: &Wanted<'_>) -> Result<Servable> {
        let workers = self.workers()?;
        let (model, version) = (wanted.model, wanted.version);
        let (config, rule) = (self.settings.active.get(model), self.devices.rule(model));
        let wish = Wish { model, version, config: &config, rule: &rule };
        let weights_bytes = workers.weights_bytes(&wanted.dir)?;
        let resident = self.devices.admit(Newcomer {
            model: model.into(),
            version,
            dir: wanted.dir.clone(),
            path: wanted.path.to_owned(),
            needed: Needed { bytes: weights_bytes, ..Needed::default() },
            keys: Vec::new(),
            // One that we cannot read has nothing that we know of.
            keeps_state: Opened::open(&wanted.dir, &self.options).is_ok_and(|it| it.keeps_state()),
            within: Within::Workers,
        });
        let (mut servable, mut members) = (None, Vec::new());
        for device in self.places(&resident, &wish, wanted.cancel)? {
            let loaded = self.load_in(workers, wanted, (&wish, device.as_ref()))?;
            members.push(Member::new(name(device.as_ref()), Arc::clone(&loaded.engine)));
            servable.get_or_insert(loaded);
        }
        let mut servable: Servable = servable.expect("there is at least one place");
        let replicas = Arc::new(Replicas::new(members, Some(Arc::clone(&resident))));
        resident.serve(&replicas);
        servable.engine = replicas;
        self.devices.left.changed.notify_one();
        Ok(servable)
    }

    fn workers(&self) -> Result<&Arc<Workers>> {
        self.external.workers().ok_or_else(|| {
            let text = format!("there is no TensorFlow: {HOW_TO_INSTALL}");
            Error::FailedPrecondition(text)
        })
    }

    /// The GPUs that a version is to be on, or the host, once others have made way for it.
    fn places(
        &self,
        resident: &Arc<Resident>,
        wish: &Wish<'_>,
        cancel: &CancellationToken,
    ) -> Result<Vec<Option<Arc<ExternalDevice>>>> {
        let look = || self.external.lease(resident).ok_or_else(|| self.refused(resident, wish));
        let names = self.find_place(resident, cancel, look)?;
        let all = self.external.all();
        let device = |name: &String| all.iter().find(|one| one.name() == *name).cloned();
        Ok(names.iter().map(device).collect())
    }

    /// What a version lacks that finds no place: of the GPU where it would fit best, or of the
    /// host.
    fn refused(&self, resident: &Resident, wish: &Wish<'_>) -> Error {
        let weights_bytes = resident.needed.bytes;
        if let Some(best) = self.external.choose(wish, weights_bytes).first() {
            return self.external.refusal(wish, best, weights_bytes);
        }
        let (Wish { model, version, .. }, refusal) = (wish, self.devices.no_place(resident));
        Error::ResourceExhausted(format!("{model} version {version}: {refusal}"))
    }

    /// Loads a version in a worker on one device.
    fn load_in(
        &self,
        workers: &Workers,
        wanted: &Wanted<'_>,
        (wish, device): (&Wish<'_>, Option<&Arc<ExternalDevice>>),
    ) -> Result<Servable> {
        let booked = Mutex::new(None);
        let settings = self.external.settings(wish, device, (&self.settings.session, workers));
        let tenant = wish.config.tenant.clone();
        let neighbours = self.neighbours(&tenant);
        let mut servable = workers.load(&Request {
            model: wanted.model,
            version: wanted.version,
            dir: &wanted.dir,
            settings: &ModelSettings { tenant, neighbours, ..settings },
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

    /// The folders of a tenant's models that workers may serve.
    fn neighbours(&self, tenant: &str) -> Vec<PathBuf> {
        let models = self.settings.active.all();
        let models = models.values().filter(|model| model.tenant == tenant);
        let models = models.filter(|model| self.choices.of(&model.name) != Engine::Native);
        models.map(|model| model_config::folder(model).to_owned()).collect()
    }

    /// Loads a version that serves on one more device.
    pub(crate) fn load_in_worker(&self, resident: &Resident, device: &str) -> Result<Servable> {
        let (model, version) = (&*resident.model, resident.version);
        let (config, rule) = (self.settings.active.get(model), self.devices.rule(model));
        let wish = Wish { model, version, config: &config, rule: &rule };
        let gpu = self.external.all().into_iter().find(|one| one.name() == device);
        let (dir, cancel) = (resident.dir.clone(), &CancellationToken::new());
        let (path, is_too_large) = (&*resident.path, Cell::new(false));
        let wanted = Wanted { model, version, dir, path, cancel, is_too_large };
        self.external.promise(resident, device);
        self.load_in(self.workers()?, &wanted, (&wish, gpu.as_ref()))
    }
}

/// What a place is called.
fn name(device: Option<&Arc<ExternalDevice>>) -> String {
    device.map_or_else(|| HOST.to_owned(), |device| device.name())
}
