//! The calls that change the server: models, devices, memory. Ours; TensorFlow Serving has only
//! the replacement of the whole list of models, over gRPC.

use bytes::Bytes;
use http::request::Parts;
use http::{Method as HttpMethod, Request};
use hyper::body::Body;
use lifecycle::Target;
use status::{Code, Status};

use super::reply::{self, Failure, Reply};
use super::{Control, Memory, Rest, body, door, pages, target};
use crate::access::{Action, Scope};
use crate::audit::{Audit, Caller};
use crate::control;
use crate::listen::Peer;

/// A change that a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    /// `POST /v1/models/NAME`
    AddModel(String),
    /// `DELETE /v1/models/NAME`
    RemoveModel(String),
    /// `PUT /v1/devices`
    Devices,
    /// `POST /v1/memory:trim`
    Trim,
}

impl Change {
    /// The change that a request asks for, if it asks for one.
    pub(super) fn parse(method: &HttpMethod, path: &str) -> Option<Self> {
        match (method, pages::plain(path)) {
            (&HttpMethod::PUT, "/v1/devices") => Some(Self::Devices),
            (&HttpMethod::POST, "/v1/memory:trim") => Some(Self::Trim),
            (&HttpMethod::POST, _) => target::bare_model(path).map(Self::AddModel),
            (&HttpMethod::DELETE, _) => target::bare_model(path).map(Self::RemoveModel),
            _ => None,
        }
    }

    fn need(&self) -> (Action, Scope<'_>) {
        match self {
            Self::AddModel(name) | Self::RemoveModel(name) => {
                (Action::ChangeModel, Scope::Model(name))
            }
            Self::Devices | Self::Trim => (Action::ChangeServer, Scope::Server),
        }
    }
}

impl Rest {
    /// Returns whether the server offers this change at all.
    pub(super) fn knows(&self, change: &Change) -> bool {
        match change {
            Change::AddModel(_) | Change::RemoveModel(_) => self.shared.control.is_some(),
            Change::Devices | Change::Trim => self.shared.memory.is_some(),
        }
    }

    /// Makes a change for those who may, and answers with what came of it.
    pub(super) async fn change<B>(&self, change: Change, request: Request<B>, peer: Peer) -> Reply
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let what = format!("{} {}", request.method(), request.uri().path());
        let mut audit = Audit::begin(Caller { peer, key: None }, what);
        let (parts, content) = request.into_parts();
        let changed = self.try_change(change, &parts, content, &mut audit.caller).await;
        audit.end(changed.as_ref().err().map(|failure| &failure.status));
        changed.map_or_else(|failure| self.refusal(failure), reply::json)
    }

    async fn try_change<B>(
        &self,
        change: Change,
        parts: &Parts,
        content: B,
        caller: &mut Caller,
    ) -> Result<Vec<u8>, Failure>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let (action, scope) = change.need();
        let key = self.admit(&parts.headers, action, scope)?;
        caller.key = key.map(|key| key.name.clone());
        self.shared.door.check_change(parts, caller.peer, caller.key.is_some())?;
        let charge = self.shared.context.budget.charge();
        let (body, mut charge) = body::read(parts, content, &self.shared, charge).await?;
        door::check_untyped(&parts.headers, &body)?;
        charge.grow(body.len().saturating_mul(json::cost::TREE))?;
        Ok(match change {
            Change::AddModel(name) => {
                control::add(self.control()?, &name, &body).await?;
                self.states(name)
            }
            Change::RemoveModel(name) => {
                self.control()?.remove(name.clone()).await?;
                self.states(name)
            }
            Change::Devices => self.memory()?.change_devices(&body)?,
            Change::Trim => self.memory()?.trim(),
        })
    }

    /// The states of a model, of which one that is gone without any version has none.
    fn states(&self, name: String) -> Vec<u8> {
        let states = pages::status(&self.shared.context.models, &Target::latest(name));
        states.unwrap_or_else(|_| b"{}\n".to_vec())
    }

    fn control(&self) -> Result<&dyn Control, Status> {
        self.shared.control.as_deref().ok_or_else(missing)
    }

    fn memory(&self) -> Result<&dyn Memory, Status> {
        self.shared.memory.as_deref().ok_or_else(missing)
    }
}

fn missing() -> Status {
    Status::new(Code::Unimplemented, "this server cannot be changed so")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_known_by_its_method_and_path() {
        let check = |method: HttpMethod, path: &str, expected: Option<Change>| {
            assert_eq!(Change::parse(&method, path), expected, "{method} {path}");
        };
        check(HttpMethod::PUT, "/v1/devices?x", Some(Change::Devices));
        check(HttpMethod::POST, "/v1/memory:trim", Some(Change::Trim));
        check(HttpMethod::POST, "/v1/models/a%2Fb", Some(Change::AddModel("a/b".to_owned())));
        check(HttpMethod::DELETE, "/v1/models/a", Some(Change::RemoveModel("a".to_owned())));
        check(HttpMethod::POST, "/v1/models/a:predict", None);
        check(HttpMethod::POST, "/v1/memory", None);
        check(HttpMethod::GET, "/v1/models/a", None);
        check(HttpMethod::GET, "/v1/devices", None);
    }
}
