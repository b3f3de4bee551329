//! `Resident`: a version that is on devices, is being loaded on some, or waits for a place.

use std::ops::Deref;
use std::sync::{Arc, Weak};

use crate::claim::{Claim, Demand};

/// A version, as far as placement has to know what it is.
pub trait Version {
    /// The devices that it serves on; `None` if it is not loaded.
    fn serves_on(&self) -> Option<Vec<String>>;
}

/// A version that is on devices, is being loaded on some, or waits for a place, until it is
/// dropped.
pub struct Resident<V> {
    claim: Arc<Claim>,
    /// The version itself.
    pub payload: V,
}

impl<V> Resident<V> {
    pub(crate) fn new(claim: Arc<Claim>, payload: V) -> Self {
        Self { claim, payload }
    }

    /// The model's name.
    pub fn model(&self) -> &Arc<str> {
        &self.demand.model
    }

    /// The version's number.
    pub fn version(&self) -> i64 {
        self.demand.version
    }

    /// The version's demand.
    pub fn demand(&self) -> &Demand {
        &self.demand
    }
}

impl<V> Deref for Resident<V> {
    type Target = Claim;

    fn deref(&self) -> &Claim {
        &self.claim
    }
}

/// One change of where a version is.
pub struct Change<V> {
    /// The version.
    pub resident: Weak<Resident<V>>,
    /// The device's name.
    pub device: String,
    /// The kind of the change: the version comes or goes.
    pub kind: ChangeKind,
}

/// The kinds of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// One more replica.
    Add,
    /// One less, of several.
    Remove,
    /// The only one less: it yields to one of a higher priority.
    GiveWay,
}

/// The way in which a version gets its place.
pub enum Way<V, T> {
    /// The place is free.
    Free(T),
    /// Others have to move or to go first.
    After(Vec<Change<V>>),
    /// Others have to move that are being loaded: they can when they are.
    Later,
}
