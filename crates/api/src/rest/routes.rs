//! The table of routes, and the handler of each.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::header::ORIGIN;
use http::request::Parts;
use http::{HeaderMap, Method as HttpMethod, Request, StatusCode};
use http_body_util::Full;
use hyper::body::Body;
use json::cost::{self, Strings};
use json::{Format, write};
use lifecycle::{Handle, Target};
use proto::serving::Input;
use session::{DEFAULT_SIGNATURE, Servable, Signature, Urgency};
use status::{Code, Status, clipped};
use tensor::DType;

use super::manage::Change;
use super::memory::Ask;
use super::reply::{self, Failure, Reply};
use super::target::{self, Method, Route};
use super::{ModelsPage, Rest, body, compress, pages, wait};
use crate::access::{self, Action, Key, Scope};
use crate::budget::Charge;
use crate::call::Call;
use crate::codec::Codec;
use crate::context::Context;
use crate::hints;
use crate::level;
use crate::listen::Peer;
use crate::predict::{self, Inputs};
use crate::stats::{Api, Entrypoint};
use crate::trace::{REQUEST_ID, Trace};
use crate::{classify, regress};

/// The bytes that a request takes however small it is: its head, its state and a short answer.
const CALL_BYTES: usize = 4 << 10;

/// The bytes that an element takes as JSON, about.
const ELEMENT_BYTES: usize = 8;

/// The body of a request, and its charge.
struct Arrived {
    content: Bytes,
    charge: Charge,
}

