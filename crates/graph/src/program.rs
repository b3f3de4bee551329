//! `Program`: a graph ready to be run with inputs of any shape.

use std::sync::Arc;

use device::Workspace;
use ops::{Env, FunctionCall, Kind, Observer, Packed, Resources};
use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use tensor::{DType, Dim, Items, ListSpec, Shape, Spec, Tensor};

use crate::error::{Error, Result};
use crate::functions::Library;
use crate::graph::{Graph, Node};
use crate::infer;
use crate::pack::{PackedInputs, Part};
use crate::passes;
use crate::plan::{Homes, Plan};
use crate::rows::{self, Mixing};
use crate::run;
use crate::scaled::Scaled;
use crate::searches;
use crate::specialise::{Handed, Observed, Overlay, specialise};

/// The settings of a program.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The number of plans kept, one for each combination of input shapes.
    pub plans_max: usize,
    /// The homes of tensors.
    pub homes: Homes,
}

impl Options {
    /// Those of functions that the program calls.
    pub(crate) fn of_functions(self) -> Self {
        Self { homes: self.homes.of_functions(), ..self }
    }
}

/// The variables of a servable, and which of them any signature writes.
pub struct Bindings<'a> {
    /// The resources in which variables are found.
    resources: &'a Resources,
    /// The variables that may change, by container and name: their values are never folded.
    written: &'a FxHashSet<(String, String)>,
    /// Weights that programs were built with.
    pub(crate) scaled: Scaled,
}

impl<'a> Bindings<'a> {
    /// The variables in `resources`. Those in `written`, by container and name, may change: their
    /// values are never folded.
    pub fn new(resources: &'a Resources, written: &'a FxHashSet<(String, String)>) -> Self {
        Self { resources, written, scaled: Scaled::default() }
    }

    /// The value of a variable that stays as it is.
    pub(crate) fn weight(&self, key: &(String, String)) -> Option<Tensor> {
        if self.written.contains(key) {
            return None;
        }
        self.resources.get::<ops::Variable>(&key.0, &key.1)?.read()
    }
}

/// The inputs that programs are built with.
#[derive(Clone, Copy)]
pub struct Build<'a> {
    /// The variables.
    pub bindings: &'a Bindings<'a>,
    /// The environment for folding ops.
    pub env: &'a Env<'a>,
    /// The settings.
    pub options: Options,
}

/// A graph with its variables bound, its constants folded and, once [`pack`](crate::pack) was
/// called, its weights packed; and the plans that were made of it so far.
#[derive(Debug)]
pub struct Program {
    graph: Graph,
    /// The graph without functions of its own, if it has any.
    plain: Option<Box<Graph>>,
    /// For each node the packed forms of its constant inputs.
    packed: PackedInputs,
    /// The inputs of calls that nobody reads.
    handed: Handed,
    options: Options,
    /// The plans, last used last.
    plans: Mutex<Vec<(ProgramKey, Arc<Plan>)>>,
    /// The functions that are its own: those that it calls with constants.
    functions: Library,
    stats: searches::Stats,
}

/// The key of a plan: the known part of each input.
type ProgramKey = Vec<Known>;

/// The dtype and shape of an input; for a list, also those of its tensors.
#[derive(Debug)]
pub(crate) struct Known {
    dtype: DType,
    shape: Shape,
    items: Option<(DType, Shape)>,
}

impl Known {
    fn from_tensor(input: &Tensor) -> Self {
        let items = ops::item_shape(input).map(|(dtype, shape)| (dtype, shape.clone()));
        Self { dtype: input.dtype(), shape: input.shape().clone(), items }
    }

    fn is_of(&self, input: &Tensor) -> bool {
        self.dtype == input.dtype()
            && self.shape == *input.shape()
            && self.items.as_ref().map(|(dtype, shape)| (*dtype, shape)) == ops::item_shape(input)
    }

