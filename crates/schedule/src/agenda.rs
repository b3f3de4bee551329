//! `Agenda`: what waits for the lanes of one device, and which batch runs next. It has no clock and
//! no threads.
//!
//! - **Fair between models.** Each model has a pass, which grows by the time that its batches run,
//!   divided by its weight; the model with the smallest pass goes next. One that was idle starts
//!   where the others are, so that it owes and is owed nothing (stride scheduling).
//! - **Heavy ones give way to light ones.** A model that uses less than half of its share is light.
//!   While a light one is active, the others leave it a lane, if there are several, and make
//!   batches that run for no longer than a fifth of what it usually runs, so that it waits little.
//!   Among heavy ones only the passes count, and batches are as large as they may be.
//! - **What is not known starts small.** Until a queue's first run is measured it runs one task at
//!   a time, and a light model whose runs are not known is taken to be quick. Where TensorFlow
//!   Serving's batching was asked for, batches form as it forms them, from the first on.
//! - **A batch fits.** It has no more rows than are known to fit in the memory that is free.
//! - **No hopeless work.** A task whose answer would come after its deadline is refused when it
//!   comes; so is one that finds its queue full. One that has waited until its answer would come
//!   too late is dropped, and a batch is no larger than its first task's deadline allows.
//! - **No lane is lost for ever.** A run that goes on for far longer than expected gives its lane
//!   up if every lane is busy and a model waits that has none, however many models have such runs
//!   (`overdue.rs`).

mod overdue;
mod share;
mod turn;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use batch::{Arrival, Class, First, Queue, Ready, Time};

use self::overdue::Detached;
pub(crate) use self::overdue::OVERDUE_MIN;
use self::overdue::{detached_ends, overrun};
use self::share::{ACTIVE_FOR, Model, USE_OVER};
pub use self::turn::{Ended, Turn, Turned};
use self::waiting::Waiting;
pub use self::waiting::{Admission, QueueSnapshot};
use crate::costs::Costs;
use crate::error::{Error, Refusal};
use crate::needs::Needs;
use crate::stats::Stats;

/// A model on an agenda.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModelId(usize);

/// A queue on an agenda.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueId(usize);

/// For how many models and queues there is room from the start. They come on threads that load, and
/// room that is made there stays on a page of the heap that should go with a model.
pub(crate) const PLACES: usize = 64;

/// The batches that wait for the lanes of one device.
#[derive(Debug)]
pub struct Agenda<T> {
    lanes: Vec<AgendaLane>,
    models: Vec<Option<Model>>,
    /// Each in a place of its own: they are large, and one that goes leaves nothing behind.
    queues: Vec<Option<Box<Waiting<T>>>>,
    /// The pass of the model that went last.
    pass: u64,
    /// The bytes that a batch that starts now may need.
    free_bytes: Option<u64>,
    /// The number of turns given, which numbers them.
    n_turns: u64,
    /// The runs that go on beside the lanes.
    detached: Vec<Detached>,
}

/// A lane's state.
#[derive(Debug, Clone, Copy, Default)]
struct AgendaLane {
    running: Option<AgendaRunning>,
    busy: Duration,
}

/// A run on a lane.
#[derive(Debug, Clone, Copy)]
struct AgendaRunning {
    /// The number of its turn.
    number: u64,
    model: ModelId,
    began: Time,
    /// The time at which the run is expected to end.
    ends: Time,
}

/// The next action of a lane.
#[derive(Debug)]
pub enum Next<T> {
    /// Run this.
    Run(Turn<T>),
    /// Nothing, until this time or until something comes.
    Wait(Option<Time>),
}

/// The predicted time until a task pushed now would be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Forecast {
    /// The time from now to the answer.
    pub finish: Duration,
    /// The number of tasks that wait on the device.
    pub n_waiting: usize,
    /// The number of busy lanes.
    pub n_busy: usize,
    /// `true` if runs of the queue have been measured: if not, the answer takes at least so long.
    pub is_measured: bool,
}

