//! The thread that supervises a worker.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use device::Buffer;
use session::Reply;
use status::Status;
use tensor::Tensor;

use super::Worker;
use super::places::Ended;
use super::state::{Phase, Seat, SeatState, late};
use crate::bell::Watched;
use crate::error::worker_status;
use crate::options::Renewal;
use crate::process::{Link, Process};
use crate::snapshot::resident_bytes;
use crate::tensors::{self, Received};
use crate::wire::{Done, FromWorker, Loaded, Order, Ready, Tensors, Word};

/// The interval at which an idle worker is looked at.
const TICK: Duration = Duration::from_secs(5);

/// The interval of the check that running runs are still waited for, while others wait.
const PATROL: Duration = Duration::from_millis(20);

/// The number of a worker's words that are heard before other work that is due.
const WORDS_AT_ONCE: usize = 1000;

/// The first and the longest wait before a process is started again.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));

/// A process that ran for so long is not one of a row of failures.
const STEADY: Duration = Duration::from_secs(60);

/// The reason that a process ended.
enum Ending {
    /// The worker is not wanted any more.
    Unwanted,
    /// It is to be started anew.
    Renewed,
    /// By itself.
    Lost(String),
}

impl Worker {
    /// Keeps a process running until the worker is not wanted any more.
    pub(super) fn supervise(self: Arc<Self>) {
        let mut n_failures = 0;
        loop {
            let start = Instant::now();
            let ending = self.run_process();
            match ending {
                Ending::Unwanted => break,
                Ending::Renewed => {
                    tracing::info!(worker = self.role.name, "started anew");
                    n_failures = 0;
                }
                Ending::Lost(why) => {
                    n_failures = if start.elapsed() > STEADY { 1 } else { n_failures + 1 };
                    if !self.back_off(&why, n_failures) {
                        break;
                    }
                }
            }
        }
        self.fail_all("the worker has ended");
        self.changed.notify_all();
    }

    /// Waits before the next start. Gives false if there is to be none.
    fn back_off(&self, why: &str, n_failures: u32) -> bool {
        let wait = BACK_OFF.0 * 2u32.saturating_pow(n_failures.min(10) - 1);
        let wait = wait.min(BACK_OFF.1);
        tracing::error!(worker = self.role.name, "{why}; the next start is in {wait:?}");
        let end = Instant::now() + wait;
        let mut state = self.state.lock();
        if matches!(state.phase, Phase::Ended) {
            return false;
        }
        state.n_restarts += 1;
        if n_failures > 1 {
            let why_not = format!("{why}; it will be started again");
            state.phase = Phase::BackingOff { why: why_not, until: end };
            let lost = state.places.remove_all();
            drop(state);
            lost.into_iter().for_each(|sent| sent.fail(why));
        } else {
            drop(state);
        }
        loop {
            // What waits is answered when its time is up.
            self.pump();
            let left = end.saturating_duration_since(Instant::now());
            if matches!(self.state.lock().phase, Phase::Ended) {
                return false;
            }
            if left.is_zero() {
                return true;
            }
            self.bell.wait(None, left.min(PATROL));
        }
    }

    /// Starts a process and serves it until it ends.
    fn run_process(self: &Arc<Self>) -> Ending {
        {
            let mut state = self.state.lock();
            if matches!(state.phase, Phase::Ended) {
                return Ending::Unwanted;
            }
            state.phase = Phase::Starting;
            state.began = Instant::now();
        }
        let worker = Arc::downgrade(self);
        let log = move |line: &str| {
            if let Some(worker) = worker.upgrade() {
                worker.log(line);
            }
        };
        let ending = match Process::start(&self.options, &self.role, log) {
            Ok(mut process) => {
                self.state.lock().pid = Some(process.id());
                let ending = Serving::new(self, &mut process).until_the_end();
                process.end();
                ending
            }
            Err(error) => Ending::Lost(error.to_string()),
        };
        let why = match &ending {
            Ending::Lost(why) => why.clone(),
            Ending::Unwanted | Ending::Renewed => "the worker was ended".to_owned(),
        };
        let lost = {
            let mut state = self.state.lock();
            if !matches!(state.phase, Phase::Ended) {
                state.phase = Phase::Starting;
            }
            let lost = state.lose_process(&why, Instant::now());
            if matches!(ending, Ending::Lost(_)) {
                // Nothing can be loaded by a worker that does not start.
                for seat in state.seats.values_mut().filter(|seat| !seat.was_loaded) {
                    if matches!(seat.state, SeatState::Waiting) {
                        seat.state = SeatState::Failed(Status::unavailable(why.clone()));
                    }
                }
            }
            lost
        };
        for flight in lost {
            (flight.reply)(Err(Status::unavailable(why.clone())));
        }
        self.changed.notify_all();
        ending
    }

    /// Answers all that waits or runs.
    fn fail_all(&self, why: &str) {
        let (queue, flights) = {
            let mut state = self.state.lock();
            (state.places.remove_all(), state.lose_process(why, Instant::now()))
        };
        queue.into_iter().for_each(|sent| sent.fail(why));
        for flight in flights {
            (flight.reply)(Err(Status::unavailable(why)));
        }
    }

