//! `NativeEngine`: runs the signatures of one servable on the lanes of the host.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use device::{Account, Category, Owner, Workspace};
use graph::{Library, Plan, Program, Searches};
use ops::{Cancel, Env, NoFiles, Observer, Resources};
use parking_lot::Mutex;
use pool::Pool;
use schedule::{Lanes, Replica};
use session::{Batching, Engine, Priorities, QueueState, Queues, Reply, Run, Settings};
use status::{Result, Status};
use tensor::{Spec, Tensor};

use crate::pace::Pace;
use crate::programs::{Inputs, ProgramPick, Programs};
use crate::queues::{self, SignatureWork};
use crate::rehearsal::Batch;

/// The lanes that run batches, and the threads within one: shared by all servables on the host.
#[derive(Debug, Clone)]
pub struct Executor {
    /// The lanes.
    pub lanes: Arc<Lanes>,
    /// The compute threads.
    pub pool: Arc<Pool>,
    /// The name of the device whose lanes they are.
    pub device: Arc<str>,
    /// The pace of the device, if it is played.
    pub pace: Option<Arc<Pace>>,
}

/// The programs of one servable.
#[derive(Debug)]
pub struct NativeEngine {
    executor: Executor,
    model: Arc<Model>,
    settings: Settings,
    queues: Queues,
    works: Vec<Arc<SignatureWork>>,
}

#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) programs: BTreeMap<String, Box<Programs>>,
    pub(crate) library: Library,
    pub(crate) resources: Resources,
    /// The specs of each signature's inputs.
    pub(crate) specs: BTreeMap<String, Vec<Spec>>,
    /// The facts of each signature's rows.
    pub(crate) rows: BTreeMap<String, Rows>,
    /// Workspaces in the memory that was set aside for it, for the next runs.
    pub(crate) workspaces: Mutex<Vec<Workspace>>,
    /// Dropped when nothing is held any more.
    pub(crate) lease: Lease,
    /// Dropped last, for those who wait for that.
    pub(crate) end: Arc<()>,
}

/// The owner that pays for a servable's memory. When the lease ends, the servable's memory goes
/// back to the device.
#[derive(Debug)]
pub(crate) struct Lease(pub(crate) Option<Arc<Owner>>);

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(owner) = &self.0 {
            owner.space().sharing().unshare(owner);
            // A driver that refuses is asked again when the space is trimmed next.
            drop(owner.space().trim("unload"));
            if owner.is_split() {
                drop(owner.host().space().trim("unload"));
            }
            heap::trim();
        }
    }
}

/// The known facts of the rows of a signature.
#[derive(Debug)]
pub(crate) struct Rows {
    /// The proof that rows are independent of each other, or the reason that they are not.
    pub(crate) proof: std::result::Result<(), graph::Mixing>,
    /// `true` if a run leaves something behind.
    pub(crate) writes: bool,
}

impl NativeEngine {
    pub(crate) fn new(executor: Executor, model: Model) -> Result<Self> {
        let model = Arc::new(model);
        let works = queues::works(&model, &executor);
        let queues = queues::queues(&works, &executor)?;
        Ok(Self { executor, model, settings: Settings::plain(), queues, works })
    }

    /// The proof that the rows of a signature's batches are independent, or the node that mixes
    /// them.
    pub fn rows(&self, signature: &str) -> Option<&std::result::Result<(), graph::Mixing>> {
        self.model.programs.get(signature)?;
        self.model.rows.get(signature).map(|rows| &rows.proof)
    }

    /// The program of a signature for inputs of any shape.
    pub fn program(&self, signature: &str) -> Option<&Program> {
        self.model.programs.get(signature).map(|programs| programs.any())
    }

    /// Runs on this thread while an observer watches; gives the plan.
    pub fn observe(
        &self,
        run: &Run,
        workspace: &mut Workspace,
        observer: &dyn Observer,
    ) -> Result<Arc<Plan>> {
        self.model.with_program(run, &self.executor.pool, |program, env| {
            program.run_observed(&run.inputs, env, workspace, observer)?;
            program.plan_for(&run.inputs, env)
        })
    }

    /// The plan that a run would follow, without running it.
    pub fn plan(&self, run: &Run) -> Result<Arc<Plan>> {
        let pool = &self.executor.pool;
        self.model.with_program(run, pool, |program, env| program.plan_for(&run.inputs, env))
    }

    /// The counts of searches for offsets, since those found at once did not fit.
    pub fn searches(&self) -> Searches {
        self.model.searches()
    }

    /// Makes the plan of a batch that needs a search before it is asked for.
    pub(crate) fn plan_ahead(&self, batch: &Batch) -> Result<()> {
        self.model.plan_ahead(batch, &self.executor.pool)
    }

    /// Runs on this thread, with activations in `workspace`.
    pub fn run(&self, run: &Run, workspace: &mut Workspace) -> Result<Vec<Tensor>> {
        self.model.run(run, &self.executor.pool, workspace)
    }
}

impl Engine for NativeEngine {
    fn start(&self, run: Run, reply: Reply) {
        self.queues.push(run, reply, self.settings.load());
    }

    fn name(&self) -> &'static str {
        "native"
    }

    fn set_batching(&self, batching: &Batching) -> Result<()> {
        self.settings.set_batching(batching, |new| self.queues.apply(new))
    }

    fn set_priorities(&self, priorities: &Priorities) -> Result<()> {
        self.settings.set_priorities(priorities, |new| self.queues.apply(new))
    }

    fn expect(&self) {
        self.queues.expect();
    }

    fn prepare(&self) {
        let settings = self.settings.load();
        queues::prepare(&self.works, &settings.batching, self.queues.share());
    }

    fn forecast(&self, run: &Run) -> Option<Replica> {
        let forecast = self.queues.forecast(run, &self.settings.load())?;
        // What is served has its weights in memory.
        Some(Replica { forecast, until_ready: Duration::ZERO })
    }

    fn end(&self) -> Option<Weak<()>> {
        Some(Arc::downgrade(&self.model.end))
    }

    fn queues(&self) -> Vec<QueueState> {
        self.queues.snapshot(&self.settings.load())
    }
}