/// A copy of a lane's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneSnapshot {
    /// The time that the lane has been busy in all.
    pub busy: Duration,
    /// `true` if the lane is busy now.
    pub is_busy: bool,
}

impl QueueId {
    /// Its number among the queues of its agenda: small, and given again when it is free.
    pub fn number(self) -> usize {
        self.0
    }
}

impl<T> Agenda<T> {
    /// Nothing to do, for `n_lanes` lanes.
    pub fn new(n_lanes: usize) -> Self {
        assert!(n_lanes > 0);
        let lanes = vec![AgendaLane::default(); n_lanes];
        let (models, queues) = (Vec::with_capacity(PLACES), Vec::with_capacity(PLACES));
        Self { lanes, models, queues, pass: 0, free_bytes: None, n_turns: 0, detached: Vec::new() }
    }

    /// Adds a model. Weights are relative to each other: twice the weight, twice the time.
    pub fn add_model(&mut self, weight: u32) -> ModelId {
        let model = Model {
            weight: weight.max(1),
            pass: self.pass,
            n_running: 0,
            last_push: None,
            first_turn: None,
            lanes_used: 0.0,
            reckoned: Time::default(),
            is_held: false,
            is_removed: false,
        };
        ModelId(place(&mut self.models, model))
    }

    /// Gives a model another weight.
    pub fn set_weight(&mut self, model: ModelId, weight: u32) {
        if let Some(model) = &mut self.models[model.0] {
            model.weight = weight.max(1);
        }
    }

    /// Lets nothing of a model run until it is released; what comes waits, and expires.
    pub fn hold(&mut self, model: ModelId) {
        if let Some(model) = &mut self.models[model.0] {
            model.is_held = true;
        }
    }

    /// Lets a model run again that was held.
    pub fn release(&mut self, model: ModelId) {
        if let Some(model) = &mut self.models[model.0] {
            model.is_held = false;
        }
    }

    /// Removes a model with its queues, as soon as nothing of it runs; gives what still waited.
    pub fn remove_model(&mut self, id: ModelId) -> Vec<Arc<T>> {
        let mut waited = Vec::new();
        for place in &mut self.queues {
            let Some(waiting) = place.as_mut().filter(|waiting| waiting.model == id) else {
                continue;
            };
            waited.extend(waiting.queue.remove_if(|_| true));
            waiting.is_removed = true;
            if waiting.n_running == 0 {
                *place = None;
            }
        }
        if let Some(model) = &mut self.models[id.0] {
            model.is_removed = true;
        }
        self.models[id.0].take_if(|model| model.n_running == 0);
        waited
    }

    /// Adds a queue of a model. Fails if the options contradict each other.
    pub fn add_queue(
        &mut self,
        model: ModelId,
        options: batch::Options,
        admission: Admission,
    ) -> batch::Result<QueueId> {
        let waiting = Waiting {
            model,
            queue: Queue::new(options)?,
            costs: Costs::default(),
            stats: Stats::default(),
            needs: Needs::default(),
            rows_fit: None,
            admission,
            n_running: 0,
            is_removed: false,
        };
        Ok(QueueId(place(&mut self.queues, Box::new(waiting))))
    }

    /// The queues of a model.
    pub fn queues_of(&self, model: ModelId) -> Vec<QueueId> {
        let is_its = |waiting: &Waiting<T>| waiting.model == model && !waiting.is_removed;
        let all = self.queues.iter().enumerate();
        let own = all.filter(|(_, place)| place.as_deref().is_some_and(is_its));
        own.map(|(number, _)| QueueId(number)).collect()
    }

    /// Puts other options of a queue in force. Fails, and changes nothing, if they contradict each
    /// other.
    pub fn set_options(
        &mut self,
        queue: QueueId,
        options: batch::Options,
        admission: Admission,
    ) -> batch::Result<()> {
        let Some(waiting) = &mut self.queues[queue.0] else { return Ok(()) };
        waiting.queue.set_options(options)?;
        waiting.admission = admission;
        Ok(())
    }

