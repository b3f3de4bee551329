//! Pages that are only looked at: states, metadata, the list of models, health, metrics.

use std::sync::Arc;

use ::pages::{
    EngineName, FailureEntry, LoadProgress, ModelEntry, ModelListPage, VersionEntry, VersionState,
};
use bytes::Bytes;
use http::{Method, StatusCode};
use lifecycle::{Choice, ModelSnapshot, State, Target, VersionStatus};
use proto::serving::model_spec::VersionChoice;
use proto::serving::{GetModelStatusRequest, ModelSpec};
use session::Urgency;
use status::Status;

use super::Shared;
use super::reply::{self, Failure, Reply};
use crate::Models;
use crate::access::{Action, Key};
use crate::call::{Call, answered};
use crate::context::Context;
use crate::metadata;
use crate::model_status;
use crate::signature_text;

/// The list of models, under TensorFlow Serving's name too.
pub(crate) const LIST: &str = "/v1/models:list";

/// A page that is no part of TensorFlow Serving's API.
pub(crate) enum Found<'a> {
    /// The metrics, at the path that the monitoring config names.
    Monitoring(&'a super::Page),
    Metrics(&'a super::Page),
    /// A page of JSON.
    Look(&'a super::Page),
    Healthz,
    Readyz,
}

/// The page at a path, if there is one.
pub(crate) fn find<'a>(shared: &'a Shared, method: &Method, path: &str) -> Option<Found<'a>> {
    let plain = plain(path);
    if let Some(metrics) = &shared.metrics {
        if metrics.path.as_deref() == Some(plain) {
            return Some(Found::Monitoring(&metrics.page));
        }
        if plain == "/metrics" && *method == Method::GET {
            return Some(Found::Metrics(&metrics.page));
        }
    }
    let is_look = matches!(*method, Method::GET | Method::HEAD);
    if let Some((_, page)) = shared.looks.iter().find(|(path, _)| is_look && *path == plain) {
        return Some(Found::Look(page));
    }
    match plain {
        "/healthz" if is_look => Some(Found::Healthz),
        "/readyz" if is_look => Some(Found::Readyz),
        _ => None,
    }
}

impl Found<'_> {
    /// Returns the action that reading the page is.
    pub(crate) fn action(&self) -> Action {
        match self {
            Self::Monitoring(_) | Self::Metrics(_) | Self::Look(_) => Action::ReadServer,
            Self::Healthz | Self::Readyz => Action::Health,
        }
    }

    /// The page, for a request with this path and query.
    pub(crate) async fn reply(&self, shared: &Shared, path: &str) -> Reply {
        match self {
            Self::Monitoring(_) if plain(path) != path => unexpected(path, plain(path)),
            Self::Monitoring(page) | Self::Metrics(page) => {
                let page = Arc::clone(page);
                let text = |text| reply::text(StatusCode::OK, text);
                made(shared, move || page().into_bytes()).await.map_or_else(refusal(shared), text)
            }
            Self::Look(page) => {
                let page = Arc::clone(page);
                let page = made(shared, move || page().into_bytes()).await;
                page.map_or_else(refusal(shared), reply::json)
            }
            Self::Healthz => reply::text(StatusCode::OK, "ok\n"),
            Self::Readyz if shared.context.models.is_ready() => {
                reply::text(StatusCode::OK, "ready\n")
            }
            Self::Readyz => reply::text(StatusCode::SERVICE_UNAVAILABLE, "not ready\n"),
        }
    }
}

/// A path without its query.
pub(crate) fn plain(path: &str) -> &str {
    path.split_once('?').map_or(path, |(plain, _)| plain)
}

/// Makes a page that may be long, off the threads that serve connections. The page is charged until
/// it is sent.
pub(crate) async fn made(
    shared: &Shared,
    make: impl FnOnce() -> Vec<u8> + Send + 'static,
) -> Result<Bytes, Failure> {
    let mut charge = shared.context.budget.charge();
    let make = move || {
        let page = make();
        charge.grow(page.len())?;
        Ok::<_, Status>(charge.onto(page))
    };
    Ok(shared.context.codec.run(usize::MAX, make).await??)
}

fn refusal(shared: &Shared) -> impl FnOnce(Failure) -> Reply {
    |failure| reply::error(&failure.told(shared.context.hints), &shared.context.budget)
}

/// The page that the monitoring config names may not be asked anything.
fn unexpected(path: &str, expected: &str) -> Reply {
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
pub(crate) fn metadata(context: &Context, target: Target) -> Result<Vec<u8>, Status> {
    let call = Call { target, signature: String::new(), urgency: Urgency::default() };
    let (version, signatures) = metadata::signatures(context, &call)?;
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
    Status::new(status::Code::Internal, text)
}

/// All models that a key is for, with their versions, states, labels and requests.
pub(crate) fn list(context: &Context, key: Option<&Key>) -> Vec<u8> {
    let is_shown = |name: &str| key.is_none_or(|key| key.covers(name));
    let models = context.models.snapshot();
    let shown = models.iter().filter(|model| is_shown(&model.name));
    let page = ModelListPage { models: shown.map(|model| listed(context, model)).collect() };
    ::pages::print(&page).into_bytes()
}

fn listed(context: &Context, model: &ModelSnapshot) -> ModelEntry {
    let labels = model.labels.iter().map(|(label, version)| (label.clone(), version.to_string()));
    ModelEntry {
        name: model.name.clone(),
        versions: model.versions.iter().map(|status| version(context, model, status)).collect(),
        labels: labels.collect(),
        requests: context.stats.requests(&model.name),
    }
}

fn version(context: &Context, model: &ModelSnapshot, status: &VersionStatus) -> VersionEntry {
    let error = status.failure();
    let served = context.models.get(&Target::version(model.name.clone(), status.version)).ok();
    let headway = context.models.headway(&model.name, status.version);
    let progress = headway.filter(|_| status.state == State::Loading).map(|headway| LoadProgress {
        phase: headway.phase.to_owned(),
        done_bytes: headway.done_bytes,
        total_bytes: headway.total_bytes,
    });
    VersionEntry {
        version: status.version.to_string(),
        state: match status.state {
            State::Start => VersionState::Start,
            State::Loading => VersionState::Loading,
            State::Available => VersionState::Available,
            State::Unloading => VersionState::Unloading,
            State::End => VersionState::End,
        },
        status: FailureEntry {
            error_code: error.map_or("OK", |error| error.status.code.name()).to_owned(),
            error_message: error.map(|error| error.status.message.clone()).unwrap_or_default(),
        },
        engine: served.and_then(|handle| EngineName::parse(handle.engine.name())),
        progress,
    }
}
