//! Runs a batch: its tasks' rows together, and if that fails, each task's alone.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use batch::{Batch, Piece};
use device::Workspace;
use tensor::Tensor;

use crate::error::{Error, Refusal};
use crate::task::{Blame, Control, Failure, Fault, Task, Work};

/// The outcome of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It ran.
    Ran,
    /// It failed, or nobody waited for it.
    Failed,
    /// It failed, and its tasks were run again one by one.
    Rerun,
}

/// Runs a batch for `run_max` at the longest, and answers its tasks.
pub(crate) fn run(
    mut batch: Batch<Task>,
    work: &dyn Work,
    workspace: &mut Workspace,
    run_max: Option<Duration>,
) -> Outcome {
    let n_pieces = batch.pieces.len();
    batch.pieces.retain(|piece| {
        let is_moot = piece.task.is_moot();
        if is_moot {
            piece.task.fail(Failure::Refused(Refusal::from_error(Error::Cancelled)));
        }
        !is_moot
    });
    if batch.pieces.is_empty() {
        return Outcome::Failed;
    }
    if batch.pieces.len() < n_pieces {
        let was_padded = batch.n_padded > batch.n_rows;
        batch.n_rows = batch.pieces.iter().map(|piece| piece.rows.len()).sum();
        batch.n_padded = if was_padded { batch.n_padded } else { batch.n_rows };
    }
    let limited = RunLimited { work, run_max };
    let Err(failure) = together(&batch.pieces, batch.n_padded, &limited, workspace) else {
        return Outcome::Ran;
    };
    let is_rows = match &failure {
        Failure::Failed(fault) => fault.blame == Blame::Rows,
        // Fewer rows may fit in what memory there is.
        Failure::Refused(refusal) => refusal.is_for_memory(),
    };
    if batch.pieces.len() == 1 || !is_rows || !work.is_repeatable() {
        batch.pieces.iter().for_each(|piece| piece.task.fail(failure.clone()));
        return Outcome::Failed;
    }
    for piece in &batch.pieces {
        let alone = std::slice::from_ref(piece);
        if let Err(failure) = together(alone, piece.rows.len(), &limited, workspace) {
            piece.task.fail(failure);
        }
    }
    Outcome::Rerun
}

/// Work whose every run is stopped when it takes too long.
struct RunLimited<'a> {
    work: &'a dyn Work,
    run_max: Option<Duration>,
}

/// Runs pieces as one batch of `n_padded` rows and answers them.
fn together(
    pieces: &[Piece<Task>],
    n_padded: usize,
    work: &RunLimited<'_>,
    workspace: &mut Workspace,
) -> Result<(), Failure> {
    let refused = |error: batch::Error| Failure::Refused(Refusal::from_error(error));
    let control = control(pieces);
    if let [piece] = pieces
        && piece.rows == (0..piece.task.n_rows)
        && piece.rows.len() == n_padded
    {
        // Nothing to put together or to take apart, whatever the shapes.
        let outputs = work.run(&piece.task.inputs, control, workspace)?;
        let wanted = wanted(&outputs, &piece.task)?;
        piece.task.answer(0, piece.rows.len(), wanted);
        return Ok(());
    }
    let parts: Vec<_> =
        pieces.iter().map(|piece| (&piece.task.inputs[..], piece.rows.clone())).collect();
    let inputs = batch::merge(&parts, n_padded).map_err(refused)?;
    let outputs = work.run(&inputs, control, workspace)?;
    drop(inputs);
    let sizes: Vec<usize> = pieces.iter().map(|piece| piece.rows.len()).collect();
    let answers = batch::split(&outputs, &sizes, n_padded).map_err(refused)?;
    for (piece, outputs) in pieces.iter().zip(answers) {
        let wanted = wanted(&outputs, &piece.task)?;
        piece.task.answer(piece.rows.start, piece.rows.len(), wanted);
    }
    Ok(())
}

impl RunLimited<'_> {
    fn run(
        &self,
        inputs: &[Tensor],
        control: Control,
        workspace: &mut Workspace,
    ) -> Result<Vec<Tensor>, Failure> {
        let Some(max) = self.run_max else {
            return guarded(self.work, inputs, &control, workspace);
        };
        let end = Instant::now().checked_add(max);
        let is_first = end.is_some_and(|end| control.deadline.is_none_or(|wanted| end < wanted));
        if !is_first {
            return guarded(self.work, inputs, &control, workspace);
        }
        let control = Control { deadline: end, ..control };
        let outputs = guarded(self.work, inputs, &control, workspace);
        let is_over = end.is_some_and(|end| end <= Instant::now());
        outputs.map_err(|failure| match failure {
            // The machine is to blame, and it is this limit: nothing else is over yet.
            Failure::Failed(Fault { blame: Blame::Machine, .. }) if is_over => {
                Failure::Refused(Refusal::from_error(Error::RanTooLong { max }))
            }
            other @ (Failure::Failed(_) | Failure::Refused(_)) => other,
        })
    }
}

/// Runs the work, and makes a failure of a panic.
fn guarded(
    work: &dyn Work,
    inputs: &[Tensor],
    control: &Control,
    workspace: &mut Workspace,
) -> Result<Vec<Tensor>, Failure> {
    let ran = catch_unwind(AssertUnwindSafe(|| work.run(inputs, control, workspace)));
    let lost = |_| Fault { error: Arc::new(Lost), blame: Blame::Rows };
    ran.map_err(lost).and_then(|outputs| outputs).map_err(Failure::Failed)
}

fn wanted(outputs: &[Tensor], task: &Task) -> Result<Vec<Tensor>, Failure> {
    let of = |number: &usize| outputs.get(*number).cloned();
    let wanted: Option<Vec<Tensor>> = task.outputs.iter().map(of).collect();
    let missing = || Failure::Failed(Fault { error: Arc::new(RunMissing), blame: Blame::Machine });
    wanted.ok_or_else(missing)
}

/// A batch is wanted for as long as any of its tasks is.
fn control(pieces: &[Piece<Task>]) -> Control {
    if let [piece] = pieces {
        return piece.task.control();
    }
    let deadlines: Option<Vec<_>> = pieces.iter().map(|piece| piece.task.deadline).collect();
    let deadline = deadlines.and_then(|deadlines| deadlines.into_iter().max());
    Control { deadline, is_cancelled: Arc::new(AtomicBool::new(false)) }
}

/// A kernel panicked.
#[derive(Debug, thiserror::Error)]
#[error("the run was lost: a kernel panicked")]
struct Lost;

/// An output was asked for that is not there.
#[derive(Debug, thiserror::Error)]
#[error("an output that the signature does not have")]
struct RunMissing;

#[cfg(test)]
mod tests;