impl Rest {
    /// Answers a request of the other side of a connection.
    pub async fn respond<B>(&self, request: Request<B>, peer: Peer) -> Reply
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let (parts, content) = request.into_parts();
        let page = pages::find(&self.shared, &parts.method, &path);
        let is_health = page.as_ref().is_some_and(|page| page.action() == Action::Health);
        if let Err(failure) = self.shared.door.check_call(&parts, peer)
            && !is_health
        {
            return self.refusal(failure);
        }
        if let Some(page) = page {
            return match self.admit(&parts.headers, page.action(), Scope::Server) {
                Ok(_) => page.reply(&self.shared, &path).await,
                Err(failure) => self.refusal(failure),
            };
        }
        if let Some(file) = self.shared.site.as_ref().and_then(|site| site(&parts)) {
            return file.map(Full::new);
        }
        let request = Request::from_parts(parts, content);
        if matches!(*request.method(), HttpMethod::TRACE | HttpMethod::CONNECT) {
            return reply::html_error(StatusCode::NOT_IMPLEMENTED); // As libevent.
        }
        if !target::is_api(&path) {
            return reply::html_error(StatusCode::NOT_FOUND);
        }
        let trace = Trace::new(request.headers());
        let mut reply = self.api(request, &path, peer).await;
        if let Some(id) = trace.request_id() {
            reply.headers_mut().insert(REQUEST_ID, id.clone());
        }
        if self.shared.options.has_cors {
            reply::add_cors(&mut reply, self.shared.context.access.is_some());
        }
        reply
    }

    /// Answers a request below `/v1/`, and counts it.
    async fn api<B>(&self, request: Request<B>, path: &str, peer: Peer) -> Reply
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
            let list =
                |key: Option<Arc<Key>>, context: &Context| pages::list(context, key.as_deref());
            let context = context.clone();
            let admitted = self.admit(request.headers(), Action::ReadModel, Scope::Unread);
            return match admitted {
                Ok(key) => pages::made(&self.shared, move || list(key, &context)).await,
                Err(failure) => Err(failure),
            }
            .map_or_else(|failure| self.refusal(failure), reply::json);
        }
        if let Some(change) = Change::parse(request.method(), path)
            && self.knows(&change)
        {
            return self.change(change, request, peer).await;
        }
        if let (Some(memory), Some(ask)) = (&self.shared.memory, Ask::parse(request.method(), path))
        {
            let memory = Arc::clone(memory);
            let admitted = self.admit(request.headers(), Action::ReadServer, Scope::Server);
            return match admitted {
                Ok(_) => pages::made(&self.shared, move || ask.answer(&*memory)).await,
                Err(failure) => Err(failure),
            }
            .map_or_else(|failure| self.refusal(failure), reply::json);
        }
        let (path, word) = wait::split(request.method(), path);
        let route = target::parse(request.method().as_str(), path);
        let (model, api) = match &route {
            Ok(route) => (&*route.target.model, route.method.api()),
            Err(_) => ("", Api::Look),
        };
        let trace = Trace::new(request.headers());
        let in_flight = context.begin(model, api, Entrypoint::Rest, trace);
        let (parts, content) = request.into_parts();
        let answer = self.answer(route, word, &parts, content).await;
        in_flight.end(answer.as_ref().err().map(|failure| &failure.status));
        match answer {
            Ok((text, charge)) => packed(&self.shared.context, &parts.headers, text, charge).await,
            Err(failure) => self.refusal(failure),
        }
    }

    /// The answer to a request that fails.
    pub(super) fn refusal(&self, failure: Failure) -> Reply {
        let context = &self.shared.context;
        reply::error(&failure.told(context.hints), &context.budget)
    }

    async fn answer<B>(
        &self,
        route: Result<Route, Status>,
        word: Option<&str>,
        parts: &Parts,
        content: B,
    ) -> Result<(Vec<u8>, Charge), Failure>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let headers = &parts.headers;
        self.admit_route(headers, route.as_ref().ok())?;
        let charge = self.shared.context.budget.charged(CALL_BYTES)?;
        let (content, charge) = body::read(parts, content, &self.shared, charge).await?;
        let hint = body::hint(headers, &content);
        let answer = self.act(route, word, headers, Arrived { content, charge }).await;
        answer.map_err(|failure| match hint {
            Some(hint) => failure.with_hint(hint),
            None => failure,
        })
    }

    /// Does what a route says with a body that is there.
    async fn act(
        &self,
        route: Result<Route, Status>,
        word: Option<&str>,
        headers: &HeaderMap,
        Arrived { content, charge }: Arrived,
    ) -> Result<(Vec<u8>, Charge), Failure> {
        let Route { method, target } = route?;
        // The time that a body takes to arrive does not count.
        let timeout = self.shared.options.timeout;
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let urgency = Urgency { deadline, level: level::read(headers)? };
        let context = &self.shared.context;
        let about = |target| move |status| hints::about_target(context, status, target);
        let (text, mut charge) = match method {
            Method::Predict => self.predict(target, content, urgency, charge).await?,
            Method::Classify => self.classify(target, content, urgency, charge).await?,
            Method::Regress => self.regress(target, content, urgency, charge).await?,
            Method::Status => {
                let page = wait::status(&context.models, &target, word).await;
                (page.map_err(about(&target))?, charge)
            }
            Method::Metadata => (pages::metadata(context, target)?, charge),
        };
        charge.set(CALL_BYTES.max(text.len()))?;
        Ok((text, charge))
    }

    /// Admits a call, or says why not. The key is that of the caller, if the server has keys.
    pub(super) fn admit(
        &self,
        headers: &HeaderMap,
        action: Action,
        scope: Scope<'_>,
    ) -> Result<Option<Arc<Key>>, Failure> {
        let context = &self.shared.context;
        if context.access.is_none() {
            return Ok(None);
        }
        Ok(context.admit(access::presented(headers).as_ref(), action, scope)?)
    }

    /// Admits what is asked of a model. Whoever may ask something is told that a path is wrong.
    fn admit_route(&self, headers: &HeaderMap, route: Option<&Route>) -> Result<(), Failure> {
        let admitted = match route {
            Some(Route { method, target }) => {
                self.admit(headers, method.action(), Scope::Model(&target.model))
            }
            None => self
                .admit(headers, Action::Infer, Scope::Unread)
                .or_else(|_| self.admit(headers, Action::ReadModel, Scope::Unread)),
        };
        admitted.map(drop)
    }

    async fn predict(
        &self,
        target: Target,
        body: Bytes,
        urgency: Urgency,
        mut charge: Charge,
    ) -> Result<(Vec<u8>, Charge), Status> {
        let context = &self.shared.context;
        let call = Call { target, signature: String::new(), urgency };
        // What is wrong with the text is said before what is wrong with the target.
        let servable = call.servable_to_run(context);
        let takes_strings = servable.as_ref().map_or(Strings::Refused, |s| takes_strings(s));
        let ((signature, format, inputs), mut charge) = {
            let (servable, n_bytes) = (servable.clone(), body.len());
            // The charge goes along: the body is read to its end, also for a client that is gone.
            let read = move || {
                charge.grow(cost::of_tensors(&body, takes_strings))?;
                Ok::<_, Status>((read_inputs(&body, &servable)?, charge))
            };
            context.codec.run(n_bytes, read).await??
        };
        charge.shrink_to(CALL_BYTES);
        let servable = servable?;
        let signature =
            servable.signature(&signature).ok_or_else(|| missing(&servable, &signature))??;
        context.method_names.check_predict(signature)?;
        let answer = predict::run(context, &servable, signature, inputs, urgency).await?;
        let n_elements: usize = answer.outputs.iter().map(|(_, tensor)| tensor.n_elements()).sum();
        let outputs = answer.outputs;
        let write = move || {
            charge.grow(write::outputs_bytes(&outputs, format))?;
            Ok((json::write_outputs(&outputs, format)?, charge))
        };
        context.codec.run(n_elements.saturating_mul(ELEMENT_BYTES), write).await?
    }

    async fn classify(
        &self,
        target: Target,
        body: Bytes,
        urgency: Urgency,
        charge: Charge,
    ) -> Result<(Vec<u8>, Charge), Status> {
        let context = &self.shared.context;
        let (signature, input, charge) = read_examples(&context.codec, body, charge).await?;
        let call = Call { target, signature, urgency };
        let answer = classify::classify(context, &call, Some(input)).await?;
        write_results(&context.codec, answer, charge, |answer| {
            write::classifications(&answer.result.unwrap_or_default())
        })
        .await
    }

    async fn regress(
        &self,
        target: Target,
        body: Bytes,
        urgency: Urgency,
        charge: Charge,
    ) -> Result<(Vec<u8>, Charge), Status> {
        let context = &self.shared.context;
        let (signature, input, charge) = read_examples(&context.codec, body, charge).await?;
        let call = Call { target, signature, urgency };
        let answer = regress::regress(context, &call, Some(input)).await?;
        write_results(&context.codec, answer, charge, |answer| {
            write::regressions(&answer.result.unwrap_or_default())
        })
        .await
    }
}

