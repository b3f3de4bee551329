//! One model and its versions, within the machine.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use status::Code;

use super::{Order, Retries};
use crate::error::{Error, LoadError};
use crate::handle::Id;
use crate::labels::Labels;
use crate::models::ModelSnapshot;
use crate::options::{LabelRule, ModelOptions};
use crate::policy::{Action, Seen};
use crate::state::{Retried, State, VersionStatus};

/// Versions that ended stay listed, but no more than this many of a model.
pub(super) const ENDED_MAX: usize = 100;

/// A version that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Aspired {
    pub(crate) version: i64,
    /// The folder of its files.
    pub(crate) path: String,
    /// Changes when the files do. A version that failed is loaded again when it changed.
    pub(crate) fingerprint: u64,
}

/// The outcome of a model: an available version, or the reason that there is none, with the version
/// if one failed.
pub(crate) type Outcome = Result<i64, (Option<i64>, LoadError)>;

pub(super) struct Model {
    name: Arc<str>,
    options: Arc<ModelOptions>,
    is_configured: bool,
    /// Each in a place of its own: a map has room for many, and most models have one.
    versions: BTreeMap<i64, Box<Version>>,
    labels: Labels,
    problem: Option<LoadError>,
    /// Counts the versions that ended, to know the oldest.
    n_ended: u64,
    snapshot: Arc<ModelSnapshot>,
}

struct Version {
    aspired: Option<Aspired>,
    phase: Phase,
    since: Since,
}

/// The changes since a load began that may yet be refused for want of memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Since {
    Nothing,
    /// There may be more memory than it saw.
    Room,
    /// It was refused, and began again at once because of that: it does so no second time.
    Refusal,
}

impl Version {
    fn lacks_room(&self) -> bool {
        let error = match &self.phase {
            Phase::Waiting { error, .. } => Some(error),
            Phase::End { failure, .. } => failure.as_ref().map(|(error, _)| error),
            Phase::Start | Phase::Loading { .. } | Phase::Available | Phase::Unloading { .. } => {
                None
            }
        };
        let is_memory = error.is_some_and(|error| error.status.code == Code::ResourceExhausted);
        is_memory && self.aspired.is_some()
    }
}

/// [`State`], and what must be known in it.
enum Phase {
    Start,
    /// An order to load is out.
    Loading {
        n_attempts: u32,
        fingerprint: u64,
        is_cancelled: bool,
        error: Option<LoadError>,
    },
    /// Loading failed, and will be tried again.
    Waiting {
        n_attempts: u32,
        until: Duration,
        error: LoadError,
    },
    Available,
    Unloading {
        /// The reason for which a wanted version gave way, and the fingerprint of its files.
        failure: Option<(LoadError, u64)>,
    },
    End {
        /// The failure to load, and the fingerprint of the files that failed.
        failure: Option<(LoadError, u64)>,
        /// The position of the version in the order of ends.
        order: u64,
    },
}

impl Model {
    pub(super) fn new(options: &ModelOptions) -> Self {
        let snapshot = ModelSnapshot {
            name: options.name.clone(),
            base_path: options.base_path.clone(),
            is_configured: false,
            versions: Vec::new(),
            labels: BTreeMap::new(),
            problem: None,
        };
        Model {
            name: options.name.as_str().into(),
            options: Arc::new(options.clone()),
            is_configured: false,
            versions: BTreeMap::new(),
            labels: Labels::default(),
            problem: None,
            n_ended: 0,
            snapshot: Arc::new(snapshot),
        }
    }

    pub(super) fn is_configured(&self) -> bool {
        self.is_configured
    }

    pub(super) fn options(&self) -> &Arc<ModelOptions> {
        &self.options
    }

    pub(super) fn snapshot(&self) -> Arc<ModelSnapshot> {
        Arc::clone(&self.snapshot)
    }

    /// Checks that `new` may replace the settings. Follows `server_core.cc` of TensorFlow Serving.
    pub(super) fn check_options(&self, new: &ModelOptions, rule: LabelRule) -> Result<(), Error> {
        let model = new.name.clone();
        if self.is_configured && self.options.platform != new.platform {
            let (old, new) = (self.options.platform.clone(), new.platform.clone());
            return Err(Error::PlatformChange { model, old, new });
        }
        let is_available = |version| self.state(version) == Some(State::Available);
        match self.labels.refused(&new.labels, rule, is_available) {
            Some(version) => Err(Error::LabelUnavailable { model, version }),
            None => Ok(()),
        }
    }

    pub(super) fn configure(&mut self, options: &Arc<ModelOptions>) {
        assert_eq!(*self.name, *options.name);
        self.options = Arc::clone(options);
        self.is_configured = true;
        self.labels.set(&options.labels);
    }

