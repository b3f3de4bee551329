//! Versions in TensorFlow's workers: they are loaded on the devices that they are placed on.

use std::path::PathBuf;
use std::sync::Arc;

use config::engines::Engine;
use config::model_config;
use native::Opened;
use parking_lot::Mutex;
use placement::{Booked, Demand, Needed, Within};
use session::{Member, Servable};
use status::{Code, Result, Status};
use tensorflow::{HOW_TO_INSTALL, ModelSettings, Request, Workers};
use tokio_util::sync::CancellationToken;

use super::{Engines, Wanted, refused};
use crate::devices::{Resident, ServedVersion};

impl Engines {
    /// Loads a version in a worker: on the GPUs that it is placed on, else on the host.
    pub(super) fn tensorflow(&self, wanted: &Wanted<'_>) -> Result<Servable> {
        // The machine will not be another while the server runs.
        let lacks = |_: &Status| wanted.is_hopeless.set(true);
        let workers = self.workers().inspect_err(lacks)?;
        workers.check_sandbox().inspect_err(lacks)?;
        let (model, version) = (wanted.model, wanted.version);
        let demand = Demand {
            model: model.into(),
            version,
            needed: Needed { bytes: workers.weights_bytes(&wanted.dir)?, ..Needed::default() },
            keys: Vec::new(),
            // One that we cannot read has nothing that we know of.
            keeps_state: Opened::open(&wanted.dir, &self.options).is_ok_and(|it| it.keeps_state()),
            within: Within::Workers,
        };
        let files = ServedVersion::new(wanted.dir.clone(), wanted.path, &self.devices.left);
        let resident = self.devices.placement.admit(demand, files);
        wanted.attempt.headway.begin("loading in TensorFlow", 0);
        let loaded = self.load_on_leases(workers, &resident, &wanted.attempt.cancel);
        loaded.inspect_err(|error| {
            let lacks_room = error.code == Code::ResourceExhausted;
            wanted.is_hopeless.set(lacks_room && !self.external.placed.could_hold(&resident));
        })
    }

    /// Loads a version on the devices that are found for it.
    fn load_on_leases(
        &self,
        workers: &Workers,
        resident: &Arc<Resident>,
        cancel: &CancellationToken,
    ) -> Result<Servable> {
        let (mut servable, mut members) = (None, Vec::new());
        for lease in self.find_place(resident, cancel)? {
            let (loaded, booked) = self.load_in(workers, resident, &lease.device, cancel)?;
            let member = Member::new(lease.device, Arc::clone(&loaded.engine));
            members.push(member.with(booked));
            servable.get_or_insert(loaded);
        }
        let servable = servable.expect("there is at least one place");
        Ok(self.serve_on_all(servable, members, resident))
    }

    fn workers(&self) -> Result<&Arc<Workers>> {
        self.external.workers().ok_or_else(|| {
            let text = format!("there is no TensorFlow: {HOW_TO_INSTALL}");
            Status::failed_precondition(text)
        })
    }

    /// Loads a version in a worker on one device, and books its memory.
    fn load_in(
        &self,
        workers: &Workers,
        resident: &Resident,
        device: &str,
        cancel: &CancellationToken,
    ) -> Result<(Servable, Option<Booked>)> {
        let booked = Mutex::new(None);
        let (model, version) = (&**resident.model(), resident.version());
        let config = self.settings.active.get(model);
        let gpu = self.external.device(device);
        let session = &self.settings.session;
        let settings = self.external.settings(&config, gpu.as_ref(), session, workers);
        let tenant = config.tenant.clone();
        let neighbours = self.neighbours(&tenant);
        let servable = workers.load(&Request {
            model,
            version,
            dir: &resident.payload.dir,
            settings: &ModelSettings { tenant, neighbours, ..settings },
            is_cancelled: &|| cancel.is_cancelled(),
            admit: &|needed| {
                // What was booked for an attempt before this one is given up first.
                drop(booked.lock().take());
                let (weights, base) = (needed.weights_bytes, needed.base_bytes);
                let new = self.external.placed.book(resident, gpu.as_ref(), weights, base);
                *booked.lock() = Some(new.map_err(|refusal| refused(resident, &refusal))?);
                Ok(())
            },
        })?;
        Ok((servable, booked.into_inner()))
    }

    /// The folders of a tenant's models that workers may serve.
    fn neighbours(&self, tenant: &str) -> Vec<PathBuf> {
        let models = self.settings.active.all();
        let models = models.values().filter(|model| model.tenant == tenant);
        let models = models.filter(|model| self.choices.of(&model.name) != Engine::Native);
        models.map(|model| model_config::folder(model).to_owned()).collect()
    }

    /// Loads a version that serves on one more device.
    pub(crate) fn load_in_worker(
        &self,
        resident: &Resident,
        device: &str,
    ) -> Result<(Servable, Option<Booked>)> {
        let lease = self.devices.placement.lease_on(resident, device);
        let lease = lease.map_err(|refusal| refused(resident, &refusal))?;
        self.load_in(self.workers()?, resident, &lease.device, &CancellationToken::new())
    }
}
