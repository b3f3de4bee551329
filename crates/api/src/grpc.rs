//! The gRPC face: decodes the wire, calls the method's function, encodes the answer.

mod deadline;
mod direct;
pub(crate) mod expansion;
mod guard;
mod health;
mod metered;
mod outgoing;
mod pages;
mod profiler;
mod remote;
mod to_tonic;
mod transport;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::poll_fn;
use prost::Message;
use proto::serving::model_service_server::{ModelService, ModelServiceServer};
use proto::serving::prediction_service_server::{PredictionService, PredictionServiceServer};
use proto::serving::{
    ClassificationRequest, ClassificationResponse, GetModelMetadataRequest,
    GetModelMetadataResponse, GetModelStatusRequest, GetModelStatusResponse, ModelSpec,
    MultiInferenceRequest, MultiInferenceResponse, PredictRequest, PredictResponse,
    RegressionRequest, RegressionResponse, ReloadConfigRequest, ReloadConfigResponse,
};
use proto::tensord::pages_server::PagesServer;
use session::Urgency;
use status::Status;
use tensor::Layout;
use tokio_stream::Stream;
use tonic::codec::CompressionEncoding;
use tonic::{Request, Response, Streaming};
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_reflection::server::{v1, v1alpha};

use crate::access::Action;
use crate::arrival::ArrivalLimits;
use crate::audit::Audit;
use crate::call::{Call, answered};
use crate::context::Context;
use crate::control::{self, Control};
use crate::hints::Hints;
use crate::level;
use crate::listen::OpenCall;
use crate::predict::{self, Answer};
use crate::rest::{Memory, Page};
use crate::stats::{Api, Entrypoint, InFlight};
use crate::trace::Trace;
use crate::{classify, metadata, model_status, multi_inference, regress};

use deadline::deadline;
pub use direct::{Direct, DirectLayer};
use guard::Presented;
pub use metered::Metered;
use metered::{CallCharge, Limits};
pub use pages::PageService;
pub use profiler::Profiler;
pub(crate) use to_tonic::to_tonic;
pub use transport::TransportOptions;

/// The settings of the gRPC face.
#[derive(Debug, Clone, Copy)]
pub struct GrpcOptions {
    /// The layout of output tensors in an answer.
    pub layout: Layout,
    /// The most bytes of a message, and that an input tensor may unfold to.
    pub message_bytes_max: usize,
    /// The number of requests of one stream that run at once.
    pub stream_requests_max: usize,
    /// The longest time in which a client may take no part of an answer.
    pub patience: Duration,
    /// The limits on how slowly a message may arrive.
    pub arrival: ArrivalLimits,
}

/// The gRPC services. Cheap to clone.
#[derive(Clone)]
pub struct Grpc {
    context: Context,
    options: GrpcOptions,
    control: Option<Arc<dyn Control>>,
}

impl Grpc {
    /// The services of some models. Without `control`, the list of models cannot be replaced.
    pub fn new(context: Context, options: GrpcOptions, control: Option<Arc<dyn Control>>) -> Self {
        Self { context, options, control }
    }

    /// `PredictionService`.
    fn prediction_service(&self) -> Metered<PredictionServiceServer<Self>> {
        let service = PredictionServiceServer::new(self.clone())
            .accept_compressed(CompressionEncoding::Gzip)
            .accept_compressed(CompressionEncoding::Deflate)
            .max_decoding_message_size(self.options.message_bytes_max)
            .max_encoding_message_size(usize::MAX);
        Metered::new(service, self.limits())
    }

    /// `ModelService`, to be added to a server.
    pub fn model_service(&self) -> Metered<ModelServiceServer<Self>> {
        let service = ModelServiceServer::new(self.clone())
            .accept_compressed(CompressionEncoding::Gzip)
            .accept_compressed(CompressionEncoding::Deflate)
            .max_decoding_message_size(self.options.message_bytes_max)
            .max_encoding_message_size(usize::MAX);
        Metered::new(service, self.limits())
    }

