//! The key of a gRPC call: asked for before anything of its message is read, and again for each
//! model that a message names. Keys may end or be taken back while a stream is open.

use http::{Extensions, Request, Response};
use proto::serving::ModelSpec;
use status::Status;
use tonic::body::Body;

use super::Grpc;
use super::to_tonic::to_tonic;
use crate::access::{self, Action, Digest, Scope};
use crate::audit::{Audit, Caller};
use crate::context::Context;
use crate::listen::{ConnectInfo, Peer};

/// The key that a call presented, for those who read its messages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Presented(Digest);

impl Presented {
    /// The key of a call that was admitted; none if the server has no keys.
    pub(super) fn of(extensions: &Extensions) -> Option<Self> {
        extensions.get().copied()
    }
}

/// The answer to a call that its path and headers do not admit.
pub(super) fn refusal<B>(context: &Context, request: &mut Request<B>) -> Option<Response<Body>> {
    context.access.as_ref()?;
    let action = Action::of_grpc(request.uri().path());
    let presented = access::presented(request.headers());
    if let Err(status) = context.admit(presented.as_ref(), action, action.scope_of_grpc()) {
        if action == Action::ChangeServer {
            let caller = Caller { peer: peer(request.extensions()), key: None };
            Audit::begin(caller, request.uri().path().to_owned()).end(Some(&status));
        }
        return Some(to_tonic(&status).into_http());
    }
    if let Some(digest) = presented {
        request.extensions_mut().insert(Presented(digest));
    }
    None
}

/// The other side of a call, as its connection or whoever took the connection says.
fn peer(extensions: &Extensions) -> Peer {
    let of_connection = || extensions.get().map(|info: &ConnectInfo| info.peer);
    extensions.get().copied().or_else(of_connection).unwrap_or(Peer::Unnamed)
}

impl Grpc {
    /// The answer to a call that no key admits, for a server that puts the services together
    /// itself. Others may be passed on.
    pub fn refusal<B>(&self, request: &mut Request<B>) -> Option<Response<Body>> {
        refusal(&self.context, request)
    }

    /// Admits what a message asks of a model.
    pub(super) fn admit_model(
        &self,
        presented: Option<Presented>,
        action: Action,
        spec: Option<&ModelSpec>,
    ) -> Result<(), Status> {
        let model = Scope::Model(spec.map_or("", |spec| &spec.name));
        self.context.admit(presented.map(|key| key.0).as_ref(), action, model).map(drop)
    }

    /// Returns the caller who replaces the list of models.
    pub(super) fn caller(&self, extensions: &Extensions) -> Result<Caller, Status> {
        let presented = Presented::of(extensions).map(|key| key.0);
        let key = self.context.admit(presented.as_ref(), Action::ChangeServer, Scope::Server)?;
        Ok(Caller { peer: peer(extensions), key: key.map(|key| key.name.clone()) })
    }
}
