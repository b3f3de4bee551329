//! The table of routes, and the handler of each.

use std::time::Instant;

use bytes::Bytes;
use http::header::ORIGIN;
use http::{HeaderMap, Method as HttpMethod, Request, StatusCode};
use hyper::body::Body;
use lifecycle::{Code, Handle, Target};
use session::{DEFAULT_SIGNATURE, Servable, Signature, Urgency};

use super::json::{self, Format, write};
use super::memory::Ask;
use super::reply::{self, Failure, Reply};
use super::target::{self, Method, Route};
use super::{ModelsPage, Rest, body, compress, manage, pages};
use crate::call::Call;
use crate::level;
use crate::predict::{self, Inputs};
use crate::stats::{Api, Entrypoint};
use crate::status::Status;
use crate::trace::{REQUEST_ID, Trace};
use crate::{classify, regress};

/// Texts longer than this are read and written on threads that may take their time, so that other
/// connections do not wait.
const LONG: usize = 256 << 10;

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
        if !target::is_api(&path) {
            return reply::html_error(StatusCode::NOT_FOUND);
        }
        let trace = Trace::new(request.headers());
        let mut reply = self.api(request, &path).await;
        if let Some(id) = trace.request_id() {
            reply.headers_mut().insert(REQUEST_ID, id.clone());
        }
        if self.shared.options.has_cors {
            reply::add_cors(&mut reply);
        }
        reply
    }

    /// Answers a request below `/v1/`, and counts it.
    async fn api<B>(&self, request: Request<B>, path: &str) -> Reply
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let context = &self.shared.context;
        if request.method() == HttpMethod::OPTIONS {
            let is_allowed = is_preflight(request.headers());
            let trace = Trace::new(request.headers());
            let in_flight = context.begin("", Api::Look, Entrypoint::Rest, trace);
            let refused = Status::new(Code::FailedPrecondition, "no Origin of a site");
            in_flight.end((!is_allowed).then_some(&refused));
            let code = if is_allowed { StatusCode::OK } else { StatusCode::BAD_REQUEST };
            return reply::empty(code);
        }
        let is_models = path.eq_ignore_ascii_case("/v1/models");
        let models_page = self.shared.options.models_page;
        let lists = path == pages::LIST || (is_models && models_page == ModelsPage::List);
        if request.method() == HttpMethod::GET && lists {
            return reply::json(pages::list(&context.models));
        }
        if let Some(control) = &self.shared.control
            && let Some(change) = manage::change(request.method(), path)
        {
            return self.change(&**control, change, request).await;
        }
        if let (Some(memory), Some(ask)) = (&self.shared.memory, Ask::parse(request.method(), path))
        {
            let (parts, content) = request.into_parts();
            let mut charge = context.budget.charge();
            let options = &self.shared.options;
            let body = body::read(&parts.headers, content, options, &mut charge).await;
            let answer = body.and_then(|body| Ok(ask.answer(&**memory, &body)?));
            return answer.map_or_else(|failure| reply::error(&failure), reply::json);
        }
        let route = target::parse(request.method().as_str(), path);
        let (model, api) = match &route {
            Ok(route) => (&*route.target.model, route.method.api()),
            Err(_) => ("", Api::Look),
        };
        let trace = Trace::new(request.headers());
        let in_flight = context.begin(model, api, Entrypoint::Rest, trace);
        let (parts, content) = request.into_parts();
        let answer = self.answer(route, &parts.headers, content).await;
        in_flight.end(answer.as_ref().err().map(|failure| &failure.status));
        match answer {
            Ok(text) => packed(&parts.headers, text).await,
            Err(failure) => reply::error(&failure),
        }
    }

    async fn answer<B>(
        &self,
        route: Result<Route, Status>,
        headers: &HeaderMap,
        content: B,
    ) -> Result<Vec<u8>, Failure>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let options = &self.shared.options;
        let mut charge = self.shared.context.budget.charge();
        let content = body::read(headers, content, options, &mut charge).await?;
        let Route { method, target } = route?;
        // The time that a body takes to arrive does not count.
        let deadline = options.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let urgency = Urgency { deadline, level: level::read(headers)? };
        let models = &self.shared.context.models;
        Ok(match method {
            Method::Predict => self.predict(target, content, urgency).await?,
            Method::Classify => self.classify(target, &content, urgency).await?,
            Method::Regress => self.regress(target, &content, urgency).await?,
            Method::Status => pages::status(models, &target)?,
            Method::Metadata => pages::metadata(models, target)?,
        })
    }

    async fn predict(
        &self,
        target: Target,
        body: Bytes,
        urgency: Urgency,
    ) -> Result<Vec<u8>, Status> {
        let context = &self.shared.context;
        let call = Call { target, signature: String::new(), urgency };
        // What is wrong with the text is said before what is wrong with the target.
        let servable = call.servable_to_run(&context.models);
        let is_long = body.len() > LONG;
        let (signature, format, inputs) = {
            let servable = servable.clone();
            apart(is_long, move || read_inputs(&body, &servable)).await??
        };
        let servable = servable?;
        let signature = servable.signature(&signature).ok_or_else(|| missing(&signature))??;
        context.method_names.check_predict(signature)?;
        let answer = predict::run(context, &servable, signature, inputs, urgency).await?;
        let n_elements: usize = answer.outputs.iter().map(|(_, tensor)| tensor.n_elements()).sum();
        let outputs = answer.outputs;
        apart(n_elements > LONG / 8, move || json::write_outputs(&outputs, format)).await?
    }

    async fn classify(
        &self,
        target: Target,
        body: &[u8],
        urgency: Urgency,
    ) -> Result<Vec<u8>, Status> {
        let (signature, input) = json::examples::read(body)?;
        let call = Call { target, signature, urgency };
        let answer = classify::classify(&self.shared.context, &call, Some(input)).await?;
        write::classifications(&answer.result.unwrap_or_default())
    }

    async fn regress(
        &self,
        target: Target,
        body: &[u8],
        urgency: Urgency,
    ) -> Result<Vec<u8>, Status> {
        let (signature, input) = json::examples::read(body)?;
        let call = Call { target, signature, urgency };
        let answer = regress::regress(&self.shared.context, &call, Some(input)).await?;
        write::regressions(&answer.result.unwrap_or_default())
    }
}