    /// `tensord.Pages`, to be added to a server. It shows memory and devices, the list of models,
    /// and `looks`: other pages by their paths.
    pub fn page_service(
        &self,
        memory: Arc<dyn Memory>,
        looks: Vec<(&'static str, Page)>,
    ) -> Metered<PagesServer<PageService>> {
        let service = PageService::new(self.context.clone(), memory, looks);
        Metered::new(PagesServer::new(service), self.limits())
    }

    /// `grpc.health.v1.Health`, which follows readiness, and the task that makes it do so: to be
    /// run as long as the service is.
    pub async fn health_service(
        &self,
    ) -> (Metered<HealthServer<impl Health>>, impl Future<Output = ()> + Send + use<>) {
        let (service, follow) = health::health(&self.context.models).await;
        (Metered::new(service, self.limits()), follow)
    }

    /// Server reflection, in both of its versions.
    ///
    /// # Errors
    /// If the descriptors cannot be read, which would be a mistake of the build.
    pub fn reflection_services(
        &self,
    ) -> Result<
        (
            Metered<v1::ServerReflectionServer<impl v1::ServerReflection>>,
            Metered<v1alpha::ServerReflectionServer<impl v1alpha::ServerReflection>>,
        ),
        tonic_reflection::server::Error,
    > {
        let builder = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(proto::FILE_DESCRIPTOR_SET)
        };
        let (v1, v1alpha) = (builder().build_v1()?, builder().build_v1alpha()?);
        Ok((Metered::new(v1, self.limits()), Metered::new(v1alpha, self.limits())))
    }

    fn limits(&self) -> Limits {
        Limits {
            budget: self.context.budget.clone(),
            codec: self.context.codec.clone(),
            message_bytes_max: self.options.message_bytes_max,
            messages_max: self.options.stream_requests_max.max(1),
            patience: self.options.patience,
            arrival: self.options.arrival,
        }
    }

    /// Answers a `Predict` with the tensors of its outputs, which are not written yet.
    async fn predict_one(
        &self,
        request: PredictRequest,
        Asked { urgency, trace, presented, charge }: Asked,
    ) -> Result<(Call, Answer), Status> {
        let PredictRequest { model_spec, inputs, output_filter, .. } = request;
        let in_flight = self.begin(model_spec.as_ref(), Api::Predict, trace);
        let limit_bytes = self.options.message_bytes_max;
        // Awaited where it stands: a future that is handed on is copied.
        let answer = async {
            self.admit_model(presented, Action::Infer, model_spec.as_ref())?;
            let call = Call::from_spec(model_spec, urgency?)?;
            let context = &self.context;
            let (servable, signature) = predict::find(context, &call)?;
            let read = {
                let signature = Arc::clone(&signature);
                move |inputs| {
                    let inputs = predict::inputs(&signature, inputs, &output_filter, limit_bytes);
                    charge.decoded();
                    inputs.map_err(|status| predict::of_inputs(status, &signature))
                }
            };
            let n_bytes = predict::unfolded_bytes(&inputs);
            let inputs = context.codec.run(n_bytes, move || read(inputs)).await??;
            let urgency = call.urgency;
            let answer = predict::run(context, &servable, &signature, inputs, urgency).await?;
            Ok((call, answer))
        }
        .await;
        in_flight.end(answer.as_ref().err());
        answer
    }

    /// Begins to count a request.
    fn begin(&self, spec: Option<&ModelSpec>, api: Api, trace: Trace) -> InFlight {
        let model = spec.map_or("", |spec| &spec.name);
        self.context.begin(model, api, Entrypoint::Grpc, trace)
    }
}

/// The answer of a `Predict` as a message. `room` is asked for its bytes before it is made, and for
/// those that tonic takes to encode it.
fn encode(
    (call, answer): (Call, Answer),
    layout: Layout,
    mut room: impl FnMut(usize) -> Result<(), Status>,
) -> Result<PredictResponse, Status> {
    let model_spec = answered(&call.target.model, answer.version, &answer.signature);
    room(proto_bytes(&answer))?;
    let mut outputs = BTreeMap::new();
    for (alias, tensor) in answer.outputs {
        let proto = tensor.to_proto(layout);
        let proto = proto.map_err(|error| Status::invalid(format!("output {alias}: {error}")))?;
        outputs.insert(alias, proto);
    }
    let message = PredictResponse { model_spec: Some(model_spec), outputs };
    room(message.encoded_len().saturating_mul(GROWTH))?;
    Ok(message)
}

