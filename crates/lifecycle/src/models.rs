//! The map of models that requests see.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use metrics::{Headway, HeadwaySnapshot};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::error::{Absence, Error, LoadError};
use crate::handle::{Handle, Id};
use crate::state::{State, VersionStatus};

/// All models, as of now. Cheap to clone; clones see the same models.
///
/// The map behind it is immutable and replaced as a whole: looking something up is one atomic load
/// and never waits.
pub struct Models<S> {
    published: Arc<ArcSwap<Published<S>>>,
    /// The progress of each load under way.
    loads: Arc<Mutex<BTreeMap<Id, Arc<Headway>>>>,
    ready: watch::Receiver<bool>,
    changes: watch::Sender<u64>,
    /// The start of the times of retries.
    started: Instant,
}

/// A model by name, and a version, a label or neither.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    /// The model's name.
    pub model: String,
    /// The choice among its versions.
    pub choice: Choice,
}

/// The choice of a version of a model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Choice {
    /// The highest one that is available.
    Latest,
    /// This one.
    Version(i64),
    /// The one with this label.
    Label(String),
}

impl Target {
    /// The highest available version of a model.
    pub fn latest(model: impl Into<String>) -> Self {
        Target { model: model.into(), choice: Choice::Latest }
    }

    /// A version of a model.
    pub fn version(model: impl Into<String>, version: i64) -> Self {
        Target { model: model.into(), choice: Choice::Version(version) }
    }

    /// The version of a model with this label.
    pub fn label(model: impl Into<String>, label: impl Into<String>) -> Self {
        Target { model: model.into(), choice: Choice::Label(label.into()) }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.choice {
            Choice::Latest => write!(f, "Latest({})", self.model),
            Choice::Version(version) => write!(f, "Specific({}, {version})", self.model),
            Choice::Label(label) => write!(f, "Label({}, {label})", self.model),
        }
    }
}

/// One model, as of now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelSnapshot {
    /// The model's name.
    pub name: String,
    /// The folder or URL with its versions.
    pub base_path: String,
    /// `true` if the model is in the configuration; if not, its versions are gone or going.
    pub is_configured: bool,
    /// The versions it has or had, highest first.
    pub versions: Vec<VersionStatus>,
    /// The version that each of its labels points to now.
    pub labels: BTreeMap<String, i64>,
    /// The reason that the last look at its source brought no versions.
    pub problem: Option<LoadError>,
}

/// The map that is replaced as a whole.
pub(crate) struct Published<S> {
    models: HashMap<Arc<str>, Arc<Shown<S>>>,
    is_configured: bool,
}

/// A model and the handles to its available versions.
pub(crate) struct Shown<S> {
    pub(crate) snapshot: Arc<ModelSnapshot>,
    pub(crate) available: BTreeMap<i64, Handle<S>>,
}

impl<S> Clone for Models<S> {
    fn clone(&self) -> Self {
        Models {
            published: Arc::clone(&self.published),
            loads: Arc::clone(&self.loads),
            ready: self.ready.clone(),
            changes: self.changes.clone(),
            started: self.started,
        }
    }
}

impl<S> fmt::Debug for Models<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.snapshot()).finish()
    }
}

impl<S> Models<S> {
    /// Without any model; `ready` says when the server is.
    pub(crate) fn new(ready: watch::Receiver<bool>, started: Instant) -> Self {
        let published = Published { models: HashMap::new(), is_configured: false };
        let changes = watch::Sender::new(0);
        let published = Arc::new(ArcSwap::from_pointee(published));
        Models { published, loads: Arc::default(), ready, changes, started }
    }

    /// A handle to the version that the target names. Costs one atomic load and one look-up.
    ///
    /// # Errors
    /// If the target has no name, names a label that the model does not have, or a version that
    /// is not available.
    pub fn get(&self, target: &Target) -> Result<Handle<S>, Error> {
        if target.model.is_empty() {
            return Err(Error::NoName);
        }
        let published = self.published.load();
        let shown = published.models.get(target.model.as_str());
        let version = match &target.choice {
            Choice::Latest => {
                let highest = shown.and_then(|shown| shown.available.last_key_value());
                let handle = highest.map(|(_, handle)| handle.clone());
                return handle.ok_or_else(|| self.not_found(target.clone(), shown));
            }
            Choice::Version(version) => *version,
            Choice::Label(label) => {
                if !published.is_configured {
                    return Err(Error::LabelsNotReady(label.clone()));
                }
                let version = shown.and_then(|shown| shown.snapshot.labels.get(label));
                *version.ok_or_else(|| Error::UnknownLabel(label.clone()))?
            }
        };
        let handle = shown.and_then(|shown| shown.available.get(&version));
        let target = || Target::version(target.model.clone(), version);
        handle.cloned().ok_or_else(|| self.not_found(target(), shown))
    }

