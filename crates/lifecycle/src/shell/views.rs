//! Views of models: the times of looks at each, and its memory between them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use status::Code;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tracing::warn;

use crate::error::LoadError;
use crate::look::{Look, Looker, Memory};
use crate::machine::Event;
use crate::options::{ModelOptions, Options, Poll};

/// All models in the configuration, as the source shows them.
pub(super) struct Views {
    looker: Arc<Looker>,
    permits: Arc<Semaphore>,
    poll: Poll,
    settle: Duration,
    started: Instant,
    /// The number of looks begun, which numbers them.
    n_looks: u64,
    views: HashMap<Arc<str>, View>,
}

struct View {
    options: Arc<ModelOptions>,
    attention: Attention,
    next_look: Option<Instant>,
    /// The last problem that was logged, so that it is logged once.
    problem: Option<LoadError>,
}

enum Attention {
    /// Nobody looks; this is remembered of the last look.
    Idle(Memory),
    /// The look with this number is in progress, and has the memory. Others that may still be on
    /// their way were begun before the model left and came back.
    Looking(u64),
}

/// A look to be taken.
pub(super) struct Glance {
    pub(super) model: Arc<str>,
    pub(super) options: Arc<ModelOptions>,
    pub(super) number: u64,
}

/// The result of a look.
pub(super) struct Looked {
    pub(super) glance: Glance,
    pub(super) memory: Memory,
    pub(super) found: Result<Look, LoadError>,
}

impl Views {
    pub(super) fn new(looker: Looker, options: &Options) -> Self {
        Views {
            looker: Arc::new(looker),
            permits: Arc::new(Semaphore::new(options.n_looks_max.max(1))),
            poll: options.poll,
            settle: options.settle,
            started: Instant::now(),
            n_looks: 0,
            views: HashMap::new(),
        }
    }

    pub(super) fn looker(&self) -> Arc<Looker> {
        Arc::clone(&self.looker)
    }

    pub(super) fn permits(&self) -> Arc<Semaphore> {
        Arc::clone(&self.permits)
    }

    /// Replaces the models. All of them are looked at at once; those that stayed where they were
    /// are remembered.
    pub(super) fn configure(&mut self, models: &[Arc<ModelOptions>], now: Instant) {
        let mut old = std::mem::take(&mut self.views);
        let next_look = (self.poll != Poll::Never).then_some(now);
        for options in models {
            let options = Arc::clone(options);
            let view = match old.remove(options.name.as_str()) {
                Some(view) if is_same_place(&view.options, &options) => {
                    View { options, next_look, ..view }
                }
                // A look in progress finds other options when it ends, and is thrown away.
                Some(View { attention: attention @ Attention::Looking(_), .. }) => {
                    View { options, attention, next_look, problem: None }
                }
                Some(View { attention: Attention::Idle(_), .. }) | None => {
                    let attention = Attention::Idle(Memory::default());
                    View { options, attention, next_look, problem: None }
                }
            };
            self.views.insert(view.options.name.as_str().into(), view);
        }
    }

    pub(super) fn next_look(&self) -> Option<Instant> {
        self.views.values().filter(|view| view.is_idle()).filter_map(|view| view.next_look).min()
    }

    /// The models to look at now.
    pub(super) fn due(&self, now: Instant) -> Vec<Arc<str>> {
        let is_due = |view: &View| view.next_look.is_some_and(|time| time <= now);
        self.views.iter().filter(|(_, v)| is_due(v)).map(|(name, _)| Arc::clone(name)).collect()
    }

    /// The inputs of a look; `None` if one is in progress.
    pub(super) fn begin(&mut self, model: &Arc<str>) -> Option<(Glance, Memory)> {
        let view = self.views.get_mut(model)?;
        let Attention::Idle(memory) = &mut view.attention else { return None };
        let memory = std::mem::take(memory);
        self.n_looks += 1;
        let number = self.n_looks;
        view.attention = Attention::Looking(number);
        view.next_look = None;
        let (model, options) = (Arc::clone(model), Arc::clone(&view.options));
        Some((Glance { model, options, number }, memory))
    }

