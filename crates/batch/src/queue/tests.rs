//! The rules of a queue, by scripts; then random operations against a model of what waits.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tensor::Tensor;

use super::*;
use crate::options::{Level, MixedPriority, Order};

const LONG: Duration = Duration::from_secs(3600);

fn options() -> Options {
    Options {
        task_rows_max: 4,
        batch_rows_max: 4,
        timeout: Duration::ZERO,
        enqueued_batches_max: 2,
        allowed_sizes: Vec::new(),
        pads_shapes: false,
        splits_tasks: false,
        order: Order::Arrival,
        mixed_priority: MixedPriority::Merge,
        levels: Vec::new(),
    }
}

fn deadline_order() -> Order {
    Order::Deadline { ageing: Duration::from_millis(100) }
}

fn class(width: usize) -> Class {
    Class::new(
        &[Tensor::from_slice(tensor::Shape::of(&[1, width]), &vec![0u8; width]).unwrap()],
        false,
    )
}

/// A queue driven by a script, and what it did. Words: `a3` pushes a task named a of 3 rows, with
/// `!5` behind it a deadline of 5 ms, with `^1` a level, with `#2` a class. `+5` lets 5 ms pass.
/// `take`, `take2` take a batch (of at most 2 rows), `expire`, `expire3` remove what is late (for a
/// run of 3 ms), `drop-a` removes task a, `when` says when the next batch leaves.
fn run(options: Options, script: &str) -> String {
    let mut queue = Queue::new(options).unwrap();
    let mut now = Time(0);
    let mut did = Vec::new();
    for word in script.split_whitespace() {
        if let Some(ms) = word.strip_prefix('+') {
            now = now.plus(Duration::from_millis(ms.parse().unwrap()));
        } else if let Some(rows) = word.strip_prefix("take") {
            let rows_max = rows.parse().unwrap_or(usize::MAX);
            did.push(
                queue
                    .take(now, Duration::ZERO, |_| rows_max)
                    .map_or("-".into(), |batch| show(&batch)),
            );
        } else if let Some(run) = word.strip_prefix("expire") {
            let run = Duration::from_millis(run.parse().unwrap_or(0));
            let late: Vec<&str> = queue.expire(now, run).iter().map(|task| **task).collect();
            did.push(format!("late:{}", late.join(",")));
        } else if let Some(name) = word.strip_prefix("drop-") {
            assert_eq!(queue.remove_if(|task| *task == name).len(), 1);
        } else if word == "when" {
            did.push(match queue.ready(now, Duration::ZERO) {
                Ready::Now(reason) => reason.name().to_owned(),
                Ready::At(time) => format!("at{}", time.0 / 1_000_000),
                Ready::Never => "never".to_owned(),
            });
        } else if let Err(error) = push(&mut queue, word, now) {
            did.push(error);
        }
        queue.check();
    }
    did.join(" ")
}

fn push<'a>(
    queue: &mut Queue<&'a str>,
    word: &'a str,
    now: Time,
) -> std::result::Result<(), String> {
    let part = |mark: char| {
        let rest = word.split_once(mark)?.1;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse::<usize>().ok()
    };
    let end = word[1..].find(|c: char| !c.is_ascii_digit()).map_or(word.len(), |at| at + 1);
    let arrival = Arrival {
        n_rows: word[1..end].parse().unwrap(),
        class: class(part('#').unwrap_or(1)),
        level: part('^').unwrap_or(0),
        deadline: part('!').map(|ms| Time(ms as u64 * 1_000_000)),
    };
    queue.push(Arc::new(&word[..1]), &arrival, now).map_err(|error| {
        if let Error::QueueFull { n_batches, max } = error {
            format!("full:{n_batches}/{max}")
        } else if let Error::NoCapacity { capacity, .. } = error {
            format!("room:{capacity}")
        } else {
            assert!(matches!(error, Error::TaskTooLarge { .. }));
            "large".to_owned()
        }
    })
}

fn show(batch: &Batch<&str>) -> String {
    let piece =
        |piece: &Piece<&str>| format!("{}{}-{}", piece.task, piece.rows.start, piece.rows.end);
    let pieces: Vec<String> = batch.pieces.iter().map(piece).collect();
    let padding = batch.n_padded - batch.n_rows;
    let padding = if padding > 0 { format!("+{padding}") } else { String::new() };
    format!("[{}{padding}:{}]", pieces.join(","), batch.reason.name())
}

#[track_caller]
fn check(options: Options, script: &str, expected: &str) {
    assert_eq!(run(options, script), expected, "{script}");
}

