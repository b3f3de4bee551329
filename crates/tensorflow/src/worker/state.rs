//! `State`: what the server knows of a worker. No I/O; the time is an argument.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use schedule::{QueueSnapshot, Replica, Turned};
use session::{Reply, Run};
use status::Status;

use super::Sent;
use super::places::{Ended, Entrance, Places, Turns, Unrun};
use crate::area::Block;
use crate::options::Renewal;
use crate::process::Link;
use crate::snapshot::{ModelSnapshot, ModelState, WorkerState};
use crate::wire::Load;

/// The phase of a worker.
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
    BackingOff { why: String, until: Instant },
    /// It is not wanted any more.
    Ended,
}

/// The server's state of a worker.
pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) link: Option<Arc<Link>>,
    pub(super) pid: Option<u32>,
    pub(super) version: String,
    /// The bytes that the process held when the library was loaded and no model yet.
    pub(super) base_bytes: u64,
    pub(super) n_restarts: u64,
    pub(super) seats: BTreeMap<u64, Seat>,
    /// The runs that wait to be sent to the process.
    pub(super) places: Places,
    pub(super) flights: HashMap<u64, Flight>,
    /// Inputs that TensorFlow holds beyond their runs.
    pub(super) held: HashMap<u64, Block>,
    /// The next time at which something is too late.
    pub(super) next_check: Option<Instant>,
    /// The reason to end the process if it holds far too much.
    pub(super) excess: Option<String>,
    /// Set when a model has left since the process started.
    pub(super) has_leavers: bool,
    /// The time at which the process was started.
    pub(super) began: Instant,
    n_threads: usize,
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
    /// Set when there is room for the model.
    pub(super) is_admitted: bool,
    /// The time at which the model's load began, and the bytes that the process held then.
    pub(super) began: Option<(Instant, u64)>,
    pub(super) state: SeatState,
    /// Set when the model was ever loaded: then it is loaded again after a crash.
    pub(super) was_loaded: bool,
    pub(super) devices: Vec<String>,
    /// The queues that take the model's runs.
    entrance: Entrance,
    /// The time at which the model took its seat, and the time that it took from then, or from the
    /// last start of the process, until it was loaded.
    sat: Instant,
    load_took: Duration,
}

/// The end of a load: the devices that TensorFlow sees, or a failure.
pub(super) type LoadEnd = Result<Vec<String>, Status>;

/// The state of a model.
#[derive(Debug)]
pub(super) enum SeatState {
    /// To be loaded.
    Waiting,
    /// Being loaded.
    Loading,
    /// Ready.
    Loaded,
    /// Not to be had.
    Failed(Status),
}

impl SeatState {
    /// Returns whether the model is to be loaded.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self, Self::Waiting)
    }

    /// Returns whether the process knows of the model.
    pub(super) fn is_there(&self) -> bool {
        matches!(self, Self::Loading | Self::Loaded)
    }
}

/// A run in the process.
pub(super) struct Flight {
    pub(super) seat: u64,
    pub(super) reply: Reply,
    pub(super) block: Option<Block>,
    pub(super) deadline: Option<Instant>,
    pub(super) is_cancelled: Arc<AtomicBool>,
    /// Its place, until it has given that back.
    turned: Option<Turned>,
}

impl Flight {
    /// A run of a seat that has not taken off, whose answer goes to `reply`.
    pub(super) fn new(seat: u64, run: &Run, reply: Reply) -> Self {
        let (deadline, is_cancelled) = (run.deadline, Arc::clone(&run.is_cancelled));
        Self { seat, reply, block: None, deadline, is_cancelled, turned: None }
    }

    /// Returns whether nobody waits for the model any more.
    pub(super) fn is_abandoned(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }
}

/// The least time until a process that starts is ready, and the time until one that will not be:
/// longer than any that will.
const SOON: Duration = Duration::from_millis(1);
const NEVER: Duration = Duration::from_secs(24 * 60 * 60);

impl State {
    /// Nothing is known yet of a worker that may run so much at once.
    pub(super) fn new(n_threads: usize, waiting_max: usize, now: Instant) -> Self {
        Self {
            phase: Phase::default(),
            link: None,
            pid: None,
            version: String::new(),
            base_bytes: 0,
            n_restarts: 0,
            seats: BTreeMap::new(),
            places: Places::new(n_threads, waiting_max, now),
            flights: HashMap::new(),
            held: HashMap::new(),
            next_check: None,
            excess: None,
            has_leavers: false,
            began: now,
            n_threads,
            last_number: 0,
        }
    }

