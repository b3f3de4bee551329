//! Queues and their settings, with work that only counts its rows.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use batch::Options;
use device::Workspace;
use schedule::{Control, Fault, Lanes, Work};
use session::{
    Batching, Priorities, QueueSettings, QueuedSignature, Queues, Reply, RowFacts, Run, Settings,
    Singles,
};
use status::{Code, Status};
use tensor::{Shape, Tensor};

/// Gives its inputs back, and counts the rows of each run.
#[derive(Default)]
struct Echo(Mutex<Vec<usize>>);

impl Work for Echo {
    fn run(&self, inputs: &[Tensor], _: &Control, _: &mut Workspace) -> Result<Vec<Tensor>, Fault> {
        self.0.lock().unwrap().push(inputs[0].n_elements());
        Ok(inputs.to_vec())
    }

    fn is_repeatable(&self) -> bool {
        true
    }

    fn is_steady(&self, _: &[Tensor]) -> bool {
        true
    }
}

fn queues(singles: Singles, mixing: Option<&str>) -> (Queues, Arc<Echo>) {
    let options = schedule::Options { n_lanes: 1, inline_max: Duration::ZERO, run_max: None };
    let (lanes, work) = (Arc::new(Lanes::start(options).unwrap()), Arc::new(Echo::default()));
    let signature = QueuedSignature {
        name: "echo".to_owned(),
        work: Arc::clone(&work) as Arc<dyn Work>,
        rows: RowFacts { writes: false, mixing: mixing.map(str::to_owned) },
    };
    (Queues::new("cpu:0", &lanes, singles, [signature]).unwrap(), work)
}

fn of_rows(n: usize) -> Options {
    Options { task_rows_max: n, batch_rows_max: n, ..Options::unbatched(10) }
}

/// The answer to a run of `n_rows` rows.
fn answer(
    queues: &Queues,
    settings: &Settings,
    signature: &str,
    n_rows: usize,
) -> Result<usize, Status> {
    let run = Run {
        signature: signature.to_owned(),
        inputs: vec![Tensor::from_slice(Shape::of(&[n_rows]), &vec![1i32; n_rows]).unwrap()],
        outputs: vec![0],
        deadline: None,
        level: None,
        is_cancelled: Arc::default(),
    };
    let (send, receive) = mpsc::channel();
    let reply: Reply = Box::new(move |answer| drop(send.send(answer)));
    queues.push(run, reply, settings.load());
    receive.recv().unwrap().map(|outputs| outputs[0].n_elements())
}

#[test]
fn settings_are_read_while_they_are_changed_and_refused_ones_are_not_published() {
    let (queues, _) = queues(Singles::Queued, None);
    let settings = Settings::plain();
    let apply = |new: &QueueSettings| {
        // Would wait for ever if a run had to wait for whoever changes the settings.
        assert_eq!(settings.load().batching, Batching::Off);
        assert_eq!(answer(&queues, &settings, "echo", 3).unwrap(), 3);
        queues.apply(new)
    };
    let bad = Batching::Proved(Options { allowed_sizes: vec![2, 1], ..of_rows(4) });
    let refused = settings.set_batching(&bad, apply).unwrap_err();
    assert_eq!(refused.code, Code::InvalidArgument);
    assert_eq!(settings.load().batching, Batching::Off);
    let good = Batching::Proved(of_rows(4));
    settings.set_batching(&good, apply).unwrap();
    assert_eq!(settings.load().batching, good);
    let priorities = Priorities { weight: 3, ..Priorities::plain() };
    settings.set_priorities(&priorities, |new| queues.apply(new)).unwrap();
    assert_eq!((&settings.load().batching, settings.load().priorities.weight), (&good, 3));
}

/// The queues that a run of 3 rows and one of 9 went to, of at most 4 rows a batch: why tasks run
/// one by one there, or nothing, and how many there were.
#[track_caller]
fn check(batching: &Batching, mixing: Option<&str>, expected: &[(Option<&str>, u64)]) {
    let (queues, work) = queues(Singles::Queued, mixing);
    let settings = Settings::plain();
    settings.set_batching(batching, |new| queues.apply(new)).unwrap();
    let answers = [3, 9].map(|n_rows| answer(&queues, &settings, "echo", n_rows));
    let is_asked = matches!(batching, Batching::Asked(_));
    assert_eq!(answers[0], Ok(3));
    assert_eq!(answers[1].as_ref().is_err(), is_asked, "too large for a batch");
    let rows = work.0.lock().unwrap().clone();
    assert_eq!(rows, if is_asked { vec![3] } else { vec![3, 9] });
    let states = queues.snapshot(&settings.load());
    let found = states.iter().map(|one| (one.why_single.as_deref(), one.snapshot.stats.n_asked));
    assert_eq!(found.collect::<Vec<_>>(), expected);
}

#[test]
fn tasks_are_batched_where_that_is_proved_or_asked_for() {
    check(&Batching::Off, None, &[(Some("batching is off"), 2)]);
    let proved = Batching::Proved(of_rows(4));
    check(&proved, None, &[(Some("does not fit in a batch"), 1), (None, 1)]);
    check(&proved, Some("Sum mixes rows"), &[(Some("Sum mixes rows"), 2)]);
    check(&Batching::Asked(of_rows(4)), Some("Sum mixes rows"), &[(None, 2)]);
}

#[test]
fn queues_without_singles_take_what_is_batched() {
    let (queues, work) = queues(Singles::Elsewhere, Some("not known"));
    let settings = Settings::plain();
    assert!(queues.snapshot(&settings.load()).is_empty(), "nothing waits here yet");
    let asked = Batching::Asked(of_rows(4));
    settings.set_batching(&asked, |new| queues.apply(new)).unwrap();
    assert_eq!(answer(&queues, &settings, "echo", 2), Ok(2));
    assert_eq!(*work.0.lock().unwrap(), [2]);
    assert_eq!(answer(&queues, &settings, "other", 2).unwrap_err().code, Code::NotFound);
    assert_eq!(queues.snapshot(&settings.load()).len(), 1);
}
