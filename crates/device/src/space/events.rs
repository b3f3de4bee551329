//! The growths and releases of a space: how much, what for, and how long it took.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use crate::sync::Mutex;

/// A growth or a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// By how much it grew; below zero, how much went back.
    pub bytes: i64,
    /// What for.
    pub cause: &'static str,
    /// How long it took.
    pub duration: Duration,
}

/// Whether memory was taken from a device, or given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// It was taken.
    Growth,
    /// It was given back.
    Release,
}

impl Change {
    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Change::Growth => "growth",
            Change::Release => "release",
        }
    }
}

/// All events of one kind and cause since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventTotal {
    /// Whether memory was taken or given back.
    pub change: Change,
    /// What for.
    pub cause: &'static str,
    /// How many bytes.
    pub bytes: u64,
    /// How long all of them took.
    pub duration: Duration,
    /// How many took no longer than each of [`EVENT_MICROS`], each counted once; the last, longer.
    pub counts: [u64; EVENT_MICROS.len() + 1],
}

impl EventTotal {
    /// How many events.
    pub fn n_events(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// The durations by which events are counted, in microseconds.
pub const EVENT_MICROS: [f64; 9] =
    [1.0, 10.0, 50.0, 100.0, 500.0, 1_000.0, 10_000.0, 100_000.0, 1_000_000.0];

/// The growths and releases of a space.
#[derive(Debug, Default)]
pub(super) struct Events(Mutex<Log>);

#[derive(Debug, Default)]
struct Log {
    totals: BTreeMap<(Change, &'static str), EventTotal>,
    recent: VecDeque<Event>,
}

/// How many events are kept for whoever asks.
const N_EVENTS: usize = 256;

impl Events {
    /// Notes a change of what is held, if there was one.
    pub(super) fn changed(&self, before: u64, after: u64, cause: &'static str, start: Instant) {
        if after > before {
            self.push(Change::Growth, after - before, cause, start.elapsed());
        } else {
            self.released(before - after, cause, start.elapsed());
        }
    }

    /// Notes that memory went back, if any did.
    pub(super) fn released(&self, bytes: u64, cause: &'static str, duration: Duration) {
        if bytes > 0 {
            self.push(Change::Release, bytes, cause, duration);
        }
    }

    /// Takes the events since the last call, at most the last few hundred.
    pub(super) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.0.lock().recent).into()
    }

    /// All events so far, by kind and cause.
    pub(super) fn totals(&self) -> Vec<EventTotal> {
        self.0.lock().totals.values().copied().collect()
    }

    /// What the log takes itself.
    pub(super) fn books_bytes(&self) -> usize {
        let log = self.0.lock();
        let total = size_of::<(Change, &str)>() + size_of::<EventTotal>();
        log.totals.len() * total + log.recent.capacity() * size_of::<Event>()
    }

    fn push(&self, change: Change, bytes: u64, cause: &'static str, duration: Duration) {
        let mut log = self.0.lock();
        let counts = [0; EVENT_MICROS.len() + 1];
        let total = log.totals.entry((change, cause)).or_insert(EventTotal {
            change,
            cause,
            bytes: 0,
            duration: Duration::ZERO,
            counts,
        });
        total.bytes = total.bytes.saturating_add(bytes);
        total.duration = total.duration.saturating_add(duration);
        let micros = duration.as_secs_f64() * 1e6;
        total.counts[EVENT_MICROS.partition_point(|limit| *limit < micros)] += 1;
        if log.recent.len() == N_EVENTS {
            log.recent.pop_front();
        }
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let bytes = if change == Change::Growth { bytes } else { -bytes };
        log.recent.push_back(Event { bytes, cause, duration });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_counted_by_cause_and_duration() {
        let events = Events::default();
        for micros in [0, 10, 11, 2_000_000] {
            events.released(5, "idle", Duration::from_micros(micros));
        }
        events.released(0, "idle", Duration::ZERO);
        events.changed(7, 7, "weights", Instant::now());
        events.changed(7, 9, "weights", Instant::now());
        let [growth, release] = events.totals()[..] else { panic!("{:?}", events.totals()) };
        assert_eq!((growth.change, growth.cause, growth.bytes), (Change::Growth, "weights", 2));
        assert_eq!(release.counts, [1, 1, 1, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!((release.bytes, release.n_events()), (20, 4));
        assert_eq!(release.duration, Duration::from_micros(2_000_021));
        let bytes: Vec<i64> = events.take().iter().map(|event| event.bytes).collect();
        assert_eq!(bytes, [-5, -5, -5, -5, 2]);
        assert!(events.take().is_empty());
    }
}
