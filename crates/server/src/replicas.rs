//! One version on several devices: a run goes to the replica that has the fewest under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use session::{Batching, Engine, QueueState, Reply, Result, Run};

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

impl Engine for Replicas {
    fn start(&self, run: Run, reply: Reply) {
        let idlest = self.engines.iter().min_by_key(|(_, count)| count.load(Ordering::Relaxed));
        let (engine, count) = idlest.expect("there are at least two");
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

    use parking_lot::Mutex;

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
            is_cancelled: Arc::default(),
        }
    }

    #[test]
    fn runs_go_where_the_fewest_are() {
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
