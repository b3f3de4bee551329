//! From a SavedModel to a servable.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use device::{Category, Holder, Home, Owner};
use graph::{Adoption, Bindings, Build, Graph, Homes, Library, Program, Request};
use metrics::Headway;
use ops::{Cancel, Env, NoFunctions, Resources};
use pool::Pool;
use rustc_hash::FxHashSet;
use savedmodel::SavedModel;
use session::{Endpoint, Servable, Signature, Weights};
use status::{Code, Result, Status};
use storage::Storage;
use tensor::{Shape, Spec, Strings, Tensor};

use crate::assets::Assets;
use crate::engine::{Executor, Lease, Model, NativeEngine};
use crate::error::read_error;
use crate::programs::Programs;
use crate::rehearsal::{Batch, Rehearsal, rehearsal_owner};
use crate::rows;
use crate::tables;
use crate::variables::{self, Uses, WeightKey};

/// The settings of loading.
#[derive(Debug, Clone)]
pub struct Options {
    /// The tags of the meta graph.
    pub tags: Vec<String>,
    /// The number of plans that each signature keeps.
    pub plans_max: usize,
}

/// A loaded model.
pub struct Loaded {
    /// Ready to be served.
    pub servable: Servable,
    /// The engine that runs it, for those who want to look inside.
    pub engine: Arc<NativeEngine>,
}

/// Loads the SavedModel in `dir`. A signature that needs an op we do not have is refused, with all
/// that it misses; if that leaves none, so is the model.
pub fn load(dir: &Storage, options: &Options, executor: &Executor) -> Result<Loaded> {
    Opened::open(dir, options)?.load(options, executor, None)
}

/// A SavedModel that was read as far as its weights: what it will need is known.
pub struct Opened {
    model: SavedModel,
    source: graph::Source,
    traced: Traced,
    init: Option<Graph>,
    /// The bytes of its variables.
    variables_bytes: u64,
    /// The same with other constants.
    weights_bytes: u64,
    weight_keys: Vec<WeightKey>,
    /// The batch whose plan is to be made when it is loaded.
    ahead: OnceLock<Batch>,
    /// The place where loading it says how far it is.
    headway: Option<Arc<Headway>>,
}

impl Opened {
    /// Reads the SavedModel in `dir`, but none of its weights.
    pub fn open(dir: &Storage, options: &Options) -> Result<Self> {
        let mut model = SavedModel::open(dir, &options.tags).map_err(|error| read_error(&error))?;
        model.check_index().map_err(|error| read_error(&error))?;
        let restore_graph = model.graph.clone();
        let ops = std::mem::take(&mut model.ops);
        let source = graph::Source::new(restore_graph, ops)?;
        let mut traced = Traced::new(&model, &source)?;
        let init = traced.init(&model, &source)?;
        let (variables_bytes, weight_keys) = variables::predict(&model, &traced.uses)?;
        let nodes = traced.graphs.values().flat_map(|graph| &graph.nodes);
        let constants = nodes.filter_map(|node| node.as_const());
        let constants_bytes = constants.map(Tensor::n_bytes).sum::<usize>() as u64;
        let weights_bytes = variables_bytes + constants_bytes;
        let (ahead, headway) = (OnceLock::new(), None);
        Ok(Self {
            model,
            source,
            traced,
            init,
            variables_bytes,
            weights_bytes,
            weight_keys,
            ahead,
            headway,
        })
    }

    /// Says that a batch fits only by a search, whose plan is then made when it is loaded, and not
    /// by the first request.
    pub fn plan_ahead(&self, batch: Batch) {
        // The first one stays; there is no other.
        drop(self.ahead.set(batch));
    }

    /// Has loading it say in `headway` how far it is.
    #[must_use]
    pub fn tell(self, headway: Arc<Headway>) -> Self {
        Self { headway: Some(headway), ..self }
    }

    /// The bytes of its weights, and of other constants.
    pub fn weights_bytes(&self) -> u64 {
        self.weights_bytes
    }

    /// The keys of its weights.
    pub fn weight_keys(&self) -> &[WeightKey] {
        &self.weight_keys
    }

    /// Returns whether a signature writes a variable or a table, so that a second copy would be
    /// another model.
    pub fn keeps_state(&self) -> bool {
        !self.traced.written.is_empty() || self.traced.fills_tables
    }