/// The bytes that a run takes of its model's limits for its workspace, while it runs.
#[derive(Debug)]
pub(crate) struct Charged<'a> {
    account: &'a Account,
    bytes: u64,
}

impl<'a> Charged<'a> {
    fn new(owner: &'a Owner, bytes: u64) -> device::Result<Option<Self>> {
        owner.note_work(bytes);
        let Some(account) = owner.account() else { return Ok(None) };
        account.charge(bytes)?;
        Ok(Some(Self { account, bytes }))
    }
}

impl Drop for Charged<'_> {
    fn drop(&mut self) {
        self.account.refund(self.bytes);
    }
}

impl Model {
    /// Charges the workspace of a run to the model for as long as the run takes, on the device and
    /// on the host: the lane's memory is everybody's, but what a model needs of it counts towards
    /// its limit. Fails if that leaves too little room.
    pub(crate) fn charge(&self, plan: &Plan) -> device::Result<[Option<Charged<'_>>; 2]> {
        let Some(owner) = &self.lease.0 else { return Ok([None, None]) };
        let charged = Charged::new(owner, plan.work_bytes() as u64)?;
        if !owner.is_split() {
            return Ok([charged, None]);
        }
        Ok([charged, Charged::new(owner.host(), plan.host_work_bytes() as u64)?])
    }

    /// The owner that pays, if memory was set aside for the model.
    pub(crate) fn aside(&self) -> Option<&Arc<Owner>> {
        let is_aside = |owner: &&Arc<Owner>| !Arc::ptr_eq(owner.space(), owner.space().root());
        self.lease.0.as_ref().filter(is_aside)
    }

    /// Does `work` in the workspace that a run is to use: the lane's, or one in the memory that was
    /// set aside for the model, if any was, since that is to hold all that the model needs.
    pub(crate) fn in_workspace<T>(
        &self,
        lane: &mut Workspace,
        work: impl FnOnce(&mut Workspace) -> graph::Result<T>,
    ) -> graph::Result<T> {
        let Some(owner) = self.aside() else { return work(lane) };
        let kept = self.workspaces.lock().pop();
        let mut own = kept.map_or_else(|| Workspace::for_owner(Arc::clone(owner)), Ok)?;
        let done = work(&mut own);
        // What it takes beyond what was set aside is the device's again when nobody needs it.
        if owner.space().arenas().is_beyond_kept() {
            own.trim()?;
        }
        self.workspaces.lock().push(own);
        done
    }

    /// The bytes that a run may need, where the device has `free_bytes` left: no more than the
    /// model's limit leaves; if memory was set aside for the model, the free part of that.
    pub(crate) fn room(&self, free_bytes: u64) -> u64 {
        let Some(owner) = &self.lease.0 else { return free_bytes };
        let free_bytes = match Arc::ptr_eq(owner.space(), owner.space().root()) {
            true => free_bytes,
            false => {
                let own: usize = self.workspaces.lock().iter().map(Workspace::len).sum();
                owner.space().free_bytes().saturating_add(own as u64)
            }
        };
        owner.account().map_or(free_bytes, |account| free_bytes.min(account.free_bytes()))
    }

    fn run(&self, run: &Run, pool: &Pool, workspace: &mut Workspace) -> Result<Vec<Tensor>> {
        let outputs =
            self.with_program(run, pool, |program, env| program.run(&run.inputs, env, workspace))?;
        let wanted = run.outputs.iter().map(|number| outputs.get(*number).cloned());
        let missing = || Status::internal("an output that the signature does not have");
        wanted.map(|output| output.ok_or_else(missing)).collect()
    }

    /// Does `work` with the program of a run's signature, and all that the program needs.
    fn with_program<T>(
        &self,
        run: &Run,
        pool: &Pool,
        work: impl FnOnce(&Program, &Env<'_>) -> graph::Result<T>,
    ) -> Result<T> {
        let cancel = Cancel::new(Arc::clone(&run.is_cancelled), run.deadline);
        let inputs = Inputs::Tensors(&run.inputs);
        self.with(ProgramPick { signature: &run.signature, inputs }, &cancel, pool, work)
    }

    /// Does `work` with the program of a signature for these inputs, and all that the program
    /// needs.
    pub(crate) fn with<T>(
        &self,
        pick: ProgramPick<'_>,
        cancel: &Cancel,
        pool: &Pool,
        work: impl FnOnce(&Program, &Env<'_>) -> graph::Result<T>,
    ) -> Result<T> {
        let ProgramPick { signature, inputs } = pick;
        // As many lanes as compute at once, so many fewer threads help each.
        let _lane = pool.enter();
        let _watch = cancel.watch();
        let _scope = self.lease.0.as_ref().map(|o| device::booked_to(o, Category::Requests));
        let unknown = || Status::not_found(format!("no signature is called {signature}"));
        let programs = self.programs.get(signature).ok_or_else(unknown)?;
        let _name = device::named(Arc::clone(programs.title()));
        let program = programs.pick(inputs);
        let env = Env {
            pool,
            functions: &self.library,
            files: &NoFiles,
            resources: &self.resources,
            cancel,
        };
        Ok(work(program, &env)?)
    }
}
