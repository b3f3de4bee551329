//! Grows an arena of the host to a size in steps, and times every allocation.
//!
//! `grow [--bytes BYTES] [--step BYTES]` prints one JSON line with the longest time a single
//! allocation took, and the share of the bookkeeping in what is held. The memory is not touched.

#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::{Arena, Chunk, Growth, Host};

fn main() -> ExitCode {
    match run() {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("{{\"error\":{error:?}}}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<String, String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let option = |name: &str, default: u64| match arguments.iter().position(|a| a == name) {
        None => Ok(default),
        Some(at) => {
            let value = arguments.get(at + 1).ok_or_else(|| format!("{name} needs a number"))?;
            value.parse().map_err(|e| format!("{name} {value}: {e}"))
        }
    };
    let (bytes, step) = (option("--bytes", 12 << 30)?, option("--step", 1 << 20)?);
    let host = Arc::new(Host::new("cpu:0", bytes));
    let growth = Growth::OnDemand { step_bytes: 1 << 20 };
    let mut arena = Arena::new(host, growth).map_err(|e| e.to_string())?;
    let mut chunks: Vec<Chunk> = Vec::new();
    let mut times: Vec<Duration> = Vec::new();
    for _ in 0..bytes / step.max(1) {
        let start = Instant::now();
        let chunk = arena.allocate(step).map_err(|e| e.to_string())?;
        times.push(start.elapsed());
        chunks.push(chunk);
    }
    times.sort_unstable();
    let stats = arena.stats();
    let micros = |at: usize| times.get(at).map_or(0.0, |time| time.as_secs_f64() * 1e6);
    Ok(format!(
        "{{\"worst_micros\":{:.1},\"p999_micros\":{:.1},\"median_micros\":{:.2},\
         \"bookkeeping\":{:.6}}}",
        micros(times.len().saturating_sub(1)),
        micros(times.len().saturating_mul(999) / 1000),
        micros(times.len() / 2),
        stats.bookkeeping_bytes as f64 / stats.held_bytes.max(1) as f64
    ))
}
