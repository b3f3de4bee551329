//! Properties of gRPC that golden files cannot show: time, order, health.

use std::sync::atomic::Ordering;
use std::time::Duration;

use api::MethodNames;
use prost::Message as _;
use proto::serving::model_spec::VersionChoice;
use proto::serving::prediction_service_client::PredictionServiceClient;
use proto::serving::{
    ClassificationRequest, GetModelMetadataRequest, PredictRequest, PredictResponse,
    RegressionRequest, SignatureDefMap,
};
use tensor::Layout;
use tokio_stream::StreamExt as _;
use tonic::codec::CompressionEncoding;
use tonic::transport::Channel;
use tonic::{Code, Request};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use crate::support::{Server, Setup, answer};

/// A request for a signature with one float.
pub(crate) fn request(signature: &str, x: f32) -> PredictRequest {
    proto::text::parse(&format!(
        "model_spec {{ name: 'm' signature_name: '{signature}' }}
         inputs {{ key: 'x' value {{ dtype: DT_FLOAT tensor_shape {{ dim {{ size: 1 }} }}
           float_val: {x} }} }}"
    ))
    .unwrap()
}

fn value(response: &PredictResponse) -> f32 {
    response.outputs["y"].float_val[0]
}

/// The status of a `Predict` that fails.
async fn failure(
    client: &mut PredictionServiceClient<Channel>,
    request: PredictRequest,
) -> (Code, String) {
    let status = client.predict(request).await.unwrap_err();
    (status.code(), status.message().to_owned())
}

#[tokio::test]
async fn long_messages_are_cut() {
    let server = Server::start().await;
    let (code, message) = failure(&mut server.predictions().await, request("wrong", 1.0)).await;
    assert_eq!(code, Code::InvalidArgument);
    assert_eq!(message, format!("{}...TRUNCATED", "é".repeat(512)));
}

#[tokio::test]
async fn method_names_are_checked_if_that_is_asked_for() {
    let server = Setup { method_names: MethodNames::Checked, ..Setup::new() }.start().await;
    let mut client = server.predictions().await;
    client.predict(request("serving_default", 1.0)).await.unwrap();
    let expected = "Expected prediction signature method_name to be one of \
                    {tensorflow/serving/predict, tensorflow/serving/classify, \
                    tensorflow/serving/regress}. Was: tensorflow/serving/odd";
    let failed = failure(&mut client, request("wrong", 1.0)).await;
    assert_eq!(failed, (Code::Internal, expected.to_owned()));
    let classify: ClassificationRequest =
        proto::text::parse("model_spec { name: 'm' signature_name: 'regress' }").unwrap();
    let status = client.classify(classify).await.unwrap_err();
    assert_eq!(
        status.message(),
        "Expected classification signature method_name to be tensorflow/serving/classify. Was: \
         tensorflow/serving/regress"
    );
    let regress: RegressionRequest =
        proto::text::parse("model_spec { name: 'm' signature_name: 'classify' }").unwrap();
    let status = client.regress(regress).await.unwrap_err();
    assert_eq!(
        status.message(),
        "Expected regression signature method_name to be tensorflow/serving/regress. Was: \
         tensorflow/serving/classify"
    );
}

#[tokio::test]
async fn metadata_holds_all_signatures() {
    let server = Server::start().await;
    let request: GetModelMetadataRequest =
        proto::text::parse("model_spec { name: 'm' } metadata_field: 'signature_def'").unwrap();
    let answer = server.predictions().await.get_model_metadata(request).await.unwrap().into_inner();
    let spec = answer.model_spec.unwrap();
    assert_eq!((&*spec.name, &*spec.signature_name), ("m", ""));
    assert_eq!(spec.version_choice, Some(VersionChoice::Version(2)));
    let any = &answer.metadata["signature_def"];
    assert_eq!(any.type_url, "type.googleapis.com/tensorflow.serving.SignatureDefMap");
    let signatures = SignatureDefMap::decode(&*any.value).unwrap().signature_def;
    assert_eq!(signatures.len(), 13);
    assert_eq!(signatures["two"].inputs.keys().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(signatures["two"].method_name, "tensorflow/serving/predict");
}

#[tokio::test]
async fn tensors_are_content_if_that_is_asked_for() {
    let server = Setup { layout: Layout::Content, ..Setup::new() }.start().await;
    let answer = server.predictions().await.predict(request("serving_default", 2.0)).await.unwrap();
    let y = &answer.get_ref().outputs["y"];
    assert_eq!((&y.tensor_content[..], y.float_val.len()), (&3f32.to_le_bytes()[..], 0));
}

#[tokio::test]
async fn compressed_requests_are_read() {
    let server = Server::start().await;
    for encoding in [CompressionEncoding::Gzip, CompressionEncoding::Deflate] {
        let mut client = server.predictions().await.send_compressed(encoding);
        let answer = client.predict(request("serving_default", 2.0)).await.unwrap();
        assert_eq!(value(answer.get_ref()), 3.0);
    }
}

#[tokio::test]
async fn a_deadline_that_has_passed_starts_nothing() {
    let server = Server::start().await;
    let mut late = Request::new(request("gated", 1.0));
    // Below the resolution of any clock, but not zero, which clients do not send.
    late.metadata_mut().insert("grpc-timeout", "1n".parse().unwrap());
    let status = server.predictions().await.predict(late).await.unwrap_err();
    assert!(matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled), "{status}");
    assert_eq!(server.gate.len(), 0);
}