    pub(crate) fn spec(&self) -> Spec {
        let spec = Spec::concrete(self.dtype, &self.shape);
        match &self.items {
            Some((dtype, shape)) => {
                let items = Items::Like(shape.iter().map(|size| Dim::of(*size)).collect());
                // Lists that grow are the same to a plan.
                spec.with_list(ListSpec { dtype: *dtype, len: Dim::Unknown, items })
            }
            None => spec,
        }
    }
}

/// Returns whether an input of this dtype and shape is such as a spec says.
pub fn fits(spec: &Spec, dtype: DType, shape: &Shape) -> bool {
    let same = |dims: &[Dim]| {
        let pairs = dims.iter().zip(shape.iter());
        dims.len() == shape.rank()
            && pairs.into_iter().all(|(d, s)| d.size().is_none_or(|d| d == *s))
    };
    spec.dtype == dtype && spec.dims().is_none_or(same)
}

impl Program {
    /// Makes a program of a graph. Fails if an op refuses what it surely gets.
    pub fn build(graph: Graph, build: &Build<'_>) -> Result<Self> {
        Self::of_tidy(passes::tidy(graph, build.bindings, build.env)?, build)
    }

    /// Makes a program of a graph for inputs of any shape, and another for inputs that fit `specs`
    /// (see [`fits`](crate::fits)), if what is known of them lets it run in fewer steps. Both share
    /// their weights.
    pub fn build_both(
        graph: Graph,
        specs: &[Spec],
        build: &Build<'_>,
    ) -> Result<(Self, Option<Self>)> {
        assert_eq!(specs.len(), graph.args.len());
        let tidy = passes::tidy(graph, build.bindings, build.env)?;
        let mut fitted = tidy.clone();
        let any = Self::of_tidy(tidy, build)?;
        fitted.args = specs.to_vec();
        // What a signature says of its inputs need not be true: then nothing fits.
        let fitted = passes::tidy(fitted, build.bindings, build.env);
        let Ok(fitted) = fitted else { return Ok((any, None)) };
        let n_ops = passes::n_fused(fitted.clone(), build.bindings, build.env)?;
        if n_ops >= passes::n_ops(&any.graph) {
            return Ok((any, None));
        }
        Ok((any, Some(Self::of_tidy(fitted, build)?)))
    }

    fn of_tidy(graph: Graph, build: &Build<'_>) -> Result<Self> {
        assert!(build.options.plans_max > 0);
        let mut graph = passes::fuse(graph, build.bindings, build.env)?;
        let plain = graph.clone();
        let (functions, handed) = specialise(&mut graph, build)?;
        let plain = (!functions.is_empty()).then(|| Box::new(plain));
        let packed = vec![Arc::from([]); graph.nodes.len()];
        let (options, plans) = (build.options, Mutex::default());
        let stats = searches::Stats::default();
        Ok(Self { graph, plain, packed, handed, options, plans, functions, stats })
    }

    /// The graph after all passes.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The graph after all passes, without functions of its own: others know what it calls.
    pub(crate) fn plain_graph(&self) -> &Graph {
        self.plain.as_deref().unwrap_or(&self.graph)
    }

    /// The homes of the program's tensors.
    pub(crate) fn homes(&self) -> Homes {
        self.options.homes
    }

    pub(crate) fn packed(&self, node: usize) -> &Arc<[Option<Packed>]> {
        &self.packed[node]
    }

    /// Drops the plans, which hold on to the functions they call.
    pub(crate) fn forget_plans(&self) {
        self.plans.lock().clear();
        self.functions.forget_plans();
    }

