//! `Reserve`: the memory that is reserved on the host for a model in workers, as far as its
//! versions have not taken it. Nobody else gets it.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::{Category, Charge, Holder, Owner};
use parking_lot::Mutex;

/// The memory that is reserved for a model. Its versions take it together.
pub(super) struct Reserve {
    model: Arc<str>,
    balance: Mutex<Balance>,
}

struct Balance {
    /// All bytes that are reserved.
    bytes: u64,
    n_parts: u64,
    parts: BTreeMap<ReserveKey, Drawn>,
    /// The rest, in the books of the newest version.
    left: Option<(ReserveKey, Charge)>,
}

/// The number of a version, and of its part among all: a version that comes again may be there
/// before it has quite gone.
type ReserveKey = (i64, u64);

/// The bytes that a version has taken.
pub(super) struct Drawn {
    pub(super) owner: Arc<Owner>,
    pub(super) weights_bytes: u64,
    /// The bytes that its own worker holds beside.
    pub(super) worker_bytes: u64,
}

/// The part of a version, which others have when it goes.
pub(super) struct ReservePart {
    reserve: Arc<Reserve>,
    key: ReserveKey,
}

impl Reserve {
    /// Nothing reserved for a model so far.
    pub(super) fn new(model: &Arc<str>) -> Self {
        let balance = Balance { bytes: 0, n_parts: 0, parts: BTreeMap::new(), left: None };
        Self { model: Arc::clone(model), balance: Mutex::new(balance) }
    }

    pub(super) fn model(&self) -> &str {
        &self.model
    }

    /// Reserves so many bytes in all, of which a version takes its weights and its own worker has
    /// taken some. Gives the version's part; `Err` with the bytes that should be left if there is
    /// no room for them.
    pub(super) fn take(
        self: &Arc<Self>,
        bytes: u64,
        version: i64,
        drawn: Drawn,
    ) -> Result<ReservePart, u64> {
        let mut balance = self.balance.lock();
        let key = (version, balance.n_parts);
        (balance.bytes, balance.n_parts) = (bytes, balance.n_parts + 1);
        balance.parts.insert(key, drawn);
        let missed = balance.settle();
        drop(balance);
        // Dropped without room, the others have what they had.
        let part = ReservePart { reserve: Arc::clone(self), key };
        missed.map_or(Ok(part), Err)
    }

    /// Lets workers have what they have taken by now, before it is booked as theirs.
    pub(super) fn leave(&self, workers: &[(Holder, u64)]) {
        let mut balance = self.balance.lock();
        for ((version, _), taken) in &mut balance.parts {
            taken.worker_bytes = self.taken_by(*version, workers);
        }
        balance.settle();
    }

    /// The bytes that a version's own worker holds beside its variables.
    pub(super) fn taken_by(&self, version: i64, workers: &[(Holder, u64)]) -> u64 {
        let is_its = |holder: &Holder| match holder {
            Holder::Version { model, version: other } => {
                **model == *self.model && *other == version
            }
            Holder::Server | Holder::Shared => false,
        };
        workers.iter().filter(|(holder, _)| is_its(holder)).map(|(_, bytes)| bytes).sum()
    }
}

impl Balance {
    /// Books the rest; gives the bytes that it should be if there is no room for them.
    fn settle(&mut self) -> Option<u64> {
        let taken = self.parts.values().map(|one| one.weights_bytes + one.worker_bytes);
        let left = self.bytes.saturating_sub(taken.sum());
        let Some((newest, Drawn { owner, .. })) = self.parts.last_key_value() else {
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

impl Drop for ReservePart {
    fn drop(&mut self) {
        let mut balance = self.reserve.balance.lock();
        balance.parts.remove(&self.key);
        balance.settle();
    }
}
