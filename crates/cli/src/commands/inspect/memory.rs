//! The memory that a model would take, predicted without loading its weights.

use anyhow::Result;
use native::Sizes;
use serde::Serialize;

use super::super::plan::{BATCHES, Needed, rehearse};

/// The bytes that a model takes on a CPU of its own.
#[derive(Debug, Serialize)]
pub(super) struct Memory {
    pub(super) weights_bytes: u64,
    pub(super) packed_weights_bytes: u64,
    pub(super) other_bytes: u64,
    pub(super) load_peak_bytes: u64,
    /// The bytes that are held altogether, by the rows of a batch.
    pub(super) plans: Vec<BatchMemory>,
}

/// The bytes that are held while batches of so many rows run.
#[derive(Debug, Serialize)]
pub(super) struct BatchMemory {
    pub(super) batch: usize,
    pub(super) total_bytes: u64,
    /// Set if all sizes are known before the run.
    pub(super) is_static: bool,
}

impl Memory {
    /// Predicts it, as `plan` does.
    pub(super) fn predict(folder: &str, tags: &[String]) -> Result<Self> {
        let largest = BATCHES.last().copied().unwrap_or(1);
        let sizes = Sizes::of_rows(largest);
        let needed: Needed = rehearse(folder, tags, device::Kind::Cpu, sizes)?;
        let plans = needed.plans.iter().map(|(batch, plan)| BatchMemory {
            batch: *batch,
            total_bytes: needed.total(*batch),
            is_static: plan.is_static,
        });
        Ok(Self {
            weights_bytes: needed.load.weights_bytes,
            packed_weights_bytes: needed.load.packed_bytes,
            other_bytes: needed.load.other_bytes,
            load_peak_bytes: needed.load.load_peak_bytes,
            plans: plans.collect(),
        })
    }
}
