//! `tensord predict`: runs a model offline on NumPy archives.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Parser;
use device::Workspace;
use session::{DEFAULT_SIGNATURE, Run, Signature};
use tensor::Tensor;

use super::load;
use crate::npz;
use crate::table::Perform;

/// Run a model once, on the arrays of a NumPy archive
#[derive(Debug, Parser)]
#[command(rename_all = "snake_case")]
pub(crate) struct Predict {
    /// A SavedModel, or a model with versions: then the newest
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// The signature to run
    #[arg(long, default_value = DEFAULT_SIGNATURE)]
    signature: String,
    /// The archive (.npz) with an array for each input
    #[arg(long, value_name = "FILE")]
    inputs: Option<PathBuf>,
    /// The archive (.npz) to write, with an array for each output
    #[arg(long, value_name = "FILE")]
    outputs: PathBuf,
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
    let n_threads = if args.threads == 0 { config::n_cpus() } else { args.threads };
    let loaded = load(&args.dir, &args.tags, n_threads)?;
    let signature = match loaded.servable.signature(&args.signature) {
        Some(signature) => Arc::clone(signature?),
        None => {
            let names: Vec<&str> = loaded.servable.signatures.keys().map(String::as_str).collect();
            bail!("no signature is called {}; there are {}", args.signature, names.join(", "));
        }
    };
    let run = Run {
        signature: signature.name.clone(),
        inputs: inputs(args, &signature)?,
        outputs: (0..signature.outputs.len()).collect(),
        deadline: None,
        level: None,
        is_cancelled: Arc::default(),
    };
    let outputs = loaded.engine.run(&run, &mut Workspace::allocate(0)?)?;
    let outputs = signature.outputs.keys().cloned().zip(outputs).collect();
    npz::write(&args.outputs, &outputs)
}

/// The inputs of a signature, from the archive or by default.
fn inputs(args: &Predict, signature: &Signature) -> Result<Vec<Tensor>> {
    let mut given = match &args.inputs {
        Some(path) => npz::read(path)?,
        None => Default::default(),
    };
    let mut inputs = Vec::new();
    for (alias, endpoint) in &signature.inputs {
        let value = given.remove(alias).or_else(|| signature.defaults.get(alias).cloned());
        let value = value.with_context(|| format!("the archive has no array for input {alias}"))?;
        if value.dtype() != endpoint.spec.dtype {
            bail!("input {alias} is {}, but the array is {}", endpoint.spec.dtype, value.dtype());
        }
        inputs.push(value);
    }
    if let Some(extra) = given.keys().next() {
        let names: Vec<&str> = signature.inputs.keys().map(String::as_str).collect();
        bail!("array {extra} is no input; the inputs are {}", names.join(", "));
    }
    Ok(inputs)
}
