//! Samples requests into files that can serve as warm-up files: TFRecord of `PredictionLog`.
//!
//! A request is sampled where it is served and written by a thread of its own. When that falls
//! behind, records are dropped and counted: logging never holds up serving.

mod files;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use anyhow::Result;
use api::{Record, Recorder};
use metrics::{Point, Value};
use prost::Message as _;
use proto::serving::SamplingConfig;
use status::Code;
use tracing::{error, warn};

use crate::active::Active;
use files::Files;

/// The number of records that may wait to be written.
const QUEUE_MAX: usize = 1024;

/// Samples requests as the configs of their models say, and writes them.
pub(crate) struct RequestLog {
    active: Arc<Active>,
    tags: Vec<String>,
    queue: Mutex<Option<SyncSender<Job>>>,
    writer: Mutex<Option<JoinHandle<()>>>,
    n_dropped: AtomicU64,
    counts: Arc<Counts>,
    n_seen: AtomicU64,
}

struct Job {
    /// The beginning of the file names.
    prefix: String,
    sampling: SamplingConfig,
    record: Record,
}

impl RequestLog {
    /// Starts the thread that writes. `tags` are those of the meta graph that is served.
    pub(crate) fn start(active: Arc<Active>, tags: Vec<String>) -> std::io::Result<Self> {
        let (send, receive) = mpsc::sync_channel::<Job>(QUEUE_MAX);
        let counts = Arc::new(Counts::default());
        let (written_tags, written) = (tags.clone(), Arc::clone(&counts));
        let write = move || {
            heap::share();
            let mut files = Files::default();
            for job in receive {
                let model = job.record.model.clone();
                let outcome = write(&mut files, job, &written_tags);
                written.count(&model, outcome.err());
            }
        };
        let writer = thread::Builder::new().name("request log".to_owned()).spawn(write)?;
        Ok(Self {
            active,
            tags,
            queue: Mutex::new(Some(send)),
            writer: Mutex::new(Some(writer)),
            n_dropped: AtomicU64::new(0),
            counts,
            n_seen: AtomicU64::new(0),
        })
    }

    /// The number of requests that were logged, or could not be, by model and code.
    pub(crate) fn points(&self) -> Vec<Point> {
        let counts = self.counts.by_kind.lock();
        let points = counts.iter().map(|((model, code), n)| Point {
            labels: vec![("model_name", model.clone()), ("status_code", (*code).to_owned())],
            value: Value::Count(*n),
        });
        points.collect()
    }

    /// Writes what is waiting, and takes nothing more.
    pub(crate) fn finish(&self) {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(queue);
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if writer.is_some_and(|writer| writer.join().is_err()) {
            error!("the request log ended early");
        }
    }
}

impl std::fmt::Debug for RequestLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RequestLog({:?})", self.tags)
    }
}

impl Recorder for RequestLog {
    fn samples(&self, model: &str) -> bool {
        let config = self.active.get(model);
        let sampling = config.logging_config.as_ref().and_then(|log| log.sampling_config.as_ref());
        let Some(rate) = sampling.map(|sampling| sampling.sampling_rate) else { return false };
        is_chosen(self.n_seen.fetch_add(1, Ordering::Relaxed), rate)
    }

    fn record(&self, record: Record) {
        let config = self.active.get(&record.model);
        let Some(log) = &config.logging_config else { return };
        let prefix = log.log_collector_config.clone().unwrap_or_default().filename_prefix;
        let sampling = log.sampling_config.clone().unwrap_or_default();
        let model = record.model.clone();
        let job = Job { prefix, sampling, record };
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(queue) = &*queue else { return };
        if let Err(TrySendError::Full(_)) = queue.try_send(job) {
            self.counts.count(&model, Some(Code::ResourceExhausted));
            let n_dropped = self.n_dropped.fetch_add(1, Ordering::Relaxed) + 1;
            if n_dropped.is_power_of_two() {
                warn!(n_dropped, "the request log falls behind: records are dropped");
            }
        }
    }
}

/// Returns whether the request with this number is one of those that a rate chooses.
fn is_chosen(number: u64, rate: f64) -> bool {
    // Consecutive numbers become independent ones (the mixing of SplitMix64).
    let mut bits = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^= bits >> 31;
    let share = f64::from(u32::try_from(bits >> 32).unwrap_or(u32::MAX)) / f64::from(u32::MAX);
    rate >= 1.0 || share < rate
}

/// The number of requests that were logged, or why not, by model and the name of a code. There are
/// no more models than are configured, for no others are sampled.
#[derive(Debug, Default)]
struct Counts {
    by_kind: parking_lot::Mutex<BTreeMap<(String, &'static str), u64>>,
}

impl Counts {
    fn count(&self, model: &str, failed: Option<Code>) {
        let code = failed.map_or("OK", Code::name);
        *self.by_kind.lock().entry((model.to_owned(), code)).or_default() += 1;
    }
}

fn write(
    files: &mut Files,
    Job { prefix, sampling, record }: Job,
    tags: &[String],
) -> Result<(), Code> {
    let model = record.model.clone();
    let mut log = record.into_log().map_err(|status| {
        warn!(model, "a request is not logged: {}", status.message);
        status.code
    })?;
    let metadata = log.log_metadata.get_or_insert_default();
    metadata.sampling_config = Some(sampling);
    metadata.saved_model_tags = tags.to_vec();
    let record = savedmodel::tfrecord(&log.encode_to_vec());
    // What went wrong is said there.
    files.append(&prefix, &record).map_err(|_| Code::Unavailable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_chooses_its_share_of_requests() {
        let n_chosen = |rate| (0..10_000).filter(|number| is_chosen(*number, rate)).count();
        assert_eq!(n_chosen(0.0), 0);
        assert_eq!(n_chosen(1.0), 10_000);
        assert!((2_300..2_700).contains(&n_chosen(0.25)), "{}", n_chosen(0.25));
    }
}
