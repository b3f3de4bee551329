//! `tensord memory`: who holds which bytes of a running server as a table, why, and the lines that
//! change it.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use pages::{
    Categories, DeviceMemory, HoldingReason, ManagementRoute, MemoryPage, Remedy, WorkerEntry,
    WorkerModel, WorkerModelPhase, human_bytes, reasons,
};
use serde::Deserialize;
use server::say;

use super::remote::{PageClient, ServerArgs, read};
use crate::table::Perform;

/// Show who holds which bytes of a running server
#[derive(Debug, Parser)]
#[command(rename_all = "snake_case")]
pub(crate) struct Memory {
    #[command(flatten)]
    server: ServerArgs,
    /// Print the JSON that the server gives
    #[arg(long)]
    json: bool,
}

/// The characters of the longest bar.
const BAR: u64 = 30;

/// The holders whose bytes are explained: the largest.
const REASONS_MAX: usize = 5;

impl Perform for Memory {
    fn perform(self) -> Result<ExitCode> {
        let mut client = PageClient::new(&self.server)?;
        let text = client.text("/v1/memory")?;
        if self.json {
            say!("{}", text.trim_end());
            return Ok(ExitCode::SUCCESS);
        }
        let memory: MemoryPage = read(&text)?;
        let devices = client.page("/v1/devices")?;
        // A server may have no such page; then lines of configs are named alone.
        let about: AboutFacts = client.page(ABOUT).unwrap_or_default();
        let key_words = if self.server.has_key() { KEY_WORDS } else { "" };
        let route = ManagementRoute { address: about.management, key_words: key_words.to_owned() };
        say!("{}", table(&memory).trim_end());
        say!("\n{}", explanation(&reasons(&memory, &devices, &route)).trim_end());
        Ok(ExitCode::SUCCESS)
    }
}

/// The path of the facts about a server.
const ABOUT: &str = "/ui/server.json";

/// The words of `curl` that present the key of the environment, which no history of a shell keeps.
const KEY_WORDS: &str = "-H \"Authorization: Bearer $TENSORD_API_KEY\"";

/// The fact about a server that commands need.
#[derive(Debug, Default, Deserialize)]
struct AboutFacts {
    /// The address of the calls that change the server.
    management: Option<String>,
}

/// The reasons why the most bytes are held, and the lines that change it.
fn explanation(reasons: &[HoldingReason]) -> String {
    let (limits, held): (Vec<_>, Vec<_>) =
        reasons.iter().partition(|reason| reason.holder.starts_with("limit of"));
    let mut text = "Why it is held, the most first, and the lines that change it:\n".to_owned();
    for reason in held.into_iter().take(REASONS_MAX).chain(limits) {
        let HoldingReason { holder, bytes, why, remedies } = reason;
        let _ = writeln!(text, "\n{holder}: {}. {why}", human_bytes(*bytes));
        for Remedy { does, line } in remedies {
            let _ = writeln!(text, "  {does}:\n    {line}");
        }
    }
    text
}

/// The memory of each device, with bars of one scale: a character stands for the same bytes
/// wherever it is.
pub(super) fn table(memory: &MemoryPage) -> String {
    let of_devices = memory.devices.iter().map(|device| device.reserved_bytes);
    let of_workers = memory.workers.iter().map(|worker| worker.resident_bytes);
    let scale = BarScale { most_bytes: of_devices.chain(of_workers).max().unwrap_or(0) };
    let mut text = String::new();
    memory.devices.iter().for_each(|device| write_device(&mut text, device, scale));
    memory.workers.iter().for_each(|worker| write_worker(&mut text, worker, scale));
    if scale.most_bytes > 0 {
        let each = human_bytes((scale.most_bytes / BAR).max(1));
        let _ = writeln!(text, "each # is {each} or a part of it");
    }
    text
}

/// The scale of all bars.
#[derive(Debug, Clone, Copy)]
struct BarScale {
    /// The bytes of the longest bar.
    most_bytes: u64,
}

impl BarScale {
    fn bar(self, bytes: u64) -> String {
        bar(bytes, self.most_bytes)
    }
}