    /// Returns whether the model changed while it was looked at.
    pub(super) fn wants_look(&self, model: &str) -> bool {
        let view = self.views.get(model);
        view.is_some_and(|view| view.is_idle() && view.next_look.is_some_and(is_past))
    }

    /// Takes in what came of a look, and says what the machine must know.
    pub(super) fn take(&mut self, looked: Looked, now: Instant) -> Vec<Event> {
        let Looked { glance, memory, found } = looked;
        let next_look = self.next_look_after(&found, now);
        let Some(view) = self.views.get_mut(&glance.model) else { return Vec::new() };
        if !view.waits_for(glance.number) {
            return Vec::new();
        }
        if !Arc::ptr_eq(&view.options, &glance.options) {
            let is_same = is_same_place(&view.options, &glance.options);
            view.attention = Attention::Idle(if is_same { memory } else { Memory::default() });
            return Vec::new();
        }
        view.attention = Attention::Idle(memory);
        view.next_look = next_look;
        view.events(glance.model, found)
    }

    fn next_look_after(&self, found: &Result<Look, LoadError>, now: Instant) -> Option<Instant> {
        match (self.poll, found) {
            (Poll::Every(time), Ok(look)) if look.is_hasty => Some(now + time.min(self.settle)),
            (Poll::Every(time), _) => Some(self.next_round(now, time)),
            (Poll::Once | Poll::Never, _) => None,
        }
    }

    /// The time at which all models are looked at again. They share their rounds, so that the task
    /// wakes once for all of them.
    fn next_round(&self, now: Instant, every: Duration) -> Instant {
        let every = every.max(Duration::from_millis(1));
        let n_rounds = now.duration_since(self.started).as_nanos() / every.as_nanos() + 1;
        match u32::try_from(n_rounds) {
            Ok(n_rounds) => self.started + every.saturating_mul(n_rounds),
            Err(_) => now + every,
        }
    }

    /// The look with this number takes longer than it may; `None` if nobody waits for it.
    pub(super) fn late(&mut self, model: &str, number: u64, limit: Duration) -> Option<LoadError> {
        let view = self.views.get_mut(model).filter(|view| view.waits_for(number))?;
        let path = &view.options.base_path;
        let message = format!("{path} was not listed within {} s", limit.as_secs());
        let error = LoadError::new(Code::DeadlineExceeded, message);
        view.log(model, Some(error.clone()));
        Some(error)
    }
}

impl View {
    fn is_idle(&self) -> bool {
        matches!(self.attention, Attention::Idle(_))
    }

    fn waits_for(&self, number: u64) -> bool {
        matches!(self.attention, Attention::Looking(own) if own == number)
    }

    fn events(&mut self, model: Arc<str>, found: Result<Look, LoadError>) -> Vec<Event> {
        match found {
            Err(error) => {
                self.log(&model, Some(error.clone()));
                vec![Event::LookFailed { model, error }]
            }
            Ok(look) => {
                for warning in &look.warnings {
                    warn!(%model, "{warning}");
                }
                let problem = look.is_empty.then(|| self.no_versions());
                self.log(&model, problem.clone());
                let versions = look.aspired;
                let aspired = Event::Aspired { model: Arc::clone(&model), versions };
                let failed = problem.map(|error| Event::LookFailed { model, error });
                [Some(aspired), failed].into_iter().flatten().collect()
            }
        }
    }

    /// The text of TensorFlow Serving's `file_system_storage_path_source.cc`.
    fn no_versions(&self) -> LoadError {
        let message = format!(
            "No versions of servable {} found under base path {}. Did you forget to name your leaf \
             directory as a number (eg. '/1/')?",
            self.options.name, self.options.base_path
        );
        LoadError::new(Code::NotFound, message)
    }

    fn log(&mut self, model: &str, problem: Option<LoadError>) {
        if let Some(error) = problem.as_ref().filter(|_| self.problem != problem) {
            warn!(%model, %error, "no versions found");
        }
        self.problem = problem;
    }
}

fn is_same_place(a: &ModelOptions, b: &ModelOptions) -> bool {
    a.base_path == b.base_path && a.versions == b.versions
}

fn is_past(time: Instant) -> bool {
    time <= Instant::now()
}

#[cfg(test)]
mod tests;