    /// Says how many bytes a batch that starts now may need; `None` if nobody counts them.
    pub fn set_free_bytes(&mut self, free_bytes: Option<u64>) {
        self.free_bytes = free_bytes;
    }

    /// Adds a task, or refuses it.
    pub fn push(
        &mut self,
        id: QueueId,
        task: Arc<T>,
        arrival: &Arrival,
        now: Time,
    ) -> Result<(), Refusal> {
        let forecast = self.forecast(id, arrival.n_rows, now);
        let waiting = self.queues[id.0].as_mut().filter(|waiting| !waiting.is_removed);
        let Some(waiting) = waiting else { return Err(Refusal::from_error(Error::Closed)) };
        waiting.stats.n_asked += 1;
        waiting.stats.task_rows.add(arrival.n_rows as u64);
        let retry_after = Some(forecast.finish);
        if let Some(n_runs) = overrun(&self.detached, self.lanes.len(), waiting.model) {
            waiting.stats.n_refused += 1;
            return Err(Refusal::from_error(Error::Overrun { n_runs }));
        }
        if let Some(deadline) = arrival.deadline {
            let left = deadline.since(now);
            // What is too slow even alone is not refused for what waits before it.
            let is_possible = waiting.run(arrival.n_rows) <= left;
            let finish = with_margin(forecast.finish);
            let too_late = waiting.admission == Admission::InTime && is_possible && left < finish;
            if too_late || left.is_zero() {
                waiting.stats.n_refused += 1;
                let (predicted, n_waiting) = (forecast.finish, forecast.n_waiting);
                let error = Error::TooLate { predicted, left, n_waiting };
                return Err(Refusal { error, retry_after });
            }
        }
        if let Err(error) = waiting.queue.push(task, arrival, now) {
            waiting.stats.n_refused += 1;
            let is_full = !matches!(error, batch::Error::TaskTooLarge { .. });
            return Err(Refusal {
                error: error.into(),
                retry_after: retry_after.filter(|_| is_full),
            });
        }
        let model = waiting.model;
        let pass = self.pass;
        if let Some(model) = &mut self.models[model.0] {
            let was_idle = model.last_push.is_none_or(|last| now.since(last) > ACTIVE_FOR);
            if model.n_running == 0 && was_idle {
                model.pass = model.pass.max(pass);
            }
            model.last_push = Some(now);
        }
        Ok(())
    }

    /// The batch that runs next on a free lane, if there is both.
    pub fn next(&mut self, now: Time) -> Next<T> {
        self.next_within(now, |_, free_bytes| free_bytes)
    }

    /// The same, where `room` says how many bytes a batch of a queue may need, given what is free.
    pub fn next_within(&mut self, now: Time, room: impl Fn(QueueId, u64) -> u64) -> Next<T> {
        let Some(lane) = self.lanes.iter().position(|lane| lane.running.is_none()) else {
            return Next::Wait(None);
        };
        let mut wake: Option<Time> = None;
        let has_overrun = |model| overrun(&self.detached, self.lanes.len(), model).is_some();
        let mut best: Option<(bool, u64, QueueId)> = None;
        for (number, waiting) in self.queues.iter().enumerate() {
            let Some(waiting) = waiting else { continue };
            let Some(model) = &self.models[waiting.model.0] else { continue };
            match waiting.ready(now) {
                _ if model.is_held => {}
                Ready::Never => {}
                Ready::At(time) => wake = Some(wake.map_or(time, |wake| wake.min(time))),
                Ready::Now(_) if model.n_running >= self.lane_share(waiting.model, now) => {}
                Ready::Now(_) if has_overrun(waiting.model) => {}
                Ready::Now(_) => {
                    // Beside endless runs, those who have no lane go first: who knows when the
                    // next run ends?
                    let goes_later = !self.detached.is_empty() && model.n_running > 0;
                    let key = (goes_later, model.pass, QueueId(number));
                    best = Some(best.map_or(key, |best| best.min(key)));
                }
            }
        }
        let room = |queue| self.free_bytes.map(|free_bytes| room(queue, free_bytes));
        let best = best.map(|(_, _, queue)| (queue, room(queue)));
        let turn = best.and_then(|(queue, room)| self.start(queue, lane, now, room));
        turn.map_or(Next::Wait(wake), Next::Run)
    }

