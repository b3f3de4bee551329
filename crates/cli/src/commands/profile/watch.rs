//! `Watch`: takes the time of each step of a run, those of the functions that steps call included.

use std::any::Any;
use std::time::{Duration, Instant};

use graph::{Plan, StepSnapshot};
use ops::Observer;
use parking_lot::Mutex;

/// A step, and what it took in a run on average.
#[derive(Debug, Clone)]
pub(super) struct Timed {
    /// The step; its node is named after those that call it.
    pub(super) step: StepSnapshot,
    /// The time, without that of the steps within.
    pub(super) time: Duration,
    /// The number of times that the step ran.
    pub(super) n_calls: usize,
}

/// A call of a step in the last run.
#[derive(Debug, Clone)]
pub(super) struct Event {
    /// Its number among all steps.
    pub(super) step: usize,
    /// The time from the beginning of the run to that of the step.
    pub(super) start: Duration,
    /// The time that the step took, with the steps within.
    pub(super) time: Duration,
}

/// The steps and calls that were seen.
#[derive(Debug, Default)]
pub(super) struct Watched {
    /// The steps of the plan, and then those of the functions within.
    pub(super) steps: Vec<Timed>,
    /// The calls of the last run.
    pub(super) last_run: Vec<Event>,
}

/// Watches runs of one plan.
pub(super) struct Watch(Mutex<State>);

struct State {
    watched: Watched,
    /// The plans seen.
    plans: Vec<Seen>,
    /// The plans that run, each called by the one before.
    running: Vec<Running>,
    /// The time at which the last step was done, or the run began.
    last: Instant,
    run_start: Instant,
}

/// A plan that was seen, with the place that it was called from.
struct Seen {
    plan: u64,
    /// The number of the step that called it, among all steps.
    caller: Option<usize>,
    /// The number of its first step.
    first: usize,
}

struct Running {
    /// The number of the plan's first step.
    first: usize,
    /// The step that runs.
    now: usize,
    /// The time at which the call began.
    start: Instant,
}

impl Watch {
    pub(super) fn new() -> Self {
        let (now, watched) = (Instant::now(), Watched::default());
        let (plans, running) = (Vec::new(), Vec::new());
        Self(Mutex::new(State { watched, plans, running, last: now, run_start: now }))
    }

    /// Forgets how long steps took, as after a run that warms up.
    pub(super) fn forget_times(&self) {
        for timed in &mut self.0.lock().watched.steps {
            (timed.time, timed.n_calls) = (Duration::ZERO, 0);
        }
    }

    /// Returns the steps that were seen in so many runs, as of one.
    pub(super) fn finish(self, n_runs: u32) -> Watched {
        let mut watched = self.0.into_inner().watched;
        for timed in &mut watched.steps {
            timed.time /= n_runs;
            timed.n_calls /= n_runs as usize;
        }
        watched
    }
}

impl State {
    /// The number of the first step of a plan that is called from a step.
    fn first(&mut self, plan: &Plan, caller: Option<usize>) -> usize {
        let is_it = |seen: &&Seen| seen.plan == plan.id() && seen.caller == caller;
        if let Some(seen) = self.plans.iter().find(is_it) {
            return seen.first;
        }
        let first = self.watched.steps.len();
        let prefix = caller.map(|caller| format!("{}/", self.watched.steps[caller].step.node));
        let prefix = prefix.unwrap_or_default();
        let timed = |step: StepSnapshot| Timed {
            step: StepSnapshot { node: format!("{prefix}{}", step.node), ..step },
            time: Duration::ZERO,
            n_calls: 0,
        };
        self.watched.steps.extend(plan.snapshot().into_iter().map(timed));
        self.plans.push(Seen { plan: plan.id(), caller, first });
        first
    }
}

impl Observer for Watch {
    fn enter(&self, plan: &dyn Any) {
        let plan = plan.downcast_ref::<Plan>().expect("the native engine runs plans");
        let mut state = self.0.lock();
        let caller = state.running.last().map(|running| running.first + running.now);
        let first = state.first(plan, caller);
        let now = Instant::now();
        let last = std::mem::replace(&mut state.last, now);
        match caller {
            Some(caller) => state.watched.steps[caller].time += now - last,
            None => {
                state.watched.last_run.clear();
                state.run_start = now;
            }
        }
        state.running.push(Running { first, now: 0, start: now });
    }

    fn step(&self, number: usize) {
        let now = Instant::now();
        let mut state = self.0.lock();
        let (last, run_start) = (std::mem::replace(&mut state.last, now), state.run_start);
        let running = state.running.last_mut().expect("its plan has begun");
        let step = running.first + number;
        let start = std::mem::replace(&mut running.start, now);
        running.now = number + 1;
        let timed = &mut state.watched.steps[step];
        timed.time += now - last;
        timed.n_calls += 1;
        let event = Event { step, start: start - run_start, time: now - start };
        state.watched.last_run.push(event);
    }

    fn leave(&self) {
        self.0.lock().running.pop();
    }
}