    /// Leaves the configuration: nothing is wanted any more.
    pub(super) fn leave(&mut self, orders: &mut Vec<Order>) {
        self.is_configured = false;
        self.problem = None;
        self.labels.set(&BTreeMap::new());
        self.set_aspired(&BTreeMap::new(), orders);
    }

    pub(super) fn aspire(&mut self, versions: Vec<Aspired>, orders: &mut Vec<Order>) {
        // A look may come back after its model left.
        if !self.is_configured {
            return;
        }
        self.problem = None;
        let wanted = versions.into_iter().map(|aspired| (aspired.version, aspired)).collect();
        self.set_aspired(&wanted, orders);
    }

    pub(super) fn look_failed(&mut self, error: LoadError) {
        if self.is_configured {
            self.problem = Some(error);
        }
    }

    fn set_aspired(&mut self, wanted: &BTreeMap<i64, Aspired>, orders: &mut Vec<Order>) {
        let given_up: Vec<i64> = self
            .versions
            .iter()
            .filter(|(number, version)| version.aspired.is_some() && !wanted.contains_key(number))
            .map(|(number, _)| *number)
            .collect();
        for number in given_up {
            self.give_up(number, orders);
        }
        for (number, aspired) in wanted {
            let (phase, since) = (Phase::Start, Since::Nothing);
            let start = || Box::new(Version { aspired: None, phase, since });
            let version = self.versions.entry(*number).or_insert_with(start);
            let starts_anew = match &version.phase {
                Phase::End { failure, .. } => {
                    version.aspired.is_none()
                        || failure.as_ref().is_none_or(|(_, failed)| *failed != aspired.fingerprint)
                }
                Phase::Waiting { .. } => {
                    let tried = version.aspired.as_ref().map(|tried| tried.fingerprint);
                    tried != Some(aspired.fingerprint)
                }
                Phase::Start
                | Phase::Loading { .. }
                | Phase::Available
                | Phase::Unloading { .. } => false,
            };
            if starts_anew {
                version.phase = Phase::Start;
            }
            version.aspired = Some(aspired.clone());
        }
    }

    /// A version is no longer wanted: what has not begun never will, a load is told.
    fn give_up(&mut self, number: i64, orders: &mut Vec<Order>) {
        let version = self.versions.get_mut(&number).expect("only known versions are given up");
        let aspired = version.aspired.take().expect("only aspired versions are given up");
        match &mut version.phase {
            Phase::Start => {
                self.versions.remove(&number);
            }
            Phase::Waiting { error, .. } => {
                let failure = Some((error.clone(), aspired.fingerprint));
                self.end(number, failure);
            }
            Phase::Loading { is_cancelled, .. } => {
                if !*is_cancelled {
                    *is_cancelled = true;
                    orders.push(Order::Cancel(self.id(number)));
                }
            }
            Phase::Available | Phase::Unloading { .. } | Phase::End { .. } => {}
        }
    }

    pub(super) fn loaded(&mut self, number: i64) {
        let version = self.versions.get_mut(&number).expect("what is loaded is known");
        assert!(matches!(version.phase, Phase::Loading { .. }), "only a load can succeed");
        version.phase = Phase::Available;
        version.since = Since::Nothing;
    }

    pub(super) fn load_failed(
        &mut self,
        number: i64,
        error: LoadError,
        retries: Retries,
        now: Duration,
    ) {
        let version = self.versions.get_mut(&number).expect("what is loaded is known");
        let Phase::Loading { n_attempts, fingerprint, is_cancelled, .. } = version.phase else {
            panic!("only a load can fail");
        };
        let is_aspired = version.aspired.is_some();
        let is_memory = error.status.code == Code::ResourceExhausted;
        let saw_too_little = is_memory && version.since == Since::Room;
        version.since = if saw_too_little { Since::Refusal } else { Since::Nothing };
        if is_aspired && (is_cancelled || saw_too_little) {
            // Given up and wanted again, or refused for memory that is free by now: that failure
            // says nothing about the version.
            version.phase = Phase::Start;
        } else if is_aspired && retries.allow(n_attempts, &error) {
            let until = now.saturating_add(retries.wait(n_attempts));
            version.phase = Phase::Waiting { n_attempts, until, error };
        } else {
            self.end(number, Some((error, fingerprint)));
        }
    }

    /// Unloads a version though it is wanted, so that others have room. It has failed then for want
    /// of memory, and is tried again like all that have.
    pub(super) fn give_way(&mut self, number: i64, why: LoadError, orders: &mut Vec<Order>) {
        // It may have gone by itself meanwhile.
        let Some(version) = self.versions.get_mut(&number) else { return };
        let Some(aspired) = &version.aspired else { return };
        if !matches!(version.phase, Phase::Available) {
            return;
        }
        version.phase = Phase::Unloading { failure: Some((why, aspired.fingerprint)) };
        orders.push(Order::Unload(self.id(number)));
    }