    /// That a target is not available, and why if its loads failed.
    fn not_found(&self, target: Target, shown: Option<&Arc<Shown<S>>>) -> Error {
        let snapshot = shown.map(|shown| &*shown.snapshot).filter(|model| model.is_configured);
        let why = snapshot.map(|snapshot| {
            let is_meant = |status: &&VersionStatus| match target.choice {
                Choice::Version(version) => status.version == version,
                Choice::Latest | Choice::Label(_) => true,
            };
            let failed = snapshot.versions.iter().filter(is_meant).find_map(|status| {
                let failure = (status.version, status.failure()?.clone());
                let retry_in = status.retried.as_ref().map(|retried| {
                    let left = |at: Duration| at.saturating_sub(self.started.elapsed());
                    retried.at.map_or(Duration::ZERO, left)
                });
                Some((failure, retry_in))
            });
            let (failure, retry_in) = failed.unzip();
            Absence { failure, retry_in: retry_in.flatten() }
        });
        Error::NotFound { target, why: Box::new(why.unwrap_or_default()) }
    }

    /// The states of one version, or of all that a model has or had, highest first.
    ///
    /// # Errors
    /// If there never was such a version.
    pub fn status(&self, model: &str, version: Option<i64>) -> Result<Vec<VersionStatus>, Error> {
        let published = self.published.load();
        let shown = published.models.get(model);
        let versions = shown.map_or(&[][..], |shown| &shown.snapshot.versions);
        let wanted = |status: &&VersionStatus| version.is_none_or(|v| v == status.version);
        let found: Vec<VersionStatus> = versions.iter().filter(wanted).cloned().collect();
        match (found.is_empty(), version) {
            (false, _) => Ok(found),
            (true, None) => Err(Error::NoVersions(model.to_owned())),
            (true, Some(version)) => Err(Error::NoVersion { model: model.to_owned(), version }),
        }
    }

    /// One model, if it is or was there.
    pub fn model(&self, name: &str) -> Option<Arc<ModelSnapshot>> {
        self.published.load().models.get(name).map(|shown| Arc::clone(&shown.snapshot))
    }

    /// The progress of the load of a version, if it is being loaded.
    pub fn headway(&self, model: &str, version: i64) -> Option<HeadwaySnapshot> {
        let loads = self.loads.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |(id, _): &(&Id, &Arc<Headway>)| *id.model == *model && id.version == version;
        loads.iter().find(of).map(|(_, headway)| headway.snapshot())
    }

    /// Shows how far a load is from now on.
    pub(crate) fn begin_load(&self, id: &Id, headway: &Arc<Headway>) {
        let mut loads = self.loads.lock().unwrap_or_else(PoisonError::into_inner);
        loads.insert(id.clone(), Arc::clone(headway));
    }

