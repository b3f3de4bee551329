//! `tensord bench`: measures a model in this process, or drives a running server.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Parser;
use device::Workspace;
use server::say;
use session::DEFAULT_SIGNATURE;

use super::drive::{self, Drive};
use super::{inputs, load};
use crate::table::Perform;

/// Measure a model in this process, or a running server
///
/// Measures how long one signature of a model takes, and what memory it holds; or, with --target,
/// how fast a running server answers.
#[derive(Debug, Parser)]
#[command(rename_all = "snake_case")]
pub(crate) struct Bench {
    /// A SavedModel, or a model with versions: then the newest
    #[arg(value_name = "DIR", required_unless_present = "target", conflicts_with = "target")]
    dir: Option<PathBuf>,
    /// Drive the server that listens here instead
    #[arg(long, value_name = "HOST:PORT", requires = "model")]
    target: Option<String>,
    /// The model to ask for
    #[arg(long, value_name = "NAME", requires = "target")]
    model: Option<String>,
    /// Ask over REST instead of gRPC
    #[arg(long, requires = "target")]
    rest: bool,
    /// Clients that each wait for an answer before they ask again
    #[arg(long, value_name = "N", default_value_t = 1, requires = "target")]
    concurrency: usize,
    /// Requests a second, whether or not answers keep up
    #[arg(long, value_name = "R", requires = "target", conflicts_with = "concurrency")]
    rate: Option<f64>,
    /// How long a request to a server may take, in milliseconds
    #[arg(long, value_name = "MS", requires = "target")]
    timeout_ms: Option<u64>,
    /// Count requests by when they were due, in slots of so many milliseconds (with --rate, --json)
    #[arg(long, value_name = "MS", requires = "rate", requires = "json")]
    slots_ms: Option<u64>,
    /// The signature to run
    #[arg(long, default_value = DEFAULT_SIGNATURE)]
    signature: String,
    /// Rows of each input
    #[arg(long, default_value_t = 1)]
    batch: usize,
    /// Threads within one run; 0 means one for each CPU
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// How long to measure
    #[arg(long, visible_alias = "duration", value_name = "S", default_value_t = 3.0)]
    seconds: f64,
    /// An archive (.npz) with the inputs, instead of made-up ones
    #[arg(long, value_name = "FILE")]
    inputs: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The tags of the meta graph
    #[arg(long, default_value = "serve")]
    tags: String,
}

impl Perform for Bench {
    fn perform(self) -> Result<ExitCode> {
        main(&self)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn main(args: &Bench) -> Result<()> {
    if let (Some(target), Some(model)) = (&args.target, &args.model) {
        return drive::main(&args.drive(target, model));
    }
    let dir = args.dir.as_deref().unwrap_or(Path::new("."));
    let start = Instant::now();
    let n_threads = if args.threads == 0 { config::n_cpus() } else { args.threads };
    let loaded = load(dir, &args.tags, n_threads)?;
    let loaded_after = start.elapsed();
    let run = inputs::run(&loaded, &args.signature, args.batch, args.inputs.as_deref())?;
    let mut workspace = Workspace::allocate(0)?;
    let mut times = Vec::new();
    let end = Instant::now() + Duration::from_secs_f64(args.seconds);
    while times.len() < 2 || Instant::now() < end {
        let start = Instant::now();
        loaded.engine.run(&run, &mut workspace)?;
        times.push(start.elapsed());
    }
    let first = times.remove(0);
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    let report = serde_json::json!({
        "load_ms": loaded_after.as_secs_f64() * 1e3,
        "first_us": micros(first),
        "median_us": micros(at(50)),
        "p99_us": micros(at(99)),
        "rss_bytes": resident_bytes(),
        "weights_bytes": loaded.servable.weights.bytes,
        "planned_peak_bytes": workspace.len(),
    });
    if args.json {
        say!("{report}");
        return Ok(());
    }
    let number = |key: &str| report[key].as_f64().unwrap_or(0.0);
    say!("load        {:>12.2} ms", number("load_ms"));
    say!("first run   {:>12.1} µs", number("first_us"));
    say!("median      {:>12.1} µs of {} runs", number("median_us"), times.len());
    say!("99 %        {:>12.1} µs", number("p99_us"));
    say!("resident    {:>12.1} MiB", number("rss_bytes") / 1_048_576.0);
    say!("weights     {:>12.1} MiB", number("weights_bytes") / 1_048_576.0);
    say!("activations {:>12.1} MiB", number("planned_peak_bytes") / 1_048_576.0);
    Ok(())
}

impl Bench {
    fn drive(&self, target: &str, model: &str) -> Drive {
        Drive {
            target: target.to_owned(),
            is_rest: self.rest,
            model: model.to_owned(),
            signature: self.signature.clone(),
            concurrency: self.concurrency,
            rate: self.rate,
            batch: self.batch,
            duration: Duration::try_from_secs_f64(self.seconds).unwrap_or_default(),
            inputs: self.inputs.clone(),
            timeout: self.timeout_ms.map(Duration::from_millis),
            json: self.json,
            slot: self.slots_ms.filter(|ms| *ms > 0).map(Duration::from_millis),
        }
    }
}

/// The resident memory of this process; 0 if the system does not tell.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: Option<u64> = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
    kib.unwrap_or(0) * 1024
}
