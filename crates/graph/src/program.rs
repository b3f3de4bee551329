//! `Program`: a graph ready to be run with inputs of any shape.

use std::sync::Arc;

use device::Workspace;
use ops::{Env, Kind, Packed, Resources};
use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use tensor::{DType, Shape, Spec, Tensor};

use crate::error::{Error, Result};
use crate::graph::{Body, Graph};
use crate::passes;
use crate::plan::{self, Plan};
use crate::rows::{self, Mixing};
use crate::run;

/// The settings of a program.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// How many plans, one for each combination of input shapes, are kept.
    pub plans_max: usize,
}

/// The variables of a servable, and which of them any signature writes.
pub struct Bindings<'a> {
    /// Where variables are found.
    pub resources: &'a Resources,
    /// The variables that may change, by container and name: their values are never folded.
    pub written: &'a FxHashSet<(String, String)>,
}

impl Bindings<'_> {
    /// The value of a variable that stays as it is.
    pub(crate) fn weight(&self, key: &(String, String)) -> Option<Tensor> {
        if self.written.contains(key) {
            return None;
        }
        self.resources.get::<ops::Variable>(&key.0, &key.1)?.read()
    }
}

/// What programs are built with.
#[derive(Clone, Copy)]
pub struct Build<'a> {
    /// The variables.
    pub bindings: &'a Bindings<'a>,
    /// What folding an op needs.
    pub env: &'a Env<'a>,
    /// The settings.
    pub options: Options,
}

/// A graph with its variables bound, its constants folded and its weights packed; and the plans
/// that were made of it so far.
#[derive(Debug)]
pub struct Program {
    graph: Graph,
    /// For each node the packed forms of its constant inputs.
    packed: Vec<Arc<[Option<Packed>]>>,
    options: Options,
    /// The plans, last used last.
    plans: Mutex<Vec<(Key, Arc<Plan>)>>,
}

/// What a plan depends on: the dtypes and shapes of the inputs.
type Key = SmallVec<[(DType, Shape); 2]>;

impl Program {
    /// Makes a program of a graph. Fails if an op refuses what it surely gets.
    pub fn build(graph: Graph, build: &Build<'_>) -> Result<Self> {
        assert!(build.options.plans_max > 0);
        let graph = passes::run(graph, build.bindings, build.env)?;
        let packed = pack(&graph)?;
        Ok(Self { graph, packed, options: build.options, plans: Mutex::default() })
    }

    /// The graph after all passes.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    pub(crate) fn packed(&self, node: usize) -> &Arc<[Option<Packed>]> {
        &self.packed[node]
    }

    /// The bytes of constants, weights and packed weights that the program holds. Those that it
    /// shares with others count too.
    pub fn held_bytes(&self) -> usize {
        let consts = self.graph.nodes.iter().filter_map(|node| node.as_const());
        let packed = self.packed.iter().flat_map(|packed| packed.iter().flatten());
        consts.map(Tensor::n_bytes).sum::<usize>()
            + packed.map(|packed| packed.n_bytes).sum::<usize>()
    }

    /// The specs of the fetches for inputs of these specs.
    pub fn infer(&self, inputs: &[Spec], env: &Env<'_>) -> Result<Vec<Spec>> {
        plan::infer(&self.graph, inputs, env)
    }

    /// Proves that the rows of a batch do not touch each other, or says what mixes them. The first
    /// dimension of every input is [`ROWS`](crate::ROWS).
    pub fn prove_rows(&self, inputs: &[Spec], env: &Env<'_>) -> std::result::Result<(), Mixing> {
        rows::prove(&self.graph, inputs, env)
    }

    /// Whether running it changes state or draws random numbers, so that a run may not be repeated.
    pub fn is_stateful(&self) -> bool {
        self.graph.nodes.iter().any(|node| node.kind() == Kind::Writes)
    }

    /// The plan for inputs of these dtypes and shapes: a kept one, or a new one.
    pub fn plan(&self, inputs: &[(DType, Shape)], env: &Env<'_>) -> Result<Arc<Plan>> {
        if inputs.len() != self.graph.args.len() {
            let (want, got) = (self.graph.args.len(), inputs.len());
            return Err(Error::BadInput(format!("expected {want} inputs but got {got}")));
        }
        if let Some(plan) = self.kept(inputs) {
            return Ok(plan);
        }
        let plan = Arc::new(Plan::build(self, inputs, env)?);
        let mut plans = self.plans.lock();
        if plans.len() == self.options.plans_max {
            plans.remove(0);
        }
        plans.push((inputs.into(), Arc::clone(&plan)));
        Ok(plan)
    }

    fn kept(&self, inputs: &[(DType, Shape)]) -> Option<Arc<Plan>> {
        let mut plans = self.plans.lock();
        let at = plans.iter().rposition(|(key, _)| key[..] == *inputs)?;
        let entry = plans.remove(at);
        let plan = Arc::clone(&entry.1);
        plans.push(entry);
        Some(plan)
    }

    /// Runs the program on `inputs`, with activations in `workspace`.
    pub fn run(
        &self,
        inputs: &[Tensor],
        env: &Env<'_>,
        workspace: &mut Workspace,
    ) -> Result<Vec<Tensor>> {
        let plan = self.plan_for(inputs, env)?;
        run::run(&plan, inputs, env, workspace)
    }

    /// Like [`Program::run`], and calls `observe` after each step of the plan, with its number.
    pub fn run_observed(
        &self,
        inputs: &[Tensor],
        env: &Env<'_>,
        workspace: &mut Workspace,
        observe: &mut dyn FnMut(usize),
    ) -> Result<Vec<Tensor>> {
        let plan = self.plan_for(inputs, env)?;
        run::run_observed(&plan, inputs, env, workspace, observe)
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
        let key: Key = inputs.iter().map(|input| (input.dtype(), input.shape().clone())).collect();
        self.plan(&key, env)
    }
}

/// Packs the constant inputs of every node that wants them so.
fn pack(graph: &Graph) -> Result<Vec<Arc<[Option<Packed>]>>> {
    let none: Arc<[Option<Packed>]> = Arc::new([]);
    let pack_node = |node: &crate::graph::Node| {
        let Body::Op { op, .. } = &node.body else { return Ok(Arc::clone(&none)) };
        let packed = node.inputs.iter().enumerate().map(|(i, port)| {
            let Some(weight) = graph.node(port.node).as_const() else { return Ok(None) };
            op.pack(i, weight).map_err(|error| Error::node(&node.name, error))
        });
        let packed: Vec<Option<Packed>> = packed.collect::<Result<_>>()?;
        let any = packed.iter().any(Option::is_some);
        Ok(if any { packed.into() } else { Arc::clone(&none) })
    };
    graph.nodes.iter().map(pack_node).collect()
}
