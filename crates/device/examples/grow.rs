//! Grows an arena of the host to a size in steps, and times every allocation.
//!
//! `grow [--bytes BYTES] [--step BYTES]` prints one JSON line: the longest time a single allocation
//! took on the clock, and the longest that it worked, which others on the machine do not lengthen;
//! and the share of the bookkeeping in what is held. The memory is not touched.

mod report;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::{Arena, Chunk, Growth, Host};
use report::{Answer, Options};

fn main() -> ExitCode {
    report::print(run())
}

fn run() -> Result<(String, Answer), String> {
    let options = Options::new();
    options.only(&["--bytes", "--step"])?;
    if !options.first().is_empty() {
        return Err("usage: grow [--bytes BYTES] [--step BYTES]".to_owned());
    }
    let (bytes, step) = (options.get("--bytes", 12u64 << 30)?, options.get("--step", 1u64 << 20)?);
    let host = Arc::new(Host::new("cpu:0", bytes));
    let growth = Growth::OnDemand { step_bytes: 1 << 20 };
    let mut arena = Arena::new(host, growth).map_err(|e| e.to_string())?;
    let mut chunks: Vec<Chunk> = Vec::new();
    let (mut times, mut works) = (Vec::new(), Vec::new());
    for _ in 0..bytes / step.max(1) {
        let (start, worked) = (Instant::now(), worked());
        let chunk = arena.allocate(step).map_err(|e| e.to_string())?;
        works.push(self::worked().saturating_sub(worked));
        times.push(start.elapsed());
        chunks.push(chunk);
    }
    times.sort_unstable();
    works.sort_unstable();
    let stats = arena.stats();
    let micros = |times: &[Duration], thousandth: usize| {
        let at = times.len().saturating_sub(1) * thousandth / 1000;
        times.get(at).map_or(0.0, |time| time.as_secs_f64() * 1e6)
    };
    let line = format!(
        "{{\"worst_micros\":{:.1},\"worst_work_micros\":{:.1},\"p999_micros\":{:.1},\
         \"median_micros\":{:.2},\"bookkeeping\":{:.6}}}",
        micros(&times, 1000),
        micros(&works, 1000),
        micros(&times, 999),
        micros(&times, 500),
        stats.bookkeeping_bytes as f64 / stats.held_bytes.max(1) as f64
    );
    Ok((line, Answer::Yes))
}

/// How long this thread has been running on a processor, the kernel's work for it included.
fn worked() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a time of that type, which the call writes.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(failed, 0, "every Linux has this clock");
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or(0), nanos.unwrap_or(0))
}
