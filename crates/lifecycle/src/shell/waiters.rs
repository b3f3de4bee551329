//! Callers who wait for new models to be available.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::error::{Error, LoadError, Unavailable};
use crate::machine::Machine;

#[derive(Default)]
pub(super) struct Waiters {
    waiters: Vec<Waiter>,
}

struct Waiter {
    /// Those of which nothing is known yet.
    open: BTreeSet<Arc<str>>,
    failures: Vec<(String, Option<i64>, LoadError)>,
    is_first: bool,
    reply: oneshot::Sender<Result<(), Error>>,
}

impl Waiters {
    /// Waits for these models to be available or to fail.
    pub(super) fn add(
        &mut self,
        open: BTreeSet<Arc<str>>,
        is_first: bool,
    ) -> oneshot::Receiver<Result<(), Error>> {
        let (reply, answer) = oneshot::channel();
        self.waiters.push(Waiter { open, failures: Vec::new(), is_first, reply });
        answer
    }

    /// Answers those who need not wait any longer, and forgets those who left.
    pub(super) fn answer(&mut self, machine: &Machine) {
        for mut waiter in std::mem::take(&mut self.waiters) {
            waiter.update(machine);
            if waiter.open.is_empty() {
                waiter.finish();
            } else if !waiter.reply.is_closed() {
                self.waiters.push(waiter);
            }
        }
    }
}

impl Waiter {
    fn update(&mut self, machine: &Machine) {
        let failures = &mut self.failures;
        self.open.retain(|name| {
            // A later configuration may have dropped the model: then there is nothing to wait for.
            if machine.options(name).is_none() {
                return false;
            }
            match machine.outcome(name) {
                None => return true,
                Some(Ok(_)) => {}
                Some(Err((version, error))) => failures.push((name.to_string(), version, error)),
            }
            false
        });
    }

    fn finish(self) {
        let Waiter { failures, is_first, reply, .. } = self;
        // The caller may be gone.
        drop(reply.send(match failures.is_empty() {
            true => Ok(()),
            false => Err(Error::Unavailable(Unavailable { is_first, failures })),
        }));
    }
}
