//! `tensord predict`: runs a model once, from its folder or on a running server.

mod given;
mod remote;
mod show;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Parser;
use device::Workspace;
use json::Format;
use native::Loaded;
use server::say;
use session::{DEFAULT_SIGNATURE, Run, Signature};
use tensor::Tensor;

use self::given::{Given, Wanted};
use super::load;
use crate::npz;
use crate::table::Perform;

/// Run a model once, and print what it answers
///
/// Inputs come from a file (NumPy's .npz, or a JSON body as TensorFlow Serving takes it), from
/// --input, or are made up from the signature.
#[derive(Debug, Parser)]
#[command(rename_all = "snake_case")]
pub(crate) struct Predict {
    /// A SavedModel, or a model with versions: then the newest
    #[arg(value_name = "DIR", required_unless_present = "target", conflicts_with = "target")]
    dir: Option<PathBuf>,
    /// A running server's gRPC address, instead of a folder
    #[arg(long, value_name = "HOST:PORT", requires = "model")]
    target: Option<String>,
    /// The model on the server
    #[arg(long, value_name = "NAME", requires = "target")]
    model: Option<String>,
    /// The version of that model; the newest without it
    #[arg(long, value_name = "N", requires = "target")]
    model_version: Option<i64>,
    /// The signature to run
    #[arg(long, default_value = DEFAULT_SIGNATURE)]
    signature: String,
    /// A file of inputs: .npz with an array for each, or .json with "instances" or "inputs"
    #[arg(long, value_name = "FILE")]
    inputs: Option<PathBuf>,
    /// A file of inputs that is JSON, whatever its name
    #[arg(long, value_name = "FILE", conflicts_with = "inputs")]
    json_inputs: Option<PathBuf>,
    /// The values of an input: numbers or words with commas between them, JSON, or @FILE with
    /// either; again for each input
    #[arg(long = "input", value_name = "NAME=VALUES")]
    values: Vec<String>,
    /// The archive (.npz) to write, with an array for each output, in place of the screen
    #[arg(long, value_name = "FILE")]
    outputs: Option<PathBuf>,
    /// Print the answer that TensorFlow Serving gives over REST
    #[arg(long)]
    json: bool,
    /// The tags of the meta graph
    #[arg(long, default_value = "serve")]
    tags: String,
    /// Threads within one run; 0 means one for each CPU
    #[arg(long, default_value_t = 0)]
    threads: usize,
}

impl Perform for Predict {
    fn perform(self) -> Result<ExitCode> {
        main(&self)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn main(args: &Predict) -> Result<()> {
    let (format, outputs) = match (&args.target, &args.dir) {
        (Some(target), _) => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(remote::predict(args, target))?
        }
        (None, Some(dir)) => here(args, dir)?,
        (None, None) => bail!("a folder or --target is needed"),
    };
    if let Some(path) = &args.outputs {
        npz::write(path, &outputs)?;
    }
    let listed: Vec<(String, Tensor)> = outputs.into_iter().collect();
    if args.json {
        let text = json::write_outputs(&listed, format).map_err(|status| {
            anyhow::anyhow!("{}; --outputs FILE.npz takes every answer", status.message)
        })?;
        say!("{}", String::from_utf8_lossy(&text).trim_end());
    } else if args.outputs.is_none() {
        listed.iter().for_each(|(name, tensor)| say!("{}", show::output(name, tensor)));
    }
    Ok(())
}

/// Outputs by name, and the format of JSON that the inputs came in.
type Answer = (Format, BTreeMap<String, Tensor>);

/// Runs the model in this process.
fn here(args: &Predict, dir: &Path) -> Result<Answer> {
    let n_threads = if args.threads == 0 { config::n_cpus() } else { args.threads };
    let loaded = load(dir, &args.tags, n_threads)?;
    let signature = signature(&loaded, &args.signature)?;
    let wanted = Wanted { inputs: &signature.inputs, defaults: &signature.defaults };
    let Given { format, inputs } = given::gather(args, &wanted)?;
    let run = Run {
        signature: signature.name.clone(),
        inputs: inputs.into_values().collect(),
        outputs: (0..signature.outputs.len()).collect(),
        deadline: None,
        level: None,
        is_cancelled: Arc::default(),
    };
    let outputs = loaded.engine.run(&run, &mut Workspace::allocate(0)?)?;
    Ok((format, signature.outputs.keys().cloned().zip(outputs).collect()))
}

fn signature(loaded: &Loaded, name: &str) -> Result<Arc<Signature>> {
    let names = || loaded.servable.signatures.keys().cloned().collect::<Vec<_>>().join(", ");
    let found = loaded.servable.signature(name);
    let found =
        found.with_context(|| format!("no signature is called {name}; there are {}", names()))?;
    Ok(Arc::clone(found?))
}
