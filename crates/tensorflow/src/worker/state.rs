//! `State`: what the server knows of a worker. No I/O; the time is an argument.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use session::{Error, Reply};

use super::Sent;
use crate::area::Block;
use crate::process::Link;
use crate::snapshot::{ModelSnapshot, ModelState, WorkerState};
use crate::wire::Load;

/// How a worker is.
#[derive(Debug, Default)]
pub(super) enum Phase {
    /// Its process starts, or starts again; what arrives waits.
    #[default]
    Starting,
    /// It runs what it is given.
    Up,
    /// It is to be started anew as soon as what runs has ended; what arrives waits.
    Draining,
    /// Its process ended more than once; what arrives is refused until the next start.
    BackingOff { why: String },
    /// It is not wanted any more.
    Ended,
}

/// What the server knows of a worker.
#[derive(Default)]
pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) link: Option<Arc<Link>>,
    pub(super) pid: Option<u32>,
    pub(super) version: String,
    /// What the process held when the library was loaded and no model yet.
    pub(super) base_bytes: u64,
    pub(super) n_restarts: u64,
    pub(super) seats: BTreeMap<u64, Seat>,
    pub(super) queue: VecDeque<Task>,
    pub(super) flights: HashMap<u64, Flight>,
    /// Inputs that TensorFlow holds beyond their runs.
    pub(super) held: HashMap<u64, Block>,
    /// When something is next too late.
    pub(super) next_check: Option<Instant>,
    /// Whether a model has left since the process started.
    pub(super) has_leavers: bool,
    last_number: u64,
}

/// A model that wants a seat.
#[derive(Debug, Clone)]
pub(crate) struct Passenger {
    pub(crate) model: String,
    pub(crate) version: i64,
    pub(crate) weights_bytes: u64,
    pub(crate) load: Load,
}

/// A model in a worker.
pub(super) struct Seat {
    pub(super) passenger: Passenger,
    /// Whether there is room for it.
    pub(super) is_admitted: bool,
    /// When its load began, and what the process held then.
    pub(super) began: Option<(Instant, u64)>,
    pub(super) state: SeatState,
    /// Whether it was ever loaded: then it is loaded again after a crash.
    pub(super) was_loaded: bool,
    pub(super) devices: Vec<String>,
}

/// How far a model is.
#[derive(Debug)]
pub(super) enum SeatState {
    /// To be loaded.
    Waiting,
    /// Being loaded.
    Loading,
    /// Ready.
    Loaded,
    /// Not to be had.
    Failed(Error),
}

impl SeatState {
    /// Whether it is to be loaded.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self, Self::Waiting)
    }

    /// Whether the process knows of it.
    pub(super) fn is_there(&self) -> bool {
        matches!(self, Self::Loading | Self::Loaded)
    }
}

/// A run that waits.
pub(super) struct Task {
    pub(super) sent: Sent,
}

impl Task {
    /// Answers that the worker cannot run it.
    pub(super) fn fail(self, why: &str) {
        (self.sent.reply)(Err(Error::Unavailable(why.to_owned())));
    }
}

/// A run in the process.
pub(super) struct Flight {
    pub(super) seat: u64,
    pub(super) reply: Reply,
    pub(super) block: Option<Block>,
    pub(super) deadline: Option<Instant>,
    pub(super) is_cancelled: Arc<AtomicBool>,
}

impl Flight {
    /// Whether nobody waits for it any more.
    pub(super) fn is_abandoned(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }
}

/// What is to be done with the task at the front of the queue.
pub(super) enum Next {
    /// Sent to the process.
    Fly(Task),
    /// Answered with an error.
    Fail(Task, Error),
}

impl State {
    /// Takes a seat for a model. `None` if the worker is ending.
    pub(super) fn sit(&mut self, mut passenger: Passenger) -> Option<u64> {
        if matches!(self.phase, Phase::Ended) {
            return None;
        }
        let number = self.next_number();
        passenger.load.model = number;
        self.seats.insert(number, Seat::new(passenger));
        Some(number)
    }

    pub(super) fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Whether a task can be sent to the process now.
    pub(super) fn can_fly(&self, task: &Task, n_threads: usize) -> bool {
        matches!(self.phase, Phase::Up)
            && self.flights.len() < places_max(n_threads)
            && self.n_wanted() < n_threads
            && self
                .seats
                .get(&task.sent.seat)
                .is_some_and(|seat| matches!(seat.state, SeatState::Loaded))
    }

