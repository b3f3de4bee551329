//! What a person sees when the server is up: addresses, models, and a request to paste.

use api::Models;
use lifecycle::Handle;
use session::{DEFAULT_SIGNATURE, Servable};

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
        && let Some(line) = available.iter().find_map(|handle| curl(port, handle))
    {
        say!("\n  try\n    {line}");
    }
    say!();
}

fn curl(port: u16, handle: &Handle<Servable>) -> Option<String> {
    let signature = handle.signatures.get(DEFAULT_SIGNATURE)?;
    let body = sample::body(signature)?;
    let url = format!("http://localhost:{port}/v1/models/{}:predict", handle.id().model);
    Some(format!("curl -d '{body}' {url}"))
}
