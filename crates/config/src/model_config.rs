//! The models to serve, as `ModelConfig` messages: read from a file (text proto or JSON), checked,
//! and turned into the settings of the lifecycle.

mod json;
pub mod tenants;

use std::path::Path;

use anyhow::{Context, Result, bail};
use lifecycle::{ModelOptions, Policy, VersionPolicy};
use proto::serving::file_system_storage_path_source_config::ServableVersionPolicy;
use proto::serving::file_system_storage_path_source_config::servable_version_policy::PolicyChoice;
use proto::serving::model_server_config::Config;
use proto::serving::{AspiredVersionPolicy, ModelConfig, ModelServerConfig, ModelType};

use crate::batching::priorities;
use crate::persona::Persona;
use crate::request_log;

/// The only platform there is.
const TENSORFLOW: &str = "tensorflow";

/// The longest config file that is read.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The defaults of values that a model config may leave open.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Under TensorFlow Serving's name, a platform must be named.
    pub persona: Persona,
    /// The policy by which one version replaces another if the model names none.
    pub policy: Policy,
}

/// A mistake in a config file, and where it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {message}")]
pub struct Mistake {
    /// The path of the file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1.
    pub column: usize,
    /// The error at that place.
    pub message: String,
}

/// A model with the usual settings.
pub fn model(name: String, base_path: String) -> ModelConfig {
    let model_platform = TENSORFLOW.to_owned();
    ModelConfig { name, base_path, model_platform, ..ModelConfig::default() }
}

/// The folder that the versions of a model come from.
pub fn folder(config: &ModelConfig) -> &Path {
    Path::new(config.base_path.strip_prefix("file://").unwrap_or(&config.base_path))
}

/// The models that a text from a file lists.
///
/// # Errors
/// If it is wrong: a [`Mistake`] says where.
pub fn read(text: &str, path: &Path) -> Result<Vec<ModelConfig>> {
    models(parse(text, &path.display().to_string())?)
}

/// Reads a file that a person wrote.
pub fn read_text(path: &Path) -> Result<String> {
    let cannot = || format!("cannot read {}", path.display());
    let n_bytes = std::fs::metadata(path).with_context(cannot)?.len();
    if n_bytes > FILE_BYTES_MAX {
        bail!("{}: {n_bytes} bytes, at most {FILE_BYTES_MAX} are taken", path.display());
    }
    std::fs::read_to_string(path).with_context(cannot)
}

/// Reads a text from `file`: JSON if it begins with a brace, else text proto.
pub fn parse(text: &str, file: &str) -> Result<ModelServerConfig, Mistake> {
    let mistake = |line, column, message| Mistake { file: file.to_owned(), line, column, message };
    if text.trim_start().starts_with('{') {
        return json::parse(text).map_err(|at| mistake(at.line, at.column, at.message));
    }
    proto::text::parse(text).map_err(|error| mistake(error.line, error.column, error.message))
}

/// The models of a config; none if it is empty.
pub fn models(config: ModelServerConfig) -> Result<Vec<ModelConfig>> {
    Ok(listed(config)?.unwrap_or_default())
}

/// The models that a config lists; `None` if it has no list, not even an empty one. As in
/// TensorFlow Serving's `server_core.cc`, such a config changes nothing.
pub fn listed(config: ModelServerConfig) -> Result<Option<Vec<ModelConfig>>> {
    match config.config {
        None => Ok(None),
        Some(Config::ModelConfigList(list)) => Ok(Some(list.config)),
        Some(Config::CustomModelConfig(_)) => bail!("custom_model_config is not supported"),
    }
}

/// Returns the options of a model for the lifecycle. The rules are those of TensorFlow Serving's
/// `server_core.cc`.
pub fn options(config: &ModelConfig, rules: Rules) -> Result<ModelOptions> {
    check_platform(config, rules.persona)?;
    check_scheme(config)?;
    request_log::check(config)?;
    priorities::read(config)?;
    let policy = match config.aspired_version_policy() {
        AspiredVersionPolicy::Unspecified => rules.policy,
        AspiredVersionPolicy::AvailabilityPreserving => Policy::AvailabilityPreserving,
        AspiredVersionPolicy::ResourcePreserving => Policy::ResourcePreserving,
    };
    Ok(ModelOptions {
        name: config.name.clone(),
        base_path: config.base_path.clone(),
        platform: TENSORFLOW.to_owned(),
        versions: versions(config.model_version_policy.as_ref()),
        policy,
        labels: config.version_labels.clone(),
    })
}

fn check_platform(config: &ModelConfig, persona: Persona) -> Result<()> {
    let platform = config.model_platform.as_str();
    match (platform, config.model_type()) {
        (TENSORFLOW, ModelType::Unspecified) | ("", ModelType::Tensorflow) => Ok(()),
        ("", ModelType::Unspecified) if persona == Persona::Tensord => Ok(()),
        ("", ModelType::Unspecified) => bail!(
            "Illegal setting neither ModelServerConfig::model_type (deprecated) nor \
             ModelServerConfig::model_platform."
        ),
        ("", ModelType::Other) => {
            bail!("Model {} requests unsupported platform OTHER", config.name)
        }
        (_, ModelType::Unspecified) => {
            bail!("Model {} requests unsupported platform {platform}", config.name)
        }
        (_, ModelType::Tensorflow | ModelType::Other) => bail!(
            "Illegal setting both ModelServerConfig::model_type (deprecated) and \
             ModelServerConfig::model_platform."
        ),
    }
}

/// A path that can never be read is better refused now than looked at for ever.
fn check_scheme(config: &ModelConfig) -> Result<()> {
    let Some((scheme, _)) = config.base_path.split_once("://") else { return Ok(()) };
    if scheme == "file" {
        return Ok(());
    }
    bail!(
        "Model {}: paths that begin with {scheme}:// are not supported; copy the model to a \
         local folder (or mount it) and give that path",
        config.name
    )
}

fn versions(policy: Option<&ServableVersionPolicy>) -> VersionPolicy {
    match policy.and_then(|policy| policy.policy_choice.as_ref()) {
        None => VersionPolicy::Latest(1),
        Some(PolicyChoice::Latest(latest)) => VersionPolicy::Latest(latest.num_versions.max(1)),
        Some(PolicyChoice::All(_)) => VersionPolicy::All,
        Some(PolicyChoice::Specific(specific)) => {
            VersionPolicy::Specific(specific.versions.clone())
        }
    }
}

#[cfg(test)]
mod tests;
