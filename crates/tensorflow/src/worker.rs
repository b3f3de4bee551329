//! `Worker`: one worker process and its successors, seen from the server.
//!
//! A thread supervises it: starts the process, has the models loaded that have a seat in it, passes
//! answers on, fails what is too late, and when the process ends, starts another after a while.
//! Requests never wait for that thread: they write to the socket themselves if the worker is free,
//! else they stand in the queue.

mod bell;
mod state;
mod supervise;

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use session::{Error, Reply, Run};

use crate::error::Result;
use crate::options::Options;
use crate::sandbox::Rules;
use crate::snapshot::WorkerSnapshot;
use crate::tensors;
use crate::wire::{Load, Order, RunOrder};
use bell::Bell;
use state::{Flight, Phase, Seat, SeatState, State, Task};

/// How often a load looks whether it is still wanted.
const CANCEL_CHECK: Duration = Duration::from_millis(100);

/// A worker process and its successors.
pub(crate) struct Worker {
    pub(crate) options: Arc<Options>,
    pub(crate) name: String,
    pub(crate) rules: Rules,
    state: Mutex<State>,
    /// Signalled when a load ends, a worker is ready, or the worker ends.
    changed: Condvar,
    bell: Bell,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A run, and where it is to run.
pub(crate) struct Sent {
    pub(crate) run: Run,
    pub(crate) reply: Reply,
    pub(crate) seat: u64,
    /// The place of the signature among the seat's.
    pub(crate) signature: u32,
}

impl Worker {
    /// Starts a worker. Its process starts beside, on the thread that supervises it.
    pub(crate) fn start(options: &Arc<Options>, name: String, rules: Rules) -> Result<Arc<Self>> {
        let worker = Arc::new(Self {
            options: Arc::clone(options),
            name,
            rules,
            state: Mutex::new(State::default()),
            changed: Condvar::new(),
            bell: Bell::new()?,
            thread: Mutex::default(),
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
        model: &str,
        load: Load,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Option<session::Result<u64>> {
        let seat = self.state.lock().sit(model, load)?;
        self.bell.ring();
        let outcome = self.await_load(seat, is_cancelled);
        if outcome.is_err() {
            self.leave(seat);
        }
        Some(outcome.map(|()| seat))
    }

    fn await_load(&self, seat: u64, is_cancelled: &dyn Fn() -> bool) -> session::Result<()> {
        let end = Instant::now() + self.options.load_timeout;
        let mut state = self.state.lock();
        loop {
            match state.seats.get(&seat).map(|seat| &seat.state) {
                None => return Err(Error::Unavailable("the worker has ended".to_owned())),
                Some(SeatState::Loaded) => return Ok(()),
                Some(SeatState::Failed(error)) => return Err(error.clone()),
                Some(SeatState::Waiting | SeatState::Loading) => {}
            }
            if is_cancelled() {
                return Err(Error::Cancelled("no longer wanted".to_owned()));
            }
            if Instant::now() >= end {
                let limit = self.options.load_timeout;
                let text = format!("TensorFlow did not load the model within {limit:?}");
                return Err(Error::DeadlineExceeded(text));
            }
            self.changed.wait_for(&mut state, CANCEL_CHECK);
        }
    }

    /// Gives a seat up: the model is unloaded. The last one ends the process, and waits for its
    /// end.
    pub(crate) fn leave(&self, seat: u64) {
        let mut state = self.state.lock();
        let Some(left) = state.seats.remove(&seat) else { return };
        let lost = state.take_tasks_of(seat);
        let is_last = state.seats.is_empty();
        if is_last {
            state.phase = Phase::Ended;
        } else {
            state.has_leavers = true;
            if let Some(link) = state.link.as_ref().filter(|_| left.state.is_there()) {
                drop(link.say(Order::Unload(seat)));
            }
        }
        drop(state);
        lost.into_iter().for_each(|task| task.fail("the model was unloaded"));
        self.bell.ring();
        let thread = if is_last { self.thread.lock().take() } else { None };
        if let Some(thread) = thread {
            // A panic there was reported when it happened.
            drop(thread.join());
        }
    }

    /// Starts a run, now or when the worker is free.
    pub(crate) fn run(&self, sent: Sent) {
        let mut state = self.state.lock();
        let refused = match &state.phase {
            Phase::Ended => Some("the worker has ended".to_owned()),
            Phase::BackingOff { why } => Some(why.clone()),
            Phase::Starting | Phase::Up | Phase::Draining
                if state.queue.len() >= self.options.queue_max =>
            {
                let n = state.queue.len();
                Some(format!("{n} requests are waiting already, and no more than that may"))
            }
            Phase::Starting | Phase::Up | Phase::Draining => None,
        };
        if let Some(why) = refused {
            drop(state);
            (sent.reply)(Err(Error::Unavailable(why)));
            return;
        }
        let is_urgent = state.must_check_by(sent.run.deadline);
        let task = Task { sent };
        if !state.queue.is_empty() || !state.can_fly(&task, self.options.n_threads) {
            state.queue.push_back(task);
            drop(state);
            if is_urgent {
                self.bell.ring();
            }
            return;
        }
        self.fly(state, task);
        if is_urgent {
            self.bell.ring();
        }
    }

    /// Sends a task to the process. The lock is given up while its inputs are copied.
    fn fly(&self, mut state: parking_lot::MutexGuard<'_, State>, task: Task) {
        let Some(link) = state.link.clone() else {
            state.queue.push_front(task);
            return;
        };
        let id = state.next_number();
        let Sent { run, reply, seat, signature } = task.sent;
        let (deadline, is_cancelled) = (run.deadline, Arc::clone(&run.is_cancelled));
        let flight = Flight { reply, block: None, deadline, is_cancelled };
        state.flights.insert(id, flight);
        drop(state);
        let placed = tensors::put(&link.inputs, &run.inputs);
        let inputs = match placed {
            Ok((inputs, block)) => {
                if let Some(flight) = self.state.lock().flights.get_mut(&id) {
                    flight.block = Some(block);
                }
                inputs
            }
            Err(error) => {
                let flight = self.state.lock().flights.remove(&id);
                if let Some(flight) = flight {
                    (flight.reply)(Err(error.into()));
                }
                return;
            }
        };
        let outputs = run.outputs.iter().map(|n| u32::try_from(*n).unwrap_or(u32::MAX)).collect();
        let timeout_millis = timeout_millis(run.deadline);
        let inputs = Some(inputs);
        let order = RunOrder { id, model: seat, signature, inputs, outputs, timeout_millis };
        if let Err(error) = link.say(Order::Run(order))
            && error.kind() == std::io::ErrorKind::InvalidInput
        {
            let flight = self.state.lock().flights.remove(&id);
            if let Some(flight) = flight {
                (flight.reply)(Err(Error::InvalidArgument(error.to_string())));
            }
        }
    }

    /// What is going on.
    pub(crate) fn snapshot(&self) -> WorkerSnapshot {
        self.state.lock().snapshot(&self.name)
    }

    /// Whether models may still take a seat.
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

impl Seat {
    fn new(model: &str, load: Load) -> Self {
        Self {
            model: model.to_owned(),
            load,
            state: SeatState::Waiting,
            was_loaded: false,
            devices: Vec::new(),
        }
    }
}
