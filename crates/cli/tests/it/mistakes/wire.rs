//! Mistakes in requests, over REST and gRPC.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use flate2::Compression;
use flate2::write::GzEncoder;
use proto::serving::ModelSpec;
use proto::serving::model_spec::VersionChoice;
use proto::serving::prediction_service_client::PredictionServiceClient;
use proto::serving::{GetModelMetadataRequest, PredictRequest};
use tensor::Tensor;

use crate::support::{Server, block_on, model_server, root, tensord};
use crate::tensorflow::{predict, spec};

/// A mistake in a request, and a part of the answer.
pub(super) struct Request {
    pub(super) name: &'static str,
    made: fn(&Server) -> String,
    pub(super) said: &'static str,
}

const fn row(name: &'static str, made: fn(&Server) -> String, said: &'static str) -> Request {
    Request { name, made, said }
}

/// Mistakes in requests to a server of the demo models.
pub(super) const REQUESTS: &[Request] = &[
    row(
        "an unknown model (REST)",
        |server| predict_rest(server, "half_plus_tow:predict", r#"{"instances": [1.0]}"#),
        "did you mean half_plus_two? this server has the models ",
    ),
    row(
        "an unknown model (gRPC)",
        |server| predict_grpc(server, spec("half_plus_tow", "")),
        "hint: did you mean half_plus_two?",
    ),
    row(
        "an unknown version",
        |server| {
            predict_rest(server, "half_plus_two/versions/7:predict", r#"{"instances": [1.0]}"#)
        },
        "version 7 is not there; available is the version 123",
    ),
    row(
        "an unknown label",
        |server| {
            let label = VersionChoice::VersionLabel("stable".to_owned());
            let spec = ModelSpec { version_choice: Some(label), ..spec("half_plus_two", "") };
            predict_grpc(server, spec)
        },
        "the model has no labels: version_labels of its config would set them",
    ),
    row(
        "an unknown signature (REST)",
        |server| {
            let body = r#"{"signature_name": "serving_defualt", "instances": [1.0]}"#;
            predict_rest(server, "half_plus_two:predict", body)
        },
        "did you mean serving_default? the model has the signatures ",
    ),
    row(
        "an unknown signature (gRPC)",
        |server| predict_grpc(server, spec("half_plus_two", "serving_defualt")),
        "did you mean serving_default?",
    ),
    row(
        "an input of another name",
        |server| {
            let y = Tensor::vector(&[1f32]).unwrap();
            failed(predict(server, spec("half_plus_two", ""), &[("y", y)]))
        },
        "the signature serving_default takes x: float[",
    ),
    row(
        "a dtype that the signature does not take",
        |server| {
            let x = Tensor::vector(&[1i32]).unwrap();
            failed(predict(server, spec("half_plus_two", ""), &[("x", x)]))
        },
        "hint: the signature serving_default takes x: float[",
    ),
    row(
        "words where numbers belong",
        |server| predict_rest(server, "half_plus_two:predict", r#"{"instances": ["one"]}"#),
        "the signature serving_default takes x: float[",
    ),
    row(
        "rows of another size",
        |server| predict_rest(server, "digits:predict", r#"{"instances": [[1.0, 2.0]]}"#),
        "the signature serving_default takes ",
    ),
    row(
        "a mistyped key in the body",
        |server| predict_rest(server, "half_plus_two:predict", r#"{"instance": [1.0]}"#),
        "did you mean the key \\\"instances\\\"?",
    ),
    row(
        "a mistyped verb",
        |server| predict_rest(server, "half_plus_two:predcit", r#"{"instances": [1.0]}"#),
        "did you mean /v1/models/half_plus_two:predict?",
    ),
    row(
        "a prediction by GET",
        |server| server.rest("GET", "/v1/models/half_plus_two:predict", "").1,
        "send it as POST: predict takes a body",
    ),
    row(
        "a body that is not packed as its header says",
        |server| posted(server, "Content-Encoding: gzip\r\n", br#"{"instances": [1.0]}"#),
        "Content-Encoding says gzip, but the body is not packed with it",
    ),
    row(
        "a packed body without a header that says so",
        |server| {
            let mut packed = GzEncoder::new(Vec::new(), Compression::best());
            packed.write_all(br#"{"instances": [1.0]}"#).unwrap();
            posted(server, "", &packed.finish().unwrap())
        },
        "the body is packed: send Content-Encoding: gzip with it",
    ),
    row(
        "a body that is too large",
        |server| {
            let head = "POST /v1/models/half_plus_two:predict HTTP/1.1\r\nHost: localhost\r\n";
            said(server.rest, format!("{head}Content-Length: 2000000000\r\n\r\n").as_bytes())
        },
        "send fewer instances in a request, or use gRPC",
    ),
    row(
        "HTTP/1 at the gRPC port",
        |server| said(server.grpc, b"GET /v1/models/m HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        "this is the gRPC port, and the request is HTTP/1: REST is at port ",
    ),
    row(
        "gRPC at the REST port",
        |server| {
            let address = format!("http://127.0.0.1:{}", server.rest);
            block_on(async {
                let mut client = PredictionServiceClient::connect(address).await.unwrap();
                let asked = client.predict(PredictRequest::default()).await;
                asked.unwrap_err().message().to_owned()
            })
        },
        "this is the REST port, and the call is gRPC: that is at port ",
    ),
];

/// Mistakes of a client that speaks without TLS where it is spoken.
const PLAIN: &str = "this port speaks TLS, and the request came without it: use https://";

fn half_plus_two() -> String {
    root().join("models/half_plus_two").display().to_string()
}

fn predict_rest(server: &Server, path: &str, body: &str) -> String {
    let (status, text) = server.rest("POST", &format!("/v1/models/{path}"), body);
    assert!(status >= 400, "{text}");
    text
}

fn predict_grpc(server: &Server, spec: ModelSpec) -> String {
    let x = Tensor::vector(&[1f32]).unwrap();
    failed(predict(server, spec, &[("x", x)]))
}

fn failed<T: std::fmt::Debug>(answer: Result<T, (tonic::Code, String)>) -> String {
    answer.unwrap_err().1
}

/// The answer to bytes that are sent to a port.
fn said(port: u16, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(servertest::PATIENCE)).unwrap();
    stream.write_all(bytes).unwrap();
    let (mut text, mut part) = (Vec::new(), [0; 4096]);
    // Until the end, or until the text of an answer is there: the connection may stay open.
    while let Ok(n @ 1..) = stream.read(&mut part) {
        text.extend_from_slice(&part[..n]);
        if text.windows(4).any(|four| four == b"\r\n\r\n")
            && (text.ends_with(b"}\n") || text.ends_with(b"\n}"))
        {
            break;
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

fn posted(server: &Server, headers: &str, body: &[u8]) -> String {
    let head = "POST /v1/models/half_plus_two:predict HTTP/1.1\r\nConnection: close\r\n";
    let length = body.len();
    let head = format!("{head}Host: localhost\r\n{headers}Content-Length: {length}\r\n\r\n");
    said(server.rest, &[head.as_bytes(), body].concat())
}

#[test]
fn each_mistake_in_a_request_is_answered_with_how_to_mend_it() {
    let server = Server::start(tensord(), &[&root().join("models").to_string_lossy()]);
    let mut wrong = Vec::new();
    for Request { name, made, said } in REQUESTS {
        let answer = made(&server);
        if !answer.contains(said) {
            wrong.push(format!("{name}: {answer}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Under TensorFlow Serving's name answers are its own, byte for byte, unless hints are asked for.
#[test]
fn hints_stand_behind_the_same_message_and_only_where_they_are_wanted() {
    let models = format!("--model_base_path={}", half_plus_two());
    let asked = |server: &Server| {
        let path = "/v1/models/defualt:predict";
        let rest = server.rest("POST", path, r#"{"instances": [1.0]}"#).1;
        (rest, predict_grpc(server, spec("defualt", "")))
    };
    let message = "Servable not found for request: Latest(defualt)";
    let (rest, grpc) = asked(&Server::start(model_server(), &[&models]));
    assert_eq!(rest.trim_end(), format!("{{\n    \"error\": \"{message}\"\n}}"));
    assert_eq!(grpc, message);
    let (rest, grpc) = asked(&Server::start(model_server(), &[&models, "--error_hints"]));
    assert!(
        rest.contains(&format!("\"error\": \"{message}\"")) && rest.contains("\"hint\""),
        "{rest}"
    );
    assert!(grpc.starts_with(&format!("{message}\nhint: did you mean default?")), "{grpc}");
    let (rest, grpc) = asked(&Server::start(tensord(), &[&models, "--error_hints=false"]));
    assert!(!rest.contains("hint") && grpc == message, "{rest} {grpc}");
}

#[test]
fn metadata_of_an_unknown_model_names_those_that_there_are() {
    let server = Server::start(tensord(), &[&half_plus_two()]);
    let request = GetModelMetadataRequest {
        model_spec: Some(spec("other", "")),
        metadata_field: vec!["signature_def".to_owned()],
    };
    let answer = block_on(async {
        server.prediction_client().await.get_model_metadata(request).await.unwrap_err()
    });
    assert!(answer.message().contains("this server has the model half_plus_two"), "{answer}");
    let (status, body) = server.rest("GET", "/v1/models/other", "");
    assert_eq!((status, body.contains("the model half_plus_two")), (404, true), "{body}");
}

#[test]
fn a_client_without_tls_is_told_so_in_its_own_protocol() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ssl.config");
    crate::doors::write_keys(&file);
    let flag = format!("--ssl_config_file={}", file.display());
    let server = Server::start(tensord(), &[&flag, &half_plus_two()]);
    for port in [server.rest, server.grpc] {
        let answer = said(port, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{answer}");
        assert!(answer.contains(PLAIN), "{answer}");
        let address = format!("http://127.0.0.1:{port}");
        let message = block_on(async {
            let mut client = PredictionServiceClient::connect(address).await.unwrap();
            let asked = client.predict(PredictRequest::default()).await;
            asked.unwrap_err().message().to_owned()
        });
        assert!(message.contains(PLAIN), "{message}");
    }
}

#[test]
fn a_refused_model_is_told_that_a_device_it_names_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("models.config");
    let good = half_plus_two();
    let text = format!(
        "model_config_list {{ config {{ name: 'good' base_path: '{good}' }} config {{ name: 'lost' \
         base_path: '{good}' memory {{ devices: 'gpu:7' limit: '9B' }} }} }}"
    );
    std::fs::write(&file, text).unwrap();
    let flag = format!("--model_config_file={}", file.display());
    let server = Server::start(tensord(), &[&flag, "--max_num_load_retries=0"]);
    let states = server.rest_until("/v1/models/lost", "END");
    let wanted = "its config names gpu:7, which is not there: there are cpu:0";
    assert!(states.contains(wanted), "{states}");
}
