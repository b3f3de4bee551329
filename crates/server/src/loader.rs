//! Introduces the lifecycle to the engines: makes a servable of a version.

use lifecycle::{Code, LoadError, Loader};
use native::Executor;
use session::{Error, Servable};
use tokio_util::sync::CancellationToken;

use crate::source;

/// Loads versions on our own engine.
pub(crate) struct Engines {
    pub(crate) executor: Executor,
    pub(crate) options: native::Options,
}

impl Loader for Engines {
    type Servable = Servable;

    fn load(
        &self,
        model: &str,
        version: i64,
        path: &str,
        _: &CancellationToken,
    ) -> Result<Servable, LoadError> {
        let dir = storage::open(&source::folder(path))
            .map_err(|error| LoadError::new(Code::NotFound, error.to_string()))?;
        let loaded = native::load(&dir, &self.options, &self.executor);
        let servable = loaded.map_err(|error| load_error(&error))?.servable;
        for (signature, why) in &servable.refused {
            tracing::warn!(model, version, signature, "signature is not served: {why}");
        }
        Ok(servable)
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
        Error::Unavailable(_) => Code::Unavailable,
        Error::Internal(_) => Code::Internal,
    };
    LoadError::new(code, error.to_string())
}
