use batch::{Class, MixedPriority, Order};
use proptest::prelude::*;

use super::*;

fn options(batch_rows_max: usize) -> batch::Options {
    batch::Options {
        task_rows_max: 8,
        batch_rows_max,
        timeout: Duration::ZERO,
        enqueued_batches_max: 4,
        allowed_sizes: Vec::new(),
        pads_shapes: false,
        splits_tasks: false,
        order: Order::Deadline { ageing: Duration::from_secs(1) },
        mixed_priority: MixedPriority::Merge,
        levels: Vec::new(),
    }
}

fn arrival(n_rows: usize, deadline: Option<Time>) -> Arrival {
    Arrival { n_rows, class: Class::new(&[], false), level: 0, deadline }
}

fn at(millis: u64) -> Time {
    Time::default().plus(Duration::from_millis(millis))
}

/// Runs what is next for `millis`.
fn run(agenda: &mut Agenda<u32>, from: u64, millis: u64) -> Vec<u32> {
    let Next::Run(turn) = agenda.next(at(from)) else { panic!("nothing to run") };
    let turned = turn.turned();
    agenda.done(&turned, at(from + millis));
    turn.batch.pieces.iter().map(|piece| *piece.task).collect()
}

#[test]
fn what_cannot_be_answered_in_time_is_refused_at_once() {
    let mut agenda = Agenda::new(1);
    let model = agenda.add_model(1);
    let queue = agenda.add_queue(model, options(1), Admission::InTime).unwrap();
    let push = |agenda: &mut Agenda<u32>, name, deadline| {
        agenda.push(queue, Arc::new(name), &arrival(1, Some(at(deadline))), at(0))
    };
    // Nothing is known of the run time yet, so everything is taken.
    push(&mut agenda, 0, 1).unwrap();
    assert_eq!(run(&mut agenda, 0, 10), [0]);
    push(&mut agenda, 2, 11).unwrap();
    let late = push(&mut agenda, 3, 15).unwrap_err();
    assert!(matches!(late.error, Error::TooLate { .. }), "{late}");
    assert_eq!(late.retry_after, Some(Duration::from_millis(20)));
    // What is predicted for its very end is not taken: it may be off by a little.
    assert!(push(&mut agenda, 4, 21).is_err());
    push(&mut agenda, 5, 22).unwrap();
    assert_eq!(run(&mut agenda, 0, 10), [2]);
    agenda.check();
}

#[test]
fn a_full_queue_says_when_to_come_again() {
    let mut agenda = Agenda::new(1);
    let model = agenda.add_model(1);
    let queue = agenda.add_queue(model, options(1), Admission::Room).unwrap();
    agenda.push(queue, Arc::new(0), &arrival(1, None), at(0)).unwrap();
    run(&mut agenda, 0, 10);
    for name in 1..=4 {
        agenda.push(queue, Arc::new(name), &arrival(1, None), at(10)).unwrap();
    }
    let full = agenda.push(queue, Arc::new(5), &arrival(1, None), at(10)).unwrap_err();
    assert!(matches!(full.error, Error::Batch(batch::Error::QueueFull { .. })));
    assert_eq!(full.retry_after, Some(Duration::from_millis(50)));
    let snapshot = agenda.snapshot(queue, at(12)).unwrap();
    assert_eq!((snapshot.n_tasks, snapshot.age), (4, Duration::from_millis(2)));
    assert_eq!((snapshot.stats.n_asked, snapshot.stats.n_refused), (6, 1));
}

#[test]
fn a_model_that_is_held_waits_and_the_others_run() {
    let mut agenda: Agenda<u32> = Agenda::new(1);
    let queues = [1, 1].map(|weight| {
        let model = agenda.add_model(weight);
        (model, agenda.add_queue(model, options(1), Admission::Room).unwrap())
    });
    agenda.hold(queues[0].0);
    for (name, (_, queue)) in (0..).zip(queues) {
        agenda.push(queue, Arc::new(name), &arrival(1, Some(at(30))), at(0)).unwrap();
    }
    agenda.push(queues[0].1, Arc::new(2), &arrival(1, None), at(0)).unwrap();
    assert_eq!(run(&mut agenda, 0, 10), [1]);
    assert!(matches!(agenda.next(at(10)), Next::Wait(None)));
    let expired: Vec<u32> = agenda.expire(at(30)).iter().map(|task| **task).collect();
    assert_eq!(expired, [0], "what is held expires");
    agenda.release(queues[0].0);
    assert_eq!(run(&mut agenda, 30, 10), [2]);
    agenda.check();
}

