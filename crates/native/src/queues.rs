//! `Queues`: the tasks of one servable on their way to the lanes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use batch::Class;
use device::{Space, Workspace};
use graph::Program;
use ops::Cancel;
use parking_lot::Mutex;
use schedule::{
    Admission, Blame, Control, Fault, Need, QueueId, QueueOptions, Replica, Share, Task, Work,
};
use session::{Batching, Error, LEVEL_MAX, Priorities, QueueState, Reply, Result, Run};
use tensor::Tensor;

use crate::engine::{Executor, Model};
use crate::prepare::{self, RunNeed};
use crate::programs::Inputs;

/// How many tasks that run one by one may wait, for each signature.
const TASKS_MAX: usize = 10_000;

/// Inputs of more bytes are not run on the threads that read requests, however quick runs were.
const STEADY_BYTES_MAX: usize = 64 << 10;

/// The queues of a servable's signatures.
#[derive(Debug)]
pub(crate) struct Queues {
    share: Share,
    /// The device whose lanes they wait for.
    device: Arc<str>,
    signatures: BTreeMap<String, Entrance>,
    settings: Mutex<Arc<Settings>>,
}

/// How they are batched, and who goes first.
#[derive(Debug)]
struct Settings {
    batching: Batching,
    priorities: Priorities,
}

/// Where the tasks of a signature go.
struct Entrance {
    /// Those that run one by one.
    single: QueueId,
    /// Those that are batched, if they have ever been.
    batched: Mutex<Option<QueueId>>,
    work: Arc<SignatureWork>,
    /// Why rows are not independent.
    mixing: Option<String>,
}

/// Runs the batches of a signature.
struct SignatureWork {
    model: Arc<Model>,
    executor: Executor,
    signature: String,
    writes: bool,
    /// Whether it has loops or branches, which run for as long as their inputs say.
    has_calls: bool,
}

impl Queues {
    pub(crate) fn new(model: &Arc<Model>, executor: &Executor) -> Result<Self> {
        let share = executor.lanes.share(1);
        let mut signatures = BTreeMap::new();
        for (name, programs) in &model.programs {
            let rows = model.rows.get(name);
            let work = Arc::new(SignatureWork {
                model: Arc::clone(model),
                executor: executor.clone(),
                signature: name.clone(),
                writes: rows.is_none_or(|rows| rows.writes),
                has_calls: programs.all().any(Program::has_calls),
            });
            let options = single_options();
            let single = share.queue(Arc::clone(&work) as Arc<dyn Work>, options);
            let single = single.map_err(|error| Error::InvalidArgument(error.to_string()))?;
            let mixing = rows.and_then(|rows| rows.proof.as_ref().err()).map(ToString::to_string);
            let entrance = Entrance { single, batched: Mutex::default(), work, mixing };
            signatures.insert(name.clone(), entrance);
        }
        let device = Arc::clone(&executor.device);
        let settings = Settings { batching: Batching::Off, priorities: Priorities::plain() };
        Ok(Self { share, device, signatures, settings: Mutex::new(Arc::new(settings)) })
    }

    /// Puts another way of batching in force.
    pub(crate) fn set_batching(&self, batching: &Batching) -> Result<()> {
        let mut settings = self.settings.lock();
        let priorities = settings.priorities.clone();
        let new = Settings { batching: batching.clone(), priorities };
        self.apply(&new)?;
        *settings = Arc::new(new);
        Ok(())
    }

    /// Puts other priorities in force.
    pub(crate) fn set_priorities(&self, priorities: &Priorities) -> Result<()> {
        let mut settings = self.settings.lock();
        let batching = settings.batching.clone();
        let new = Settings { batching, priorities: priorities.clone() };
        self.apply(&new)?;
        *settings = Arc::new(new);
        Ok(())
    }

