//! Properties of REST that golden files cannot show: settings, headers, compression.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use api::ModelsPage;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use pages::{ModelListPage, RequestCounts};

use crate::support::{Server, Setup};

const PREDICT: &str = "/v1/models/m:predict";
const BODY: &[u8] = br#"{"instances": [2]}"#;
const ANSWER: &str = "{\n    \"predictions\": [3.0\n    ]\n}";

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn a_reader_of_states_may_wait_for_one() {
    let server = Server::start().await;
    let answer = server.ask("GET", "/v1/models/m?wait=AVAILABLE", b"").await;
    assert_eq!(answer.code, 200, "{}", answer.text());
    // It ends when the models are gone, and not before.
    let waiting = server.ask("GET", "/v1/models/m?wait=END", b"");
    let (answer, removed) = tokio::join!(waiting, server.lifecycle.set_config(Vec::new()));
    removed.unwrap();
    assert!(answer.text().contains("\"END\""), "{}", answer.text());
    // Any other query is a part of the name, as in TensorFlow Serving.
    assert_eq!(server.ask("GET", "/v1/models/m?wait=1", b"").await.code, 404);
}

#[tokio::test]
async fn under_our_own_name_the_models_are_listed() {
    let server = Setup { models_page: ModelsPage::List, ..Setup::new() }.start().await;
    let (plain, list) = (
        server.ask("GET", "/v1/models", b"").await,
        server.ask("GET", "/v1/models:list", b"").await,
    );
    assert_eq!((plain.code, plain.text()), (200, list.text()));
    let list: ModelListPage = serde_json::from_str(&plain.text()).unwrap();
    let model = &list.models[1];
    assert_eq!((&*model.name, &*model.labels["old"]), ("m", "1"));
    assert_eq!(model.requests, RequestCounts::default());
    server.ask("POST", PREDICT, BODY).await;
    server.ask("POST", PREDICT, b"{").await;
    let list = server.ask("GET", "/v1/models", b"").await;
    let list: ModelListPage = serde_json::from_str(&list.text()).unwrap();
    let requests = &list.models[1].requests;
    assert_eq!((requests.in_flight, requests.latency_micros.count), (0, 1));
    let codes: Vec<(&str, u64)> = requests.by_code.iter().map(|(c, n)| (&**c, *n)).collect();
    assert_eq!(codes, [("INVALID_ARGUMENT", 1), ("OK", 1)]);
}

#[tokio::test]
async fn browsers_may_ask_first() {
    let server = Server::start().await;
    let ask = async |origin: &[&str]| {
        let answer = server.ask_with("OPTIONS", PREDICT, origin, b"").await;
        (answer.code, answer.text(), answer.header("content-type").map(str::to_owned))
    };
    assert_eq!(ask(&["Origin: https://site"]).await, (200, String::new(), None));
    assert_eq!(ask(&["Origin: site"]).await, (400, String::new(), None));
    assert_eq!(ask(&[]).await, (400, String::new(), None));
}

#[tokio::test]
async fn answers_carry_cors_headers_if_that_is_asked_for() {
    let server = Setup { has_cors: true, ..Setup::new() }.start().await;
    for (method, body) in [("POST", BODY), ("POST", b"{"), ("OPTIONS", b"")] {
        let answer = server.ask(method, PREDICT, body).await;
        assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
        assert_eq!(answer.header("access-control-allow-methods"), Some("POST, GET"));
        assert_eq!(answer.header("access-control-allow-headers"), Some("Content-Type"));
    }
    let answer = server.ask("GET", "/healthz", b"").await;
    assert_eq!(answer.header("access-control-allow-origin"), None);
}

#[tokio::test]
async fn bodies_may_be_packed_with_gzip_and_nothing_else() {
    let server = Server::start().await;
    let header = ["Content-Encoding: gzip"];
    let answer = server.ask_with("POST", PREDICT, &header, &gzip(BODY)).await;
    assert_eq!((answer.code, answer.text().as_str()), (200, ANSWER));
    // What is broken or unfolds to too much is taken for nothing.
    let bomb = gzip(&vec![b' '; (1 << 20) + 1]);
    for body in [&bomb[..], BODY] {
        let answer = server.ask_with("POST", PREDICT, &header, body).await;
        assert_eq!(answer.code, 400);
        assert!(answer.text().contains("The document is empty"), "{}", answer.text());
    }
    let answer = server.ask_with("POST", PREDICT, &["Content-Encoding: br"], BODY).await;
    assert_eq!(answer.code, 415);
    let answer = server.ask_with("POST", PREDICT, &["Content-Encoding: identity"], BODY).await;
    assert_eq!(answer.code, 200);
}

#[tokio::test]
async fn long_answers_are_packed_for_those_who_ask() {
    let server = Server::start().await;
    let body = format!("{{\"instances\": [{}1]}}", "1,".repeat(200_000));
    let plain = server.ask("POST", PREDICT, body.as_bytes()).await;
    assert_eq!(plain.header("content-encoding"), None);
    let header = ["Accept-Encoding: deflate, gzip"];
    let packed = server.ask_with("POST", PREDICT, &header, body.as_bytes()).await;
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    let mut text = String::new();
    GzDecoder::new(&packed.body[..]).read_to_string(&mut text).unwrap();
    assert_eq!(text, plain.text());
    let short = server.ask_with("POST", PREDICT, &header, BODY).await;
    assert_eq!((short.header("content-encoding"), short.text().as_str()), (None, ANSWER));
}

#[tokio::test]
async fn the_timeout_is_that_of_the_run() {
    let setup = Setup { timeout: Some(Duration::from_millis(50)), ..Setup::new() };
    let server = setup.start().await;
    let body = br#"{"signature_name": "gated", "instances": [1]}"#;
    let (answer, (run, _reply)) =
        tokio::join!(server.ask("POST", PREDICT, body), server.gate.take());
    assert_eq!(answer.code, 504);
    assert!(run.deadline.is_some() && run.is_moot());
}

#[tokio::test]
async fn readiness_ends_when_the_server_stops() {
    let server = Server::start().await;
    assert_eq!(server.ask("GET", "/readyz", b"").await.code, 200);
    assert!(server.context.models.is_ready());
    let mut readiness = server.context.models.readiness();
    server.token.cancel();
    readiness.wait_for(|is_ready| !is_ready).await.unwrap();
    server.lifecycle.stopped().await;
}
