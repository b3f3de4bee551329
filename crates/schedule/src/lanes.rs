//! `Lanes`: the threads of a device that run batches. All they decide stands in [`Agenda`]; here
//! are the lock, the clock and the threads around it.
//!
//! A lane owns the activation memory of what it runs: the workspace is as large as the largest plan
//! that ran on it, and every model on the lane shares it. A task that is known to run faster than a
//! thread wakes runs on its caller's thread, in a lane's place and workspace, if the lane is free.
//!
//! Lanes that are idle give their memory back. When a task is on its way ([`Share::expect`]), the
//! clock takes it again, while the task is still read, so that the lane finds it there.
//!
//! A run that is overdue loses its lane when models wait that have none. It goes on beside the
//! lanes, and the clock starts another thread for the lane. The thread of such a run ends with it.

#[path = "lanes/clock.rs"]
mod clock;

use std::sync::Arc;
use std::time::{Duration, Instant};

use batch::{Arrival, Class, Time};
use device::{Owner, Space, Workspace};

use crate::agenda::{
    Agenda, Ended, Forecast, LaneSnapshot, ModelId, Next, PLACES, QueueId, QueueSnapshot, Turn,
};
use crate::error::{Error, Refusal};
use crate::memory::{grow_ahead, spaces, workspace};
use crate::needs::Weighed;
use crate::options::{Need, Options, QueueOptions};
use crate::run::{self, Outcome};
use crate::task::{Failure, Task, Work, fail_expired};

use super::sync::{self, Condvar, JoinHandle, Mutex, MutexGuard};

/// The lanes of one device. Dropping them ends the threads; tasks that wait are refused.
#[derive(Debug)]
pub struct Lanes {
    shared: Arc<LanesShared>,
    threads: Vec<JoinHandle<()>>,
}

/// A model's share of the lanes. Dropping it removes the model; tasks that wait are refused.
#[derive(Debug)]
pub struct Share {
    shared: Arc<LanesShared>,
    model: ModelId,
}

struct LanesShared {
    state: Mutex<LanesState>,
    /// Signalled when a lane may have something to do.
    changed: Condvar,
    /// Signalled when a deadline comes before the one that the clock waits for.
    due: Condvar,
    inline_max: Duration,
    run_max: Option<Duration>,
    start: Instant,
    /// The owner that pays for the workspaces.
    owner: Option<Arc<Owner>>,
}

struct LanesState {
    agenda: Agenda<Task>,
    /// The work of each queue, by its number.
    works: Vec<Option<Arc<dyn Work>>>,
    /// The workspaces of free lanes, by their numbers.
    workspaces: Vec<Option<Workspace>>,
    /// The time at which the clock wakes.
    clock_wakes: Option<Time>,
    /// Set when the clock is to take memory for tasks that are on their way, or may come.
    is_expecting: bool,
    /// The bytes that the clock is to take for waiting batches, by the space of their memory.
    expected: Vec<(Arc<Space>, u64)>,
    /// The time at which a lane ended its last turn.
    last_turn: Time,
    /// The number of times that lanes were told to give their memory back.
    n_trims: u64,
    /// The threads that were started for lanes whose runs were detached.
    spares: Vec<JoinHandle<()>>,
    /// The number of threads beyond one a lane, now that detached runs have ended.
    n_surplus: usize,
    is_ended: bool,
}

/// The cause of releases by lanes that were told to give memory back.
const ASKED: &str = "asked";

/// Lanes that had nothing to do for so long give their memory back.
const IDLE: Duration = Duration::from_secs(3);

impl Lanes {
    /// Starts the threads, whose memory nobody counts. Fails if the system refuses one.
    pub fn start(options: Options) -> std::io::Result<Self> {
        Self::start_for(options, None)
    }

