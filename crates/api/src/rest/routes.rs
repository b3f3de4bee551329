//! The table of routes, and the handler of each.

use std::time::Instant;

use bytes::Bytes;
use http::header::ORIGIN;
use http::{Method as HttpMethod, Request, StatusCode};
use hyper::body::Body;
use lifecycle::Target;

use super::json::{self, write};
use super::reply::{self, Reply};
use super::target::{self, Method, Route};
use super::{ModelsPage, Rest, body, pages};
use crate::call::Call;
use crate::predict;
use crate::status::Status;
use crate::{classify, regress};

impl Rest {
    /// Answers a request.
    pub async fn respond<B>(&self, request: Request<B>) -> Reply
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
        if let Some(page) = pages::respond(&self.shared, request.method(), &path) {
            return page;
        }
        if matches!(*request.method(), HttpMethod::TRACE | HttpMethod::CONNECT) {
            return reply::html_error(StatusCode::NOT_IMPLEMENTED); // As libevent.
        }
        if !target::is_api(&path) && path != pages::LIST {
            return reply::html_error(StatusCode::NOT_FOUND);
        }
        let mut reply = self.api(request, &path).await;
        if self.shared.options.has_cors {
            reply::add_cors(&mut reply);
        }
        reply
    }

    /// Answers a request below `/v1/`.
    async fn api<B>(&self, request: Request<B>, path: &str) -> Reply
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let options = &self.shared.options;
        if request.method() == HttpMethod::OPTIONS {
            return preflight(&request);
        }
        let is_models = path.eq_ignore_ascii_case("/v1/models");
        let lists = path == pages::LIST || (is_models && options.models_page == ModelsPage::List);
        if request.method() == HttpMethod::GET && lists {
            return reply::json(pages::list(&self.shared.models));
        }
        let deadline = options.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let (parts, content) = request.into_parts();
        let content = match body::read(&parts.headers, content, options).await {
            Ok(content) => content,
            Err(reply) => return *reply,
        };
        let answer = match target::parse(parts.method.as_str(), path) {
            Ok(route) => self.call(route, &content, deadline).await,
            Err(status) => Err(status),
        };
        answer.map_or_else(|status| reply::error(&status), reply::json)
    }

    async fn call(
        &self,
        Route { method, target }: Route,
        body: &[u8],
        deadline: Option<Instant>,
    ) -> Result<Vec<u8>, Status> {
        match method {
            Method::Predict => self.predict(target, body, deadline).await,
            Method::Classify => self.classify(target, body, deadline).await,
            Method::Regress => self.regress(target, body, deadline).await,
            Method::Status => pages::status(&self.shared.models, &target),
            Method::Metadata => pages::metadata(&self.shared.models, target),
        }
    }

    async fn predict(
        &self,
        target: Target,
        body: &[u8],
        deadline: Option<Instant>,
    ) -> Result<Vec<u8>, Status> {
        let call = Call { target, signature: String::new(), deadline };
        // What is wrong with the text is said before what is wrong with the target.
        let servable = call.servable(&self.shared.models);
        let request = json::Request::read(body, |name| {
            let servable = servable.as_ref().map_err(Status::clone)?;
            let call = Call { signature: name.to_owned(), ..call.clone() };
            let name = call.signature_name();
            let missing = || {
                let text = format!("Serving signature name: \"{name}\" not found in signature def");
                Status::invalid(text)
            };
            Ok(&**servable.signature(name).ok_or_else(missing)??)
        })?;
        let json::Request { signature, format, inputs } = request;
        self.shared.options.method_names.check_predict(signature)?;
        let inputs = predict::inputs(signature, inputs, &[], |_, tensor| Ok(tensor))?;
        let answer =
            predict::run(servable.as_ref().map_err(Status::clone)?, signature, inputs, deadline)
                .await?;
        json::write_outputs(&answer.outputs, format)
    }

    async fn classify(
        &self,
        target: Target,
        body: &[u8],
        deadline: Option<Instant>,
    ) -> Result<Vec<u8>, Status> {
        let (signature, input) = json::examples::read(body)?;
        let call = Call { target, signature, deadline };
        let Self { shared } = self;
        let names = shared.options.method_names;
        let answer = classify::classify(&shared.models, &call, Some(input), names).await?;
        write::classifications(&answer.result.unwrap_or_default())
    }

    async fn regress(
        &self,
        target: Target,
        body: &[u8],
        deadline: Option<Instant>,
    ) -> Result<Vec<u8>, Status> {
        let (signature, input) = json::examples::read(body)?;
        let call = Call { target, signature, deadline };
        let Self { shared } = self;
        let names = shared.options.method_names;
        let answer = regress::regress(&shared.models, &call, Some(input), names).await?;
        write::regressions(&answer.result.unwrap_or_default())
    }
}

/// Answers what a browser asks before it lets a page of another site ask.
fn preflight<B>(request: &Request<B>) -> Reply {
    let origin = request.headers().get(ORIGIN).and_then(|origin| origin.to_str().ok());
    let is_web = origin.is_some_and(|text| text.contains("http://") || text.contains("https://"));
    reply::empty(if is_web { StatusCode::OK } else { StatusCode::BAD_REQUEST })
}
