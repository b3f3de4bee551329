//! `Kind`: the waiting tasks of one class, in the order in which they leave.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::options::{MixedPriority, Options, Order};
use crate::queue::{Arrival, Piece, Ready, Reason};
use crate::rows::Class;
use crate::time::Time;

/// A task's place in the order: smaller leaves first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    at: Time,
    number: u64,
}

/// A waiting task.
#[derive(Debug)]
pub(crate) struct Entry<T> {
    pub(crate) task: Arc<T>,
    pub(crate) n_rows: usize,
    /// The number of its rows that have left already.
    pub(crate) n_gone: usize,
    pub(crate) level: usize,
    pub(crate) arrived: Time,
    /// The time at which the task is taken out unrun.
    pub(crate) deadline: Option<Time>,
    /// The time from which its answer is no longer wanted.
    pub(crate) answer_by: Option<Time>,
    /// The time until which the task waits for others.
    pub(crate) leave_by: Time,
}

/// Tasks that may share a batch.
#[derive(Debug)]
pub(crate) struct Kind<T> {
    pub(crate) class: Class,
    pub(crate) entries: BTreeMap<Rank, Entry<T>>,
    pub(crate) n_rows: usize,
    /// The packing of the tasks into batches, if it is known.
    packing: Option<Packing>,
}

/// Rows that leave.
pub(crate) struct Taken<T> {
    pub(crate) piece: Piece<T>,
    pub(crate) rank: Rank,
    pub(crate) level: usize,
    pub(crate) deadline: Option<Time>,
    /// `true` if nothing of the task is left.
    pub(crate) is_last: bool,
}

/// The division of waiting tasks into batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Packing {
    pub(crate) n_batches: usize,
    /// The rows of the last batch.
    pub(crate) open_rows: usize,
}

/// The tasks that would leave together.
struct Selection {
    /// The tasks and how many rows of each.
    takes: Vec<(Rank, usize)>,
    n_rows: usize,
    /// `true` if no more would fit.
    is_full: bool,
}

impl Rank {
    pub(crate) fn new(arrival: &Arrival, options: &Options, now: Time, number: u64) -> Self {
        let at = match options.order {
            Order::Arrival => Time::default(),
            Order::Deadline { ageing } => {
                let aged = now.plus(ageing);
                let due = arrival.deadline.map_or(aged, |deadline| deadline.min(aged));
                (0..arrival.level).fold(due, |at, _| at.plus(ageing))
            }
        };
        Self { at, number }
    }
}

impl<T> Entry<T> {
    pub(crate) fn n_left(&self) -> usize {
        self.n_rows - self.n_gone
    }
}

impl<T> Kind<T> {
    pub(crate) fn new(class: Class) -> Self {
        let packing = Some(Packing::default());
        Self { class, entries: BTreeMap::new(), n_rows: 0, packing }
    }

    pub(crate) fn insert(&mut self, rank: Rank, entry: Entry<T>, options: &Options) {
        let is_last = self.entries.last_key_value().is_none_or(|(last, _)| *last < rank);
        let packing = self.packing.filter(|_| is_last);
        self.packing = packing.map(|packing| packing.with(entry.n_left(), options));
        self.n_rows += entry.n_left();
        let before = self.entries.insert(rank, entry);
        assert!(before.is_none(), "ranks are unique");
    }

    pub(crate) fn remove(&mut self, rank: Rank) -> Option<Entry<T>> {
        let entry = self.entries.remove(&rank)?;
        self.n_rows -= entry.n_left();
        self.packing = None;
        Some(entry)
    }

    /// Counts the batches anew when they are asked for: the options have changed.
    pub(crate) fn forget_packing(&mut self) {
        self.packing = None;
    }

    /// The packing of the tasks into batches.
    pub(crate) fn packing(&mut self, options: &Options) -> Packing {
        let entries = &self.entries;
        *self.packing.get_or_insert_with(|| Packing::of(entries, options))
    }

    /// The time at which the next batch leaves, and the reason. `run` is its expected run time.
    pub(crate) fn ready(&self, options: &Options, now: Time, run: Duration) -> Ready {
        let Some((_, first)) = self.entries.first_key_value() else { return Ready::Never };
        let is_full = || self.select(options, options.batch_rows_max).is_full;
        if first.leave_by <= now {
            let reason = if self.n_rows >= options.batch_rows_max && is_full() {
                Reason::Full
            } else if first.leave_by > first.arrived {
                Reason::Timeout
            } else {
                Reason::Idle
            };
            return Ready::Now(reason);
        }
        let all = self.entries.values();
        let leave_by = all.map(|entry| entry.leave_by).min().unwrap_or(first.leave_by);
        if leave_by <= now {
            return Ready::Now(Reason::Timeout);
        }
        if is_full() {
            return Ready::Now(Reason::Full);
        }
        let deadlines = self.entries.values().filter_map(|entry| entry.deadline);
        let urgent = deadlines.min().map(|deadline| deadline.minus(run));
        match urgent {
            Some(urgent) if urgent <= now => Ready::Now(Reason::Deadline),
            Some(urgent) => Ready::At(urgent.min(leave_by)),
            None => Ready::At(leave_by),
        }
    }