    /// Starts the threads. Their workspaces are in the space of `owner`, who pays for them.
    pub fn start_for(options: Options, owner: Option<Arc<Owner>>) -> std::io::Result<Self> {
        assert!(options.n_lanes > 0);
        let empty = |_| workspace(owner.as_ref()).map(Some);
        let workspaces = (0..options.n_lanes).map(empty).collect::<Result<_, _>>();
        let shared = Arc::new(LanesShared {
            state: Mutex::new(LanesState {
                agenda: Agenda::new(options.n_lanes),
                works: Vec::with_capacity(PLACES),
                workspaces: workspaces.map_err(std::io::Error::other)?,
                clock_wakes: None,
                is_expecting: false,
                expected: Vec::new(),
                last_turn: Time::default(),
                n_trims: 0,
                spares: Vec::new(),
                n_surplus: 0,
                is_ended: false,
            }),
            changed: Condvar::new(),
            due: Condvar::new(),
            inline_max: options.inline_max,
            run_max: options.run_max,
            start: Instant::now(),
            owner,
        });
        let mut lanes = Self { shared, threads: Vec::with_capacity(options.n_lanes + 1) };
        for number in 0..options.n_lanes {
            let shared = Arc::clone(&lanes.shared);
            lanes.spawn(format!("lane-{number}"), move || shared.work())?;
        }
        let shared = Arc::clone(&lanes.shared);
        lanes.spawn("lane-clock".to_owned(), move || shared.keep_time())?;
        Ok(lanes)
    }

    fn spawn(&mut self, name: String, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        self.threads.push(sync::spawn(name, body)?);
        Ok(())
    }

    /// A share for a model.
    pub fn share(&self, weight: u32) -> Share {
        let model = self.shared.state.lock().agenda.add_model(weight);
        Share { shared: Arc::clone(&self.shared), model }
    }

    /// The lanes, with what they have run up to now.
    pub fn snapshot(&self) -> Vec<LaneSnapshot> {
        self.shared.state.lock().agenda.lanes(self.shared.now())
    }

    /// Tells the lanes to give back the memory of their workspaces: those that are free at once,
    /// the others when their turn ends.
    pub fn trim(&self) {
        let mut state = self.shared.state.lock();
        state.n_trims += 1;
        self.shared.trim_free(&mut state, |space| space.trim(ASKED));
        drop(state);
        // What their threads keep of the heap, only they can give back.
        self.shared.changed.notify_all();
    }

    /// The number of batches that run at once.
    pub fn n_lanes(&self) -> usize {
        self.shared.state.lock().workspaces.len()
    }

    /// For how long the lanes have been there.
    pub fn age(&self) -> Duration {
        self.shared.start.elapsed()
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.is_ended = true;
        let spares = std::mem::take(&mut state.spares);
        drop(state);
        self.shared.changed.notify_all();
        self.shared.due.notify_all();
        // An answer may be the last that holds them, and is given on a lane, which ends by itself.
        let threads = self.threads.drain(..).chain(spares);
        for thread in threads.filter(|thread| !sync::is_own(thread)) {
            // A lane catches the panics of what it runs, so it ends as it should.
            drop(thread.join());
        }
    }
}

impl Share {
    /// Adds a queue. Fails if the options contradict each other.
    pub fn queue(&self, work: Arc<dyn Work>, options: QueueOptions) -> batch::Result<QueueId> {
        let mut state = self.shared.state.lock();
        let queue = state.agenda.add_queue(self.model, options.batch, options.admission)?;
        let number = queue.number();
        if state.works.len() <= number {
            state.works.resize(number + 1, None);
        }
        state.works[number] = Some(work);
        Ok(queue)
    }

    /// Puts other options of a queue in force. Fails, and changes nothing, if they contradict each
    /// other.
    pub fn set_options(&self, queue: QueueId, options: QueueOptions) -> batch::Result<()> {
        let mut state = self.shared.state.lock();
        state.agenda.set_options(queue, options.batch, options.admission)?;
        drop(state);
        // What waits may leave, or expire, at another time now.
        self.shared.changed.notify_all();
        self.shared.due.notify_one();
        Ok(())
    }

