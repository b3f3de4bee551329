//! The owner of all states: takes events with the time, returns orders. Does no I/O.
//!
//! A version is loaded at most once at a time, and an order to load or unload it is answered by
//! exactly one event: [`Event::Loaded`], [`Event::LoadFailed`] or [`Event::Freed`]. Until then the
//! version keeps its state, whatever becomes aspired meanwhile.

mod model;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, LoadError};
use crate::handle::Id;
use crate::models::ModelSnapshot;
use crate::options::{LabelRule, Missing, ModelOptions, RetryRule, StartWhen};
use model::Model;

pub(crate) use model::{Aspired, Outcome};

/// Models that left the configuration stay listed, but no more than this many.
const GONE_MODELS_MAX: usize = 100;

/// An event that the machine is told of.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// These are the models from now on. They were checked ([`Machine::check_config`]).
    Configured(Vec<Arc<ModelOptions>>),
    /// These versions of a model are wanted, and no others.
    Aspired { model: Arc<str>, versions: Vec<Aspired> },
    /// A look at a model's source failed; what serves keeps serving.
    LookFailed { model: Arc<str>, error: LoadError },
    /// An order to load was carried out.
    Loaded(Id),
    /// An order to load failed.
    LoadFailed(Id, LoadError),
    /// An unloaded version's last handle is gone and its memory is free.
    Freed(Id),
    /// A version is to go though it is wanted, for want of memory.
    GiveWay(Id, LoadError),
    /// There may be room now for what was refused for want of it.
    Room,
    /// Time has passed.
    Tick,
    /// The server shuts down: unload everything.
    Stopped,
}

/// An action that the machine orders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Order {
    /// The model's snapshot changed. Comes before the other orders of the same model.
    Publish(Arc<str>),
    /// Load a version from a path.
    Load { id: Id, path: String },
    /// Tell the load of a version that nobody wants it any more.
    Cancel(Id),
    /// Give up the handle to a version; it was just taken out of the snapshot.
    Unload(Id),
}

/// The number and the times of further attempts to load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Retries {
    pub(crate) max: u32,
    pub(crate) rule: RetryRule,
    pub(crate) first: Duration,
    pub(crate) interval: Duration,
}

impl Retries {
    /// Returns whether a load that failed so after this many attempts is tried again.
    fn allow(&self, n_attempts: u32, error: &LoadError) -> bool {
        let may_help = self.rule == RetryRule::All || !error.is_final;
        n_attempts <= self.max && may_help
    }

    /// The time to wait after this many attempts, all of which failed.
    fn wait(&self, n_attempts: u32) -> Duration {
        let doubled = 1_u32.checked_shl(n_attempts.saturating_sub(1)).unwrap_or(u32::MAX);
        self.first.saturating_mul(doubled).min(self.interval)
    }
}

/// All models and their versions.
pub(crate) struct Machine {
    retries: Retries,
    missing: Missing,
    models: BTreeMap<Arc<str>, Model>,
    /// Models that left the configuration, the longest gone first.
    gone: Vec<Arc<str>>,
    is_stopping: bool,
}

impl Machine {
    pub(crate) fn new(retries: Retries, missing: Missing) -> Self {
        let (models, gone) = (BTreeMap::new(), Vec::new());
        Machine { retries, missing, models, gone, is_stopping: false }
    }

    /// Checks that these models may follow those that are there.
    pub(crate) fn check_config(&self, new: &[ModelOptions], rule: LabelRule) -> Result<(), Error> {
        if self.is_stopping {
            return Err(Error::Stopping);
        }
        for options in new {
            match self.models.get(options.name.as_str()) {
                Some(model) => model.check_options(options, rule)?,
                None => Model::new(options).check_options(options, rule)?,
            }
        }
        Ok(())
    }

    /// Takes in what happened at `now`, and says what is to be done.
    pub(crate) fn apply(&mut self, event: Event, now: Duration) -> Vec<Order> {
        let mut orders = Vec::new();
        match event {
            Event::Configured(list) => {
                self.configure(&list, &mut orders);
                // Other limits may be among the settings.
                self.try_again(&mut orders);
            }
            Event::Aspired { model, versions } => {
                self.update(&model, &mut orders, |model, orders| model.aspire(versions, orders));
            }
            Event::LookFailed { model, error } => {
                self.update(&model, &mut orders, |model, _| model.look_failed(error));
            }
            Event::Loaded(id) => {
                self.update(&id.model, &mut orders, |model, _| model.loaded(id.version));
            }
            Event::LoadFailed(id, error) => {
                let retries = self.retries;
                self.update(&id.model, &mut orders, |model, _| {
                    model.load_failed(id.version, error, retries, now);
                });
            }
            Event::Freed(id) => {
                self.update(&id.model, &mut orders, |model, _| model.freed(id.version));
                self.try_again(&mut orders);
            }
            Event::GiveWay(id, why) => {
                self.update(&id.model, &mut orders, |model, orders| {
                    model.give_way(id.version, why, orders);
                });
            }
            Event::Room => self.try_again(&mut orders),
            Event::Tick => self.retry(now, &mut orders),
            Event::Stopped => {
                self.is_stopping = true;
                self.configure(&[], &mut orders);
            }
        }
        orders
    }

    /// The time at which [`Event::Tick`] will have something to do.
    pub(crate) fn next_tick(&self) -> Option<Duration> {
        self.models.values().filter_map(Model::next_retry).min()
    }

