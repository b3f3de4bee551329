//! The gRPC face: decodes the wire, calls the method's function, encodes the answer.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proto::serving::model_service_server::{ModelService, ModelServiceServer};
use proto::serving::prediction_service_server::{PredictionService, PredictionServiceServer};
use proto::serving::{
    ClassificationRequest, ClassificationResponse, GetModelMetadataRequest,
    GetModelMetadataResponse, GetModelStatusRequest, GetModelStatusResponse, MultiInferenceRequest,
    MultiInferenceResponse, PredictRequest, PredictResponse, RegressionRequest, RegressionResponse,
    ReloadConfigRequest, ReloadConfigResponse,
};
use proto::tensorflow::TensorProto;
use tensor::{Layout, Tensor};
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Request, Response, Streaming};

use crate::Models;
use crate::call::{Call, MethodNames, answered};
use crate::predict::{self, Answer, predict};
use crate::status::Status;
use crate::{classify, metadata, model_status, multi_inference, regress};

/// The settings of the gRPC face.
#[derive(Debug, Clone, Copy)]
pub struct GrpcOptions {
    /// Whether a signature's method name must fit the call.
    pub method_names: MethodNames,
    /// How output tensors are written.
    pub layout: Layout,
    /// The most bytes of a message, and that an input tensor may unfold to.
    pub message_bytes_max: usize,
    /// How many requests of one stream run at once.
    pub stream_requests_max: usize,
}

/// The gRPC services.
#[derive(Clone)]
pub struct Grpc {
    models: Models,
    options: GrpcOptions,
}

impl Grpc {
    /// The services of these models.
    pub fn new(models: Models, options: GrpcOptions) -> Self {
        Self { models, options }
    }

    /// `PredictionService`, to be added to a server.
    pub fn prediction_service(&self) -> PredictionServiceServer<Self> {
        PredictionServiceServer::new(self.clone())
            .max_decoding_message_size(self.options.message_bytes_max)
            .max_encoding_message_size(usize::MAX)
    }

    /// `ModelService`, to be added to a server.
    pub fn model_service(&self) -> ModelServiceServer<Self> {
        ModelServiceServer::new(self.clone())
            .max_decoding_message_size(self.options.message_bytes_max)
            .max_encoding_message_size(usize::MAX)
    }

    async fn predict_one(
        &self,
        request: PredictRequest,
        deadline: Option<Instant>,
    ) -> Result<PredictResponse, Status> {
        let PredictRequest { model_spec, inputs, output_filter, .. } = request;
        let call = Call::from_spec(model_spec, deadline)?;
        let answer = predict(&self.models, &call, |signature| {
            self.options.method_names.check_predict(signature)?;
            predict::inputs(signature, inputs, &output_filter, |alias, proto: TensorProto| {
                let failed = |error| format!("tensor parsing error: {alias}: {error}");
                let tensor = Tensor::from_proto(&proto, self.options.message_bytes_max);
                tensor.map_err(|error| Status::invalid(failed(error)))
            })
        });
        encode(&call, answer.await?, self.options.layout)
    }
}

fn encode(call: &Call, answer: Answer, layout: Layout) -> Result<PredictResponse, Status> {
    let model_spec = answered(&call.target.model, answer.version, &answer.signature);
    let mut outputs = std::collections::BTreeMap::new();
    for (alias, tensor) in answer.outputs {
        let proto = tensor.to_proto(layout);
        let proto = proto.map_err(|error| Status::invalid(format!("output {alias}: {error}")))?;
        outputs.insert(alias, proto);
    }
    Ok(PredictResponse { model_spec: Some(model_spec), outputs })
}

type Reply<T> = Result<Response<T>, tonic::Status>;

/// A result as tonic wants it.
fn reply<T>(result: Result<T, Status>) -> Reply<T> {
    result.map(Response::new).map_err(|status| status.to_grpc())
}

#[tonic::async_trait]
impl PredictionService for Grpc {
    async fn predict(&self, request: Request<PredictRequest>) -> Reply<PredictResponse> {
        let deadline = deadline(&request);
        reply(self.predict_one(request.into_inner(), deadline).await)
    }

    async fn classify(
        &self,
        request: Request<ClassificationRequest>,
    ) -> Reply<ClassificationResponse> {
        let deadline = deadline(&request);
        let request = request.into_inner();
        let answer = async {
            let call = Call::from_spec(request.model_spec, deadline)?;
            let names = self.options.method_names;
            classify::classify(&self.models, &call, request.input, names).await
        };
        reply(answer.await)
    }

    async fn regress(&self, request: Request<RegressionRequest>) -> Reply<RegressionResponse> {
        let deadline = deadline(&request);
        let request = request.into_inner();
        let answer = async {
            let call = Call::from_spec(request.model_spec, deadline)?;
            let names = self.options.method_names;
            regress::regress(&self.models, &call, request.input, names).await
        };
        reply(answer.await)
    }

    async fn multi_inference(
        &self,
        request: Request<MultiInferenceRequest>,
    ) -> Reply<MultiInferenceResponse> {
        let deadline = deadline(&request);
        let request = request.into_inner();
        let names = self.options.method_names;
        let answer = multi_inference::multi_inference(&self.models, request, deadline, names);
        reply(answer.await)
    }

    async fn get_model_metadata(
        &self,
        request: Request<GetModelMetadataRequest>,
    ) -> Reply<GetModelMetadataResponse> {
        reply(metadata::metadata(&self.models, request.into_inner()))
    }

    type PredictStreamedStream =
        Pin<Box<dyn Stream<Item = Result<PredictResponse, tonic::Status>> + Send>>;

    async fn predict_streamed(
        &self,
        request: Request<Streaming<PredictRequest>>,
    ) -> Reply<Self::PredictStreamedStream> {
        let deadline = deadline(&request);
        let face = Arc::new(self.clone());
        let answers = request.into_inner().then(move |request| {
            let face = Arc::clone(&face);
            async move {
                let answer = face.predict_one(request?, deadline).await;
                answer.map_err(|status| status.to_grpc())
            }
        });
        Ok(Response::new(Box::pin(answers)))
    }
}

#[tonic::async_trait]
impl ModelService for Grpc {
    async fn get_model_status(
        &self,
        request: Request<GetModelStatusRequest>,
    ) -> Reply<GetModelStatusResponse> {
        reply(model_status::model_status(&self.models, request.into_inner()))
    }

    async fn handle_reload_config_request(
        &self,
        _: Request<ReloadConfigRequest>,
    ) -> Reply<ReloadConfigResponse> {
        Err(tonic::Status::unimplemented("reloading the configuration is not built in yet"))
    }
}

/// When the client stops waiting: the `grpc-timeout` header, counted from now.
fn deadline<T>(request: &Request<T>) -> Option<Instant> {
    let text = request.metadata().get("grpc-timeout")?.to_str().ok()?;
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: u64 = number.parse().ok()?;
    let timeout = match unit {
        "H" => Duration::from_secs(number.checked_mul(3600)?),
        "M" => Duration::from_secs(number.checked_mul(60)?),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    };
    Instant::now().checked_add(timeout)
}
