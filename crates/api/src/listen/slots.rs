//! `Slots`: how many connections may be open, and which of them is closed for the next when all
//! slots are taken.
//!
//! Each connection has a [`Client`], which says whether the server waits for it. A connection
//! whose client has owed the rest of a request for the longest is closed first; if there is none,
//! the one that has been idle for the longest. Connections with a request under way, or with an
//! answer that is not sent, stay.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::cut::Cut;
use super::open_call::{CallPhase, OpenCall};

/// A client that the server has waited for no longer than this keeps its connection.
const WAIT_MIN: Duration = Duration::from_secs(1);

/// The interval at which a connection that finds no slot looks for one that can be closed.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The slots of a listener.
#[derive(Debug)]
pub(super) struct Slots {
    free: Arc<Semaphore>,
    open: Mutex<Vec<Weak<Seen>>>,
}

/// A slot that is taken until it is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) client: Client,
    _permit: OwnedSemaphorePermit,
}

/// The client of a connection, as far as the server waits for it. Clones are of the same one.
#[derive(Debug, Clone)]
pub struct Client {
    seen: Arc<Seen>,
}

#[derive(Debug)]
struct Seen {
    calls: Mutex<CallCounts>,
    cut: Cut,
}

/// The open calls of a client, and why the server waits for it.
#[derive(Debug)]
struct CallCounts {
    /// The number of calls of which the request is coming.
    n_coming: usize,
    /// The number of calls that the server works on, or whose answers are not sent.
    n_running: usize,
    wait: Wait,
    since: Instant,
}

/// The reason why the server waits for a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Wait {
    /// A request is on its way, or the first is to come.
    Request,
    /// Nothing is asked.
    Idle,
    /// The server does not wait: it works on a request.
    None,
}

impl Slots {
    pub(super) fn new(connections_max: usize) -> Self {
        let free = Arc::new(Semaphore::new(connections_max));
        Self { free, open: Mutex::default() }
    }

    /// Takes a slot. While there is none, clients that are waited for are given up, one at a time.
    pub(super) async fn take(&self) -> Slot {
        let mut given_up = None;
        loop {
            if let Some(slot) = self.try_take() {
                return slot;
            }
            // One that is on its way out frees its slot soon.
            if given_up.as_ref().is_none_or(|seen: &Weak<Seen>| seen.strong_count() == 0) {
                given_up = self.give_up_one();
            }
            let free = Arc::clone(&self.free).acquire_owned();
            if let Ok(permit) = tokio::time::timeout(LOOK_INTERVAL, free).await {
                return self.slot(permit.expect("nobody closes the semaphore"));
            }
        }
    }

    /// Takes a slot if there is one.
    pub(super) fn try_take(&self) -> Option<Slot> {
        Arc::clone(&self.free).try_acquire_owned().ok().map(|permit| self.slot(permit))
    }

    fn slot(&self, permit: OwnedSemaphorePermit) -> Slot {
        let client = Client::new();
        let mut open = self.open.lock();
        // Those that are gone are forgotten when there are as many as can be open.
        if open.len() == open.capacity() {
            open.retain(|seen| seen.strong_count() > 0);
        }
        open.push(Arc::downgrade(&client.seen));
        Slot { client, _permit: permit }
    }

    /// Closes the connection whose client is to go first, if one may.
    fn give_up_one(&self) -> Option<Weak<Seen>> {
        let latest = Instant::now().checked_sub(WAIT_MIN)?;
        let mut open = self.open.lock();
        open.retain(|seen| seen.strong_count() > 0);
        let first = open.iter().enumerate().filter_map(|(place, seen)| {
            let (wait, since) = seen.upgrade()?.read();
            (wait != Wait::None && since <= latest).then_some(((wait, since), place))
        });
        let (_, place) = first.min()?;
        let seen = open.swap_remove(place);
        drop(open);
        if let Some(seen) = seen.upgrade() {
            tracing::debug!("all connections are taken: one that was waited for is closed");
            seen.cut.cut();
        }
        Some(seen)
    }
}

impl Client {
    /// A client whose first request is to come.
    fn new() -> Self {
        let (wait, since) = (Wait::Request, Instant::now());
        let calls = Mutex::new(CallCounts { n_coming: 0, n_running: 0, wait, since });
        Self { seen: Arc::new(Seen { calls, cut: Cut::default() }) }
    }

