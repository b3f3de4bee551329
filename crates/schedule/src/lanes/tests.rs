use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use batch::{Class, MixedPriority, Order};
use device::logical::GrowthRule;
use device::{Account, Change, Holder, Host, Limited, Owner, Space, SpaceOptions, Workspace};
use parking_lot::Mutex;
use tensor::{Shape, Tensor};

use crate::agenda::{Admission, QueueId};
use crate::lanes::{Lanes, Share};
use crate::options::{Options, QueueOptions};
use crate::task::{Blame, Control, Failure, Fault, Reply, Task, Work};

/// Doubles its input. Fails where a row is negative, panics at 666, and waits for the gate at 1000.
struct Double {
    gate: Mutex<Option<mpsc::Receiver<()>>>,
    started: Mutex<Option<mpsc::Sender<()>>>,
    n_runs: AtomicUsize,
    rows: Mutex<Vec<usize>>,
    is_repeatable: bool,
}

#[derive(Debug, thiserror::Error)]
#[error("a row is negative")]
struct Negative;

impl Work for Double {
    fn run(&self, inputs: &[Tensor], _: &Control, _: &mut Workspace) -> Result<Vec<Tensor>, Fault> {
        self.n_runs.fetch_add(1, Ordering::Relaxed);
        let values = inputs[0].as_slice::<i32>();
        self.rows.lock().push(values.len());
        if values.contains(&1000) {
            if let Some(started) = self.started.lock().take() {
                started.send(()).unwrap();
            }
            let gate = self.gate.lock().take();
            let _ = gate.map(|gate| gate.recv());
        }
        assert!(!values.contains(&666), "a kernel is wrong");
        if values.iter().any(|value| *value < 0) {
            return Err(Fault { error: Arc::new(Negative), blame: Blame::Rows });
        }
        let doubled: Vec<i32> = values.iter().map(|value| value * 2).collect();
        Ok(vec![Tensor::from_slice(inputs[0].shape().clone(), &doubled).unwrap()])
    }

    fn is_repeatable(&self) -> bool {
        self.is_repeatable
    }

    fn is_steady(&self, _: &[Tensor]) -> bool {
        true
    }

    /// A quarter of a mebibyte a row.
    fn needs(&self, inputs: &[Tensor]) -> Option<u64> {
        Some((inputs[0].shape()[0] as u64) << 18)
    }
}

/// One lane that is busy until the gate is opened, so that tasks wait together.
struct Setup {
    lanes: Option<Lanes>,
    share: Share,
    queue: QueueId,
    work: Arc<Double>,
    open: mpsc::Sender<()>,
}

type Answers = mpsc::Receiver<Result<Vec<i32>, String>>;

fn setup(batch_rows_max: usize, is_repeatable: bool) -> Setup {
    let options = Options { n_lanes: 1, inline_max: Duration::ZERO, run_max: None };
    setup_on(Lanes::start(options).unwrap(), batch_rows_max, is_repeatable)
}

fn setup_on(lanes: Lanes, batch_rows_max: usize, is_repeatable: bool) -> Setup {
    let share = lanes.share(1);
    let (open, gate) = mpsc::channel();
    let (started, is_started) = mpsc::channel();
    let work = Arc::new(Double {
        gate: Mutex::new(Some(gate)),
        started: Mutex::new(Some(started)),
        n_runs: AtomicUsize::new(0),
        rows: Mutex::default(),
        is_repeatable,
    });
    let batch = batch::Options {
        task_rows_max: 8,
        batch_rows_max,
        timeout: Duration::ZERO,
        enqueued_batches_max: 2,
        allowed_sizes: Vec::new(),
        pads_shapes: false,
        splits_tasks: false,
        order: Order::Arrival,
        mixed_priority: MixedPriority::Merge,
        levels: Vec::new(),
    };
    let options = QueueOptions { batch, admission: Admission::Room };
    let queue = share.queue(Arc::clone(&work) as Arc<dyn Work>, options).unwrap();
    let setup = Setup { lanes: Some(lanes), share, queue, work, open };
    drop(setup.push(&[1000]));
    is_started.recv().unwrap();
    setup
}