    /// Does what can be done with what waits.
    fn pump(&self) {
        let late = self.state.lock().places.expire(Instant::now());
        for (sent, error) in late {
            (sent.reply)(Err(error));
        }
        loop {
            let mut state = self.state.lock();
            let Some(taken) = state.take(Instant::now()) else { return };
            self.fly(state, taken);
        }
    }
}

/// One process being served.
struct Serving<'a> {
    worker: &'a Worker,
    process: &'a mut Process,
    last_tick: Instant,
    last_patrol: Instant,
    /// Set when not all orders to the worker have fitted in its ring.
    has_more: bool,
    has_rested: bool,
    /// Set when the process has run anything: only then can it hold less when it is started anew.
    has_worked: bool,
    was_reported: bool,
}

impl<'a> Serving<'a> {
    fn new(worker: &'a Worker, process: &'a mut Process) -> Self {
        Self {
            worker,
            process,
            last_tick: Instant::now(),
            last_patrol: Instant::now(),
            has_more: false,
            has_rested: true,
            has_worked: false,
            was_reported: false,
        }
    }

    fn until_the_end(&mut self) -> Ending {
        loop {
            if let Some(ending) = self.look() {
                return ending;
            }
            let has_ended = self.wait();
            // What it said before its end is heard, but one that never stops is not listened to for
            // ever: others wait for what is due.
            for _ in 0..WORDS_AT_ONCE {
                match self.process.answers.next::<FromWorker>() {
                    Ok(None) => break,
                    Ok(Some(FromWorker { word })) => {
                        if let Some(why) = word.and_then(|word| self.take(word)) {
                            return Ending::Lost(why);
                        }
                    }
                    Err(error) => return Ending::Lost(error.to_string()),
                }
            }
            if has_ended {
                return Ending::Lost(format!("its process ended: {}", self.process.end()));
            }
        }
    }

    /// Waits until there is something to do. Gives whether the process has ended.
    fn wait(&self) -> bool {
        let Process { answers, bell, socket, .. } = &*self.process;
        if !answers.begin_sleep() {
            return false;
        }
        let watched = Watched { bell, socket };
        let woken = self.worker.bell.wait(Some(watched), self.wait_limit());
        answers.end_sleep();
        if self.worker.is_expecting.swap(false, Ordering::Acquire) {
            answers.look_out();
        }
        woken.by_socket
    }

    fn wait_limit(&self) -> Duration {
        let (next, has_queue) = {
            let state = self.worker.state.lock();
            (state.next_check, state.places.n_waiting() > 0)
        };
        let now = Instant::now();
        let tick = (self.last_tick + TICK).saturating_duration_since(now);
        let due = next.map_or(tick, |next| tick.min(next.saturating_duration_since(now)));
        // Those that wait may take the places of runs that nobody waits for any more, of which
        // nobody tells us.
        if has_queue || self.has_more { due.min(PATROL) } else { due }
    }

    /// Does what is due, and gives the ending if it is time for it.
    fn look(&mut self) -> Option<Ending> {
        let now = Instant::now();
        let late_ones = {
            let mut state = self.worker.state.lock();
            if matches!(state.phase, Phase::Ended) {
                return Some(Ending::Unwanted);
            }
            if let Some(why) = state.excess.take() {
                return Some(Ending::Lost(why));
            }
            if state.link.is_some() {
                self.start_loads(&mut state);
            }
            let is_asked = self.worker.options.renewal == Renewal::AtOnce;
            if is_asked && state.has_leavers && matches!(state.phase, Phase::Up) {
                state.phase = Phase::Draining;
            }
            if matches!(state.phase, Phase::Draining) && state.n_runs().0 == 0 {
                return Some(Ending::Renewed);
            }
            if state.is_stuck() {
                let worker = &self.worker.role.name;
                tracing::warn!(worker, "all it runs was given up by those who asked for it");
                return Some(Ending::Renewed);
            }
            if now.duration_since(self.last_patrol) >= PATROL && state.places.n_waiting() > 0 {
                self.last_patrol = now;
                state.places.remove_moot();
            }
            if state.next_check.is_some_and(|check| check <= now) {
                state.take_late(now)
            } else {
                Vec::new()
            }
        };
        for reply in late_ones {
            reply(Err(late("while it ran")));
        }
        self.worker.pump();
        match self.process.link.say_on() {
            Ok(has_more) => self.has_more = has_more,
            Err(error) => return Some(Ending::Lost(error.to_string())),
        }
        if now.duration_since(self.last_tick) >= TICK {
            self.last_tick = now;
            return self.tick();
        }
        None
    }

    fn start_loads(&self, state: &mut super::State) {
        let Some(link) = state.link.clone() else { return };
        let is_due = |seat: &&mut Seat| seat.is_admitted && seat.state.is_waiting();
        for seat in state.seats.values_mut().filter(is_due) {
            seat.state = SeatState::Loading;
            seat.began = Some((Instant::now(), resident_bytes(self.process.id())));
            drop(link.say(Order::Load(seat.passenger.load.clone())));
        }
    }

