//! `ReadyFunction`: a function with the plan for inputs of given shapes, part of the step that
//! calls it.

use std::sync::Arc;

use device::Home;
use ops::{Env, Frame, Ready};
use tensor::Spec;

use crate::plan::{Capacities, Given, Place, Plan};
use crate::program::Program;
use crate::run::run_function;

/// A function and its plan.
pub(crate) struct ReadyFunction {
    program: Arc<Program>,
    inputs: Vec<Spec>,
    plan: Plan,
    outputs: Vec<Spec>,
    /// For each input whether any step reads it, or another output than that of its number is it.
    reads: Vec<bool>,
    /// For messages.
    name: Arc<str>,
}

impl ReadyFunction {
    /// The function for inputs of these specs; `None` if its plan cannot be made before it runs.
    pub(crate) fn new(
        program: &Arc<Program>,
        inputs: &[Spec],
        name: &str,
        env: &Env<'_>,
    ) -> Option<Self> {
        if inputs.len() != program.graph().args.len() {
            return None;
        }
        let planned = program.with_own(env, |env| Plan::build_function(program, inputs, env));
        let (plan, outputs) = planned.ok()?;
        // The memory of its caller is the device's.
        if plan.steps.iter().any(|step| step.home == Home::Host) {
            return None;
        }
        let (program, reads) = (Arc::clone(program), reads(&plan, inputs.len()));
        Some(Self { program, inputs: inputs.to_vec(), plan, outputs, reads, name: name.into() })
    }
}

/// For each input of a function whether any step reads it, or another output than that of its
/// number is it.
fn reads(plan: &Plan, n_inputs: usize) -> Vec<bool> {
    let mut reads = vec![false; n_inputs];
    let input = |place: &Place| match place {
        Place::Given(Given { number, .. }) => Some(*number),
        Place::Open(slot) => plan.handed.iter().position(|handed| *handed == Some(*slot)),
        Place::Input(..) | Place::Const(_) | Place::Work(_) => None,
    };
    for place in plan.steps.iter().flat_map(|step| &step.inputs) {
        input(place).into_iter().for_each(|number| reads[number] = true);
    }
    for (number, place) in plan.outputs.iter().enumerate() {
        input(place).filter(|from| *from != number).into_iter().for_each(|n| reads[n] = true);
    }
    reads
}

impl Ready for ReadyFunction {
    fn outputs(&self) -> &[Spec] {
        &self.outputs
    }

    fn reads(&self, input: usize) -> bool {
        self.reads[input]
    }

    fn hands_on(&self, number: usize) -> bool {
        match self.plan.outputs.get(number) {
            Some(Place::Given(given)) => given.number == number,
            Some(Place::Open(slot)) => self.plan.handed.get(number) == Some(&Some(*slot)),
            Some(Place::Input(..) | Place::Const(_) | Place::Work(_)) | None => false,
        }
    }

    fn work_bytes(&self) -> usize {
        self.plan.work_bytes()
    }

    fn least_work_bytes(&self) -> usize {
        self.plan.live_bytes()
    }

    fn lowered(
        &self,
        work_bytes: usize,
        env: &Env<'_>,
        should_stop: &mut dyn FnMut() -> bool,
    ) -> Option<Arc<dyn Ready>> {
        let capacities = Capacities::of_device(work_bytes as u64);
        let Self { program, inputs, outputs, name, .. } = self;
        let found = program.with_own(env, |env| {
            Plan::build_function_within(program, inputs, env, (&capacities, should_stop))
        });
        let plan = found.ok()??;
        let (program, reads) = (Arc::clone(program), reads(&plan, inputs.len()));
        let (inputs, outputs, name) = (inputs.clone(), outputs.clone(), Arc::clone(name));
        Some(Arc::new(Self { program, inputs, plan, outputs, reads, name }))
    }

    fn kernel_bytes(&self) -> usize {
        self.plan.kernel_bytes(Home::Device)
    }

    fn open_bytes(&self) -> usize {
        self.plan.dynamic_bytes() - self.plan.handed_bytes()
    }

    fn is_static(&self) -> bool {
        self.plan.is_static()
    }

    fn run(&self, frame: Frame<'_>, env: &Env<'_>) -> ops::Result<()> {
        let done = self.program.with_own(env, |env| run_function(&self.plan, frame, env));
        done.map_err(|error| error.into_op_error(&self.name))
    }
}
