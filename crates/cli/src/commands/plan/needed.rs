//! The memory that a model needs on a device, as a rehearsal says.

use std::sync::Arc;

use anyhow::Result;
use config::{PLANS_MAX, open_model};
use native::{Opened, PlanNeed, Rehearsal, Sizes};
use placement::{Claim, Demand, Within};
use pool::Pool;

use super::report::BATCHES;
use super::worker::Worker;

/// The memory that a model needs on a device.
pub(in crate::commands) struct Needed {
    pub(in crate::commands) load: native::Need,
    /// The memory that runs take for each batch size that could be planned.
    pub(in crate::commands) plans: Vec<(usize, PlanNeed)>,
    /// The memory that its worker needs, if TensorFlow serves it.
    pub(super) worker: Option<Worker>,
    /// Set if requests change it: then it has no replicas.
    pub(super) keeps_state: bool,
    /// The rows of the largest batch that was asked for.
    pub(super) rows_asked: usize,
    /// The rehearsal that measured it, if our own engine serves it.
    pub(super) rehearsed: Option<Rehearsed>,
}

/// The subject of a rehearsal.
pub(super) struct Rehearsed {
    base_path: String,
    tags: Vec<String>,
    kind: device::Kind,
    /// The sizes that are taken where signatures leave open, but for the rows.
    length: usize,
}

impl Rehearsed {
    /// Rehearses it, and says whether requests change it.
    fn rehearse(&self) -> Result<(Rehearsal, bool)> {
        let dir = open_model(std::path::Path::new(&self.base_path))?;
        let options = native::Options { tags: self.tags.clone(), plans_max: PLANS_MAX };
        let opened = Opened::open(&dir, &options)?;
        let keeps_state = opened.keeps_state();
        let pool = Arc::new(Pool::new(1));
        Ok((opened.rehearse(&options, &pool, self.kind)?, keeps_state))
    }

    /// The memory that a run of so many rows takes where the model may take no more than `room`, if
    /// a search finds that. Anew, since plans that were made before would count.
    fn search(&self, rows: usize, room: graph::Room) -> Result<Option<PlanNeed>> {
        let (rehearsal, _) = self.rehearse()?;
        let batch = rehearsal.batch(None, Sizes { rows, length: self.length })?;
        let found = batch.map(|batch| rehearsal.plan_within(&batch, room)).transpose()?;
        Ok(found.filter(|found| found.is_searched))
    }
}

impl Needed {
    /// The memory that stays while it is loaded, and what a run takes of the largest batch up to
    /// `batch`; or what loading takes, if that is more.
    pub(in crate::commands) fn total(&self, batch: usize) -> u64 {
        let plans = self.plans.iter().filter(|(size, _)| *size <= batch);
        let run = plans.map(|(_, plan)| plan.total_bytes()).max().unwrap_or(0);
        self.load.load_peak_bytes.max(self.load.resident_bytes() + run)
    }

    /// The claim of a model, as the server makes it when it loads one.
    pub(super) fn claim(&self, model: &str) -> Claim {
        let is_in_worker = self.worker.is_some();
        Claim::new(Demand {
            model: model.into(),
            version: 0,
            needed: self.to_device(),
            keys: Vec::new(),
            keeps_state: self.keeps_state,
            within: if is_in_worker { Within::Workers } else { Within::Devices },
        })
    }

    /// The bytes that it takes of a device, as the server has them.
    pub(super) fn to_device(&self) -> placement::Needed {
        if self.worker.is_some() {
            let (bytes, worker_bytes) = (self.load.weights_bytes, self.load.other_bytes);
            return placement::Needed { bytes, worker_bytes, ..placement::Needed::default() };
        }
        let run = |rows: usize| {
            let plans = self.plans.iter().filter(|(size, _)| *size <= rows);
            plans.map(|(_, plan)| plan.total_bytes()).max().unwrap_or(0)
        };
        placement::Needed {
            bytes: self.total(1),
            host_bytes: self.host_total(1),
            resident_bytes: self.load.resident_bytes(),
            run_bytes: run(1),
            largest_run_bytes: run(self.rows_asked),
            worker_bytes: 0,
        }
    }

    /// The same of the host, for a model on a GPU.
    pub(super) fn host_total(&self, batch: usize) -> u64 {
        let plans = self.plans.iter().filter(|(size, _)| *size <= batch);
        let run = plans.map(|(_, plan)| plan.host_bytes).max().unwrap_or(0);
        self.load.host_peak_bytes.max(self.load.host_bytes + run)
    }

    /// Returns whether a run of so many rows fits in `room`, with what stays. If it does not with
    /// the offsets that are found at once, others are searched for, as the server does it when it
    /// loads the model and when it runs; those that are found are its plan from now on.
    pub(super) fn fits_in(&mut self, batch: usize, room: &graph::Room) -> bool {
        let fits = |need: &Self| {
            need.total(batch) <= room.device_bytes && need.host_total(batch) <= room.host_bytes
        };
        let (loads, on_host) = (self.load.load_peak_bytes, self.load.host_peak_bytes);
        if fits(self) || loads > room.device_bytes || on_host > room.host_bytes {
            return fits(self);
        }
        let Some(rehearsed) = &self.rehearsed else { return false };
        // What cannot be planned beforehand is found out when it runs.
        let found = rehearsed.search(batch, *room).ok().flatten();
        let plan = self.plans.iter_mut().find(|(rows, _)| *rows == batch);
        if let Some(((_, plan), found)) = plan.zip(found) {
            *plan = found;
        }
        fits(self)
    }
}

/// The memory that a model needs on a kind of device, with batches of up to so many rows and inputs
/// of a length.
pub(in crate::commands) fn rehearse(
    base_path: &str,
    tags: &[String],
    kind: device::Kind,
    asked: Sizes,
) -> Result<Needed> {
    let Sizes { rows: rows_asked, length } = asked;
    let rehearsed =
        Rehearsed { base_path: base_path.to_owned(), tags: tags.to_vec(), kind, length };
    let (rehearsal, keeps_state) = rehearsed.rehearse()?;
    let load = rehearsal.need();
    let mut plans = Vec::new();
    let beyond = Some(rows_asked).filter(|rows| !BATCHES.contains(rows));
    for rows in BATCHES.into_iter().chain(beyond) {
        // Inputs without a known number of dimensions leave the model without this figure.
        let Some(batch) = rehearsal.batch(None, Sizes { rows, length })? else { break };
        plans.extend(rehearsal.plan(&batch.signature, &batch.inputs).map(|plan| (rows, plan)));
    }
    let (worker, rehearsed) = (None, Some(rehearsed));
    Ok(Needed { load, plans, worker, keeps_state, rows_asked, rehearsed })
}