    /// Learns what loading it takes on devices of a kind, by a load in which nothing large is read,
    /// computed or written.
    pub fn rehearse(
        &self,
        options: &Options,
        pool: &Arc<Pool>,
        kind: device::Kind,
    ) -> Result<Rehearsal> {
        let memory = |error: device::Error| Status::exhausted(error.to_string());
        let owner = rehearsal_owner(kind).map_err(memory)?;
        let Built { model, refused, .. } = self.build(options, pool, Some(Arc::clone(&owner)))?;
        let mut signatures = self.traced.signatures.clone();
        signatures.retain(|name, _| !refused.contains_key(name));
        Ok(Rehearsal::new(model, signatures, pool, owner))
    }

    /// Loads it in the memory of `owner`, who pays for it; nobody counts it without one.
    pub fn load(
        self,
        options: &Options,
        executor: &Executor,
        owner: Option<Arc<Owner>>,
    ) -> Result<Loaded> {
        let Built { model, weights, refused } = self.build(options, &executor.pool, owner)?;
        if let Some(owner) = &model.lease.0 {
            // A driver that refuses is asked again when the space is trimmed next.
            drop(owner.space().arenas().trim_read("load"));
        }
        let engine = Arc::new(NativeEngine::new(executor.clone(), model)?);
        if let Some(batch) = self.ahead.get() {
            // What cannot be planned now fails when it is asked for.
            drop(engine.plan_ahead(batch));
        }
        let Traced { mut signatures, refused: mut all_refused, .. } = self.traced;
        signatures.retain(|name, _| !refused.contains_key(name));
        all_refused.extend(refused);
        let servable = Servable {
            signatures,
            signature_defs: self.model.signature_defs,
            refused: all_refused,
            weights,
            engine: Arc::clone(&engine) as Arc<dyn session::Engine>,
        };
        Ok(Loaded { servable, engine })
    }

    /// Tells which phase begins, if anybody listens.
    fn begin(&self, phase: &'static str, total_bytes: u64) {
        if let Some(headway) = &self.headway {
            headway.begin(phase, total_bytes);
        }
    }

    /// Reads the weights and builds the programs.
    fn build(
        &self,
        options: &Options,
        pool: &Arc<Pool>,
        owner: Option<Arc<Owner>>,
    ) -> Result<Built> {
        let _scope = owner.as_ref().map(|owner| device::booked_to(owner, Category::Weights));
        // Made first, and so dropped last if the load fails.
        let lease = Lease(owner);
        let (model, source, traced) = (&self.model, &self.source, &self.traced);
        let resources = Resources::default();
        let owner = lease.0.as_ref();
        self.begin("reading weights", self.variables_bytes);
        let headway = self.headway.as_ref();
        let mut weights = variables::restore(model, &traced.uses, &resources, owner, headway)?;
        let graphs = traced.graphs.values().chain(&self.init);
        tables::restore(model, graphs, &resources, &mut weights)?;
        let is_split = owner.is_some_and(|owner| owner.is_split());
        let homes = if is_split { Homes::Two { border: Home::Host } } else { Homes::One };
        let holder = owner.map(|owner| owner.holder());
        let loading = Loading { source, model, pool, options, homes, holder };
        self.begin("preparing", 0);
        loading.run_init(self.init.clone(), &resources)?;
        let built = loading.build(traced, &resources)?;
        let BuiltPrograms { mut programs, mut library, refused } = built;
        let all = programs.values().flat_map(|one| one.all());
        variables::release(all, &library, &traced.uses, &resources);
        // Programs that are packed no longer know the functions that all of them call.
        let rows = rows::prove(&traced.signatures, &traced.writes, &programs, &library);
        let all = programs.values_mut().flat_map(|one| one.all_mut());
        self.begin("packing weights", 0);
        graph::pack(all, &mut library)?;
        let workspaces = parking_lot::Mutex::default();
        let specs = traced.specs.clone();
        let end = Arc::default();
        let model = Model { programs, library, resources, specs, rows, workspaces, lease, end };
        Ok(Built { model, weights, refused })
    }
}

/// A model whose weights were read and whose programs were built.
struct Built {
    model: Model,
    weights: Weights,
    /// The signatures that the values of variables do not fit, each with the reason.
    refused: BTreeMap<String, Status>,
}

/// The signatures as graphs.
struct Traced {
    signatures: BTreeMap<String, Arc<Signature>>,
    refused: BTreeMap<String, Status>,
    graphs: BTreeMap<String, Graph>,
    /// The specs of each signature's inputs.
    specs: BTreeMap<String, Vec<Spec>>,
    uses: Uses,
    /// The variables that any signature writes, by container and name.
    written: FxHashSet<(String, String)>,
    /// The signatures that leave something behind when they run.
    writes: FxHashSet<String>,
    /// `true` if any signature changes a table.
    fills_tables: bool,
}

