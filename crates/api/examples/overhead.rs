//! Two halves of the benchmark in `tools/bench/overhead.py`: a server that does as little as a gRPC
//! server can, and a client that asks as fast as it is answered.
//!
//! `overhead echo PORT` answers any call with the bytes that `half_plus_two` would answer with.
//! `overhead load PORT CONNECTIONS SECONDS` predicts, and prints how many answers came.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "the number is read by a script")]

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::{Buf as _, BufMut as _, Bytes};
use prost::Message as _;
use proto::serving::model_spec::VersionChoice;
use proto::serving::prediction_service_client::PredictionServiceClient;
use proto::serving::{ModelSpec, PredictRequest, PredictResponse};
use proto::tensorflow::tensor_shape_proto::Dim;
use proto::tensorflow::{TensorProto, TensorShapeProto};
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::{Request, Response, Status};

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match args[..] {
        ["echo", port] => runtime.block_on(echo(port.parse()?)),
        ["load", port, n_connections, seconds] => {
            let seconds = Duration::from_secs_f64(seconds.parse()?);
            let n = runtime.block_on(load(port.parse()?, n_connections.parse()?, seconds))?;
            println!("{n}");
            Ok(())
        }
        _ => Err("overhead echo PORT | overhead load PORT CONNECTIONS SECONDS".into()),
    }
}

async fn echo(port: u16) -> Result<(), Failure> {
    let reply = PredictResponse {
        model_spec: Some(ModelSpec {
            version_choice: Some(VersionChoice::Version(123)),
            signature_name: "serving_default".to_owned(),
            ..model()
        }),
        outputs: [("y".to_owned(), tensor(3.0))].into(),
    };
    let reply = Bytes::from(reply.encode_to_vec());
    tonic::transport::Server::builder()
        .add_service(Echo { reply })
        .serve(([127, 0, 0, 1], port).into())
        .await?;
    Ok(())
}

/// Asks over some connections, one request at a time on each; gives the number of answers.
async fn load(port: u16, n_connections: usize, time: Duration) -> Result<u64, Failure> {
    let n_answers = Arc::new(AtomicU64::new(0));
    let mut clients = Vec::new();
    for _ in 0..n_connections {
        let address = format!("http://127.0.0.1:{port}");
        clients.push(PredictionServiceClient::connect(address).await?);
    }
    let end = Instant::now() + time;
    let asking = clients.into_iter().map(|mut client| {
        let n_answers = Arc::clone(&n_answers);
        tokio::spawn(async move {
            let request = PredictRequest {
                model_spec: Some(model()),
                inputs: [("x".to_owned(), tensor(2.0))].into(),
                ..PredictRequest::default()
            };
            while Instant::now() < end {
                client.predict(request.clone()).await?;
                n_answers.fetch_add(1, Ordering::Relaxed);
            }
            Ok::<(), Status>(())
        })
    });
    for asked in asking.collect::<Vec<_>>() {
        asked.await??;
    }
    Ok(n_answers.load(Ordering::Relaxed))
}

fn model() -> ModelSpec {
    ModelSpec { name: "half_plus_two".to_owned(), ..ModelSpec::default() }
}

fn tensor(value: f32) -> TensorProto {
    let dim = vec![Dim { size: 1, name: String::new() }];
    TensorProto {
        dtype: 1,
        tensor_shape: Some(TensorShapeProto { dim, unknown_rank: false }),
        float_val: vec![value],
        ..TensorProto::default()
    }
}

/// Answers everything with the same bytes.
#[derive(Clone)]
struct Echo {
    reply: Bytes,
}

impl NamedService for Echo {
    const NAME: &'static str = "tensorflow.serving.PredictionService";
}

impl tower::Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future =
        std::pin::Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let reply = self.clone();
        Box::pin(async move { Ok(Grpc::new(Raw).unary(reply, request).await) })
    }
}

impl UnaryService<Bytes> for Echo {
    type Response = Bytes;
    type Future = std::future::Ready<Result<Response<Bytes>, Status>>;

    fn call(&mut self, _: Request<Bytes>) -> Self::Future {
        std::future::ready(Ok(Response::new(self.reply.clone())))
    }
}

/// Bytes as they are.
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
