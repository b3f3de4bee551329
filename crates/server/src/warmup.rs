//! Runs the warm-up requests that come with a version before it is served.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use api::Replayed;
use config::Warmup;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use lifecycle::LoadError;
use session::Servable;
use status::Code;
use storage::Storage;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::warmups::Warmups;

/// The number of requests that are run between two words on the progress.
const PROGRESS_EVERY: usize = 100;

/// The version that is warmed up.
pub(crate) struct Version<'a> {
    pub(crate) model: &'a str,
    pub(crate) version: i64,
    pub(crate) servable: &'a Servable,
    /// The folder of its files.
    pub(crate) dir: &'a Storage,
    /// The same place, as it is called in metrics.
    pub(crate) path: &'a str,
}

impl Version<'_> {
    /// Runs all requests of the version's warm-up file, if it has one. Blocks; needs a runtime.
    ///
    /// # Errors
    /// If the file is damaged, a request fails, it takes too long, or nobody wants the version.
    pub(crate) fn warm_up(
        &self,
        options: Warmup,
        warmups: &Warmups,
        cancel: &CancellationToken,
    ) -> Result<(), LoadError> {
        let (start, n_records) = (Instant::now(), AtomicU64::new(0));
        let outcome = match savedmodel::Warmup::open(self.dir) {
            Ok(None) => return Ok(()),
            Ok(Some(records)) => {
                self.replay(options, Counted { records, n_records: &n_records }, cancel)
            }
            Err(error) => Err(read_error(&error)),
        };
        let status = outcome.as_ref().map_or_else(|error| error.status.code.name(), |()| "OK");
        warmups.count(self.path, status, n_records.into_inner(), start.elapsed());
        outcome
    }

    fn replay(
        &self,
        options: Warmup,
        records: Counted<'_>,
        cancel: &CancellationToken,
    ) -> Result<(), LoadError> {
        let runs = async {
            tokio::select! {
                biased;
                () = cancel.cancelled() => {
                    Err(LoadError::new(Code::Cancelled, "no longer wanted"))
                }
                () = too_late(options) => {
                    let seconds = options.timeout.unwrap_or_default().as_secs();
                    let text = format!("warm-up took more than {seconds} s");
                    Err(LoadError::new(Code::DeadlineExceeded, text))
                }
                outcome = self.run(options, records) => outcome,
            }
        };
        tokio::runtime::Handle::current().block_on(runs)
    }

    async fn run(&self, options: Warmup, records: Counted<'_>) -> Result<(), LoadError> {
        let start = Instant::now();
        let replayed = stream::iter(records)
            .map(|record| async {
                let record = record.map_err(|error| read_error(&error))?;
                let mut outcome = Replayed::Empty;
                for _ in 0..options.n_iterations {
                    let replayed = api::replay(self.servable, &record).await;
                    outcome = replayed?;
                }
                Ok::<_, LoadError>(outcome)
            })
            .buffered(options.n_threads)
            .try_fold(0, |n_run, outcome| async move {
                let n_run = n_run + usize::from(outcome == Replayed::Run);
                if n_run > 0 && n_run.is_multiple_of(PROGRESS_EVERY) {
                    let Self { model, version, .. } = self;
                    info!(model, version, n_requests = n_run, "warming up");
                }
                Ok(n_run)
            });
        let n_requests = replayed.await?;
        let (Self { model, version, .. }, ms) = (self, start.elapsed().as_millis());
        info!(model, version, n_requests, ms, "warmed up");
        Ok(())
    }
}

/// Records that are counted as they are read.
struct Counted<'a> {
    records: savedmodel::Warmup,
    n_records: &'a AtomicU64,
}

impl Iterator for Counted<'_> {
    type Item = <savedmodel::Warmup as Iterator>::Item;

    fn next(&mut self) -> Option<Self::Item> {
        let record = self.records.next()?;
        self.n_records.fetch_add(u64::from(record.is_ok()), Ordering::Relaxed);
        Some(record)
    }
}

async fn too_late(options: Warmup) {
    match options.timeout {
        Some(timeout) => tokio::time::sleep(timeout).await,
        None => std::future::pending().await,
    }
}

/// The failure of a load whose files cannot be read.
pub(crate) fn read_error(error: &savedmodel::Error) -> LoadError {
    LoadError::new(error.code(), error.to_string())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::Duration;

    use prost::Message as _;
    use proto::serving::prediction_log::LogType;
    use proto::serving::{PredictLog, PredictRequest, PredictionLog};
    use session::{Signature, Weights};

    use super::*;
    use session::fake::FakeEngine;

    fn servable() -> Servable {
        let signature = Signature {
            name: "serving_default".to_owned(),
            method: String::new(),
            inputs: BTreeMap::new(),
            outputs: BTreeMap::new(),
            defaults: BTreeMap::new(),
        };
        Servable {
            signatures: [(signature.name.clone(), Arc::new(signature))].into(),
            signature_defs: BTreeMap::new(),
            refused: BTreeMap::new(),
            weights: Weights::default(),
            engine: Arc::new(FakeEngine::slow()),
        }
    }

    /// Warms up a version whose only request never ends.
    #[track_caller]
    fn check(timeout: Option<Duration>, cancel: &CancellationToken, expected: Code) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("assets.extra")).unwrap();
        let request = Some(PredictRequest::default());
        let log = PredictLog { request, ..PredictLog::default() };
        let log_type = Some(LogType::PredictLog(log));
        let record = PredictionLog { log_type, ..PredictionLog::default() }.encode_to_vec();
        let file = folder.path().join("assets.extra/tf_serving_warmup_requests");
        std::fs::write(file, savedmodel::tfrecord(&record)).unwrap();
        let dir = storage::open(&folder.path().to_string_lossy()).unwrap();
        let options = Warmup { n_iterations: 1, n_threads: 1, timeout };
        let servable = servable();
        let fresh =
            Version { model: "m", version: 1, servable: &servable, dir: &dir, path: "/m/1" };
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        let _entered = runtime.enter();
        let warmups = Warmups::default();
        assert_eq!(fresh.warm_up(options, &warmups, cancel).unwrap_err().status.code, expected);
        assert_eq!(warmups.records()[0].labels[1].1, expected.name());
    }

    #[test]
    fn a_warm_up_that_takes_too_long_fails_the_load() {
        check(Some(Duration::from_millis(1)), &CancellationToken::new(), Code::DeadlineExceeded);
    }

    #[test]
    fn a_warm_up_that_nobody_wants_any_more_is_given_up() {
        let cancel = CancellationToken::new();
        cancel.cancel();
        check(None, &cancel, Code::Cancelled);
    }
}
