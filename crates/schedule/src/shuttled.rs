//! The lanes under shuttle: the same source, with locks and threads that are switched at every
//! step, in thousands of random orders. A wait never times out here, so that a wake-up that is
//! lost is a deadlock, which fails the test; so does a task that is answered twice or never.

#[allow(
    clippy::duplicate_mod,
    dead_code,
    unreachable_pub,
    reason = "the same source on other locks, of which only what the tests need is used"
)]
#[path = "lanes.rs"]
mod lanes;
mod sync;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use batch::{Class, MixedPriority, Order};
use device::Workspace;
use tensor::Tensor;

use self::lanes::{Lanes, Share};
use crate::agenda::{Admission, QueueId};
use crate::options::{Options, QueueOptions};
use crate::task::{Control, Failure, Fault, Task, Work};

/// The number of orders of the threads that are tried.
const ORDERS: usize = 300;

/// Gives its inputs back.
struct Echo {
    n_rows: AtomicUsize,
}

impl Work for Echo {
    fn run(&self, inputs: &[Tensor], _: &Control, _: &mut Workspace) -> Result<Vec<Tensor>, Fault> {
        shuttle::thread::yield_now();
        self.n_rows.fetch_add(inputs[0].shape()[0], Ordering::Relaxed);
        Ok(inputs.to_vec())
    }

    fn is_repeatable(&self) -> bool {
        true
    }

    fn is_steady(&self, _: &[Tensor]) -> bool {
        true
    }
}

struct Setup {
    lanes: Lanes,
    share: Arc<Share>,
    queue: QueueId,
    work: Arc<Echo>,
}

fn options(batch_rows_max: usize) -> QueueOptions {
    let batch = batch::Options {
        task_rows_max: 4,
        batch_rows_max,
        timeout: Duration::ZERO,
        enqueued_batches_max: 100,
        allowed_sizes: Vec::new(),
        pads_shapes: false,
        splits_tasks: false,
        order: Order::Arrival,
        mixed_priority: MixedPriority::Merge,
        levels: Vec::new(),
    };
    QueueOptions { batch, admission: Admission::Room }
}

fn setup(n_lanes: usize, inline_max: Duration) -> Setup {
    let lanes =
        Lanes::start(Options { n_lanes, inline_max, run_max: None }).expect("threads of a model");
    let share = Arc::new(lanes.share(1));
    let work = Arc::new(Echo { n_rows: AtomicUsize::new(0) });
    let queue = share.queue(Arc::clone(&work) as Arc<dyn Work>, options(4)).expect("good options");
    Setup { lanes, share, queue, work }
}

/// Answers of tasks: how many were answered with their own rows, and how many were refused.
#[derive(Default)]
struct ShuttledAnswers {
    n_right: AtomicUsize,
    n_refused: AtomicUsize,
}

fn push(
    share: &Share,
    queue: QueueId,
    value: i32,
    answers: &Arc<ShuttledAnswers>,
    is_cancelled: &Arc<AtomicBool>,
) {
    let answers = Arc::clone(answers);
    let reply = Box::new(move |answer: Result<Vec<Tensor>, Failure>| {
        let count = match answer {
            Ok(outputs) => {
                assert_eq!(outputs[0].as_slice::<i32>(), [value]);
                &answers.n_right
            }
            Err(_) => &answers.n_refused,
        };
        count.fetch_add(1, Ordering::Relaxed);
    });
    let inputs = vec![Tensor::vector(&[value]).expect("a small tensor")];
    let class = Class::new(&inputs, false);
    let control = Control { deadline: None, is_cancelled: Arc::clone(is_cancelled) };
    share.push(queue, Task::new(inputs, vec![0], control, 1, reply), class, 0);
}

/// Runs `body` in many orders of its threads.
fn explore(body: impl Fn() + Send + Sync + 'static) {
    shuttle::check_random(body, ORDERS);
}

