//! A look at a model's source: which versions are there, and which of them are at rest.
//!
//! A folder that is still being written must not be loaded. So a version that is not loaded yet is
//! aspired only when its files are the same as at the look before; at the first look also when they
//! are complete and have not changed for a while, so that a server starts fast. Where the old
//! version goes before the new one is loaded, the new one's files are checked first.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use status::Code;

use crate::error::LoadError;
use crate::machine::Aspired;
use crate::options::{ModelOptions, Options, Poll};
use crate::policy::Policy;
use crate::versions::{Child, Found, VersionPolicy, find};

/// Says what files there are. Its calls may block; they run on threads of their own.
pub trait Source: Send + Sync + 'static {
    /// Lists the entries of a model's folder, in any order.
    ///
    /// # Errors
    /// If that cannot be told, also if there is no such folder.
    fn list(&self, base_path: &str) -> Result<Vec<Child>, LoadError>;

    /// Reads the contents of a version's folder.
    ///
    /// # Errors
    /// If that cannot be told, also if there is no such folder.
    fn tree(&self, path: &str) -> Result<Tree, LoadError>;

    /// Looks whether the files of a version are complete, as far as that can be told without
    /// loading it. Asked before a version that serves is given up for it.
    ///
    /// # Errors
    /// With the file that is missing or wrong.
    fn check(&self, path: &str) -> Result<(), LoadError>;
}

/// The files of a version, without what is in them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    /// Of all names, sizes and times.
    pub fingerprint: u64,
    /// The time at which the newest file or folder changed.
    pub modified: SystemTime,
    /// The names at the top.
    pub names: Vec<String>,
}

/// Looks at models, and knows when a version counts as being at rest.
pub(crate) struct Looker {
    source: Box<dyn Source>,
    /// All versions are taken as they are.
    takes_all: bool,
    settle: Duration,
    complete_with: Vec<String>,
}

/// The memory of a model from one look to the next.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    n_looks: u32,
    /// The fingerprints of the versions that were looked at.
    fingerprints: BTreeMap<i64, u64>,
    checked: Checked,
    aspired: Vec<Aspired>,
    warnings: Vec<String>,
}

/// The results of checks of versions, each with the fingerprint of its files then.
type Checked = BTreeMap<i64, (u64, Result<(), LoadError>)>;

/// The result of a look.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) aspired: Vec<Aspired>,
    /// `true` if there is no version that the policy would choose.
    pub(crate) is_empty: bool,
    /// `true` if it was the first look, and a version was not at rest: look again soon.
    pub(crate) is_hasty: bool,
    /// The warnings for people that were not given at the look before.
    pub(crate) warnings: Vec<String>,
}

impl Looker {
    pub(crate) fn new(source: Box<dyn Source>, options: &Options) -> Self {
        Looker {
            source,
            takes_all: options.poll == Poll::Once,
            settle: options.settle,
            complete_with: options.complete_with.clone(),
        }
    }

    /// Looks at a model's folder at `now`. Versions that are `taken` by the machine need no look.
    ///
    /// # Errors
    /// If the folder cannot be listed, or the only versions cannot. Nothing is forgotten then.
    pub(crate) fn look(
        &self,
        model: &ModelOptions,
        taken: &[i64],
        memory: &mut Memory,
        now: SystemTime,
    ) -> Result<Look, LoadError> {
        let found = self.find(model, memory)?;
        let chosen = model.versions.choose(found.versions.keys().copied());
        let (fingerprints, checked) = (BTreeMap::new(), Checked::new());
        let mut eye = Eye { looker: self, model, taken, memory, now, fingerprints, checked };
        let (mut aspired, failure) = eye.aspire(&found, chosen.len());
        let (fingerprints, checked) = (eye.fingerprints, eye.checked);
        let is_at_rest = aspired.len() == chosen.len()
            && aspired.iter().zip(&chosen).all(|(aspired, chosen)| aspired.version == *chosen);
        fill(&mut aspired, chosen.len(), memory, taken);
        if let Some(error) = failure.clone().filter(|_| aspired.is_empty()) {
            return Err(error);
        }
        let mut warnings = warnings(model, &found, &chosen);
        warnings.extend(failure.map(|error| error.to_string()));
        let is_hasty = memory.n_looks == 0 && !is_at_rest;
        memory.n_looks = memory.n_looks.saturating_add(1);
        memory.fingerprints = fingerprints;
        memory.checked = checked;
        memory.aspired.clone_from(&aspired);
        let warnings = memory.news(warnings);
        Ok(Look { aspired, is_empty: chosen.is_empty(), is_hasty, warnings })
    }

    /// The versions that are there. A listing can miss a folder that is renamed while it is read,
    /// under its old and its new name, so what is aspired is gone only if a second one says so too.
    fn find(&self, model: &ModelOptions, memory: &Memory) -> Result<Found, LoadError> {
        let list = || Ok(find(&self.source.list(&model.base_path)?));
        let found: Found = list()?;
        let is_there = |before: &Aspired| found.versions.contains_key(&before.version);
        if memory.aspired.iter().all(is_there) { Ok(found) } else { list() }
    }
}