    /// Looks after a worker that may be idle.
    fn tick(&mut self) -> Option<Ending> {
        let resident = resident_bytes(self.process.id());
        let limit = self.worker.options.memory;
        let is_over = limit.is_some_and(|limit| resident > limit.bytes);
        if is_over && !self.was_reported {
            self.was_reported = true;
            let limit = limit.map_or(0, |limit| limit.bytes);
            tracing::warn!(
                worker = self.worker.role.name,
                "holds {resident} bytes, which is more than its limit of {limit}"
            );
        }
        let state = self.worker.state.lock();
        for model in state.models(resident, Instant::now()) {
            if let Some(since) = model.loading_for {
                let (mib, of) = (model.grown_bytes >> 20, model.weights_bytes >> 20);
                let (model, limit) = (&model.model, self.worker.options.load_timeout);
                tracing::info!(
                    model,
                    "loading for {since:.0?} of at most {limit:.0?}: grown by {mib} MiB, its \
                     variables have {of} MiB"
                );
            }
        }
        if !state.is_idle() {
            self.has_rested = false;
            return None;
        }
        let gives_back = state.is_to_give_back(self.worker.options.renewal);
        let sheds = is_over && self.has_worked && limit.is_some_and(|limit| limit.renews);
        if gives_back || sheds {
            return Some(Ending::Renewed);
        }
        if !self.has_rested {
            self.has_rested = true;
            self.process.link.inputs.trim();
            drop(self.process.link.say(Order::Rest(true)));
        }
        None
    }

    /// Takes what the worker says. Gives why it cannot go on, if it cannot.
    fn take(&mut self, word: Word) -> Option<String> {
        match word {
            Word::Ready(ready) => self.is_ready(ready),
            Word::Failed(failure) => return Some(failure.text),
            Word::Loaded(loaded) => self.is_loaded(loaded),
            Word::Done(done) => self.is_done(done),
            Word::Released(id) => drop(self.worker.state.lock().held.remove(&id)),
        }
        None
    }

    fn is_ready(&self, ready: Ready) {
        let Ready { version, missing } = ready;
        if !missing.is_empty() {
            warn_once(&missing);
        }
        let mut state = self.worker.state.lock();
        state.version = version;
        state.base_bytes = resident_bytes(self.process.id());
        state.link = Some(Arc::clone(&self.process.link));
        if !matches!(state.phase, Phase::Ended) {
            state.phase = Phase::Up;
        }
        drop(state);
        self.worker.changed.notify_all();
    }

    fn is_loaded(&self, loaded: Loaded) {
        let mut state = self.worker.state.lock();
        if !state.seats.contains_key(&loaded.model) {
            // Nobody waited for it any longer.
            drop(self.process.link.say(Order::Unload(loaded.model)));
            return;
        }
        let ended = match loaded.failure {
            None => Ok(loaded.devices),
            Some(failure) => Err(worker_status(failure)),
        };
        let lost = state.is_loaded(loaded.model, ended, Instant::now());
        drop(state);
        for (sent, error) in lost {
            (sent.reply)(Err(error));
        }
        self.worker.changed.notify_all();
    }

    fn is_done(&mut self, done: Done) {
        self.has_rested = false;
        self.has_worked = true;
        let (flight, has_waiting) = {
            let mut state = self.worker.state.lock();
            let ended = match done.failure {
                None => Ended::Measured,
                Some(_) => Ended::Unmeasured,
            };
            let landed = state.land(done.id, ended, Instant::now());
            let Some(mut flight) = landed else { return };
            if done.holds_inputs
                && let Some(block) = flight.block.take()
            {
                state.held.insert(done.id, block);
            }
            (flight, state.places.n_waiting() > 0)
        };
        if has_waiting {
            // It is sent before the answer is passed on: the process is free.
            self.worker.pump();
        }
        let reply: Reply = flight.reply;
        drop(flight.block);
        let outputs = match (done.failure, done.outputs) {
            (Some(failure), _) => Err(worker_status(failure)),
            (None, outputs) => open(&self.process.link, &outputs.unwrap_or_default()),
        };
        reply(outputs);
    }
}

/// Says once which parts of the sandbox this system does not have.
fn warn_once(missing: &[String]) {
    static SAID: std::sync::Once = std::sync::Once::new();
    SAID.call_once(|| {
        let missing = missing.join(", ");
        tracing::warn!("workers are not fully confined: this system lacks {missing}");
    });
}

/// The outputs of a run, where the worker put them.
fn open(link: &Arc<Link>, outputs: &Tensors) -> status::Result<Vec<Tensor>> {
    if outputs.len == 0 {
        let whole = tensors::inline(&outputs.inline)?;
        return Ok(tensors::take(outputs, &whole)?);
    }
    let (owner, offset) = (Arc::clone(link), outputs.offset);
    // If the worker is gone, so is its memory.
    let bytes = outputs.len;
    let given_back = Box::new(move || drop(owner.free(offset, bytes)));
    let received = Received::new(&link.outputs, outputs, given_back)?;
    let whole = Buffer::from_foreign(Box::new(received));
    Ok(tensors::take(outputs, &whole)?)
}