#[test]
fn a_removed_model_goes_when_its_last_batch_has_run() {
    let mut agenda: Agenda<u32> = Agenda::new(1);
    let model = agenda.add_model(1);
    let queue = agenda.add_queue(model, options(1), Admission::Room).unwrap();
    for name in 0..2 {
        agenda.push(queue, Arc::new(name), &arrival(1, None), at(0)).unwrap();
    }
    let Next::Run(turn) = agenda.next(at(0)) else { panic!() };
    assert_eq!(agenda.remove_model(model).len(), 1);
    let other = agenda.add_model(1);
    let other_queue = agenda.add_queue(other, options(1), Admission::Room).unwrap();
    assert_ne!(other_queue, queue, "its place is not free yet");
    agenda.done(&turn.turned(), at(1));
    agenda.check();
    let third = agenda.add_model(1);
    assert_eq!(third, model, "now it is");
    let gone = agenda.push(queue, Arc::new(3), &arrival(1, None), at(1)).unwrap_err();
    assert_eq!(gone.error, Error::Closed);
}

#[derive(Debug, Clone)]
enum Step {
    Push { queue: usize, n_rows: usize, deadline: Option<u64> },
    Pass(u64),
    Next,
    Done(usize),
    Expire,
}

fn step() -> impl Strategy<Value = Step> {
    let push = (0..3usize, 0..9usize, proptest::option::of(0..100u64));
    prop_oneof![
        4 => push.prop_map(|(queue, n_rows, deadline)| Step::Push { queue, n_rows, deadline }),
        2 => (0..50u64).prop_map(Step::Pass),
        3 => Just(Step::Next),
        3 => (0..4usize).prop_map(Step::Done),
        1 => Just(Step::Expire),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn every_task_is_run_refused_or_expired_once(
        n_lanes in 1..4usize,
        steps in proptest::collection::vec(step(), 1..80),
    ) {
        let mut agenda: Agenda<u32> = Agenda::new(n_lanes);
        let queues: Vec<QueueId> = (0..3).map(|number| {
            let model = agenda.add_model(number + 1);
            agenda.add_queue(model, options(4), Admission::InTime).unwrap()
        }).collect();
        let mut now = 0;
        let mut running: Vec<Turn<u32>> = Vec::new();
        let (mut n_pushed, mut n_ended) = (0usize, 0usize);
        for step in steps {
            match step {
                Step::Push { queue, n_rows, deadline } => {
                    let deadline = deadline.map(|after| at(now + after));
                    let arrival = arrival(n_rows, deadline);
                    let pushed = agenda.push(queues[queue], Arc::new(0), &arrival, at(now));
                    n_pushed += usize::from(pushed.is_ok());
                }
                Step::Pass(millis) => now += millis,
                Step::Next => if let Next::Run(turn) = agenda.next(at(now)) {
                    running.push(turn);
                },
                Step::Done(place) => if place < running.len() {
                    let turn = running.swap_remove(place);
                    n_ended += turn.batch.pieces.len();
                    agenda.done(&turn.turned(), at(now));
                },
                Step::Expire => n_ended += agenda.expire(at(now)).len(),
            }
            agenda.check();
            prop_assert!(running.len() <= n_lanes);
        }
        loop {
            for turn in running.drain(..) {
                n_ended += turn.batch.pieces.len();
                agenda.done(&turn.turned(), at(now));
            }
            now += 1000;
            n_ended += agenda.expire(at(now)).len();
            let Next::Run(turn) = agenda.next(at(now)) else { break };
            running.push(turn);
        }
        prop_assert_eq!(n_pushed, n_ended);
    }
}

#[test]
fn a_batch_has_no_more_rows_than_fit_in_memory() {
    let mut agenda: Agenda<u32> = Agenda::new(1);
    let model = agenda.add_model(1);
    let wide = batch::Options { allowed_sizes: vec![1, 2, 4, 8], ..options(8) };
    let queue = agenda.add_queue(model, wide, Admission::InTime).unwrap();
    let mut name = 0;
    let mut rows = |agenda: &mut Agenda<u32>, free_bytes: u64| {
        for _ in 0..8 {
            agenda.push(queue, Arc::new(name), &arrival(1, None), at(0)).unwrap();
            name += 1;
        }
        agenda.set_free_bytes(Some(free_bytes));
        let Next::Run(turn) = agenda.next(at(0)) else { panic!("nothing to run") };
        // A batch of n rows needs 100 + 10 n bytes.
        if turn.is_news {
            let n_padded = turn.batch.n_padded;
            agenda.note_needs(queue, &turn.batch.class, n_padded, 100 + 10 * n_padded as u64);
        }
        agenda.done(&turn.turned(), at(1));
        agenda.remove_if(queue, |_| true);
        agenda.check();
        turn.batch.n_padded
    };
    assert_eq!(rows(&mut agenda, 1000), 1, "the first tells what is needed");
    assert_eq!(rows(&mut agenda, 1000), 8);
    assert_eq!(rows(&mut agenda, 180), 8);
    assert_eq!(rows(&mut agenda, 179), 4, "filled up to a size that fits");
    assert_eq!(rows(&mut agenda, 139), 2);
    assert_eq!(rows(&mut agenda, 50), 1, "one task is tried whatever there is");
    assert_eq!(agenda.snapshot(queue, at(0)).unwrap().rows_fit, Some(1));
}

#[test]
fn the_first_batch_is_full_where_batching_was_asked_for_and_one_task_else() {
    for (admission, expected) in [(Admission::Room, 8), (Admission::InTime, 1)] {
        let mut agenda: Agenda<u32> = Agenda::new(1);
        let model = agenda.add_model(1);
        let queue = agenda.add_queue(model, options(8), admission).unwrap();
        for name in 0..8 {
            agenda.push(queue, Arc::new(name), &arrival(1, None), at(0)).unwrap();
        }
        assert_eq!(run(&mut agenda, 0, 10).len(), expected, "{admission:?}");
    }
}

#[test]
fn under_contention_the_urgent_go_first_and_what_waits_long_enough_goes_too() {
    let mut agenda: Agenda<u32> = Agenda::new(1);
    let model = agenda.add_model(1);
    let levels = vec![batch::Level::default(); 2];
    let urgent_first = batch::Options { levels, enqueued_batches_max: 100, ..options(1) };
    let queue = agenda.add_queue(model, urgent_first, Admission::Room).unwrap();
    let push = |agenda: &mut Agenda<u32>, name: u32, level: usize, now: u64| {
        let arrival = Arrival { level, ..arrival(1, None) };
        agenda.push(queue, Arc::new(name), &arrival, at(now)).unwrap();
    };
    // Ten that can wait come first, and ten that cannot after them.
    (0..10).for_each(|name| push(&mut agenda, name, 1, 0));
    (10..20).for_each(|name| push(&mut agenda, name, 0, 1));
    let order: Vec<u32> = (0..20).flat_map(|turn| run(&mut agenda, 2 + turn, 1)).collect();
    assert_eq!(order, (10..20).chain(0..10).collect::<Vec<_>>());
    // One urgent task for each turn, for ever: the one that can wait has its turn nevertheless.
    push(&mut agenda, 100, 1, 100);
    let mut waited = 0;
    while {
        push(&mut agenda, 200, 0, 100 + waited);
        run(&mut agenda, 100 + waited, 1) != [100]
    } {
        waited += 1;
        assert!(waited < 10_000, "it starves");
    }
    assert!(waited > 0);
    agenda.check();
}