    /// Gives the model another weight.
    pub fn set_weight(&self, weight: u32) {
        self.shared.state.lock().agenda.set_weight(self.model, weight);
    }

    /// Pushes a task. It is answered once, from any thread, maybe before this returns.
    pub fn push(&self, queue: QueueId, task: Task, class: Class, level: usize) {
        let shared = &self.shared;
        let now = shared.now();
        let deadline = task.deadline.map(|deadline| shared.time(deadline));
        let arrival = Arrival { n_rows: task.n_rows, class, level, deadline };
        let task = Arc::new(task);
        let mut state = shared.state.lock();
        if let Err(refusal) = state.push(queue, &task, &arrival, now) {
            state.agenda.note_refusal(queue, task.came.elapsed());
            drop(state);
            return task.fail(Failure::Refused(refusal));
        }
        if let Some(turn) = shared.inline_turn(&mut state, queue, &task, now) {
            let equipment = state.equip(&turn);
            drop(state);
            return shared.run_inline(turn, equipment);
        }
        if state.expect(queue, &arrival.class, (now, shared.owner.as_ref())) {
            shared.due.notify_one();
        }
        shared.wake(&mut state, deadline, now);
    }

    /// Tells that a task is on its way. If the lanes gave their memory back, it is taken again
    /// meanwhile, on another thread; so is what its runs have of their own, if they have.
    pub fn expect(&self, own: Option<&Arc<Space>>) {
        let Some(owner) = &self.shared.owner else { return };
        let own = own.filter(|space| space.is_at_rest());
        let is_at_rest = spaces(owner).any(|space| space.is_at_rest());
        if !is_at_rest && own.is_none() {
            return;
        }
        let mut state = self.shared.state.lock();
        state.is_expecting |= is_at_rest;
        if let Some(own) = own {
            state.expect_bytes(own, 0);
        }
        self.shared.due.notify_one();
    }

    /// Takes memory for runs that need so much, as far as there is enough: for one on each lane.
    /// On this thread; for a load.
    pub fn grow_ahead(&self, need: &Need) {
        let Some(owner) = &self.shared.owner else { return };
        let state = self.shared.state.lock();
        let lacks = |lane: &&Option<Workspace>| {
            lane.as_ref().is_none_or(|workspace| (workspace.len() as u64) < need.work_bytes)
        };
        let n_lanes = state.workspaces.iter().filter(lacks).count();
        drop(state);
        if n_lanes > 0 {
            grow_ahead(owner, need, n_lanes);
        }
    }

    /// The number of batches that run at once.
    pub fn n_lanes(&self) -> usize {
        self.shared.state.lock().workspaces.len()
    }

    /// Predicts the time until a task of `n_rows` rows, pushed now, would be answered.
    pub fn forecast(&self, queue: QueueId, n_rows: usize) -> Forecast {
        self.shared.state.lock().agenda.forecast(queue, n_rows, self.shared.now())
    }

    /// A copy of a queue's state.
    pub fn snapshot(&self, queue: QueueId) -> Option<QueueSnapshot> {
        self.shared.state.lock().agenda.snapshot(queue, self.shared.now())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        for queue in state.agenda.queues_of(self.model) {
            // What runs now holds it for as long as it needs it.
            state.works[queue.number()] = None;
        }
        let waited = state.agenda.remove_model(self.model);
        drop(state);
        for task in waited {
            task.fail(Failure::Refused(Refusal::from_error(Error::Closed)));
        }
    }
}

type Equipment = (Arc<dyn Work>, Workspace, u64);