    /// The runs in the process that somebody waits for.
    fn n_wanted(&self) -> usize {
        self.flights.values().filter(|flight| !flight.is_abandoned()).count()
    }

    /// Whether runs that nobody waits for have taken all places while others wait for one.
    pub(super) fn is_stuck(&self, n_threads: usize) -> bool {
        self.flights.len() >= places_max(n_threads)
            && self.n_wanted() == 0
            && !self.queue.is_empty()
    }

    /// Notes that something is too late after `deadline`. Gives whether that is sooner than what
    /// was noted before.
    pub(super) fn must_check_by(&mut self, deadline: Option<Instant>) -> bool {
        let Some(deadline) = deadline else { return false };
        if self.next_check.is_some_and(|check| check <= deadline) {
            return false;
        }
        self.next_check = Some(deadline);
        true
    }

    /// The next task that something can be done with, in order.
    pub(super) fn next_task(&mut self, n_threads: usize, now: Instant) -> Option<Next> {
        let place = self.queue.iter().position(|task| self.is_due(task, n_threads, now))?;
        let task = self.queue.remove(place).expect("it was found there");
        let run = &task.sent.run;
        if run.is_moot() {
            let error = Error::Cancelled("nobody waits for the answer".to_owned());
            return Some(Next::Fail(task, error));
        }
        if run.deadline.is_some_and(|deadline| deadline <= now) {
            return Some(Next::Fail(task, late("while it waited for its worker")));
        }
        match self.seats.get(&task.sent.seat).map(|seat| &seat.state) {
            None => {
                let error = Error::Unavailable("the model was unloaded".to_owned());
                Some(Next::Fail(task, error))
            }
            Some(SeatState::Failed(error)) => {
                let error = error.clone();
                Some(Next::Fail(task, error))
            }
            Some(SeatState::Waiting | SeatState::Loading | SeatState::Loaded) => {
                Some(Next::Fly(task))
            }
        }
    }

    fn is_due(&self, task: &Task, n_threads: usize, now: Instant) -> bool {
        let run = &task.sent.run;
        let seat = self.seats.get(&task.sent.seat);
        run.is_moot()
            || run.deadline.is_some_and(|deadline| deadline <= now)
            || seat.is_none_or(|seat| matches!(seat.state, SeatState::Failed(_)))
            || self.can_fly(task, n_threads)
    }

    /// Takes out the replies of runs that are too late, or that nobody waits for; the process may
    /// go on with them. Notes when to look again.
    pub(super) fn take_late(&mut self, now: Instant) -> Vec<Reply> {
        self.next_check = None;
        let is_late = |flight: &Flight| flight.deadline.is_some_and(|deadline| deadline <= now);
        let late: Vec<u64> =
            self.flights.iter().filter(|(_, f)| is_late(f)).map(|(id, _)| *id).collect();
        let mut replies = Vec::with_capacity(late.len());
        for id in late {
            let flight = self.flights.get_mut(&id).expect("it was found there");
            // Its place stays taken until the process has ended it.
            flight.deadline = None;
            flight.is_cancelled.store(true, Ordering::Relaxed);
            let reply = std::mem::replace(&mut flight.reply, Box::new(drop));
            replies.push(reply);
        }
        let waiting = self.queue.iter().filter_map(|task| task.sent.run.deadline);
        let flying = self.flights.values().filter_map(|flight| flight.deadline);
        self.next_check = waiting.chain(flying).min();
        replies
    }

    /// Takes out what waits for a seat.
    pub(super) fn take_tasks_of(&mut self, seat: u64) -> Vec<Task> {
        let queue = std::mem::take(&mut self.queue);
        let (lost, kept): (Vec<Task>, Vec<Task>) =
            queue.into_iter().partition(|task| task.sent.seat == seat);
        self.queue = kept.into();
        lost
    }

