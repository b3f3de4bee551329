//! `NativeEngine`: runs the signatures of one servable on the lanes of the host.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::Workspace;
use graph::{Library, Plan, Program};
use ops::{Cancel, Env, NoFiles, Resources};
use pool::Pool;
use schedule::Lanes;
use session::{Engine, Error, Reply, Result, Run};
use tensor::Tensor;

use crate::error::session_error;

/// What all servables on the host share: the lanes that run batches, and the threads within one.
#[derive(Debug, Clone)]
pub struct Executor {
    /// The lanes.
    pub lanes: Arc<Lanes>,
    /// The compute threads.
    pub pool: Arc<Pool>,
}

/// The programs of one servable.
#[derive(Debug)]
pub struct NativeEngine {
    executor: Executor,
    model: Arc<Model>,
}

#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) programs: BTreeMap<String, Program>,
    pub(crate) library: Library,
    pub(crate) resources: Resources,
}

impl NativeEngine {
    pub(crate) fn new(executor: Executor, model: Model) -> Self {
        Self { executor, model: Arc::new(model) }
    }

    /// The program of a signature.
    pub fn program(&self, signature: &str) -> Option<&Program> {
        self.model.programs.get(signature)
    }

    /// Runs on this thread, and calls `observe` after each step of the plan with its number; gives
    /// the plan.
    pub fn observe(
        &self,
        run: &Run,
        workspace: &mut Workspace,
        observe: &mut dyn FnMut(usize),
    ) -> Result<Arc<Plan>> {
        self.model.with_program(run, &self.executor.pool, |program, env| {
            program.run_observed(&run.inputs, env, workspace, observe)?;
            program.plan_for(&run.inputs, env)
        })
    }

    /// Runs on this thread, with activations in `workspace`.
    pub fn run(&self, run: &Run, workspace: &mut Workspace) -> Result<Vec<Tensor>> {
        self.model.run(run, &self.executor.pool, workspace)
    }
}

impl Engine for NativeEngine {
    fn start(&self, run: Run, reply: Reply) {
        let model = Arc::clone(&self.model);
        let pool = Arc::clone(&self.executor.pool);
        // The reply is needed in both cases: by the job, or by its refusal.
        let reply = Arc::new(parking_lot::Mutex::new(Some(reply)));
        let answer = Arc::clone(&reply);
        let job = Box::new(move |workspace: &mut Workspace| {
            let outputs = if run.is_moot() {
                Err(Error::Cancelled("nobody waits for the answer".to_owned()))
            } else {
                model.run(&run, &pool, workspace)
            };
            if let Some(reply) = answer.lock().take() {
                reply(outputs);
            }
        });
        if let Err(full) = self.executor.lanes.push(job)
            && let Some(reply) = reply.lock().take()
        {
            reply(Err(Error::Unavailable(full.to_string())));
        }
    }

    fn name(&self) -> &'static str {
        "native"
    }
}

impl Model {
    fn run(&self, run: &Run, pool: &Pool, workspace: &mut Workspace) -> Result<Vec<Tensor>> {
        let outputs =
            self.with_program(run, pool, |program, env| program.run(&run.inputs, env, workspace))?;
        let wanted = run.outputs.iter().map(|number| outputs.get(*number).cloned());
        let missing = || Error::Internal("an output that the signature does not have".to_owned());
        wanted.map(|output| output.ok_or_else(missing)).collect()
    }

    /// Does `work` with the program of a run's signature, and all that the program needs.
    fn with_program<T>(
        &self,
        run: &Run,
        pool: &Pool,
        work: impl FnOnce(&Program, &Env<'_>) -> graph::Result<T>,
    ) -> Result<T> {
        let unknown = || Error::NotFound(format!("no signature is called {}", run.signature));
        let program = self.programs.get(&run.signature).ok_or_else(unknown)?;
        let cancel = Cancel::new(Arc::clone(&run.is_cancelled), run.deadline);
        let env = Env {
            pool,
            functions: &self.library,
            files: &NoFiles,
            resources: &self.resources,
            cancel: &cancel,
        };
        // While several runs compute at once, each gets fewer of the pool's threads.
        let _lane = pool.enter();
        work(program, &env).map_err(session_error)
    }
}
