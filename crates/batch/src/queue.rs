//! `Queue`: the tasks that wait for one signature, as a state machine without a clock.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::kind::{Entry, Kind, Packing, Rank, Taken};
use crate::options::Options;
use crate::rows::Class;
use crate::time::Time;

/// The properties of a task that a queue must know.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// Its rows.
    pub n_rows: usize,
    /// The tasks it may share a batch with.
    pub class: Class,
    /// Its priority: 0 is the highest.
    pub level: usize,
    /// The time from which its answer is no longer wanted.
    pub deadline: Option<Time>,
}

/// Some rows of a task.
#[derive(Debug)]
pub struct Piece<T> {
    /// The task.
    pub task: Arc<T>,
    /// The rows of the task that are in the piece.
    pub rows: Range<usize>,
    /// The time at which the task came.
    pub arrived: Time,
}

/// Tasks, or pieces of them, that run together.
#[derive(Debug)]
pub struct Batch<T> {
    /// The pieces in the order of their rows.
    pub pieces: Vec<Piece<T>>,
    /// The rows of all of them.
    pub n_rows: usize,
    /// The rows that run, padding included.
    pub n_padded: usize,
    /// The reason for which the batch left.
    pub reason: Reason,
    /// The class of its tasks.
    pub class: Class,
}

/// The task that a batch begins with.
#[derive(Debug, Clone, Copy)]
pub struct First<'a> {
    /// The settings of its queue.
    pub options: &'a Options,
    /// The tasks it may share a batch with.
    pub class: &'a Class,
    /// The time from which its answer is no longer wanted.
    pub deadline: Option<Time>,
}

/// The reason for which a batch left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// No more would fit.
    Full,
    /// Its oldest task had waited for the timeout.
    Timeout,
    /// A lane was free, and nothing told it to wait.
    Idle,
    /// A task would have missed its deadline.
    Deadline,
}

/// The time at which the next batch leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ready {
    /// As soon as a lane is free.
    Now(Reason),
    /// At this time, unless more tasks come.
    At(Time),
    /// Nothing waits.
    Never,
}

/// The tasks that wait for one signature. `T` is what its owner needs to answer a task.
#[derive(Debug)]
pub struct Queue<T> {
    options: Options,
    kinds: Vec<Kind<T>>,
    /// The tasks that expire, by their time.
    deadlines: BTreeSet<(Time, Rank)>,
    /// The waiting rows of each level.
    level_rows: Vec<usize>,
    n_tasks: usize,
    next_number: u64,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 4] = [Self::Full, Self::Timeout, Self::Idle, Self::Deadline];

    /// Its name, for people and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Timeout => "timeout",
            Self::Idle => "idle",
            Self::Deadline => "deadline",
        }
    }
}

impl<T> Queue<T> {
    /// An empty queue. Fails if the options contradict each other.
    pub fn new(options: Options) -> Result<Self> {
        options.validate()?;
        Ok(Self {
            options,
            kinds: Vec::new(),
            deadlines: BTreeSet::new(),
            level_rows: Vec::new(),
            n_tasks: 0,
            next_number: 0,
        })
    }

    /// The settings.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Puts other settings in force, for what waits and what comes. Fails, and changes nothing, if
    /// they contradict each other.
    pub fn set_options(&mut self, options: Options) -> Result<()> {
        options.validate()?;
        self.options = options;
        // Pieces that have left cannot come back, so a task that was begun may go on being split.
        let begun = |kind: &Kind<T>| kind.entries.values().any(|entry| entry.n_gone > 0);
        self.options.splits_tasks |= self.kinds.iter().any(begun);
        self.kinds.iter_mut().for_each(Kind::forget_packing);
        self.deadlines.clear();
        for (rank, entry) in self.kinds.iter_mut().flat_map(|kind| &mut kind.entries) {
            entry.leave_by = entry.arrived.plus(self.options.timeout_of(entry.level));
            entry.deadline = self.options.expiry(entry.level, entry.answer_by, entry.arrived);
            self.deadlines.extend(entry.deadline.map(|deadline| (deadline, *rank)));
        }
        Ok(())
    }