/// The bytes that the outputs of an answer take as messages.
fn proto_bytes(answer: &Answer) -> usize {
    answer.outputs.iter().map(|(_, tensor)| tensor.proto_bytes()).sum()
}

/// The urgency of a request, its trace, the key that it presents, and its charge.
#[derive(Clone)]
struct Asked {
    urgency: Result<Urgency, Status>,
    trace: Trace,
    presented: Option<Presented>,
    charge: CallCharge,
}

impl Asked {
    fn new<T>(request: &Request<T>) -> Self {
        let trace = Trace::new(request.metadata().as_ref());
        let level = level::read(request.metadata().as_ref());
        let deadline = deadline(request);
        let urgency = level.map(|level| Urgency { deadline, level });
        let presented = Presented::of(request.extensions());
        Self { urgency, trace, presented, charge: charge(request) }
    }
}

type Reply<T> = Result<Response<T>, tonic::Status>;

/// tonic writes into a buffer that grows to twice its size, beside what it was.
const GROWTH: usize = 3;

/// A result as tonic wants it, if there is room to write it.
fn reply<T: Message>(hints: Hints, result: Result<T, Status>, charge: &CallCharge) -> Reply<T> {
    let charged = |answer: &T| charge.grow(answer.encoded_len().saturating_mul(GROWTH));
    let result = result.and_then(|answer| charged(&answer).map(|()| answer));
    result.map(Response::new).map_err(|status| to_tonic(&hints.told(status)))
}

/// The charge of a call.
fn charge<T>(request: &Request<T>) -> CallCharge {
    request.extensions().get::<CallCharge>().cloned().unwrap_or_default()
}

#[tonic::async_trait]
impl PredictionService for Grpc {
    async fn predict(&self, request: Request<PredictRequest>) -> Reply<PredictResponse> {
        let asked = Asked::new(&request);
        let charge = asked.charge.clone();
        let answer = self.predict_one(request.into_inner(), asked).await;
        let answer = answer.map_err(|status| to_tonic(&self.context.hints.told(status)))?;
        let (n_bytes, layout) = (proto_bytes(&answer.1), self.options.layout);
        let encode = move || encode(answer, layout, |bytes| charge.grow(bytes));
        let message = self.context.codec.run(n_bytes, encode).await.flatten();
        message.map(Response::new).map_err(|status| to_tonic(&status))
    }

    async fn classify(
        &self,
        request: Request<ClassificationRequest>,
    ) -> Reply<ClassificationResponse> {
        let Asked { urgency, trace, presented, charge } = Asked::new(&request);
        let ClassificationRequest { model_spec, input } = request.into_inner();
        let in_flight = self.begin(model_spec.as_ref(), Api::Classify, trace);
        let answer = async {
            self.admit_model(presented, Action::Infer, model_spec.as_ref())?;
            let call = Call::from_spec(model_spec, urgency?)?;
            classify::classify(&self.context, &call, input).await
        }
        .await;
        in_flight.end(answer.as_ref().err());
        reply(self.context.hints, answer, &charge)
    }

    async fn regress(&self, request: Request<RegressionRequest>) -> Reply<RegressionResponse> {
        let Asked { urgency, trace, presented, charge } = Asked::new(&request);
        let RegressionRequest { model_spec, input } = request.into_inner();
        let in_flight = self.begin(model_spec.as_ref(), Api::Regress, trace);
        let answer = async {
            self.admit_model(presented, Action::Infer, model_spec.as_ref())?;
            let call = Call::from_spec(model_spec, urgency?)?;
            regress::regress(&self.context, &call, input).await
        }
        .await;
        in_flight.end(answer.as_ref().err());
        reply(self.context.hints, answer, &charge)
    }

    async fn multi_inference(
        &self,
        request: Request<MultiInferenceRequest>,
    ) -> Reply<MultiInferenceResponse> {
        let Asked { urgency, presented, charge, .. } = Asked::new(&request);
        let request = request.into_inner();
        let answer = async {
            let admit = |spec| self.admit_model(presented, Action::Infer, spec);
            request.tasks.iter().try_for_each(|task| admit(task.model_spec.as_ref()))?;
            multi_inference::multi_inference(&self.context, request, urgency?).await
        };
        reply(self.context.hints, answer.await, &charge)
    }