impl Setup {
    fn push(&self, values: &[i32]) -> Answers {
        self.push_with(values, None, &Arc::default())
    }

    fn push_with(
        &self,
        values: &[i32],
        deadline: Option<Instant>,
        is_cancelled: &Arc<AtomicBool>,
    ) -> Answers {
        let (send, receive) = mpsc::channel();
        let reply = Box::new(move |answer: Result<Vec<Tensor>, Failure>| {
            let answer = answer.map(|outputs| outputs[0].as_slice::<i32>().to_vec());
            let text = |failure| match failure {
                Failure::Refused(refusal) => refusal.to_string(),
                Failure::Failed(fault) => fault.error.to_string(),
            };
            drop(send.send(answer.map_err(text)));
        });
        self.push_to(reply, values, deadline, is_cancelled);
        receive
    }

    fn push_to(
        &self,
        reply: Reply,
        values: &[i32],
        deadline: Option<Instant>,
        is_cancelled: &Arc<AtomicBool>,
    ) {
        let inputs = vec![Tensor::from_slice(Shape::of(&[values.len()]), values).unwrap()];
        let class = Class::new(&inputs, false);
        let control = Control { deadline, is_cancelled: Arc::clone(is_cancelled) };
        let task = Task::new(inputs, vec![0], control, values.len(), reply);
        self.share.push(self.queue, task, class, 0);
    }
}

fn is(answers: &Answers, expected: &[i32]) {
    assert_eq!(answers.recv().unwrap(), Ok(expected.to_vec()));
}

fn fails(answers: &Answers, expected: &str) {
    let text = answers.recv().unwrap().unwrap_err();
    assert!(text.contains(expected), "{text}");
}

#[test]
fn tasks_that_wait_run_together_and_each_gets_its_rows() {
    let setup = setup(4, true);
    let answers = [setup.push(&[1]), setup.push(&[2, 3]), setup.push(&[4])];
    setup.open.send(()).unwrap();
    is(&answers[0], &[2]);
    is(&answers[1], &[4, 6]);
    is(&answers[2], &[8]);
    assert_eq!(*setup.work.rows.lock(), [1, 4]);
}

#[test]
fn one_bad_task_fails_alone() {
    let setup = setup(4, true);
    let answers = [setup.push(&[1]), setup.push(&[-1]), setup.push(&[666]), setup.push(&[2])];
    setup.open.send(()).unwrap();
    is(&answers[0], &[2]);
    fails(&answers[1], "a row is negative");
    fails(&answers[2], "a kernel panicked");
    is(&answers[3], &[4]);
    let stats = setup.share.snapshot(setup.queue).unwrap().stats;
    assert!(stats.n_rerun <= 1, "the count may come after the answers");
}

#[test]
fn what_leaves_something_behind_is_never_run_again() {
    let setup = setup(4, false);
    let answers = [setup.push(&[1]), setup.push(&[-1])];
    setup.open.send(()).unwrap();
    answers.iter().for_each(|answer| fails(answer, "a row is negative"));
    assert_eq!(setup.work.n_runs.load(Ordering::Relaxed), 2);
}

#[test]
fn a_full_queue_refuses_and_a_cancelled_task_makes_room() {
    let setup = setup(1, true);
    let is_cancelled = Arc::new(AtomicBool::new(false));
    let gone = setup.push_with(&[1], None, &is_cancelled);
    let waits = setup.push(&[2]);
    fails(&setup.push(&[3]), "max_enqueued_batches is 2");
    is_cancelled.store(true, Ordering::Relaxed);
    let taken = setup.push(&[4]);
    fails(&gone, "nobody waits");
    setup.open.send(()).unwrap();
    is(&waits, &[4]);
    is(&taken, &[8]);
}

