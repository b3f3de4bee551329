//! `Places`: what waits for the places of a worker process, and which run takes the next one. No
//! I/O; the time is an argument.
//!
//! The runs that a process may have at once are here what the lanes are to our own engine: the same
//! [`Agenda`] decides which run is next, which is refused, and when a run would be answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use batch::{Arrival, Class, Time};
use parking_lot::Mutex;
use schedule::{
    Admission, Agenda, Failure, Forecast, ModelId, Next, QueueId, QueueSnapshot, Refusal, Turned,
};
use session::{LEVEL_MAX, Priorities};
use status::Status;

use super::Sent;

/// The runs that wait for the places of a process.
pub(super) struct Places {
    agenda: Agenda<Task>,
    /// The time at which the clock of the agenda began.
    start: Instant,
    /// The most that may wait.
    waiting_max: usize,
}

/// The queues that take the runs of a model.
#[derive(Debug)]
pub(super) struct Entrance {
    model: ModelId,
    /// A queue for each signature.
    queues: Vec<QueueId>,
    default_level: usize,
}

/// The settings by which the runs of a model take their turns.
#[derive(Debug, Clone)]
pub(crate) struct Turns {
    options: batch::Options,
    admission: Admission,
    weight: u32,
    default_level: usize,
}

/// A run that waits.
struct Task {
    /// Locked by nobody: whoever takes the task out has it alone. It makes the task one that
    /// threads may share.
    sent: Mutex<Sent>,
    is_cancelled: Arc<AtomicBool>,
    came: Instant,
}

/// A run that is not to be, and why.
pub(super) type Unrun = (Sent, Status);

impl Turns {
    /// Each request by itself, as urgent as it says; what cannot be answered in time is refused.
    pub(crate) fn single(priorities: &Priorities, waiting_max: usize) -> Self {
        Self {
            options: priorities.applied_to(&batch::Options::unbatched(waiting_max)),
            admission: Admission::InTime,
            weight: priorities.weight,
            default_level: priorities.default_level,
        }
    }

    /// Batches, whose requests were let in and put in order before.
    pub(crate) fn batches(priorities: &Priorities, waiting_max: usize) -> Self {
        Self {
            options: batch::Options::unbatched(waiting_max),
            admission: Admission::Room,
            weight: priorities.weight,
            default_level: 0,
        }
    }
}

impl Places {
    /// So many places, all free.
    pub(super) fn new(n_places: usize, waiting_max: usize, start: Instant) -> Self {
        Self { agenda: Agenda::new(n_places), start, waiting_max: waiting_max.max(1) }
    }

    /// Lets a model in, with so many signatures. Nothing of it runs before it is released.
    pub(super) fn add(&mut self, n_signatures: usize) -> Entrance {
        let turns = Turns::single(&Priorities::plain(), self.waiting_max);
        let model = self.agenda.add_model(turns.weight);
        self.agenda.hold(model);
        let queue = |_| {
            let added = self.agenda.add_queue(model, turns.options.clone(), turns.admission);
            added.expect("a queue without batches contradicts nothing")
        };
        let queues = (0..n_signatures).map(queue).collect();
        Entrance { model, queues, default_level: turns.default_level }
    }

    /// Takes a model out; gives what waited for it.
    pub(super) fn remove(&mut self, entrance: &Entrance) -> Vec<Sent> {
        own(self.agenda.remove_model(entrance.model))
    }

    /// Lets nothing of a model run until it is released.
    pub(super) fn hold(&mut self, entrance: &Entrance) {
        self.agenda.hold(entrance.model);
    }

    /// Lets a model run.
    pub(super) fn release(&mut self, entrance: &Entrance) {
        self.agenda.release(entrance.model);
    }

    /// Puts another way of taking turns in force, for what waits and what comes. Fails, and changes
    /// nothing, if its settings contradict each other.
    pub(super) fn set_turns(
        &mut self,
        entrance: &mut Entrance,
        turns: &Turns,
    ) -> batch::Result<()> {
        turns.options.validate()?;
        self.agenda.set_weight(entrance.model, turns.weight);
        for queue in &entrance.queues {
            self.agenda.set_options(*queue, turns.options.clone(), turns.admission)?;
        }
        entrance.default_level = turns.default_level;
        Ok(())
    }

    /// Has a run wait for its turn, or gives it back with why it may not.
    pub(super) fn push(
        &mut self,
        entrance: &Entrance,
        sent: Sent,
        now: Instant,
    ) -> Result<(), Box<Unrun>> {
        let Some(queue) = entrance.queues.get(sent.signature as usize).copied() else {
            let error = Status::internal(format!("signature {} is not there", sent.signature));
            return Err(Box::new((sent, error)));
        };
        if let Some(error) = self.refuse_more(queue, now) {
            return Err(Box::new((sent, error)));
        }
        let arrival = Arrival {
            n_rows: 1,
            class: Class::new(&[], false),
            level: sent.run.level.unwrap_or(entrance.default_level).min(LEVEL_MAX),
            deadline: sent.run.deadline.map(|deadline| self.time(deadline)),
        };
        let is_cancelled = Arc::clone(&sent.run.is_cancelled);
        let task = Arc::new(Task { sent: Mutex::new(sent), is_cancelled, came: now });
        let mut pushed = self.agenda.push(queue, Arc::clone(&task), &arrival, self.time(now));
        if pushed.is_err() && self.remove_moot() {
            pushed = self.agenda.push(queue, Arc::clone(&task), &arrival, self.time(now));
        }
        let Err(refusal) = pushed else { return Ok(()) };
        let task = Arc::into_inner(task).expect("nobody took it");
        Err(Box::new((task.sent.into_inner(), error(refusal))))
    }