    /// A model as clients see it; `None` once it is forgotten.
    pub(crate) fn snapshot(&self, model: &str) -> Option<Arc<ModelSnapshot>> {
        self.models.get(model).map(Model::snapshot)
    }

    /// The settings of a model that is in the configuration.
    pub(crate) fn options(&self, model: &str) -> Option<&Arc<ModelOptions>> {
        self.models.get(model).filter(|model| model.is_configured()).map(Model::options)
    }

    /// The names of the models in the configuration.
    pub(crate) fn configured(&self) -> impl Iterator<Item = &Arc<str>> {
        let configured = self.models.iter().filter(|(_, model)| model.is_configured());
        configured.map(|(name, _)| name)
    }

    /// The versions of a model whose files need no look: aspired, and loaded or about to be.
    pub(crate) fn taken(&self, model: &str) -> Vec<i64> {
        self.models.get(model).map_or_else(Vec::new, Model::taken)
    }

    /// The outcome of a model of the configuration: `None` while that is open.
    pub(crate) fn outcome(&self, model: &str) -> Option<Outcome> {
        let outcome = self.models.get(model).and_then(Model::outcome);
        let is_missing = matches!(outcome, Some(Err((None, _))));
        outcome.filter(|_| !(is_missing && self.missing == Missing::Waits))
    }

    /// Returns whether the server may say that it is ready.
    pub(crate) fn is_ready(&self, start_when: StartWhen) -> bool {
        if self.is_stopping {
            return false;
        }
        let mut outcomes = self.configured().map(|name| self.outcome(name)).peekable();
        if outcomes.peek().is_none() {
            return true;
        }
        let outcomes: Vec<Option<Outcome>> = outcomes.collect();
        let any_available = outcomes.iter().any(|outcome| matches!(outcome, Some(Ok(_))));
        match start_when {
            StartWhen::Any => any_available,
            StartWhen::All => any_available && outcomes.iter().all(Option::is_some),
        }
    }

    /// Returns whether nothing is loaded, and nothing is being loaded or unloaded.
    pub(crate) fn is_idle(&self) -> bool {
        self.models.values().all(Model::is_idle)
    }

    fn configure(&mut self, list: &[Arc<ModelOptions>], orders: &mut Vec<Order>) {
        let names: Vec<Arc<str>> = self.configured().cloned().collect();
        for name in names {
            if !list.iter().any(|options| *options.name == *name) {
                self.update(&name, orders, Model::leave);
                self.gone.push(name);
            }
        }
        for options in list {
            let name: Arc<str> = options.name.as_str().into();
            self.gone.retain(|gone| *gone != name);
            self.models.entry(Arc::clone(&name)).or_insert_with(|| Model::new(options));
            self.update(&name, orders, |model, _| model.configure(options));
        }
        self.forget(orders);
    }

    /// Drops the models that are gone longest, once too many are.
    fn forget(&mut self, orders: &mut Vec<Order>) {
        let mut n_excess = self.gone.len().saturating_sub(GONE_MODELS_MAX);
        let models = &mut self.models;
        self.gone.retain(|name| {
            let is_dropped = n_excess > 0 && models.get(name).is_none_or(Model::is_idle);
            if is_dropped {
                n_excess -= 1;
                models.remove(name);
                orders.push(Order::Publish(Arc::clone(name)));
            }
            !is_dropped
        });
    }

    fn retry(&mut self, now: Duration, orders: &mut Vec<Order>) {
        let is_due = |model: &Model| model.next_retry().is_some_and(|time| time <= now);
        let due = self.models.iter().filter(|(_, model)| is_due(model));
        let names: Vec<Arc<str>> = due.map(|(name, _)| Arc::clone(name)).collect();
        for name in names {
            self.update(&name, orders, |model, orders| model.retry(now, orders));
        }
    }

    /// Loads what was refused for want of memory once more.
    fn try_again(&mut self, orders: &mut Vec<Order>) {
        let refused = self.models.iter().filter(|(_, model)| model.may_lack_room());
        let names: Vec<Arc<str>> = refused.map(|(name, _)| Arc::clone(name)).collect();
        for name in names {
            self.update(&name, orders, |model, _| model.try_again());
        }
    }

    /// Changes one model, then lets its policy decide and notes whether its snapshot changed.
    fn update(
        &mut self,
        name: &Arc<str>,
        orders: &mut Vec<Order>,
        change: impl FnOnce(&mut Model, &mut Vec<Order>),
    ) {
        // A look may come back after its model was forgotten.
        let Some(model) = self.models.get_mut(name) else { return };
        let mut own = Vec::new();
        change(model, &mut own);
        model.decide(&mut own);
        if model.renew_snapshot() {
            orders.push(Order::Publish(Arc::clone(name)));
        }
        orders.append(&mut own);
    }

    /// Asserts what must hold between events.
    #[cfg(test)]
    fn check(&self) {
        self.models.values().for_each(Model::check);
        for name in &self.gone {
            assert!(!self.models[name].is_configured(), "what is gone is not configured");
        }
        let n_models = self.configured().count() + self.gone.len();
        assert_eq!(n_models, self.models.len(), "a model is configured or gone");
        if self.is_stopping {
            let is_leaving = |model: &Model| model.taken().is_empty();
            assert!(self.models.values().all(is_leaving), "a server that stops wants nothing");
        }
    }
}

#[cfg(test)]
mod tests;
