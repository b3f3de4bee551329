//! Watched runs: a watcher sees the steps of a run, and may end it between any two.

use std::any::Any;
use std::sync::Mutex;

use graph::Plan;
use ops::Observer;

use super::*;

/// Notes each step that is done, and cancels the run after one of them.
struct Note {
    cancel: Cancel,
    last: usize,
    steps: Mutex<Vec<usize>>,
    plans: Mutex<Vec<String>>,
}

impl Observer for Note {
    fn enter(&self, plan: &dyn Any) {
        let plan = plan.downcast_ref::<Plan>().expect("a plan");
        let ops: Vec<&str> = plan.snapshot().iter().map(|step| step.op).collect();
        self.plans.lock().unwrap().push(ops.join(" "));
    }

    fn step(&self, number: usize) {
        self.steps.lock().unwrap().push(number);
        if number == self.last {
            self.cancel.cancel();
        }
    }

    fn leave(&self) {
        self.plans.lock().unwrap().push("end".to_owned());
    }
}

/// The answer of a chain of four steps that is cancelled after step `last`, the steps done, and the
/// plans that began and ended.
fn cancelled_after(last: usize) -> (Result<Vec<Tensor>, Error>, Vec<usize>, Vec<String>) {
    let nodes = ["x Placeholder", "a Neg x", "b Exp a", "c Tanh b", "y Sqrt c"].map(node);
    let source = source(nodes.into(), vec![]).unwrap();
    let runner = Runner::default();
    let program = runner.program(&source, &request(&["x:0"], &["y:0"])).unwrap();
    let input = [Tensor::vector(&[1f32, 2.0]).unwrap()];
    let cancel = Cancel::default();
    let (steps, plans) = (Mutex::default(), Mutex::default());
    let note = Note { cancel: cancel.clone(), last, steps, plans };
    let mut workspace = Workspace::allocate(0).unwrap();
    let answer = runner.with_env(|env| {
        let env = Env { cancel: &cancel, ..*env };
        program.run_observed(&input, &env, &mut workspace, &note)
    });
    (answer, note.steps.into_inner().unwrap(), note.plans.into_inner().unwrap())
}

#[test]
fn a_run_that_is_cancelled_ends_before_its_next_step() {
    // The last step, too: its kernel may have been left early.
    for last in 0..4 {
        let (answer, steps, plans) = cancelled_after(last);
        assert!(matches!(answer, Err(Error::Stopped(ops::Error::Cancelled))), "{answer:?}");
        assert_eq!(steps, (0..=last).collect::<Vec<_>>(), "no step after the flag is set");
        assert_eq!(plans, ["Neg Exp Tanh Sqrt", "end"]);
    }
    let (answer, steps, _) = cancelled_after(4);
    assert!(answer.is_ok(), "nobody cancelled it: {answer:?}");
    assert_eq!(steps, [0, 1, 2, 3]);
}
