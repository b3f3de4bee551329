//! Runs that go on for far longer than expected, and hold every lane while another model waits.
//!
//! Nobody can tell whether such a run ends. So its lane is given to others: the run is *detached*
//! and goes on beside the lanes, on the thread and in the workspace that it has. It still counts
//! as running for its model, so that the model gets no further lane for it, and its model is
//! charged for the time.
//!
//! Any number of models may have endless runs. A model that waits without a run under way always
//! gets a lane: there is no bound on detached runs but that each model has no more runs than there
//! are lanes. From as many detached runs on as there are lanes, models that have one of them get
//! no new runs: their tasks are refused until a detached run ends. A model whose runs are short
//! has none, and is never refused.

use std::time::Duration;

use batch::{Ready, Time};

use super::{Agenda, AgendaLane, AgendaRunning, ModelId, charge};

/// No run is overdue before it has run for so long.
pub(crate) const OVERDUE_MIN: Duration = Duration::from_secs(1);

/// Every run is overdue when it has run for so long, whatever was expected: a model that answers
/// slowly for a while must not earn the right to keep others waiting.
const OVERDUE_MAX: Duration = Duration::from_secs(10);

/// A run is overdue when it has run for so many times as long as expected.
const OVERDUE_TIMES: u32 = 10;

/// A run that goes on beside the lanes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Detached {
    /// The number of its turn.
    number: u64,
    model: ModelId,
    /// The time that its model was charged when it was detached.
    charged: Duration,
}

/// The number of detached runs of a model, if there are so many in all that it gets no new ones.
pub(super) fn overrun(detached: &[Detached], n_lanes: usize, model: ModelId) -> Option<usize> {
    if detached.len() < n_lanes {
        return None;
    }
    let n_runs = detached.iter().filter(|run| run.model == model).count();
    (n_runs > 0).then_some(n_runs)
}

/// Removes a detached run that has ended, and returns the time that its model was charged.
pub(super) fn detached_ends(detached: &mut Vec<Detached>, number: u64) -> Duration {
    let at = detached.iter().position(|run| run.number == number);
    detached.swap_remove(at.expect("a turn ends once")).charged
}

impl<T> Agenda<T> {
    /// The time from which a lane may be taken from its run, which is overdue then. `None` if a
    /// lane is free, or if every model that waits has a run under way.
    pub fn next_overdue(&self, now: Time) -> Option<Time> {
        if self.has_free_lane() || !self.has_starving(now) {
            return None;
        }
        self.lanes.iter().filter_map(AgendaLane::overdue_from).min()
    }

    /// Takes a lane from a run that is overdue, if [`next_overdue`](Self::next_overdue) has come.
    /// Gives the lane, which is free now.
    pub fn detach(&mut self, now: Time) -> Option<usize> {
        if self.next_overdue(now).is_none_or(|from| from > now) {
            return None;
        }
        let times = self.lanes.iter().enumerate();
        let times = times.filter_map(|(number, lane)| Some((lane.overdue_from()?, number)));
        let (_, lane_number) = times.min()?;
        let lane = &mut self.lanes[lane_number];
        let AgendaRunning { number, model, began, .. } = lane.running.take()?;
        let charged = now.since(began);
        lane.busy += charged;
        self.detached.push(Detached { number, model, charged });
        let model = self.models[model.0].as_mut().expect("a model stays while it runs");
        model.pass = model.pass.saturating_add(charge(charged, model.weight));
        Some(lane_number)
    }

    /// Returns whether a task is ready whose model has no run under way.
    fn has_starving(&self, now: Time) -> bool {
        self.queues.iter().flatten().any(|waiting| {
            let model = self.models[waiting.model.0].as_ref();
            let is_idle = model.is_some_and(|model| model.n_running == 0 && !model.is_held);
            is_idle && matches!(waiting.ready(now), Ready::Now(_))
        })
    }
}

