//! The models that are to be served, as far as placement has to know them.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use device::Amount;

/// The memory that a model may hold, and where.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// The most it may hold on each device.
    pub limit: Option<Amount>,
    /// The part of that which is set aside at load, on each device; never without a limit.
    pub reservation: Option<Amount>,
    /// The logical devices it may be on; any if there is none.
    pub devices: Vec<String>,
    /// The number of devices that it is to be on.
    pub replicas: Replicas,
    /// Models with a higher priority are placed first, and never yield to others.
    pub priority: i32,
}

impl Rule {
    /// The rule of a model of which nothing is said.
    pub fn none() -> Self {
        Self {
            limit: None,
            reservation: None,
            devices: Vec::new(),
            replicas: Replicas::Number(1),
            priority: 0,
        }
    }

    /// Returns whether all that the model may hold is set aside, so that it does not grow.
    pub fn is_fixed(&self) -> bool {
        self.reservation.is_some() && self.reservation == self.limit
    }
}

/// The number of devices that a model is to be on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replicas {
    /// On this many, or as many of them as possible.
    Number(usize),
    /// On every device it may be on and fits.
    All,
}

/// A model that is to be served.
#[derive(Debug, Clone, PartialEq)]
pub struct ServedModel {
    /// Its memory.
    pub rule: Rule,
    /// The setting that says what it may hold.
    pub limit_setting: &'static str,
    /// The numbers of the external GPUs that its own TensorFlow options list; empty for all.
    pub visible_gpus: Vec<String>,
    /// `true` if the model has TensorFlow options of its own.
    pub has_own_options: bool,
}

impl ServedModel {
    /// A model of which nothing is said.
    pub fn plain() -> Self {
        Self {
            rule: Rule::none(),
            limit_setting: "",
            visible_gpus: Vec::new(),
            has_own_options: false,
        }
    }

    /// Returns whether TensorFlow has a worker process for this model alone: in one that models
    /// share, nobody could tell what this one took of its reservation.
    pub fn has_own_worker(&self) -> bool {
        self.has_own_options || self.rule.limit.is_some()
    }
}

/// All models that are to be served, by name. Looking one up never waits.
#[derive(Debug, Default)]
pub struct Models(ArcSwap<BTreeMap<String, Arc<ServedModel>>>);

impl Models {
    /// Replaces all models.
    pub fn replace(&self, models: impl IntoIterator<Item = (String, ServedModel)>) {
        let models = models.into_iter().map(|(name, model)| (name, Arc::new(model)));
        self.0.store(Arc::new(models.collect()));
    }

    /// The model of this name; a plain one if it is to be served no longer.
    pub fn get(&self, name: &str) -> Arc<ServedModel> {
        let known = self.0.load().get(name).cloned();
        known.unwrap_or_else(|| Arc::new(ServedModel::plain()))
    }

    /// The names of all models.
    pub fn names(&self) -> Vec<String> {
        self.0.load().keys().cloned().collect()
    }

    /// Returns whether a model is to be served: one that is not is about to be unloaded.
    pub fn has(&self, name: &str) -> bool {
        self.0.load().contains_key(name)
    }
}
