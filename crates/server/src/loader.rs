//! Introduces the lifecycle to the engines: makes a servable of a version.

mod workers;

use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use config::engines::{Choices, Engine};
use config::{Session, Warmup};
use lifecycle::{Attempt, LoadError, Loader};
use native::Opened;
use parking_lot::Mutex;
use placement::{Claim, Demand, Lease, Needed, Refusal, WeightKey, Within};
use savedmodel::foreign;
use session::{Member, Replicas, Servable};
use status::{Code, Status};
use storage::Storage;
use tensorflow::HOW_TO_INSTALL;

use crate::active::Active;
use crate::arrange::GivingWay;
use crate::batching::Versions;
use crate::devices::{Devices, Resident, ServedVersion, serve};
use crate::external::External;
use crate::warmups::Warmups;
use crate::{source, warmup};

/// Loads versions on our own engine, in the memory of the devices, or on TensorFlow.
pub(crate) struct Engines {
    pub(crate) devices: Arc<Devices>,
    pub(crate) options: native::Options,
    pub(crate) choices: Choices,
    pub(crate) external: Arc<External>,
    pub(crate) settings: Settings,
    /// Held while versions are moved.
    pub(crate) arranging: Mutex<()>,
    pub(crate) giving_way: GivingWay,
}

/// The settings of loads, whatever their engine.
pub(crate) struct Settings {
    pub(crate) session: Session,
    pub(crate) active: Arc<Active>,
    pub(crate) folders: source::Models,
    pub(crate) versions: Arc<Versions>,
    pub(crate) warmup: Option<Warmup>,
    pub(crate) warmups: Arc<Warmups>,
}

/// With so many times the bytes of its weights free, and some more, a version surely fits.
const AMPLE: u64 = 4;
const AMPLE_BYTES: u64 = 256 << 20;

/// A version to be loaded.
struct Wanted<'a> {
    model: &'a str,
    version: i64,
    dir: Storage,
    path: &'a str,
    attempt: &'a Attempt,
    /// Set when it fails at every attempt: it would not fit if there were nothing else, or the
    /// machine lacks what it needs.
    is_hopeless: Cell<bool>,
}

impl Loader for Engines {
    type Servable = Servable;

    fn load(
        &self,
        model: &str,
        version: i64,
        path: &str,
        attempt: &Attempt,
    ) -> Result<Servable, LoadError> {
        let start = Instant::now();
        attempt.headway.begin("opening", 0);
        self.settings.tell(model, version);
        let dir = self
            .settings
            .folders
            .open(path)
            .map_err(|error| LoadError::new(Code::NotFound, error.to_string()))?;
        let is_hopeless = Cell::new(false);
        let wanted = Wanted { model, version, dir, path, attempt, is_hopeless };
        let servable = match self.choices.of(model) {
            Engine::Auto => self.either(&wanted),
            Engine::Native => self.native(&wanted),
            Engine::TensorFlow => self.tensorflow(&wanted),
        };
        let servable = servable.map_err(|error| {
            let advice = (error.code == Code::NotFound).then(|| foreign::advice_on(&wanted.dir));
            if let Some(advice) = advice.flatten() {
                tracing::warn!(model, version, "{advice}");
            }
            let failure = LoadError::from(error);
            if wanted.is_hopeless.get() { failure.finally() } else { failure }
        })?;
        for (signature, why) in &servable.refused {
            tracing::warn!(model, version, signature, "signature is not served: {why}");
        }
        // Before the warm-up, which goes through the batches that it warms up.
        let versions = &self.settings.versions;
        versions
            .add((model, version), wanted.dir.clone(), &servable)
            .map_err(|error| LoadError::new(Code::InvalidArgument, format!("{error:#}")))?;
        servable.engine.prepare();
        if let Some(options) = self.settings.warmup {
            let dir = &wanted.dir;
            let fresh = warmup::Version { model, version, servable: &servable, dir, path };
            attempt.headway.begin("warming up", 0);
            fresh.warm_up(options, &self.settings.warmups, &attempt.cancel)?;
        }
        let (engine, took) = (servable.engine.name(), start.elapsed());
        tracing::info!(model, version, engine, ?took, "loaded");
        Ok(servable)
    }
}

