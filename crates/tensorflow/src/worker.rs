//! `Worker`: one worker process and its successors, seen from the server.
//!
//! A thread supervises it: starts the process, has the models loaded that have a seat in it, passes
//! answers on, fails what is too late, and when the process ends, starts another after a while.
//! Requests never wait for that thread: they write to the worker's ring themselves if it is free,
//! else they stand in the queue.

mod places;
mod state;
mod supervise;

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use schedule::{Lanes, QueueSnapshot, Replica, Turned};
use session::{Reply, Run};
use tensor::Tensor;

use crate::bell::Bell;
use crate::error::Result;
use crate::load::Needed;
use crate::options::{Options, Placement};
use crate::sandbox::Rules;
use crate::snapshot::{WorkerSnapshot, resident_bytes};
use crate::tensors;
use crate::wire::{Order, RunOrder};
use places::Ended;
use state::{Flight, Phase, SeatState, State};
use status::Status;

pub(crate) use places::Turns;
pub(crate) use state::{Passenger, places_max};

/// The interval at which a load checks that it is still wanted.
const CANCEL_CHECK: Duration = Duration::from_millis(100);

/// Copying so many bytes takes about as long as a process takes to wake: it is woken before.
const ROUSING_BYTES: RangeInclusive<usize> = 32 << 10..=2 << 20;

/// A run of so long is answered about when a thread that is woken for the answer is awake.
const SHORT: Duration = Duration::from_micros(100);

/// A worker process and its successors.
pub(crate) struct Worker {
    pub(crate) options: Arc<Options>,
    pub(crate) role: Role,
    state: Mutex<State>,
    /// Signalled when a load ends, a worker is ready, or the worker ends.
    changed: Condvar,
    bell: Bell,
    /// Set when the thread that supervises the worker was woken for an answer that comes in a
    /// moment.
    is_expecting: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Those on which the models that are here wait for their batches, if there are any.
    lanes: Mutex<Weak<Lanes>>,
}

/// The role of a worker.
pub(crate) struct Role {
    pub(crate) name: String,
    /// `true` if models without settings of their own share the worker.
    pub(crate) is_shared: bool,
    pub(crate) placement: Placement,
    /// The tenant whose models the worker serves.
    pub(crate) tenant: String,
    pub(crate) rules: Rules,
}

/// Those that a load asks.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    /// Returns whether the model is no longer wanted.
    pub(crate) is_cancelled: &'a dyn Fn() -> bool,
    /// Checks that there is room for the model.
    pub(crate) admit: &'a dyn Fn(&Needed) -> status::Result<()>,
}

/// A run, and where it is to run.
pub(crate) struct Sent {
    pub(crate) run: Run,
    pub(crate) reply: Reply,
    pub(crate) seat: u64,
    /// The place of the signature among the seat's.
    pub(crate) signature: u32,
}

impl Sent {
    /// Answers that it is not run.
    fn fail(self, why: &str) {
        (self.reply)(Err(Status::unavailable(why)));
    }

    /// Answers one that nobody waits for.
    fn cancel(self) {
        (self.reply)(Err(Status::cancelled("nobody waits for the answer")));
    }
}

impl Worker {
    /// Starts a worker. Its process starts beside, on the thread that supervises it.
    pub(crate) fn start(options: &Arc<Options>, role: Role) -> Result<Arc<Self>> {
        let worker = Arc::new(Self {
            options: Arc::clone(options),
            role,
            state: Mutex::new(State::new(options.n_threads, options.queue_max, Instant::now())),
            changed: Condvar::new(),
            bell: Bell::new()?,
            is_expecting: AtomicBool::new(false),
            thread: Mutex::default(),
            lanes: Mutex::default(),
        });
        let supervised = Arc::clone(&worker);
        let thread = std::thread::Builder::new()
            .name("worker".to_owned())
            .spawn(move || supervised.supervise())
            .map_err(|error| crate::error::Error::system("cannot start a thread", &error))?;
        *worker.thread.lock() = Some(thread);
        Ok(worker)
    }

    /// Loads a model, and gives the number of its seat. `None` if the worker is ending.
    pub(crate) fn load(
        &self,
        passenger: Passenger,
        asked: Asked<'_>,
    ) -> Option<status::Result<u64>> {
        let weights_bytes = passenger.weights_bytes;
        let seat = self.state.lock().sit(passenger, Instant::now())?;
        let outcome = self.admit(seat, weights_bytes, asked);
        let outcome = outcome.and_then(|end| self.await_load(seat, end, asked));
        if outcome.is_err() {
            self.leave(seat);
        }
        Some(outcome.map(|()| seat))
    }