    /// Returns why no more may wait, if that is so.
    fn refuse_more(&mut self, queue: QueueId, now: Instant) -> Option<Status> {
        let max = self.waiting_max;
        if self.agenda.n_waiting() < max || (self.remove_moot() && self.agenda.n_waiting() < max) {
            return None;
        }
        let text = format!("{max} requests are waiting already, and no more than that may");
        let retry_after = Some(self.agenda.forecast(queue, 1, self.time(now)).finish);
        Some(Status::unavailable(text).with_retry_after(retry_after))
    }

    /// The run whose turn it is, if a place is free.
    pub(super) fn take(&mut self, now: Instant) -> Option<(Sent, Turned)> {
        while let Next::Run(turn) = self.agenda.next(self.time(now)) {
            let turned = turn.turned();
            let sent = own(turn.batch.pieces.into_iter().map(|piece| piece.task)).pop();
            match sent {
                Some(sent) if !sent.run.is_moot() => return Some((sent, turned)),
                moot => {
                    self.give_back(turned, Ended::Unmeasured, now);
                    moot.into_iter().for_each(Sent::cancel);
                }
            }
        }
        None
    }

    /// Returns the time that a run which was taken is expected to take, if that is known.
    pub(super) fn predict(&self, turned: &Turned) -> Option<Duration> {
        self.agenda.predict(turned.queue(), 1)
    }

    /// Takes note that a run has given its place back.
    pub(super) fn give_back(&mut self, mut turned: Turned, ended: Ended, now: Instant) {
        turned.has_run = ended == Ended::Measured;
        self.agenda.done(&turned, self.time(now));
    }

    /// Takes out what has waited for too long.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<Unrun> {
        let expired = self.agenda.expire(self.time(now));
        let late = |task: Task| {
            let waited = now.saturating_duration_since(task.came);
            let why = schedule::Error::Expired { waited };
            (task.sent.into_inner(), error(Refusal { error: why, retry_after: None }))
        };
        expired.into_iter().filter_map(Arc::into_inner).map(late).collect()
    }

    /// Takes out what nobody waits for any more. Gives whether there was something.
    pub(super) fn remove_moot(&mut self) -> bool {
        let moot = self.agenda.remove_all_if(|task| task.is_cancelled.load(Ordering::Relaxed));
        let found = !moot.is_empty();
        own(moot).into_iter().for_each(Sent::cancel);
        found
    }

    /// Takes out all that waits for a model.
    pub(super) fn remove_of(&mut self, entrance: &Entrance) -> Vec<Sent> {
        let queues = entrance.queues.iter();
        own(queues.flat_map(|queue| self.agenda.remove_if(*queue, |_| true)).collect::<Vec<_>>())
    }

    /// Takes out all that waits.
    pub(super) fn remove_all(&mut self) -> Vec<Sent> {
        own(self.agenda.remove_all())
    }

    /// Returns the time at which the next run has waited for too long.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let deadline = self.agenda.next_deadline()?;
        self.start.checked_add(deadline.since(Time::default()))
    }

    /// Returns the number of runs that wait.
    pub(super) fn n_waiting(&self) -> usize {
        self.agenda.n_waiting()
    }

    /// Returns the time at which a run that comes now would be answered.
    pub(super) fn forecast(
        &self,
        entrance: &Entrance,
        signature: usize,
        now: Instant,
    ) -> Option<Forecast> {
        let queue = *entrance.queues.get(signature)?;
        Some(self.agenda.forecast(queue, 1, self.time(now)))
    }

    /// Returns a snapshot of a signature's queue.
    pub(super) fn snapshot(
        &self,
        entrance: &Entrance,
        signature: usize,
        now: Instant,
    ) -> Option<QueueSnapshot> {
        self.agenda.snapshot(*entrance.queues.get(signature)?, self.time(now))
    }

    fn time(&self, instant: Instant) -> Time {
        Time::default().plus(instant.saturating_duration_since(self.start))
    }
}

/// The end of a run, by its use as a measure of the time that such runs take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// It was computed to its end.
    Measured,
    /// It failed, or nobody waited for its end.
    Unmeasured,
}

/// Unwraps tasks that were taken out of the queues, which nobody else holds.
fn own(tasks: impl IntoIterator<Item = Arc<Task>>) -> Vec<Sent> {
    tasks.into_iter().filter_map(Arc::into_inner).map(|task| task.sent.into_inner()).collect()
}

/// Returns the status of a refusal, for a client.
fn error(refusal: Refusal) -> Status {
    session::failure(&Failure::Refused(refusal), false)
}