    /// Takes note that a batch has run, and frees its lane, unless the lane was taken from it.
    pub fn done(&mut self, turn: &Turned, now: Time) -> Ended {
        let (queue, took) = (turn.queue, now.since(turn.taken));
        let lane = &mut self.lanes[turn.lane];
        let (ended, charged) = match lane.running.take_if(|run| run.number == turn.number) {
            Some(_) => {
                lane.busy += took;
                (Ended::OnItsLane, Duration::ZERO)
            }
            None => (Ended::Detached, detached_ends(&mut self.detached, turn.number)),
        };
        let waiting = self.queues[queue.0].as_mut().expect("a queue stays while it runs");
        let predicted = waiting.costs.predict(turn.n_padded).unwrap_or_default();
        if turn.has_run {
            waiting.costs.note(turn.n_padded, took);
        }
        waiting.stats.note_run(turn, took);
        waiting.n_running -= 1;
        let model = waiting.model;
        self.queues[queue.0].take_if(|waiting| waiting.is_removed && waiting.n_running == 0);
        let place = &mut self.models[model.0];
        let model = place.as_mut().expect("a model stays while it runs");
        model.n_running -= 1;
        model.lanes_used = model.decayed(now) + took.as_secs_f64() / USE_OVER.as_secs_f64();
        model.reckoned = now;
        // It was charged what was predicted; now it is charged what it took.
        model.pass = model.pass.saturating_add(charge(took.saturating_sub(charged), model.weight));
        model.pass = model.pass.saturating_sub(charge(predicted, model.weight));
        place.take_if(|model| model.is_removed && model.n_running == 0);
        ended
    }

    /// Takes note of the bytes that a batch needs.
    pub fn note_needs(&mut self, queue: QueueId, class: &Class, n_rows: usize, bytes: u64) {
        if let Some(waiting) = &mut self.queues[queue.0] {
            waiting.needs.note(class, n_rows, bytes);
        }
    }

    /// Takes note of how long a task that is refused was here.
    pub fn note_refusal(&mut self, queue: QueueId, took: Duration) {
        if let Some(waiting) = &mut self.queues[queue.0] {
            waiting.stats.note_refusal(took);
        }
    }

    /// Takes note that a failed batch is run again task by task.
    pub fn note_rerun(&mut self, queue: QueueId) {
        if let Some(waiting) = &mut self.queues[queue.0] {
            waiting.stats.n_rerun += 1;
        }
    }

    /// Removes the tasks whose deadline has come.
    pub fn expire(&mut self, now: Time) -> Vec<Arc<T>> {
        let mut expired = Vec::new();
        let queues = self.queues.iter_mut().flatten();
        for waiting in queues.filter(|waiting| waiting.queue.n_tasks() > 0) {
            let run = match waiting.admission {
                Admission::InTime => waiting.run(1),
                Admission::Room => Duration::ZERO,
            };
            let late = waiting.queue.expire(now, run);
            waiting.stats.n_expired += late.len() as u64;
            expired.extend(late);
        }
        expired
    }

    /// Removes the tasks of a queue that nobody waits for any more.
    pub fn remove_if(&mut self, queue: QueueId, is_moot: impl FnMut(&T) -> bool) -> Vec<Arc<T>> {
        let Some(waiting) = &mut self.queues[queue.0] else { return Vec::new() };
        let moot = waiting.queue.remove_if(is_moot);
        waiting.stats.n_cancelled += moot.len() as u64;
        moot
    }

