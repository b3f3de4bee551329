//! What a person sees when the server is up: addresses, models, and a request to paste.

use std::net::SocketAddr;

use api::Models;
use lifecycle::{Handle, ModelSnapshot, VersionStatus};
use session::{DEFAULT_SIGNATURE, Servable};
use tensor::DType;

use crate::sample;

/// How much of an error is shown.
const LINE_CHARS_MAX: usize = 100;

/// The addresses that the server listens on.
#[derive(Debug)]
pub(crate) struct Addresses {
    pub(crate) grpc: Option<SocketAddr>,
    pub(crate) rest: Option<SocketAddr>,
    pub(crate) management: Option<String>,
}

/// Prints the addresses, all models with their states, and a curl line that works.
pub(crate) fn print(addresses: &Addresses, models: &Models) {
    say!();
    if let Some(address) = addresses.rest {
        say!("  REST    http://{}/v1/models{}", near(address), elsewhere(address));
    }
    if let Some(address) = addresses.grpc {
        say!("  gRPC    {}{}", near(address), elsewhere(address));
    }
    if let Some(address) = &addresses.management {
        say!("  manage  {address}");
    }
    let available = models.available();
    say!("\n  {:<24} {:>8}  {:<10} signatures", "model", "version", "state");
    for model in models.snapshot().iter().filter(|model| model.is_configured) {
        for row in rows(model, &available) {
            say!("  {:<24} {:>8}  {:<10} {}", model.name, row.version, row.state, row.rest);
        }
    }
    if let Some(address) = addresses.rest
        && let Some(line) = curl(&near(address), &available)
    {
        say!("\n  try\n    {line}");
    }
    say!();
}

/// The address as one calls it on this machine.
fn near(address: SocketAddr) -> String {
    match address.ip().is_unspecified() {
        true => format!("localhost:{}", address.port()),
        false => address.to_string(),
    }
}

fn elsewhere(address: SocketAddr) -> &'static str {
    if address.ip().is_unspecified() { "  (on all addresses)" } else { "" }
}

/// A version of a model, or a model without versions yet.
struct Row {
    version: String,
    state: String,
    /// Its signatures, or why there are none.
    rest: String,
}

fn rows(model: &ModelSnapshot, available: &[Handle<Servable>]) -> Vec<Row> {
    let row = |status: &VersionStatus| {
        let mut handles = available.iter();
        let handle = handles
            .find(|handle| *handle.id().model == *model.name && handle.version() == status.version);
        let rest = match (handle, &status.error) {
            (Some(handle), _) => {
                let names: Vec<&str> = handle.signatures.keys().map(String::as_str).collect();
                names.join(", ")
            }
            (None, Some(error)) => first_line(&error.to_string()),
            (None, None) => String::new(),
        };
        let state = status.state.name().to_lowercase();
        let state = if status.error.is_some() { "failed".to_owned() } else { state };
        Row { version: status.version.to_string(), state, rest }
    };
    if !model.versions.is_empty() {
        return model.versions.iter().map(row).collect();
    }
    let (state, rest) = match &model.problem {
        Some(problem) => ("missing", first_line(&problem.to_string())),
        None => ("waiting", String::new()),
    };
    vec![Row { version: "-".to_owned(), state: state.to_owned(), rest }]
}

/// The beginning of a text that may be long.
fn first_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    match line.char_indices().nth(LINE_CHARS_MAX) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line.to_owned(),
    }
}

/// A request to one of the models: numbers rather than strings, which may have to be of a kind that
/// the signature does not tell, and the shortest.
fn curl(address: &str, available: &[Handle<Servable>]) -> Option<String> {
    let request = |handle: &Handle<Servable>| {
        let signature = handle.signatures.get(DEFAULT_SIGNATURE)?;
        let mut inputs = signature.inputs.values();
        let takes_strings = inputs.any(|input| input.spec.dtype == DType::String);
        let body = sample::body(signature)?;
        Some((takes_strings, body.len(), body, handle.id().model.to_string()))
    };
    let (_, _, body, model) = available.iter().filter_map(request).min()?;
    let url = format!("http://{address}/v1/models/{model}:predict");
    Some(format!("curl -d '{body}' {url}"))
}