/// A line for a device, and those of all that hold its bytes.
fn write_device(text: &mut String, device: &DeviceMemory, scale: BarScale) {
    let (limit, held) = (device.limit_bytes, device.reserved_bytes);
    let _ = writeln!(
        text,
        "{:<8} on {:<31} {} {:>10} of {}\n  in use {}, peak {}, growth {}",
        device.name,
        device.physical,
        scale.bar(held),
        human_bytes(held),
        human_bytes(limit),
        human_bytes(device.in_use_bytes),
        human_bytes(device.peak_in_use_bytes),
        device.growth.name(),
    );
    for model in &device.models {
        let name = format!("{}:{}", model.name, model.version);
        let line = Line { name, held_bytes: model.bytes, scale };
        // A limit of its own is worth a word.
        let own = model.limit_bytes.filter(|own| *own < limit);
        line.write(text, own, &model.categories);
    }
    if device.models.is_empty() {
        let _ = writeln!(text, "  no models");
    }
    if device.shared.bytes > 0 {
        let saved = human_bytes(device.shared.saved_bytes);
        let name = format!("shared between models, saves {saved}");
        let line = Line { name, held_bytes: device.shared.bytes, scale };
        line.write(text, None, &Categories::new());
    }
    let server = &device.server.categories;
    let total = server.values().sum();
    let line = Line { name: "server".to_owned(), held_bytes: total, scale };
    line.write(text, None, server);
    for idle in device.idle.iter().filter(|idle| idle.bytes > 0) {
        let _ = writeln!(text, "  {:>10} idle: {}", human_bytes(idle.bytes), idle.reason);
    }
}

/// A line for one of TensorFlow's workers, and one for each model in it.
fn write_worker(text: &mut String, worker: &WorkerEntry, scale: BarScale) {
    let held = worker.resident_bytes;
    let name = shorten(&format!("worker {} on {}", worker.name, worker.device), NAME + 2);
    let over = if worker.over_limit { ", over its limit" } else { "" };
    let _ = writeln!(
        text,
        "{name:<43} {} {:>10}  {}, {} by itself, {} running{over}",
        scale.bar(held),
        human_bytes(held),
        worker.state.name(),
        human_bytes(worker.base_bytes),
        worker.running,
    );
    worker.models.iter().for_each(|model| write_worker_model(text, model, scale));
}

/// A line for a model in a worker, with the bytes of its variables.
fn write_worker_model(text: &mut String, model: &WorkerModel, scale: BarScale) {
    let name = shorten(&format!("{}:{}", model.name, model.version), NAME);
    let weights = model.weights_bytes;
    let state = match model.state {
        WorkerModelPhase::Waiting => "waits for its worker".to_owned(),
        WorkerModelPhase::Loading => format!(
            "loading for {:.0} of at most {:.0} s, {} of {} so far",
            model.loading_seconds.unwrap_or(0.0),
            model.loading_seconds_max.unwrap_or(0.0),
            human_bytes(model.loading_grown_bytes.unwrap_or(0)),
            human_bytes(weights),
        ),
        WorkerModelPhase::Loaded => "loaded, its weights".to_owned(),
        WorkerModelPhase::Failed => "failed to load".to_owned(),
    };
    let held = if model.state == WorkerModelPhase::Loaded { weights } else { 0 };
    let (bar, held) = (scale.bar(held), human_bytes(held));
    let _ = writeln!(text, "  {name:<41} {bar} {held:>10}  {state}");
}

/// A holder of bytes.
struct Line {
    name: String,
    held_bytes: u64,
    scale: BarScale,
}

/// The characters of the names of holders.
const NAME: usize = 41;

impl Line {
    /// Writes a line, and one for each of the categories; nothing for a holder of nothing.
    fn write(&self, text: &mut String, limit_bytes: Option<u64>, categories: &Categories) {
        let Self { name, held_bytes: held, scale } = self;
        if *held == 0 {
            return;
        }
        let name = shorten(name, NAME);
        let limit =
            limit_bytes.map_or_else(String::new, |limit| format!(" of {}", human_bytes(limit)));
        let _ = writeln!(
            text,
            "  {name:<NAME$} {} {:>10}{limit}",
            scale.bar(*held),
            human_bytes(*held)
        );
        for (category, bytes) in categories {
            let (category, bar) = (category.name(), scale.bar(*bytes));
            let _ = writeln!(text, "    {category:<39} {bar} {:>10}", human_bytes(*bytes));
        }
    }
}

