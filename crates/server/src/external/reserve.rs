//! What is reserved on the host for a model in workers, as far as its versions have not taken it:
//! nobody else gets it.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::{Category, Charge, Holder, Owner};
use parking_lot::Mutex;

/// What is reserved for a model. Its versions take it together.
pub(super) struct Reserve {
    model: Arc<str>,
    state: Mutex<State>,
}

struct State {
    /// All that is reserved.
    bytes: u64,
    n_parts: u64,
    parts: BTreeMap<Key, Taken>,
    /// What is left, in the books of the newest version.
    left: Option<(Key, Charge)>,
}

/// The number of a version, and of its part among all: a version that comes again may be there
/// before it has quite gone.
type Key = (i64, u64);

/// What a version has taken.
struct Taken {
    owner: Arc<Owner>,
    weights_bytes: u64,
    /// What its own worker holds beside.
    worker_bytes: u64,
}

/// The part of a version, which others have when it goes.
pub(super) struct Part {
    reserve: Arc<Reserve>,
    key: Key,
}

impl Reserve {
    /// Nothing reserved for a model so far.
    pub(super) fn new(model: &Arc<str>) -> Self {
        let state = State { bytes: 0, n_parts: 0, parts: BTreeMap::new(), left: None };
        Self { model: Arc::clone(model), state: Mutex::new(state) }
    }

    pub(super) fn model(&self) -> &str {
        &self.model
    }

    /// Reserves so many bytes in all, of which a version takes its weights and its own worker has
    /// taken some: this much is left for it. `Err` with what it should be if there is no room.
    pub(super) fn take(
        self: &Arc<Self>,
        bytes: u64,
        (version, owner): (i64, &Arc<Owner>),
        (weights_bytes, workers): (u64, &[(Holder, u64)]),
    ) -> Result<Part, u64> {
        let worker_bytes = self.taken_by(version, workers);
        let owner = Arc::clone(owner);
        let mut state = self.state.lock();
        let key = (version, state.n_parts);
        (state.bytes, state.n_parts) = (bytes, state.n_parts + 1);
        state.parts.insert(key, Taken { owner, weights_bytes, worker_bytes });
        let missed = state.settle();
        drop(state);
        // Dropped without room, the others have what they had.
        let part = Part { reserve: Arc::clone(self), key };
        missed.map_or(Ok(part), Err)
    }

    /// Lets workers have what they have taken by now, before it is booked as theirs.
    pub(super) fn leave(&self, workers: &[(Holder, u64)]) {
        let mut state = self.state.lock();
        for ((version, _), taken) in &mut state.parts {
            taken.worker_bytes = self.taken_by(*version, workers);
        }
        state.settle();
    }

    /// What a version's own worker holds beside its variables.
    fn taken_by(&self, version: i64, workers: &[(Holder, u64)]) -> u64 {
        let is_its = |holder: &Holder| match holder {
            Holder::Version { model, version: other } => {
                **model == *self.model && *other == version
            }
            Holder::Server | Holder::Shared => false,
        };
        workers.iter().filter(|(holder, _)| is_its(holder)).map(|(_, bytes)| bytes).sum()
    }
}

impl State {
    /// Books what is left; what it should be if there is no room for it.
    fn settle(&mut self) -> Option<u64> {
        let taken = self.parts.values().map(|one| one.weights_bytes + one.worker_bytes);
        let left = self.bytes.saturating_sub(taken.sum());
        let Some((newest, Taken { owner, .. })) = self.parts.last_key_value() else {
            self.left = None;
            return None;
        };
        if self.left.as_ref().is_none_or(|(key, _)| key != newest) {
            // The older one's goes first: both would be too much.
            self.left = None;
            let charge = Charge::new(owner, Category::Reserve, 0).expect("nothing always fits");
            self.left = Some((*newest, charge));
        }
        let (_, charge) = self.left.as_mut()?;
        (charge.set(left) < left).then_some(left)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let mut state = self.reserve.state.lock();
        state.parts.remove(&self.key);
        state.settle();
    }
}
