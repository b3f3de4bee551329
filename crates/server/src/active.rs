//! `Active`: the configs of the models that are served, for those who load and log.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use proto::serving::ModelConfig;
use tokio::sync::Notify;

/// The configs that are applied, by the names of their models. Looking one up never waits.
#[derive(Default)]
pub(crate) struct Active {
    models: ArcSwap<BTreeMap<String, Arc<ModelConfig>>>,
    /// The listener that is told when they were replaced.
    told: Mutex<Vec<Box<dyn Fn() + Send + Sync>>>,
    /// Told when devices have changed, so that there may be room for more.
    room: Notify,
}

impl Active {
    /// The config of a model; a plain one if it has none any more.
    pub(crate) fn get(&self, model: &str) -> Arc<ModelConfig> {
        self.models.load().get(model).cloned().unwrap_or_default()
    }

    /// All configs, by the names of their models.
    pub(crate) fn all(&self) -> Arc<BTreeMap<String, Arc<ModelConfig>>> {
        self.models.load_full()
    }

    /// Replaces all configs, and gives those that were there.
    pub(crate) fn replace(&self, models: &[ModelConfig]) -> Before {
        let by_name = |model: &ModelConfig| (model.name.clone(), Arc::new(model.clone()));
        let before = self.models.swap(Arc::new(models.iter().map(by_name).collect()));
        self.tell();
        Before(before)
    }

    /// Takes a replacement back.
    pub(crate) fn restore(&self, Before(models): Before) {
        self.models.store(models);
        self.tell();
    }

    /// Has `tell` called whenever configs were replaced.
    pub(crate) fn tell_of_changes(&self, tell: impl Fn() + Send + Sync + 'static) {
        self.told.lock().push(Box::new(tell));
    }

    fn tell(&self) {
        self.told.lock().iter().for_each(|tell| tell());
    }

    /// Says that there may be room for models that were refused.
    pub(crate) fn make_room(&self) {
        self.room.notify_one();
    }

    /// Waits until somebody says so.
    pub(crate) async fn room(&self) {
        self.room.notified().await;
    }
}

/// Configs that were replaced.
#[must_use]
pub(crate) struct Before(Arc<BTreeMap<String, Arc<ModelConfig>>>);