#[test]
fn what_expires_is_answered_while_the_lane_is_busy() {
    let setup = setup(4, true);
    let soon = Instant::now() + Duration::from_millis(1);
    let late = setup.push_with(&[1], Some(soon), &Arc::default());
    // The answer comes although the lane is still busy.
    let text = late.recv().unwrap().unwrap_err();
    assert!(text.contains("deadline"), "{text}");
    setup.open.send(()).unwrap();
}

#[test]
fn the_end_refuses_what_waits() {
    let mut setup = setup(4, true);
    let waits = setup.push(&[1]);
    let lanes = setup.lanes.take();
    setup.open.send(()).unwrap();
    drop(lanes);
    // The lane may have taken it before it saw the end.
    let answer = waits.recv().unwrap();
    assert!(answer == Ok(vec![2]) || answer.is_err_and(|text| text.contains("unloaded")));
    fails(&setup.push(&[2]), "unloaded");
}

#[test]
fn lanes_may_end_on_one_of_them() {
    let mut setup = setup(4, true);
    let lanes = setup.lanes.take();
    let (send, ended) = mpsc::channel();
    let reply = Box::new(move |answer: Result<Vec<Tensor>, Failure>| {
        drop(lanes);
        send.send(answer.is_ok()).unwrap();
    });
    setup.push_to(reply, &[1], None, &Arc::default());
    setup.open.send(()).unwrap();
    assert_eq!(ended.recv(), Ok(true), "a panic would lose the sender");
    fails(&setup.push(&[2]), "unloaded");
}

#[test]
fn a_share_that_is_dropped_refuses_what_waits() {
    let Setup { lanes: _lanes, share, queue: _, work: _, open } = {
        let setup = setup(4, true);
        let waits = setup.push(&[1]);
        let Setup { lanes, share, queue, work, open } = setup;
        drop(share);
        fails(&waits, "unloaded");
        let share = lanes.as_ref().unwrap().share(1);
        Setup { lanes, share, queue, work, open }
    };
    open.send(()).unwrap();
    drop(share);
}

#[test]
fn a_short_task_runs_on_its_callers_thread_once_its_time_is_known() {
    let options = Options { n_lanes: 1, inline_max: Duration::from_secs(1), run_max: None };
    let lanes = Lanes::start(options).unwrap();
    let share = lanes.share(1);
    struct Here;
    impl Work for Here {
        fn run(&self, _: &[Tensor], _: &Control, _: &mut Workspace) -> Result<Vec<Tensor>, Fault> {
            let name = std::thread::current().name().unwrap_or_default().to_owned();
            let strings = tensor::Strings::collect([name]).unwrap();
            Ok(vec![Tensor::from_strings(Shape::of(&[1]), strings).unwrap()])
        }
        fn is_repeatable(&self) -> bool {
            true
        }

        fn is_steady(&self, _: &[Tensor]) -> bool {
            true
        }
    }
    let options = QueueOptions { batch: batch::Options::unbatched(9), admission: Admission::Room };
    let queue = share.queue(Arc::new(Here), options).unwrap();
    let run = || {
        let (send, receive) = mpsc::channel();
        let reply = Box::new(move |answer: Result<Vec<Tensor>, Failure>| {
            send.send(answer.unwrap()[0].strings().get(0).to_vec()).unwrap();
        });
        let control = Control { deadline: None, is_cancelled: Arc::default() };
        let task = Task::new(Vec::new(), vec![0], control, 1, reply);
        share.push(queue, task, Class::new(&[], false), 0);
        String::from_utf8(receive.recv().unwrap()).unwrap()
    };
    assert_eq!(run(), "lane-0");
    // The run time is noted after the answer: the next may still cross, a later one does not.
    let here = std::thread::current().name().unwrap_or_default().to_owned();
    assert!((0..1000).any(|_| run() == here));
}

