//! `Workers`: from a SavedModel to a servable that runs in a worker.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use prost::Message as _;
use proto::tensorflow::ConfigProto;
use savedmodel::SavedModel;
use session::{Servable, Signature, Weights};
use status::{Code, Result, Status};
use storage::Storage;

use crate::config::{GpuOptions, Threads, session_config};
use crate::engine::TensorFlowEngine;
use crate::error::read_error;
use crate::options::{ModelSettings, Options, Placement, Sandbox};
use crate::sandbox::{self, GpuRules, Rules};
use crate::snapshot::WorkerSnapshot;
use crate::wire::{Load, Names};
use crate::worker::{Asked, Passenger, Role, Worker};

/// The workers of a server.
pub struct Workers {
    options: Arc<Options>,
    /// Those that models without settings of their own share.
    shared: Mutex<Vec<Weak<Worker>>>,
    all: Mutex<Vec<Weak<Worker>>>,
    /// Models that took a shared worker with them when they were loaded.
    suspects: Mutex<BTreeSet<String>>,
}

/// A model to be loaded.
pub struct Request<'a> {
    /// The model's name.
    pub model: &'a str,
    /// The number of the version.
    pub version: i64,
    /// The version's folder.
    pub dir: &'a Storage,
    /// The model's settings for TensorFlow.
    pub settings: &'a ModelSettings,
    /// Returns whether the model is no longer wanted.
    pub is_cancelled: &'a dyn Fn() -> bool,
    /// Checks that there is room for the model; called when its worker is there and before it is
    /// loaded.
    pub admit: &'a dyn Fn(&Needed) -> Result<()>,
}

/// The needs of a model, known before it is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needed {
    /// The bytes of its variables.
    pub weights_bytes: u64,
    /// The bytes that its worker holds by itself, as measured: the library and no model.
    pub base_bytes: u64,
}

impl Workers {
    /// No worker is started before the first model needs one.
    pub fn new(options: Options) -> Self {
        Self {
            options: Arc::new(options),
            shared: Mutex::default(),
            all: Mutex::default(),
            suspects: Mutex::default(),
        }
    }

    /// TensorFlow's library.
    pub fn library(&self) -> &Path {
        &self.options.library
    }

    /// A model's own session options, with the threads of all models where it does not say.
    pub fn with_usual_threads(&self, own: &ConfigProto) -> ConfigProto {
        let usual = &self.options.session;
        let or = |own: i32, usual: i32| if own == 0 { usual } else { own };
        let threads = Threads {
            intra: or(own.intra_op_parallelism_threads, usual.intra_op_parallelism_threads),
            inter: or(own.inter_op_parallelism_threads, usual.inter_op_parallelism_threads),
        };
        session_config(own, threads, &GpuOptions::default())
    }

    /// The workers that there are.
    pub fn snapshot(&self) -> Vec<WorkerSnapshot> {
        let workers = self.live();
        workers.iter().filter(|worker| worker.is_open()).map(|worker| worker.snapshot()).collect()
    }

    /// Ends the processes that each hold more than so many bytes, if they have models. Their
    /// requests fail with `UNAVAILABLE`, and they are started again as after a crash.
    pub fn end_beyond(&self, most_bytes: u64) {
        self.live().iter().for_each(|worker| worker.end_beyond(most_bytes));
    }

    fn live(&self) -> Vec<Arc<Worker>> {
        let mut all = self.all.lock();
        all.retain(|worker| worker.strong_count() > 0);
        all.iter().filter_map(Weak::upgrade).collect()
    }

    /// The bytes of a model's variables, without loading it.
    ///
    /// # Errors
    /// If the SavedModel cannot be read.
    pub fn weights_bytes(&self, dir: &Storage) -> Result<u64> {
        let model = SavedModel::open(dir, &self.options.tags);
        Ok(weights(&model.map_err(|error| read_error(&error))?).bytes as u64)
    }