/// Reads the name of a signature and examples, for which there is room.
async fn read_examples(
    codec: &Codec,
    body: Bytes,
    mut charge: Charge,
) -> Result<(String, Input, Charge), Status> {
    let n_bytes = body.len();
    let read = move || {
        charge.grow(cost::of_examples(&body))?;
        let (signature, input) = json::examples::read(&body)?;
        drop(body);
        charge.shrink_by(n_bytes);
        Ok((signature, input, charge))
    };
    codec.run(n_bytes, read).await?
}

/// Writes results, for which there is room.
async fn write_results<R: prost::Message + 'static>(
    codec: &Codec,
    results: R,
    mut charge: Charge,
    write: impl FnOnce(R) -> status::Result<Vec<u8>> + Send + 'static,
) -> Result<(Vec<u8>, Charge), Status> {
    let n_bytes = results_bytes(&results);
    let write = move || {
        charge.set(CALL_BYTES.saturating_add(n_bytes))?;
        Ok((write(results)?, charge))
    };
    codec.run(n_bytes, write).await?
}

/// The bytes that writing results takes, at most: a score is seven bytes as a message and forty as
/// text, in a buffer that grows to twice its size beside what it was.
fn results_bytes(results: &impl prost::Message) -> usize {
    results.encoded_len().saturating_mul(3 * 6)
}

/// Returns whether a model has inputs of strings.
fn takes_strings(servable: &Servable) -> Strings {
    let mut inputs = servable.signatures.values().flat_map(|signature| signature.inputs.values());
    let takes = inputs.any(|input| input.spec.dtype == DType::String);
    if takes { Strings::Taken } else { Strings::Refused }
}

impl Method {
    /// Returns the action that the method is to holders of keys.
    fn action(self) -> Action {
        match self {
            Self::Predict | Self::Classify | Self::Regress => Action::Infer,
            Self::Status | Self::Metadata => Action::ReadModel,
        }
    }

    /// Returns the method under which the request is counted.
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
    let chosen = Cell::new(None);
    let find = |name: &str| -> Result<(&Signature, json::Inputs<'_>), Status> {
        let servable = servable.as_ref().map_err(Status::clone)?;
        let signature = servable.signature(name).ok_or_else(|| missing(servable, name))??;
        chosen.set(Some(signature));
        let inputs = signature.inputs.iter().map(|(name, endpoint)| json::Input {
            name,
            tensor: &endpoint.tensor,
            spec: &endpoint.spec,
        });
        Ok((signature, json::Inputs::new(inputs)))
    };
    let read = json::Request::read(body, find).map_err(|status| match chosen.get() {
        Some(signature) => predict::of_inputs(status, signature),
        None => status,
    });
    let json::Request { signature, format, inputs } = read?;
    let inputs = predict::inputs(signature, inputs, &[], usize::MAX)?;
    Ok((signature.name.clone(), format, inputs))
}

/// REST has a text of its own for an unknown signature.
fn missing(servable: &Servable, name: &str) -> Status {
    let name = if name.is_empty() { DEFAULT_SIGNATURE } else { &clipped(name) };
    Status::invalid(format!("Serving signature name: \"{name}\" not found in signature def"))
        .with_hint(hints::of_signature(servable, name))
}

/// An answer, packed if the client asks for that. It stays charged until it is sent.
async fn packed(
    context: &Context,
    headers: &HeaderMap,
    text: Vec<u8>,
    mut charge: Charge,
) -> Reply {
    if !compress::is_wanted(headers, text.len()) {
        return reply::json(charge.onto(text));
    }
    // What cannot be packed becomes no longer than this; the buffer may have to grow.
    let packed = async {
        charge.grow(text.len().saturating_mul(2))?;
        context.codec.run(text.len(), move || (compress::gzip(&text), charge)).await
    };
    match packed.await {
        Ok((packed, mut charge)) => {
            charge.shrink_to(CALL_BYTES.max(packed.capacity()));
            let mut reply = reply::json(charge.onto(packed));
            compress::mark(&mut reply);
            reply
        }
        Err(status) => reply::error(&status.into(), &context.budget),
    }
}

/// Returns whether the request is a browser's preflight for a page of another site.
fn is_preflight(headers: &HeaderMap) -> bool {
    let origin = headers.get(ORIGIN).and_then(|origin| origin.to_str().ok());
    origin.is_some_and(|text| text.contains("http://") || text.contains("https://"))
}