impl Traced {
    fn new(model: &SavedModel, source: &graph::Source) -> Result<Self> {
        let mut traced = Self {
            signatures: BTreeMap::new(),
            refused: BTreeMap::new(),
            graphs: BTreeMap::new(),
            specs: BTreeMap::new(),
            uses: Uses::new(),
            written: FxHashSet::default(),
            writes: FxHashSet::default(),
            fills_tables: false,
        };
        let lacking = variables::lacking(model);
        for (name, signature) in &model.signatures {
            match traced.take(signature, source, &lacking) {
                Ok(()) => {}
                Err(error) if matches!(error.code, Code::Unimplemented | Code::NotFound) => {
                    traced.refused.insert(name.clone(), error);
                }
                Err(error) => return Err(error),
            }
        }
        if traced.graphs.is_empty() && !traced.refused.is_empty() {
            return Err(refuse_all(&traced.refused));
        }
        let written = traced.uses.iter().filter(|(_, variable)| variable.is_written);
        traced.written = written.map(|(key, _)| key.clone()).collect();
        Ok(traced)
    }

    fn take(
        &mut self,
        from: &savedmodel::Signature,
        source: &graph::Source,
        lacking: &BTreeMap<(String, String), String>,
    ) -> Result<()> {
        if let Some((alias, why)) = from.unusable_inputs.first_key_value() {
            let text = format!("signature {}: input {alias} cannot be fed: {why}", from.name);
            return Err(Status::unimplemented(text));
        }
        let signature = Signature::read(from)?;
        // Requests are not held to the signature's shape, only to a dtype.
        let feed = |endpoint: &Endpoint| (endpoint.tensor.clone(), Spec::unknown(endpoint.fed));
        let specs = signature.inputs.values();
        let specs = specs.map(|endpoint| endpoint.spec.with_dtype(endpoint.fed)).collect();
        let request = Request {
            feeds: signature.inputs.values().map(feed).collect(),
            fetches: signature.outputs.values().map(|output| output.tensor.clone()).collect(),
            targets: Vec::new(),
        };
        let named = |error: graph::Error| {
            let status = Status::from(error);
            let verb = if status.code == Code::Unimplemented {
                " needs"
            } else if status.code == Code::InvalidArgument {
                ":"
            } else {
                return status;
            };
            status.map_message(|text| format!("signature {}{verb} {text}", from.name))
        };
        let graph = source.trace(&request).map_err(named)?;
        let uses = graph::variables(&graph, source).map_err(named)?;
        if let Some(tensor) = uses.keys().find_map(|variable| lacking.get(variable)) {
            let name = &from.name;
            let text = format!("signature {name}: tensor {tensor:?} is not in the checkpoint");
            return Err(Status::not_found(text));
        }
        let mut fills = false;
        source.visit(&graph, &mut |node| fills |= rows::fills_table(node)).map_err(named)?;
        self.fills_tables |= fills;
        if fills || rows::writes(&graph) || uses.values().any(|variable| variable.is_written) {
            self.writes.insert(from.name.clone());
        }
        variables::merge(&mut self.uses, uses);
        self.graphs.insert(from.name.clone(), graph);
        self.specs.insert(from.name.clone(), specs);
        self.signatures.insert(from.name.clone(), Arc::new(signature));
        Ok(())
    }

    /// The graph of the init op, whose variables must be there too.
    fn init(&mut self, model: &SavedModel, source: &graph::Source) -> Result<Option<Graph>> {
        let Some(init_op) = &model.init_op else { return Ok(None) };
        let string =
            |asset: &savedmodel::Asset| (asset.tensor.clone(), Spec::scalar(tensor::DType::String));
        let request = Request {
            feeds: model.assets.iter().map(string).collect(),
            fetches: Vec::new(),
            targets: vec![init_op.clone()],
        };
        let graph = source.trace(&request)?;
        variables::merge(&mut self.uses, graph::variables(&graph, source)?);
        Ok(Some(graph))
    }
}

/// The programs of the signatures, and the functions that they call.
struct BuiltPrograms {
    programs: BTreeMap<String, Box<Programs>>,
    library: Library,
    /// The signatures that cannot be built, each with the reason.
    refused: BTreeMap<String, Status>,
}

/// The inputs of the later stages of loading.
struct Loading<'a> {
    source: &'a graph::Source,
    model: &'a SavedModel,
    pool: &'a Arc<Pool>,
    options: &'a Options,
    homes: Homes,
    /// The holder that pays for it, if any.
    holder: Option<&'a Holder>,
}

