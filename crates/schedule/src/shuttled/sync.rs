//! Shuttle's locks and threads, with the calls that lanes make.

use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

pub(crate) use shuttle::thread::JoinHandle;

#[derive(Debug)]
pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

pub(crate) struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    /// Gone only while it is unlocked.
    inner: Option<shuttle::sync::MutexGuard<'a, T>>,
}

#[derive(Debug)]
pub(crate) struct Condvar(shuttle::sync::Condvar);

/// A wait never times out.
pub(crate) struct Waited;

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(shuttle::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { mutex: self, inner: Some(self.0.lock().expect("no panic")) }
    }
}

impl<'a, T> MutexGuard<'a, T> {
    pub(crate) fn unlocked<R>(guard: &mut Self, body: impl FnOnce() -> R) -> R {
        guard.inner = None;
        let result = body();
        guard.inner = Some(guard.mutex.0.lock().expect("no panic"));
        result
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.inner.as_ref().expect("only a wait takes it")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inner.as_mut().expect("only a wait takes it")
    }
}

impl Condvar {
    pub(crate) fn new() -> Self {
        Self(shuttle::sync::Condvar::new())
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }

    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let inner = guard.inner.take().expect("only a wait takes it");
        guard.inner = Some(self.0.wait(inner).expect("no panic"));
    }

    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: Duration) -> Waited {
        self.wait(guard);
        Waited
    }

    pub(crate) fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, _: Instant) -> Waited {
        self.wait(guard);
        Waited
    }
}

impl Waited {
    #[expect(clippy::unused_self, reason = "it is asked as its model is")]
    pub(crate) fn timed_out(&self) -> bool {
        false
    }
}

#[expect(clippy::unnecessary_wraps, reason = "the system may refuse a thread, shuttle does not")]
pub(crate) fn spawn(
    _: String,
    body: impl FnOnce() + Send + 'static,
) -> std::io::Result<JoinHandle<()>> {
    Ok(shuttle::thread::spawn(body))
}

/// Returns whether `thread` is the thread that asks.
pub(crate) fn is_own(thread: &JoinHandle<()>) -> bool {
    thread.thread().id() == shuttle::thread::current().id()
}

/// Returns whether a thread has ended, which shuttle does not tell.
pub(crate) fn is_finished(_: &JoinHandle<()>) -> bool {
    false
}