    /// Takes the next batch of at most `rows_max` rows, or one task that is larger than that.
    pub(crate) fn take(&mut self, options: &Options, rows_max: usize) -> Vec<Taken<T>> {
        let selection = self.select(options, rows_max);
        assert!(!selection.takes.is_empty(), "a kind is never empty");
        let packing = self.packing;
        let mut taken = Vec::with_capacity(selection.takes.len());
        for (rank, n_rows) in selection.takes {
            let entry = self.entries.get_mut(&rank).expect("it was selected from here");
            let rows = entry.n_gone..entry.n_gone + n_rows;
            entry.n_gone = rows.end;
            let piece = Piece { task: Arc::clone(&entry.task), rows, arrived: entry.arrived };
            let (level, deadline, is_last) = (entry.level, entry.deadline, entry.n_left() == 0);
            if is_last {
                self.entries.remove(&rank);
            }
            taken.push(Taken { piece, rank, level, deadline, is_last });
        }
        self.n_rows -= selection.n_rows;
        // Whole batches from the front leave the others as they are.
        let mixes =
            matches!(options.mixed_priority, MixedPriority::Merge | MixedPriority::PadToMax);
        let is_first = rows_max >= options.batch_rows_max && !options.splits_tasks && mixes;
        self.packing = packing.filter(|packing| is_first && packing.n_batches > 1);
        if let Some(packing) = &mut self.packing {
            packing.n_batches -= 1;
        }
        taken
    }

    fn select(&self, options: &Options, rows_max: usize) -> Selection {
        let mut limit = rows_max.min(options.batch_rows_max).max(1);
        let mut selection = Selection { takes: Vec::new(), n_rows: 0, is_full: false };
        let mut head_level = None;
        for (rank, entry) in &self.entries {
            let head_level = *head_level.get_or_insert(entry.level);
            if entry.level > head_level {
                limit = match options.mixed_priority {
                    MixedPriority::Merge | MixedPriority::PadToMax => limit,
                    MixedPriority::PadToNextAllowed => limit.min(options.padded(selection.n_rows)),
                    MixedPriority::Isolate => continue,
                };
            }
            let room = limit - selection.n_rows.min(limit);
            let n_left = entry.n_left();
            let is_head = selection.takes.is_empty();
            let goes_alone = is_head && (n_left == 0 || !options.splits_tasks);
            let takes = if goes_alone || (0 < n_left && n_left <= room) {
                n_left
            } else if options.splits_tasks && room > 0 && n_left > 0 {
                room
            } else {
                selection.is_full = true;
                break;
            };
            selection.takes.push((*rank, takes));
            selection.n_rows += takes;
            if takes == 0 {
                // Without rows there is nothing to share.
                selection.is_full = true;
                break;
            }
        }
        selection.is_full |= selection.n_rows >= limit;
        selection
    }

    /// Asserts what is said in the crate's documentation.
    pub(crate) fn check(&self, options: &Options) {
        assert!(!self.entries.is_empty());
        let left: usize = self.entries.values().map(Entry::n_left).sum();
        assert_eq!(left, self.n_rows);
        assert!(self.entries.values().all(|entry| entry.n_gone == 0 || entry.n_left() > 0));
        assert!(self.entries.values().all(|entry| entry.n_gone == 0 || options.splits_tasks));
        if let Some(packing) = self.packing {
            assert_eq!(packing, Packing::of(&self.entries, options));
        }
    }
}

impl Packing {
    fn of<T>(entries: &BTreeMap<Rank, Entry<T>>, options: &Options) -> Self {
        entries
            .values()
            .fold(Self::default(), |packing, entry| packing.with(entry.n_left(), options))
    }

    /// With one more task at the end.
    fn with(self, n_rows: usize, options: &Options) -> Self {
        let max = options.batch_rows_max;
        if options.splits_tasks {
            let n_rows = n_rows.max(1);
            let before = self.n_batches.saturating_sub(1) * max + self.open_rows;
            let rows = before + n_rows;
            let n_batches = rows.div_ceil(max).max(1);
            return Self { n_batches, open_rows: rows - (n_batches - 1) * max };
        }
        if n_rows == 0 {
            return Self { n_batches: self.n_batches + 1, open_rows: max };
        }
        if self.n_batches > 0 && n_rows <= max.saturating_sub(self.open_rows) {
            return Self { open_rows: self.open_rows + n_rows, ..self };
        }
        Self { n_batches: self.n_batches + 1, open_rows: n_rows }
    }
}