#[test]
fn tasks_leave_together_in_their_order_until_the_next_does_not_fit() {
    check(options(), "take", "-");
    check(options(), "a1 b2 take take", "[a0-1,b0-2:idle] -");
    check(options(), "a1 b2 c2 take take", "[a0-1,b0-2:full] [c0-2:idle]");
    check(options(), "a1 b3 c2 take take", "[a0-1,b0-3:full] [c0-2:idle]");
}

#[test]
fn a_batch_waits_for_its_timeout_unless_it_is_full() {
    let slow = Options { timeout: Duration::from_millis(10), ..options() };
    check(slow.clone(), "a1 when take +9 take +1 take", "at10 - - [a0-1:timeout]");
    check(slow.clone(), "a1 b3 when take", "full [a0-1,b0-3:full]");
    check(slow.clone(), "a1 b2 c2 take take when", "[a0-1,b0-2:full] - at10");
    check(slow, "a1!5 when +5 when", "at5 deadline");
}

#[test]
fn a_full_queue_refuses_at_once() {
    check(options(), "a4 b4 c1", "full:2/2");
    check(options(), "a4 b3 c1 d1", "full:2/2");
    check(options(), "a4 b4 c1 take c1", "full:2/2 [a0-4:full]");
    check(options(), "a5", "large");
}

#[test]
fn a_level_limits_how_long_its_tasks_wait() {
    let impatient = Level { wait_max: Some(Duration::from_millis(5)), ..Level::default() };
    let levels = vec![Level::default(), impatient];
    let options = || Options { levels: levels.clone(), ..options() };
    check(options(), "a1 b1^1 +4 expire +1 expire take", "late: late:b [a0-1:idle]");
    check(options(), "b1^1!3 +3 expire +2 expire", "late:b late:");
}

#[test]
fn a_cancelled_task_frees_its_place() {
    check(options(), "a4 b4 drop-a c4 take take", "[b0-4:full] [c0-4:full]");
}

#[test]
fn expired_tasks_are_dropped_at_once_and_never_start() {
    check(options(), "a1!5 b1 +4 expire +1 expire take", "late: late:a [b0-1:idle]");
}

#[test]
fn a_task_that_has_waited_until_it_cannot_be_answered_in_time_is_dropped() {
    check(options(), "a1!5 b1 +2 expire3 +1 expire3 take", "late: late:a [b0-1:idle]");
    // It never could: what is known of its runs may be wrong.
    check(options(), "a1!2 expire3 +1 expire3 take", "late: late: [a0-1:idle]");
    // A level's patience is for the wait, not for the run.
    let impatient = Level { wait_max: Some(Duration::from_millis(5)), ..Level::default() };
    let options = Options { levels: vec![impatient], ..options() };
    check(options, "a1 +4 expire3 take", "late: [a0-1:idle]");
}

#[test]
fn large_tasks_are_split_over_batches() {
    let splits = || Options { task_rows_max: 9, splits_tasks: true, ..options() };
    check(splits(), "a3 b3 take take", "[a0-3,b0-1:full] [b1-3:idle]");
    check(splits(), "a8 take take take", "[a0-4:full] [a4-8:full] -");
    check(splits(), "a8 b1", "room:0");
    check(splits(), "a3 b6", "room:5");
    check(splits(), "a3 b5 take c4 c1", "[a0-3,b0-1:full] room:0");
    check(splits(), "a8!5 take +5 expire take", "[a0-4:full] late:a -");
}

#[test]
fn unlike_shapes_never_share_a_batch() {
    check(options(), "a1#1 b1#2 c1#1 take take", "[a0-1,c0-1:idle] [b0-1:idle]");
    check(options(), "a1#1 b1#2 c1#3", "full:2/2");
}

#[test]
fn batches_are_filled_up_to_an_allowed_size() {
    let allowed = Options { allowed_sizes: vec![2, 4], ..options() };
    check(allowed, "a1 take a3 take", "[a0-1+1:idle] [a0-3+1:idle]");
}

#[test]
fn memory_limits_the_rows_of_a_batch() {
    check(options(), "a1 b1 c1 take2 take", "[a0-1,b0-1:idle] [c0-1:idle]");
    check(options(), "a3 b1 take2 take", "[a0-3:full] [b0-1:idle]");
}

#[test]
fn a_task_without_rows_runs_alone() {
    check(options(), "a1 b0 c1 take take", "full:2/2 [a0-1:idle] [b0-0:idle]");
    check(options(), "a0 b0 c0", "full:2/2");
}

