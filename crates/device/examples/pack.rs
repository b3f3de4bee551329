//! Packs the buffers of a trace into one piece of memory.
//!
//! `pack FILE.csv CAPACITY [--seconds S]` prints one JSON line with the height reached, the lower
//! bound of any, and the time it took. Exits 0 if the height is within the capacity.

mod report;
mod rows;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use offsets::{Request, Verdict, pack_within};
use report::{Answer, Options};
use rows::Row;

fn main() -> ExitCode {
    report::print(run())
}

fn run() -> Result<(String, Answer), String> {
    let options = Options::new();
    options.only(&["--seconds"])?;
    let [path, capacity] = options.first()[..] else {
        return Err("usage: pack FILE.csv CAPACITY [--seconds S]".to_owned());
    };
    let capacity: u64 = capacity.parse().map_err(|e| format!("{capacity}: {e}"))?;
    let seconds: f64 = options.get("--seconds", 60.0)?;
    let requests = requests(&rows::read(path)?)?;
    let start = Instant::now();
    let limit = Duration::try_from_secs_f64(seconds).map_err(|e| e.to_string())?;
    let (packing, verdict) = pack_within(&requests, 1, capacity, || start.elapsed() > limit);
    let line = format!(
        "{{\"height\":{},\"lower_bound\":{},\"seconds\":{:.4}}}",
        packing.height,
        packing.lower_bound,
        start.elapsed().as_secs_f64()
    );
    Ok((line, if verdict == Verdict::Fits { Answer::Yes } else { Answer::No }))
}

/// Half-open times become steps: the ranks of the times at which something begins or ends.
fn requests(rows: &[Row]) -> Result<Vec<Request>, String> {
    let mut times: Vec<u64> = rows.iter().flat_map(|row| [row.lower, row.upper]).collect();
    times.sort_unstable();
    times.dedup();
    let step = |time: u64| {
        u32::try_from(times.partition_point(|other| *other < time)).map_err(|e| e.to_string())
    };
    let request = |row: &Row| {
        Ok(Request { first: step(row.lower)?, last: step(row.upper)? - 1, bytes: row.size })
    };
    rows.iter().map(request).collect()
}
