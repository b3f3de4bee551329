//! `Stats`: what TensorFlow Serving counts of requests, under its names, and a few things more.
//!
//! Every model has counters of a fixed number, so that a request is counted without a lock or an
//! allocation. Names that no model has are counted one by one only up to a limit: anybody can make
//! them up.

mod cells;
mod requests;
mod snapshot;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use metrics::{Histogram, LATENCY_LIMITS, SIZE_LIMITS};
use status::{Code, Status};

use cells::Cells;

use crate::trace::{Ended, Trace};

/// The number of names without a model that are counted one by one; the rest count as [`OTHERS`].
const STRANGERS_MAX: usize = 256;

/// Stands for all names beyond those that are counted one by one.
const OTHERS: &str = "(others)";

/// The API method that was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Api {
    /// `Predict`.
    Predict,
    /// `Classify`.
    Classify,
    /// `Regress`.
    Regress,
    /// `MultiInference`.
    MultiInference,
    /// Anything that is only looked at.
    Look,
}

/// The protocol by which a request came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entrypoint {
    /// Over gRPC.
    Grpc,
    /// Over REST.
    Rest,
}

const APIS: [Api; 5] = [Api::Predict, Api::Classify, Api::Regress, Api::MultiInference, Api::Look];
const ENTRYPOINTS: [Entrypoint; 2] = [Entrypoint::Grpc, Entrypoint::Rest];

/// The codes by their numbers; 0 is success.
const N_CODES: usize = 17;

/// Counts requests.
#[derive(Debug)]
pub struct Stats {
    models: ArcSwap<HashMap<Box<str>, Arc<ModelStats>>>,
}

/// The model, version, signature and method that were run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ran<'a> {
    pub(crate) model: &'a str,
    pub(crate) version: i64,
    pub(crate) signature: &'a str,
    pub(crate) api: Api,
}

/// The counters of one model.
#[derive(Debug)]
struct ModelStats {
    name: Box<str>,
    by_code: [AtomicU64; N_CODES],
    latency: [Histogram; APIS.len() * ENTRYPOINTS.len()],
    runtime: [Histogram; APIS.len()],
    n_examples: Histogram,
    cells: Cells,
    in_flight: AtomicI64,
}

impl Stats {
    /// Makes counters that are all zero.
    pub fn new() -> Self {
        Self { models: ArcSwap::default() }
    }

    /// Counts a request of a model that begins now. `is_known` tells whether there is such a model.
    pub(crate) fn begin(
        &self,
        model: &str,
        is_known: impl FnOnce() -> bool,
        trace: Trace,
    ) -> InFlight {
        let stats = self.model(model, is_known);
        stats.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight { stats, start: Instant::now(), counted: None, trace }
    }

    /// A run of a signature ended, well or with a code.
    pub(crate) fn ran(&self, ran: &Ran<'_>, took: Result<Duration, Code>) {
        let stats = self.model(ran.model, || true);
        let cell = stats.cells.cell(ran.version, ran.signature);
        match took {
            Ok(took) => {
                stats.runtime[ran.api as usize].add(micros(took));
                cell.succeeded(ran.api, micros(took));
            }
            Err(code) => cell.failed(ran.api, code.number()),
        }
    }

    /// A `MultiInference` had so many examples.
    pub(crate) fn examples(&self, model: &str, n_examples: usize) {
        self.model(model, || true).n_examples.add(n_examples as f64);
    }

    fn model(&self, model: &str, is_known: impl FnOnce() -> bool) -> Arc<ModelStats> {
        if let Some(stats) = self.models.load().get(model) {
            return Arc::clone(stats);
        }
        let n_models = self.models.load().len();
        let name = if n_models < STRANGERS_MAX || is_known() { model } else { OTHERS };
        let new = Arc::new(ModelStats::new(name));
        self.models.rcu(|models| {
            let mut models = HashMap::clone(models);
            models.entry(name.into()).or_insert_with(|| Arc::clone(&new));
            models
        });
        Arc::clone(self.models.load().get(name).expect("it was put there, and nothing is removed"))
    }
}

impl Default for Stats {
    fn default() -> Self {
        Self::new()
    }
}

impl ModelStats {
    fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            by_code: std::array::from_fn(|_| AtomicU64::new(0)),
            latency: std::array::from_fn(|_| Histogram::new(&LATENCY_LIMITS)),
            runtime: std::array::from_fn(|_| Histogram::new(&LATENCY_LIMITS)),
            n_examples: Histogram::new(&SIZE_LIMITS),
            cells: Cells::default(),
            in_flight: AtomicI64::new(0),
        }
    }
}

/// A request that has begun. If it is dropped before its end, it counts as cancelled.
pub(crate) struct InFlight {
    stats: Arc<ModelStats>,
    start: Instant,
    counted: Option<(Api, Entrypoint)>,
    trace: Trace,
}

impl InFlight {
    /// Says what the request is, without which it is in flight but not counted.
    pub(crate) fn counted_as(mut self, api: Api, entrypoint: Entrypoint) -> Self {
        self.counted = Some((api, entrypoint));
        self
    }

    /// The request ended, well or not.
    pub(crate) fn end(mut self, failure: Option<&Status>) {
        let Some((api, entrypoint)) = self.counted.take() else { return };
        self.count(failure.map_or(0, |status| status.code.number()));
        let took = self.start.elapsed();
        if failure.is_none() {
            let cell = api as usize * ENTRYPOINTS.len() + entrypoint as usize;
            self.stats.latency[cell].add(micros(took));
        }
        self.trace.log(&Ended {
            model: &self.stats.name,
            api: api.name(entrypoint),
            entrypoint: entrypoint.name(),
            took,
            failure: failure.map(|status| (status.code, &*status.message)),
        });
    }

    fn count(&self, code: i32) {
        let code = usize::try_from(code).unwrap_or(0).min(N_CODES - 1);
        self.stats.by_code[code].fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.stats.in_flight.fetch_sub(1, Ordering::Relaxed);
        if self.counted.is_some() {
            self.count(Code::Cancelled.number());
        }
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