    pub(super) fn freed(&mut self, number: i64) {
        let version = self.versions.get_mut(&number).expect("what is freed is known");
        let Phase::Unloading { failure } = &version.phase else {
            panic!("only what was unloaded is freed");
        };
        match (&version.aspired, failure.clone()) {
            (Some(_), None) => version.phase = Phase::Start,
            (Some(_), Some(failure)) => self.end(number, Some(failure)),
            (None, _) => self.end(number, None),
        }
    }

    fn end(&mut self, number: i64, failure: Option<(LoadError, u64)>) {
        let version = self.versions.get_mut(&number).expect("only known versions end");
        version.phase = Phase::End { failure, order: self.n_ended };
        self.n_ended += 1;
    }

    /// Orders the loads whose time to try again has come.
    pub(super) fn retry(&mut self, now: Duration, orders: &mut Vec<Order>) {
        for (number, version) in &mut self.versions {
            let Phase::Waiting { n_attempts, until, error } = &version.phase else { continue };
            if *until > now {
                continue;
            }
            let aspired = version.aspired.as_ref().expect("only aspired versions wait");
            let (n_attempts, error) = (*n_attempts + 1, Some(error.clone()));
            let id = Id { model: Arc::clone(&self.name), version: *number };
            version.phase = loading(aspired, n_attempts, error);
            orders.push(Order::Load { id, path: aspired.path.clone() });
        }
    }

    /// Returns whether there is a version that memory which becomes free matters to.
    pub(super) fn may_lack_room(&self) -> bool {
        let is_loading = |version: &Version| matches!(version.phase, Phase::Loading { .. });
        self.versions.values().any(|version| version.lacks_room() || is_loading(version))
    }

    /// Starts anew with the versions that were refused for want of memory; those that are being
    /// loaded, and may have seen less than there is now, do so if they are refused.
    pub(super) fn try_again(&mut self) {
        for version in self.versions.values_mut() {
            if version.lacks_room() {
                version.phase = Phase::Start;
                version.since = Since::Nothing;
            } else if matches!(version.phase, Phase::Loading { .. })
                && version.since == Since::Nothing
            {
                version.since = Since::Room;
            }
        }
    }

    pub(super) fn next_retry(&self) -> Option<Duration> {
        let waits = self.versions.values().filter_map(|version| match version.phase {
            Phase::Waiting { until, .. } => Some(until),
            Phase::Start
            | Phase::Loading { .. }
            | Phase::Available
            | Phase::Unloading { .. }
            | Phase::End { .. } => None,
        });
        waits.min()
    }

    /// Asks the policy until it wants nothing more, and forgets what ended long ago.
    pub(super) fn decide(&mut self, orders: &mut Vec<Order>) {
        while let Some(action) = self.options.policy.next_action(&self.seen()) {
            match action {
                Action::Load(number) => {
                    let id = self.id(number);
                    let version = self.versions.get_mut(&number).expect("policies choose");
                    let aspired = version.aspired.as_ref().expect("policies load what is aspired");
                    orders.push(Order::Load { id, path: aspired.path.clone() });
                    version.phase = loading(aspired, 1, None);
                }
                Action::Unload(number) => {
                    orders.push(Order::Unload(self.id(number)));
                    let version = self.versions.get_mut(&number).expect("policies choose");
                    version.phase = Phase::Unloading { failure: None };
                }
            }
        }
        self.forget();
    }

    fn forget(&mut self) {
        let mut ended: Vec<(u64, i64)> = self
            .versions
            .iter()
            .filter(|(_, version)| version.aspired.is_none())
            .filter_map(|(number, version)| match version.phase {
                Phase::End { order, .. } => Some((order, *number)),
                Phase::Start
                | Phase::Loading { .. }
                | Phase::Waiting { .. }
                | Phase::Available
                | Phase::Unloading { .. } => None,
            })
            .collect();
        ended.sort_unstable();
        let n_excess = ended.len().saturating_sub(ENDED_MAX);
        for (_, number) in &ended[..n_excess] {
            self.versions.remove(number);
        }
    }

    fn each_version(&self) -> impl DoubleEndedIterator<Item = (&i64, &Version)> {
        self.versions.iter().map(|(number, version)| (number, &**version))
    }