impl Settings {
    /// Says which memory settings a model has, if it has any.
    fn tell(&self, model: &str, version: i64) {
        let config = self.active.get(model);
        let gpu = self.session.gpu_options(&config);
        let (growth, fraction) = (gpu.allow_growth(), gpu.per_process_gpu_memory_fraction);
        let has_own = config.config.as_ref().is_some_and(|config| config.gpu_options.is_some());
        let is_said = has_own || self.session.is_growth_forced();
        if is_said || !growth || fraction > 0.0 {
            tracing::info!(model, version, growth, fraction, "memory settings");
        }
    }
}

impl Engines {
    /// Loads a version on our own engine, on as many devices as it is to be on.
    fn native(&self, wanted: &Wanted<'_>) -> status::Result<Servable> {
        let Wanted { model, version, ref dir, path, attempt, ref is_hopeless } = *wanted;
        self.devices.check_rule(model).map_err(|e| Status::invalid(format!("{e:#}")))?;
        let opened = Opened::open(dir, &self.options)?;
        let needed = self.needed(model, &opened, dir)?;
        let demand = Demand {
            model: model.into(),
            version,
            needed,
            keys: opened.weight_keys().iter().map(weight_key).collect(),
            keeps_state: opened.keeps_state(),
            within: Within::Devices,
        };
        let files = ServedVersion::new(dir.clone(), path, &self.devices.left);
        let resident = self.devices.placement.admit(demand, files);
        attempt.headway.begin("looking for room", 0);
        let leases = self.find_place(&resident, &attempt.cancel).inspect_err(|error| {
            let lacks_room = error.code == Code::ResourceExhausted;
            is_hopeless.set(lacks_room && !self.devices.own().could_hold(&resident));
        });
        let leases = leases.map_err(|refusal| self.devices.with_absent(model, refusal))?;
        let mut opened = Some(opened);
        let (mut servable, mut members) = (None, Vec::new());
        for lease in leases {
            // A replica is a load of its own; only the first was read already.
            let opened = match opened.take() {
                Some(opened) => opened,
                None => Opened::open(dir, &self.options)?,
            };
            let opened = opened.tell(Arc::clone(&attempt.headway));
            let loaded = self.load_on(opened, &lease, &resident)?;
            // What it was promised until now is told more exactly when it is made ready.
            if let Some(owner) = &lease.owner {
                owner.note_peak(needed.largest_run_bytes);
            }
            members.push(Member::new(lease.device, Arc::clone(&loaded.engine)));
            servable.get_or_insert(loaded);
        }
        let servable = servable.expect("there is at least one lease");
        Ok(self.serve_on_all(servable, members, &resident))
    }

    /// The servable of a version whose runs go to any of its replicas.
    fn serve_on_all(
        &self,
        first: Servable,
        members: Vec<Member>,
        resident: &Arc<Resident>,
    ) -> Servable {
        let replicas = Arc::new(Replicas::new(members, Some(Arc::clone(resident) as _)));
        serve(resident, &replicas);
        self.devices.left.changed.notify_one();
        Servable { engine: replicas, ..first }
    }