#[test]
fn two_threads_push_and_every_task_is_answered_once_with_its_own_rows() {
    explore(|| {
        let Setup { lanes, share, queue, work } = setup(2, Duration::ZERO);
        let answers = Arc::new(ShuttledAnswers::default());
        let pushers: Vec<_> = (0..2)
            .map(|first| {
                let (share, answers) = (Arc::clone(&share), Arc::clone(&answers));
                shuttle::thread::spawn(move || {
                    for value in [first, first + 10] {
                        push(&share, queue, value, &answers, &Arc::default());
                    }
                })
            })
            .collect();
        pushers.into_iter().for_each(|pusher| pusher.join().expect("no panic"));
        // What was pushed is answered without any further help: a lost wake-up would hang here.
        while answers.n_right.load(Ordering::Relaxed) < 4 {
            shuttle::thread::yield_now();
        }
        assert_eq!(work.n_rows.load(Ordering::Relaxed), 4);
        drop(share);
        drop(lanes);
        assert_eq!(answers.n_refused.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn tasks_that_meet_the_end_are_run_or_refused_but_never_lost() {
    explore(|| {
        let Setup { lanes, share, queue, .. } = setup(1, Duration::ZERO);
        let answers = Arc::new(ShuttledAnswers::default());
        let pusher = {
            let (share, answers) = (Arc::clone(&share), Arc::clone(&answers));
            shuttle::thread::spawn(move || {
                (0..3).for_each(|value| push(&share, queue, value, &answers, &Arc::default()));
            })
        };
        drop(lanes);
        pusher.join().expect("no panic");
        let (right, refused) = (&answers.n_right, &answers.n_refused);
        assert_eq!(right.load(Ordering::Relaxed) + refused.load(Ordering::Relaxed), 3);
    });
}

#[test]
fn a_model_that_goes_while_it_is_asked_answers_everything() {
    explore(|| {
        let Setup { lanes, share, queue, .. } = setup(1, Duration::ZERO);
        let other = lanes.share(1);
        let answers = Arc::new(ShuttledAnswers::default());
        let pusher = {
            let answers = Arc::clone(&answers);
            shuttle::thread::spawn(move || {
                push(&share, queue, 1, &answers, &Arc::default());
                push(&share, queue, 2, &answers, &Arc::default());
                // The last holder goes while its batches may run.
                drop(share);
            })
        };
        drop(other);
        pusher.join().expect("no panic");
        drop(lanes);
        let (right, refused) = (&answers.n_right, &answers.n_refused);
        assert_eq!(right.load(Ordering::Relaxed) + refused.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn short_tasks_run_on_their_callers_threads_and_leave_nothing_behind() {
    explore(|| {
        let Setup { lanes, share, queue, work } = setup(1, Duration::from_secs(3600));
        let answers = Arc::new(ShuttledAnswers::default());
        let cancelled = Arc::new(AtomicBool::new(false));
        let pusher = {
            let (share, answers) = (Arc::clone(&share), Arc::clone(&answers));
            let cancelled = Arc::clone(&cancelled);
            shuttle::thread::spawn(move || {
                push(&share, queue, 1, &answers, &Arc::default());
                push(&share, queue, 2, &answers, &cancelled);
            })
        };
        share.set_options(queue, options(1)).expect("good options");
        cancelled.store(true, Ordering::Relaxed);
        push(&share, queue, 3, &answers, &Arc::default());
        pusher.join().expect("no panic");
        let (right, refused) = (&answers.n_right, &answers.n_refused);
        while right.load(Ordering::Relaxed) + refused.load(Ordering::Relaxed) < 3 {
            shuttle::thread::yield_now();
        }
        assert!(right.load(Ordering::Relaxed) >= 2, "only one was cancelled");
        drop(share);
        drop(lanes);
        assert_eq!(work.n_rows.load(Ordering::Relaxed), right.load(Ordering::Relaxed));
    });
}
