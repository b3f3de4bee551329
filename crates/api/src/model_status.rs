//! `GetModelStatus`: the states of a model's versions. The rules are those of TensorFlow Serving's
//! `get_model_status_impl.cc`.

use lifecycle::{Choice, Target, VersionStatus};
use proto::serving::model_spec::VersionChoice;
use proto::serving::{
    GetModelStatusRequest, GetModelStatusResponse, ModelVersionStatus, StatusProto,
};
use status::Status;

use crate::Models;
use crate::context::Context;
use crate::hints;

/// The states of one version or of all, for a caller who is told what there is if it is not there.
pub(crate) fn asked(
    context: &Context,
    request: GetModelStatusRequest,
) -> Result<GetModelStatusResponse, Status> {
    let target = request.model_spec.clone().map(|spec| Target {
        model: spec.name,
        choice: match spec.version_choice {
            Some(VersionChoice::Version(version)) => Choice::Version(version),
            Some(VersionChoice::VersionLabel(_)) | None => Choice::Latest,
        },
    });
    model_status(&context.models, request).map_err(|status| match &target {
        Some(target) => hints::about_target(context, status, target),
        None => status,
    })
}

/// The states of one version or of all. A label is ignored, as upstream.
pub(crate) fn model_status(
    models: &Models,
    request: GetModelStatusRequest,
) -> Result<GetModelStatusResponse, Status> {
    let spec = request.model_spec.ok_or_else(|| Status::invalid("Missing ModelSpec"))?;
    let version = match spec.version_choice {
        Some(VersionChoice::Version(version)) => Some(version),
        Some(VersionChoice::VersionLabel(_)) | None => None,
    };
    let versions = models.status(&spec.name, version)?;
    Ok(GetModelStatusResponse { model_version_status: versions.iter().map(state).collect() })
}

fn state(status: &VersionStatus) -> ModelVersionStatus {
    let (error_code, error_message) = match status.failure() {
        None => (0, String::new()),
        Some(error) => (error.status.code.number(), error.status.message.clone()),
    };
    ModelVersionStatus {
        version: status.version,
        state: status.state.number(),
        status: Some(StatusProto { error_code, error_message }),
    }
}