    /// Loads a model. Blocks until TensorFlow has restored its variables and run its init op.
    ///
    /// # Errors
    /// If the SavedModel cannot be read, TensorFlow refuses it, the worker ends meanwhile, or it
    /// takes too long.
    pub fn load(&self, request: &Request<'_>) -> Result<Servable> {
        let model = SavedModel::open(request.dir, &self.options.tags)
            .map_err(|error| read_error(&error))?;
        model.check_index().map_err(|error| read_error(&error))?;
        let (signatures, refused) = read_signatures(&model)?;
        if signatures.is_empty() && !refused.is_empty() {
            let reasons: Vec<String> = refused.values().map(ToString::to_string).collect();
            return Err(Status::unimplemented(reasons.join("; ")));
        }
        let dir = request.dir.path().canonicalize();
        let dir = dir.map_err(|error| Status::not_found(error.to_string()))?;
        let weights = weights(&model);
        let passenger = Passenger {
            model: request.model.to_owned(),
            version: request.version,
            weights_bytes: weights.bytes as u64,
            load: self.order(request, &dir, &signatures),
        };
        let signature_defs = model.signature_defs;
        let (worker, seat) = self.seat(request, &dir, &passenger)?;
        let names = signatures.iter().map(|(name, one)| (name.clone(), one.outputs.len()));
        let engine = TensorFlowEngine::new(worker, seat, names);
        Ok(Servable { signatures, signature_defs, refused, weights, engine: Arc::new(engine) })
    }

    fn order(
        &self,
        request: &Request<'_>,
        dir: &Path,
        signatures: &BTreeMap<String, Arc<Signature>>,
    ) -> Load {
        let names = |signature: &Arc<Signature>| Names {
            inputs: signature.inputs.values().map(|input| input.tensor.clone()).collect(),
            outputs: signature.outputs.values().map(|output| output.tensor.clone()).collect(),
        };
        let ModelSettings { session: own, placement, .. } = request.settings;
        let config = own.as_ref().or(placement.session.as_ref()).unwrap_or(&self.options.session);
        Load {
            model: 0,
            dir: dir.to_string_lossy().into_owned(),
            tags: self.options.tags.clone(),
            config: config.encode_to_vec().into(),
            signatures: signatures.values().map(names).collect(),
        }
    }

    /// Loads a model into a worker: one that it shares, if it may.
    fn seat(
        &self,
        request: &Request<'_>,
        dir: &Path,
        passenger: &Passenger,
    ) -> Result<(Arc<Worker>, u64)> {
        self.check_sandbox()?;
        let asked = Asked { is_cancelled: request.is_cancelled, admit: request.admit };
        let wants_own =
            request.settings.session.is_some() || self.suspects.lock().contains(request.model);
        if !wants_own {
            match self.share(request.settings, dir, passenger, asked) {
                Err(why) if why.code == Code::Unavailable => {
                    tracing::warn!(model = request.model, "loaded again by itself: {why}");
                    self.suspects.lock().insert(request.model.to_owned());
                }
                outcome => return outcome,
            }
        }
        let worker = self.start(Role {
            name: format!("{}/{}", request.model, request.version),
            is_shared: false,
            placement: request.settings.placement.clone(),
            tenant: request.settings.tenant.clone(),
            rules: self.rules(&request.settings.placement, vec![dir.to_owned()]),
        })?;
        let seat = worker.load(passenger.clone(), asked);
        let ended = || Err(Status::unavailable("the worker has ended"));
        Ok((worker, seat.unwrap_or_else(ended)?))
    }

    fn share(
        &self,
        settings: &ModelSettings,
        dir: &Path,
        passenger: &Passenger,
        asked: Asked<'_>,
    ) -> Result<(Arc<Worker>, u64)> {
        loop {
            let worker = self.shared_worker(settings, dir)?;
            if let Some(seat) = worker.load(passenger.clone(), asked) {
                return Ok((worker, seat?));
            }
        }
    }

    /// The shared worker of a tenant at a place, or one more there if that cannot read a folder.
    fn shared_worker(&self, settings: &ModelSettings, dir: &Path) -> Result<Arc<Worker>> {
        let ModelSettings { placement, tenant, neighbours, .. } = settings;
        let mut shared = self.shared.lock();
        shared.retain(|worker| worker.strong_count() > 0);
        let fits = |worker: &Arc<Worker>| {
            worker.is_open()
                && worker.role.placement == *placement
                && worker.role.tenant == *tenant
                && (self.options.sandbox == Sandbox::Off
                    || worker.role.rules.readable.iter().any(|folder| dir.starts_with(folder)))
        };
        if let Some(worker) = shared.iter().filter_map(Weak::upgrade).find(fits) {
            return Ok(worker);
        }
        let real = |folder: &PathBuf| folder.canonicalize().unwrap_or_else(|_| folder.clone());
        let mut folders: Vec<PathBuf> = neighbours.iter().map(real).collect();
        if !folders.iter().any(|folder| dir.starts_with(folder)) {
            folders.push(dir.to_owned());
        }
        let worker = self.start(Role {
            name: "shared".to_owned(),
            is_shared: true,
            placement: placement.clone(),
            tenant: tenant.clone(),
            rules: self.rules(placement, folders),
        })?;
        shared.push(Arc::downgrade(&worker));
        Ok(worker)
    }