    /// Waits until the library is loaded, and asks whether there is room for a model beside it.
    /// Gives when the load is too late.
    fn admit(&self, seat: u64, weights_bytes: u64, asked: Asked<'_>) -> status::Result<Instant> {
        let end = Instant::now() + self.options.load_timeout;
        let mut state = self.state.lock();
        while state.link.is_none() {
            if let Some(SeatState::Failed(error)) = state.seats.get(&seat).map(|seat| &seat.state) {
                return Err(error.clone());
            }
            self.check_wanted(end, asked)?;
            self.changed.wait_for(&mut state, CANCEL_CHECK);
        }
        let needed = Needed { weights_bytes, base_bytes: state.base_bytes };
        drop(state);
        (asked.admit)(&needed)?;
        if let Some(seat) = self.state.lock().seats.get_mut(&seat) {
            seat.is_admitted = true;
        }
        self.bell.ring();
        Ok(end)
    }

    fn await_load(&self, seat: u64, end: Instant, asked: Asked<'_>) -> status::Result<()> {
        let mut state = self.state.lock();
        loop {
            match state.seats.get(&seat).map(|seat| &seat.state) {
                None => return Err(Status::unavailable("the worker has ended")),
                Some(SeatState::Loaded) => return Ok(()),
                Some(SeatState::Failed(error)) => return Err(error.clone()),
                Some(SeatState::Waiting | SeatState::Loading) => {}
            }
            self.check_wanted(end, asked)?;
            self.changed.wait_for(&mut state, CANCEL_CHECK);
        }
    }

    /// Fails if a load is no longer wanted, or too late.
    fn check_wanted(&self, end: Instant, asked: Asked<'_>) -> status::Result<()> {
        if (asked.is_cancelled)() {
            return Err(Status::cancelled("no longer wanted"));
        }
        if Instant::now() >= end {
            let limit = self.options.load_timeout;
            let text = format!("TensorFlow did not load the model within {limit:?}");
            return Err(Status::deadline_exceeded(text));
        }
        Ok(())
    }

    /// Gives a seat up: the model is unloaded. The last one ends the process, and waits for its
    /// end.
    pub(crate) fn leave(&self, seat: u64) {
        let mut state = self.state.lock();
        let Some((left, lost)) = state.stand(seat) else { return };
        let is_last = state.seats.is_empty();
        if is_last {
            state.phase = Phase::Ended;
        } else if let Some(link) = state.link.as_ref().filter(|_| left.is_there()) {
            drop(link.say(Order::Unload(seat)));
        }
        drop(state);
        lost.into_iter().for_each(|sent| sent.fail("the model was unloaded"));
        self.bell.ring();
        let thread = if is_last { self.thread.lock().take() } else { None };
        if let Some(thread) = thread {
            // A panic there was reported when it happened.
            drop(thread.join());
        }
    }

    /// Starts a run, now or when it is its turn.
    pub(crate) fn run(&self, sent: Sent) {
        let now = Instant::now();
        let deadline = sent.run.deadline;
        let mut state = self.state.lock();
        if let Err(unrun) = state.push(sent, now) {
            drop(state);
            let (sent, error) = *unrun;
            return (sent.reply)(Err(error));
        }
        let taken = state.take(now);
        let mut is_urgent = state.must_check_by(deadline);
        let n_waiting = state.places.n_waiting();
        if n_waiting > 0 {
            let next = state.places.next_deadline();
            // With the first that waits, who watches it looks out for places.
            is_urgent |= state.must_check_by(next) || n_waiting == 1;
        }
        match taken {
            Some(taken) => self.fly(state, taken),
            None => drop(state),
        }
        if is_urgent {
            self.bell.ring();
        }
    }

    /// Puts another way of taking turns in force for a model.
    pub(crate) fn set_turns(&self, seat: u64, turns: &Turns) -> batch::Result<()> {
        let changed = self.state.lock().set_turns(seat, turns);
        self.bell.ring();
        changed
    }

    /// Returns the time at which a run that starts now would be answered.
    pub(crate) fn forecast(&self, seat: u64, signature: u32) -> Option<Replica> {
        self.state.lock().forecast(seat, signature, Instant::now())
    }

    /// Returns the time that it takes until a model can be served here.
    pub(crate) fn until_ready(&self, seat: u64) -> Duration {
        self.state.lock().until_ready(seat, Instant::now())
    }

    /// Returns the state of a signature's queue.
    pub(crate) fn queue(&self, seat: u64, signature: u32) -> Option<QueueSnapshot> {
        self.state.lock().queue(seat, signature, Instant::now())
    }

    /// The lanes on which batches wait for their answers: as many as run at once. Whoever uses them
    /// keeps them, so that no lane ever drops them itself.
    pub(crate) fn lanes(&self) -> std::io::Result<Arc<Lanes>> {
        let mut lanes = self.lanes.lock();
        if let Some(lanes) = lanes.upgrade() {
            return Ok(lanes);
        }
        let n_lanes = self.options.n_threads;
        let new = Lanes::start(schedule::Options {
            n_lanes,
            inline_max: Duration::ZERO,
            run_max: self.options.run_max,
        })?;
        let new = Arc::new(new);
        *lanes = Arc::downgrade(&new);
        Ok(new)
    }

