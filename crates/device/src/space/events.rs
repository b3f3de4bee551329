//! The growths and releases of a space: how much, what for, and how long it took.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use metrics::Counts;

use crate::sync::Mutex;

/// A growth or a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// The bytes of the growth; below zero for a release.
    pub bytes: i64,
    /// The reason for it.
    pub cause: &'static str,
    /// The time it took.
    pub duration: Duration,
}

impl Event {
    /// Returns whether the event is worth a line of its own.
    pub fn is_large(&self) -> bool {
        self.bytes.unsigned_abs() >= EVENT_BYTES
    }
}

/// The growths and releases since somebody looked last. What is told one by one and what is summed
/// are all of them together, but for small ones, which are in the sums in any case.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recent {
    /// One by one: the first few hundred large ones, and as many small ones.
    pub events: Vec<Event>,
    /// Summed by kind and cause: small ones, and large ones for which there was no room.
    pub sums: Vec<EventSum>,
    /// The number of events that are only in the sums.
    pub n_summed: u64,
}

/// Events of one kind and cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventSum {
    /// The bytes of all growths; below zero for releases.
    pub bytes: i64,
    /// The reason for them.
    pub cause: &'static str,
    /// The number of events.
    pub n_events: u64,
    /// The time that the longest took.
    pub longest: Duration,
}

/// The direction of an event: memory taken from a device, or given back.
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
    /// The direction: taken or given back.
    pub change: Change,
    /// The reason for them.
    pub cause: &'static str,
    /// The number of bytes.
    pub bytes: u64,
    /// The durations, in microseconds.
    pub micros: Counts<9, 3>,
}

impl EventTotal {
    /// The number of events.
    pub fn n_events(&self) -> u64 {
        self.micros.n()
    }
}

/// The growths and releases of a space.
#[derive(Debug, Default)]
pub(super) struct Events(Mutex<Log>);

#[derive(Debug, Default)]
struct Log {
    totals: BTreeMap<(Change, &'static str), EventTotal>,
    large: Vec<Event>,
    small: Vec<Event>,
    sums: BTreeMap<(Change, &'static str), EventSum>,
    n_summed: u64,
}

/// The most large events that are kept one by one for readers, and the most small ones.
const N_EVENTS: usize = 256;

/// The fewest bytes of a large event.
const EVENT_BYTES: u64 = 1 << 20;

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

    /// Takes the events since the last call.
    pub(super) fn take(&self) -> Recent {
        let mut log = self.0.lock();
        let mut events = std::mem::take(&mut log.large);
        events.append(&mut log.small);
        let sums = std::mem::take(&mut log.sums).into_values().collect();
        Recent { events, sums, n_summed: std::mem::take(&mut log.n_summed) }
    }

    /// All events so far, by kind and cause.
    pub(super) fn totals(&self) -> Vec<EventTotal> {
        self.0.lock().totals.values().copied().collect()
    }

    /// The bytes that the log takes itself.
    pub(super) fn books_bytes(&self) -> usize {
        let log = self.0.lock();
        let key = size_of::<(Change, &str)>();
        let totals = log.totals.len() * (key + size_of::<EventTotal>());
        let sums = log.sums.len() * (key + size_of::<EventSum>());
        totals + sums + (log.large.capacity() + log.small.capacity()) * size_of::<Event>()
    }

    fn push(&self, change: Change, bytes: u64, cause: &'static str, duration: Duration) {
        let mut log = self.0.lock();
        let total = log.totals.entry((change, cause)).or_insert(EventTotal {
            change,
            cause,
            bytes: 0,
            micros: Counts::default(),
        });
        total.bytes = total.bytes.saturating_add(bytes);
        total.micros.add_time(duration);
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let bytes = if change == Change::Growth { bytes } else { -bytes };
        log.push(change, Event { bytes, cause, duration });
    }
}

impl Log {
    /// Keeps an event for whoever looks next, by itself or in a sum.
    fn push(&mut self, change: Change, event: Event) {
        let kept = if event.is_large() { &mut self.large } else { &mut self.small };
        let has_room = kept.len() < N_EVENTS;
        if has_room {
            kept.push(event);
        } else {
            self.n_summed += 1;
        }
        if has_room && event.is_large() {
            return;
        }
        let Event { bytes, cause, duration } = event;
        let sum = self.sums.entry((change, cause)).or_insert(EventSum {
            bytes: 0,
            cause,
            n_events: 0,
            longest: Duration::ZERO,
        });
        sum.bytes = sum.bytes.saturating_add(bytes);
        sum.n_events += 1;
        sum.longest = sum.longest.max(duration);
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
        let durations: Vec<(u64, u64)> = release.micros.filled().collect();
        assert_eq!(durations, [(1, 1), (64, 2), (1 << 21, 1)]);
        assert_eq!((release.bytes, release.n_events()), (20, 4));
        assert!((release.micros.mean() * 4.0 - 2_000_021.0).abs() < 1e-3);
        let bytes: Vec<i64> = events.take().events.iter().map(|event| event.bytes).collect();
        assert_eq!(bytes, [-5, -5, -5, -5, 2]);
        assert_eq!(events.take(), Recent::default());
    }

    #[test]
    fn no_event_is_lost_however_many_there_are() {
        let events = Events::default();
        let (large, small) = (EVENT_BYTES, EVENT_BYTES - 1);
        let n = N_EVENTS as u64 + 44;
        for number in 0..n {
            let duration = Duration::from_micros(number);
            events.push(Change::Growth, large, "weights", duration);
            events.released(small, "idle", duration);
        }
        let recent = events.take();
        assert_eq!((recent.events.len(), recent.n_summed), (2 * N_EVENTS, 2 * 44));
        let alone: u64 = recent
            .events
            .iter()
            .filter(|event| event.is_large())
            .map(|event| event.bytes.unsigned_abs())
            .sum();
        let longest = Duration::from_micros(n - 1);
        let sum = |cause, bytes: i64, n_events| EventSum { bytes, cause, n_events, longest };
        let rest = i64::try_from(n * large - alone).unwrap();
        let back = -i64::try_from(n * small).unwrap();
        assert_eq!(recent.sums, [sum("weights", rest, 44), sum("idle", back, n)]);
        let totals: Vec<(u64, u64)> =
            events.totals().iter().map(|total| (total.bytes, total.n_events())).collect();
        assert_eq!(totals, [(n * large, n), (n * small, n)]);
        assert_eq!(events.take(), Recent::default());
    }
}
