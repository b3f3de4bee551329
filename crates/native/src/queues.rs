//! The work of one servable's signatures, and their queues.

use std::sync::Arc;

use device::{Space, Workspace};
use graph::Program;
use ops::Cancel;
use schedule::{Blame, Control, Fault, Need, Share, Work};
use session::{Batching, QueuedSignature, Queues, RowFacts, Singles};
use status::{Code, Result, Status};
use tensor::Tensor;

use crate::engine::{Executor, Model};
use crate::prepare::{self, RunNeed};
use crate::programs::{Inputs, ProgramPick, Programs};

/// Inputs of more bytes are not run on the threads that read requests, however quick runs were.
const STEADY_BYTES_MAX: usize = 64 << 10;

/// Runs the batches of a signature.
pub(crate) struct SignatureWork {
    model: Arc<Model>,
    executor: Executor,
    signature: String,
    rows: RowFacts,
    /// `true` if it has loops or branches, which run for as long as their inputs say.
    has_calls: bool,
}

/// The work of each signature of a servable.
pub(crate) fn works(model: &Arc<Model>, executor: &Executor) -> Vec<Arc<SignatureWork>> {
    let work = |name: &String, programs: &Programs| {
        let rows = model.rows.get(name);
        let mixing = rows.and_then(|rows| rows.proof.as_ref().err()).map(ToString::to_string);
        let writes = rows.is_none_or(|rows| rows.writes);
        Arc::new(SignatureWork {
            model: Arc::clone(model),
            executor: executor.clone(),
            signature: name.clone(),
            rows: RowFacts { writes, mixing },
            has_calls: programs.all().any(Program::has_calls),
        })
    };
    model.programs.iter().map(|(name, programs)| work(name, programs)).collect()
}

/// The queues of such work on the lanes of its device.
pub(crate) fn queues(works: &[Arc<SignatureWork>], executor: &Executor) -> Result<Queues> {
    let queued = |work: &Arc<SignatureWork>| QueuedSignature {
        name: work.signature.clone(),
        work: Arc::clone(work) as Arc<dyn Work>,
        rows: work.rows.clone(),
    };
    let signatures = works.iter().map(queued);
    Queues::new(&executor.device, &executor.lanes, Singles::Queued, signatures)
}

/// Makes plans for the batches that each signature can have, notes what a run takes at most,
/// and takes the memory that the largest of them need.
pub(crate) fn prepare(works: &[Arc<SignatureWork>], batching: &Batching, share: &Share) {
    let (mut ahead, mut peak) = (Need::default(), RunNeed::default());
    for work in works {
        let options = batching.options().filter(|_| work.rows.is_batched(batching));
        let model = prepare::Prepared { model: &work.model, pool: &work.executor.pool };
        let mut needs = model.plan(&work.signature, &prepare::sizes(options));
        // What was set aside is there already, and the lanes' memory is not used.
        if work.model.aside().is_some() {
            for need in &mut needs {
                (need.ahead.work_bytes, need.ahead.open_bytes, need.bytes) = (0, 0, 0);
            }
        }
        let within = needs.iter().map(|need| need.ahead);
        let within = within.filter(|need| model.is_taken_ahead(need));
        ahead = within.fold(ahead, prepare::larger);
        // Batches of our own are no larger than there is room for; those that were asked for
        // have the size that was asked for.
        let n_known = if matches!(batching, Batching::Asked(_)) { needs.len() } else { 1 };
        for need in needs.into_iter().take(n_known) {
            peak.bytes = need.bytes.max(peak.bytes);
            peak.host_bytes = need.host_bytes.max(peak.host_bytes);
        }
    }
    note_peak(works, &peak);
    share.grow_ahead(&ahead);
}

/// Notes what a run takes at most, for whoever gives out what is left.
fn note_peak(works: &[Arc<SignatureWork>], peak: &RunNeed) {
    let model = works.first().map(|work| &work.model);
    let Some(owner) = model.and_then(|model| model.lease.0.as_ref()) else { return };
    // What cannot be planned beforehand is as it was estimated, or is noted when it runs.
    if *peak == RunNeed::default() {
        return;
    }
    owner.note_peak(peak.bytes);
    if owner.is_split() {
        owner.host().note_peak(peak.host_bytes);
    }
}

impl Work for SignatureWork {
    fn run(
        &self,
        inputs: &[Tensor],
        control: &Control,
        workspace: &mut Workspace,
    ) -> std::result::Result<Vec<Tensor>, Fault> {
        let cancel = Cancel::new(Arc::clone(&control.is_cancelled), control.deadline);
        let pace = self.executor.pace.as_ref().map(|pace| (pace, pace.now()));
        let pick = ProgramPick { signature: &self.signature, inputs: Inputs::Tensors(inputs) };
        let outputs = self.model.with(pick, &cancel, &self.executor.pool, |program, env| {
            let plan = program.plan_for(inputs, env)?;
            let plan = self.model.fitting(plan, (program, env), workspace)?;
            let _charged = self.model.charge(&plan)?;
            let (outputs, copied) = self.model.in_workspace(workspace, |workspace| {
                workspace.take_copied_bytes();
                let outputs = program.run_plan(&plan, inputs, env, workspace)?;
                Ok((outputs, workspace.take_copied_bytes()))
            })?;
            if let Some((pace, start)) = pace {
                pace.run(start, pace.rates().time(&plan, copied));
            }
            Ok(outputs)
        });
        outputs.map_err(|error| Fault { blame: blame(&error), error: Arc::new(error) })
    }

    fn is_repeatable(&self) -> bool {
        !self.rows.writes
    }

    fn is_steady(&self, inputs: &[Tensor]) -> bool {
        !self.has_calls && inputs.iter().map(Tensor::n_bytes).sum::<usize>() <= STEADY_BYTES_MAX
    }

    fn needs(&self, inputs: &[Tensor]) -> Option<u64> {
        let plan = self.model.with(
            ProgramPick { signature: &self.signature, inputs: Inputs::Tensors(inputs) },
            &Cancel::default(),
            &self.executor.pool,
            |program, env| program.plan_for(inputs, env),
        );
        let plan = plan.ok()?;
        // Where the host is another device, inputs are there, and their copies are planned.
        let is_split = self.model.lease.0.as_ref().is_some_and(|owner| owner.is_split());
        let inputs = inputs.iter().filter(|_| !is_split).map(Tensor::n_bytes).sum::<usize>();
        u64::try_from(plan.work_bytes() + plan.open_bytes() + inputs).ok()
    }

    fn room(&self, free_bytes: u64) -> u64 {
        self.model.room(free_bytes)
    }

    fn space(&self) -> Option<&Arc<Space>> {
        self.model.aside().map(|owner| owner.space())
    }
}

/// The party to blame for a failed run.
fn blame(error: &Status) -> Blame {
    match error.code {
        Code::Cancelled | Code::DeadlineExceeded | Code::Unavailable => Blame::Machine,
        // Fewer rows may fit in what memory there is.
        Code::ResourceExhausted
        | Code::InvalidArgument
        | Code::NotFound
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::DataLoss
        | Code::Internal
        | Code::Unknown
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::Aborted
        | Code::Unauthenticated => Blame::Rows,
    }
}

impl std::fmt::Debug for SignatureWork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SignatureWork({})", self.signature)
    }
}