    /// Sends a run to the process. The lock is given up while its inputs are copied.
    fn fly(&self, mut state: parking_lot::MutexGuard<'_, State>, (sent, turned): (Sent, Turned)) {
        let id = state.next_number();
        let Sent { run, reply, seat, signature } = sent;
        let flight = Flight::new(seat, &run, reply);
        // When nothing else keeps the supervisor awake, it wakes while a short run is under way.
        let is_short = state.places.predict(&turned).is_some_and(|time| time <= SHORT);
        let is_expected = is_short && state.flights.is_empty();
        state.take_off(id, flight, turned);
        let Some(link) = state.link.clone() else {
            drop(state);
            return self.fail_flight(id, Status::unavailable("the worker has ended"));
        };
        drop(state);
        if ROUSING_BYTES.contains(&run.inputs.iter().map(Tensor::n_bytes).sum()) {
            link.rouse();
        }
        let placed = tensors::put(&link.inputs, &run.inputs);
        let inputs = match placed {
            Ok((inputs, block)) => {
                if let Some(flight) = self.state.lock().flights.get_mut(&id) {
                    flight.block = Some(block);
                }
                inputs
            }
            Err(error) => return self.fail_flight(id, error.into()),
        };
        let outputs = run.outputs.iter().map(|n| u32::try_from(*n).unwrap_or(u32::MAX)).collect();
        let end = self.options.run_max.and_then(|max| Instant::now().checked_add(max));
        let timeout_millis = timeout_millis(run.deadline.into_iter().chain(end).min());
        let inputs = Some(inputs);
        let order = RunOrder { id, model: seat, signature, inputs, outputs, timeout_millis };
        // Whatever else it is, the supervisor finds it out by itself.
        if let Err(error @ crate::Error::TooLong(_)) = link.say(Order::Run(order)) {
            return self.fail_flight(id, error.into());
        }
        if is_expected {
            self.is_expecting.store(true, Ordering::Release);
            self.bell.ring();
        }
    }

    /// Answers a run that could not be sent.
    fn fail_flight(&self, id: u64, error: Status) {
        let flight = self.state.lock().land(id, Ended::Unmeasured, Instant::now());
        if let Some(flight) = flight {
            (flight.reply)(Err(error));
        }
    }

    /// Returns a snapshot of the worker.
    pub(crate) fn snapshot(&self) -> WorkerSnapshot {
        // Not under the lock that requests go through: the system may take its time.
        let pid = self.state.lock().pid;
        let resident_bytes = pid.map_or(0, resident_bytes);
        let state = self.state.lock();
        let (n_running, n_abandoned) = state.n_runs();
        WorkerSnapshot {
            name: self.role.name.clone(),
            is_shared: self.role.is_shared,
            device: self.role.placement.device.clone(),
            state: state.worker_state(),
            pid,
            tensorflow_version: state.version.clone(),
            models: state.models(resident_bytes, Instant::now()),
            devices: state.devices(),
            n_restarts: state.n_restarts,
            n_running,
            n_abandoned,
            n_waiting: state.places.n_waiting(),
            resident_bytes,
            base_bytes: state.base_bytes,
            limit_bytes: self.options.memory.map(|limit| limit.bytes),
            load_timeout: self.options.load_timeout,
        }
    }

    /// Ends the process if it holds more than so many bytes, unless no model was let in: then it is
    /// not the models that are too large. Its requests fail, and it is started again.
    pub(crate) fn end_beyond(&self, most_bytes: u64) {
        let pid = self.state.lock().pid;
        let resident = pid.map_or(0, resident_bytes);
        let mut state = self.state.lock();
        let has_models = state.seats.values().any(|seat| seat.is_admitted);
        if resident <= most_bytes || state.pid != pid || !has_models {
            return;
        }
        state.excess = Some(format!("its process held {resident} bytes of at most {most_bytes}"));
        drop(state);
        self.bell.ring();
    }

    /// Passes a line of the process's output on to our log, with the model that it is about if that
    /// can be but one, else with all that are there.
    fn log(&self, line: &str) {
        let state = self.state.lock();
        let worker = &self.role.name;
        if let Some(Passenger { model, version, .. }) = state.speaker().cloned() {
            drop(state);
            tracing::info!(worker, model, version, "{line}");
            return;
        }
        let name = |one: &Passenger| format!("{}/{}", one.model, one.version);
        let models: Vec<String> = state.seats.values().map(|seat| name(&seat.passenger)).collect();
        drop(state);
        tracing::info!(worker, models = models.join(" "), "{line}");
    }

    /// Returns whether models may still take a seat.
    pub(crate) fn is_open(&self) -> bool {
        !matches!(self.state.lock().phase, Phase::Ended)
    }
}

/// The time left in milliseconds, at least one; 0 if there is no end.
fn timeout_millis(deadline: Option<Instant>) -> i64 {
    let Some(deadline) = deadline else { return 0 };
    let left = deadline.saturating_duration_since(Instant::now());
    i64::try_from(left.as_millis()).unwrap_or(i64::MAX).max(1)
}
