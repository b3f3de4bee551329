//! One version on several devices: a run goes to the replica that is expected to answer first.
//! Replicas come and go while it serves.

use std::any::Any;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::{Condvar, Mutex};
use schedule::Replica;
use status::{Result, Status};

use crate::batching::{Batching, Priorities, QueueState};
use crate::engine::{Engine, Reply, Run};

/// Engines that run the same servable on different devices.
pub struct Replicas {
    /// At least one.
    members: ArcSwap<Vec<Arc<Member>>>,
    /// The settings put in force last, for members that come later.
    settings: Mutex<InForce>,
    /// Its place among all versions, say. Given up last, when its memory is free.
    _place: Option<Arc<dyn Any + Send + Sync>>,
}

#[derive(Default)]
struct InForce {
    batching: Option<Batching>,
    priorities: Option<Priorities>,
}

/// An engine of one device.
pub struct Member {
    /// The device's name.
    pub device: String,
    /// Runs the servable there.
    pub engine: Arc<dyn Engine>,
    n_under_way: AtomicUsize,
    // Behind the engine: its memory is gone when the books say so.
    _booked: Option<Box<dyn Any + Send + Sync>>,
}

impl Member {
    /// An engine that holds nothing else.
    pub fn new(device: String, engine: Arc<dyn Engine>) -> Self {
        Self { device, engine, n_under_way: AtomicUsize::new(0), _booked: None }
    }

    /// The same engine with `booked`, memory in the books of others, for as long as it is there.
    pub fn with(self, booked: impl Any + Send + Sync) -> Self {
        Self { _booked: Some(Box::new(booked)), ..self }
    }
}

impl Replicas {
    /// One engine of all members. It keeps the version's place, if it has one.
    ///
    /// # Panics
    /// Without members.
    pub fn new(members: Vec<Member>, place: Option<Arc<dyn Any + Send + Sync>>) -> Self {
        assert!(!members.is_empty(), "a version is somewhere");
        let members = members.into_iter().map(Arc::new).collect::<Vec<_>>();
        let settings = Mutex::default();
        Self { members: ArcSwap::from_pointee(members), settings, _place: place }
    }

    /// The devices that have one.
    pub fn devices(&self) -> Vec<String> {
        self.members.load().iter().map(|member| member.device.clone()).collect()
    }

    /// Takes in one more, which batches as the others do.
    ///
    /// # Errors
    /// If it cannot batch so.
    pub fn add(&self, member: Member) -> Result<()> {
        // Held until it is in, so that no settings pass it by.
        let settings = self.settings.lock();
        if let Some(priorities) = &settings.priorities {
            member.engine.set_priorities(priorities)?;
        }
        if let Some(batching) = &settings.batching {
            member.engine.set_batching(batching)?;
        }
        member.engine.prepare();
        let mut members = Vec::clone(&self.members.load());
        members.push(Arc::new(member));
        self.members.store(Arc::new(members));
        Ok(())
    }

    /// Takes out the one of a device; none if it is the last.
    pub fn take(&self, device: &str) -> Option<Leaving> {
        let _settings = self.settings.lock();
        let mut members = Vec::clone(&self.members.load());
        let at = members.iter().position(|member| member.device == device);
        let at = at.filter(|_| members.len() > 1)?;
        let leaving = members.remove(at);
        self.members.store(Arc::new(members));
        Some(Leaving(leaving))
    }

    /// Returns the member that a run goes to: the one that answers first by its forecast, or the
    /// one with the fewest runs under way where there are no forecasts.
    fn choose(members: &[Arc<Member>], run: &Run) -> usize {
        if members.len() == 1 {
            return 0;
        }
        let forecasts = members.iter().map(|member| member.engine.forecast(run));
        let forecasts: Option<Vec<Replica>> = forecasts.collect();
        let nearest = forecasts.and_then(|replicas| schedule::nearest(&replicas));
        let under_way = |number: &usize| members[*number].n_under_way.load(Ordering::Relaxed);
        let idlest = || (0..members.len()).min_by_key(under_way);
        nearest.or_else(idlest).expect("there is at least one")
    }
}

