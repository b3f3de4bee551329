//! One version on several devices: a run goes to the replica that is expected to answer first.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use schedule::Replica;
use session::{Batching, Engine, Priorities, QueueState, Reply, Result, Run};

/// Engines that run the same servable on different devices.
pub(crate) struct Replicas {
    engines: Vec<(Arc<dyn Engine>, Arc<AtomicUsize>)>,
}

impl Replicas {
    /// One engine of several; of one, that one.
    pub(crate) fn of(mut engines: Vec<Arc<dyn Engine>>) -> Option<Arc<dyn Engine>> {
        if engines.len() < 2 {
            return engines.pop();
        }
        let engines = engines.into_iter().map(|engine| (engine, Arc::default())).collect();
        Some(Arc::new(Replicas { engines }))
    }
}

impl Replicas {
    /// The engine that a run goes to: the one that answers first by its forecast, or the one with
    /// the fewest under way where there are none.
    fn choose(&self, run: &Run) -> usize {
        let forecasts = self.engines.iter().map(|(engine, _)| engine.forecast(run));
        let forecasts: Option<Vec<Replica>> = forecasts.collect();
        let nearest = forecasts.and_then(|replicas| schedule::nearest(&replicas));
        let under_way = |number: &usize| self.engines[*number].1.load(Ordering::Relaxed);
        let idlest = || (0..self.engines.len()).min_by_key(under_way);
        nearest.or_else(idlest).expect("there are at least two")
    }
}

impl Engine for Replicas {
    fn start(&self, run: Run, reply: Reply) {
        let (engine, count) = &self.engines[self.choose(&run)];
        count.fetch_add(1, Ordering::Relaxed);
        let under_way = UnderWay(Arc::clone(count));
        engine.start(
            run,
            Box::new(move |answer| {
                drop(under_way);
                reply(answer);
            }),
        );
    }

    fn set_batching(&self, batching: &Batching) -> Result<()> {
        self.engines.iter().try_for_each(|(engine, _)| engine.set_batching(batching))
    }

    fn set_priorities(&self, priorities: &Priorities) -> Result<()> {
        self.engines.iter().try_for_each(|(engine, _)| engine.set_priorities(priorities))
    }

    fn expect(&self) {
        self.engines.iter().for_each(|(engine, _)| engine.expect());
    }

    fn prepare(&self) {
        self.engines.iter().for_each(|(engine, _)| engine.prepare());
    }

    fn forecast(&self, run: &Run) -> Option<Replica> {
        self.engines[self.choose(run)].0.forecast(run)
    }

    fn queues(&self) -> Vec<QueueState> {
        self.engines.iter().flat_map(|(engine, _)| engine.queues()).collect()
    }

    fn name(&self) -> &'static str {
        self.engines.first().map_or("none", |(engine, _)| engine.name())
    }
}

/// Counts a run until its reply is used or dropped.
struct UnderWay(Arc<AtomicUsize>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use parking_lot::Mutex;
    use schedule::Forecast;

    use super::*;

    /// Keeps its replies until it is told to answer.
    #[derive(Default)]
    struct Slow(Mutex<Vec<Reply>>);

    impl Engine for Slow {
        fn start(&self, _: Run, reply: Reply) {
            self.0.lock().push(reply);
        }

        fn name(&self) -> &'static str {
            "slow"
        }
    }

    fn run() -> Run {
        Run {
            signature: String::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            deadline: None,
            level: None,
            is_cancelled: Arc::default(),
        }
    }

    /// Says when it would answer, and counts what it was given.
    struct Known {
        finish_millis: u64,
        until_ready_millis: u64,
        n_runs: AtomicUsize,
    }

    impl Engine for Known {
        fn start(&self, _: Run, reply: Reply) {
            self.n_runs.fetch_add(1, Ordering::Relaxed);
            reply(Ok(Vec::new()));
        }

        fn name(&self) -> &'static str {
            "known"
        }

        fn forecast(&self, _: &Run) -> Option<Replica> {
            let finish = Duration::from_millis(self.finish_millis);
            let forecast = Forecast { finish, n_waiting: 0, n_busy: 0, is_measured: true };
            let until_ready = Duration::from_millis(self.until_ready_millis);
            Some(Replica { forecast, until_ready })
        }
    }

    #[test]
    fn runs_go_where_they_are_answered_first() {
        let known = |finish_millis, until_ready_millis| {
            Arc::new(Known { finish_millis, until_ready_millis, n_runs: AtomicUsize::new(0) })
        };
        let all = [known(9, 0), known(5, 0), known(1, 100)];
        let engines = all.iter().map(|one| Arc::clone(one) as Arc<dyn Engine>).collect();
        let replicas = Replicas::of(engines).unwrap();
        (0..3).for_each(|_| replicas.start(run(), Box::new(|_| ())));
        assert_eq!(all.each_ref().map(|one| one.n_runs.load(Ordering::Relaxed)), [0, 3, 0]);
        let finish = replicas.forecast(&run()).map(|replica| replica.forecast.finish);
        assert_eq!(finish, Some(Duration::from_millis(5)));
    }

    #[test]
    fn without_forecasts_runs_go_where_the_fewest_are() {
        let slow: [Arc<Slow>; 2] = Default::default();
        let engines = slow.iter().map(|one| Arc::clone(one) as Arc<dyn Engine>).collect();
        let replicas = Replicas::of(engines).unwrap();
        let (send, receive) = mpsc::channel();
        for _ in 0..4 {
            let send = send.clone();
            replicas.start(run(), Box::new(move |_| send.send(()).unwrap()));
        }
        let waiting = || slow.each_ref().map(|one| one.0.lock().len());
        assert_eq!(waiting(), [2, 2]);
        slow[1].0.lock().drain(..).for_each(|reply| reply(Ok(Vec::new())));
        assert_eq!(receive.try_iter().count(), 2);
        replicas.start(run(), Box::new(|_| ()));
        assert_eq!(waiting(), [2, 1]);
        // A reply that is dropped is an answer too.
        slow[0].0.lock().clear();
        replicas.start(run(), Box::new(|_| ()));
        assert_eq!(waiting(), [1, 1]);
    }
}