/// A text of at most `width` characters: of a longer one the beginning and the end.
pub(super) fn shorten(text: &str, width: usize) -> String {
    let n = text.chars().count();
    if n <= width {
        return text.to_owned();
    }
    let tail = width / 2;
    let head = width.saturating_sub(tail + 1);
    text.chars().take(head).chain(['…']).chain(text.chars().skip(n - tail)).collect()
}

fn bar(part: u64, whole: u64) -> String {
    let n = (u128::from(part) * u128::from(BAR)).div_ceil(u128::from(whole.max(1)));
    let n = usize::try_from(n.min(u128::from(BAR))).unwrap_or(0);
    let width = usize::try_from(BAR).unwrap_or(0);
    format!("[{:<width$}]", "#".repeat(n))
}

#[cfg(test)]
mod tests {
    use pages::{
        IdleBytes, IdleKind, MemoryCategory, ServerMemory, SharedMemory, VersionMemory,
        WorkerModel, WorkerPhase,
    };

    use super::*;

    fn device(name: &str) -> DeviceMemory {
        let name = name.to_owned();
        DeviceMemory { physical: name.clone(), name, ..DeviceMemory::default() }
    }

    fn model(name: &str, version: i64, bytes: u64, category: MemoryCategory) -> VersionMemory {
        let categories = Categories::from([(category, bytes)]);
        VersionMemory { name: name.to_owned(), version, bytes, categories, ..Default::default() }
    }

    fn server() -> ServerMemory {
        ServerMemory { categories: Categories::from([(MemoryCategory::Reserve, 48)]) }
    }

    fn shared(bytes: u64, saved_bytes: u64) -> SharedMemory {
        SharedMemory { bytes, saved_bytes, ..SharedMemory::default() }
    }

    fn shown(device: DeviceMemory) -> String {
        table(&MemoryPage { devices: vec![device], ..MemoryPage::default() })
    }

    #[test]
    fn workers_are_shown_with_what_they_load_and_whether_they_are_over_their_limit() {
        let loaded = WorkerModel {
            name: "n".to_owned(),
            version: 7,
            state: WorkerModelPhase::Loaded,
            weights_bytes: 200 << 20,
            ..WorkerModel::default()
        };
        let model = WorkerModel {
            name: "m".to_owned(),
            version: 1,
            state: WorkerModelPhase::Loading,
            weights_bytes: 100 << 20,
            loading_seconds: Some(2.5),
            loading_seconds_max: Some(600.0),
            loading_grown_bytes: Some(10 << 20),
        };
        let worker = WorkerEntry {
            name: "shared".to_owned(),
            device: "cpu:0".to_owned(),
            state: WorkerPhase::Up,
            running: 2,
            over_limit: true,
            resident_bytes: 600 << 20,
            base_bytes: 300 << 20,
            limit_bytes: Some(500 << 20),
            models: vec![model, loaded],
            ..WorkerEntry::default()
        };
        let text = table(&MemoryPage { workers: vec![worker], ..MemoryPage::default() });
        assert!(text.contains("worker shared on cpu:0"), "{text}");
        assert!(text.contains("600.0 MiB  up, 300.0 MiB by itself, 2 running, over its limit"));
        let line = "loading for 2 of at most 600 s, 10.0 MiB of 100.0 MiB so far";
        assert!(text.contains(line), "{text}");
        let loaded = text.lines().find(|line| line.contains("n:7")).unwrap();
        assert!(loaded.contains("##########  ") && loaded.contains("200.0 MiB  loaded"), "{text}");
    }

