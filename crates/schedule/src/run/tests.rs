use std::sync::mpsc;

use batch::{Class, Reason, Time};
use device::logical::GrowthRule;
use device::{Category, Holder, Host, Limited, Owner, Space, SpaceOptions};
use tensor::Shape;

use super::*;

/// Doubles its rows, and counts them for each run.
#[derive(Default)]
struct Double(parking_lot::Mutex<Vec<usize>>);

impl Work for Double {
    fn run(&self, inputs: &[Tensor], _: &Control, _: &mut Workspace) -> Result<Vec<Tensor>, Fault> {
        let values = inputs[0].as_slice::<i32>();
        self.0.lock().push(values.len());
        let doubled: Vec<i32> = values.iter().map(|value| value * 2).collect();
        let failed = |error: tensor::Error| Fault { error: Arc::new(error), blame: Blame::Rows };
        Tensor::from_slice(inputs[0].shape().clone(), &doubled).map(|one| vec![one]).map_err(failed)
    }

    fn is_repeatable(&self) -> bool {
        true
    }

    fn is_steady(&self, _: &[Tensor]) -> bool {
        true
    }
}

/// An answer: the values, or the error.
type Answer = Result<Vec<i32>, String>;

/// Runs a batch of tasks with these rows, padded to `n_padded`, while the `n`-th allocation from
/// now on fails. Gives how it fared, the answers, the rows of each run, and whether anything
/// failed.
fn check(rows: &[usize], n_padded: usize, n: u64) -> (Outcome, Vec<Answer>, Vec<usize>, bool) {
    let driver = Arc::new(Host::new("cpu:0", 1 << 20)) as Arc<dyn device::Driver>;
    let driver = Arc::new(Limited::new(driver, "cpu:0", 1 << 20));
    let physical = Arc::clone(driver.account());
    let growth = GrowthRule::OnDemand;
    let options = SpaceOptions { driver, physical, growth, step_bytes: 1 << 16, context_bytes: 0 };
    let space = Space::new(options).unwrap();
    let owner = Owner::new(&space, Holder::Server, None);
    let scope = device::booked_to(&owner, Category::Requests);
    let (mut pieces, mut answers) = (Vec::new(), Vec::new());
    for (number, n_rows) in rows.iter().enumerate() {
        let (send, receive) = mpsc::channel();
        answers.push(receive);
        let reply = move |answer: Result<Vec<Tensor>, Failure>| {
            let values = answer.map(|outputs| outputs[0].as_slice::<i32>().to_vec());
            let text = |failure: Failure| match failure {
                Failure::Refused(refusal) => refusal.to_string(),
                Failure::Failed(fault) => fault.error.to_string(),
            };
            drop(send.send(values.map_err(text)));
        };
        let value = vec![i32::try_from(number).unwrap() + 1; *n_rows];
        let inputs = vec![Tensor::from_slice(Shape::of(&[*n_rows]), &value).unwrap()];
        let control = Control { deadline: None, is_cancelled: Arc::default() };
        let task = Arc::new(Task::new(inputs, vec![0], control, *n_rows, Box::new(reply)));
        pieces.push(Piece { task, rows: 0..*n_rows, arrived: Time::default() });
    }
    let (n_rows, work) = (rows.iter().sum(), Double::default());
    let class = Class::new(&[], false);
    let batch = Batch { pieces, n_rows, n_padded, reason: Reason::Full, class };
    let mut workspace = Workspace::allocate(0).unwrap();
    space.faults().fail_allocation(n);
    let outcome = run(batch, &work, &mut workspace, None);
    let failed = n > 0 && space.faults().fails_in().is_none();
    space.faults().fail_allocation(0);
    let answers = answers.iter().map(|answer| answer.recv().unwrap()).collect();
    drop((scope, workspace));
    assert_eq!(space.books().in_use_bytes(), 0, "something is left");
    (outcome, answers, work.0.into_inner(), failed)
}

#[test]
fn without_memory_to_put_a_batch_together_its_tasks_run_one_by_one() {
    let right: Vec<Answer> = vec![Ok(vec![2; 2]), Ok(vec![4; 3]), Ok(vec![6])];
    assert_eq!(check(&[2, 3, 1], 8, 0), (Outcome::Ran, right.clone(), vec![8], false));
    // The first allocation is that of the rows together.
    assert_eq!(check(&[2, 3, 1], 8, 1), (Outcome::Rerun, right.clone(), vec![2, 3, 1], true));
    // The third is an answer's own rows: the run is repeated.
    assert_eq!(check(&[2, 3, 1], 8, 3), (Outcome::Rerun, right, vec![8, 2, 3, 1], true));
}

#[test]
fn whichever_allocation_of_a_batch_fails_every_task_is_answered() {
    for n in 1.. {
        let (outcome, answers, _, failed) = check(&[2, 3, 1], 6, n);
        assert!(answers.iter().all(Result::is_ok), "allocation {n}: {answers:?}");
        if !failed {
            assert_eq!(outcome, Outcome::Ran);
            return;
        }
        assert_eq!(outcome, Outcome::Rerun, "allocation {n}");
    }
}

#[test]
fn a_task_alone_that_finds_no_memory_is_refused() {
    let (outcome, answers, runs, _) = check(&[2], 4, 1);
    assert_eq!((outcome, runs.len()), (Outcome::Failed, 0));
    assert!(answers[0].as_ref().unwrap_err().contains("injected failure"), "{answers:?}");
}
