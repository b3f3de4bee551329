//! What a model that TensorFlow serves needs, and what its worker costs by itself.

use std::sync::Arc;

use anyhow::{Context, Result};
use device::placement::Slot;
use proto::serving::ModelConfig;
use serde_json::{Value, json};
use tensorflow::{Request, Workers};

use super::Needed;
use crate::config::Config;
use crate::devices::{DeviceOptions, Devices};
use crate::engines::{self, Choices, Engine};
use crate::external::{External, Wish};
use crate::flags::Flags;

/// TensorFlow, if there is one, and the GPUs that only it can use.
pub(super) struct TensorFlow {
    choices: Choices,
    external: Arc<External>,
    session: crate::config::Session,
}

/// What was measured of a worker with one model in it.
pub(super) struct Worker {
    /// What it held before the model was loaded: the library.
    base_bytes: u64,
    /// What it held with the model, of the host and of its GPU.
    resident_bytes: u64,
    gpu_bytes: Option<u64>,
    /// Whether the model is on a GPU.
    is_on_gpu: bool,
}

impl TensorFlow {
    pub(super) fn new(flags: &Flags, config: &Config, devices: &Arc<Devices>) -> Result<Self> {
        let choices = Choices::parse(&flags.engine)?;
        let workers = engines::workers(flags, &choices, config)?.map(Arc::new);
        let external = External::start(&DeviceOptions::new(flags)?, workers, Arc::clone(devices))?;
        Ok(Self { choices, external, session: config.session.clone() })
    }

    /// The GPUs that only TensorFlow can use, as places for models.
    pub(super) fn slots(&self) -> Vec<Slot> {
        let slot = |one: &Arc<crate::external::ExternalDevice>| Slot {
            device: one.name(),
            free_bytes: one.limit_bytes(),
        };
        self.external.all().iter().map(slot).collect()
    }

    /// What a model needs, if TensorFlow is to serve it; `native` measures it on our own engine.
    pub(super) fn measure(
        &self,
        devices: &Devices,
        model: &ModelConfig,
        native: impl FnOnce() -> Result<Needed>,
    ) -> Result<Needed> {
        let rule = devices.rule(&model.name);
        let wish = Wish { model: &model.name, version: 0, config: model, rule: &rule };
        let Some(workers) = self.external.workers() else { return native() };
        match self.choices.of(&model.name) {
            Engine::Native => native(),
            Engine::TensorFlow => self.load(workers, &wish),
            Engine::Auto if !self.external.candidates(&wish).is_empty() => {
                self.load(workers, &wish)
            }
            Engine::Auto => native().or_else(|error| match error.downcast_ref() {
                Some(session::Error::Unimplemented(_)) => self.load(workers, &wish),
                _ => Err(error),
            }),
        }
    }

    /// Loads a model in a worker, and measures both.
    fn load(&self, workers: &Workers, wish: &Wish<'_>) -> Result<Needed> {
        let dir = super::super::open(std::path::Path::new(&wish.config.base_path))?;
        let weights_bytes = workers.weights_bytes(&dir)?;
        let device = self.external.choose(wish, weights_bytes).into_iter().next();
        let settings = self.external.settings(wish, device.as_ref(), (&self.session, workers));
        let servable = workers.load(&Request {
            model: wish.model,
            version: wish.version,
            dir: &dir,
            settings: &settings,
            is_cancelled: &|| false,
            admit: &|_| Ok(()),
        })?;
        let snapshot = workers.snapshot().pop().context("there is no worker")?;
        let gpu_bytes = device.as_ref().and_then(|device| self.external.held(device, &snapshot));
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
    /// Whether the model is on a GPU that only TensorFlow can use.
    pub(super) fn is_on_gpu(&self) -> bool {
        self.is_on_gpu
    }

    /// What it holds beside the model's variables where they are.
    fn beside(&self, weights_bytes: u64) -> u64 {
        let held = if self.is_on_gpu { self.gpu_bytes.unwrap_or(0) } else { self.resident_bytes };
        held.saturating_sub(weights_bytes)
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "base_bytes": self.base_bytes,
            "resident_bytes": self.resident_bytes,
            "gpu_bytes": self.gpu_bytes,
        })
    }
}
