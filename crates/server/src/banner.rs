//! What a person sees when the server is up: addresses, models, and a request to paste.

use api::Models;
use lifecycle::Handle;
use session::{DEFAULT_SIGNATURE, Servable};
use tensor::DType;

use crate::config::Config;
use crate::sample;

/// Prints the addresses, the models and a curl line that works.
pub(crate) fn print(config: &Config, models: &Models) {
    say!();
    if let Some(port) = config.rest_port {
        say!("  REST  http://localhost:{port}/v1/models");
    }
    if let Some(port) = config.grpc_port {
        say!("  gRPC  localhost:{port}");
    }
    let available = models.available();
    say!("\n  {:<24} {:>8}  signatures", "model", "version");
    for handle in &available {
        let names: Vec<&str> = handle.signatures.keys().map(String::as_str).collect();
        say!("  {:<24} {:>8}  {}", handle.id().model, handle.version(), names.join(", "));
    }
    if let Some(port) = config.rest_port
        && let Some(line) = curl(port, &available)
    {
        say!("\n  try\n    {line}");
    }
    say!();
}

/// A request to one of the models: numbers rather than strings, which may have to be of a kind that
/// the signature does not tell, and the shortest.
fn curl(port: u16, available: &[Handle<Servable>]) -> Option<String> {
    let request = |handle: &Handle<Servable>| {
        let signature = handle.signatures.get(DEFAULT_SIGNATURE)?;
        let mut inputs = signature.inputs.values();
        let takes_strings = inputs.any(|input| input.spec.dtype == DType::String);
        let body = sample::body(signature)?;
        Some((takes_strings, body.len(), body, handle.id().model.to_string()))
    };
    let (_, _, body, model) = available.iter().filter_map(request).min()?;
    let url = format!("http://localhost:{port}/v1/models/{model}:predict");
    Some(format!("curl -d '{body}' {url}"))
}
