//! Hostile messages over gRPC, written byte by byte: few of ours become many of theirs.

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use tonic::client::Grpc;
use tonic::codec::{Codec, CompressionEncoding, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

use crate::support::{Server, block_on};

const PREDICT: &str = "/tensorflow.serving.PredictionService/Predict";
const CLASSIFY: &str = "/tensorflow.serving.PredictionService/Classify";
const RELOAD: &str = "/tensorflow.serving.ModelService/HandleReloadConfigRequest";

const FLOAT: u8 = 1;
const STRING: u8 = 7;

/// The longest time that anything may take, before a test gives up.
const PATIENCE: Duration = Duration::from_secs(120);

pub(super) fn repeated_string_as_float(server: &Server) {
    let tensor = [shape(&[5_000_000]), dtype(STRING), field(8, &[b'x'; 1000])].concat();
    let status = call(server, PREDICT, predict("half_plus_two", "x", &tensor)).unwrap_err();
    let text = "Expects arg[0] to be float but string is provided";
    assert!(status.message().starts_with(text), "{status}");
}

pub(super) fn repeated_string(server: &Server) {
    for n_strings in [5_000_000, 50_000_000, 1 << 40] {
        let tensor = [shape(&[n_strings]), dtype(STRING), field(8, &[b'x'; 1000])].concat();
        let status = call(server, PREDICT, predict("sentiment", "text", &tensor)).unwrap_err();
        let is_refused = matches!(status.code(), Code::ResourceExhausted | Code::InvalidArgument);
        assert!(is_refused && status.message().contains("tensor parsing error"), "{status}");
    }
}

pub(super) fn repeated_number(server: &Server) {
    let tensor = [shape(&[400_000_000]), dtype(FLOAT), field(5, &1f32.to_le_bytes())].concat();
    exhausts(server, PREDICT, predict("half_plus_two", "x", &tensor));
}

pub(super) fn entries(server: &Server) {
    exhausts(server, PREDICT, many_entries());
}

pub(super) fn entries_behind_a_group(server: &Server) {
    exhausts(server, PREDICT, [vec![0xAB, 0x06, 0xAC, 0x06], many_entries()].concat());
}

fn many_entries() -> Vec<u8> {
    let entry = |n: u32| field(2, &field(1, &n.to_be_bytes()));
    (0..1_000_000).flat_map(entry).collect()
}

pub(super) fn empty_strings(server: &Server) {
    let tensor = [dtype(STRING), field(8, b"").repeat(10_000_000)].concat();
    exhausts(server, PREDICT, predict("sentiment", "text", &tensor));
}

pub(super) fn packed_strings(server: &Server) {
    let tensor = [dtype(STRING), field(8, b"").repeat(10_000_000)].concat();
    let message = predict("sentiment", "text", &tensor);
    let status = block_on(async {
        let client = client(server, Some(CompressionEncoding::Gzip)).await;
        unary(client, PREDICT, message).await
    });
    assert_eq!(status.unwrap_err().code(), Code::ResourceExhausted);
}

pub(super) fn dimensions(server: &Server) {
    let tensor = [dtype(FLOAT), field(2, &field(2, b"").repeat(8_000_000))].concat();
    exhausts(server, PREDICT, predict("half_plus_two", "x", &tensor));
}

pub(super) fn narrow_numbers(server: &Server) {
    let tensor = [dtype(9), shape(&[1]), field(10, &vec![0; 60_000_000])].concat();
    exhausts(server, PREDICT, predict("half_plus_two", "x", &tensor));
}

pub(super) fn repeated_context(server: &Server) {
    let name = vec![b'x'; 1 << 20];
    let context = field(1, &field(1, &field(1, &name)));
    let examples = [field(1, b"").repeat(100_000), field(2, &context)].concat();
    exhausts(server, CLASSIFY, classify("half_plus_two", &field(2, &examples)));
}

pub(super) fn features(server: &Server) {
    let feature = |n: u32| field(1, &field(1, &n.to_be_bytes()));
    let features: Vec<u8> = (0..1_500_000).flat_map(feature).collect();
    let examples = field(1, &field(1, &features)).repeat(4);
    exhausts(server, CLASSIFY, classify("half_plus_two", &field(1, &examples)));
}

pub(super) fn list_of_models(server: &Server) {
    exhausts(server, RELOAD, field(1, &field(1, &field(1, b"").repeat(2_000_000))));
}

pub(super) fn unread_answers(server: &Server) {
    // One number for twenty million: 80 MB each.
    unread_answers_of(server, 20_000_000);
}

pub(super) fn smaller_unread_answers(server: &Server) {
    // 20 MB each, and more than the limit in all.
    unread_answers_of(server, 5_000_000);
}

fn unread_answers_of(server: &Server, n_elements: u64) {
    let tensor = [shape(&[n_elements]), dtype(FLOAT), field(5, &1f32.to_le_bytes())].concat();
    let message = Bytes::from(predict("half_plus_two", "x", &tensor));
    block_on(async {
        let address = format!("http://127.0.0.1:{}", server.grpc);
        // Nothing is ever taken of an answer.
        let endpoint = Endpoint::from_shared(address).unwrap().initial_stream_window_size(0);
        let mut calls = tokio::task::JoinSet::new();
        for _ in 0..60 {
            let channel = endpoint.connect().await.unwrap();
            let mut client = Grpc::new(channel).max_decoding_message_size(usize::MAX);
            let message = message.clone();
            calls.spawn(async move {
                client.ready().await.unwrap();
                let path = http::uri::PathAndQuery::from_static(PREDICT);
                let answer = client.server_streaming(Request::new(message), path, Raw).await;
                // Kept open, and never asked for more.
                answer.map(|answer| (client, answer))
            });
        }
        let mut open = Vec::new();
        let mut n_refused = 0;
        while let Some(answer) = tokio::time::timeout(PATIENCE, calls.join_next()).await.unwrap() {
            match answer.unwrap() {
                Ok(answer) => open.push(answer),
                Err(status) => {
                    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
                    n_refused += 1;
                }
            }
        }
        assert!(!open.is_empty() && n_refused > 0, "{} open, {n_refused} refused", open.len());
    });
}

pub(super) fn unfinished_messages(server: &Server) {
    block_on(async {
        let address = format!("http://127.0.0.1:{}", server.grpc);
        let endpoint = Endpoint::from_shared(address).unwrap();
        let mut calls = tokio::task::JoinSet::new();
        for _ in 0..40 {
            let channel = endpoint.connect().await.unwrap();
            calls.spawn(half_a_message(channel));
        }
        let mut n_refused = 0;
        // Those that find room wait for ever; the first that finds none ends this.
        let refused = async {
            while let Some(answer) = calls.join_next().await {
                n_refused += usize::from(answer.unwrap());
                if n_refused >= 5 {
                    return;
                }
            }
        };
        tokio::time::timeout(PATIENCE, refused).await.expect("some are refused");
    });
}

pub(super) fn heads_without_messages(server: &Server) {
    block_on(async {
        let address = format!("http://127.0.0.1:{}", server.grpc);
        let endpoint = Endpoint::from_shared(address).unwrap();
        let mut calls = tokio::task::JoinSet::new();
        // 1.5 GB of headers.
        for _ in 0..30 {
            let channel = endpoint.connect().await.unwrap();
            for _ in 0..1000 {
                calls.spawn(head_alone(channel.clone()));
            }
        }
        let mut n_refused = 0;
        let refused = async {
            while n_refused < 5 {
                let answer = calls.join_next().await.expect("some find no room");
                n_refused += usize::from(answer.unwrap() == Some("8".to_owned()));
            }
        };
        tokio::time::timeout(PATIENCE, refused).await.expect("some are refused");
    });
}

/// Sends a head of 50 KB, and nothing more. Gives the status.
async fn head_alone(mut channel: Channel) -> Option<String> {
    use tower::{Service as _, ServiceExt as _};
    type Part = Result<hyper::body::Frame<Bytes>, Status>;
    let nothing = http_body_util::StreamBody::new(tokio_stream::pending::<Part>());
    let request = http::Request::post(PREDICT)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("x-long", "x".repeat(50_000))
        .body(tonic::body::Body::new(nothing))
        .unwrap();
    let answer = channel.ready().await.ok()?.call(request).await.ok()?;
    Some(answer.headers().get("grpc-status")?.to_str().ok()?.to_owned())
}

pub(super) fn numbers_at_once(server: &Server) {
    // 80 MB each, and as much again for the answer.
    let tensor = [shape(&[20_000_000]), dtype(FLOAT), field(5, &1f32.to_le_bytes())].concat();
    at_once(server, predict("half_plus_two", "x", &tensor));
}

pub(super) fn strings_at_once(server: &Server) {
    let tensor = [shape(&[400_000]), dtype(STRING), field(8, b"").repeat(400_000)].concat();
    at_once(server, predict("sentiment", "text", &tensor));
}

/// Many clients send the same; each is answered, or told that there is no memory or no time.
fn at_once(server: &Server, message: Vec<u8>) {
    let message = Bytes::from(message);
    block_on(async {
        let mut calls = tokio::task::JoinSet::new();
        for _ in 0..24 {
            let (client, message) = (client(server, None).await, message.to_vec());
            calls.spawn(unary(client, PREDICT, message));
        }
        while let Some(answer) = calls.join_next().await {
            if let Err(status) = answer.unwrap() {
                let codes = [Code::ResourceExhausted, Code::DeadlineExceeded, Code::Unavailable];
                assert!(codes.contains(&status.code()), "{status}");
            }
        }
    });
}

/// Sends 50 MB of a message of 100 MB, and waits. Whether it was refused.
async fn half_a_message(mut channel: Channel) -> bool {
    use tower::{Service as _, ServiceExt as _};
    let (send, receive) = tokio::sync::mpsc::channel::<Result<Bytes, Status>>(4);
    let part = Bytes::from(vec![0; 1 << 20]);
    let sending = tokio::spawn(async move {
        let prefix = [&[0][..], &100_000_000u32.to_be_bytes()].concat();
        drop(send.send(Ok(prefix.into())).await);
        for _ in 0..50 {
            if send.send(Ok(part.clone())).await.is_err() {
                return;
            }
        }
        std::future::pending::<()>().await;
    });
    let frames = tokio_stream::wrappers::ReceiverStream::new(receive);
    let frames = tokio_stream::StreamExt::map(frames, |data| data.map(hyper::body::Frame::data));
    let body = tonic::body::Body::new(http_body_util::StreamBody::new(frames));
    let request = http::Request::post(PREDICT)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(body)
        .unwrap();
    let answer = channel.ready().await.unwrap().call(request).await;
    sending.abort();
    let status = answer.ok().and_then(|answer| answer.headers().get("grpc-status").cloned());
    status.is_some_and(|status| status == "8")
}

/// A field that has a length.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    prost::encoding::encode_varint(bytes.len() as u64, &mut out);
    out.extend_from_slice(bytes);
    out
}