    /// Forgets a load that has ended.
    pub(crate) fn end_load(&self, id: &Id) {
        self.loads.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    /// All models that are or were there, by name.
    pub fn snapshot(&self) -> Vec<Arc<ModelSnapshot>> {
        let published = self.published.load();
        let mut models: Vec<Arc<ModelSnapshot>> =
            published.models.values().map(|shown| Arc::clone(&shown.snapshot)).collect();
        models.sort_by(|a, b| a.name.cmp(&b.name));
        models
    }

    /// Handles to all available versions, by model and version.
    pub fn available(&self) -> Vec<Handle<S>> {
        let published = self.published.load();
        let mut handles: Vec<Handle<S>> =
            published.models.values().flat_map(|shown| shown.available.values().cloned()).collect();
        handles.sort_by(|a, b| a.id().cmp(b.id()));
        handles
    }

    /// Returns whether the server is ready ([`crate::StartWhen`]). Once it is, it stays so until it
    /// shuts down.
    pub fn is_ready(&self) -> bool {
        *self.ready.borrow()
    }

    /// Readiness, to wait for a change of it.
    pub fn readiness(&self) -> watch::Receiver<bool> {
        self.ready.clone()
    }

    /// Counts the changes of the map, to wait for the next one.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Replaces some models, or takes them out. Marks the configuration as applied.
    pub(crate) fn publish(&self, changes: Vec<(Arc<str>, Option<Shown<S>>)>) {
        let mut models = self.published.load().models.clone();
        for (name, shown) in changes {
            match shown {
                Some(shown) => {
                    if cfg!(debug_assertions) {
                        shown.check();
                    }
                    models.insert(name, Arc::new(shown))
                }
                None => models.remove(&name),
            };
        }
        self.published.store(Arc::new(Published { models, is_configured: true }));
        self.changes.send_modify(|n_changes| *n_changes += 1);
    }
}

impl<S> Shown<S> {
    /// Handles and snapshot must agree on what is available.
    fn check(&self) {
        let said = self.snapshot.versions.iter().filter(|v| v.state == State::Available);
        let said = said.map(|status| status.version).rev();
        assert!(said.eq(self.available.keys().copied()), "what is available has a handle");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::mpsc;

    use crate::handle::Id;

    /// Model `m` with versions 1 and 3 available and 2 loading; label `a` at 1 and `b` at 2.
    fn models() -> Models<i64> {
        let models = Models::new(watch::channel(false).1, Instant::now());
        let (home, _) = mpsc::unbounded_channel();
        let status = |version, state| VersionStatus { version, state, error: None, retried: None };
        let snapshot = ModelSnapshot {
            name: "m".to_owned(),
            base_path: "/models/m".to_owned(),
            is_configured: true,
            versions: vec![
                status(3, State::Available),
                status(2, State::Loading),
                status(1, State::Available),
            ],
            labels: [("a".to_owned(), 1), ("b".to_owned(), 2)].into(),
            problem: None,
        };
        let handle =
            |version| Handle::new(Id { model: "m".into(), version }, version, home.clone());
        let available = [(1, handle(1)), (3, handle(3))].into();
        let shown = Shown { snapshot: Arc::new(snapshot), available };
        shown.check();
        models.publish(vec![("m".into(), Some(shown))]);
        models
    }

    #[track_caller]
    fn check(target: &Target, expected: Result<i64, &str>) {
        let found = models().get(target).map(|handle| *handle).map_err(|error| error.to_string());
        assert_eq!(found, expected.map_err(str::to_owned), "{target}");
    }

    #[test]
    fn a_target_without_version_gets_the_highest_available_one() {
        check(&Target::latest("m"), Ok(3));
        check(&Target::latest("x"), Err("Servable not found for request: Latest(x)"));
        check(&Target::latest(""), Err("ModelSpec has no name specified."));
    }

    #[test]
    fn a_version_must_be_available() {
        check(&Target::version("m", 1), Ok(1));
        check(&Target::version("m", 2), Err("Servable not found for request: Specific(m, 2)"));
        check(&Target::version("m", -1), Err("Servable not found for request: Specific(m, -1)"));
    }

    #[test]
    fn a_label_stands_for_its_version() {
        check(&Target::label("m", "a"), Ok(1));
        check(&Target::label("m", "b"), Err("Servable not found for request: Specific(m, 2)"));
        check(&Target::label("m", "c"), Err("Unrecognized servable version label: c"));
        check(&Target::label("x", "a"), Err("Unrecognized servable version label: a"));
    }

    #[test]
    fn a_model_that_did_not_load_says_why_and_when_it_is_tried_again() {
        let error = LoadError::new(status::Code::NotFound, "no index");
        let text = |status: VersionStatus, target: &Target| {
            let models: Models<i64> = Models::new(watch::channel(false).1, Instant::now());
            let snapshot = ModelSnapshot {
                name: "m".to_owned(),
                base_path: "/m".to_owned(),
                is_configured: true,
                versions: vec![status],
                labels: BTreeMap::new(),
                problem: None,
            };
            let shown = Shown { snapshot: Arc::new(snapshot), available: BTreeMap::new() };
            models.publish(vec![("m".into(), Some(shown))]);
            models.get(target).unwrap_err().to_string()
        };
        let status = |state, error, retried| VersionStatus { version: 2, state, error, retried };
        let retried = |at| {
            let retried = crate::state::Retried { error: error.clone(), at };
            status(State::Loading, None, Some(retried))
        };
        let latest = Target::latest("m");
        let plain = "Servable not found for request: Latest(m)";
        assert_eq!(text(status(State::Loading, None, None), &latest), plain);
        assert_eq!(
            text(status(State::End, Some(error.clone()), None), &latest),
            format!("{plain}; version 2 failed to load: NOT_FOUND: no index")
        );
        let waiting = text(retried(Some(Duration::from_secs(3600))), &latest);
        let expected = "; version 2 failed to load and is tried again in 3600 s: NOT_FOUND";
        assert!(waiting.contains(expected), "{waiting}");
        let trying = text(retried(None), &latest);
        assert!(trying.contains("and is being tried again: NOT_FOUND: no index"), "{trying}");
        let other = Target::version("m", 1);
        assert_eq!(text(retried(None), &other), "Servable not found for request: Specific(m, 1)");
    }

    #[test]
    fn labels_mean_nothing_before_the_first_configuration() {
        let models: Models<()> = Models::new(watch::channel(false).1, Instant::now());
        let error = models.get(&Target::label("m", "a")).unwrap_err();
        assert_eq!(error, Error::LabelsNotReady("a".to_owned()));
        assert_eq!(models.get(&Target::latest("m")).unwrap_err().code().name(), "NOT_FOUND");
    }

    #[test]
    fn states_are_listed_highest_first() {
        let versions = |version| -> Result<Vec<i64>, String> {
            let found = models().status("m", version).map_err(|error| error.to_string())?;
            Ok(found.into_iter().map(|status| status.version).collect())
        };
        assert_eq!(versions(None), Ok(vec![3, 2, 1]));
        assert_eq!(versions(Some(2)), Ok(vec![2]));
        assert_eq!(versions(Some(9)), Err("Could not find version 9 of model m".to_owned()));
        let error = models().status("x", None).unwrap_err();
        assert_eq!(error.to_string(), "Could not find any versions of model x");
    }
}