impl AgendaLane {
    /// The time at which the run on the lane becomes overdue.
    fn overdue_from(&self) -> Option<Time> {
        let AgendaRunning { began, ends, .. } = self.running?;
        let expected = ends.since(began).saturating_mul(OVERDUE_TIMES);
        Some(began.plus(expected.clamp(OVERDUE_MIN, OVERDUE_MAX)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use batch::{Arrival, Class};

    use super::super::{Admission, Next, QueueId, Turned};
    use super::*;
    use crate::error::{Error, Refusal};

    /// An agenda with two lanes and models of one queue each.
    struct Setup {
        agenda: Agenda<u32>,
        queues: Vec<QueueId>,
    }

    fn at(millis: u64) -> Time {
        Time::default().plus(Duration::from_millis(millis))
    }

    impl Setup {
        fn new() -> Self {
            Self::with_models(3)
        }

        fn with_models(n_models: usize) -> Self {
            let mut agenda = Agenda::new(2);
            let queue = |model: ModelId, agenda: &mut Agenda<u32>| {
                let options = batch::Options::unbatched(100);
                agenda.add_queue(model, options, Admission::InTime).unwrap()
            };
            let models: Vec<ModelId> = (0..n_models).map(|_| agenda.add_model(1)).collect();
            let queues = models.into_iter().map(|model| queue(model, &mut agenda)).collect();
            Self { agenda, queues }
        }

        fn push(&mut self, model: usize, millis: u64) {
            self.try_push(model, millis).unwrap();
        }

        fn try_push(&mut self, model: usize, millis: u64) -> Result<(), Refusal> {
            let class = Class::new(&[], false);
            let arrival = Arrival { n_rows: 1, class, level: 0, deadline: None };
            self.agenda.push(self.queues[model], Arc::new(0), &arrival, at(millis))
        }

        /// Starts what is next, which is of this model.
        #[track_caller]
        fn start(&mut self, model: usize, millis: u64) -> Turned {
            let Next::Run(turn) = self.agenda.next(at(millis)) else { panic!("nothing to run") };
            assert_eq!(turn.queue, self.queues[model]);
            self.agenda.check();
            turn.turned()
        }

        #[track_caller]
        fn detach(&mut self, millis: u64, expected: Option<usize>) {
            assert_eq!(self.agenda.detach(at(millis)), expected, "after {millis} ms");
            self.agenda.check();
        }

        fn done(&mut self, turned: &Turned, millis: u64) {
            self.agenda.done(turned, at(millis));
            self.agenda.check();
        }
    }

    #[test]
    fn a_model_that_holds_every_lane_for_long_loses_one_to_a_model_that_waits() {
        let mut setup = Setup::new();
        (0..3).for_each(|_| setup.push(0, 0));
        let endless = [setup.start(0, 0), setup.start(0, 0)];
        // Nobody else waits.
        setup.detach(5000, None);
        setup.push(1, 5000);
        assert_eq!(setup.agenda.next_overdue(at(5000)), Some(at(1000)));
        setup.detach(5000, Some(0));
        // The lane is for the others: the model has as many runs under way as there are lanes.
        let other = setup.start(1, 5000);
        assert!(matches!(setup.agenda.next(at(5001)), Next::Wait(_)));
        setup.done(&other, 5002);
        // A detached run that ends frees no lane.
        setup.done(&endless[0], 5003);
        assert_eq!(setup.agenda.n_busy(), 1);
        setup.done(&endless[1], 5004);
        let third = setup.start(0, 5005);
        setup.done(&third, 5006);
        assert_eq!(setup.agenda.n_busy(), 0);
    }

    #[test]
    fn a_run_is_overdue_by_what_was_expected_of_it() {
        let mut setup = Setup::new();
        setup.push(0, 0);
        let first = setup.start(0, 0);
        setup.done(&first, 500);
        setup.push(0, 1000);
        setup.push(0, 1000);
        let _running = [setup.start(0, 1000), setup.start(0, 1000)];
        setup.push(1, 1000);
        setup.detach(5999, None);
        setup.detach(6000, Some(0));
    }

    #[test]
    fn a_run_is_overdue_after_ten_seconds_though_it_was_expected_to_take_long() {
        let mut setup = Setup::new();
        setup.push(0, 0);
        let first = setup.start(0, 0);
        setup.done(&first, 60_000);
        setup.push(0, 60_000);
        setup.push(0, 60_000);
        let _running = [setup.start(0, 60_000), setup.start(0, 60_000)];
        setup.push(1, 60_001);
        setup.detach(69_999, None);
        setup.detach(70_000, Some(0));
    }

    /// Every hostile model sends more runs than there are lanes, none of which ends. The last model
    /// is asked again and again: it waits until every one of them is known, and then no more.
    #[test]
    fn any_number_of_models_with_endless_runs_leave_a_lane_for_the_one_whose_runs_end() {
        for n_hostile in [1, 2, 3, 5, 20] {
            let mut setup = Setup::with_models(n_hostile + 1);
            (0..n_hostile).for_each(|model| (0..6).for_each(|_| setup.push(model, 0)));
            let healthy = n_hostile;
            let (mut n_answered, mut waits, mut running) = (0, 0, None);
            let last = 3000 * n_hostile as u64 + 3000;
            for step in 0..last / 10 {
                let now = step * 10;
                if running.is_none() && waits == 0 {
                    setup.push(healthy, now);
                }
                setup.agenda.detach(at(now));
                while let Next::Run(turn) = setup.agenda.next(at(now)) {
                    if turn.queue == setup.queues[healthy] {
                        running = Some(turn.turned());
                    }
                }
                setup.agenda.check();
                match running.take() {
                    Some(turned) => {
                        setup.done(&turned, now + 1);
                        (n_answered, waits) = (n_answered + 1, 0);
                    }
                    None => waits += 1,
                }
                let (known, turns) = (1000 * n_hostile as u64 + 1000, n_hostile + 1);
                assert!(waits == 0 || now < known, "{n_hostile} models: it waits at {now} ms");
                assert!(waits <= 100 * turns, "{n_hostile} models: {waits} steps at {now} ms");
            }
            assert!(n_answered > 100, "{n_hostile} models: {n_answered}");
            let n_detached = setup.agenda.detached.len();
            assert!(n_detached <= 2 * n_hostile, "{n_hostile} models: {n_detached} detached");
        }
    }

    #[test]
    fn models_with_endless_runs_are_refused_new_ones_from_the_bound_on_and_others_never() {
        let mut setup = Setup::new();
        (0..2).for_each(|_| setup.push(0, 0));
        let endless = [setup.start(0, 0), setup.start(0, 0)];
        setup.push(1, 2000);
        setup.detach(2000, Some(0));
        let other = setup.start(1, 2000);
        // One run is detached, and there are two lanes.
        setup.push(0, 2001);
        setup.push(2, 4000);
        setup.detach(4000, Some(1));
        assert_eq!(
            setup.try_push(0, 4001),
            Err(Refusal::from_error(Error::Overrun { n_runs: 2 })),
            "the model has all detached runs"
        );
        setup.push(1, 4001);
        let third = setup.start(2, 4002);
        setup.done(&third, 4003);
        setup.done(&other, 4004);
        // The tasks of the hostile model that wait stay where they are; those of others run.
        let next = setup.start(1, 4005);
        setup.done(&next, 4006);
        assert!(matches!(setup.agenda.next(at(4007)), Next::Wait(_)));
        endless.iter().for_each(|turned| setup.done(turned, 4008));
        setup.push(0, 4009);
        let again = setup.start(0, 4010);
        setup.done(&again, 4011);
    }
}
