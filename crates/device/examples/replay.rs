//! Replays a trace of allocations through the arena of the host.
//!
//! `replay TRACE.csv [--limit BYTES] [--granule BYTES] [--step BYTES] [--verbose]` prints one
//! JSON line with the peak of the bytes asked for, the peak of the bytes held, and the nanoseconds
//! an allocate or a free takes once the arena is warm. Exits 0 if nothing failed.

#![expect(clippy::print_stdout, reason = "printing is what it is for")]

mod rows;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use device::{Arena, Chunk, Driver, Growth, Host, Limited};
use rows::Row;

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
    let path = arguments.first().ok_or("usage: replay TRACE.csv [--limit BYTES]")?;
    let option = |name: &str, default: u64| match arguments.iter().position(|a| a == name) {
        None => Ok(default),
        Some(at) => {
            let value = arguments.get(at + 1).ok_or_else(|| format!("{name} needs a number"))?;
            value.parse().map_err(|e| format!("{name} {value}: {e}"))
        }
    };
    let rows = rows::read(path)?;
    let operations = operations(&rows);
    let mut host = Host::new("cpu:0", 32 << 30);
    let granule_bytes = option("--granule", host.properties().granule_bytes)?;
    if granule_bytes != host.properties().granule_bytes {
        host = Host::with(device::Properties { granule_bytes, ..host.properties().clone() });
    }
    let driver = Arc::new(Limited::new(Arc::new(host), "cpu:0", option("--limit", u64::MAX)?));
    let growth = Growth::OnDemand { step_bytes: option("--step", 1 << 20)? };
    let mut arena = Arena::new(driver.clone(), growth).map_err(|e| e.to_string())?;
    let mut replay = Replay { rows: &rows, chunks: rows.iter().map(|_| None).collect() };
    replay.run(&mut arena, &operations)?;
    arena.check();
    let cold = arena.stats();
    let mut nanos = u128::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        replay.run(&mut arena, &operations)?;
        nanos = nanos.min(start.elapsed().as_nanos());
    }
    arena.check();
    let stats = arena.stats();
    if arguments.iter().any(|argument| argument == "--verbose") {
        eprintln!("cold: {cold:?}\nwarm: {stats:?}");
    }
    Ok(format!(
        "{{\"peak_live\":{},\"peak_held\":{},\"ns_per_op\":{:.1}}}",
        peak_live(&rows),
        driver.peak_bytes(),
        nanos as f64 / operations.len() as f64,
    ))
}

/// How often a warm trace is replayed; the fastest counts.
const ROUNDS: u32 = 200;

struct Replay<'a> {
    rows: &'a [Row],
    chunks: Vec<Option<Chunk>>,
}

impl Replay<'_> {
    fn run(&mut self, arena: &mut Arena, operations: &[u32]) -> Result<(), String> {
        for &operation in operations {
            let row = (operation >> 1) as usize;
            if operation & 1 == 1 {
                let chunk = arena.allocate(self.rows[row].size).map_err(|e| e.to_string())?;
                self.chunks[row] = Some(chunk);
            } else {
                arena.free(self.chunks[row].take().expect("it was allocated"));
            }
        }
        Ok(())
    }
}

/// Row times two, and one more for an allocate; frees come first at equal times.
fn operations(rows: &[Row]) -> Vec<u32> {
    let mut events: Vec<(u64, u32)> = Vec::new();
    for (row, at) in rows.iter().zip(0u32..) {
        events.push((row.lower, at << 1 | 1));
        events.push((row.upper, at << 1));
    }
    events.sort_by_key(|(time, operation)| (*time, operation & 1));
    events.into_iter().map(|(_, operation)| operation).collect()
}

fn peak_live(rows: &[Row]) -> u64 {
    let (mut live, mut peak) = (0, 0);
    for operation in operations(rows) {
        let size = rows[(operation >> 1) as usize].size;
        live = if operation & 1 == 1 { live + size } else { live - size };
        peak = peak.max(live);
    }
    peak
}
