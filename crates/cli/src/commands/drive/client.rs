//! A client of a running server, over gRPC or REST, with one request that it asks again and again.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use prost::Message as _;
use proto::serving::prediction_service_client::PredictionServiceClient;
use proto::serving::{GetModelMetadataRequest, ModelSpec, PredictRequest, SignatureDefMap};
use proto::tensorflow::{SignatureDef, TensorInfo};
use serde_json::{Value, json};
use session::Endpoint;
use tensor::{DType, Dim, Layout, Spec, Tensor};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tonic::transport::Channel;

use super::Drive;
use crate::commands::inputs;

/// The longest head of an answer.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// The largest answer.
const BODY_BYTES_MAX: usize = 1 << 30;

/// A client with its request.
pub(super) enum Client {
    Grpc {
        client: PredictionServiceClient<Channel>,
        request: Box<PredictRequest>,
        timeout: Option<Duration>,
    },
    Rest {
        target: String,
        request: std::sync::Arc<str>,
        stream: Mutex<Option<BufReader<TcpStream>>>,
    },
}

impl Client {
    /// Connects, and makes a request of the model's signature.
    pub(super) async fn connect(drive: &Drive) -> Result<Self> {
        if drive.is_rest { rest(drive).await } else { grpc(drive).await }
    }

    /// The same client on a connection of its own; over gRPC requests share one.
    pub(super) async fn another(&self) -> Result<Self> {
        Ok(match self {
            Self::Grpc { client, request, timeout } => {
                Self::Grpc { client: client.clone(), request: request.clone(), timeout: *timeout }
            }
            Self::Rest { target, request, .. } => {
                let stream = TcpStream::connect(target).await?;
                stream.set_nodelay(true)?;
                let stream = Mutex::new(Some(BufReader::new(stream)));
                Self::Rest { target: target.clone(), request: request.clone(), stream }
            }
        })
    }

    /// Asks once, beside others: over REST on a connection of its own.
    pub(super) async fn ask_apart(&self) -> Result<(), String> {
        match self {
            Self::Grpc { .. } => self.ask().await,
            Self::Rest { .. } => {
                let apart = self.another().await.map_err(|error| format!("{error:#}"))?;
                apart.ask().await
            }
        }
    }

    /// Asks once.
    pub(super) async fn ask(&self) -> Result<(), String> {
        match self {
            Self::Grpc { client, request, timeout } => {
                let mut request = tonic::Request::new((**request).clone());
                if let Some(timeout) = timeout {
                    request.set_timeout(*timeout);
                }
                let answer = client.clone().predict(request).await;
                answer
                    .map(drop)
                    .map_err(|status| format!("{:?}: {}", status.code(), status.message()))
            }
            Self::Rest { target, request, stream } => {
                let mut stream = stream.lock().await;
                let answer = exchange(target, request, &mut stream).await;
                let (code, body) = answer.map_err(|error| {
                    *stream = None;
                    format!("{error:#}")
                })?;
                if code == 200 { Ok(()) } else { Err(format!("{code}: {}", short(&body))) }
            }
        }
    }
}

async fn grpc(drive: &Drive) -> Result<Client> {
    let mut client = connect(&drive.target).await?;
    let spec = ModelSpec { name: drive.model.clone(), ..ModelSpec::default() };
    let signatures = signatures(&mut client, &spec).await?;
    let values = values(drive, &signatures)?;
    let proto = |(alias, tensor): (&String, &Tensor)| {
        Ok::<_, tensor::Error>((alias.clone(), tensor.to_proto(Layout::Content)?))
    };
    let request = PredictRequest {
        model_spec: Some(ModelSpec { signature_name: drive.signature.clone(), ..spec }),
        inputs: values.iter().map(proto).collect::<Result<_, _>>()?,
        ..PredictRequest::default()
    };
    Ok(Client::Grpc { client, request: Box::new(request), timeout: drive.timeout })
}

/// Connects to a server over gRPC.
pub(in crate::commands) async fn connect(target: &str) -> Result<PredictionServiceClient<Channel>> {
    let channel = tonic::transport::Endpoint::from_shared(format!("http://{target}"))?;
    let channel = channel.tcp_nodelay(true).connect().await;
    let channel = channel.with_context(|| format!("cannot reach {target}"))?;
    let most = usize::MAX;
    let client = PredictionServiceClient::new(channel);
    Ok(client.max_decoding_message_size(most).max_encoding_message_size(most))
}

/// The signatures of a model, as the server tells them.
pub(in crate::commands) async fn signatures(
    client: &mut PredictionServiceClient<Channel>,
    spec: &ModelSpec,
) -> Result<BTreeMap<String, SignatureDef>> {
    let ask = GetModelMetadataRequest {
        model_spec: Some(spec.clone()),
        metadata_field: vec!["signature_def".to_owned()],
    };
    let answer = client.get_model_metadata(ask).await;
    let answer = answer.map_err(|status| anyhow!("{:?}: {}", status.code(), status.message()))?;
    let metadata = answer.into_inner().metadata;
    let any = metadata.get("signature_def").context("the server tells no signatures")?;
    Ok(SignatureDefMap::decode(&*any.value)?.signature_def)
}

