//! `tensord bench --target`: drives a running server, and says how it answered.

pub(super) mod client;
mod latencies;
mod slots;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use parking_lot::Mutex;
use serde_json::json;
use server::say;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use self::client::Client;
use self::latencies::Latencies;
use self::slots::Slots;

/// The most requests in flight when they come at a rate.
const IN_FLIGHT_MAX: usize = 10_000;

/// The settings for driving a server.
#[derive(Debug, Clone)]
pub(super) struct Drive {
    /// The address of the server.
    pub(super) target: String,
    /// `true` for REST instead of gRPC.
    pub(super) is_rest: bool,
    pub(super) model: String,
    pub(super) signature: String,
    /// Clients that each wait for an answer before they ask again.
    pub(super) concurrency: usize,
    /// Requests a second, whatever the answers.
    pub(super) rate: Option<f64>,
    pub(super) batch: usize,
    pub(super) duration: Duration,
    /// An archive with the inputs.
    pub(super) inputs: Option<PathBuf>,
    /// The longest time that a request may take.
    pub(super) timeout: Option<Duration>,
    pub(super) json: bool,
    /// The length of the slots in which requests at a rate are counted.
    pub(super) slot: Option<Duration>,
}

/// The measurements of all clients.
#[derive(Debug, Default)]
struct Counts {
    latencies: Latencies,
    failed: Latencies,
    /// Failures by their texts.
    errors: std::collections::BTreeMap<String, u64>,
    /// Requests that were not sent: too many were in flight.
    n_unsent: u64,
    /// The delays with which requests at a rate were sent.
    lag: Latencies,
    /// The times that failures took from when they were sent, by their codes.
    by_code: std::collections::BTreeMap<String, Latencies>,
    slots: Option<Slots>,
}

/// Drives the server and prints a report.
pub(super) fn main(drive: &Drive) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let report = runtime.block_on(run(drive))?;
    print(drive, &report);
    Ok(())
}

/// The results of a drive.
struct Report {
    counts: Counts,
    took: Duration,
}

async fn run(drive: &Drive) -> Result<Report> {
    ensure!(drive.concurrency > 0 && drive.batch > 0, "at least one client and one row");
    let client = Arc::new(Client::connect(drive).await?);
    // One request first: a mistake is told at once, not counted a thousand times.
    client.ask().await.map_err(|error| anyhow::anyhow!("{error}")).context("the first request")?;
    let slots = drive.slot.map(Slots::new);
    let counts = Arc::new(Mutex::new(Counts { slots, ..Counts::default() }));
    let start = Instant::now();
    let end = start + drive.duration;
    let progress = tokio::spawn(progress(Arc::clone(&counts), start, end));
    match drive.rate {
        None => wait_for_answers(drive, &client, &counts, end).await?,
        Some(rate) => keep_rate(rate, &client, &counts, end).await?,
    }
    let took = start.elapsed();
    progress.abort();
    eprint!("\r\x1b[K");
    let counts = std::mem::take(&mut *counts.lock());
    Ok(Report { counts, took })
}

/// Clients that each wait for an answer before they ask again.
async fn wait_for_answers(
    drive: &Drive,
    client: &Client,
    counts: &Arc<Mutex<Counts>>,
    end: Instant,
) -> Result<()> {
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..drive.concurrency {
        let client = client.another().await?;
        let counts = Arc::clone(counts);
        clients.spawn(async move {
            while Instant::now() < end {
                let start = Instant::now();
                let answer = client.ask().await;
                counts.lock().note(start.elapsed(), answer);
            }
        });
    }
    while clients.join_next().await.is_some() {}
    Ok(())
}

/// Requests at a rate. Each is timed from when it was due, so that a slow server cannot hide that
/// requests waited for their turn. A thread keeps the time: the runtime's timers are a millisecond
/// late.
async fn keep_rate(
    rate: f64,
    client: &Arc<Client>,
    counts: &Arc<Mutex<Counts>>,
    end: Instant,
) -> Result<()> {
    if !(rate > 0.0 && rate.is_finite()) {
        bail!("--rate must be above 0");
    }
    let places = Arc::new(Semaphore::new(IN_FLIGHT_MAX));
    let (runtime, every) = (Handle::current(), Duration::from_secs_f64(1.0 / rate));
    let ask = |due: Instant| {
        let counts = Arc::clone(counts);
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            counts.lock().n_unsent += 1;
            return;
        };
        let client = Arc::clone(client);
        runtime.spawn(async move {
            let sent = Instant::now();
            let answer = client.ask_apart().await;
            counts.lock().note_due(due, sent, answer);
            drop(place);
        });
    };
    tokio::task::block_in_place(|| {
        let mut due = Instant::now();
        while due < end {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            ask(due);
            due += every;
        }
    });
    let all = u32::try_from(IN_FLIGHT_MAX)?;
    places.acquire_many(all).await.map(drop).context("all requests ended")
}