#[test]
fn the_earliest_deadline_goes_first_and_age_counts() {
    let urgent = || Options {
        batch_rows_max: 1,
        order: deadline_order(),
        enqueued_batches_max: 9,
        ..options()
    };
    check(urgent(), "a1!50 b1!20 c1 take take take", "[b0-1:full] [a0-1:full] [c0-1:full]");
    // A task without a deadline counts as due after 100 ms.
    check(urgent(), "a1 +60 b1!130 c1!90 take take take", "[c0-1:full] [a0-1:full] [b0-1:full]");
}

#[test]
fn levels_go_first_until_a_lower_one_has_waited_long_enough() {
    let levels = || Options {
        batch_rows_max: 1,
        order: deadline_order(),
        enqueued_batches_max: 9,
        ..options()
    };
    check(levels(), "a1^1 +50 b1 take take", "[b0-1:full] [a0-1:full]");
    check(levels(), "a1^1 +150 b1 take take", "[a0-1:full] [b0-1:full]");
    let limited =
        vec![Level::default(), Level { enqueued_batches_max: Some(1), ..Level::default() }];
    check(Options { levels: limited, ..levels() }, "a1^1 b1^1 c1", "full:1/1");
}

#[test]
fn lower_levels_fill_up_as_the_policy_says() {
    let mixed = |mixed_priority| Options {
        order: deadline_order(),
        allowed_sizes: vec![2, 4],
        mixed_priority,
        ..options()
    };
    let script = "x1^1 y1^1 a1 take take";
    check(mixed(MixedPriority::PadToMax), script, "[a0-1,x0-1,y0-1+1:idle] -");
    check(mixed(MixedPriority::PadToNextAllowed), script, "[a0-1,x0-1:idle] [y0-1+1:idle]");
    check(mixed(MixedPriority::Isolate), script, "[a0-1+1:idle] [x0-1,y0-1:idle]");
}

#[test]
fn options_change_while_tasks_wait() {
    let mut queue = Queue::new(options()).unwrap();
    for name in ["a", "b", "c"] {
        push(
            &mut queue,
            if name == "a" {
                "a1"
            } else if name == "b" {
                "b1"
            } else {
                "c1"
            },
            Time(0),
        )
        .unwrap();
    }
    queue.set_options(Options { task_rows_max: 2, batch_rows_max: 2, ..options() }).unwrap();
    queue.check();
    let batch = queue.take(Time(0), Duration::ZERO, |_| usize::MAX).unwrap();
    assert_eq!(show(&batch), "[a0-1,b0-1:full]");
    assert!(queue.set_options(Options { enqueued_batches_max: 0, ..options() }).is_err());
}

/// One step of a random history.
#[derive(Debug, Clone)]
enum Step {
    Push { n_rows: usize, width: usize, level: usize, deadline: Option<u64> },
    Pass(u64),
    Take(usize),
    Expire,
    Cancel(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let push = (0..6usize, 1..3usize, 0..3usize, proptest::option::of(0..300u64));
    prop_oneof![
        4 => push.prop_map(|(n_rows, width, level, deadline)| {
            Step::Push { n_rows, width, level, deadline }
        }),
        2 => (0..60u64).prop_map(Step::Pass),
        3 => prop_oneof![Just(usize::MAX), 1..5usize].prop_map(Step::Take),
        1 => Just(Step::Expire),
        1 => (0..40usize).prop_map(Step::Cancel),
    ]
}

fn any_options() -> impl Strategy<Value = Options> {
    let mixed = prop_oneof![
        Just(MixedPriority::Merge),
        Just(MixedPriority::PadToMax),
        Just(MixedPriority::PadToNextAllowed),
        Just(MixedPriority::Isolate)
    ];
    (any::<(bool, bool, bool)>(), mixed, 0..30u64, 1..5usize).prop_map(|(flags, mixed, ms, max)| {
        let (splits_tasks, by_deadline, has_sizes) = flags;
        Options {
            timeout: Duration::from_millis(ms / 2 * 2),
            enqueued_batches_max: max,
            allowed_sizes: if has_sizes { vec![1, 2, 4] } else { Vec::new() },
            splits_tasks,
            order: if by_deadline { deadline_order() } else { Order::Arrival },
            mixed_priority: mixed,
            ..options()
        }
    })
}

/// The model of a queue's contents: the rows of each task that have not left.
struct Model {
    options: Options,
    queue: Queue<usize>,
    now: Time,
    waiting: BTreeMap<usize, (usize, Option<Time>, usize)>,
    n_pushed: usize,
}

impl Model {
    fn step(&mut self, step: &Step) {
        match step {
            Step::Push { n_rows, width, level, deadline } => {
                self.push(*n_rows, *width, *level, *deadline)
            }
            Step::Pass(ms) => self.now = self.now.plus(Duration::from_millis(*ms)),
            Step::Take(rows_max) => self.take(*rows_max),
            Step::Expire => {
                for task in self.queue.expire(self.now, Duration::ZERO) {
                    let (_, deadline, _) = self.waiting.remove(&*task).unwrap();
                    assert!(deadline.unwrap() <= self.now);
                }
                let late =
                    |task: &(usize, Option<Time>, usize)| task.1.is_some_and(|d| d <= self.now);
                assert!(!self.waiting.values().any(late), "nothing late is left");
            }
            Step::Cancel(which) => {
                let removed = self.queue.remove_if(|task| task == which);
                assert_eq!(removed.len(), usize::from(self.waiting.remove(which).is_some()));
            }
        }
        self.queue.check();
        assert_eq!(self.queue.n_tasks(), self.waiting.len());
        let rows: usize = self.waiting.values().map(|(rows, ..)| rows).sum();
        assert_eq!(self.queue.n_rows(), rows);
        assert!(self.queue.n_batches() <= 2 * self.options.enqueued_batches_max + 3);
    }