impl Engine for Replicas {
    fn start(&self, run: Run, reply: Reply) {
        let members = self.members.load();
        let member = &members[Self::choose(&members, &run)];
        member.n_under_way.fetch_add(1, Ordering::Relaxed);
        let under_way = UnderWay(Arc::clone(member));
        member.engine.start(
            run,
            Box::new(move |answer| {
                drop(under_way);
                reply(answer);
            }),
        );
    }

    fn set_batching(&self, batching: &Batching) -> Result<()> {
        let mut settings = self.settings.lock();
        self.members.load().iter().try_for_each(|member| member.engine.set_batching(batching))?;
        settings.batching = Some(batching.clone());
        Ok(())
    }

    fn set_priorities(&self, priorities: &Priorities) -> Result<()> {
        let mut settings = self.settings.lock();
        let members = self.members.load();
        members.iter().try_for_each(|member| member.engine.set_priorities(priorities))?;
        settings.priorities = Some(priorities.clone());
        Ok(())
    }

    fn expect(&self) {
        self.members.load().iter().for_each(|member| member.engine.expect());
    }

    fn prepare(&self) {
        self.members.load().iter().for_each(|member| member.engine.prepare());
    }

    fn forecast(&self, run: &Run) -> Option<Replica> {
        let members = self.members.load();
        members[Self::choose(&members, run)].engine.forecast(run)
    }

    /// Each member is waited for when it leaves.
    fn end(&self) -> Option<Weak<()>> {
        None
    }

    fn queues(&self) -> Vec<QueueState> {
        self.members.load().iter().flat_map(|member| member.engine.queues()).collect()
    }

    fn name(&self) -> &'static str {
        self.members.load().first().map_or("none", |member| member.engine.name())
    }
}