    /// Sets the queues up. Fails, and changes nothing, if settings contradict each other.
    fn apply(&self, Settings { batching, priorities }: &Settings) -> Result<()> {
        let bad = |error: batch::Error| Error::InvalidArgument(error.to_string());
        if let Some(options) = batching.options() {
            priorities.applied_to(options).validate().map_err(bad)?;
        }
        self.share.set_weight(priorities.weight);
        for entrance in self.signatures.values() {
            let single = single_options();
            let batch = priorities.applied_to(&single.batch);
            let single = QueueOptions { batch, ..single };
            self.share.set_options(entrance.single, single).map_err(bad)?;
            let Some(options) = batching.options().filter(|_| entrance.is_batched(batching)) else {
                continue;
            };
            let admission = match batching {
                Batching::Asked(_) => Admission::Room,
                Batching::Off | Batching::Proved(_) => Admission::InTime,
            };
            let options = QueueOptions { batch: priorities.applied_to(options), admission };
            let mut batched = entrance.batched.lock();
            match *batched {
                Some(queue) => self.share.set_options(queue, options).map_err(bad)?,
                None => {
                    let work = Arc::clone(&entrance.work) as Arc<dyn Work>;
                    *batched = Some(self.share.queue(work, options).map_err(bad)?);
                }
            }
        }
        Ok(())
    }

    /// When a run that starts now would be answered.
    pub(crate) fn forecast(&self, run: &Run) -> Option<Replica> {
        let entrance = self.signatures.get(&run.signature)?;
        let settings = Arc::clone(&self.settings.lock());
        let place = entrance.place(&run.inputs, &settings.batching).ok()?;
        let forecast = self.share.forecast(place.queue, place.n_rows);
        // What is served has its weights in memory.
        Some(Replica { forecast, until_ready: Duration::ZERO })
    }

    /// Tells the lanes that a task is on its way.
    pub(crate) fn expect(&self) {
        // All signatures are of one model.
        let one = self.signatures.values().next();
        self.share.expect(one.and_then(|entrance| entrance.work.space()));
    }