    /// A call of which the head has come. The connection is idle when the last call is dropped.
    pub(crate) fn open(&self) -> Arc<OpenCall> {
        Arc::new(OpenCall::new(self.clone()))
    }

    /// Ends the connection.
    pub(crate) fn cut(&self) -> &Cut {
        &self.seen.cut
    }

    /// Takes note of a call that gets on.
    pub(super) fn count(&self, before: CallPhase, after: CallPhase) {
        if before == after {
            return;
        }
        let mut calls = self.seen.calls.lock();
        if let Some(count) = calls.count_of(before) {
            *count -= 1;
        }
        if let Some(count) = calls.count_of(after) {
            *count += 1;
        }
        let wait = match &*calls {
            CallCounts { n_running: 1.., .. } => Wait::None,
            CallCounts { n_coming: 1.., .. } => Wait::Request,
            CallCounts { .. } => Wait::Idle,
        };
        if wait != calls.wait {
            (calls.wait, calls.since) = (wait, Instant::now());
        }
    }
}

impl CallCounts {
    /// The count that a call in this phase is in.
    fn count_of(&mut self, phase: CallPhase) -> Option<&mut usize> {
        match phase {
            CallPhase::Coming => Some(&mut self.n_coming),
            CallPhase::Running(1..) => Some(&mut self.n_running),
            CallPhase::Running(0) | CallPhase::Quiet => None,
        }
    }
}

impl Seen {
    /// Returns why the client is waited for, and since when.
    fn read(&self) -> (Wait, Instant) {
        let calls = self.calls.lock();
        (calls.wait, calls.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes time, of which tests have as much as they like.
    async fn pass(seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    /// A call whose request has come.
    fn running(client: &Client) -> Arc<OpenCall> {
        let call = client.open();
        call.has_come();
        call
    }

    fn is_cut(slot: &Slot) -> bool {
        slot.client.cut().is_cut()
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_slow_client_goes_first_then_the_one_that_is_idle_for_the_longest() {
        let slots = Slots::new(4);
        let mut open = Vec::new();
        for _ in 0..4 {
            open.push(slots.take().await);
            pass(1).await;
        }
        let [idle, working, slow, slower] = [0, 1, 2, 3].map(|n| open[n].client.clone());
        drop(idle.open());
        let working = working.open();
        working.has_come();
        let _slower = slower.open();
        pass(1).await;
        drop(slow.open());
        let _slow = slow.open();
        pass(5).await;
        let mut open: Vec<Option<Slot>> = open.into_iter().map(Some).collect();
        let mut calls = vec![working];
        for expected in [3, 2, 0] {
            assert!(slots.try_take().is_none());
            let close = async {
                while !open[expected].as_ref().is_some_and(is_cut) {
                    pass(1).await;
                }
                open[expected] = None;
            };
            let (next, ()) = tokio::join!(slots.take(), close);
            calls.push(running(&next.client));
            open.push(Some(next));
        }
        assert!(!open.iter().flatten().any(is_cut), "a request under way stays");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_closed_while_the_server_works_on_all_requests() {
        let slots = Slots::new(2);
        let open = [slots.take().await, slots.take().await];
        let _calls = [0, 1].map(|place: usize| running(&open[place].client));
        let waited = tokio::time::timeout(Duration::from_secs(60), slots.take()).await;
        assert!(waited.is_err() && !open.iter().any(is_cut));
        drop(open);
        slots.take().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_when_its_last_call_is_over_or_waits_for_nobody() {
        let client = Client::new();
        let wait = || client.seen.read().0;
        assert_eq!(wait(), Wait::Request);
        let (first, second) = (running(&client), client.open());
        assert_eq!(wait(), Wait::None);
        drop(first);
        assert_eq!(wait(), Wait::Request);
        // A stream between its requests.
        second.has_come();
        second.has_come();
        second.has_answered(1);
        assert_eq!(wait(), Wait::None);
        second.has_answered(1);
        assert_eq!(wait(), Wait::Idle);
        second.has_come();
        assert_eq!(wait(), Wait::None);
        second.falls_quiet();
        second.has_come();
        assert_eq!(wait(), Wait::Idle);
        drop(second);
        assert_eq!(wait(), Wait::Idle);
    }
}