    /// Takes a seat for a model. `None` if the worker is ending.
    pub(super) fn sit(&mut self, mut passenger: Passenger, now: Instant) -> Option<u64> {
        if matches!(self.phase, Phase::Ended) {
            return None;
        }
        let number = self.next_number();
        passenger.load.model = number;
        let entrance = self.places.add(passenger.load.signatures.len());
        self.seats.insert(number, Seat::new(passenger, entrance, now));
        Some(number)
    }

    /// Gives a seat up; gives what it was, and what waited for it.
    pub(super) fn stand(&mut self, number: u64) -> Option<(SeatState, Vec<Sent>)> {
        let seat = self.seats.remove(&number)?;
        self.has_leavers |= !self.seats.is_empty();
        let lost = self.places.remove(&seat.entrance);
        Some((seat.state, lost))
    }

    /// Takes note of how the load of a seat ended; gives what waits for it in vain, and why.
    pub(super) fn is_loaded(&mut self, number: u64, loaded: LoadEnd, now: Instant) -> Vec<Unrun> {
        let Some(seat) = self.seats.get_mut(&number) else { return Vec::new() };
        match loaded {
            Ok(devices) => {
                seat.devices = devices;
                seat.was_loaded = true;
                seat.load_took = now.saturating_duration_since(self.began.max(seat.sat));
                seat.state = SeatState::Loaded;
                self.places.release(&seat.entrance);
                Vec::new()
            }
            Err(error) => {
                seat.state = SeatState::Failed(error.clone());
                let lost = self.places.remove_of(&seat.entrance).into_iter();
                lost.map(|sent| (sent, error.clone())).collect()
            }
        }
    }

    /// Puts another way of taking turns in force for a seat.
    pub(super) fn set_turns(&mut self, number: u64, turns: &Turns) -> batch::Result<()> {
        let Some(seat) = self.seats.get_mut(&number) else { return Ok(()) };
        self.places.set_turns(&mut seat.entrance, turns)
    }

    pub(super) fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Has a run wait for its turn, or gives it back with why it may not.
    pub(super) fn push(&mut self, sent: Sent, now: Instant) -> Result<(), Box<Unrun>> {
        let gone = |text: &str| Status::unavailable(text);
        let why = match (&self.phase, self.seats.get(&sent.seat)) {
            (Phase::Ended, _) => gone("the worker has ended"),
            (Phase::BackingOff { why, until }, _) => {
                let retry_after = Some(until.saturating_duration_since(now));
                Status::unavailable(why).with_retry_after(retry_after)
            }
            (Phase::Starting | Phase::Up | Phase::Draining, None) => gone("the model was unloaded"),
            (Phase::Starting | Phase::Up | Phase::Draining, Some(seat)) => match &seat.state {
                SeatState::Failed(error) => error.clone(),
                SeatState::Waiting | SeatState::Loading | SeatState::Loaded => {
                    return self.places.push(&seat.entrance, sent, now);
                }
            },
        };
        Err(Box::new((sent, why)))
    }

    /// The run whose turn it is, if the process can take one.
    pub(super) fn take(&mut self, now: Instant) -> Option<(Sent, Turned)> {
        if !matches!(self.phase, Phase::Up) || self.flights.len() >= places_max(self.n_threads) {
            return None;
        }
        self.free_abandoned(now);
        self.places.take(now)
    }

    /// Takes note that a run is on its way to the process.
    pub(super) fn take_off(&mut self, id: u64, mut flight: Flight, turned: Turned) {
        flight.turned = Some(turned);
        self.flights.insert(id, flight);
    }

    /// Takes a run out that has ended.
    pub(super) fn land(&mut self, id: u64, ended: Ended, now: Instant) -> Option<Flight> {
        let mut flight = self.flights.remove(&id)?;
        if let Some(turned) = flight.turned.take() {
            self.places.give_back(turned, ended, now);
        }
        Some(flight)
    }

    /// Runs that nobody waits for give their places to others, though the process goes on with
    /// them.
    fn free_abandoned(&mut self, now: Instant) {
        for flight in self.flights.values_mut().filter(|flight| flight.is_abandoned()) {
            if let Some(turned) = flight.turned.take() {
                self.places.give_back(turned, Ended::Unmeasured, now);
            }
        }
    }

