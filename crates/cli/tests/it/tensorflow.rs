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

use proto::serving::{ModelSpec, PredictRequest};
use tensor::{Layout, Tensor};

use crate::support::{Server, block_on, python, root, until};

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
    let answer = block_on(async { server.prediction_client().await.predict(request).await });
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

/// Returns whether a process is there and has not ended.
fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// Adds a model of a name and a path that can never be served. Gives the answer once it is sure
/// that its load was not tried again.
#[track_caller]
fn refused_at_once(server: &Server, (name, path): (&str, &str), more: &str, status: u16) -> String {
    let before = loads(server, path);
    let body = format!("{{\"base_path\": \"{path}\"{more}}}");
    let (found, answer) = server.manage("POST", &format!("/v1/models/{name}"), &body);
    assert_eq!(found, status, "{answer}");
    let states = server.rest("GET", &format!("/v1/models/{name}"), "").1;
    assert!(states.contains("\"END\""), "{states}");
    assert_eq!(loads(server, path), before + 1, "{name}");
    answer
}

/// The loads of a model's versions that the server counts.
fn loads(server: &Server, path: &str) -> u64 {
    let page = server.rest("GET", "/metrics", "").1;
    let is_it = |line: &&str| line.contains("load_attempt_count") && line.contains(path);
    let counts = page.lines().filter(is_it).map(|line| line.rsplit(' ').next().unwrap());
    counts.map(|count| count.parse::<u64>().unwrap()).sum()
}

/// The processor time that a process has used, in ticks.
fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let rest = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    rest.split(' ').skip(11).take(2).map(|n| n.parse::<u64>().unwrap_or(0)).sum()
}
