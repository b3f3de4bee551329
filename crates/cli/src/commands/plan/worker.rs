//! The memory that a model needs which TensorFlow serves, and what its worker costs by itself.

use std::sync::Arc;

use anyhow::{Context, Result};
use config::devices::DeviceOptions;
use config::engines::{self, Choices, Engine};
use config::{Config, Flags, open_model};
use pages::PlannedWorker;
use proto::serving::ModelConfig;
use server::{Devices, External};
use status::{Code, Status};
use tensorflow::{Request, Workers};

use super::needed::Needed;

/// TensorFlow, if there is one, and the GPUs that only it can use.
pub(super) struct TensorFlow {
    choices: Choices,
    external: Arc<External>,
    session: config::Session,
}

/// The figures of a worker with one model in it.
pub(super) struct Worker {
    /// The bytes that it held before the model was loaded: the library.
    base_bytes: u64,
    /// The bytes that it held with the model, of the host and of its GPU.
    resident_bytes: u64,
    gpu_bytes: Option<u64>,
    /// Set if the model is on a GPU.
    is_on_gpu: bool,
}

impl TensorFlow {
    pub(super) fn new(flags: &Flags, config: &Config, devices: &Arc<Devices>) -> Result<Self> {
        let choices = Choices::parse(&flags.engine)?;
        let workers = engines::worker_options(flags, &choices, config)?;
        let workers = workers.map(|options| Arc::new(Workers::new(options)));
        let external = External::start(&DeviceOptions::new(flags)?, workers, Arc::clone(devices))?;
        Ok(Self { choices, external, session: config.session.clone() })
    }

    /// The memory that a model needs, if TensorFlow is to serve it; `native` measures it on our own
    /// engine.
    pub(super) fn measure(
        &self,
        model: &ModelConfig,
        native: impl FnOnce() -> Result<Needed>,
    ) -> Result<Needed> {
        let Some(workers) = self.external.workers() else { return native() };
        match self.choices.of(&model.name) {
            Engine::Native => native(),
            Engine::TensorFlow => self.load(workers, model),
            Engine::Auto if !self.external.candidates(&model.name).is_empty() => {
                self.load(workers, model)
            }
            Engine::Auto => native().or_else(|error| match error.downcast_ref() {
                Some(Status { code: Code::Unimplemented, .. }) => self.load(workers, model),
                _ => Err(error),
            }),
        }
    }

    /// Loads a model in a worker, and measures both.
    fn load(&self, workers: &Workers, model: &ModelConfig) -> Result<Needed> {
        let dir = open_model(std::path::Path::new(&model.base_path))?;
        let weights_bytes = workers.weights_bytes(&dir)?;
        let device = self.external.roomiest(&model.name);
        let settings = self.external.settings(model, device.as_ref(), &self.session, workers);
        let servable = workers.load(&Request {
            model: &model.name,
            version: 0,
            dir: &dir,
            settings: &settings,
            is_cancelled: &|| false,
            admit: &|_| Ok(()),
        })?;
        let snapshot = workers.snapshot().pop().context("there is no worker")?;
        let gpu_bytes = device.as_ref().and_then(|device| self.external.held(device, &snapshot));
        // Its worker is measured while the model is in it, as when it is served.
        self.external.refresh();
        drop(servable);
        let worker = Worker {
            base_bytes: snapshot.base_bytes,
            resident_bytes: snapshot.resident_bytes,
            gpu_bytes,
            is_on_gpu: device.is_some(),
        };
        let other_bytes = worker.beside(weights_bytes);
        let load_peak_bytes = weights_bytes + other_bytes;
        let load = native::Need {
            weights_bytes,
            packed_bytes: 0,
            other_bytes,
            load_peak_bytes,
            host_bytes: 0,
            host_peak_bytes: 0,
        };
        let (worker, rehearsed) = (Some(worker), None);
        let (plans, keeps_state, rows_asked) = (Vec::new(), false, 1);
        Ok(Needed { load, plans, worker, keeps_state, rows_asked, rehearsed })
    }
}

impl Worker {
    /// The bytes that it holds beside the model's variables where they are.
    fn beside(&self, weights_bytes: u64) -> u64 {
        let held = if self.is_on_gpu { self.gpu_bytes.unwrap_or(0) } else { self.resident_bytes };
        held.saturating_sub(weights_bytes)
    }

    /// The measurements, as the page has them.
    pub(super) fn entry(&self) -> PlannedWorker {
        PlannedWorker {
            base_bytes: self.base_bytes,
            resident_bytes: self.resident_bytes,
            gpu_bytes: self.gpu_bytes,
        }
    }
}