impl LanesState {
    /// Adds a task; if there is no room, those whose clients are gone make some.
    fn push(
        &mut self,
        queue: QueueId,
        task: &Arc<Task>,
        arrival: &Arrival,
        now: Time,
    ) -> Result<(), Refusal> {
        if self.is_ended {
            return Err(Refusal::from_error(Error::Closed));
        }
        let refusal = match self.agenda.push(queue, Arc::clone(task), arrival, now) {
            Ok(()) => return Ok(()),
            Err(refusal) => refusal,
        };
        let moot = self.agenda.remove_if(queue, Task::is_moot);
        if moot.is_empty() {
            return Err(refusal);
        }
        for task in moot {
            task.fail(Failure::Refused(Refusal::from_error(Error::Cancelled)));
        }
        self.agenda.push(queue, Arc::clone(task), arrival, now)
    }

    /// Notes what a batch will need that waits, and is larger than any before it; whether it is.
    fn expect(
        &mut self,
        queue: QueueId,
        class: &Class,
        (now, owner): (Time, Option<&Arc<Owner>>),
    ) -> bool {
        let Some(bytes) = self.agenda.outgrows(queue, class, now) else { return false };
        let work = self.works.get(queue.number()).and_then(Option::as_ref);
        let own = work.and_then(|work| work.space());
        let Some(space) = own.or_else(|| owner.map(|owner| owner.space())) else { return false };
        let space = Arc::clone(space);
        self.expect_bytes(&space, bytes);
        true
    }

    /// Has so many bytes of a space taken, and all that it had before it rested.
    fn expect_bytes(&mut self, space: &Arc<Space>, bytes: u64) {
        match self.expected.iter_mut().find(|(known, _)| Arc::ptr_eq(known, space)) {
            Some((_, most)) => *most = bytes.max(*most),
            None => self.expected.push((Arc::clone(space), bytes)),
        }
    }

    /// The next batch to run, in the memory that its device and its own limit leave.
    fn next(&mut self, now: Time) -> Next<Task> {
        let works = &self.works;
        let work = |queue: QueueId| works.get(queue.number()).and_then(Option::as_ref);
        let room = |queue, free_bytes| work(queue).map_or(free_bytes, |work| work.room(free_bytes));
        self.agenda.next_within(now, room)
    }

    /// The work of a turn, the workspace it runs in, and the number of trims of lanes before.
    fn equip(&mut self, turn: &Turn<Task>) -> Equipment {
        let work = self.works[turn.queue.number()].clone().expect("a queue has its work");
        let workspace = self.workspaces[turn.lane].take().expect("a free lane has its workspace");
        (work, workspace, self.n_trims)
    }
}

impl LanesShared {
    fn now(&self) -> Time {
        self.time(Instant::now())
    }

    fn time(&self, instant: Instant) -> Time {
        Time::default().plus(instant.saturating_duration_since(self.start))
    }

    fn instant(&self, time: Time) -> Option<Instant> {
        self.start.checked_add(time.since(Time::default()))
    }

    /// The loop of a lane: runs batches until the end.
    fn work(&self) {
        let mut state = self.state.lock();
        while !state.is_ended {
            if state.n_surplus > 0 {
                state.n_surplus -= 1;
                return;
            }
            let now = self.now();
            let expired = state.agenda.expire(now);
            if !expired.is_empty() {
                MutexGuard::unlocked(&mut state, || fail_expired(expired));
                continue;
            }
            self.look_at_memory(&mut state);
            match state.next(now) {
                Next::Run(turn) => {
                    let equipment = state.equip(&turn);
                    MutexGuard::unlocked(&mut state, || self.run(turn, equipment));
                }
                Next::Wait(Some(time)) => {
                    if let Some(instant) = self.instant(time) {
                        self.changed.wait_until(&mut state, instant);
                    }
                }
                Next::Wait(None) => self.wait_idle(&mut state),
            }
        }
        let waited = state.agenda.remove_all();
        drop(state);
        for task in waited {
            task.fail(Failure::Refused(Refusal::from_error(Error::Closed)));
        }
    }