/// Says once a second how it goes.
async fn progress(counts: Arc<Mutex<Counts>>, start: Instant, end: Instant) {
    let mut before = 0;
    while Instant::now() < end {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (n, p99, failed) = {
            let counts = counts.lock();
            (counts.latencies.n(), counts.latencies.percentile(99.0), counts.failed.n())
        };
        let (passed, rate) = (start.elapsed().as_secs(), n - before);
        eprint!("\r\x1b[K{passed} s: {rate} answers/s, 99 % within {p99:.1?}, {failed} failed");
        before = n;
    }
}

impl Counts {
    fn note_due(&mut self, due: Instant, sent: Instant, answer: Result<(), String>) {
        self.lag.note(sent - due);
        if let Err(error) = &answer {
            let code = error.split_once(':').map_or("other", |(code, _)| code);
            self.by_code.entry(code.to_owned()).or_default().note(sent.elapsed());
        }
        if let Some(slots) = &mut self.slots {
            slots.note(due, answer.is_ok());
        }
        self.note(due.elapsed(), answer);
    }

    fn note(&mut self, took: Duration, answer: Result<(), String>) {
        match answer {
            Ok(()) => self.latencies.note(took),
            Err(error) => {
                self.failed.note(took);
                // Texts may have numbers in them: only so many kinds are told apart.
                let is_new = !self.errors.contains_key(&error);
                let kind =
                    if is_new && self.errors.len() >= 20 { "others".to_owned() } else { error };
                *self.errors.entry(kind).or_insert(0) += 1;
            }
        }
    }
}

fn print(drive: &Drive, report: &Report) {
    let Report { counts, took } = report;
    let Counts { latencies, failed, errors, n_unsent, lag, slots, by_code } = counts;
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = latencies.n() as f64 / took.as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let rows = rate * drive.batch as f64;
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    let percentiles = [50.0, 90.0, 99.0, 99.9, 100.0];
    let of_code = |(code, times): (&String, &Latencies)| {
        let at = |percent| micros(times.percentile(percent));
        let spread = json!({ "n": times.n(), "p50_us": at(50.0), "p99_us": at(99.0) });
        (code.clone(), spread)
    };
    if drive.json {
        let by_code: serde_json::Map<String, serde_json::Value> =
            by_code.iter().map(of_code).collect();
        let spread: serde_json::Map<String, serde_json::Value> = percentiles
            .iter()
            .map(|percent| {
                (format!("p{percent}_us"), micros(latencies.percentile(*percent)).into())
            })
            .collect();
        say!(
            "{}",
            json!({
                "target": drive.target, "model": drive.model, "batch": drive.batch,
                "concurrency": drive.concurrency, "rate": drive.rate,
                "seconds": took.as_secs_f64(), "answers": latencies.n(),
                "answers_per_second": rate, "rows_per_second": rows, "latency": spread,
                "failed": failed.n(), "failed_p50_us": micros(failed.percentile(50.0)),
                "failed_p99_us": micros(failed.percentile(99.0)),
                "errors": errors, "unsent": n_unsent,
                "send_lag_p50_us": micros(lag.percentile(50.0)),
                "send_lag_p99_us": micros(lag.percentile(99.0)),
                "failed_by_code": by_code,
                "slots": slots.as_ref().map(Slots::report),
            })
        );
        return;
    }
    say!("answers     {:>12} in {:.1?}", latencies.n(), took);
    say!("throughput  {rate:>12.1} answers/s, {rows:.1} rows/s");
    for percent in percentiles {
        say!("{:<11} {:>12.1?}", format!("{percent} %"), latencies.percentile(percent));
    }
    say!("failed      {:>12}, 99 % within {:.1?}", failed.n(), failed.percentile(99.0));
    if *n_unsent > 0 {
        say!("not sent    {n_unsent:>12}: {IN_FLIGHT_MAX} were in flight");
    }
    for (error, count) in errors {
        say!("  {count:>8} × {error}");
    }
}
