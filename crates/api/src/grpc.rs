//! The gRPC face: decodes the wire, calls the method's function, encodes the answer.

mod deadline;
mod direct;
mod expansion;
mod health;
mod metered;
mod profiler;
mod transport;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::StreamExt as _;
use proto::serving::model_service_server::{ModelService, ModelServiceServer};
use proto::serving::prediction_service_server::{PredictionService, PredictionServiceServer};
use proto::serving::{
    ClassificationRequest, ClassificationResponse, GetModelMetadataRequest,
    GetModelMetadataResponse, GetModelStatusRequest, GetModelStatusResponse, ModelSpec,
    MultiInferenceRequest, MultiInferenceResponse, PredictRequest, PredictResponse,
    RegressionRequest, RegressionResponse, ReloadConfigRequest, ReloadConfigResponse,
};
use proto::tensorflow::TensorProto;
use session::Urgency;
use tensor::{Layout, Tensor};
use tokio_stream::Stream;
use tonic::codec::CompressionEncoding;
use tonic::{Request, Response, Streaming};
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_reflection::server::{v1, v1alpha};

use crate::call::{Call, answered};
use crate::context::Context;
use crate::control::{self, Control};
use crate::level;
use crate::predict::{self, Answer};
use crate::stats::{Api, Entrypoint, InFlight};
use crate::status::Status;
use crate::trace::Trace;
use crate::{classify, metadata, model_status, multi_inference, regress};

use deadline::deadline;
pub use direct::{Direct, DirectLayer};
use metered::Limits;
pub use metered::Metered;
pub use profiler::Profiler;
pub use transport::TransportOptions;

/// The settings of the gRPC face.
#[derive(Debug, Clone, Copy)]
pub struct GrpcOptions {
    /// How output tensors are written.
    pub layout: Layout,
    /// The most bytes of a message, and that an input tensor may unfold to.
    pub message_bytes_max: usize,
    /// How many requests of one stream run at once.
    pub stream_requests_max: usize,
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

    /// `grpc.health.v1.Health`, which follows readiness, and the task that makes it do so: to be
    /// run as long as the service is.
    pub async fn health_service(
        &self,
    ) -> (HealthServer<impl Health>, impl Future<Output = ()> + Send + use<>) {
        health::health(&self.context.models).await
    }

