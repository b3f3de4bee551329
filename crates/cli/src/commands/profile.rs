//! `tensord profile`: where the time and the memory of a model go, step by step.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use device::Workspace;
use server::say;
use session::DEFAULT_SIGNATURE;

use super::{inputs, load_for};
use crate::table::Perform;

mod report;
mod watch;

use report::Profiled;
use watch::Watch;

/// Show where the time of a model goes, by op and by step
#[derive(Debug, Parser)]
#[command(rename_all = "snake_case")]
pub(crate) struct Profile {
    /// A SavedModel, or a model with versions: then the newest
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// The signature to run
    #[arg(long, default_value = DEFAULT_SIGNATURE)]
    signature: String,
    /// Rows of each input
    #[arg(long, default_value_t = 1)]
    batch: usize,
    /// Threads within one run; 0 means one for each CPU
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// How many runs to add up, after one to warm up
    #[arg(long, default_value_t = 20)]
    runs: u32,
    /// How many steps to list
    #[arg(long, default_value_t = 15)]
    steps: usize,
    /// An archive (.npz) with the inputs, instead of made-up ones
    #[arg(long, value_name = "FILE")]
    inputs: Option<PathBuf>,
    /// Write a trace for Chrome's trace viewer
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The tags of the meta graph
    #[arg(long, default_value = "serve")]
    tags: String,
    /// Plan as for a GPU, played by the host: strings and tables stay on the host, and copies
    /// between the two are steps
    #[arg(long)]
    gpu: bool,
}

impl Perform for Profile {
    fn perform(self) -> Result<ExitCode> {
        main(&self)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn main(args: &Profile) -> Result<()> {
    let n_threads = if args.threads == 0 { config::n_cpus() } else { args.threads };
    let kind = if args.gpu { device::Kind::Gpu } else { device::Kind::Cpu };
    let owner = native::measure::owner_alone(kind)?;
    let loaded = load_for(&args.dir, &args.tags, n_threads, owner)?;
    let run = inputs::run(&loaded, &args.signature, args.batch, args.inputs.as_deref())?;
    let mut workspace = Workspace::allocate(0)?;
    let watch = Watch::new();
    let plan = loaded.engine.observe(&run, &mut workspace, &watch)?;
    watch.forget_times();
    let n_runs = args.runs.max(1);
    for _ in 0..n_runs {
        loaded.engine.observe(&run, &mut workspace, &watch)?;
    }
    let watched = watch.finish(n_runs);
    let n_own = plan.snapshot().len();
    let profiled = Profiled { steps: &watched.steps, n_own };
    if args.json {
        say!("{:#}", profiled.to_json((plan.work_bytes(), plan.live_bytes())));
    } else {
        say!("{}", profiled.by_op());
        say!("{}", profiled.slowest(args.steps));
        say!("{}", profiled.memory((plan.work_bytes(), plan.live_bytes())));
        if args.gpu {
            say!("{}", profiled.homes((plan.work_bytes(), plan.host_work_bytes())));
        }
    }
    if let Some(path) = &args.trace {
        std::fs::write(path, profiled.trace(&watched.last_run))?;
    }
    Ok(())
}
