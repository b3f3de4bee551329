//! Long messages are decoded and encoded on the codec threads, and short ones where they come.

use std::sync::{Arc, Mutex};
use std::thread;

use api::{Books, Budget};
use prost::Message as _;
use proto::serving::PredictRequest;
use proto::tensorflow::tensor_shape_proto::Dim;
use tokio_stream::StreamExt as _;
use tonic::Code;

use crate::grpc::request;
use crate::support::{Server, Setup};

/// The size above which a charge at once is for a message that is decoded or encoded.
const LONG_BYTES: usize = 1 << 20;

/// Books that note which threads ask for room for long messages.
#[derive(Debug, Clone, Default)]
struct Noted {
    threads: Arc<Mutex<Vec<String>>>,
    /// The threads that give back what a message took to decode.
    decoders: Arc<Mutex<Vec<String>>>,
}

impl Books for Noted {
    fn take(&self, bytes: usize, _held: usize) -> Result<(), String> {
        if bytes > LONG_BYTES {
            self.threads.lock().unwrap().push(name());
        }
        Ok(())
    }

    fn give_back(&self, bytes: usize) {
        if bytes > 128 << 10 {
            self.decoders.lock().unwrap().push(name());
        }
    }
}

fn name() -> String {
    thread::current().name().unwrap_or_default().to_owned()
}

async fn start() -> (Server, Noted) {
    let noted = Noted::default();
    (Setup { budget: Budget::new(noted.clone()), ..Setup::new() }.start().await, noted)
}

/// A request with so many numbers on the wire, which stand for as many more.
fn numbers(signature: &str, n_sent: usize, n_meant: i64) -> PredictRequest {
    let mut request = request(signature, 1.0);
    let x = request.inputs.get_mut("x").unwrap();
    x.float_val = vec![1.0; n_sent];
    x.tensor_shape.as_mut().unwrap().dim = vec![Dim { size: n_meant, name: String::new() }];
    request
}

/// The threads that asked for room since the last look, without repetitions.
fn threads(noted: &Noted) -> Vec<String> {
    let mut threads = std::mem::take(&mut *noted.threads.lock().unwrap());
    threads.dedup();
    threads
}

#[tokio::test]
async fn long_requests_are_decoded_on_codec_threads() {
    let (server, noted) = start().await;
    let mut client = server.predictions().await;
    // Whatever it asks for is looked at behind its decoding.
    let status = client.predict(numbers("nowhere", 1_000_000, 1_000_000)).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert_eq!(threads(&noted), ["codec"]);
    let packed = client.clone().send_compressed(tonic::codec::CompressionEncoding::Gzip);
    let status = { packed }.predict(numbers("nowhere", 1_000_000, 1_000_000)).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert_eq!(threads(&noted), ["codec"]);
    let body =
        format!("{{\"signature_name\": \"nowhere\", \"instances\": [{}1]}}", "1,".repeat(999_999));
    assert_eq!(server.ask("POST", "/v1/models/m:predict", body.as_bytes()).await.code, 400);
    assert_eq!(threads(&noted), ["codec"]);
}

#[tokio::test]
async fn long_answers_are_encoded_on_codec_threads() {
    let (server, noted) = start().await;
    let mut client = server.predictions().await;
    let answer = client.predict(numbers("serving_default", 1, 1_000_000)).await.unwrap();
    assert_eq!(answer.into_inner().outputs["y"].float_val, vec![2.5; 1_000_000]);
    // The first is for the message, and a later one for the parts of it that are sent.
    assert_eq!(threads(&noted)[0], "codec");
    let body = format!("{{\"instances\": [{}1]}}", "1,".repeat(999_999));
    let answer = server.ask("POST", "/v1/models/m:predict", body.as_bytes()).await;
    assert_eq!(answer.code, 200);
    assert_eq!(threads(&noted), ["codec"]);
}

#[tokio::test]
async fn streams_are_decoded_and_encoded_on_codec_threads() {
    let (server, noted) = start().await;
    let sent = [1, 1_000_000, 1].map(|n| numbers("serving_default", n, n as i64));
    let answers = server.predictions().await.predict_streamed(tokio_stream::iter(sent)).await;
    let answers: Vec<_> = answers.unwrap().into_inner().collect().await;
    let sizes = answers.iter().map(|answer| answer.as_ref().unwrap().outputs["y"].float_val.len());
    assert_eq!(sizes.collect::<Vec<usize>>(), [1, 1_000_000, 1]);
    assert_eq!(threads(&noted)[0], "codec");
}

/// Requests that wait for a run keep no codec thread, of which there is one.
#[tokio::test]
async fn long_requests_that_wait_for_their_runs_keep_no_other_from_being_decoded() {
    let (server, _) = start().await;
    let mut client = server.predictions().await;
    let gated = {
        let mut client = client.clone();
        tokio::spawn(async move { client.predict(numbers("gated", 1_000_000, 1_000_000)).await })
    };
    let (run, reply) = server.gate.take().await;
    let other = client.predict(numbers("serving_default", 1_000_000, 1_000_000)).await;
    assert_eq!(other.unwrap().into_inner().outputs["y"].float_val.len(), 1_000_000);
    reply(crate::support::answer(&run));
    assert!(gated.await.unwrap().is_ok());
}

/// A charge for decoding is given back on the thread that fills the tensors.
#[tokio::test]
async fn short_requests_that_stand_for_many_numbers_are_filled_on_codec_threads() {
    let (server, noted) = start().await;
    let mut client = server.predictions().await;
    for (n_meant, is_apart) in [(1_000_000, true), (10, false)] {
        let mut request = numbers("serving_default", 1, n_meant);
        // Numbers of a byte that nobody reads take twelve decoded.
        request.inputs.get_mut("x").unwrap().int_val = vec![0; 20_000];
        assert!(request.encoded_len() < 32 << 10);
        let answer = client.predict(request).await.unwrap().into_inner();
        assert_eq!(answer.outputs["y"].float_val.len() as i64, n_meant);
        let decoders = std::mem::take(&mut *noted.decoders.lock().unwrap());
        assert_eq!(decoders[0] == "codec", is_apart, "{decoders:?}");
    }
}

#[tokio::test]
async fn pages_are_made_on_codec_threads() {
    let server = Setup { page: Arc::new(name), ..Setup::new() }.start().await;
    for path in ["/metrics", "/monitoring/prometheus/metrics"] {
        let answer = server.ask("GET", path, b"").await;
        assert_eq!((answer.code, &*answer.text()), (200, "codec"), "{path}");
    }
}
