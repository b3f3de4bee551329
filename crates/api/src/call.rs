//! `Call`: target, signature and urgency of one request.

use lifecycle::{Handle, Target};
use proto::serving::ModelSpec;
use proto::serving::model_spec::VersionChoice;
use session::{DEFAULT_SIGNATURE, Servable, Urgency};
use status::Status;

use crate::context::Context;
use crate::hints;

/// Everything that a request asks for, apart from its inputs.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    /// The model, and the version or label.
    pub(crate) target: Target,
    /// The signature's name; empty for the default one.
    pub(crate) signature: String,
    /// The urgency of the request.
    pub(crate) urgency: Urgency,
}

impl Call {
    /// The call that a `ModelSpec` describes. Fails if there is none.
    pub(crate) fn from_spec(spec: Option<ModelSpec>, urgency: Urgency) -> Result<Self, Status> {
        let spec = spec.ok_or_else(|| Status::invalid("Missing ModelSpec"))?;
        let target = match spec.version_choice {
            None => Target::latest(spec.name),
            Some(VersionChoice::Version(version)) => Target::version(spec.name, version),
            Some(VersionChoice::VersionLabel(label)) => Target::label(spec.name, label),
        };
        Ok(Self { target, signature: spec.signature_name, urgency })
    }

    /// The servable asked for.
    pub(crate) fn servable(&self, context: &Context) -> Result<Handle<Servable>, Status> {
        let found = context.models.get(&self.target);
        found.map_err(|error| hints::about_target(context, error.into(), &self.target))
    }

    /// The servable asked for, which is told that a run is on its way.
    pub(crate) fn servable_to_run(&self, context: &Context) -> Result<Handle<Servable>, Status> {
        let servable = self.servable(context)?;
        servable.engine.expect();
        Ok(servable)
    }

    /// The name of the signature asked for, the default one if none was named.
    pub(crate) fn signature_name(&self) -> &str {
        if self.signature.is_empty() { DEFAULT_SIGNATURE } else { &self.signature }
    }
}

/// The check that the method name of a signature fits the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MethodNames {
    /// The name must fit.
    Checked,
    /// The name need not fit: TensorFlow 2 writes `predict` everywhere.
    Unchecked,
}

/// The `ModelSpec` of an answer.
pub(crate) fn answered(model: &str, version: i64, signature: &str) -> ModelSpec {
    ModelSpec {
        name: model.to_owned(),
        signature_name: signature.to_owned(),
        version_choice: Some(VersionChoice::Version(version)),
    }
}
