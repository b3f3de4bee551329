//! `tensord profile`: where the time and the memory of a model go, step by step.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Parser;
use device::Workspace;
use graph::StepSnapshot;
use session::DEFAULT_SIGNATURE;

use super::{inputs, load, n_cpus};

/// Show where the time of one signature goes, by op and by step
#[derive(Debug, Parser)]
#[command(name = "tensord profile")]
struct Profile {
    /// A SavedModel, or a model with versions: then the newest
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
    /// Write a trace for Chrome's trace viewer
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// The tags of the meta graph
    #[arg(long, default_value = "serve")]
    tags: String,
}

/// Runs the command.
pub(crate) fn main(args: Vec<String>) -> Result<()> {
    let args = Profile::parse_from(args);
    let n_threads = if args.threads == 0 { n_cpus() } else { args.threads };
    let loaded = load(&args.dir, &args.tags, n_threads)?;
    let run = inputs::run(&loaded, &args.signature, args.batch)?;
    let mut workspace = Workspace::allocate(0)?;
    let plan = loaded.engine.observe(&run, &mut workspace, &mut |_| ())?;
    let steps = plan.snapshot();
    let mut times = vec![Duration::ZERO; steps.len()];
    let mut last_run = Vec::new();
    for _ in 0..args.runs.max(1) {
        last_run.clear();
        let start = Instant::now();
        let mut before = start;
        loaded.engine.observe(&run, &mut workspace, &mut |step| {
            let now = Instant::now();
            times[step] += now - before;
            last_run.push((step, before - start, now - before));
            before = now;
        })?;
    }
    times.iter_mut().for_each(|time| *time /= args.runs.max(1));
    print(&args, &steps, &times);
    say!(
        "planned memory {:.2} MiB, the least possible {:.2} MiB",
        mebibytes(plan.work_bytes()),
        mebibytes(plan.live_bytes())
    );
    if let Some(path) = &args.trace {
        std::fs::write(path, trace(&steps, &last_run))?;
    }
    Ok(())
}

fn print(args: &Profile, steps: &[StepSnapshot], times: &[Duration]) {
    let total: Duration = times.iter().sum();
    let share = |time: Duration| 100.0 * time.as_secs_f64() / total.as_secs_f64().max(1e-12);
    let mut by_op: BTreeMap<&str, (usize, Duration)> = BTreeMap::new();
    for (step, time) in steps.iter().zip(times) {
        let entry = by_op.entry(step.op).or_default();
        *entry = (entry.0 + 1, entry.1 + *time);
    }
    let mut by_op: Vec<_> = by_op.into_iter().collect();
    by_op.sort_by_key(|row| std::cmp::Reverse(row.1.1));
    say!("{:<28} {:>6} {:>12} {:>7}", "op", "steps", "time", "share");
    for (op, (count, time)) in &by_op {
        say!("{op:<28} {count:>6} {:>9.1} µs {:>6.1}%", micros(*time), share(*time));
    }
    say!("{:<28} {:>6} {:>9.1} µs\n", "all", steps.len(), micros(total));
    let mut order: Vec<usize> = (0..steps.len()).collect();
    order.sort_by_key(|step| std::cmp::Reverse(times[*step]));
    say!("{:<28} {:>12} {:>7} {:>10}  node", "slowest steps", "time", "share", "memory");
    for step in order.into_iter().take(args.steps) {
        let StepSnapshot { node, op, work_bytes, .. } = &steps[step];
        say!(
            "{op:<28} {:>9.1} µs {:>6.1}% {:>6.2} MiB  {node}",
            micros(times[step]),
            share(times[step]),
            mebibytes(*work_bytes),
        );
    }
    say!();
}

/// The steps of one run in the format of Chrome's trace viewer.
fn trace(steps: &[StepSnapshot], run: &[(usize, Duration, Duration)]) -> String {
    let event = |(step, start, time): &(usize, Duration, Duration)| {
        let StepSnapshot { node, op, work_bytes, device } = &steps[*step];
        serde_json::json!({
            "name": op, "cat": "step", "ph": "X", "pid": 1, "tid": device,
            "ts": micros(*start), "dur": micros(*time),
            "args": {"node": node, "work_bytes": work_bytes},
        })
    };
    let events: Vec<_> = run.iter().map(event).collect();
    serde_json::json!({"traceEvents": events}).to_string()
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn mebibytes(bytes: usize) -> f64 {
    bytes as f64 / 1_048_576.0
}