    #[test]
    fn a_character_stands_for_the_same_bytes_on_every_device() {
        let page = |name: &str, held: u64| DeviceMemory {
            limit_bytes: 1 << 40,
            reserved_bytes: held,
            models: vec![model("m", 1, held / 2, MemoryCategory::Weights)],
            ..device(name)
        };
        let devices = vec![page("cpu:0", 30 << 20), page("gpu:0", 10 << 20)];
        let text = table(&MemoryPage { devices, ..MemoryPage::default() });
        let bars: Vec<usize> = text.lines().map(|line| line.matches('#').count()).collect();
        // Device, use, model, its category; and the scale.
        assert_eq!(bars, [30, 0, 15, 15, 10, 0, 5, 5, 1], "{text}");
        assert!(text.ends_with("each # is 1.0 MiB or a part of it\n"), "{text}");
    }

    #[test]
    fn the_largest_holders_are_explained_and_every_limit() {
        let reason = |n: u64| HoldingReason {
            holder: format!("m{n}:1 on gpu:0"),
            bytes: n << 20,
            why: "Held.".to_owned(),
            remedies: vec![Remedy { does: "Change it".to_owned(), line: format!("line {n}") }],
        };
        let mut all: Vec<HoldingReason> = (1..=9).rev().map(reason).collect();
        all.push(HoldingReason { holder: "limit of gpu:0".to_owned(), ..reason(10) });
        let text = explanation(&all);
        assert!(text.contains("m9:1 on gpu:0: 9.0 MiB. Held.\n  Change it:\n    line 9\n"));
        assert!(text.contains("line 5") && !text.contains("line 4"), "{text}");
        assert!(text.contains("limit of gpu:0: 10.0 MiB. Held."), "{text}");
    }

    #[test]
    fn bars_are_as_long_as_their_share() {
        assert_eq!(bar(0, 10).matches('#').count(), 0);
        assert_eq!(bar(1, 1_000_000).matches('#').count(), 1, "a little is seen too");
        assert_eq!(bar(5, 10).matches('#').count(), 15);
        assert_eq!(bar(u64::MAX, 1).matches('#').count(), 30);
        assert_eq!(bar(3, 0).len(), 32);
    }

    #[test]
    fn a_table_names_every_holder() {
        let table = shown(DeviceMemory {
            limit_bytes: 4096,
            reserved_bytes: 2048,
            shared: shared(10, 20),
            server: server(),
            models: vec![model("m", 3, 2000, MemoryCategory::Weights)],
            ..device("gpu:0")
        });
        for expected in ["gpu:0", "m:3", "weights", "2.0 KiB", "4.0 KiB", "shared", "reserve"] {
            assert!(table.contains(expected), "{expected} in {table}");
        }
    }

    #[test]
    fn bars_stand_below_each_other_whatever_the_names_are() {
        let model = |name: &str, limit: u64| VersionMemory {
            limit_bytes: Some(limit),
            ..model(name, 1_234_567, 1000, MemoryCategory::PackedWeights)
        };
        let idle = |bytes, reason: &str| IdleBytes {
            bytes,
            kind: IdleKind::Kept,
            reason: reason.to_owned(),
        };
        let (long, wide) = ("long_".repeat(40), "größer".repeat(20));
        let table = shown(DeviceMemory {
            limit_bytes: 4 << 30,
            reserved_bytes: 3000,
            shared: shared(10, 1 << 40),
            server: server(),
            idle: vec![idle(48, "kept"), idle(0, "never")],
            models: vec![model("m", 4 << 30), model(&long, 2 << 20), model(&wide, 4 << 30)],
            ..device("gpu:0")
        });
        let bars: Vec<usize> =
            table.lines().filter_map(|line| line.chars().position(|c| c == '[')).collect();
        assert_eq!(bars, [44; 10], "{table}");
        assert!(table.lines().all(|line| line.chars().count() < 110), "{table}");
        for text in ["long_long_long_long_", "…", ":1234567", "1000 B of 2.0 MiB", "idle: kept"] {
            assert!(table.contains(text), "{text} in {table}");
        }
        let below = table.lines().skip(1).collect::<String>();
        assert!(!below.contains("of 4.0 GiB") && !below.contains("never"), "{table}");
    }

    #[test]
    fn a_server_without_models_says_so() {
        let table = shown(DeviceMemory { limit_bytes: 4096, ..device("cpu:0") });
        assert_eq!(table.lines().count(), 3, "{table}");
        assert!(table.contains("0 B of 4.0 KiB") && table.ends_with("  no models\n"), "{table}");
    }
}