    /// Collects the parts that packing changes: of the program, and of the functions that are its
    /// own. Drops graphs that were only needed to build others, and plans, which know nothing of
    /// packed forms.
    pub(crate) fn parts<'a>(&'a mut self, parts: &mut Vec<Part<'a>>) {
        self.plain = None;
        self.forget_plans();
        let Self { graph, packed, handed, functions, .. } = self;
        parts.push(Part { graph, packed, handed });
        functions.programs_mut().for_each(|program| program.parts(parts));
    }

    /// Calls `each` with the nodes of the program and of the functions that are its own, but for
    /// constants that loops only hand around.
    pub fn visit(&self, each: &mut dyn FnMut(&Node)) {
        let read = self.read();
        let numbered = self.graph.nodes.iter().zip(0u32..);
        let seen =
            numbered.filter(|(node, number)| node.as_const().is_none() || read.contains(number));
        seen.for_each(|(node, _)| each(node));
        self.functions.visit(each);
    }

    /// The nodes that are fetched, or that others read.
    fn read(&self) -> FxHashSet<u32> {
        let mut read: FxHashSet<u32> = self.graph.fetches.iter().map(|port| port.node).collect();
        for (node, number) in self.graph.nodes.iter().zip(0u32..) {
            let inputs = node.inputs.iter().enumerate();
            let inputs = inputs.filter(|(input, _)| !self.handed.contains(&(number, *input)));
            read.extend(inputs.map(|(_, port)| port.node));
        }
        read
    }

    /// The bytes of constants, weights and packed weights that the program holds. Those that it
    /// shares with others count too.
    pub fn held_bytes(&self) -> usize {
        let consts = self.graph.nodes.iter().filter_map(|node| node.as_const());
        let consts = consts.filter(|tensor| !tensor.is_vacant());
        let packed = self.packed.iter().flat_map(|packed| packed.iter().flatten());
        consts.map(Tensor::n_bytes).sum::<usize>()
            + packed.map(|packed| packed.n_bytes).sum::<usize>()
            + self.functions.held_bytes()
    }

    /// The specs of the fetches for inputs of these specs.
    pub fn infer(&self, inputs: &[Spec], env: &Env<'_>) -> Result<Vec<Spec>> {
        self.with_own(env, |env| infer::infer(&self.graph, inputs, env))
    }

    /// Proves that the rows of a batch do not touch each other, or says what mixes them. The first
    /// dimension of every input is [`ROWS`](crate::ROWS).
    pub fn prove_rows(&self, inputs: &[Spec], env: &Env<'_>) -> std::result::Result<(), Mixing> {
        // Others know what the plain graph calls, down to the bodies.
        rows::prove(self.plain_graph(), inputs, env)
    }

    /// Returns whether the program calls functions: the bodies of loops and branches. A run may
    /// then take as long as its inputs say.
    pub fn has_calls(&self) -> bool {
        self.graph.nodes.iter().any(|node| node.facts().calls != FunctionCall::Nothing)
    }

    /// Returns whether running the program changes state or draws random numbers, so that a run may
    /// not be repeated.
    pub fn is_stateful(&self) -> bool {
        self.graph.nodes.iter().any(|node| node.kind() == Kind::Writes)
    }

    /// The plan for inputs of these dtypes and shapes: a kept one, or a new one.
    pub fn plan(&self, inputs: &[(DType, Shape)], env: &Env<'_>) -> Result<Arc<Plan>> {
        self.check_number(inputs.len())?;
        let is_same = |known: &Known, (dtype, shape): &(DType, Shape)| {
            known.dtype == *dtype && known.shape == *shape && known.items.is_none()
        };
        if let Some(plan) = self.kept(|key| key.iter().zip(inputs).all(|(a, b)| is_same(a, b))) {
            return Ok(plan);
        }
        let known = |(dtype, shape): &(DType, Shape)| Known {
            dtype: *dtype,
            shape: shape.clone(),
            items: None,
        };
        self.make_plan(inputs.iter().map(known).collect(), env)
    }

    fn check_number(&self, got: usize) -> Result<()> {
        let want = self.graph.args.len();
        if got == want {
            return Ok(());
        }
        Err(Error::BadInput(format!("expected {want} inputs but got {got}")))
    }

    /// Makes a plan, and keeps it.
    fn make_plan(&self, key: ProgramKey, env: &Env<'_>) -> Result<Arc<Plan>> {
        let _scope = device::booked_as(device::Category::Plans);
        let specs: Vec<Spec> = key.iter().map(Known::spec).collect();
        let plan = self.with_own(env, |env| Plan::build(self, &specs, env))?;
        let plan = Arc::new(plan);
        let mut plans = self.plans.lock();
        if plans.len() == self.options.plans_max {
            plans.remove(0);
        }
        plans.push((key, Arc::clone(&plan)));
        Ok(plan)
    }

    /// The kept plan of inputs that are as `fits` says; it is then the last used.
    fn kept(&self, fits: impl Fn(&ProgramKey) -> bool) -> Option<Arc<Plan>> {
        let mut plans = self.plans.lock();
        let at = plans.iter().rposition(|(key, _)| fits(key))?;
        let plan = Arc::clone(&plans[at].1);
        plans[at..].rotate_left(1);
        Some(plan)
    }

    pub(crate) fn stats(&self) -> &searches::Stats {
        &self.stats
    }

    /// Does `work` with what a kept plan is for; `None` if it is not kept any more.
    pub(crate) fn with_key<T>(
        &self,
        plan: &Arc<Plan>,
        work: impl FnOnce(&[Known]) -> T,
    ) -> Option<T> {
        let plans = self.plans.lock();
        let kept = plans.iter().find(|(_, kept)| Arc::ptr_eq(kept, plan));
        kept.map(|(key, _)| work(key))
    }

    /// Keeps one plan in place of another, if that is still kept.
    pub(crate) fn put_in_place(&self, old: &Arc<Plan>, new: &Arc<Plan>) {
        let mut plans = self.plans.lock();
        if let Some((_, kept)) = plans.iter_mut().find(|(_, kept)| Arc::ptr_eq(kept, old)) {
            *kept = Arc::clone(new);
        }
    }

    /// Runs the program on `inputs`, with activations in `workspace`.
    pub fn run(
        &self,
        inputs: &[Tensor],
        env: &Env<'_>,
        workspace: &mut Workspace,
    ) -> Result<Vec<Tensor>> {
        let plan = self.plan_for(inputs, env)?;
        self.run_plan(&plan, inputs, env, workspace)
    }

    /// Runs the program by a plan of its own for these inputs.
    pub fn run_plan(
        &self,
        plan: &Plan,
        inputs: &[Tensor],
        env: &Env<'_>,
        workspace: &mut Workspace,
    ) -> Result<Vec<Tensor>> {
        self.with_own(env, |env| run::run(plan, inputs, env, workspace))
    }

    /// Like [`Program::run`], while an observer watches. The plans it is shown are [`Plan`]s.
    pub fn run_observed(
        &self,
        inputs: &[Tensor],
        env: &Env<'_>,
        workspace: &mut Workspace,
        observer: &dyn Observer,
    ) -> Result<Vec<Tensor>> {
        let functions = Observed { outer: env.functions, observer };
        self.run(inputs, &Env { functions: &functions, ..*env }, workspace)
    }

    /// Does `work` where the program's own functions are known too.
    pub(crate) fn with_own<T>(&self, env: &Env<'_>, work: impl FnOnce(&Env<'_>) -> T) -> T {
        if self.functions.is_empty() {
            return work(env);
        }
        let functions = Overlay { own: &self.functions, outer: env.functions };
        work(&Env { functions: &functions, ..*env })
    }

    /// The plan for these inputs. Fails if one is of another dtype than the graph feeds.
    pub fn plan_for(&self, inputs: &[Tensor], env: &Env<'_>) -> Result<Arc<Plan>> {
        for (number, (input, spec)) in inputs.iter().zip(&self.graph.args).enumerate() {
            if input.dtype() != spec.dtype {
                // The text is TensorFlow's (`executor.cc`), which clients look for.
                let (want, got) = (spec.dtype, input.dtype());
                let text = format!("Expects arg[{number}] to be {want} but {got} is provided");
                return Err(Error::BadInput(text));
            }
        }
        self.check_number(inputs.len())?;
        let fits =
            |key: &ProgramKey| key.iter().zip(inputs).all(|(known, input)| known.is_of(input));
        match self.kept(fits) {
            Some(plan) => Ok(plan),
            None => self.make_plan(inputs.iter().map(Known::from_tensor).collect(), env),
        }
    }
}
