//! Runs that go on for far longer than expected, and hold every lane while another model waits.
//!
//! Nobody can tell whether such a run ends. So its lane is given to others: the run is *detached*
//! and goes on beside the lanes, on the thread and in the workspace that it has. It still counts
//! as running for its model, so that the model gets no further lane for it.

use std::time::Duration;

use batch::{Ready, Time};

use super::{Agenda, Lane, Running};

/// No run is overdue before it has run for so long.
pub(crate) const OVERDUE_MIN: Duration = Duration::from_secs(1);

/// A run is overdue when it has run for so many times as long as expected.
const OVERDUE_TIMES: u32 = 10;

impl<T> Agenda<T> {
    /// The time from which a lane may be taken from its run, which is overdue then. `None` if a
    /// lane is free, or if every model that waits has a run under way.
    pub fn next_overdue(&self, now: Time) -> Option<Time> {
        if self.n_detached >= self.lanes.len() || self.has_free_lane() || !self.has_starving(now) {
            return None;
        }
        self.lanes.iter().filter_map(Lane::overdue_from).min()
    }

    /// Takes a lane from a run that is overdue, if [`next_overdue`](Self::next_overdue) has come.
    /// Gives the lane, which is free now. As many runs may be detached as there are lanes.
    pub fn detach(&mut self, now: Time) -> Option<usize> {
        if self.next_overdue(now).is_none_or(|from| from > now) {
            return None;
        }
        let times = self.lanes.iter().enumerate();
        let times = times.filter_map(|(number, lane)| Some((lane.overdue_from()?, number)));
        let (_, number) = times.min()?;
        let lane = &mut self.lanes[number];
        let running = lane.running.take()?;
        lane.busy += now.since(running.began);
        self.n_detached += 1;
        Some(number)
    }

    /// Whether a task is ready whose model has no run under way.
    fn has_starving(&self, now: Time) -> bool {
        self.queues.iter().flatten().any(|waiting| {
            let model = self.models[waiting.model.0].as_ref();
            let is_idle = model.is_some_and(|model| model.n_running == 0 && !model.is_held);
            is_idle && matches!(waiting.ready(now), Ready::Now(_))
        })
    }
}

impl Lane {
    /// When the run on the lane becomes overdue.
    fn overdue_from(&self) -> Option<Time> {
        let Running { began, ends, .. } = self.running?;
        let expected = ends.since(began).saturating_mul(OVERDUE_TIMES);
        Some(began.plus(expected.max(OVERDUE_MIN)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use batch::{Arrival, Class};

    use super::super::{Admission, ModelId, Next, QueueId, Turned};
    use super::*;

    /// An agenda with two lanes and three models of one queue each.
    struct Setup {
        agenda: Agenda<u32>,
        queues: Vec<QueueId>,
    }

    fn at(millis: u64) -> Time {
        Time::default().plus(Duration::from_millis(millis))
    }

    impl Setup {
        fn new() -> Self {
            let mut agenda = Agenda::new(2);
            let queue = |model: ModelId, agenda: &mut Agenda<u32>| {
                let options = batch::Options::unbatched(100);
                agenda.add_queue(model, options, Admission::InTime).unwrap()
            };
            let models = [1, 1, 1].map(|weight| agenda.add_model(weight));
            let queues = models.map(|model| queue(model, &mut agenda)).to_vec();
            Self { agenda, queues }
        }

        fn push(&mut self, model: usize, millis: u64) {
            let class = Class::new(&[], false);
            let arrival = Arrival { n_rows: 1, class, level: 0, deadline: None };
            self.agenda.push(self.queues[model], Arc::new(0), &arrival, at(millis)).unwrap();
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
    fn as_many_runs_are_detached_as_there_are_lanes() {
        let mut setup = Setup::new();
        let mut n_detached = 0;
        for turn in 0..6u64 {
            let now = turn * 10_000;
            let model = usize::try_from(turn % 3).unwrap();
            setup.push(model, now);
            n_detached += usize::from(setup.agenda.detach(at(now)).is_some());
            setup.agenda.check();
            if let Next::Run(turn) = setup.agenda.next(at(now)) {
                drop(turn);
            }
        }
        assert!(n_detached <= 2, "{n_detached}");
    }
}
