//! Introduces the lifecycle to the engines: makes a servable of a version.

use std::sync::Arc;

use lifecycle::{Code, LoadError, Loader};
use native::Executor;
use session::{Error, Servable};
use storage::Storage;
use tensorflow::{HOW_TO_INSTALL, ModelSettings, Request, Workers};
use tokio_util::sync::CancellationToken;

use crate::active::Active;
use crate::batching::Versions;
use crate::config::{Session, Warmup};
use crate::engines::{Choices, Engine};
use crate::{source, warmup};

/// Loads versions on our own engine or on TensorFlow.
pub(crate) struct Engines {
    pub(crate) executor: Executor,
    pub(crate) options: native::Options,
    pub(crate) choices: Choices,
    pub(crate) workers: Option<Workers>,
    pub(crate) settings: Settings,
}

/// How versions are loaded, whatever their engine.
pub(crate) struct Settings {
    pub(crate) session: Session,
    pub(crate) active: Arc<Active>,
    pub(crate) versions: Arc<Versions>,
    pub(crate) warmup: Option<Warmup>,
}

/// A version to be loaded.
struct Wanted<'a> {
    model: &'a str,
    version: i64,
    dir: Storage,
    cancel: &'a CancellationToken,
}

impl Loader for Engines {
    type Servable = Servable;

    fn load(
        &self,
        model: &str,
        version: i64,
        path: &str,
        cancel: &CancellationToken,
    ) -> Result<Servable, LoadError> {
        self.settings.tell(model, version);
        let dir = storage::open(&source::folder(path))
            .map_err(|error| LoadError::new(Code::NotFound, error.to_string()))?;
        let wanted = Wanted { model, version, dir, cancel };
        let servable = match self.choices.of(model) {
            Engine::Auto => self.either(&wanted),
            Engine::Native => self.native(&wanted),
            Engine::TensorFlow => self.tensorflow(&wanted),
        };
        let servable = servable.map_err(|error| load_error(&error))?;
        let engine = servable.engine.name();
        tracing::info!(model, version, engine, "loaded");
        for (signature, why) in &servable.refused {
            tracing::warn!(model, version, signature, "signature is not served: {why}");
        }
        // Before the warm-up, which goes through the batches that it warms up.
        let versions = &self.settings.versions;
        versions
            .add((model, version), wanted.dir.clone(), &servable)
            .map_err(|error| LoadError::new(Code::InvalidArgument, format!("{error:#}")))?;
        if let Some(options) = self.settings.warmup {
            let dir = &wanted.dir;
            let fresh = warmup::Version { model, version, servable: &servable, dir };
            fresh.warm_up(options, cancel)?;
        }
        Ok(servable)
    }
}

impl Settings {
    /// Says which memory settings a model has, if it has any.
    fn tell(&self, model: &str, version: i64) {
        let gpu = self.session.gpu_options(&self.active.get(model));
        if gpu.allow_growth || gpu.per_process_gpu_memory_fraction > 0.0 {
            let (growth, fraction) = (gpu.allow_growth, gpu.per_process_gpu_memory_fraction);
            tracing::info!(model, version, growth, fraction, "memory settings");
        }
    }
}

impl Engines {
    fn native(&self, wanted: &Wanted<'_>) -> session::Result<Servable> {
        native::load(&wanted.dir, &self.options, &self.executor).map(|loaded| loaded.servable)
    }

    fn tensorflow(&self, wanted: &Wanted<'_>) -> session::Result<Servable> {
        let Some(workers) = &self.workers else {
            let text = format!("there is no TensorFlow: {HOW_TO_INSTALL}");
            return Err(Error::FailedPrecondition(text));
        };
        let own = self.settings.session.own(&self.settings.active.get(wanted.model));
        let session = own.map(|own| workers.with_usual_threads(&own));
        workers.load(&Request {
            model: wanted.model,
            version: wanted.version,
            dir: &wanted.dir,
            settings: &ModelSettings { session },
            is_cancelled: &|| wanted.cancel.is_cancelled(),
        })
    }

    /// Our own engine if it can run all signatures, else TensorFlow if there is one.
    fn either(&self, wanted: &Wanted<'_>) -> session::Result<Servable> {
        let (model, version) = (wanted.model, wanted.version);
        match (self.native(wanted), &self.workers) {
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
            (Err(Error::Unimplemented(why)), Some(_)) => {
                tracing::info!(model, version, "goes to TensorFlow: {why}");
                self.tensorflow(wanted)
            }
            (Err(Error::Unimplemented(why)), None) => {
                Err(Error::Unimplemented(format!("{why}; TensorFlow could: {HOW_TO_INSTALL}")))
            }
            (Err(error), _) => Err(error),
        }
    }
}

fn load_error(error: &Error) -> LoadError {
    let code = match error {
        Error::InvalidArgument(_) => Code::InvalidArgument,
        Error::NotFound(_) => Code::NotFound,
        Error::FailedPrecondition(_) => Code::FailedPrecondition,
        Error::OutOfRange(_) => Code::OutOfRange,
        Error::Unimplemented(_) => Code::Unimplemented,
        Error::ResourceExhausted(_) => Code::ResourceExhausted,
        Error::DataLoss(_) => Code::DataLoss,
        Error::DeadlineExceeded(_) => Code::DeadlineExceeded,
        Error::Cancelled(_) => Code::Cancelled,
        Error::Unavailable(_) | Error::Busy { .. } => Code::Unavailable,
        Error::Internal(_) => Code::Internal,
    };
    LoadError::new(code, error.to_string())
}