    /// Draws the snapshot again, and says whether it changed.
    pub(super) fn renew_snapshot(&mut self) -> bool {
        let versions = &self.versions;
        self.labels.update(|number| {
            versions.get(&number).is_some_and(|v| v.phase.state() == State::Available)
        });
        let status = |(number, version): (&i64, &Version)| VersionStatus {
            version: *number,
            state: version.phase.state(),
            error: version.phase.error().cloned(),
            retried: version.phase.retried(),
        };
        let new = ModelSnapshot {
            name: self.options.name.clone(),
            base_path: self.options.base_path.clone(),
            is_configured: self.is_configured,
            versions: self.each_version().rev().map(status).collect(),
            labels: self.labels.effective(),
            problem: self.problem.clone(),
        };
        let is_changed = new != *self.snapshot;
        if is_changed {
            self.snapshot = Arc::new(new);
        }
        is_changed
    }

    /// See [`super::Machine::taken`].
    pub(super) fn taken(&self) -> Vec<i64> {
        let is_taken = |version: &Version| match version.phase {
            Phase::Start | Phase::Loading { .. } | Phase::Available => version.aspired.is_some(),
            Phase::Waiting { .. } | Phase::Unloading { .. } | Phase::End { .. } => false,
        };
        self.versions.iter().filter(|(_, v)| is_taken(v)).map(|(number, _)| *number).collect()
    }

    /// See [`super::Machine::outcome`]. As in TensorFlow Serving, the highest version that is
    /// available or has failed decides.
    pub(super) fn outcome(&self) -> Option<Outcome> {
        for (number, version) in self.versions.iter().rev() {
            match &version.phase {
                Phase::Available => return Some(Ok(*number)),
                Phase::End { failure: Some((error, _)), .. } if version.aspired.is_some() => {
                    return Some(Err((Some(*number), error.clone())));
                }
                Phase::Start
                | Phase::Loading { .. }
                | Phase::Waiting { .. }
                | Phase::Unloading { .. }
                | Phase::End { .. } => {}
            }
        }
        let is_open = self.versions.values().any(|version| version.aspired.is_some());
        self.problem.clone().filter(|_| !is_open).map(|error| Err((None, error)))
    }

    pub(super) fn is_idle(&self) -> bool {
        self.versions.values().all(|version| matches!(version.phase, Phase::End { .. }))
    }

    fn seen(&self) -> Vec<Seen> {
        let seen = |(number, version): (&i64, &Version)| Seen {
            version: *number,
            state: version.phase.state(),
            is_aspired: version.aspired.is_some(),
        };
        self.each_version().map(seen).collect()
    }

    fn state(&self, number: i64) -> Option<State> {
        self.versions.get(&number).map(|version| version.phase.state())
    }

    fn id(&self, version: i64) -> Id {
        Id { model: Arc::clone(&self.name), version }
    }

    /// Returns whether any version is aspired.
    #[cfg(test)]
    pub(super) fn wants_something(&self) -> bool {
        self.versions.values().any(|version| version.aspired.is_some())
    }

    /// Asserts what must hold between events.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let mut n_ended = 0;
        for (number, version) in &self.versions {
            let is_aspired = version.aspired.is_some();
            assert!(self.is_configured || !is_aspired, "{number}: a model that left wants nothing");
            match version.phase {
                Phase::Start | Phase::Waiting { .. } => assert!(is_aspired, "{number}: unwanted"),
                Phase::Loading { is_cancelled, .. } => {
                    assert!(is_aspired || is_cancelled, "{number}: was not told");
                }
                Phase::End { .. } => n_ended += usize::from(!is_aspired),
                Phase::Available | Phase::Unloading { .. } => {}
            }
        }
        assert!(n_ended <= ENDED_MAX);
        assert!(self.options.policy.next_action(&self.seen()).is_none(), "nothing is left to do");
    }
}

fn loading(aspired: &Aspired, n_attempts: u32, error: Option<LoadError>) -> Phase {
    Phase::Loading { n_attempts, fingerprint: aspired.fingerprint, is_cancelled: false, error }
}

impl Phase {
    fn state(&self) -> State {
        match self {
            Phase::Start => State::Start,
            Phase::Loading { .. } | Phase::Waiting { .. } => State::Loading,
            Phase::Available => State::Available,
            Phase::Unloading { .. } => State::Unloading,
            Phase::End { .. } => State::End,
        }
    }

    fn error(&self) -> Option<&LoadError> {
        match self {
            Phase::End { failure, .. } => failure.as_ref().map(|(error, _)| error),
            Phase::Start
            | Phase::Loading { .. }
            | Phase::Waiting { .. }
            | Phase::Available
            | Phase::Unloading { .. } => None,
        }
    }

    fn retried(&self) -> Option<Retried> {
        match self {
            Phase::Loading { error, .. } => error.clone().map(|error| Retried { error, at: None }),
            Phase::Waiting { error, until, .. } => {
                Some(Retried { error: error.clone(), at: Some(*until) })
            }
            Phase::Start | Phase::Available | Phase::Unloading { .. } | Phase::End { .. } => None,
        }
    }
}
