//! The settings of the lifecycle and of its models.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::error::Error;
use crate::policy::Policy;
use crate::versions::VersionPolicy;

/// The settings that hold for all models.
#[derive(Debug, Clone)]
pub struct Options {
    /// The times at which the source is looked at.
    pub poll: Poll,
    /// The time that a version's files must have rested to be taken at the first look.
    pub settle: Duration,
    /// Files, of which one marks a version as complete when it is first looked at.
    pub complete_with: Vec<String>,
    /// The number of models that may be looked at at once.
    pub n_looks_max: usize,
    /// The time that a look may take before it no longer counts against `n_looks_max`.
    pub look_timeout: Duration,
    /// The number of versions that may be loaded at once.
    pub n_load_threads: usize,
    /// The number of versions that may be freed at once.
    pub n_unload_threads: usize,
    /// The number of attempts to load after the first failure.
    pub load_retries_max: u32,
    /// The rule by which failed loads are tried again.
    pub load_retry_rule: RetryRule,
    /// The time to wait between the first failure and the next attempt. The wait doubles each time.
    pub load_retry_first: Duration,
    /// The longest wait between a failure and the next attempt.
    pub load_retry_interval: Duration,
    /// The meaning of a model without any version to callers that wait for it.
    pub missing: Missing,
    /// The rule for the versions that a label may point to.
    pub label_rule: LabelRule,
    /// The condition under which the server is ready.
    pub start_when: StartWhen,
}

/// The times at which the source is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Poll {
    /// After each change of the configuration, and again after each such time.
    Every(Duration),
    /// Only when the configuration changes. All versions are taken as they are.
    Once,
    /// Never: no version is found.
    Never,
}

/// The rule for the versions that a label may point to when the configuration is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LabelRule {
    /// To an available version.
    Available,
    /// To an available version; a new or unchanged label anywhere
    /// (`--allow_version_labels_for_unavailable_models`).
    NewAnywhere,
    /// Anywhere. A label that moves to a version that is not yet available stays on the old one
    /// until then.
    Anywhere,
}

/// The rule by which failed loads are tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryRule {
    /// All, as TensorFlow Serving does.
    All,
    /// Those whose error is not final ([`crate::LoadError::is_final`]).
    Curable,
}

/// The meaning of a model without any version to callers that wait for it to be available.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// It failed.
    Fails,
    /// Its versions may still come, and are waited for, as TensorFlow Serving does.
    Waits,
}

/// The condition under which the server is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartWhen {
    /// Every model is available or has failed, and at least one is available.
    All,
    /// The first model is available.
    Any,
}

/// The settings of one model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelOptions {
    /// The name that requests use.
    pub name: String,
    /// The folder or URL with the version folders.
    pub base_path: String,
    /// The kind of the model; fixed as long as the name is in use.
    pub platform: String,
    /// The rule by which versions are aspired.
    pub versions: VersionPolicy,
    /// The way in which one version replaces another.
    pub policy: Policy,
    /// Names for versions.
    pub labels: BTreeMap<String, i64>,
}

/// Checks what can be checked of a list of models without knowing those that are there.
pub(crate) fn check_list(models: &[ModelOptions]) -> Result<(), Error> {
    let mut names = BTreeSet::new();
    for model in models {
        if model.name.is_empty() {
            return Err(Error::NoName);
        }
        if !names.insert(&model.name) {
            return Err(Error::DuplicateModel(model.name.clone()));
        }
    }
    for model in models {
        if !model.base_path.starts_with('/') && !model.base_path.contains("://") {
            let (model, base_path) = (model.name.clone(), model.base_path.clone());
            return Err(Error::RelativePath { model, base_path });
        }
    }
    Ok(())
}

#[cfg(test)]
impl ModelOptions {
    /// A model with the usual settings, for tests.
    pub(crate) fn for_test(name: &str) -> ModelOptions {
        ModelOptions {
            name: name.to_owned(),
            base_path: format!("/models/{name}"),
            platform: "tensorflow".to_owned(),
            versions: VersionPolicy::Latest(1),
            policy: Policy::AvailabilityPreserving,
            labels: BTreeMap::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(models: &[(&str, &str)], expected: &str) {
        let models: Vec<ModelOptions> = models
            .iter()
            .map(|(name, path)| ModelOptions {
                base_path: (*path).to_owned(),
                ..ModelOptions::for_test(name)
            })
            .collect();
        let found = check_list(&models).map_or_else(|error| error.to_string(), |()| String::new());
        assert_eq!(found, expected);
    }

    #[test]
    fn names_are_unique_and_paths_absolute() {
        check(&[("a", "/m/a"), ("b", "s3://bucket/b")], "");
        check(
            &[("a", "/m/a"), ("a", "/m/b")],
            "Illegal to list model a multiple times in config list",
        );
        check(
            &[("a", "m/a")],
            "Expected model a to have an absolute path or URI; got base_path()=m/a",
        );
        check(&[("", "/m")], "ModelSpec has no name specified.");
    }
}
