//! The versions that are placed: their files, the engines that serve them, and those who wait for
//! them to go.

use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use session::Replicas;
use storage::Storage;
use tokio::sync::Notify;

/// A version on devices, or one that looks for a place.
pub(crate) type Resident = placement::Resident<ServedVersion>;

/// One change of where a version is.
pub(crate) type Change = placement::Change<ServedVersion>;

/// The way in which a version gets its place.
pub(crate) type Way<T> = placement::Way<ServedVersion, T>;

/// The files of a version, and the engines that serve it once it is loaded.
pub(crate) struct ServedVersion {
    /// The folder of its files.
    pub(crate) dir: Storage,
    /// The same folder, as metrics name it.
    pub(crate) path: String,
    replicas: OnceLock<Weak<Replicas>>,
    left: Arc<Left>,
}

impl ServedVersion {
    /// A version that is not loaded yet. `left` is told when it is gone.
    pub(crate) fn new(dir: Storage, path: &str, left: &Arc<Left>) -> Self {
        let (path, left) = (path.to_owned(), Arc::clone(left));
        Self { dir, path, replicas: OnceLock::new(), left }
    }

    /// The engines that serve it, if it is loaded.
    pub(crate) fn replicas(&self) -> Option<Arc<Replicas>> {
        self.replicas.get().and_then(Weak::upgrade)
    }
}

impl placement::Version for ServedVersion {
    fn serves_on(&self) -> Option<Vec<String>> {
        self.replicas().map(|replicas| replicas.devices())
    }
}

impl Drop for ServedVersion {
    fn drop(&mut self) {
        self.left.tell();
    }
}

/// Says which engines serve a version from now on.
pub(crate) fn serve(resident: &Resident, replicas: &Arc<Replicas>) {
    // A version is loaded once.
    drop(resident.payload.replicas.set(Arc::downgrade(replicas)));
    resident.forget_all();
}

/// A signal for those who wait for versions to go, or for anything else that changes where versions
/// should be.
#[derive(Default)]
pub(crate) struct Left {
    lock: Mutex<()>,
    gone: Condvar,
    /// For the task that brings versions to where they should be.
    pub(crate) changed: Notify,
}

/// The pause between two looks of one that waits.
const LOOK_EVERY: Duration = Duration::from_millis(20);

impl Left {
    fn tell(&self) {
        let _lock = self.lock.lock();
        self.gone.notify_all();
        self.changed.notify_one();
    }

    /// Waits a moment for something to change.
    pub(crate) fn pause(&self) {
        let mut lock = self.lock.lock();
        self.gone.wait_for(&mut lock, LOOK_EVERY);
    }

    /// Waits until a version is gone; whether it is, before `until` and before `gives_up`.
    pub(crate) fn wait(
        &self,
        resident: &Weak<Resident>,
        until: Instant,
        gives_up: impl Fn() -> bool,
    ) -> bool {
        let mut lock = self.lock.lock();
        while resident.strong_count() > 0 {
            if Instant::now() > until || gives_up() {
                return false;
            }
            self.gone.wait_for(&mut lock, LOOK_EVERY);
        }
        true
    }
}