    /// Returns the time at which a run that comes now would be answered.
    pub(super) fn forecast(&self, seat: u64, signature: u32, now: Instant) -> Option<Replica> {
        let entrance = &self.seats.get(&seat)?.entrance;
        let forecast = self.places.forecast(entrance, signature as usize, now)?;
        Some(Replica { forecast, until_ready: self.until_ready(seat, now) })
    }

    /// Returns the time until a seat can be served: as long as it took the last time, less the time
    /// that has passed.
    pub(super) fn until_ready(&self, seat: u64, now: Instant) -> Duration {
        let Some(seat) = self.seats.get(&seat) else { return NEVER };
        let start = match (&self.phase, &seat.state) {
            (Phase::Ended, _) | (_, SeatState::Failed(_)) => return NEVER,
            (Phase::Up, SeatState::Loaded) => return Duration::ZERO,
            (Phase::BackingOff { until, .. }, _) => *until,
            (Phase::Draining, _) => now,
            (Phase::Starting | Phase::Up, _) => self.began,
        };
        (start + seat.load_took).saturating_duration_since(now).max(SOON)
    }

    /// Returns the state of a signature's queue.
    pub(super) fn queue(&self, seat: u64, signature: u32, now: Instant) -> Option<QueueSnapshot> {
        self.places.snapshot(&self.seats.get(&seat)?.entrance, signature as usize, now)
    }

    /// The runs in the process that somebody waits for.
    fn n_wanted(&self) -> usize {
        self.flights.values().filter(|flight| !flight.is_abandoned()).count()
    }

    /// Returns whether runs that nobody waits for have taken all places while others wait for one.
    pub(super) fn is_stuck(&self) -> bool {
        self.flights.len() >= places_max(self.n_threads)
            && self.n_wanted() == 0
            && self.places.n_waiting() > 0
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
        self.free_abandoned(now);
        let flying = self.flights.values().filter_map(|flight| flight.deadline);
        self.next_check = flying.chain(self.places.next_deadline()).min();
        replies
    }

    /// Forgets the process: its runs are taken out, its models wait to be loaded again, and those
    /// that never were have failed.
    pub(super) fn lose_process(&mut self, why: &str, now: Instant) -> Vec<Flight> {
        self.link = None;
        self.pid = None;
        self.held.clear();
        self.has_leavers = false;
        self.excess = None;
        for seat in self.seats.values_mut() {
            self.places.hold(&seat.entrance);
            let lost = || SeatState::Failed(Status::unavailable(why));
            match seat.state {
                SeatState::Loaded => seat.state = SeatState::Waiting,
                SeatState::Loading if seat.was_loaded => seat.state = SeatState::Waiting,
                SeatState::Loading => seat.state = lost(),
                SeatState::Waiting | SeatState::Failed(_) => {}
            }
        }
        let ids: Vec<u64> = self.flights.keys().copied().collect();
        ids.into_iter().filter_map(|id| self.land(id, Ended::Unmeasured, now)).collect()
    }

    /// Returns whether nothing runs or waits.
    pub(super) fn is_idle(&self) -> bool {
        self.flights.is_empty()
            && self.places.n_waiting() == 0
            && self.seats.values().all(|seat| !matches!(seat.state, SeatState::Loading))
    }

    /// Returns whether the process is to be started anew for the memory of models that have left:
    /// TensorFlow gives that of a GPU back only at the end of a process.
    pub(super) fn is_to_give_back(&self, renewal: Renewal) -> bool {
        renewal == Renewal::WhenIdle && self.has_leavers && self.sees_gpu() && self.is_idle()
    }

    /// Returns whether TensorFlow sees a GPU.
    fn sees_gpu(&self) -> bool {
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

    /// Returns how many runs are wanted, and how many are abandoned.
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
    fn new(passenger: Passenger, entrance: Entrance, now: Instant) -> Self {
        Self {
            passenger,
            is_admitted: false,
            began: None,
            state: SeatState::Waiting,
            was_loaded: false,
            devices: Vec::new(),
            entrance,
            sat: now,
            load_took: Duration::ZERO,
        }
    }
}

/// The answer to a run that is too late.
pub(super) fn late(when: &str) -> Status {
    Status::deadline_exceeded(format!("the request's time ran out {when}"))
}

#[cfg(test)]
mod tests;
