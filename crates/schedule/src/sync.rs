//! The locks and threads that [`Lanes`](crate::Lanes) are made of. `shuttled.rs` has others in
//! their place, that try out the orders in which threads may run.

pub(crate) use std::thread::JoinHandle;

pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};

/// Starts a thread. Fails if the system refuses it.
pub(crate) fn spawn(
    name: String,
    body: impl FnOnce() + Send + 'static,
) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name).spawn(|| {
        heap::share();
        body();
    })
}

/// Returns whether `thread` is the thread that asks.
pub(crate) fn is_own(thread: &JoinHandle<()>) -> bool {
    thread.thread().id() == std::thread::current().id()
}

/// Returns whether a thread has ended.
pub(crate) fn is_finished(thread: &JoinHandle<()>) -> bool {
    thread.is_finished()
}
