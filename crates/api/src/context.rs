//! State that both faces share: the models, the counters, the limit of bytes in flight.

use std::sync::Arc;

use status::Status;

use crate::Models;
use crate::access::{Access, Action, Digest, Key, Scope};
use crate::budget::Budget;
use crate::call::MethodNames;
use crate::codec::Codec;
use crate::hints::Hints;
use crate::record::Recorder;
use crate::stats::{Api, Entrypoint, InFlight, Stats};
use crate::trace::Trace;

/// State that every method needs. Cheap to clone; clones are one and the same.
#[derive(Debug, Clone)]
pub struct Context {
    /// The models that are served.
    pub models: Models,
    /// Counts requests.
    pub stats: Arc<Stats>,
    /// The bytes of all requests in flight.
    pub budget: Budget,
    /// Decodes and encodes long messages.
    pub codec: Codec,
    /// The check that the method name of a signature fits the call.
    pub method_names: MethodNames,
    /// Takes some of the requests, to log them.
    pub recorder: Option<Arc<dyn Recorder>>,
    /// The keys that calls need; without them, everybody may ask everything.
    pub access: Option<Arc<Access>>,
    /// The switch of hints behind messages.
    pub hints: Hints,
}

impl Context {
    /// Returns the recorder of the request to a model that is about to be run, if it is to be
    /// recorded.
    pub(crate) fn sampled(&self, model: &str) -> Option<&dyn Recorder> {
        self.recorder.as_deref().filter(|recorder| recorder.samples(model))
    }

    /// Admits a call, or says why not. The key is that of the caller, if the server has keys.
    pub(crate) fn admit(
        &self,
        presented: Option<&Digest>,
        action: Action,
        scope: Scope<'_>,
    ) -> Result<Option<Arc<Key>>, Status> {
        match &self.access {
            Some(access) => access.admit(presented, action, scope),
            None => Ok(None),
        }
    }

    /// Begins to count a request, which is logged when it ends.
    pub(crate) fn begin(
        &self,
        model: &str,
        api: Api,
        entrypoint: Entrypoint,
        trace: Trace,
    ) -> InFlight {
        let is_known = || self.models.model(model).is_some();
        self.stats.begin(model, is_known, trace).counted_as(api, entrypoint)
    }
}
