//! The file of `--ssl_config_file`: an `SSLConfig` with keys and certificates as PEM text.

use std::path::Path;

use anyhow::{Context as _, Result, anyhow, ensure};
use api::Pem;
use proto::serving::SslConfig;

/// The most bytes of the file.
const BYTES_MAX: u64 = 4 << 20;

/// The text of the file.
///
/// # Errors
/// If it cannot be read, or is too large.
pub fn read(path: &Path) -> Result<String> {
    let metadata = std::fs::metadata(path)
        .with_context(|| format!("cannot read --ssl_config_file {}", path.display()))?;
    ensure!(
        metadata.len() <= BYTES_MAX,
        "--ssl_config_file {} is larger than {BYTES_MAX} bytes",
        path.display()
    );
    std::fs::read_to_string(path)
        .with_context(|| format!("cannot read --ssl_config_file {}", path.display()))
}

/// The keys that a text from a file has.
///
/// # Errors
/// If it makes no sense, or clients are to be verified with nothing.
pub fn pem(text: &str, path: &Path) -> Result<Pem> {
    let config: SslConfig =
        proto::text::parse(text).map_err(|error| wrong(path, &error.to_string()))?;
    let texts = [
        ("server_key", &config.server_key),
        ("server_cert", &config.server_cert),
        ("custom_ca", &config.custom_ca),
    ];
    for (name, text) in texts {
        check_is_content(name, text).map_err(|error| wrong(path, &error.to_string()))?;
    }
    if config.client_verify && config.custom_ca.is_empty() {
        return Err(wrong(path, "client_verify needs a custom_ca to verify clients with"));
    }
    Ok(Pem {
        key: config.server_key,
        certificates: config.server_cert,
        client_authorities: config.client_verify.then_some(config.custom_ca),
    })
}

/// Fails if a field has the path of a PEM file in place of its content.
fn check_is_content(name: &str, text: &str) -> Result<()> {
    let is_path = !text.trim().is_empty() && !text.contains("-----BEGIN");
    ensure!(
        !is_path || text.contains('\n'),
        "{name} is {text:?}, but the content of that file belongs here: the lines from \
         -----BEGIN to -----END, with \\n between them"
    );
    Ok(())
}

/// Says that a file is no good.
pub fn wrong(path: &Path, why: &str) -> anyhow::Error {
    anyhow!("Invalid protobuf file: '{}': {why}", path.display())
}