    /// Server reflection, in both of its versions.
    ///
    /// # Errors
    /// If the descriptors cannot be read, which would be a mistake of the build.
    pub fn reflection_services(
        &self,
    ) -> Result<
        (
            v1::ServerReflectionServer<impl v1::ServerReflection>,
            v1alpha::ServerReflectionServer<impl v1alpha::ServerReflection>,
        ),
        tonic_reflection::server::Error,
    > {
        let builder = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(proto::FILE_DESCRIPTOR_SET)
        };
        Ok((builder().build_v1()?, builder().build_v1alpha()?))
    }

    fn limits(&self) -> Limits {
        Limits {
            budget: self.context.budget.clone(),
            message_bytes_max: self.options.message_bytes_max,
            messages_max: self.options.stream_requests_max.max(1),
        }
    }

    async fn predict_one(
        &self,
        request: PredictRequest,
        Asked { urgency, trace }: Asked,
    ) -> Result<PredictResponse, Status> {
        let PredictRequest { model_spec, inputs, output_filter, .. } = request;
        let in_flight = self.begin(model_spec.as_ref(), Api::Predict, trace);
        // Awaited where it stands: a future that is handed on is copied.
        let answer = async {
            let call = Call::from_spec(model_spec, urgency?)?;
            let answer = predict::predict(&self.context, &call, |signature| {
                predict::inputs(signature, inputs, &output_filter, |alias, proto: TensorProto| {
                    let failed = |error| format!("tensor parsing error: {alias}: {error}");
                    let tensor = Tensor::from_proto(&proto, self.options.message_bytes_max);
                    tensor.map_err(|error| Status::invalid(failed(error)))
                })
            });
            encode(&call, answer.await?, self.options.layout)
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

fn encode(call: &Call, answer: Answer, layout: Layout) -> Result<PredictResponse, Status> {
    let model_spec = answered(&call.target.model, answer.version, &answer.signature);
    let mut outputs = BTreeMap::new();
    for (alias, tensor) in answer.outputs {
        let proto = tensor.to_proto(layout);
        let proto = proto.map_err(|error| Status::invalid(format!("output {alias}: {error}")))?;
        outputs.insert(alias, proto);
    }
    Ok(PredictResponse { model_spec: Some(model_spec), outputs })
}

/// When the client stops waiting, and what it calls its request.
#[derive(Clone)]
struct Asked {
    urgency: Result<Urgency, Status>,
    trace: Trace,
}

impl Asked {
    fn new<T>(request: &Request<T>) -> Self {
        let trace = Trace::new(request.metadata().as_ref());
        let level = level::read(request.metadata().as_ref());
        let deadline = deadline(request);
        let urgency = level.map(|level| Urgency { deadline, level });
        Self { urgency, trace }
    }
}

type Reply<T> = Result<Response<T>, tonic::Status>;

/// A result as tonic wants it.
fn reply<T>(result: Result<T, Status>) -> Reply<T> {
    result.map(Response::new).map_err(|status| status.to_grpc())
}

#[tonic::async_trait]
impl PredictionService for Grpc {
    async fn predict(&self, request: Request<PredictRequest>) -> Reply<PredictResponse> {
        let asked = Asked::new(&request);
        reply(self.predict_one(request.into_inner(), asked).await)
    }

    async fn classify(
        &self,
        request: Request<ClassificationRequest>,
    ) -> Reply<ClassificationResponse> {
        let Asked { urgency, trace } = Asked::new(&request);
        let ClassificationRequest { model_spec, input } = request.into_inner();
        let in_flight = self.begin(model_spec.as_ref(), Api::Classify, trace);
        let answer = async {
            let call = Call::from_spec(model_spec, urgency?)?;
            classify::classify(&self.context, &call, input).await
        }
        .await;
        in_flight.end(answer.as_ref().err());
        reply(answer)
    }

    async fn regress(&self, request: Request<RegressionRequest>) -> Reply<RegressionResponse> {
        let Asked { urgency, trace } = Asked::new(&request);
        let RegressionRequest { model_spec, input } = request.into_inner();
        let in_flight = self.begin(model_spec.as_ref(), Api::Regress, trace);
        let answer = async {
            let call = Call::from_spec(model_spec, urgency?)?;
            regress::regress(&self.context, &call, input).await
        }
        .await;
        in_flight.end(answer.as_ref().err());
        reply(answer)
    }

    async fn multi_inference(
        &self,
        request: Request<MultiInferenceRequest>,
    ) -> Reply<MultiInferenceResponse> {
        let Asked { urgency, .. } = Asked::new(&request);
        let request = request.into_inner();
        let answer =
            async { multi_inference::multi_inference(&self.context, request, urgency?).await };
        reply(answer.await)
    }

    async fn get_model_metadata(
        &self,
        request: Request<GetModelMetadataRequest>,
    ) -> Reply<GetModelMetadataResponse> {
        reply(metadata::metadata(&self.context.models, request.into_inner()))
    }

    type PredictStreamedStream =
        Pin<Box<dyn Stream<Item = Result<PredictResponse, tonic::Status>> + Send>>;

    /// Answers in the order of the requests, of which several run at once. The first that fails
    /// ends the stream, behind the answers to those before it.
    async fn predict_streamed(
        &self,
        request: Request<Streaming<PredictRequest>>,
    ) -> Reply<Self::PredictStreamedStream> {
        let asked = Asked::new(&request);
        let face = self.clone();
        let answers = request.into_inner().map(move |request| {
            let (face, asked) = (face.clone(), asked.clone());
            async move {
                let answer = face.predict_one(request?, asked).await;
                answer.map_err(|status| status.to_grpc())
            }
        });
        let mut has_failed = false;
        let answers = answers.buffered(self.options.stream_requests_max.max(1)).take_while(
            move |answer: &Result<_, tonic::Status>| {
                let goes_on = !has_failed;
                has_failed = answer.is_err();
                std::future::ready(goes_on)
            },
        );
        Ok(Response::new(Box::pin(answers)))
    }
}

#[tonic::async_trait]
impl ModelService for Grpc {
    async fn get_model_status(
        &self,
        request: Request<GetModelStatusRequest>,
    ) -> Reply<GetModelStatusResponse> {
        reply(model_status::model_status(&self.context.models, request.into_inner()))
    }

    async fn handle_reload_config_request(
        &self,
        request: Request<ReloadConfigRequest>,
    ) -> Reply<ReloadConfigResponse> {
        let Some(control) = &self.control else {
            let text = "this server does not let its list of models be replaced";
            return Err(tonic::Status::unimplemented(text));
        };
        reply(control::reload(&**control, &self.context.stats, request.into_inner()).await)
    }
}