impl Method {
    /// What it counts as.
    fn api(self) -> Api {
        match self {
            Self::Predict => Api::Predict,
            Self::Classify => Api::Classify,
            Self::Regress => Api::Regress,
            Self::Status | Self::Metadata => Api::Look,
        }
    }
}

/// Reads the inputs of a `Predict`, and the name of its signature.
fn read_inputs(
    body: &[u8],
    servable: &Result<Handle<Servable>, Status>,
) -> Result<(String, Format, Inputs), Status> {
    let find = |name: &str| -> Result<&Signature, Status> {
        let servable = servable.as_ref().map_err(Status::clone)?;
        Ok(servable.signature(name).ok_or_else(|| missing(name))??)
    };
    let json::Request { signature, format, inputs } = json::Request::read(body, find)?;
    let inputs = predict::inputs(signature, inputs, &[], |_, tensor| Ok(tensor))?;
    Ok((signature.name.clone(), format, inputs))
}

/// REST has a text of its own for an unknown signature.
fn missing(name: &str) -> Status {
    let name = if name.is_empty() { DEFAULT_SIGNATURE } else { name };
    Status::invalid(format!("Serving signature name: \"{name}\" not found in signature def"))
}

/// Does long work on another thread, and short work here.
async fn apart<T: Send + 'static>(
    is_long: bool,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Status> {
    if !is_long {
        return Ok(work());
    }
    let lost = |_| Status::new(Code::Internal, "reading or writing JSON panicked");
    tokio::task::spawn_blocking(work).await.map_err(lost)
}

/// An answer, packed if the client asks for that.
async fn packed(headers: &HeaderMap, text: Vec<u8>) -> Reply {
    if !compress::is_wanted(headers, text.len()) {
        return reply::json(text);
    }
    match apart(text.len() > LONG, move || compress::gzip(&text)).await {
        Ok(packed) => {
            let mut reply = reply::json(packed);
            compress::mark(&mut reply);
            reply
        }
        Err(status) => reply::error(&status.into()),
    }
}

/// Whether a browser asks before it lets a page of another site ask.
fn is_preflight(headers: &HeaderMap) -> bool {
    let origin = headers.get(ORIGIN).and_then(|origin| origin.to_str().ok());
    origin.is_some_and(|text| text.contains("http://") || text.contains("https://"))
}