impl Memory {
    /// The warnings, unless they were given at the look before.
    fn news(&mut self, warnings: Vec<String>) -> Vec<String> {
        if self.warnings == warnings {
            return Vec::new();
        }
        self.warnings.clone_from(&warnings);
        warnings
    }
}

/// One look in progress.
struct Eye<'a> {
    looker: &'a Looker,
    model: &'a ModelOptions,
    taken: &'a [i64],
    memory: &'a Memory,
    now: SystemTime,
    fingerprints: BTreeMap<i64, u64>,
    checked: Checked,
}

impl Eye<'_> {
    /// Up to `n` versions that are taken or at rest, the highest first; and why a version could not
    /// be looked at. For the policy `Latest`, older versions stand in for those not at rest.
    fn aspire(&mut self, found: &Found, n: usize) -> (Vec<Aspired>, Option<LoadError>) {
        let candidates = match &self.model.versions {
            VersionPolicy::Latest(_) => found.versions.keys().rev().copied().collect(),
            VersionPolicy::All | VersionPolicy::Specific(_) => {
                self.model.versions.choose(found.versions.keys().copied())
            }
        };
        let mut aspired = Vec::new();
        let mut failure = None;
        for version in candidates {
            if aspired.len() == n {
                break;
            }
            let base_path = self.model.base_path.trim_end_matches('/');
            let path = format!("{base_path}/{}", found.versions[&version]);
            match self.fingerprint(version, &path) {
                Ok(Some(fingerprint)) => aspired.push(Aspired { version, path, fingerprint }),
                Ok(None) => {}
                Err(error) => failure = Some(error),
            }
        }
        (aspired, failure)
    }

    /// The fingerprint of a version; `None` if it is not at rest.
    fn fingerprint(&mut self, version: i64, path: &str) -> Result<Option<u64>, LoadError> {
        if self.taken.contains(&version) {
            // Should it fail to load, its files are compared with those that were taken.
            let last = self.memory.fingerprints.get(&version);
            self.fingerprints.extend(last.map(|fingerprint| (version, *fingerprint)));
            let before = self.memory.aspired.iter().find(|before| before.version == version);
            return Ok(Some(before.map_or(0, |before| before.fingerprint)));
        }
        let tree = self.looker.source.tree(path)?;
        self.fingerprints.insert(version, tree.fingerprint);
        let is_same = self.memory.fingerprints.get(&version) == Some(&tree.fingerprint);
        let is_at_rest = is_same || self.looker.takes_all || self.is_complete(&tree);
        if is_at_rest && self.model.policy == Policy::ResourcePreserving && !self.taken.is_empty() {
            // The version that serves goes before this one is loaded.
            self.check(version, path, tree.fingerprint)?;
        }
        Ok(is_at_rest.then_some(tree.fingerprint))
    }

    /// Checks the files of a version, once for each fingerprint.
    fn check(&mut self, version: i64, path: &str, fingerprint: u64) -> Result<(), LoadError> {
        let before = self.memory.checked.get(&version).filter(|(seen, _)| *seen == fingerprint);
        let outcome = before.map_or_else(|| self.looker.source.check(path), |(_, it)| it.clone());
        // A disk that fails now may not fail at the next look.
        if !matches!(&outcome, Err(error) if error.status.code == Code::Unavailable) {
            self.checked.insert(version, (fingerprint, outcome.clone()));
        }
        outcome
    }

    /// Returns whether a version may be taken at the first look.
    fn is_complete(&self, tree: &Tree) -> bool {
        let has_marker = tree.names.iter().any(|name| self.looker.complete_with.contains(name));
        let rests_since = self.now.duration_since(tree.modified).unwrap_or_default();
        self.memory.n_looks == 0 && has_marker && rests_since >= self.looker.settle
    }
}

/// While versions that should be served are not at rest, those of the last look stay aspired, even
/// if their files are gone: there is nothing else to serve.
fn fill(aspired: &mut Vec<Aspired>, n: usize, memory: &Memory, taken: &[i64]) {
    for before in &memory.aspired {
        let is_there = aspired.iter().any(|aspired| aspired.version == before.version);
        if aspired.len() < n && !is_there && taken.contains(&before.version) {
            aspired.push(before.clone());
        }
    }
}

fn warnings(model: &ModelOptions, found: &Found, chosen: &[i64]) -> Vec<String> {
    let mut warnings = Vec::new();
    if !found.ignored.is_empty() {
        let ignored = found.ignored.join(", ");
        warnings.push(format!("ignored in {}: {ignored}", model.base_path));
    }
    if let VersionPolicy::Specific(wanted) = &model.versions {
        let missing: Vec<String> =
            wanted.iter().filter(|v| !chosen.contains(v)).map(ToString::to_string).collect();
        if !missing.is_empty() {
            let missing = missing.join(", ");
            warnings.push(format!("not found in {}: version {missing}", model.base_path));
        }
    }
    warnings
}

#[cfg(test)]
mod tests;
