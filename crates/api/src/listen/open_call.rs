//! `OpenCall`: a call of a client, from its head to the last byte of its answer.
//!
//! A call says whom it waits for: the client, as long as its request is coming; the server, from
//! then on until the answer is sent. A stream waits for nobody between its requests.

use parking_lot::Mutex;

use super::Client;

/// A call that is open until this is dropped.
#[derive(Debug)]
pub(crate) struct OpenCall {
    client: Client,
    phase: Mutex<CallPhase>,
}

/// The progress of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallPhase {
    /// The first request of the call is coming.
    Coming,
    /// So many requests of the call have come and are not answered.
    Running(usize),
    /// Nobody waits for the call, whatever comes of it.
    Quiet,
}

impl OpenCall {
    /// A call of which the head has come.
    pub(super) fn new(client: Client) -> Self {
        client.count(CallPhase::Quiet, CallPhase::Coming);
        Self { client, phase: Mutex::new(CallPhase::Coming) }
    }

    /// The client that calls.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// All of a request has come.
    pub(crate) fn has_come(&self) {
        self.change(|phase| match phase {
            CallPhase::Coming => CallPhase::Running(1),
            CallPhase::Running(n_requests) => CallPhase::Running(n_requests + 1),
            CallPhase::Quiet => CallPhase::Quiet,
        });
    }

    /// So many requests of a stream are answered.
    pub(crate) fn has_answered(&self, n_requests: usize) {
        self.change(|phase| match phase {
            CallPhase::Running(n_running) => {
                CallPhase::Running(n_running.saturating_sub(n_requests))
            }
            CallPhase::Coming | CallPhase::Quiet => phase,
        });
    }

    /// From now on nobody waits for the call: its client only listens.
    pub(crate) fn falls_quiet(&self) {
        self.change(|_| CallPhase::Quiet);
    }

    fn change(&self, change: impl FnOnce(CallPhase) -> CallPhase) {
        let mut phase = self.phase.lock();
        let (before, after) = (*phase, change(*phase));
        *phase = after;
        self.client.count(before, after);
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.falls_quiet();
    }
}
