//! Grows an arena of the host to a size in steps, and times every allocation.
//!
//! `grow [--bytes BYTES] [--step BYTES] [--rounds N] [--goal]` prints one JSON line. An interrupt
//! lengthens any allocation that it hits, in the time that a thread works too; so the arena grows
//! several times, and what one allocation takes is the least of what it took in a round:
//! `worst_micros` is the longest of those, `worst_once_micros` the longest in any round, and
//! `noise_micros` the longest that as many system calls which do nothing took. `bookkeeping` is its
//! share in what is held. The memory is not touched. Exits 0, with `--goal` only if `worst_micros`
//! is at most 50 and `bookkeeping` at most 0.0005.

mod report;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use device::{Arena, Chunk, Growth, Host};
use report::{Answer, Options};

fn main() -> ExitCode {
    report::print(run())
}

fn run() -> Result<(String, Answer), String> {
    let options = Options::new();
    options.only(&["--bytes", "--step", "--rounds", "--goal"])?;
    if !options.first().is_empty() {
        return Err("usage: grow [--bytes BYTES] [--step BYTES] [--rounds N] [--goal]".to_owned());
    }
    let (bytes, step) = (options.get("--bytes", 12u64 << 30)?, options.get("--step", 1u64 << 20)?);
    let n_rounds = options.get("--rounds", 7u64)?.max(1);
    let (mut least, mut once, mut noise, mut bookkeeping) = (Vec::new(), 0.0, 0.0, 0.0);
    for _ in 0..n_rounds {
        let (times, share) = grow(bytes, step.max(1)).map_err(|e| e.to_string())?;
        least.resize(times.len(), Duration::MAX);
        least.iter_mut().zip(&times).for_each(|(least, time)| *least = (*least).min(*time));
        once = longest(&times).max(once);
        noise = longest(&times.iter().map(|_| timed(idle_call).1).collect::<Vec<_>>()).max(noise);
        bookkeeping = share;
    }
    let worst = longest(&least);
    least.sort_unstable();
    let median = least.get(least.len() / 2).map_or(0.0, |time| time.as_secs_f64() * 1e6);
    let line = format!(
        "{{\"worst_micros\":{worst:.1},\"worst_once_micros\":{once:.1},\"noise_micros\":{noise:.1},\
         \"median_micros\":{median:.2},\"bookkeeping\":{bookkeeping:.6}}}"
    );
    let is_reached = worst <= WORST_MICROS_GOAL && bookkeeping <= BOOKKEEPING_GOAL;
    let is_missed = options.has("--goal") && !is_reached;
    Ok((line, if is_missed { Answer::No } else { Answer::Yes }))
}

/// The limits that `--goal` sets to the slowest allocation and to the share of the bookkeeping.
const WORST_MICROS_GOAL: f64 = 50.0;
const BOOKKEEPING_GOAL: f64 = 0.0005;

/// Grows an arena; returns the time of each allocation and the final share of the bookkeeping.
fn grow(bytes: u64, step: u64) -> device::Result<(Vec<Duration>, f64)> {
    let host = Arc::new(Host::new("cpu:0", bytes));
    let mut arena = Arena::new(host, Growth::OnDemand { step_bytes: 1 << 20 })?;
    let mut chunks: Vec<Chunk> = Vec::new();
    let mut times = Vec::new();
    for _ in 0..bytes / step {
        let (chunk, time) = timed(|| arena.allocate(step));
        times.push(time);
        chunks.push(chunk?);
    }
    let stats = arena.stats();
    Ok((times, stats.bookkeeping_bytes as f64 / stats.held_bytes.max(1) as f64))
}

/// Runs a job; returns its result and the processor time that this thread spent on it.
fn timed<T>(job: impl FnOnce() -> T) -> (T, Duration) {
    let start = worked();
    let made = job();
    (made, worked().saturating_sub(start))
}

/// A call of the system that has nothing to do.
fn idle_call() {
    // SAFETY: the call has no arguments and changes nothing.
    let _parent = unsafe { libc::getppid() };
}

/// The longest of some times, in microseconds.
fn longest(times: &[Duration]) -> f64 {
    times.iter().max().map_or(0.0, |time| time.as_secs_f64() * 1e6)
}

/// The processor time of this thread so far, the kernel's work for it included.
fn worked() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a time of that type, which the call writes.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(failed, 0, "every Linux has this clock");
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or(0), nanos.unwrap_or(0))
}