    /// The time at which the next task expires.
    pub fn next_deadline(&self) -> Option<Time> {
        let queues = self.queues.iter().flatten();
        queues.filter_map(|waiting| waiting.queue.next_deadline()).min()
    }

    /// Predicts the time until a task of `n_rows` rows, pushed now, would be answered.
    pub fn forecast(&self, queue: QueueId, n_rows: usize, now: Time) -> Forecast {
        let (n_waiting, n_busy) = (self.n_waiting(), self.n_busy());
        let Some(waiting) = &self.queues[queue.0] else {
            return Forecast { finish: Duration::ZERO, n_waiting, n_busy, is_measured: false };
        };
        let share = self.lane_share(waiting.model, now).max(1);
        let free = self.lanes.iter().map(|lane| lane.running.map_or(now, |run| run.ends.max(now)));
        let first_free = free.min().unwrap_or(now).since(now);
        let (own, ride) = waiting.ahead(n_rows);
        // Others get their turns meanwhile, but no more of them than their shares.
        let others = self.queues.iter().flatten().filter(|other| other.model != waiting.model);
        let others: Duration = others.map(|other| other.backlog()).sum();
        let others = others.min(own + ride);
        let ahead = own / u32::try_from(share).unwrap_or(u32::MAX)
            + others / u32::try_from(self.lanes.len()).unwrap_or(u32::MAX);
        let finish = first_free + ahead + ride;
        let is_measured = waiting.costs.predict(n_rows).is_some();
        Forecast { finish, n_waiting, n_busy, is_measured }
    }

    /// The expected run time of a batch of a queue; `None` before the first has run.
    pub fn predict(&self, queue: QueueId, n_rows: usize) -> Option<Duration> {
        let waiting = self.queues[queue.0].as_ref()?;
        waiting.costs.predict(waiting.queue.options().padded(n_rows))
    }

    /// The number of waiting tasks.
    pub fn n_waiting(&self) -> usize {
        self.queues.iter().flatten().map(|waiting| waiting.queue.n_tasks()).sum()
    }

    /// Removes the tasks of all queues that nobody waits for any more.
    pub fn remove_all_if(&mut self, mut is_moot: impl FnMut(&T) -> bool) -> Vec<Arc<T>> {
        let queues = 0..self.queues.len();
        queues.flat_map(|number| self.remove_if(QueueId(number), &mut is_moot)).collect()
    }

    /// Removes everything that waits.
    pub fn remove_all(&mut self) -> Vec<Arc<T>> {
        let queues = self.queues.iter_mut().flatten();
        queues.flat_map(|waiting| waiting.queue.remove_if(|_| true)).collect()
    }

    /// Returns whether a lane is free.
    pub fn has_free_lane(&self) -> bool {
        self.lanes.iter().any(|lane| lane.running.is_none())
    }

    /// The number of lanes that run something.
    pub fn n_busy(&self) -> usize {
        self.lanes.iter().filter(|lane| lane.running.is_some()).count()
    }

    /// A copy of a queue's state.
    pub fn snapshot(&self, queue: QueueId, now: Time) -> Option<QueueSnapshot> {
        let waiting = self.queues[queue.0].as_ref()?;
        let options = waiting.queue.options().clone();
        Some(QueueSnapshot {
            model: waiting.model,
            weight: self.models[waiting.model.0].as_ref().map_or(0, |model| model.weight),
            n_tasks: waiting.queue.n_tasks(),
            n_rows: waiting.queue.n_rows(),
            age: waiting.queue.oldest().map_or(Duration::ZERO, |oldest| now.since(oldest)),
            stats: waiting.stats.clone(),
            run_one: waiting.costs.predict(options.padded(1)),
            run_full: waiting.costs.predict(options.padded(options.batch_rows_max)),
            rows_fit: waiting.rows_fit,
            options,
        })
    }