    async fn get_model_metadata(
        &self,
        request: Request<GetModelMetadataRequest>,
    ) -> Reply<GetModelMetadataResponse> {
        let (charge, presented) = (charge(&request), Presented::of(request.extensions()));
        let request = request.into_inner();
        let may = self.admit_model(presented, Action::ReadModel, request.model_spec.as_ref());
        reply(
            self.context.hints,
            may.and_then(|()| metadata::metadata(&self.context, request)),
            &charge,
        )
    }

    type PredictStreamedStream =
        Pin<Box<dyn Stream<Item = Result<PredictResponse, tonic::Status>> + Send>>;

    /// Answers in the order of the requests, of which several run at once. The first that fails
    /// ends the stream, behind the answers to those before it.
    async fn predict_streamed(
        &self,
        request: Request<Streaming<PredictRequest>>,
    ) -> Reply<Self::PredictStreamedStream> {
        // Its messages come one after another: each is charged until as many more have come as may
        // be in flight, or until it is answered.
        let asked = Asked { charge: CallCharge::default(), ..Asked::new(&request) };
        let open = request.extensions().get::<Option<Arc<OpenCall>>>().cloned().flatten();
        let face = self.clone();
        let answers = request.into_inner().map(move |request| {
            let (face, asked) = (face.clone(), asked.clone());
            async move {
                let answer = face.predict_one(request?, asked).await;
                answer.map_err(|status| to_tonic(&face.context.hints.told(status)))
            }
        });
        let (layout, mut room) = (self.options.layout, self.context.budget.charge());
        // Written one at a time, when its turn has come: the room of the one before is free.
        let write = move |answer: Result<(Call, Answer), tonic::Status>| {
            room.shrink_to(0);
            let message = encode(answer?, layout, |bytes| room.grow(bytes));
            message.map_err(|status| to_tonic(&status))
        };
        let mut has_failed = false;
        let answers = answers.buffered(self.options.stream_requests_max.max(1)).map(write);
        let answers = answers.take_while(move |answer: &Result<_, tonic::Status>| {
            let goes_on = !has_failed;
            has_failed = answer.is_err();
            std::future::ready(goes_on)
        });
        Ok(Response::new(Box::pin(counted(answers, open))))
    }
}

/// The answers of a stream. Those that were taken are answered when the next is asked for, and is
/// not there.
fn counted<A>(
    answers: impl Stream<Item = A>,
    open: Option<Arc<OpenCall>>,
) -> impl Stream<Item = A> {
    let (mut answers, mut n_taken) = (Box::pin(answers), 0);
    poll_fn(move |context| {
        let answer = answers.as_mut().poll_next(context);
        match (&answer, &open) {
            (Poll::Ready(Some(_)), _) => n_taken += 1,
            (Poll::Pending, Some(open)) => open.has_answered(std::mem::take(&mut n_taken)),
            (Poll::Ready(None) | Poll::Pending, _) => {}
        }
        answer
    })
}

#[tonic::async_trait]
impl ModelService for Grpc {
    async fn get_model_status(
        &self,
        request: Request<GetModelStatusRequest>,
    ) -> Reply<GetModelStatusResponse> {
        let (charge, presented) = (charge(&request), Presented::of(request.extensions()));
        let request = request.into_inner();
        let may = self.admit_model(presented, Action::ReadModel, request.model_spec.as_ref());
        reply(
            self.context.hints,
            may.and_then(|()| model_status::asked(&self.context, request)),
            &charge,
        )
    }

    async fn handle_reload_config_request(
        &self,
        request: Request<ReloadConfigRequest>,
    ) -> Reply<ReloadConfigResponse> {
        let Some(control) = &self.control else {
            let text = "this server does not let its list of models be replaced";
            return Err(tonic::Status::unimplemented(text));
        };
        let caller = self.caller(request.extensions()).map_err(|status| to_tonic(&status))?;
        let audit = Audit::begin(caller, "HandleReloadConfigRequest".to_owned());
        let charge = charge(&request);
        let answer = control::reload(&**control, &self.context.stats, request.into_inner()).await;
        audit.end(answer.as_ref().err());
        reply(self.context.hints, answer, &charge)
    }
}
