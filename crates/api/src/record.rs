//! Requests that were answered, to be logged. Who samples and writes them, the server, says how.

use std::collections::BTreeMap;

use proto::serving::prediction_log::LogType;
use proto::serving::{
    ClassificationRequest, ClassificationResponse, ClassifyLog, LogMetadata, ModelSpec,
    MultiInferenceLog, MultiInferenceRequest, MultiInferenceResponse, PredictLog, PredictRequest,
    PredictResponse, PredictionLog, RegressLog, RegressionRequest, RegressionResponse,
};
use proto::tensorflow::TensorProto;
use status::Status;
use tensor::{Layout, Tensor};

use crate::call::answered;

/// Takes requests that were answered.
pub trait Recorder: Send + Sync + std::fmt::Debug {
    /// Returns whether the next request to a model is to be recorded. Must be quick.
    fn samples(&self, model: &str) -> bool;

    /// Takes a request that is to be recorded. Must not wait.
    fn record(&self, record: Record);
}

/// A request that was answered.
#[derive(Debug, Clone)]
pub struct Record {
    /// The model.
    pub model: String,
    /// The version that answered.
    pub version: i64,
    /// The signature that was run; the first of them, if several.
    pub signature: String,
    /// The request and its answer.
    pub exchange: Exchange,
}

/// A request and its answer.
#[derive(Debug, Clone)]
pub enum Exchange {
    /// A `Predict`, by aliases.
    Predict {
        /// The tensors that were fed.
        inputs: Vec<(String, Tensor)>,
        /// The tensors that the run gave.
        outputs: Vec<(String, Tensor)>,
    },
    /// A `Classify`.
    Classify(ClassificationRequest, ClassificationResponse),
    /// A `Regress`.
    Regress(RegressionRequest, RegressionResponse),
    /// A `MultiInference`.
    MultiInference(MultiInferenceRequest, MultiInferenceResponse),
}

impl Record {
    /// The record as it is written.
    ///
    /// # Errors
    /// If a tensor cannot be written, such as one of handles.
    pub fn into_log(self) -> Result<PredictionLog, Status> {
        let spec = answered(&self.model, self.version, &self.signature);
        let log_type = match self.exchange {
            Exchange::Predict { inputs, outputs } => {
                LogType::PredictLog(predict(spec.clone(), inputs, outputs)?)
            }
            Exchange::Classify(request, response) => LogType::ClassifyLog(ClassifyLog {
                request: Some(request),
                response: Some(response),
            }),
            Exchange::Regress(request, response) => {
                LogType::RegressLog(RegressLog { request: Some(request), response: Some(response) })
            }
            Exchange::MultiInference(request, response) => {
                LogType::MultiInferenceLog(MultiInferenceLog {
                    request: Some(request),
                    response: Some(response),
                })
            }
        };
        let log_metadata = LogMetadata { model_spec: Some(spec), ..LogMetadata::default() };
        Ok(PredictionLog { log_metadata: Some(log_metadata), log_type: Some(log_type) })
    }
}

fn predict(
    spec: ModelSpec,
    inputs: Vec<(String, Tensor)>,
    outputs: Vec<(String, Tensor)>,
) -> Result<PredictLog, Status> {
    let output_filter = outputs.iter().map(|(alias, _)| alias.clone()).collect();
    let (model_spec, inputs) = (Some(spec.clone()), protos(inputs)?);
    let request = PredictRequest { model_spec, inputs, output_filter, ..PredictRequest::default() };
    let response = PredictResponse { model_spec: Some(spec), outputs: protos(outputs)? };
    Ok(PredictLog { request: Some(request), response: Some(response) })
}

fn protos(tensors: Vec<(String, Tensor)>) -> Result<BTreeMap<String, TensorProto>, Status> {
    let proto = |(alias, tensor): (String, Tensor)| {
        let proto = tensor.to_proto(Layout::Content);
        let proto = proto.map_err(|error| Status::invalid(format!("tensor {alias}: {error}")))?;
        Ok((alias, proto))
    };
    tensors.into_iter().map(proto).collect()
}
