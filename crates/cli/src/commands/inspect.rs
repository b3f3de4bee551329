//! `tensord inspect`: shows what a SavedModel holds, and whether it would be batched.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use graph::{Request, Source};
use savedmodel::{Endpoint, SavedModel, Signature};
use serde_json::{Value, json};
use server::say;
use tensorflow::HOW_TO_INSTALL;

use super::load;
use crate::table::Perform;

/// Show the signatures, ops and weights of a model
#[derive(Debug, Parser)]
#[command(rename_all = "snake_case")]
pub(crate) struct Inspect {
    /// A SavedModel, or a model with versions: then the newest
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Do not load the weights: whether rows are independent is not told then
    #[arg(long)]
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
        report.print();
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
        let mut model =
            SavedModel::open(&config::open_model(&args.dir)?, &config::split_tags(&args.tags))?;
        let definitions = std::mem::take(&mut model.ops);
        let source = Source::new(model.graph.clone(), definitions)?;
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
        let weights = weights(&model, &used, unsupported.is_empty())?;
        let engine = Chosen::new(&unsupported)?;
        let rows = if args.quick { BTreeMap::new() } else { rows(args, &model) };
        Ok(Self { model, ops, unsupported, weights, engine, rows })
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
        })
    }

    fn print(&self) {
        let tags: Vec<&str> = self.model.tags.iter().map(String::as_str).collect();
        say!("tags        {}", tags.join(", "));
        say!("written by  TensorFlow {}", self.model.tensorflow_version);
        say!("engine      {}: {}", self.engine.name, self.engine.why);
        for (name, signature) in &self.model.signatures {
            say!("\nsignature {name}  ({})", signature.method);
            for (alias, endpoint) in &signature.inputs {
                say!("  in   {alias:<20} {}", endpoint.spec);
            }
            for (alias, endpoint) in &signature.outputs {
                say!("  out  {alias:<20} {}", endpoint.spec);
            }
            match self.rows.get(name) {
                Some(Ok(())) => say!("  rows are independent: requests are batched"),
                Some(Err(why)) => say!("  rows are not known to be independent: {why}"),
                None => {}
            }
            if let Some(missing) = self.unsupported.get(name) {
                say!("  cannot run: {}", lacking(missing));
            }
        }
        say!("\nops         {}", counted(&self.ops));
        say!("\nweights     {} in {} variables", bytes(self.weights_bytes()), self.weights.len());
        for (name, kind, size) in self.weights.iter().take(10) {
            say!("  {:>10}  {kind:<24} {name}", bytes(*size));
        }
        if self.weights.len() > 10 {
            say!("  and {} smaller ones (--json lists all)", self.weights.len() - 10);
        }
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

/// The variables with their types and bytes, largest first; all of them if not every signature
/// could be followed.
fn weights(
    model: &SavedModel,
    used: &BTreeSet<(String, String)>,
    is_complete: bool,
) -> Result<Vec<(String, String, u64)>> {
    let Some(checkpoint) = model.checkpoint()? else { return Ok(Vec::new()) };
    let mut weights = Vec::new();
    for assignment in model.restore()?.assignments {
        let id = assignment.variable;
        if is_complete && !used.contains(&(id.container, id.name.clone())) {
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

fn counted(ops: &BTreeMap<String, usize>) -> String {
    let mut ops: Vec<_> = ops.iter().collect();
    ops.sort_by(|a, b| b.1.cmp(a.1).then_with(|| a.0.cmp(b.0)));
    ops.iter().map(|(op, count)| format!("{op} ×{count}")).collect::<Vec<_>>().join(", ")
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn bytes(n: u64) -> String {
    match n {
        0..1024 => format!("{n} B"),
        1024..1_048_576 => format!("{:.1} KiB", n as f64 / 1024.0),
        _ => format!("{:.1} MiB", n as f64 / 1_048_576.0),
    }
}