    /// Makes plans for the batches that each signature can have, notes what a run takes at most,
    /// and takes the memory that the largest of them need.
    pub(crate) fn prepare(&self) {
        let settings = Arc::clone(&self.settings.lock());
        let batching = &settings.batching;
        let (mut ahead, mut peak) = (Need::default(), RunNeed::default());
        for entrance in self.signatures.values() {
            let options = batching.options().filter(|_| entrance.is_batched(batching));
            let work = &entrance.work;
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
        self.note_peak(&peak);
        self.share.grow_ahead(&ahead);
    }

    /// Notes what a run takes at most, for whoever gives out what is left.
    fn note_peak(&self, peak: &RunNeed) {
        let model = self.signatures.values().next().map(|entrance| &entrance.work.model);
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

    /// Pushes the task of a run.
    pub(crate) fn push(&self, run: Run, reply: Reply) {
        let Some(entrance) = self.signatures.get(&run.signature) else {
            let text = format!("no signature is called {}", run.signature);
            return reply(Err(Error::NotFound(text)));
        };
        let settings = Arc::clone(&self.settings.lock());
        let is_asked = matches!(settings.batching, Batching::Asked(_));
        let place = match entrance.place(&run.inputs, &settings.batching) {
            Ok(place) => place,
            Err(error) => return reply(Err(Error::InvalidArgument(error.to_string()))),
        };
        let control = Control { deadline: run.deadline, is_cancelled: run.is_cancelled };
        let reply = Box::new(move |answer: std::result::Result<_, schedule::Failure>| {
            reply(answer.map_err(|failure| session::failure(&failure, is_asked)));
        });
        let task = Task::new(run.inputs, run.outputs, control, place.n_rows, reply);
        let level = run.level.unwrap_or(settings.priorities.default_level);
        self.share.push(place.queue, task, place.class, level.min(LEVEL_MAX));
    }

    /// What is known of the queues.
    pub(crate) fn snapshot(&self) -> Vec<QueueState> {
        let settings = Arc::clone(&self.settings.lock());
        let batching = &settings.batching;
        let mut states = Vec::new();
        for (signature, entrance) in &self.signatures {
            let batched = *entrance.batched.lock();
            let is_batched = entrance.is_batched(batching);
            let why = || entrance.why_single(batching);
            let queues = [(Some(entrance.single), Some(why())), (batched, None)];
            for (queue, why_single) in queues {
                let Some(snapshot) = queue.and_then(|queue| self.share.snapshot(queue)) else {
                    continue;
                };
                // A queue that nothing goes to is of no interest, unless it is the only one.
                let is_in_use = why_single.is_none() == is_batched || snapshot.stats.n_asked > 0;
                if is_in_use {
                    let (signature, device) = (signature.clone(), self.device.to_string());
                    let default_level = settings.priorities.default_level;
                    states.push(QueueState {
                        signature,
                        device,
                        why_single,
                        default_level,
                        snapshot,
                    });
                }
            }
        }
        states
    }
}

/// Where a task goes.
struct Place {
    queue: QueueId,
    n_rows: usize,
    class: Class,
}

impl Entrance {
    fn is_batched(&self, batching: &Batching) -> bool {
        match batching {
            Batching::Off => false,
            Batching::Proved(_) => self.mixing.is_none() && !self.work.writes,
            Batching::Asked(_) => !self.work.writes,
        }
    }

    fn why_single(&self, batching: &Batching) -> String {
        if self.work.writes {
            return "a run leaves something behind".to_owned();
        }
        match (batching, &self.mixing) {
            (Batching::Proved(_), Some(mixing)) => mixing.clone(),
            (Batching::Off, _) => "batching is off".to_owned(),
            (Batching::Proved(_) | Batching::Asked(_), _) => "does not fit in a batch".to_owned(),
        }
    }

    /// The queue of a task. Fails if batching was asked for and the task cannot be batched.
    fn place(&self, inputs: &[Tensor], batching: &Batching) -> batch::Result<Place> {
        let single = || Place { queue: self.single, n_rows: 1, class: Class::new(&[], false) };
        let batched = *self.batched.lock();
        let Some((queue, options)) = batched.zip(batching.options()) else { return Ok(single()) };
        if !self.is_batched(batching) {
            return Ok(single());
        }
        let n_rows = batch::n_rows(inputs);
        if matches!(batching, Batching::Proved(_)) {
            let fits = n_rows.as_ref().is_ok_and(|n| *n > 0 && *n <= options.task_rows_max);
            if !fits {
                return Ok(single());
            }
        }
        let class = Class::new(inputs, options.pads_shapes);
        Ok(Place { queue, n_rows: n_rows?, class })
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
        let of = (&*self.signature, Inputs::Tensors(inputs));
        let outputs = self.model.with(of, &cancel, &self.executor.pool, |program, env| {
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
        !self.writes
    }

    fn is_steady(&self, inputs: &[Tensor]) -> bool {
        !self.has_calls && inputs.iter().map(Tensor::n_bytes).sum::<usize>() <= STEADY_BYTES_MAX
    }

    fn needs(&self, inputs: &[Tensor]) -> Option<u64> {
        let plan = self.model.with(
            (&self.signature, Inputs::Tensors(inputs)),
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

/// What is to blame for a failed run.
fn blame(error: &Error) -> Blame {
    match error {
        Error::Cancelled(_)
        | Error::DeadlineExceeded(_)
        | Error::Unavailable(_)
        | Error::Busy { .. } => Blame::Machine,
        // Fewer rows may fit in what memory there is.
        Error::ResourceExhausted(_)
        | Error::InvalidArgument(_)
        | Error::NotFound(_)
        | Error::FailedPrecondition(_)
        | Error::OutOfRange(_)
        | Error::Unimplemented(_)
        | Error::DataLoss(_)
        | Error::Internal(_) => Blame::Rows,
    }
}

fn single_options() -> QueueOptions {
    let batch = batch::Options::unbatched(TASKS_MAX);
    QueueOptions { batch, admission: Admission::InTime }
}

impl std::fmt::Debug for Entrance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Entrance({})", self.work.signature)
    }
}