    /// The most that a version holds at once: while it is loaded, or when it then runs a single
    /// row. It is rehearsed, unless there is so much room that it does not matter; and if that run
    /// would not fit where there is the most room, offsets with which it does are searched for.
    fn needed(&self, model: &str, opened: &Opened, dir: &Storage) -> status::Result<Needed> {
        let at_least = opened.weights_bytes();
        let ample = at_least.saturating_mul(AMPLE).saturating_add(AMPLE_BYTES);
        if self.devices.own().has_room(model, ample) {
            return Ok(Needed { bytes: at_least, ..Needed::default() });
        }
        let own = self.devices.own();
        let (kind, pool) = (own.kind_for(model), self.devices.pool());
        let rehearsal = opened.rehearse(&self.options, pool, kind)?;
        let need = rehearsal.need();
        let batch = rehearsal.batch(None, native::Sizes::of_rows(1))?;
        let room = graph::Room {
            device_bytes: own.room_among(model, kind),
            host_bytes: own.host().map_or(u64::MAX, |host| own.room_for(model, &host)),
        };
        // What cannot be planned beforehand is found out when it runs.
        let plan = batch.as_ref().and_then(|one| rehearsal.plan_within(one, room).ok());
        let run = plan.map_or((0, 0), |plan| (plan.total_bytes(), plan.host_bytes));
        if let Some(batch) = batch.filter(|_| plan.is_some_and(|plan| plan.is_searched)) {
            opened.plan_ahead(batch);
        }
        let largest = native::Sizes::of_rows(self.settings.versions.batch_rows(dir));
        let largest = rehearsal.batch(None, largest)?;
        let largest =
            largest.and_then(|batch| rehearsal.plan(&batch.signature, &batch.inputs).ok());
        Ok(Needed {
            bytes: need.load_peak_bytes.max(need.resident_bytes() + run.0),
            host_bytes: need.host_peak_bytes.max(need.host_bytes + run.1),
            resident_bytes: need.resident_bytes(),
            run_bytes: run.0,
            largest_run_bytes: largest.map_or(run.0, |plan| plan.total_bytes().max(run.0)),
            worker_bytes: 0,
        })
    }

    /// Loads what was opened on one device.
    pub(crate) fn load_on(
        &self,
        opened: Opened,
        lease: &Lease,
        resident: &Resident,
    ) -> status::Result<Servable> {
        let Lease { device, owner } = lease;
        // A device on which somebody owns memory does not become another.
        let Some(logical) = self.devices.logical(device) else {
            return Err(Status::unavailable(format!("there is no {device} any more")));
        };
        match opened.load(&self.options, &logical.executor, owner.clone()) {
            Ok(loaded) => Ok(loaded.servable),
            Err(error) if error.code == Code::ResourceExhausted => {
                let needed = resident.demand().needed.bytes;
                let why = self.devices.own().refusal(&resident.holder(), &logical, needed);
                Err(error.map_message(|text| format!("{text} ({why})")))
            }
            Err(error) => Err(error),
        }
    }

    /// TensorFlow for a model that is placed on a GPU which our own engine has no kernels for; else
    /// our own engine if it can run all signatures, else TensorFlow if there is one.
    fn either(&self, wanted: &Wanted<'_>) -> status::Result<Servable> {
        let (model, version) = (wanted.model, wanted.version);
        let gpu = self.external.candidates(model).first().cloned();
        if let Some(gpu) = gpu.filter(|_| self.external.workers().is_some()) {
            let (name, gpu) = (gpu.name(), gpu.gpu.name.clone());
            tracing::info!(model, version, "goes to TensorFlow: {name} ({gpu}) is for it alone");
            return self.tensorflow(wanted);
        }
        match (self.native(wanted), self.external.workers()) {
            (Ok(servable), _) if servable.refused.is_empty() => Ok(servable),
            (Ok(servable), None) => Ok(servable),
            (Ok(servable), Some(_)) => match self.tensorflow(wanted) {
                Ok(other) if other.refused.len() < servable.refused.len() => Ok(other),
                Ok(_) => Ok(servable),
                Err(error) => {
                    tracing::warn!(model, version, "TensorFlow cannot load it either: {error}");
                    Ok(servable)
                }
            },
            (Err(why), Some(_)) if why.code == Code::Unimplemented => {
                tracing::info!(model, version, "goes to TensorFlow: {why}");
                self.tensorflow(wanted)
            }
            (Err(why), None) if why.code == Code::Unimplemented => {
                Err(why.map_message(|why| format!("{why}; TensorFlow could: {HOW_TO_INSTALL}")))
            }
            (Err(error), _) => Err(error),
        }
    }
}

/// The error of a version for which there is no room.
pub(crate) fn refused(claim: &Claim, refusal: &Refusal) -> Status {
    let (model, version) = (&claim.demand.model, claim.demand.version);
    Status::exhausted(format!("{model} version {version}: {refusal}"))
}

/// The key of a weight, as placement compares it.
fn weight_key(key: &native::WeightKey) -> WeightKey {
    WeightKey { checksum: key.checksum, bytes: key.bytes }
}
