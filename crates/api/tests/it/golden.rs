//! Requests and answers of `testdata/golden/api`, case by case, over both faces.
//!
//! A file holds cases: `== what it shows`, then `> ` and what is asked, then `< ` and what comes
//! back.
//! When a file does not fit, what came instead is written beside the test binary.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use prost::{Message, Name};
use proto::serving::model_service_client::ModelServiceClient;
use proto::serving::prediction_service_client::PredictionServiceClient;
use proto::serving::{
    ClassificationRequest, GetModelMetadataRequest, GetModelStatusRequest, MultiInferenceRequest,
    PredictRequest, RegressionRequest, ReloadConfigRequest,
};
use proto::text;
use tonic::transport::Channel;

use crate::support::Server;

struct Case {
    name: String,
    asked: String,
    body: String,
    expected: String,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/golden/api")
}

fn read(file: &str) -> Vec<Case> {
    let text = std::fs::read_to_string(folder().join(file)).unwrap();
    let cases = text.split("\n== ").skip(1).map(|case| {
        let (head, expected) = case.split_once("\n<").expect("a case has an answer");
        let (name, request) = head.split_once("\n> ").expect("a case has a request");
        let (asked, body) = request.split_once('\n').unwrap_or((request, ""));
        Case {
            name: name.to_owned(),
            asked: asked.to_owned(),
            body: body.to_owned(),
            expected: expected.trim_start_matches(' ').trim_end().to_owned(),
        }
    });
    cases.collect()
}

/// Compares the answers of a file with what came.
fn compare(file: &str, cases: &[Case], came: &[String]) {
    let mut actual = String::from("# Written by hand; the texts are TensorFlow Serving's.\n");
    let mut wrong = String::new();
    for (case, came) in cases.iter().zip(came) {
        let came = came.trim_end();
        let body = if case.body.is_empty() { String::new() } else { format!("\n{}", case.body) };
        write!(actual, "\n== {}\n> {}{body}\n< {came}\n", case.name, case.asked).unwrap();
        if came != case.expected {
            write!(wrong, "\n== {}\nexpected:\n{}\ncame:\n{came}\n", case.name, case.expected)
                .unwrap();
        }
    }
    if !wrong.is_empty() {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(file);
        std::fs::write(&path, actual).unwrap();
        panic!("{file}: see {}\n{wrong}", path.display());
    }
}

/// JSON with the members of objects in the order of their names.
fn sorted(text: &str) -> String {
    let value: serde_json::Value = serde_json::from_str(text).unwrap();
    format!("{value:#}")
}

async fn check_rest(file: &str) {
    let server = Server::start().await;
    let cases = read(file);
    let mut came = Vec::new();
    for case in &cases {
        let (method, path) = case.asked.split_once(' ').unwrap();
        let answer = server.ask(method, path, case.body.as_bytes()).await;
        let content_type = answer.header("content-type").unwrap_or("-");
        // The order of signatures is not defined.
        let is_map = path.ends_with("/metadata") && answer.code == 200;
        let text = if is_map { sorted(&answer.text()) } else { answer.text() };
        came.push(format!("{} {content_type}\n{text}", answer.code));
    }
    compare(file, &cases, &came);
}

#[tokio::test]
async fn rest_predict() {
    check_rest("rest_predict.txt").await;
}

#[tokio::test]
async fn rest_classify_and_regress() {
    check_rest("rest_examples.txt").await;
}

#[tokio::test]
async fn rest_states_and_metadata() {
    check_rest("rest_looks.txt").await;
}

/// Asks a gRPC method with a message in text form.
macro_rules! call {
    ($client:expr, $method:ident, $request:ty, $case:expr) => {{
        let request: $request = text::parse(&$case.body).unwrap_or_else(|error| panic!("{error}"));
        shown($client.$method(request).await)
    }};
}

fn shown<T: Message + Name>(answer: Result<tonic::Response<T>, tonic::Status>) -> String {
    match answer {
        Ok(answer) => format!("OK\n{}", text::print(&answer.into_inner())),
        Err(status) => format!("{:?} {}", status.code(), status.message()),
    }
}

async fn ask(
    predictions: &mut PredictionServiceClient<Channel>,
    models: &mut ModelServiceClient<Channel>,
    case: &Case,
) -> String {
    match case.asked.as_str() {
        "Predict" => call!(predictions, predict, PredictRequest, case),
        "Classify" => call!(predictions, classify, ClassificationRequest, case),
        "Regress" => call!(predictions, regress, RegressionRequest, case),
        "MultiInference" => call!(predictions, multi_inference, MultiInferenceRequest, case),
        "GetModelMetadata" => call!(predictions, get_model_metadata, GetModelMetadataRequest, case),
        "GetModelStatus" => call!(models, get_model_status, GetModelStatusRequest, case),
        "HandleReloadConfigRequest" => {
            call!(models, handle_reload_config_request, ReloadConfigRequest, case)
        }
        other => panic!("no method {other}"),
    }
}

async fn check_grpc(file: &str) {
    let server = Server::start().await;
    let (mut predictions, mut models) = (server.predictions().await, server.models().await);
    let cases = read(file);
    let mut came = Vec::new();
    for case in &cases {
        came.push(ask(&mut predictions, &mut models, case).await);
    }
    compare(file, &cases, &came);
}

#[tokio::test]
async fn grpc_predict() {
    check_grpc("grpc_predict.txt").await;
}

#[tokio::test]
async fn grpc_classify_regress_and_multi_inference() {
    check_grpc("grpc_examples.txt").await;
}

#[tokio::test]
async fn grpc_states_metadata_and_reload() {
    check_grpc("grpc_looks.txt").await;
}
