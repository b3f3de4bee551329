//! `Arriving`: gives up a message of which the rest comes too slowly.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::time::{Instant, Sleep};

use crate::arrival::{Arrival, ArrivalLimits, TooSlow};

/// The message that is coming. Most come whole, and need no timer.
#[derive(Debug)]
pub(super) struct Arriving {
    limits: ArrivalLimits,
    message: Option<Arrival>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Arriving {
    pub(super) fn new(limits: ArrivalLimits) -> Self {
        Self { limits, message: None, timer: None }
    }

    /// Takes note of bytes that came. A message that was under way goes on with them; else the next
    /// begins.
    pub(super) fn came(&mut self, n_bytes: usize, is_under_way: bool) {
        if !is_under_way {
            self.message = None;
        } else if let Some(message) = &mut self.message {
            message.came(n_bytes, Instant::now());
        }
    }

    /// Waits until the message is given up.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<TooSlow> {
        let limits = self.limits;
        let message = self.message.get_or_insert_with(|| Arrival::new(limits, Instant::now()));
        let (end, too_slow) = message.end();
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(end)));
        if timer.deadline() != end {
            timer.as_mut().reset(end);
        }
        ready!(timer.as_mut().poll(context));
        Poll::Ready(too_slow)
    }
}
