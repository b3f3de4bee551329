//! `tensord plan`: shows what fits where, and how often, before anything is served.

mod copies;
mod fitting;
mod needed;
mod report;
mod worker;

use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use config::Flags;
use pages::{PlanEntry, PlanPage, PlannedModel, human_bytes};
use server::say;

pub(super) use self::needed::{Needed, rehearse};
pub(super) use self::report::BATCHES;
use super::memory::shorten;
use crate::table::Perform;

/// Say what fits where, before anything is served
///
/// Takes the flags of `serve`, and decides as `serve` would. Ends with status 1 if something does
/// not fit.
#[derive(Debug, Parser)]
#[command(next_line_help = true, rename_all = "snake_case")]
pub(crate) struct Plan {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Elements of dimensions that signatures leave open, but for the rows: such as of sequences
    #[arg(long, value_name = "N", default_value = "1", value_parser = length)]
    length: NonZeroUsize,
    #[command(flatten)]
    flags: Flags,
}

impl Perform for Plan {
    fn perform(self) -> Result<ExitCode> {
        let report = report::plan(&self.flags, self.length.get())?;
        match self.json {
            true => say!("{}", pages::print(&report).trim_end()),
            false => say!("{}", table(&report).trim_end()),
        }
        Ok(if report.fits { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Reads a number of elements.
fn length(text: &str) -> std::result::Result<NonZeroUsize, String> {
    text.parse().map_err(|_| "a number of elements from 1 is wanted".to_owned())
}

/// A report for people.
fn table(report: &PlanPage) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{:<16} {:>10} {:>10}", "device", "limit", "left");
    for device in &report.devices {
        let (limit, left) = (human_bytes(device.limit_bytes), human_bytes(device.left_bytes));
        let _ = writeln!(text, "{:<16} {limit:>10} {left:>10}", device.name);
    }
    let columns = ["weights", "packed", "loading", "batch 1", "batch 8", "batch 64"];
    let columns = columns.map(|column| format!("{column:>10}")).join(" ");
    let _ = writeln!(text, "\n{:<16} {columns}  {:<12} most rows, copies", "model", "placed on");
    for entry in &report.models {
        let name = shorten(entry.name(), 16);
        let _ = match entry {
            PlanEntry::Planned(model) => writeln!(text, "{name:<16} {}", figures(model)),
            PlanEntry::Failed(model) => {
                writeln!(text, "{name:<16} cannot be loaded: {}", model.error)
            }
        };
    }
    for model in report.models.iter().filter_map(PlanEntry::planned) {
        if let Some(fewer) = &model.fewer_replicas {
            let _ = writeln!(text, "\n{} would have {fewer}", model.name);
        }
        if let Some(why) = &model.refused {
            let _ = writeln!(text, "\n{} would be refused: {why}", model.name);
        }
    }
    text
}

/// The figures of a model, and its place.
fn figures(model: &PlannedModel) -> String {
    let at = |batch: usize| {
        let plan = model.plans.iter().find(|plan| plan.batch == batch);
        plan.map_or("?".to_owned(), |plan| human_bytes(plan.total_bytes))
    };
    let figures = [
        human_bytes(model.weights_bytes),
        human_bytes(model.packed_weights_bytes),
        human_bytes(model.load_peak_bytes),
        at(1),
        at(8),
        at(64),
    ];
    let figures = figures.map(|figure| format!("{figure:>10}")).join(" ");
    let is_nowhere = model.devices.is_empty();
    let on = if is_nowhere { "nowhere".to_owned() } else { model.devices.join(",") };
    let copies = model.copies_alone.iter().map(|one| format!("{} on {}", one.copies, one.device));
    let copies: Vec<String> = copies.collect();
    let rows = model.batch_size_max.map_or("-".to_owned(), |n| n.to_string());
    format!("{figures}  {on:<12} {rows}, {}", copies.join(", "))
}

#[cfg(test)]
mod tests {
    use pages::{BatchPlan, CopiesAlone, PlannedDevice, UnplannedModel};

    use super::*;

    #[test]
    fn a_table_says_where_models_are_and_why_others_are_refused() {
        let gpu = "gpu:0".to_owned();
        let placed = PlannedModel {
            name: "m".to_owned(),
            devices: vec![gpu.clone()],
            batch_size_max: Some(2),
            plans: vec![BatchPlan { batch: 1, total_bytes: 110, ..BatchPlan::default() }],
            copies_alone: vec![CopiesAlone { device: gpu.clone(), copies: 7 }],
            ..PlannedModel::default()
        };
        let refused = PlannedModel {
            name: "n".to_owned(),
            refused: Some("it is too large".to_owned()),
            ..PlannedModel::default()
        };
        let failed = UnplannedModel { name: "o".to_owned(), error: "no such folder".to_owned() };
        let (limit_bytes, left_bytes) = (3 << 20, 1 << 20);
        let table = table(&PlanPage {
            devices: vec![PlannedDevice {
                name: gpu,
                limit_bytes,
                left_bytes,
                ..PlannedDevice::default()
            }],
            models: vec![
                PlanEntry::Planned(Box::new(placed)),
                PlanEntry::Planned(Box::new(refused)),
                PlanEntry::Failed(failed),
            ],
            fits: false,
        });
        let expected = [
            "gpu:0               3.0 MiB    1.0 MiB",
            "110 B",
            "gpu:0        2, 7 on gpu:0",
            "nowhere",
            "n would be refused: it is too large",
            "cannot be loaded: no such folder",
        ];
        for expected in expected {
            assert!(table.contains(expected), "{expected} in {table}");
        }
    }
}