    /// The lanes, with what they have run up to now.
    pub fn lanes(&self, now: Time) -> Vec<LaneSnapshot> {
        let of = |lane: &AgendaLane| LaneSnapshot {
            busy: lane.busy + lane.running.map_or(Duration::ZERO, |run| now.since(run.began)),
            is_busy: lane.running.is_some(),
        };
        self.lanes.iter().map(of).collect()
    }

    /// Asserts that the books are right.
    pub fn check(&self) {
        for waiting in self.queues.iter().flatten() {
            waiting.queue.check();
            assert!(self.models[waiting.model.0].is_some(), "a queue has a model");
        }
        let running: usize = self.models.iter().flatten().map(|model| model.n_running).sum();
        assert_eq!(running, self.n_busy() + self.detached.len());
        assert!(self.detached.len() <= self.models.len() * self.lanes.len());
    }

    fn start(
        &mut self,
        id: QueueId,
        lane: usize,
        now: Time,
        free_bytes: Option<u64>,
    ) -> Option<Turn<T>> {
        let slice = self.slice(id, now);
        let waiting = self.queues[id.0].as_mut()?;
        let options_max = waiting.queue.options().batch_rows_max;
        let is_in_time = waiting.admission == Admission::InTime;
        // What was never measured runs one task at a time: nobody knows whom it would keep waiting.
        let starts_small = waiting.costs.is_empty() && waiting.admission == Admission::InTime;
        let in_time = match slice {
            _ if starts_small => 1,
            Some(slice) => waiting.costs.rows_within(slice, options_max),
            None => usize::MAX,
        };
        let run = waiting.run(waiting.queue.n_rows().min(options_max));
        let worth = waiting.rows_worth();
        let (needs, costs) = (&waiting.needs, &waiting.costs);
        let rows_max = |first: First<'_>| {
            let fitting = free_bytes.and_then(|free| needs.rows_within(first.class, free));
            let fitting = fitting.map_or(usize::MAX, |rows| first.options.rows_within(rows));
            let deadline = first.deadline.filter(|_| is_in_time);
            let left = deadline.map(|deadline| without_margin(deadline.since(now)));
            let punctual = left.map_or(usize::MAX, |left| costs.rows_within(left, options_max));
            in_time.min(fitting).min(punctual).min(worth)
        };
        let batch = waiting.queue.take(now, run, rows_max)?;
        waiting.rows_fit = free_bytes.and_then(|free| waiting.needs.rows_fit(free));
        let run = waiting.run(batch.n_padded);
        waiting.stats.note_taken(&batch, now);
        let is_news = free_bytes.is_some() && waiting.needs.is_news(&batch.class, batch.n_padded);
        let model = self.models[waiting.model.0].as_mut()?;
        self.pass = model.pass;
        model.pass = model.pass.saturating_add(charge(run, model.weight));
        model.n_running += 1;
        model.first_turn.get_or_insert(now);
        waiting.n_running += 1;
        let number = self.n_turns;
        self.n_turns += 1;
        let model = waiting.model;
        self.lanes[lane].running =
            Some(AgendaRunning { number, model, began: now, ends: now.plus(run) });
        Some(Turn { queue: id, lane, batch, taken: now, is_news, number })
    }
}

/// Puts a value in the first free place.
fn place<V>(places: &mut Vec<Option<V>>, value: V) -> usize {
    if let Some(free) = places.iter().position(Option::is_none) {
        places[free] = Some(value);
        return free;
    }
    places.push(Some(value));
    places.len() - 1
}

/// A prediction may be off by one part in so many, and the answer must still travel.
const MARGIN_PART: u32 = 16;

/// A time in which what was predicted to take `time` is done.
fn with_margin(time: Duration) -> Duration {
    time + time / MARGIN_PART
}

/// The longest prediction for a run that must be done in `time`.
fn without_margin(time: Duration) -> Duration {
    time - time / MARGIN_PART
}

fn charge(time: Duration, weight: u32) -> u64 {
    // A batch whose time is not known yet is charged a little, so that turns are taken.
    let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1000);
    nanos / u64::from(weight)
}

#[cfg(test)]
mod tests;