/// Memory of the host for lanes.
fn space(limit_bytes: u64) -> Arc<Space> {
    let host = Arc::new(Host::new("cpu:0", 1 << 30));
    let physical = Arc::new(Limited::new(host, "physical", u64::MAX));
    let account = Arc::clone(physical.account());
    let driver = Arc::new(Limited::new(physical, "cpu:0", limit_bytes));
    let options = SpaceOptions {
        driver,
        physical: account,
        growth: GrowthRule::OnDemand,
        step_bytes: 64 << 10,
        context_bytes: 0,
    };
    Space::new(options).unwrap()
}

#[test]
fn after_a_task_that_grew_its_lane_the_next_larger_one_does_not() {
    /// Needs as many KiB as its input says.
    struct Grows;
    impl Work for Grows {
        fn run(
            &self,
            inputs: &[Tensor],
            _: &Control,
            workspace: &mut Workspace,
        ) -> Result<Vec<Tensor>, Fault> {
            let kib = usize::try_from(inputs[0].as_slice::<i32>()[0]).unwrap();
            workspace.ensure(kib << 10).unwrap();
            Ok(vec![inputs[0].clone()])
        }
        fn is_repeatable(&self) -> bool {
            true
        }

        fn is_steady(&self, _: &[Tensor]) -> bool {
            true
        }
    }
    let space = space(64 << 20);
    let owner = Owner::new(&space, Holder::Server, None);
    let options = Options { n_lanes: 1, inline_max: Duration::ZERO, run_max: None };
    let lanes = Lanes::start_for(options, Some(owner)).unwrap();
    let share = lanes.share(1);
    let options = QueueOptions { batch: batch::Options::unbatched(9), admission: Admission::Room };
    let queue = share.queue(Arc::new(Grows) as Arc<dyn Work>, options).unwrap();
    let run = |kib: i32| {
        let (send, receive) = mpsc::channel();
        let reply = Box::new(move |_| send.send(()).unwrap());
        let control = Control { deadline: None, is_cancelled: Arc::default() };
        let inputs = vec![Tensor::vector(&[kib]).unwrap()];
        let task = Task::new(inputs, vec![0], control, 1, reply);
        share.push(queue, task, Class::new(&[], false), 0);
        receive.recv().unwrap();
    };
    // How often the device grew while a task waited, and how often ahead.
    let n_growths = |cause: &str| {
        let events = space.snapshot().events;
        let of = events.iter().filter(|one| one.change == Change::Growth && one.cause == cause);
        of.map(device::EventTotal::n_events).sum::<u64>()
    };
    run(4096);
    for (n_ahead, kib) in [(1, 5000), (2, 6000), (3, 7000)] {
        while n_growths("ahead") < n_ahead {
            std::thread::yield_now();
        }
        run(kib);
        assert_eq!(n_growths("activations"), 1, "{kib} KiB");
        let account = space.account();
        assert!(account.held_bytes() <= account.limit_bytes());
    }
    drop(lanes);
}

/// Needs a mebibyte a row, in its lane's workspace or in one of its own. Waits for the gate at
/// 1000.
struct Wide {
    own: Option<(Arc<Owner>, Mutex<Workspace>)>,
    gate: Mutex<mpsc::Receiver<()>>,
    started: mpsc::Sender<()>,
    rows: Mutex<Vec<usize>>,
}

impl Work for Wide {
    fn run(
        &self,
        inputs: &[Tensor],
        _: &Control,
        workspace: &mut Workspace,
    ) -> Result<Vec<Tensor>, Fault> {
        let values = inputs[0].as_slice::<i32>();
        self.rows.lock().push(values.len());
        if values.contains(&1000) {
            self.started.send(()).unwrap();
            self.gate.lock().recv().unwrap();
        }
        match &self.own {
            // What is beyond what was set aside is only held while it runs.
            Some((_, own)) => {
                own.lock().ensure(values.len() << 20).unwrap();
                own.lock().trim().unwrap();
            }
            None => workspace.ensure(values.len() << 20).unwrap(),
        }
        Ok(vec![inputs[0].clone()])
    }

