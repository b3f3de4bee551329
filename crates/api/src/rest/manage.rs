//! `POST` and `DELETE /v1/models/NAME`: add and remove one model. Ours; TensorFlow Serving has only
//! the replacement of the whole list, over gRPC.

use bytes::Bytes;
use http::{Method as HttpMethod, Request};
use hyper::body::Body;
use lifecycle::Target;

use super::reply::{self, Failure, Reply};
use super::{Rest, body, pages, target};
use crate::control::{self, Control};

/// What is to be done with a model.
pub(super) enum Change {
    Add(String),
    Remove(String),
}

/// The change that a request asks for, if it is one.
pub(super) fn change(method: &HttpMethod, path: &str) -> Option<Change> {
    let name = target::bare_model(path)?;
    match *method {
        HttpMethod::POST => Some(Change::Add(name)),
        HttpMethod::DELETE => Some(Change::Remove(name)),
        _ => None,
    }
}

impl Rest {
    /// Makes a change, and answers with the states of the model.
    pub(super) async fn change<B>(
        &self,
        control: &dyn Control,
        change: Change,
        request: Request<B>,
    ) -> Reply
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let changed = async {
            let (parts, content) = request.into_parts();
            let mut charge = self.shared.context.budget.charge();
            let options = &self.shared.options;
            let body = body::read(&parts.headers, content, options, &mut charge).await?;
            let name = match change {
                Change::Add(name) => {
                    control::add(control, &name, &body).await?;
                    name
                }
                Change::Remove(name) => {
                    control.remove(name.clone()).await?;
                    name
                }
            };
            Ok::<_, Failure>(pages::status(&self.shared.context.models, &Target::latest(name)))
        };
        match changed.await {
            Ok(Ok(states)) => reply::json(states),
            // A model that is gone without ever having had a version.
            Ok(Err(_)) => reply::json(b"{}\n".to_vec()),
            Err(failure) => reply::error(&failure),
        }
    }
}