    /// Fails if the sandbox is required and cannot be had here.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` with what the kernel lacks.
    pub fn check_sandbox(&self) -> Result<()> {
        if self.options.sandbox != Sandbox::Required {
            return Ok(());
        }
        let lacking = sandbox::lacking();
        if lacking.is_empty() {
            return Ok(());
        }
        Err(crate::Error::Unconfined(lacking.join(", ")).into())
    }

    fn rules(&self, placement: &Placement, mut readable: Vec<PathBuf>) -> Rules {
        readable.extend(library_folders(&self.options.library));
        let value = |wanted: &str| {
            let mut all = self.options.environment.iter();
            all.find(|(name, _)| name == wanted).map(|(_, value)| value)
        };
        // The dynamic linker looks there first.
        readable.extend(value("LD_LIBRARY_PATH").into_iter().flat_map(std::env::split_paths));
        readable.retain(|folder| folder.parent().is_some() && folder.is_absolute());
        let devices = &self.options.gpu_devices;
        let has_gpu = !devices.is_empty() && !placement.hides_gpus();
        let gpu = has_gpu.then(|| GpuRules {
            devices: devices.clone(),
            // Each process has its own: see `Process::start`.
            scratch: PathBuf::new(),
            mps: value("CUDA_MPS_PIPE_DIRECTORY").map(PathBuf::from),
        });
        Rules { level: self.options.sandbox, readable, gpu }
    }

    fn start(&self, role: Role) -> Result<Arc<Worker>> {
        let worker = Worker::start(&self.options, role)?;
        self.all.lock().push(Arc::downgrade(&worker));
        Ok(worker)
    }
}

/// The folders of the library and of those that it loads from beside its own.
fn library_folders(library: &Path) -> Vec<PathBuf> {
    let real = library.canonicalize().unwrap_or_else(|_| library.to_owned());
    let mut folders: Vec<PathBuf> = Vec::new();
    for file in [library, &real] {
        let Some(folder) = file.parent() else { continue };
        folders.push(folder.to_owned());
        // In Python's packages the libraries of CUDA lie beside TensorFlow's folder.
        folders.extend(folder.parent().map(|packages| packages.join("nvidia")));
        // In a Conda environment, the other libraries lie in its `lib`.
        let environment = folder.ancestors().find(|folder| folder.join("conda-meta").is_dir());
        folders.extend(environment.map(|environment| environment.join("lib")));
    }
    folders.sort();
    folders.dedup();
    folders
}

type Signatures = (BTreeMap<String, Arc<Signature>>, BTreeMap<String, Status>);

/// The signatures that can be run, and those that cannot.
fn read_signatures(model: &SavedModel) -> Result<Signatures> {
    let (mut signatures, mut refused) = Signatures::default();
    for (name, from) in &model.signatures {
        if let Some((alias, why)) = from.unusable_inputs.first_key_value() {
            let text = format!("signature {name}: input {alias} cannot be fed: {why}");
            refused.insert(name.clone(), Status::unimplemented(text));
            continue;
        }
        signatures.insert(name.clone(), Arc::new(Signature::read(from)?));
    }
    Ok((signatures, refused))
}

/// The variables of a checkpoint. What cannot be counted is not: TensorFlow reads it, not we.
fn weights(model: &SavedModel) -> Weights {
    let mut weights = Weights::default();
    let (Ok(Some(checkpoint)), Ok(restore)) = (model.checkpoint(), model.restore()) else {
        return weights;
    };
    for assignment in restore.assignments {
        if let Ok(entry) = checkpoint.entry(&assignment.source.key) {
            weights.n_variables += 1;
            weights.bytes += usize::try_from(entry.n_bytes()).unwrap_or(0);
        }
    }
    weights
}