    fn is_repeatable(&self) -> bool {
        true
    }

    fn is_steady(&self, _: &[Tensor]) -> bool {
        true
    }

    fn needs(&self, inputs: &[Tensor]) -> Option<u64> {
        Some((inputs[0].shape()[0] as u64) << 20)
    }

    fn space(&self) -> Option<&Arc<Space>> {
        self.own.as_ref().map(|(owner, _)| owner.space())
    }
}

/// One lane and a queue of batches of up to eight rows.
struct WideSetup {
    // Before the lanes, which it is a share of.
    share: Share,
    _lanes: Lanes,
    queue: QueueId,
    work: Arc<Wide>,
    open: mpsc::Sender<()>,
    is_started: mpsc::Receiver<()>,
    space: Arc<Space>,
}

impl WideSetup {
    fn new(space: &Arc<Space>, own: Option<Arc<Owner>>) -> Self {
        let owner = Owner::new(space, Holder::Server, None);
        let options = Options { n_lanes: 1, inline_max: Duration::ZERO, run_max: None };
        let lanes = Lanes::start_for(options, Some(owner)).unwrap();
        let share = lanes.share(1);
        let (open, gate) = mpsc::channel();
        let (started, is_started) = mpsc::channel();
        let own =
            own.map(|owner| (Arc::clone(&owner), Mutex::new(Workspace::for_owner(owner).unwrap())));
        let work = Wide { own, gate: Mutex::new(gate), started, rows: Mutex::default() };
        let work = Arc::new(work);
        let batch = batch::Options {
            task_rows_max: 8,
            batch_rows_max: 8,
            timeout: Duration::ZERO,
            ..batch::Options::unbatched(9)
        };
        let options = QueueOptions { batch, admission: Admission::Room };
        let queue = share.queue(Arc::clone(&work) as Arc<dyn Work>, options).unwrap();
        let space = Arc::clone(space);
        Self { share, _lanes: lanes, queue, work, open, is_started, space }
    }

    fn push(&self, values: &[i32]) -> mpsc::Receiver<bool> {
        let (send, receive) = mpsc::channel();
        let reply = Box::new(move |answer: Result<_, _>| send.send(answer.is_ok()).unwrap());
        let control = Control { deadline: None, is_cancelled: Arc::default() };
        let inputs = vec![Tensor::vector(values).unwrap()];
        let class = Class::new(&inputs, false);
        let task = Task::new(inputs, vec![0], control, values.len(), reply);
        self.share.push(self.queue, task, class, 0);
        receive
    }

    /// The bytes by which the device grew for a cause.
    fn grown(&self, cause: &str) -> u64 {
        let events = self.space.snapshot().events;
        let of = events.iter().filter(|one| one.change == Change::Growth && one.cause == cause);
        of.map(|one| one.bytes).sum()
    }

    /// Lets a batch wait that is larger than any before it: its run grows nothing.
    fn check_that_what_waits_has_memory(&self) {
        assert!(self.push(&[1]).recv().unwrap());
        let busy = self.push(&[1000]);
        self.is_started.recv().unwrap();
        let (before, ahead) = (self.grown("activations"), self.grown("ahead"));
        let waiting: Vec<_> = (0..8).map(|value| self.push(&[value])).collect();
        while self.grown("ahead") < ahead + (6 << 20) {
            std::thread::yield_now();
        }
        self.open.send(()).unwrap();
        assert!(waiting.iter().chain([&busy]).all(|answer| answer.recv().unwrap()));
        assert_eq!(self.grown("activations"), before);
        assert_eq!(*self.work.rows.lock(), [1, 1, 8]);
    }
}