fn dtype(number: u8) -> Vec<u8> {
    vec![1 << 3, number]
}

fn shape(sizes: &[u64]) -> Vec<u8> {
    let dim = |size: &u64| {
        let mut dim = vec![1 << 3];
        prost::encoding::encode_varint(*size, &mut dim);
        field(2, &dim)
    };
    field(2, &sizes.iter().flat_map(dim).collect::<Vec<u8>>())
}

fn predict(model: &str, alias: &str, tensor: &[u8]) -> Vec<u8> {
    let entry = [field(1, alias.as_bytes()), field(2, tensor)].concat();
    [field(1, &field(1, model.as_bytes())), field(2, &entry)].concat()
}

fn classify(model: &str, input: &[u8]) -> Vec<u8> {
    let spec = [field(1, model.as_bytes()), field(3, b"classify_x_to_y")].concat();
    [field(1, &spec), field(2, input)].concat()
}

#[track_caller]
fn exhausts(server: &Server, path: &'static str, message: Vec<u8>) {
    let status = call(server, path, message).unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
}

fn call(server: &Server, path: &'static str, message: Vec<u8>) -> Result<Bytes, Status> {
    block_on(async { unary(client(server, None).await, path, message).await })
}

async fn client(server: &Server, packing: Option<CompressionEncoding>) -> Grpc<Channel> {
    let address = format!("http://127.0.0.1:{}", server.grpc);
    let channel = Endpoint::from_shared(address).unwrap().connect().await.unwrap();
    let client = Grpc::new(channel).max_decoding_message_size(usize::MAX);
    packing.map_or(client.clone(), |packing| client.send_compressed(packing))
}

async fn unary(
    mut client: Grpc<Channel>,
    path: &'static str,
    message: Vec<u8>,
) -> Result<Bytes, Status> {
    client.ready().await.unwrap();
    let path = http::uri::PathAndQuery::from_static(path);
    let answer = client.unary(Request::new(Bytes::from(message)), path, Raw);
    let answer = tokio::time::timeout(PATIENCE, answer).await.expect("every call is answered");
    answer.map(tonic::Response::into_inner)
}
/// Sends and takes messages as bytes, whatever they are.
#[derive(Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buf: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buf.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buf: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buf.copy_to_bytes(buf.remaining())))
    }
}