async fn rest(drive: &Drive) -> Result<Client> {
    let Drive { target, model, .. } = drive;
    let get = format!("GET /v1/models/{model}/metadata HTTP/1.1\r\nHost: {target}\r\n\r\n");
    let mut stream = None;
    let (code, body) = exchange(target, &get, &mut stream).await?;
    if code != 200 {
        bail!("{code}: {}", short(&body));
    }
    let page: Value = serde_json::from_slice(&body)?;
    let map = page["metadata"]["signature_def"].to_string();
    let signatures: SignatureDefMap =
        proto::json::parse(&map).map_err(|error| anyhow!("{error}"))?;
    let values = values(drive, &signatures.signature_def)?;
    let mut inputs = serde_json::Map::new();
    for (alias, tensor) in values {
        inputs.insert(alias, nested(&tensor)?);
    }
    let body = json!({"signature_name": drive.signature, "inputs": inputs}).to_string();
    let head = format!("POST /v1/models/{model}:predict HTTP/1.1\r\nHost: {target}\r\n");
    let request = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
    Ok(Client::Rest { target: target.clone(), request: request.into(), stream: Mutex::new(stream) })
}

/// The inputs: those of the archive, the others made up.
fn values(
    drive: &Drive,
    signatures: &BTreeMap<String, SignatureDef>,
) -> Result<BTreeMap<String, Tensor>> {
    let known = || signatures.keys().cloned().collect::<Vec<_>>().join(", ");
    let signature = signatures
        .get(&drive.signature)
        .with_context(|| format!("no signature {}; there are {}", drive.signature, known()))?;
    let mut given = match &drive.inputs {
        None => BTreeMap::new(),
        Some(path) => crate::npz::read(path)?.into_iter().collect(),
    };
    let mut values = BTreeMap::new();
    for (alias, input) in &signature.inputs {
        let value = match given.remove(alias) {
            Some(value) => value,
            None => inputs::input(&endpoint(input)?, drive.batch)?,
        };
        values.insert(alias.clone(), value);
    }
    Ok(values)
}

/// An input, as a server tells it.
pub(in crate::commands) fn endpoint(input: &TensorInfo) -> Result<Endpoint> {
    let dtype = DType::from_number(input.dtype).context("an input of an unknown dtype")?;
    let dims = input.tensor_shape.as_ref().and_then(tensor::dims_from_proto);
    let dims = dims.context("an input without a shape: give --inputs")?;
    let dim = |dim: Option<i64>| dim.map_or(Dim::Unknown, Dim::Known);
    Ok(Endpoint::new("", Spec::new(dtype, dims.into_iter().map(dim))))
}

/// A tensor as JSON lists.
fn nested(tensor: &Tensor) -> Result<Value> {
    let elements: Vec<Value> = match tensor.dtype() {
        DType::F32 => tensor.as_slice::<f32>().iter().map(|x| json!(x)).collect(),
        DType::F64 => tensor.as_slice::<f64>().iter().map(|x| json!(x)).collect(),
        DType::I32 => tensor.as_slice::<i32>().iter().map(|x| json!(x)).collect(),
        DType::I64 => tensor.as_slice::<i64>().iter().map(|x| json!(x)).collect(),
        DType::U8 => tensor.as_slice::<u8>().iter().map(|x| json!(x)).collect(),
        DType::String => {
            let text = |bytes: &[u8]| json!(String::from_utf8_lossy(bytes));
            tensor.strings().iter().map(text).collect()
        }
        dtype => bail!("inputs of dtype {dtype} have no JSON here: use gRPC"),
    };
    let mut level = elements;
    for size in tensor.shape().iter().rev() {
        level = level.chunks((*size).max(1)).map(|part| Value::Array(part.to_vec())).collect();
    }
    level.into_iter().next().context("an input without elements")
}

/// Sends a request over a connection that is kept, and reads the answer.
async fn exchange(
    target: &str,
    request: &str,
    kept: &mut Option<BufReader<TcpStream>>,
) -> Result<(u16, Vec<u8>)> {
    if kept.is_none() {
        let stream = TcpStream::connect(target).await;
        let stream = stream.with_context(|| format!("cannot reach {target}"))?;
        stream.set_nodelay(true)?;
        *kept = Some(BufReader::new(stream));
    }
    let stream = kept.as_mut().context("there is a connection")?;
    stream.write_all(request.as_bytes()).await?;
    let (mut line, mut n_head) = (String::new(), 0);
    stream.read_line(&mut line).await?;
    let code = line.split(' ').nth(1).and_then(|code| code.parse().ok());
    let code: u16 = code.context("no HTTP answer")?;
    let (mut length, mut closes) = (0usize, false);
    loop {
        line.clear();
        n_head += stream.read_line(&mut line).await?;
        if n_head > HEAD_BYTES_MAX {
            bail!("a head of more than {HEAD_BYTES_MAX} bytes");
        }
        let text = line.trim_end().to_ascii_lowercase();
        if text.is_empty() {
            break;
        }
        if let Some(value) = text.strip_prefix("content-length:") {
            length = value.trim().parse()?;
        }
        closes |= text == "connection: close";
    }
    if length > BODY_BYTES_MAX {
        bail!("an answer of {length} bytes");
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    if closes {
        *kept = None;
    }
    Ok((code, body))
}

/// The beginning of a text.
fn short(body: &[u8]) -> String {
    String::from_utf8_lossy(&body[..body.len().min(200)]).trim().to_owned()
}
