//! Jobs beside the task: loads, frees and looks, each on a bounded number of threads.

use std::sync::Arc;
use std::time::SystemTime;

use status::Code;
use tokio::sync::Semaphore;
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::timeout;

use super::views::Looked;
use super::{Attempt, Loader, Mail, Shell};
use crate::error::LoadError;
use crate::handle::Id;

impl<L: Loader> Shell<L> {
    /// Loads a version once there is a thread for it.
    pub(super) fn start_load(&mut self, id: Id, path: String) {
        let attempt = Attempt::default();
        let before = self.attempts.insert(id.clone(), attempt.clone());
        assert!(before.is_none(), "a version is loaded once at a time");
        let (loader, loads) = (Arc::clone(&self.loader), Arc::clone(&self.loads));
        self.models.begin_load(&id, &attempt.headway);
        let mail = self.mail.clone();
        tokio::spawn(async move {
            let outcome = load(loader, loads, id.clone(), path, attempt).await;
            // The task outlives its jobs, unless the whole runtime ends.
            drop(mail.send(match outcome {
                Ok(servable) => Mail::Loaded(id, servable),
                Err(error) => Mail::LoadFailed(id, error),
            }));
        });
    }

    /// Frees a servable whose last handle is gone, once there is a thread for it.
    pub(super) fn start_free(&mut self, id: Id, servable: L::Servable) {
        let (mail, unloads) = (self.mail.clone(), Arc::clone(&self.unloads));
        tokio::spawn(async move {
            let permit = unloads.acquire().await.expect("the semaphore is never closed");
            // A servable that panics when it is dropped is gone all the same.
            drop(spawn_blocking(move || drop(servable)).await);
            drop(permit);
            drop(mail.send(Mail::Freed(id)));
        });
    }

    /// Looks at a model, unless a look at it is in progress.
    pub(super) fn start_look(&mut self, model: &Arc<str>) {
        let Some((glance, mut memory)) = self.views.begin(model) else { return };
        let taken = self.machine.taken(model);
        let (looker, looks) = (self.views.looker(), self.views.permits());
        let mail = self.mail.clone();
        let limit = self.options.look_timeout;
        tokio::spawn(async move {
            let permit = looks.acquire().await.expect("the semaphore is never closed");
            let seen = Arc::clone(&glance.options);
            let mut job = spawn_blocking(move || {
                let found = looker.look(&seen, &taken, &mut memory, SystemTime::now());
                (found, memory)
            });
            let outcome = match timeout(limit, &mut job).await {
                Ok(outcome) => outcome,
                Err(_) => {
                    // It may hang for ever on a dead file system; others must not wait for it.
                    drop(permit);
                    let (model, number) = (Arc::clone(&glance.model), glance.number);
                    drop(mail.send(Mail::LookLate { model, number, limit }));
                    job.await
                }
            };
            let (found, memory) = outcome
                .unwrap_or_else(|error| (Err(broken("the source", &error)), Default::default()));
            drop(mail.send(Mail::Looked(Looked { glance, memory, found })));
        });
    }
}

async fn load<L: Loader>(
    loader: Arc<L>,
    loads: Arc<Semaphore>,
    id: Id,
    path: String,
    attempt: Attempt,
) -> Result<L::Servable, LoadError> {
    let permit = tokio::select! {
        biased;
        () = attempt.cancel.cancelled() => None,
        permit = loads.acquire() => permit.ok(),
    };
    let Some(_permit) = permit else {
        return Err(LoadError::new(Code::Cancelled, "no longer wanted"));
    };
    let job = move || loader.load(&id.model, id.version, &path, &attempt);
    spawn_blocking(job).await.unwrap_or_else(|error| Err(broken("the loader", &error)))
}

/// A panic is a bug of the one who panicked, and fails only what was asked of it.
fn broken(who: &str, error: &JoinError) -> LoadError {
    LoadError::new(Code::Internal, format!("{who} panicked: {error}"))
}