impl Loading<'_> {
    /// Runs the init op: it fills tables, and variables that are not in the checkpoint.
    fn run_init(&self, graph: Option<Graph>, resources: &Resources) -> Result<()> {
        let Some(graph) = graph else { return Ok(()) };
        let _name = device::named(Arc::from(self.model.init_op.as_deref().unwrap_or("init")));
        let assets = Assets { dir: self.model.dir(), assets: &self.model.assets };
        let cancel = Cancel::default();
        let env = Env {
            pool: self.pool,
            functions: &NoFunctions,
            files: &assets,
            resources,
            cancel: &cancel,
        };
        // While it runs, every variable may change.
        let uses = graph::variables(&graph, self.source)?;
        let written = uses.into_keys().collect();
        let bindings = Bindings::new(resources, &written);
        let options = graph::Options { plans_max: 1, homes: self.homes };
        let build = Build { bindings: &bindings, env: &env, options };
        let mut library = Library::default();
        library.add(self.source, &graph, &build)?;
        let env = Env { functions: &library, ..env };
        let program = Program::build(graph, &Build { env: &env, ..build });
        let program = program?;
        let inputs =
            self.model.assets.iter().map(|asset| {
                Tensor::from_strings(Shape::scalar(), Strings::collect([&asset.path])?)
            });
        let inputs = inputs.collect::<tensor::Result<Vec<Tensor>>>();
        let inputs = inputs.map_err(ops::Error::from)?;
        let mut workspace =
            device::Workspace::allocate(0).map_err(|e| Status::exhausted(e.to_string()))?;
        program.run(&inputs, &env, &mut workspace)?;
        Ok(())
    }

    /// Builds the programs of the signatures. A signature that cannot be built with the values of
    /// its variables is refused; the others serve, as in TensorFlow.
    fn build(&self, traced: &Traced, resources: &Resources) -> Result<BuiltPrograms> {
        let cancel = Cancel::default();
        let assets = Assets { dir: self.model.dir(), assets: &self.model.assets };
        let bindings = Bindings::new(resources, &traced.written);
        let env = Env {
            pool: self.pool,
            functions: &NoFunctions,
            files: &assets,
            resources,
            cancel: &cancel,
        };
        let options = graph::Options { plans_max: self.options.plans_max, homes: self.homes };
        let build = Build { bindings: &bindings, env: &env, options };
        let (mut library, mut refused) = (Library::default(), BTreeMap::new());
        for (name, graph) in &traced.graphs {
            let _name = device::named(self.title(name));
            let added = library.add(self.source, graph, &build);
            refuse_unfit(&mut refused, name, added.map_err(Status::from))?;
        }
        let env = Env { functions: &library, ..env };
        let build = Build { env: &env, ..build };
        let mut programs = BTreeMap::new();
        let mut adoption = Adoption::default();
        for (name, graph) in &traced.graphs {
            if refused.contains_key(name) {
                continue;
            }
            // What passes make of constants goes by the signature.
            let title = self.title(name);
            let _name = device::named(Arc::clone(&title));
            let graph = adoption.take(graph)?;
            let specs = &traced.specs[name];
            let built = Program::build_both(graph, specs, &build).map_err(Status::from);
            if let Some(built) = refuse_unfit(&mut refused, name, built)? {
                // A map has room for eleven, and most models have one.
                programs.insert(name.clone(), Box::new(Programs::new(title, built, specs)));
            }
        }
        if programs.is_empty() && !refused.is_empty() {
            return Err(refuse_all(&refused));
        }
        Ok(BuiltPrograms { programs, library, refused })
    }

    /// The title under which the memory of a signature is booked.
    fn title(&self, signature: &str) -> Arc<str> {
        match self.holder {
            Some(holder) => format!("{holder} {signature}").into(),
            None => signature.into(),
        }
    }
}

/// Notes a signature that cannot be built because something does not fit; other errors are those of
/// the whole load.
fn refuse_unfit<T>(
    refused: &mut BTreeMap<String, Status>,
    name: &str,
    built: Result<T>,
) -> Result<Option<T>> {
    match built {
        Ok(built) => Ok(Some(built)),
        Err(error) if error.code == Code::InvalidArgument => {
            let error = error.map_message(|text| format!("signature {name}: {text}"));
            refused.insert(name.to_owned(), error);
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The refusal of a model none of whose signatures can be run.
fn refuse_all(refused: &BTreeMap<String, Status>) -> Status {
    let reasons: Vec<String> = refused.values().map(ToString::to_string).collect();
    let text = reasons.join("; ");
    let has = |code| refused.values().any(|error| error.code == code);
    let codes = [Code::NotFound, Code::InvalidArgument];
    Status::new(codes.into_iter().find(|code| has(*code)).unwrap_or(Code::Unimplemented), text)
}
