//! The model config file: a `ModelServerConfig` as text proto or JSON.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};
use lifecycle::{ModelOptions, VersionPolicy};
use proto::serving::file_system_storage_path_source_config::ServableVersionPolicy;
use proto::serving::file_system_storage_path_source_config::servable_version_policy::PolicyChoice;
use proto::serving::model_server_config::Config;
use proto::serving::{ModelConfigList, ModelServerConfig};
use serde_json::Value;

use crate::config::model;

/// Reads a model config file.
pub(crate) fn read(path: &Path) -> Result<Vec<ModelOptions>> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the model config file {}", path.display()))?;
    let config = parse(&text).with_context(|| format!("model config file {}", path.display()))?;
    match &config.config {
        None => Ok(Vec::new()),
        Some(Config::ModelConfigList(list)) => models(list),
        Some(Config::CustomModelConfig(_)) => bail!("custom_model_config is not supported"),
    }
}

/// Reads a config from text: JSON if it begins with a brace, else text proto.
fn parse(text: &str) -> Result<ModelServerConfig> {
    if !text.trim_start().starts_with('{') {
        return proto::text::parse(text).map_err(|error| anyhow!("{error}"));
    }
    let mut json: Value = serde_json::from_str(text)?;
    // Written as a plain list, as people do, or as the message that it is.
    if let Some(list) = json.get_mut("model_config_list").filter(|list| list.is_array()) {
        *list = serde_json::json!({"config": list.take()});
    }
    proto::json::parse(&json.to_string()).map_err(|error| anyhow!("{error}"))
}

/// The models of a list.
pub(crate) fn models(list: &ModelConfigList) -> Result<Vec<ModelOptions>> {
    let mut models = Vec::with_capacity(list.config.len());
    for config in &list.config {
        let platform = &config.model_platform;
        ensure!(
            platform.is_empty() || platform == "tensorflow",
            "Model {} requests unsupported platform {platform}",
            config.name
        );
        let mut options = model(config.name.clone(), config.base_path.clone());
        options.versions = versions(config.model_version_policy.as_ref());
        options.labels = config.version_labels.clone();
        models.push(options);
    }
    Ok(models)
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
