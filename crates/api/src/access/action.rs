//! `Action`: everything that can be asked of a server, and the right that it needs.

use super::Right;

/// A kind of call, of either face.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// `/healthz`, `/readyz`, `grpc.health.v1.Health`.
    Health,
    /// `Predict`, `Classify`, `Regress`, `MultiInference`, over gRPC and REST.
    Infer,
    /// The states and the metadata of a model; the list of models.
    ReadModel,
    /// Metrics, the profiler, memory, devices, the scheduler, pages over gRPC, and gRPC reflection.
    ReadServer,
    /// `POST` and `DELETE /v1/models/NAME`.
    ChangeModel,
    /// `HandleReloadConfigRequest`, `PUT /v1/devices`, `POST /v1/memory:trim`.
    ChangeServer,
}

/// The models that a call is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope<'a> {
    /// One model.
    Model(&'a str),
    /// All models.
    Server,
    /// A model that stands in a message which was not read yet, or each model of a list: the key
    /// is asked again for each of them.
    Unread,
}

impl Action {
    /// The right that a call needs, if it needs any: the one table.
    pub(super) fn right(self) -> Option<Right> {
        match self {
            Self::Health => None,
            Self::Infer => Some(Right::Infer),
            Self::ReadModel | Self::ReadServer => Some(Right::Read),
            Self::ChangeModel | Self::ChangeServer => Some(Right::Manage),
        }
    }

    /// The action of a gRPC call, by its path. A call that nobody listed needs the highest right.
    pub(crate) fn of_grpc(path: &str) -> Self {
        let path = path.strip_prefix('/').unwrap_or_default();
        let (service, method) = path.split_once('/').unwrap_or_default();
        match (service, method) {
            ("grpc.health.v1.Health", _) => Self::Health,
            ("tensorflow.serving.PredictionService", "GetModelMetadata")
            | ("tensorflow.serving.ModelService", "GetModelStatus") => Self::ReadModel,
            ("tensorflow.serving.PredictionService", _) => Self::Infer,
            (
                "tensord.Pages"
                | "tensorflow.ProfilerService"
                | "grpc.reflection.v1.ServerReflection"
                | "grpc.reflection.v1alpha.ServerReflection",
                _,
            ) => Self::ReadServer,
            _ => Self::ChangeServer,
        }
    }

    /// Returns the scope that a key needs before the message of a gRPC call is read.
    pub(crate) fn scope_of_grpc(self) -> Scope<'static> {
        match self {
            Self::Infer | Self::ReadModel | Self::ChangeModel | Self::Health => Scope::Unread,
            Self::ReadServer | Self::ChangeServer => Scope::Server,
        }
    }
}
