//! Models on the user's TensorFlow, in worker processes.

mod answers;
mod config;
mod confined;
mod gpus;
mod life;
mod memory;
mod serving;
mod turns;
mod unlike;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use proto::serving::prediction_service_client::PredictionServiceClient;
use proto::serving::{ModelSpec, PredictRequest};
use tensor::{Layout, Tensor};

use crate::support::{Server, python, root};

/// How long anything may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(120);

/// The folder of models that need TensorFlow.
fn fallback() -> PathBuf {
    root().join("testdata/fallback")
}

/// A program that knows where the project's TensorFlow is.
pub(crate) fn with_tensorflow(mut command: Command) -> Command {
    let python = python();
    let python = Path::new(python.get_program());
    let prefix = python.parent().and_then(Path::parent).expect("a virtual environment");
    command.env("TENSORD_TENSORFLOW", prefix).env("CUDA_VISIBLE_DEVICES", "");
    command
}

/// Asks over gRPC; gives the outputs, or the code and the text.
pub(crate) fn predict(
    server: &Server,
    spec: ModelSpec,
    inputs: &[(&str, Tensor)],
) -> Result<std::collections::BTreeMap<String, Tensor>, (tonic::Code, String)> {
    let proto = |tensor: &Tensor| tensor.to_proto(Layout::Values).unwrap();
    let inputs = inputs.iter().map(|(alias, tensor)| ((*alias).to_owned(), proto(tensor)));
    let request = PredictRequest {
        model_spec: Some(spec),
        inputs: inputs.collect(),
        ..PredictRequest::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let address = format!("http://127.0.0.1:{}", server.grpc);
    let answer = runtime.block_on(async {
        let client = PredictionServiceClient::connect(address).await.unwrap();
        client.max_decoding_message_size(1 << 30).predict(request).await
    });
    let answer = answer.map_err(|status| (status.code(), status.message().to_owned()))?;
    let tensor = |proto| Tensor::from_proto(proto, 1 << 30).unwrap();
    let outputs = answer.into_inner().outputs;
    Ok(outputs.iter().map(|(alias, proto)| (alias.clone(), tensor(proto))).collect())
}

/// A signature of a model.
pub(crate) fn spec(model: &str, signature: &str) -> ModelSpec {
    ModelSpec {
        name: model.to_owned(),
        signature_name: signature.to_owned(),
        ..ModelSpec::default()
    }
}

/// The workers of a server: its children.
pub(crate) fn workers(server: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{server}/task")).into_iter().flatten().flatten();
    let children = tasks.flat_map(|task| {
        let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        children.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<u32>>()
    });
    children.filter(|pid| is_alive(*pid)).collect()
}

/// Whether a process is there and has not ended.
fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// The processor time that a process has used, in ticks.
fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let rest = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    rest.split(' ').skip(11).take(2).map(|n| n.parse::<u64>().unwrap_or(0)).sum()
}

/// Looks until something is so, or patience ends.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "never saw that {what}");
        std::thread::yield_now();
    }
}
