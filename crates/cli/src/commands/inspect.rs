//! `tensord inspect`: shows what a SavedModel holds, and whether it would be batched.

mod memory;
mod show;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use graph::{Request, Source};
use savedmodel::{Assignment, Endpoint, SavedModel, Signature};
use serde_json::{Value, json};
use server::say;
use tensorflow::HOW_TO_INSTALL;

use self::memory::Memory;
use super::load;
use crate::table::Perform;

/// Show the signatures, ops and weights of a model
///
/// Signatures are shown as `saved_model_cli show --all` shows them. Nothing is loaded unless
/// --memory or --rows asks for it.
#[derive(Debug, Parser)]
#[command(rename_all = "snake_case")]
pub(crate) struct Inspect {
    /// A SavedModel, or a model with versions: then the newest
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Predict the memory that the model takes, by the rows of a batch
    #[arg(long)]
    memory: bool,
    /// Load the weights, and say of which signatures the requests are batched, or why not
    #[arg(long)]
    rows: bool,
    /// Neither of both, as it is without them
    #[arg(long, hide = true, conflicts_with_all = ["memory", "rows"])]
    quick: bool,
    /// The tags of the meta graph
    #[arg(long, default_value = "serve")]
    tags: String,
}

impl Perform for Inspect {
    fn perform(self) -> Result<ExitCode> {
        main(&self)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn main(args: &Inspect) -> Result<()> {
    let report = Report::read(args)?;
    if args.json {
        say!("{:#}", report.to_json());
    } else {
        say!("{}", show::report(&report).trim_end());
    }
    Ok(())
}

/// The report on a model.
struct Report {
    model: SavedModel,
    /// The ops of all signatures and of the init op, with the largest count of any one of them.
    ops: BTreeMap<String, usize>,
    /// For each signature the ops that we do not have.
    unsupported: BTreeMap<String, BTreeMap<String, usize>>,
    /// The variables that the signatures use, with their bytes, largest first.
    weights: Vec<(String, String, u64)>,
    engine: Chosen,
    /// For each signature whether its rows are independent, or why not; nothing if it was not
    /// looked at.
    rows: BTreeMap<String, std::result::Result<(), String>>,
    /// The memory that it takes, if that was asked for.
    memory: Option<Memory>,
}

/// The engine that would serve a model.
struct Chosen {
    name: &'static str,
    why: String,
}

impl Chosen {
    /// As `--engine=auto` would choose.
    fn new(unsupported: &BTreeMap<String, BTreeMap<String, usize>>) -> Result<Self> {
        let library = config::engines::find("")?;
        let gpus = if library.is_some() { server::gpu_names() } else { Vec::new() };
        if let Some(gpu) = gpus.first() {
            let why =
                format!("it would be placed on gpu:0 ({gpu}), which native has no kernels for");
            return Ok(Self { name: "tensorflow", why });
        }
        if unsupported.is_empty() {
            return Ok(Self { name: "native", why: "it has every op".to_owned() });
        }
        let lacks = format!("native lacks {}", lacking(&most(unsupported)));
        Ok(match library {
            Some(library) => {
                Self { name: "tensorflow", why: format!("{lacks}; {}", library.display()) }
            }
            None => Self { name: "none", why: format!("{lacks}; {HOW_TO_INSTALL}") },
        })
    }
}

/// The ops of all, each with its largest count.
fn most(all: &BTreeMap<String, BTreeMap<String, usize>>) -> BTreeMap<String, usize> {
    let mut most = BTreeMap::new();
    for (op, count) in all.values().flatten() {
        let largest = most.entry(op.clone()).or_insert(0);
        *largest = (*count).max(*largest);
    }
    most
}

impl Report {
    fn read(args: &Inspect) -> Result<Self> {
        let tags = config::split_tags(&args.tags);
        let mut model = SavedModel::open(&config::open_model(&args.dir)?, &tags)?;
        let definitions = std::mem::take(&mut model.ops);
        let restored = model.restore()?.assignments;
        // From here on the graph is the source's.
        let source = Source::new(std::mem::take(&mut model.graph), definitions)?;
        let (mut ops, mut unsupported) = (BTreeMap::new(), BTreeMap::new());
        let mut used = BTreeSet::new();
        for (name, request) in requests(&model) {
            let counts = source.op_counts(&request)?;
            // Tracing decides, as when the model is loaded: it rewrites some ops that we lack.
            match source.trace(&request) {
                Ok(graph) => used.extend(graph::variables(&graph, &source)?.into_keys()),
                Err(graph::Error::MissingOps(missing)) => {
                    unsupported.insert(name, missing.0);
                }
                Err(error) => return Err(error.into()),
            }
            for (op, count) in counts {
                let most = ops.entry(op).or_insert(0);
                *most = count.max(*most);
            }
        }
        let used = unsupported.is_empty().then_some(&used);
        let weights = weights(&model, restored, used)?;
        let engine = Chosen::new(&unsupported)?;
        let rows = if args.rows { rows(args, &model) } else { BTreeMap::new() };
        let folder = model.dir().path().display().to_string();
        let memory = args.memory.then(|| Memory::predict(&folder, &tags)).transpose()?;
        Ok(Self { model, ops, unsupported, weights, engine, rows, memory })
    }

    fn weights_bytes(&self) -> u64 {
        self.weights.iter().map(|(_, _, bytes)| bytes).sum()
    }

    fn to_json(&self) -> Value {
        let endpoint = |endpoint: &Endpoint| {
            let spec = &endpoint.spec;
            let dims = spec
                .dims()
                .map(|dims| dims.iter().map(|dim| dim.known().unwrap_or(-1)).collect::<Vec<i64>>());
            json!({"tensor": endpoint.tensor, "dtype": spec.dtype.name(), "shape": dims})
        };
        let endpoints = |all: &BTreeMap<String, Endpoint>| {
            all.iter().map(|(alias, e)| (alias.clone(), endpoint(e))).collect::<BTreeMap<_, _>>()
        };
        let signature = |signature: &Signature| {
            let rows = self.rows.get(&signature.name);
            json!({
                "method": signature.method,
                "inputs": endpoints(&signature.inputs),
                "outputs": endpoints(&signature.outputs),
                "defaults": signature.defaults.keys().collect::<Vec<_>>(),
                "unsupported_ops": self.unsupported.get(&signature.name),
                "rows_are_independent": rows.map(std::result::Result::is_ok),
                "why_rows_are_mixed": rows.and_then(|rows| rows.as_ref().err()),
            })
        };
        let signatures: BTreeMap<&String, Value> =
            self.model.signatures.iter().map(|(name, s)| (name, signature(s))).collect();
        let unsupported = most(&self.unsupported);
        let weight =
            |row: &(String, String, u64)| json!({"name": row.0, "type": row.1, "bytes": row.2});
        json!({
            "tags": self.model.tags,
            "tensorflow_version": self.model.tensorflow_version,
            "signatures": signatures,
            "ops": self.ops,
            "unsupported_ops": unsupported,
            "engine": self.engine.name,
            "engine_reason": self.engine.why,
            "weights_bytes": self.weights_bytes(),
            "weights": self.weights.iter().map(weight).collect::<Vec<_>>(),
            "memory": self.memory,
        })
    }
}

/// Returns for each signature the proof that its rows are independent or why not, as a server would
/// find when it loads the model.
fn rows(args: &Inspect, model: &SavedModel) -> BTreeMap<String, std::result::Result<(), String>> {
    let loaded = load(&args.dir, &args.tags, 1);
    let of = |name: &String| match &loaded {
        Ok(loaded) => match loaded.engine.rows(name) {
            Some(proof) => proof.clone().map_err(|mixing| mixing.to_string()),
            None => Err("it cannot be run".to_owned()),
        },
        Err(error) => Err(format!("it cannot be loaded: {error:#}")),
    };
    model.signatures.keys().map(|name| (name.clone(), of(name))).collect()
}

/// Returns the requests that are run: the signatures by name, and the init op.
fn requests(model: &SavedModel) -> Vec<(String, Request)> {
    let mut requests: Vec<(String, Request)> = Vec::new();
    for (name, signature) in &model.signatures {
        let feed = |e: &Endpoint| (e.tensor.clone(), tensor::Spec::unknown(e.spec.dtype));
        let request = Request {
            feeds: signature.inputs.values().map(feed).collect(),
            fetches: signature.outputs.values().map(|e| e.tensor.clone()).collect(),
            targets: Vec::new(),
        };
        requests.push((name.clone(), request));
    }
    if let Some(init_op) = &model.init_op {
        let request = Request { targets: vec![init_op.clone()], ..Request::default() };
        requests.push(("the init op".to_owned(), request));
    }
    requests
}

/// The variables with their types and bytes, largest first: those that are used, or all of them
/// where not every signature could be followed.
fn weights(
    model: &SavedModel,
    restored: Vec<Assignment>,
    used: Option<&BTreeSet<(String, String)>>,
) -> Result<Vec<(String, String, u64)>> {
    let Some(checkpoint) = model.checkpoint()? else { return Ok(Vec::new()) };
    let mut weights = Vec::new();
    for assignment in restored {
        let id = assignment.variable;
        let key = (id.container, id.name.clone());
        if used.is_some_and(|used| !used.contains(&key)) {
            continue;
        }
        let entry = checkpoint.entry(&assignment.source.key)?;
        let kind = format!("{}{}", entry.dtype(), entry.shape());
        weights.push((id.name, kind, entry.n_bytes()));
    }
    weights.sort_by(|a, b| b.2.cmp(&a.2).then_with(|| a.0.cmp(&b.0)));
    Ok(weights)
}

/// Ops that we do not have, with how often public graphs use them.
fn lacking(ops: &BTreeMap<String, usize>) -> String {
    let one = |(op, count): (&String, &usize)| format!("{op} ×{count} ({})", ops::usage(op));
    ops.iter().map(one).collect::<Vec<_>>().join(", ")
}
