//! Pages that are only looked at: states, metadata, the list of models, health, metrics.

use http::{Method, StatusCode};
use lifecycle::{Choice, ModelSnapshot, Target};
use proto::serving::model_spec::VersionChoice;
use proto::serving::{GetModelStatusRequest, ModelSpec};
use serde_json::{Value, json};
use session::Urgency;

use super::Shared;
use super::reply::{self, Reply};
use crate::Models;
use crate::call::{Call, answered};
use crate::metadata;
use crate::model_status;
use crate::signature_text;
use crate::status::Status;

/// The list of models, under TensorFlow Serving's name too.
pub(crate) const LIST: &str = "/v1/models:list";

/// Answers what is no part of TensorFlow Serving's API.
pub(crate) fn respond(shared: &Shared, method: &Method, path: &str) -> Option<Reply> {
    let plain = path.split_once('?').map_or(path, |(plain, _)| plain);
    if let Some(metrics) = &shared.metrics {
        if metrics.path.as_deref() == Some(plain) {
            return Some(monitoring(path, plain, &metrics.page));
        }
        if plain == "/metrics" && *method == Method::GET {
            return Some(reply::text(StatusCode::OK, (metrics.page)()));
        }
    }
    let is_look = matches!(*method, Method::GET | Method::HEAD);
    if let Some((_, page)) = shared.looks.iter().find(|(path, _)| is_look && *path == plain) {
        return Some(reply::json(page().into_bytes()));
    }
    match plain {
        "/healthz" if is_look => Some(reply::text(StatusCode::OK, "ok\n".to_owned())),
        "/readyz" if is_look => Some(if shared.context.models.is_ready() {
            reply::text(StatusCode::OK, "ready\n".to_owned())
        } else {
            reply::text(StatusCode::SERVICE_UNAVAILABLE, "not ready\n".to_owned())
        }),
        _ => None,
    }
}

/// The page that the monitoring config names; it may not be asked anything.
fn monitoring(path: &str, expected: &str, page: &super::Page) -> Reply {
    if path == expected {
        return reply::text(StatusCode::OK, page());
    }
    let text = format!("Unexpected path: {path}. Should be {expected}");
    reply::text(StatusCode::BAD_REQUEST, text)
}

/// The states of a model's versions.
pub(crate) fn status(models: &Models, target: &Target) -> Result<Vec<u8>, Status> {
    let version_choice = match &target.choice {
        Choice::Latest => None,
        Choice::Version(version) => Some(VersionChoice::Version(*version)),
        Choice::Label(label) => Some(VersionChoice::VersionLabel(label.clone())),
    };
    let spec =
        ModelSpec { name: target.model.clone(), version_choice, signature_name: String::new() };
    let request = GetModelStatusRequest { model_spec: Some(spec) };
    let response = model_status::model_status(models, request)?;
    Ok(proto::json::print(&response).map_err(|error| unprintable(&error))?.into_bytes())
}

/// The signatures of a model, put together as `http_rest_api_util.cc` does.
pub(crate) fn metadata(models: &Models, target: Target) -> Result<Vec<u8>, Status> {
    let call = Call { target, signature: String::new(), urgency: Urgency::default() };
    let (version, signatures) = metadata::signatures(models, &call)?;
    let spec = answered(&call.target.model, version, "");
    let spec = proto::json::print(&spec).map_err(|error| unprintable(&error))?;
    let signatures = signature_text::json(&signatures).map_err(|error| unprintable(&error))?;
    let text = format!(
        "{{\n\"model_spec\":{spec},\n\"metadata\": {{\"signature_def\": {signatures}}}\n}}\n"
    );
    Ok(text.into_bytes())
}

fn unprintable(error: &proto::json::JsonError) -> Status {
    let text = format!("Failed to convert proto to json. Error: {error}");
    Status::new(lifecycle::Code::Internal, text)
}

/// All models with their versions, states and labels.
pub(crate) fn list(models: &Models) -> Vec<u8> {
    let models: Vec<Value> = models.snapshot().iter().map(|model| listed(model)).collect();
    let mut text = format!("{:#}", json!({ "models": models }));
    text.push('\n');
    text.into_bytes()
}

fn listed(model: &ModelSnapshot) -> Value {
    let version = |status: &lifecycle::VersionStatus| {
        let error = status.error.as_ref();
        json!({
            "version": status.version.to_string(),
            "state": status.state.name(),
            "status": {
                "error_code": error.map_or("OK", |error| error.code.name()),
                "error_message": error.map_or("", |error| &error.message),
            },
        })
    };
    let labels = model.labels.iter().map(|(label, version)| (label.clone(), version.to_string()));
    json!({
        "name": model.name,
        "versions": model.versions.iter().map(version).collect::<Vec<_>>(),
        "labels": labels.collect::<std::collections::BTreeMap<_, _>>(),
    })
}