    /// Waits until there may be something to do. Lanes that are idle for long are trimmed.
    fn wait_idle(&self, state: &mut MutexGuard<'_, LanesState>) {
        heap::settle();
        if state.workspaces.iter().flatten().all(Workspace::is_empty) {
            return self.changed.wait(state);
        }
        let is_over = self.changed.wait_for(state, IDLE).timed_out();
        if is_over && self.now().since(state.last_turn) >= IDLE {
            self.trim_free(state, Space::rest);
        }
    }

    /// Gives the memory of free lanes to their device, and lets it give back what it has to. A
    /// driver that refuses is asked again next time.
    fn trim_free(&self, state: &mut LanesState, trim: impl Fn(&Space) -> device::Result<u64>) {
        state.workspaces.iter_mut().flatten().for_each(|workspace| drop(workspace.trim()));
        if let Some(owner) = &self.owner {
            drop(trim(owner.space()));
        }
    }

    /// The turn of a task that just came, if it may run on this thread.
    fn inline_turn(
        &self,
        state: &mut LanesState,
        queue: QueueId,
        task: &Task,
        now: Time,
    ) -> Option<Turn<Task>> {
        let agenda = &state.agenda;
        let predicted = agenda.predict(queue, task.n_rows)?;
        if predicted > self.inline_max || !agenda.has_free_lane() || agenda.n_waiting() != 1 {
            return None;
        }
        let work = state.works.get(queue.number()).and_then(Option::as_ref)?;
        if !work.is_steady(&task.inputs) {
            return None;
        }
        match state.next(now) {
            Next::Run(turn) => Some(turn),
            Next::Wait(_) => None,
        }
    }

    /// Tells the agenda how many bytes a batch may need: what is free, and what the smallest
    /// workspace of a free lane has already.
    fn look_at_memory(&self, state: &mut LanesState) {
        let Some(owner) = &self.owner else { return };
        let own = state.workspaces.iter().flatten().map(Workspace::len).min();
        let Some(own) = own else { return };
        let free = owner.space().free_bytes().saturating_add(own as u64);
        state.agenda.set_free_bytes(Some(free));
    }

    /// Runs a turn on a caller's thread, and leaves what came meanwhile to the lanes.
    fn run_inline(&self, turn: Turn<Task>, equipment: Equipment) {
        self.run(turn, equipment);
        let mut state = self.state.lock();
        if state.agenda.n_waiting() > 0 {
            self.wake(&mut state, None, self.now());
        }
    }

    fn run(&self, turn: Turn<Task>, (work, mut workspace, n_trims): Equipment) {
        let mut turned = turn.turned();
        let news = turn.is_news.then(|| (turn.batch.class.clone(), turn.batch.n_padded));
        let weighed = Weighed::new(&*work, news.is_some());
        let outcome = run::run(turn.batch, &weighed, &mut workspace, self.run_max);
        turned.has_run = outcome == Outcome::Ran;
        let now = self.now();
        let mut state = self.state.lock();
        if let Some(((class, n_rows), bytes)) = news.zip(weighed.bytes()) {
            state.agenda.note_needs(turned.queue(), &class, n_rows, bytes);
        }
        if outcome == Outcome::Rerun {
            state.agenda.note_rerun(turned.queue());
        }
        state.last_turn = now;
        let is_told = state.n_trims != n_trims;
        match state.agenda.done(&turned, now) {
            Ended::OnItsLane => state.workspaces[turned.lane()] = Some(workspace),
            Ended::Detached => {
                state.n_surplus += 1;
                self.changed.notify_one();
                MutexGuard::unlocked(&mut state, || drop(workspace));
            }
        }
        if is_told {
            self.trim_free(&mut state, |space| space.trim(ASKED));
        }
        // Its caller has the answer, and a larger task may come next.
        if self.owner.iter().flat_map(spaces).any(|space| space.is_outgrown()) {
            state.is_expecting = true;
            self.due.notify_one();
        }
    }
}

impl std::fmt::Debug for LanesShared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lanes")
    }
}
