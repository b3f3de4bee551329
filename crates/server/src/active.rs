//! `Active`: the configs of the models that are served, for those who load and log.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use proto::serving::ModelConfig;

/// The configs that are applied, by the names of their models. Looking one up never waits.
#[derive(Debug, Default)]
pub(crate) struct Active {
    models: ArcSwap<BTreeMap<String, Arc<ModelConfig>>>,
}

impl Active {
    /// The config of a model; a plain one if it has none any more.
    pub(crate) fn get(&self, model: &str) -> Arc<ModelConfig> {
        self.models.load().get(model).cloned().unwrap_or_default()
    }

    /// Replaces all configs, and gives those that were there.
    pub(crate) fn replace(&self, models: &[ModelConfig]) -> Before {
        let by_name = |model: &ModelConfig| (model.name.clone(), Arc::new(model.clone()));
        Before(self.models.swap(Arc::new(models.iter().map(by_name).collect())))
    }

    /// Takes a replacement back.
    pub(crate) fn restore(&self, Before(models): Before) {
        self.models.store(models);
    }
}

/// Configs that were replaced.
#[must_use]
pub(crate) struct Before(Arc<BTreeMap<String, Arc<ModelConfig>>>);