    /// Forgets the process: its runs are taken out, its models wait to be loaded again, and those
    /// that never were have failed.
    pub(super) fn lose_process(&mut self, why: &str) -> Vec<Flight> {
        self.link = None;
        self.pid = None;
        self.held.clear();
        self.has_leavers = false;
        for seat in self.seats.values_mut() {
            let lost = || SeatState::Failed(Error::Unavailable(why.to_owned()));
            match seat.state {
                SeatState::Loaded => seat.state = SeatState::Waiting,
                SeatState::Loading if seat.was_loaded => seat.state = SeatState::Waiting,
                SeatState::Loading => seat.state = lost(),
                SeatState::Waiting | SeatState::Failed(_) => {}
            }
        }
        self.flights.drain().map(|(_, flight)| flight).collect()
    }

    /// Whether nothing runs or waits.
    pub(super) fn is_idle(&self) -> bool {
        self.flights.is_empty()
            && self.queue.is_empty()
            && self.seats.values().all(|seat| !matches!(seat.state, SeatState::Loading))
    }

    /// Whether TensorFlow sees a GPU.
    pub(super) fn sees_gpu(&self) -> bool {
        let mut devices = self.seats.values().flat_map(|seat| &seat.devices);
        devices.any(|device| device.contains("GPU"))
    }

    /// The model that the process speaks of when it says something now, if it can be but one.
    pub(super) fn speaker(&self) -> Option<&Passenger> {
        let is_loading = |seat: &&Seat| matches!(seat.state, SeatState::Loading);
        let loading = self.seats.values().filter(is_loading).map(|seat| &seat.passenger);
        let running = self.flights.values().filter_map(|flight| self.seats.get(&flight.seat));
        let mut busy = loading.chain(running.map(|seat| &seat.passenger));
        let all = self.seats.values().map(|seat| &seat.passenger);
        let first = busy.next();
        let Some(first) = first else {
            let mut all = all;
            return all.next().filter(|_| self.seats.len() == 1);
        };
        busy.all(|other| std::ptr::eq(first, other)).then_some(first)
    }

    pub(super) fn worker_state(&self) -> WorkerState {
        match self.phase {
            Phase::Starting => WorkerState::Starting,
            Phase::Up => WorkerState::Up,
            Phase::Draining => WorkerState::Renewing,
            Phase::BackingOff { .. } => WorkerState::BackingOff,
            Phase::Ended => WorkerState::Ended,
        }
    }

    /// The models, when the process holds so many bytes.
    pub(super) fn models(&self, resident: u64, now: Instant) -> Vec<ModelSnapshot> {
        let model = |seat: &Seat| {
            let began = seat.began.filter(|_| matches!(seat.state, SeatState::Loading));
            ModelSnapshot {
                model: seat.passenger.model.clone(),
                version: seat.passenger.version,
                state: match seat.state {
                    SeatState::Waiting => ModelState::Waiting,
                    SeatState::Loading => ModelState::Loading,
                    SeatState::Loaded => ModelState::Loaded,
                    SeatState::Failed(_) => ModelState::Failed,
                },
                weights_bytes: seat.passenger.weights_bytes,
                loading_for: began.map(|(since, _)| now.saturating_duration_since(since)),
                grown_bytes: began.map_or(0, |(_, before)| resident.saturating_sub(before)),
            }
        };
        self.seats.values().map(model).collect()
    }

    /// The devices that TensorFlow sees.
    pub(super) fn devices(&self) -> Vec<String> {
        let devices = self.seats.values().flat_map(|seat| seat.devices.iter().cloned());
        let devices: std::collections::BTreeSet<String> = devices.collect();
        devices.into_iter().collect()
    }

    /// How many runs are wanted, and how many are abandoned.
    pub(super) fn n_runs(&self) -> (usize, usize) {
        let wanted = self.n_wanted();
        (wanted, self.flights.len() - wanted)
    }
}

/// The runs that a process can have at once, those that nobody waits for included: TensorFlow
/// cannot end them, and the others must not wait for them.
pub(crate) fn places_max(n_threads: usize) -> usize {
    2 * n_threads
}

impl Seat {
    fn new(passenger: Passenger) -> Self {
        Self {
            passenger,
            is_admitted: false,
            began: None,
            state: SeatState::Waiting,
            was_loaded: false,
            devices: Vec::new(),
        }
    }
}

/// The answer to a run that is too late.
pub(super) fn late(when: &str) -> Error {
    Error::DeadlineExceeded(format!("the request's time ran out {when}"))
}

#[cfg(test)]
mod tests;
