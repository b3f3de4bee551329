//! `Slots`: how many connections may be open, and which of them is closed for the next when all
//! slots are taken.
//!
//! Each connection has a [`Client`], which says whether the server waits for it. A connection
//! whose client has owed the rest of a request for the longest is closed first; if there is none,
//! the one that has been idle for the longest. Connections with a request under way stay.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::cut::Cut;

/// A client that the server has waited for no longer than this keeps its connection.
const WAIT_MIN: Duration = Duration::from_secs(1);

/// The interval at which a connection that finds no slot looks for one that can be closed.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The slots of a listener.
#[derive(Debug)]
pub(super) struct Slots {
    free: Arc<Semaphore>,
    open: Mutex<Vec<Weak<Seen>>>,
    /// Times are counted from here.
    start: Instant,
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
    /// The time of the last change in milliseconds, and below it the [`Wait`].
    state: AtomicU64,
    start: Instant,
    cut: Cut,
}

/// The reason why the server waits for a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Wait {
    /// A request is on its way, or the first is to come.
    Request = 0,
    /// Nothing is asked.
    Idle = 1,
    /// The server does not wait: it works on a request.
    None = 2,
}

/// The bits of a [`Wait`].
const WAIT_BITS: u32 = 2;

impl Slots {
    pub(super) fn new(connections_max: usize) -> Self {
        let free = Arc::new(Semaphore::new(connections_max));
        Self { free, open: Mutex::default(), start: Instant::now() }
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
        let client = Client::new(self.start);
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
        let latest = self.start.elapsed().checked_sub(WAIT_MIN)?;
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
    fn new(start: Instant) -> Self {
        let seen = Seen { state: AtomicU64::new(0), start, cut: Cut::default() };
        let client = Self { seen: Arc::new(seen) };
        client.set(Wait::Request);
        client
    }

    /// A request has begun to come.
    pub(crate) fn asks(&self) {
        self.set(Wait::Request);
    }

    /// All of a request has come.
    pub(crate) fn has_asked(&self) {
        self.set(Wait::None);
    }

    /// The request is answered.
    pub(crate) fn is_idle(&self) {
        self.set(Wait::Idle);
    }

    /// Ends the connection.
    pub(crate) fn cut(&self) -> &Cut {
        &self.seen.cut
    }

    fn set(&self, wait: Wait) {
        let since = u64::try_from(self.seen.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.seen.state.store(since << WAIT_BITS | wait as u64, Ordering::Relaxed);
    }
}

impl Seen {
    /// Returns why the client is waited for, and since when.
    fn read(&self) -> (Wait, Duration) {
        let state = self.state.load(Ordering::Relaxed);
        let wait = match state & ((1 << WAIT_BITS) - 1) {
            0 => Wait::Request,
            1 => Wait::Idle,
            _ => Wait::None,
        };
        (wait, Duration::from_millis(state >> WAIT_BITS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes time, of which tests have as much as they like.
    async fn pass(seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
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
        idle.is_idle();
        working.has_asked();
        slower.asks();
        pass(1).await;
        slow.asks();
        pass(5).await;
        let mut open: Vec<Option<Slot>> = open.into_iter().map(Some).collect();
        for expected in [3, 2, 0] {
            assert!(slots.try_take().is_none());
            let close = async {
                while !open[expected].as_ref().is_some_and(is_cut) {
                    pass(1).await;
                }
                open[expected] = None;
            };
            let (next, ()) = tokio::join!(slots.take(), close);
            next.client.has_asked();
            open.push(Some(next));
        }
        assert!(!open.iter().flatten().any(is_cut), "a request under way stays");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_closed_while_the_server_works_on_all_requests() {
        let slots = Slots::new(2);
        let open = [slots.take().await, slots.take().await];
        open.iter().for_each(|slot| slot.client.has_asked());
        let waited = tokio::time::timeout(Duration::from_secs(60), slots.take()).await;
        assert!(waited.is_err() && !open.iter().any(is_cut));
        drop(open);
        slots.take().await;
    }
}