#[tokio::test]
async fn a_run_is_told_when_its_deadline_passes() {
    let server = Server::start().await;
    let mut client = server.predictions().await;
    let mut late = Request::new(request("gated", 1.0));
    late.set_timeout(Duration::from_millis(100));
    let call = tokio::spawn(async move { client.predict(late).await });
    let (run, _reply) = server.gate.take().await;
    let status = call.await.unwrap().unwrap_err();
    assert!(matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled), "{status}");
    assert!(run.deadline.is_some());
    // The server's own clock may be a little behind the client's.
    while !run.is_cancelled.load(Ordering::Relaxed) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_run_is_told_when_its_client_has_gone() {
    let server = Server::start().await;
    let mut client = server.predictions().await;
    let call = tokio::spawn(async move { client.predict(request("gated", 1.0)).await });
    let (run, _reply) = server.gate.take().await;
    assert!(!run.is_moot());
    call.abort();
    while !run.is_moot() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn streams_answer_in_order_while_several_requests_run() {
    let server = Server::start().await;
    let requests = tokio_stream::iter((0u8..6).map(|x| request("gated", f32::from(x))));
    let stream = server.predictions().await.predict_streamed(requests).await.unwrap();
    let collect = tokio::spawn(stream.into_inner().collect::<Vec<_>>());
    // Four run at once; they end in the opposite order.
    let mut runs = Vec::new();
    for _ in 0..4 {
        runs.push(server.gate.take().await);
    }
    assert_eq!(server.gate.len(), 0);
    for (run, reply) in runs.into_iter().rev() {
        reply(answer(&run));
    }
    for _ in 4..6 {
        let (run, reply) = server.gate.take().await;
        reply(answer(&run));
    }
    let answers = collect.await.unwrap();
    let values: Vec<f32> = answers.into_iter().map(|answer| value(&answer.unwrap())).collect();
    assert_eq!(values, [2.0, 2.5, 3.0, 3.5, 4.0, 4.5]);
}

#[tokio::test]
async fn a_failed_request_ends_its_stream_behind_the_answers_before_it() {
    let server = Server::start().await;
    let requests = ["serving_default", "serving_default", "full", "serving_default"];
    let requests = tokio_stream::iter(requests.map(|signature| request(signature, 2.0)));
    let stream = server.predictions().await.predict_streamed(requests).await.unwrap();
    let answers: Vec<_> = stream.into_inner().collect().await;
    assert_eq!(answers.len(), 3);
    assert_eq!(value(answers[0].as_ref().unwrap()), 3.0);
    assert_eq!(value(answers[1].as_ref().unwrap()), 3.0);
    assert_eq!(answers[2].as_ref().unwrap_err().code(), Code::Unavailable);
}

#[tokio::test]
async fn health_follows_readiness() {
    let server = Server::start().await;
    let mut client = HealthClient::new(server.channel().await);
    for service in ["", "ModelService", "PredictionService", "tensorflow.serving.PredictionService"]
    {
        let request = HealthCheckRequest { service: service.to_owned() };
        let answer = client.check(request).await.unwrap();
        assert_eq!(answer.get_ref().status(), ServingStatus::Serving, "{service}");
    }
    let all = HealthCheckRequest { service: String::new() };
    let mut watch = client.watch(all).await.unwrap().into_inner();
    assert_eq!(watch.next().await.unwrap().unwrap().status(), ServingStatus::Serving);
    let unknown = HealthCheckRequest { service: "Other".to_owned() };
    assert_eq!(client.check(unknown).await.unwrap_err().code(), Code::NotFound);
    server.token.cancel();
    assert_eq!(watch.next().await.unwrap().unwrap().status(), ServingStatus::NotServing);
}

#[tokio::test]
async fn reflection_names_the_services() {
    let server = Server::start().await;
    let mut client = ServerReflectionClient::new(server.channel().await);
    let message_request = Some(MessageRequest::ListServices(String::new()));
    let request = ServerReflectionRequest { host: String::new(), message_request };
    let answers = client.server_reflection_info(tokio_stream::once(request)).await.unwrap();
    let answer = answers.into_inner().next().await.unwrap().unwrap();
    let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else {
        panic!("{answer:?}");
    };
    let names: Vec<String> = list.service.into_iter().map(|service| service.name).collect();
    assert!(names.contains(&"tensorflow.serving.PredictionService".to_owned()), "{names:?}");
}

#[tokio::test]
async fn services_that_are_not_served_are_unimplemented() {
    use proto::serving::session_service_client::SessionServiceClient;
    let server = Server::start().await;
    let mut client = SessionServiceClient::new(server.channel().await);
    let status =
        client.session_run(proto::serving::SessionRunRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
}