    /// Adds a task. Fails if it is larger than a task may be, or if too much waits.
    pub fn push(&mut self, task: Arc<T>, arrival: &Arrival, now: Time) -> Result<()> {
        if arrival.n_rows > self.options.task_rows_max {
            let (n_rows, max) = (arrival.n_rows, self.options.task_rows_max);
            return Err(Error::TaskTooLarge { n_rows, max });
        }
        self.admit(arrival)?;
        let deadline = self.options.expiry(arrival.level, arrival.deadline, now);
        let rank = Rank::new(arrival, &self.options, now, self.next_number);
        self.next_number += 1;
        let entry = Entry {
            task,
            n_rows: arrival.n_rows,
            n_gone: 0,
            level: arrival.level,
            arrived: now,
            deadline,
            answer_by: arrival.deadline,
            leave_by: now.plus(self.options.timeout_of(arrival.level)),
        };
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, rank));
        }
        if self.level_rows.len() <= arrival.level {
            self.level_rows.resize(arrival.level + 1, 0);
        }
        self.level_rows[arrival.level] += arrival.n_rows;
        self.n_tasks += 1;
        let kind = self.kind_of(&arrival.class);
        self.kinds[kind].insert(rank, entry, &self.options);
        Ok(())
    }

    /// The time at which the next batch leaves. `run` is its expected run time.
    pub fn ready(&self, now: Time, run: Duration) -> Ready {
        self.next_kind(now, run).map_or(Ready::Never, |(_, ready)| ready)
    }

    /// Takes the next batch, if one is ready, of at most as many rows as `rows_max` allows its
    /// first task; a single task that is larger than that and may not be split comes whole.
    pub fn take(
        &mut self,
        now: Time,
        run: Duration,
        rows_max: impl FnOnce(First<'_>) -> usize,
    ) -> Option<Batch<T>> {
        let (number, ready) = self.next_kind(now, run)?;
        let Ready::Now(reason) = ready else { return None };
        let kind = &mut self.kinds[number];
        let class = kind.class.clone();
        let (_, first) = kind.entries.first_key_value()?;
        let (options, deadline) = (&self.options, first.answer_by);
        let rows_max = rows_max(First { options, class: &class, deadline });
        let taken = kind.take(&self.options, rows_max);
        if kind.entries.is_empty() {
            self.kinds.swap_remove(number);
        }
        let pieces: Vec<Piece<T>> = taken.into_iter().map(|taken| self.forget(taken)).collect();
        let n_rows = pieces.iter().map(|piece| piece.rows.len()).sum();
        let n_padded = self.options.padded(n_rows);
        Some(Batch { pieces, n_rows, n_padded, reason, class })
    }

    /// Removes the tasks whose deadline has come, and those that have waited for so long that a run
    /// of `run` would not end in time any more.
    pub fn expire(&mut self, now: Time, run: Duration) -> Vec<Arc<T>> {
        let ends = now.plus(run);
        let is_soon = |(expiry, _): &&(Time, Rank)| *expiry <= now || *expiry < ends;
        // What was hopeless from the start is run all the same: run times may be mistaken.
        let was_possible = |entry: &Entry<T>| {
            entry.answer_by.is_some_and(|end| end < ends && entry.arrived.plus(run) <= end)
        };
        let is_late = |(expiry, rank): &&(Time, Rank)| {
            *expiry <= now || self.entry(*rank).is_some_and(was_possible)
        };
        let soon = self.deadlines.iter().take_while(is_soon);
        let late: Vec<Rank> = soon.filter(is_late).map(|(_, rank)| *rank).collect();
        late.into_iter().filter_map(|rank| self.remove(rank)).collect()
    }

    /// Removes the tasks that `is_moot` holds for: those whose clients are gone.
    pub fn remove_if(&mut self, mut is_moot: impl FnMut(&T) -> bool) -> Vec<Arc<T>> {
        let all = self.kinds.iter().flat_map(|kind| &kind.entries);
        let moot: Vec<Rank> =
            all.filter(|(_, entry)| is_moot(&entry.task)).map(|(rank, _)| *rank).collect();
        moot.into_iter().filter_map(|rank| self.remove(rank)).collect()
    }

    /// The time at which the next task expires.
    pub fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// The number of waiting tasks, those included whose rows have left in part.
    pub fn n_tasks(&self) -> usize {
        self.n_tasks
    }

    /// The number of waiting rows.
    pub fn n_rows(&self) -> usize {
        self.kinds.iter().map(|kind| kind.n_rows).sum()
    }

    /// The number of batches that the waiting tasks make.
    pub fn n_batches(&mut self) -> usize {
        let options = &self.options;
        self.kinds.iter_mut().map(|kind| kind.packing(options).n_batches).sum()
    }

    /// The arrival of the task that has waited longest.
    pub fn oldest(&self) -> Option<Time> {
        let all = self.kinds.iter().flat_map(|kind| kind.entries.values());
        all.map(|entry| entry.arrived).min()
    }

    /// Asserts what the crate's documentation says of a queue.
    pub fn check(&self) {
        let mut n_tasks = 0;
        let mut deadlines = BTreeSet::new();
        let mut level_rows = vec![0; self.level_rows.len()];
        for (number, kind) in self.kinds.iter().enumerate() {
            kind.check(&self.options);
            n_tasks += kind.entries.len();
            assert!(self.kinds[..number].iter().all(|other| other.class != kind.class));
            for (rank, entry) in &kind.entries {
                level_rows[entry.level] += entry.n_left();
                deadlines.extend(entry.deadline.map(|deadline| (deadline, *rank)));
            }
        }
        assert_eq!(n_tasks, self.n_tasks);
        assert_eq!(level_rows, self.level_rows);
        assert_eq!(deadlines, self.deadlines);
    }

    /// Fails if a task does not fit in what may wait.
    fn admit(&mut self, arrival: &Arrival) -> Result<()> {
        let max = self.options.enqueued_batches_max;
        let n_rows = arrival.n_rows;
        let n_batches = self.n_batches();
        let own = self.kinds.iter_mut().find(|kind| kind.class == arrival.class);
        let packing = own.map_or_else(Packing::default, |kind| kind.packing(&self.options));
        let execution_max = self.options.batch_rows_max;
        let room = if packing.n_batches == 0 {
            0
        } else {
            execution_max.saturating_sub(packing.open_rows)
        };
        let free = max.saturating_sub(n_batches);
        if self.options.splits_tasks {
            let capacity = free.saturating_mul(execution_max).saturating_add(room);
            if n_rows.max(1) > capacity {
                let open_rows = packing.open_rows;
                return Err(Error::NoCapacity {
                    n_rows,
                    capacity,
                    n_batches,
                    max,
                    open_rows,
                    execution_max,
                });
            }
        } else if free == 0 && n_rows.max(1) > room {
            return Err(Error::QueueFull { n_batches, max });
        }
        self.admit_to_level(arrival)
    }

    /// Fails if a task does not fit in what may wait at its level.
    fn admit_to_level(&self, arrival: &Arrival) -> Result<()> {
        let level = self.options.levels.get(arrival.level);
        let Some(max) = level.and_then(|level| level.enqueued_batches_max) else { return Ok(()) };
        let rows = self.level_rows.get(arrival.level).copied().unwrap_or(0);
        let n_batches = rows.div_ceil(self.options.batch_rows_max);
        let after = rows.saturating_add(arrival.n_rows).div_ceil(self.options.batch_rows_max);
        if after > max { Err(Error::QueueFull { n_batches, max }) } else { Ok(()) }
    }

    /// The place of the kind of a class, which is made if need be.
    fn kind_of(&mut self, class: &Class) -> usize {
        let known = self.kinds.iter().position(|kind| kind.class == *class);
        known.unwrap_or_else(|| {
            self.kinds.push(Kind::new(class.clone()));
            self.kinds.len() - 1
        })
    }

    /// The kind whose batch leaves next: the one that is ready, and among those the one whose first
    /// task comes first.
    fn next_kind(&self, now: Time, run: Duration) -> Option<(usize, Ready)> {
        let urgency = |(number, kind): (usize, &Kind<T>)| {
            let ready = kind.ready(&self.options, now, run);
            let first = kind.entries.first_key_value().map(|(rank, _)| *rank);
            let at = match ready {
                Ready::Now(_) => Time::default(),
                Ready::At(time) => time,
                Ready::Never => Time(u64::MAX),
            };
            (at, first, number, ready)
        };
        let all = self.kinds.iter().enumerate().map(urgency);
        let next = all.min_by_key(|(at, first, ..)| (*at, *first));
        next.map(|(_, _, number, ready)| (number, ready))
    }

    fn entry(&self, rank: Rank) -> Option<&Entry<T>> {
        self.kinds.iter().find_map(|kind| kind.entries.get(&rank))
    }

    fn remove(&mut self, rank: Rank) -> Option<Arc<T>> {
        let holds = |kind: &Kind<T>| kind.entries.contains_key(&rank);
        let number = self.kinds.iter().position(holds)?;
        let entry = self.kinds[number].remove(rank)?;
        if self.kinds[number].entries.is_empty() {
            self.kinds.swap_remove(number);
        }
        self.level_rows[entry.level] -= entry.n_left();
        self.n_tasks -= 1;
        if let Some(deadline) = entry.deadline {
            self.deadlines.remove(&(deadline, rank));
        }
        Some(entry.task)
    }

    /// Takes rows that have left off the books.
    fn forget(&mut self, taken: Taken<T>) -> Piece<T> {
        self.level_rows[taken.level] -= taken.piece.rows.len();
        if taken.is_last {
            self.n_tasks -= 1;
            if let Some(deadline) = taken.deadline {
                self.deadlines.remove(&(deadline, taken.rank));
            }
        }
        taken.piece
    }
}

#[cfg(test)]
mod tests;
