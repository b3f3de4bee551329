//! Replays a trace of allocations through the arena of the host.
//!
//! `replay TRACE.csv [--limit BYTES] [--granule BYTES] [--step BYTES] [--threads N]` prints one
//! JSON line with the peak of the bytes asked for, the peak of the bytes held, and the nanoseconds
//! an allocate or a free takes once the arena is warm. Exits 0 if nothing failed; with `--goal`
//! only if what is held is also at most 1.01 times what is live and 4 MiB, and an
//! operation takes at most 25 nanoseconds, or 15 on several threads.
//!
//! With `--threads` each replays the trace, at once, through its cache of one shared arena; the
//! nanoseconds are those of all threads together, and the live peak that of all at their peak.

mod report;
mod rows;

use std::process::ExitCode;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Instant;

use device::{Arena, Cache, Chunk, Driver, Growth, Host, Limited, SharedArena};
use report::{Answer, Options};
use rows::Row;

fn main() -> ExitCode {
    report::print(run())
}

fn run() -> Result<(String, Answer), String> {
    let options = Options::new();
    options.only(&["--limit", "--granule", "--step", "--threads", "--goal"])?;
    let [path] = options.first()[..] else {
        return Err("usage: replay TRACE.csv [--limit BYTES] [--goal]".to_owned());
    };
    let rows = rows::read(path)?;
    let operations = operations(&rows);
    let mut host = Host::new("cpu:0", 32 << 30);
    let granule_bytes = options.get("--granule", host.properties().granule_bytes)?;
    if granule_bytes != host.properties().granule_bytes {
        host = Host::with(device::Properties { granule_bytes, ..host.properties().clone() });
    }
    let limit = options.get("--limit", u64::MAX)?;
    let driver = Arc::new(Limited::new(Arc::new(host), "cpu:0", limit));
    let growth = Growth::OnDemand { step_bytes: options.get("--step", 1 << 20)? };
    let arena = Arena::new(driver.clone(), growth).map_err(|e| e.to_string())?;
    let n_threads: usize = options.get("--threads", 1)?;
    let nanos = match n_threads {
        0 | 1 => alone(arena, &rows, &operations)?,
        _ => together(&SharedArena::new(arena), &rows, &operations, n_threads)?,
    };
    let (live, held) = (peak_live(&rows) * n_threads.max(1) as u64, driver.peak_bytes());
    let line = format!("{{\"peak_live\":{live},\"peak_held\":{held},\"ns_per_op\":{nanos:.1}}}");
    let nanos_goal = if n_threads > 1 { 15.0 } else { 25.0 };
    let is_reached = held <= live + live / 100 + SLACK_GOAL_BYTES && nanos <= nanos_goal;
    let is_missed = options.has("--goal") && !is_reached;
    Ok((line, if is_missed { Answer::No } else { Answer::Yes }))
}

/// The bytes that may be held with `--goal` beside a hundredth more than what is live.
const SLACK_GOAL_BYTES: u64 = 4 << 20;

/// The number of times that a warm trace is replayed; the fastest counts.
const ROUNDS: u32 = 200;

/// Replays with an arena of its own; the nanoseconds of an operation.
fn alone(mut arena: Arena, rows: &[Row], operations: &[u32]) -> Result<f64, String> {
    let mut chunks: Vec<Option<Chunk>> = rows.iter().map(|_| None).collect();
    let mut replay = |arena: &mut Arena| -> Result<(), String> {
        for &operation in operations {
            let row = (operation >> 1) as usize;
            if operation & 1 == 1 {
                chunks[row] = Some(arena.allocate(rows[row].size).map_err(|e| e.to_string())?);
            } else {
                arena.free(chunks[row].take().expect("it was allocated"));
            }
        }
        Ok(())
    };
    replay(&mut arena)?;
    arena.check();
    let mut nanos = u128::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        replay(&mut arena)?;
        nanos = nanos.min(start.elapsed().as_nanos());
    }
    arena.check();
    Ok(nanos as f64 / operations.len() as f64)
}

/// The most bytes that the cache of a thread may keep.
const KEPT_BYTES_MAX: u64 = 1 << 30;

/// Replays on several threads at once; the nanoseconds of an operation of all together.
fn together(
    arena: &SharedArena,
    rows: &[Row],
    operations: &[u32],
    n_threads: usize,
) -> Result<f64, String> {
    let barrier = Barrier::new(n_threads);
    let work = || -> Result<u128, String> {
        let mut cache = Cache::new(arena.clone(), KEPT_BYTES_MAX);
        let mut chunks: Vec<Option<Chunk>> = rows.iter().map(|_| None).collect();
        let mut nanos = u128::MAX;
        for _ in 0..=ROUNDS {
            barrier.wait();
            let start = Instant::now();
            for &operation in operations {
                let row = (operation >> 1) as usize;
                if operation & 1 == 1 {
                    chunks[row] = Some(cache.allocate(rows[row].size).map_err(|e| e.to_string())?);
                } else {
                    cache.free(chunks[row].take().expect("it was allocated"));
                }
            }
            // Until the last is done: a round lasts as long as its slowest thread.
            barrier.wait();
            nanos = nanos.min(start.elapsed().as_nanos());
        }
        Ok(nanos)
    };
    let nanos = thread::scope(|scope| {
        let threads: Vec<_> = (0..n_threads).map(|_| scope.spawn(work)).collect();
        let all = threads.into_iter().map(|t| t.join().map_err(|_| "a thread died".to_owned())?);
        all.collect::<Result<Vec<u128>, String>>()
    })?;
    arena.check();
    let nanos = nanos.into_iter().max().unwrap_or(0);
    Ok(nanos as f64 / (operations.len() * n_threads) as f64)
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