#[test]
fn a_batch_that_waits_and_is_larger_than_any_before_it_has_its_memory_when_it_runs() {
    WideSetup::new(&space(64 << 20), None).check_that_what_waits_has_memory();
}

/// A mebibyte that is set aside of a space for somebody who may hold 32.
fn aside(space: &Arc<Space>) -> Arc<Owner> {
    let account = Arc::new(Account::new("model a", 32 << 20));
    let child = space.set_aside_at_least(Holder::Server, &account, 1 << 20).unwrap();
    Owner::new(&child, Holder::Server, None)
}

#[test]
fn so_has_one_of_a_model_for_which_memory_was_set_aside() {
    let space = space(64 << 20);
    WideSetup::new(&space, Some(aside(&space))).check_that_what_waits_has_memory();
}

#[test]
fn after_a_rest_such_a_model_has_its_memory_back_before_the_task_needs_it() {
    let space = space(64 << 20);
    let own = aside(&space);
    let account = Arc::clone(own.space().account());
    let setup = WideSetup::new(&space, Some(Arc::clone(&own)));
    assert!(setup.push(&[1; 8]).recv().unwrap());
    // The clock may still take some ahead.
    while account.held_bytes() > 1 << 20 || !own.space().is_at_rest() {
        space.rest().unwrap();
    }
    let before = setup.grown("activations");
    setup.share.expect(Some(own.space()));
    while account.held_bytes() < 8 << 20 {
        std::thread::yield_now();
    }
    assert!(setup.push(&[1; 8]).recv().unwrap());
    assert_eq!(setup.grown("activations"), before);
}

#[test]
fn a_batch_never_needs_more_than_the_memory_that_is_free() {
    // One mebibyte: four rows.
    let owner = Owner::new(&space(1 << 20), Holder::Server, None);
    let options = Options { n_lanes: 1, inline_max: Duration::ZERO, run_max: None };
    let setup = setup_on(Lanes::start_for(options, Some(owner)).unwrap(), 8, true);
    let answers: Vec<Answers> = (0..8).map(|value| setup.push(&[value])).collect();
    setup.open.send(()).unwrap();
    for (value, answer) in (0..8).zip(&answers) {
        is(answer, &[2 * value]);
    }
    assert_eq!(*setup.work.rows.lock(), [1, 4, 4]);
}

#[test]
fn a_task_crosses_to_a_lane_and_its_answer_back_and_no_further() {
    struct Where(Mutex<Vec<ThreadId>>);
    impl Work for Where {
        fn run(&self, _: &[Tensor], _: &Control, _: &mut Workspace) -> Result<Vec<Tensor>, Fault> {
            self.0.lock().push(std::thread::current().id());
            Ok(vec![Tensor::vector(&[1i32]).unwrap()])
        }
        fn is_repeatable(&self) -> bool {
            true
        }

        fn is_steady(&self, _: &[Tensor]) -> bool {
            true
        }
    }
    let lanes =
        Lanes::start(Options { n_lanes: 2, inline_max: Duration::ZERO, run_max: None }).unwrap();
    let share = lanes.share(1);
    let work = Arc::new(Where(Mutex::default()));
    let options = QueueOptions { batch: batch::Options::unbatched(9), admission: Admission::Room };
    let queue = share.queue(Arc::clone(&work) as Arc<dyn Work>, options).unwrap();
    for _ in 0..20 {
        let (send, receive) = mpsc::channel();
        let reply = Box::new(move |_| send.send(std::thread::current().id()).unwrap());
        let control = Control { deadline: None, is_cancelled: Arc::default() };
        share.push(
            queue,
            Task::new(Vec::new(), vec![0], control, 1, reply),
            Class::new(&[], false),
            0,
        );
        let replied = receive.recv().unwrap();
        // It is taken, merged, run, taken apart and answered on one thread, which is a lane's.
        assert_eq!(work.0.lock().pop(), Some(replied));
        assert_ne!(replied, std::thread::current().id());
    }
}