/// Counts a run until its reply is used or dropped.
struct UnderWay(Arc<Member>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.n_under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A replica that was taken out, and may still have runs under way.
#[must_use]
pub struct Leaving(Arc<Member>);

/// The time between two looks at a member that leaves, and the longest wait for it.
const LOOK_EVERY: Duration = Duration::from_millis(2);
const LEAVE_MAX: Duration = Duration::from_secs(60);

impl Leaving {
    /// Waits until its runs are answered, and frees it: here, and not where an answer is given.
    ///
    /// # Errors
    /// If that takes too long. It is freed by its last run then.
    pub fn free(self) -> Result<()> {
        let Self(member) = self;
        let (start, device) = (Instant::now(), member.device.clone());
        // Those that choose a member hold it too, if only for a moment.
        wait_until(|| Arc::strong_count(&member) == 1, start, &device)?;
        let end = member.engine.end();
        drop(member);
        // So do threads that have just answered.
        wait_until(|| end.as_ref().is_none_or(|end| end.strong_count() == 0), start, &device)
    }
}

/// Waits until something of a device is done.
fn wait_until(is_done: impl Fn() -> bool, start: Instant, device: &str) -> Result<()> {
    let (never, lock) = (Condvar::new(), Mutex::new(()));
    while !is_done() {
        if start.elapsed() > LEAVE_MAX {
            let text = format!("runs on {device} took more than {LEAVE_MAX:?}");
            return Err(Status::deadline_exceeded(text));
        }
        never.wait_for(&mut lock.lock(), LOOK_EVERY);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc;
    use std::time::Duration;

    use parking_lot::Mutex;
    use schedule::Forecast;

    use super::*;
    use crate::fake::FakeEngine;

    fn slow() -> [Arc<FakeEngine>; 2] {
        [(); 2].map(|()| Arc::new(FakeEngine::slow()))
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

    fn replicas(engines: &[Arc<FakeEngine>]) -> Replicas {
        let member = |(number, engine): (usize, &Arc<FakeEngine>)| {
            Member::new(format!("gpu:{number}"), Arc::clone(engine) as Arc<dyn Engine>)
        };
        Replicas::new(engines.iter().enumerate().map(member).collect(), None)
    }

    #[test]
    fn runs_go_where_they_are_answered_first() {
        let known = |finish_millis, until_ready_millis| {
            let finish = Duration::from_millis(finish_millis);
            let forecast = Forecast { finish, n_waiting: 0, n_busy: 0, is_measured: true };
            let until_ready = Duration::from_millis(until_ready_millis);
            let forecast = Some(Replica { forecast, until_ready });
            Arc::new(FakeEngine { forecast, ..FakeEngine::default() })
        };
        let all = [known(9, 0), known(5, 0), known(1, 100)];
        let replicas = replicas(&all);
        (0..3).for_each(|_| replicas.start(run(), Box::new(|_| ())));
        assert_eq!(all.each_ref().map(|one| one.n_runs.load(Ordering::Relaxed)), [0, 3, 0]);
        let finish = replicas.forecast(&run()).map(|replica| replica.forecast.finish);
        assert_eq!(finish, Some(Duration::from_millis(5)));
    }

    #[test]
    fn without_forecasts_runs_go_where_the_fewest_are() {
        let slow = slow();
        let replicas = replicas(&slow);
        let (send, receive) = mpsc::channel();
        for _ in 0..4 {
            let send = send.clone();
            replicas.start(run(), Box::new(move |_| send.send(()).unwrap()));
        }
        let waiting = || slow.each_ref().map(|one| one.replies.lock().len());
        assert_eq!(waiting(), [2, 2]);
        slow[1].replies.lock().drain(..).for_each(|reply| reply(Ok(Vec::new())));
        assert_eq!(receive.try_iter().count(), 2);
        replicas.start(run(), Box::new(|_| ()));
        assert_eq!(waiting(), [2, 1]);
        // A reply that is dropped is an answer too.
        slow[0].replies.lock().clear();
        replicas.start(run(), Box::new(|_| ()));
        assert_eq!(waiting(), [1, 1]);
    }
    #[test]
    fn one_that_leaves_answers_what_it_was_given_and_is_freed_then() {
        let slow = slow();
        let replicas = replicas(&slow[..1]);
        assert!(replicas.take("gpu:0").is_none(), "the last one stays");
        let (send, receive) = mpsc::channel();
        let ask = |replicas: &Replicas| {
            let send = send.clone();
            replicas.start(run(), Box::new(move |answer| send.send(answer.is_ok()).unwrap()));
        };
        ask(&replicas);
        let second = Member::new("gpu:1".to_owned(), Arc::clone(&slow[1]) as Arc<dyn Engine>);
        replicas.add(second).unwrap();
        let leaving = replicas.take("gpu:0").unwrap();
        assert_eq!(replicas.devices(), ["gpu:1"]);
        ask(&replicas);
        assert_eq!(slow.each_ref().map(|one| one.replies.lock().len()), [1, 1]);
        std::thread::scope(|scope| {
            let freed = scope.spawn(|| leaving.free());
            assert!(!freed.is_finished(), "it has a run under way");
            slow[0].replies.lock().drain(..).for_each(|reply| reply(Ok(Vec::new())));
            freed.join().unwrap().unwrap();
        });
        assert_eq!(Arc::strong_count(&slow[0]), 1, "it was freed");
        assert_eq!(receive.try_iter().collect::<Vec<_>>(), [true]);
    }

    #[test]
    fn one_that_leaves_is_gone_when_its_last_run_holds_nothing_of_it() {
        let held = [(); 2].map(|()| {
            let held = Mutex::new(Some(Arc::default()));
            Arc::new(FakeEngine { held, ..FakeEngine::default() })
        });
        let replicas = replicas(&held);
        let (leaving, is_gone) = (replicas.take("gpu:0").unwrap(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // It is looked at several times meanwhile.
                Condvar::new().wait_for(&mut Mutex::new(()).lock(), 10 * LOOK_EVERY);
                is_gone.store(true, Ordering::SeqCst);
                drop(held[0].held.lock().take());
            });
            leaving.free().unwrap();
            assert!(is_gone.load(Ordering::SeqCst));
        });
    }

    #[test]
    fn one_that_comes_later_batches_as_the_others() {
        let told: [Arc<FakeEngine>; 2] = Default::default();
        let replicas = replicas(&told[..1]);
        replicas.set_batching(&Batching::Off).unwrap();
        let second = Member::new("gpu:1".to_owned(), Arc::clone(&told[1]) as Arc<dyn Engine>);
        replicas.add(second).unwrap();
        assert_eq!(told.each_ref().map(|one| one.batchings.lock().len()), [1, 1]);
    }
}