    fn push(&mut self, n_rows: usize, width: usize, level: usize, deadline: Option<u64>) {
        let deadline = deadline.map(|ms| self.now.plus(Duration::from_millis(ms)));
        let arrival = Arrival { n_rows, class: class(width), level, deadline };
        let number = self.n_pushed;
        self.n_pushed += 1;
        match self.queue.push(Arc::new(number), &arrival, self.now) {
            Ok(()) => drop(self.waiting.insert(number, (n_rows, deadline, width))),
            Err(Error::TaskTooLarge { .. }) => assert!(n_rows > self.options.task_rows_max),
            Err(_) => assert!(self.queue.n_tasks() > 0, "an empty queue takes any task"),
        }
    }

    fn take(&mut self, rows_max: usize) {
        let ready = self.queue.ready(self.now, Duration::ZERO);
        let Some(batch) = self.queue.take(self.now, Duration::ZERO, |_| rows_max) else {
            return assert!(!matches!(ready, Ready::Now(_)));
        };
        assert_eq!(ready, Ready::Now(batch.reason));
        let limit = rows_max.min(self.options.batch_rows_max);
        assert!(batch.n_rows <= limit || batch.pieces.len() == 1, "{batch:?}");
        assert!(batch.n_padded >= batch.n_rows);
        let mut widths = Vec::new();
        for piece in &batch.pieces {
            let (rows, _, width) = self.waiting.get_mut(&*piece.task).unwrap();
            *rows -= piece.rows.len();
            widths.push(*width);
            if *rows == 0 {
                self.waiting.remove(&*piece.task);
            }
        }
        widths.dedup();
        assert_eq!(widths.len(), 1, "one shape in a batch");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_row_leaves_once_and_nothing_is_lost(
        options in any_options(),
        steps in proptest::collection::vec(step(), 1..80),
    ) {
        let queue = Queue::new(options.clone()).unwrap();
        let waiting = BTreeMap::new();
        let mut model = Model { options, queue, now: Time(0), waiting, n_pushed: 0 };
        steps.iter().for_each(|step| model.step(step));
        // In the end everything leaves.
        model.now = model.now.plus(LONG);
        while !model.waiting.is_empty() {
            let before = model.queue.n_rows() + model.queue.n_tasks();
            model.step(&Step::Take(usize::MAX));
            prop_assert!(model.queue.n_rows() + model.queue.n_tasks() < before);
        }
    }
}

#[test]
fn what_waits_leaves_and_expires_as_new_options_say() {
    let patient = Options { timeout: LONG, ..options() };
    let mut queue = Queue::new(patient.clone()).unwrap();
    let arrival = Arrival { n_rows: 1, class: class(1), level: 0, deadline: None };
    queue.push(Arc::new("a"), &arrival, Time(0)).unwrap();
    let now = Time(0).plus(Duration::from_millis(5));
    assert_eq!(queue.ready(now, Duration::ZERO), Ready::At(Time(0).plus(LONG)));
    let wait_max = Some(Duration::from_millis(7));
    let level = Level { enqueued_batches_max: None, timeout: None, wait_max };
    queue.set_options(Options { levels: vec![level], ..patient.clone() }).unwrap();
    queue.check();
    assert_eq!(queue.next_deadline(), Some(Time(0).plus(Duration::from_millis(7))));
    queue.set_options(Options { timeout: Duration::from_millis(3), ..patient }).unwrap();
    queue.check();
    assert_eq!(queue.next_deadline(), None);
    assert!(matches!(queue.ready(now, Duration::ZERO), Ready::Now(Reason::Timeout)));
}
