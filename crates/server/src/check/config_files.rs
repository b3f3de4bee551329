//! Checks of flags, of the files that they name, and of the folders of models.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use config::devices::model_rule;
use config::engines::{self, Choices};
use config::model_config::{self, tenants};
use config::{Config, Flags, Persona, channel_arguments, misplaced_remedy};
use lifecycle::{Child, ModelOptions, Source as _, VersionPolicy};
use proto::serving::ModelConfig;

use super::Finding;
use crate::commands::serve::Files;
use crate::source::Models;

/// Checks flags and what they name. The first finding is that of the flags themselves: if they are
/// wrong, there is no other.
pub fn config_findings(persona: Persona, flags: &Flags) -> Vec<Finding> {
    let config = match Config::new(persona, flags) {
        Ok(config) => config,
        Err(error) => return vec![Finding::problem("flags", format!("{error:#}"))],
    };
    let mut findings = vec![Finding::ok("flags", "right")];
    let mut note = |about: &str, checked: Result<()>| {
        findings.push(match checked {
            Ok(()) => Finding::ok(about, "right"),
            Err(error) => Finding::problem(about, format!("{error:#}")),
        });
    };
    note("TLS, API keys and monitoring", Files::read(flags).map(drop));
    note("gRPC settings", channel_arguments::parse(&flags.grpc_channel_arguments).map(drop));
    let choices = Choices::parse(&flags.engine);
    let workers = choices.and_then(|choices| engines::worker_options(flags, &choices, &config));
    note("engines", workers.map(drop));
    note("tenants", tenants::check(&config.models, &BTreeMap::new()));
    if config.models.is_empty() {
        findings.push(Finding::warning("models", "there are none"));
    }
    for model in &config.models {
        findings.extend(check_model(&config, model));
    }
    findings
}

/// Checks the settings of a model, its folder and its versions.
fn check_model(config: &Config, model: &ModelConfig) -> Vec<Finding> {
    let about = format!("model {}", model.name);
    let options = model_config::options(model, config.control.rules);
    let options = match options.and_then(|options| model_rule(model).map(|_| options)) {
        Ok(options) => options,
        Err(error) => return vec![Finding::problem(about, format!("{error:#}"))],
    };
    let mut findings = unknown_devices(config, model, &about);
    let folders = Models::new(config);
    let versions = match versions(&folders, &options) {
        Ok(versions) => versions,
        Err(finding) => return vec![Finding { about, ..finding }],
    };
    for version in wanted(&options.versions, &versions) {
        // A folder may be called 00000123.
        let name = versions.get(&version).cloned().unwrap_or_else(|| version.to_string());
        let path = format!("{}/{name}", options.base_path.trim_end_matches('/'));
        if let Err(error) = folders.check(&path) {
            let file = Path::new(&path).join("saved_model.pb");
            let is_empty = file.metadata().is_ok_and(|metadata| metadata.len() == 0);
            let text = match is_empty {
                true => format!("version {version}: saved_model.pb is empty"),
                false => format!("version {version}: {error}"),
            };
            findings.push(Finding::problem(&*about, text).mended_by("export or copy it anew"));
        }
    }
    for (label, version) in &options.labels {
        if !versions.contains_key(version) {
            let text = format!("label {label} points to version {version}, which is not there");
            let there = format!("there are {}", listed(&versions));
            findings.push(Finding::problem(&*about, text).mended_by(there));
        }
    }
    if findings.is_empty() {
        findings.push(Finding::ok(about, format!("versions {}", listed(&versions))));
    }
    findings
}

/// The versions in the folder of a model with the names of their folders, or what is wrong with it.
fn versions(folders: &Models, options: &ModelOptions) -> Result<BTreeMap<i64, String>, Finding> {
    let path = &options.base_path;
    let children = folders.list(path).map_err(|error| {
        let text = format!("cannot read the folder {path}: {}", error.status.message);
        Finding::problem("", text).mended_by("give a folder that is there and may be read")
    })?;
    let version = |child: Child| {
        let version = child.name.parse().ok().filter(|version| *version >= 0)?;
        child.is_folder.then_some((version, child.name))
    };
    let versions: BTreeMap<i64, String> = children.into_iter().filter_map(version).collect();
    if versions.is_empty() {
        let remedy = misplaced_remedy(Path::new(path));
        return Err(Finding::problem("", format!("{path} has no versions")).mended_by(remedy));
    }
    Ok(versions)
}

/// The versions that are to be served.
fn wanted(policy: &VersionPolicy, versions: &BTreeMap<i64, String>) -> Vec<i64> {
    match policy {
        VersionPolicy::All => versions.keys().copied().collect(),
        VersionPolicy::Latest(n) => {
            let n = usize::try_from(*n).unwrap_or(usize::MAX);
            versions.keys().rev().take(n).copied().collect()
        }
        VersionPolicy::Specific(specific) => specific.clone(),
    }
}

/// Warnings of the devices that a model names and that are not there, as far as that is plain:
/// settings may divide a GPU into several.
fn unknown_devices(config: &Config, model: &ModelConfig, about: &str) -> Vec<Finding> {
    let named = model.memory.as_ref().map_or(&[][..], |memory| &memory.devices);
    if named.is_empty() || config.devices.rules.is_some() {
        return Vec::new();
    }
    let n_simulated = config.devices.simulated_gpus.len();
    let n_real = || tensorflow::Nvml::open().map_or(0, |nvml| nvml.snapshot().len());
    let n_gpus = if n_simulated > 0 { n_simulated } else { n_real() };
    let gpus = (0..n_gpus).map(|number| format!("gpu:{number}"));
    let known: Vec<String> = std::iter::once("cpu:0".to_owned()).chain(gpus).collect();
    let warn = |name: &String| {
        let text = format!("it may be on {name}, but there is no such device");
        Finding::warning(about, text).mended_by(format!("there are {}", known.join(", ")))
    };
    named.iter().filter(|name| !known.contains(name)).map(warn).collect()
}

fn listed(versions: &BTreeMap<i64, String>) -> String {
    let shown: Vec<String> = versions.keys().map(ToString::to_string).collect();
    shown.join(", ")
}
