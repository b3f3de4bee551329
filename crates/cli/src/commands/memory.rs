//! `tensord memory` and `tensord top`: who holds which bytes of a running server, and what its
//! queues and lanes do, as tables.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Parser};
use pages::{Categories, DeviceMemory, MemoryPage, SchedulerPage, WorkerEntry, WorkerModelPhase};
use serde::de::DeserializeOwned;
use server::say;

use super::top::Look;
use crate::table::Perform;

/// Show who holds which bytes of a running server
#[derive(Debug, Parser)]
#[command(rename_all = "snake_case")]
pub(crate) struct Memory {
    #[command(flatten)]
    asked: Asked,
    /// Print the JSON that the server gives
    #[arg(long)]
    json: bool,
}

/// Show memory and queues of a running server, again and again
#[derive(Debug, Parser)]
#[command(rename_all = "snake_case")]
pub(crate) struct Top {
    #[command(flatten)]
    asked: Asked,
    /// Seconds between two looks
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    every: f64,
    /// How often to look; 0 means until it is stopped
    #[arg(long, value_name = "N", default_value_t = 0)]
    times: u64,
}

/// The server that is asked.
#[derive(Debug, Args)]
#[command(rename_all = "snake_case")]
struct Asked {
    /// The server's REST address, as in localhost:8501
    #[arg(value_name = "URL")]
    url: String,
    /// The key, if the server wants one; it needs the right read, for all models
    #[arg(long, value_name = "KEY", env = "TENSORD_API_KEY", hide_env_values = true)]
    api_key: Option<String>,
}

/// The longest time that a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The characters of the longest bar.
const BAR: u64 = 30;

impl Perform for Memory {
    fn perform(self) -> Result<ExitCode> {
        let text = get(&self.asked, "/v1/memory")?;
        match self.json {
            true => say!("{}", text.trim_end()),
            false => say!("{}", table(&read(&text)?).trim_end()),
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Perform for Top {
    fn perform(self) -> Result<ExitCode> {
        top(&self)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Looks as often as it is asked to.
fn top(args: &Top) -> Result<()> {
    ensure!(args.every.is_finite() && args.every >= 0.1, "--every is at least a tenth of a second");
    let (_never, pause) = std::sync::mpsc::channel::<()>();
    let mut before = None;
    for look in 1.. {
        let memory: MemoryPage = read(&get(&args.asked, "/v1/memory")?)?;
        let scheduler: SchedulerPage = read(&get(&args.asked, "/v1/scheduler")?)?;
        let scheduler = Look::new(scheduler);
        // Clears the terminal, and begins above.
        say!("\x1b[2J\x1b[H{}", table(&memory).trim_end());
        say!("\n{}", scheduler.table(before.as_ref()).trim_end());
        before = Some(scheduler);
        if look == args.times {
            break;
        }
        let _ = pause.recv_timeout(Duration::from_secs_f64(args.every));
    }
    Ok(())
}

/// Reads a page.
fn read<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text)
        .context("the answer is not a page of this version of tensord; --json shows it as it is")
}

/// Asks a server for a page.
fn get(args: &Asked, path: &str) -> Result<String> {
    let url = &args.url;
    let host = url.strip_prefix("http://").unwrap_or(url).trim_end_matches('/');
    ensure!(!host.contains("://"), "{url}: only http can be asked");
    let address = if host.contains(':') { host.to_owned() } else { format!("{host}:8501") };
    let mut stream =
        TcpStream::connect(&address).with_context(|| format!("no server answers at {address}"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let key = args.api_key.as_ref().map(|key| format!("Authorization: Bearer {key}\r\n"));
    let key = key.unwrap_or_default();
    let head = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{key}\r\n");
    stream.write_all(head.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("the answer is no HTTP")?;
    let status = head.split(' ').nth(1).unwrap_or_default();
    if status != "200" {
        bail!("{address} answers {status}: {}", body.trim());
    }
    Ok(body.to_owned())
}

/// The memory of each device, with bars: how much of the limit is held, and by whom.
fn table(memory: &MemoryPage) -> String {
    let mut text = String::new();
    memory.devices.iter().for_each(|device| write_device(&mut text, device));
    memory.workers.iter().for_each(|worker| write_worker(&mut text, worker));
    text
}

/// A line for a device, and those of all that hold its bytes.
fn write_device(text: &mut String, device: &DeviceMemory) {
    let (limit, held) = (device.limit_bytes, device.reserved_bytes);
    let _ = writeln!(
        text,
        "{:<8} on {:<8} {} {:>10} of {:>10}  in use {}, peak {}, growth {}",
        device.name,
        device.physical,
        bar(held, limit),
        human(held),
        human(limit),
        human(device.in_use_bytes),
        human(device.peak_in_use_bytes),
        device.growth.name(),
    );
    for model in &device.models {
        let name = format!("{}:{}", model.name, model.version);
        let line = Line { name, held_bytes: model.bytes, of_bytes: held };
        // A limit of its own is worth a word.
        let own = model.limit_bytes.filter(|own| *own < limit);
        line.write(text, own, &model.categories);
    }
    if device.models.is_empty() {
        let _ = writeln!(text, "  no models");
    }
    if device.shared.bytes > 0 {
        let saved = human(device.shared.saved_bytes);
        let name = format!("shared between models, saves {saved}");
        let line = Line { name, held_bytes: device.shared.bytes, of_bytes: held };
        line.write(text, None, &Categories::new());
    }
    let server = &device.server.categories;
    let total = server.values().sum();
    let line = Line { name: "server".to_owned(), held_bytes: total, of_bytes: held };
    line.write(text, None, server);
    for idle in device.idle.iter().filter(|idle| idle.bytes > 0) {
        let _ = writeln!(text, "  {:>10} idle: {}", human(idle.bytes), idle.reason);
    }
}

/// A line for one of TensorFlow's workers, and one for each model that is being loaded there.
fn write_worker(text: &mut String, worker: &WorkerEntry) {
    let (held, limit) = (worker.resident_bytes, worker.limit_bytes.unwrap_or(0));
    let name = shorten(&format!("worker {} on {}", worker.name, worker.device), NAME + 2);
    let over = if worker.over_limit { ", over its limit" } else { "" };
    let _ = writeln!(
        text,
        "{name:<43} {} {:>10}  {}, {} by itself, {} running{over}",
        bar(held, limit.max(held)),
        human(held),
        worker.state.name(),
        human(worker.base_bytes),
        worker.running,
    );
    let is_loading = |state| state == WorkerModelPhase::Loading;
    for model in worker.models.iter().filter(|model| is_loading(model.state)) {
        let _ = writeln!(
            text,
            "  {:<41} loading for {:.0} of at most {:.0} s, {} of {} so far",
            shorten(&format!("{}:{}", model.name, model.version), NAME),
            model.loading_seconds.unwrap_or(0.0),
            model.loading_seconds_max.unwrap_or(0.0),
            human(model.loading_grown_bytes.unwrap_or(0)),
            human(model.weights_bytes),
        );
    }
}

/// A holder of bytes.
struct Line {
    name: String,
    held_bytes: u64,
    /// The bytes that the whole bar stands for.
    of_bytes: u64,
}

/// The characters of the names of holders.
const NAME: usize = 41;

impl Line {
    /// Writes a line, and one for each of the categories; nothing for a holder of nothing.
    fn write(&self, text: &mut String, limit_bytes: Option<u64>, categories: &Categories) {
        let Self { name, held_bytes: held, of_bytes: of } = self;
        if *held == 0 {
            return;
        }
        let name = shorten(name, NAME);
        let limit = limit_bytes.map_or_else(String::new, |limit| format!(" of {}", human(limit)));
        let _ = writeln!(text, "  {name:<NAME$} {} {:>10}{limit}", bar(*held, *of), human(*held));
        for (category, bytes) in categories {
            let (category, bar) = (category.name(), bar(*bytes, *of));
            let _ = writeln!(text, "    {category:<39} {bar} {:>10}", human(*bytes));
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

pub(super) fn human(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
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
            models: vec![model],
            ..WorkerEntry::default()
        };
        let text = table(&MemoryPage { workers: vec![worker], ..MemoryPage::default() });
        assert!(text.contains("worker shared on cpu:0"), "{text}");
        assert!(text.contains("600.0 MiB  up, 300.0 MiB by itself, 2 running, over its limit"));
        let line = "loading for 2 of at most 600 s, 10.0 MiB of 100.0 MiB so far";
        assert!(text.contains(line), "{text}");
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
            table.lines().skip(1).filter_map(|line| line.chars().position(|c| c == '[')).collect();
        assert_eq!(bars, [44; 9], "{table}");
        assert!(table.lines().all(|line| line.chars().count() < 130), "{table}");
        for text in ["long_long_long_long_", "…", ":1234567", "1000 B of 2.0 MiB", "idle: kept"] {
            assert!(table.contains(text), "{text} in {table}");
        }
        assert!(!table.contains("of 4.0 GiB\n") && !table.contains("never"), "{table}");
    }

    #[test]
    fn a_server_without_models_says_so() {
        let table = shown(DeviceMemory { limit_bytes: 4096, ..device("cpu:0") });
        assert_eq!(table.lines().count(), 2, "{table}");
        assert!(table.contains("0 B of    4.0 KiB") && table.ends_with("  no models\n"), "{table}");
    }

    #[test]
    fn a_page_of_another_version_is_told() {
        let error = read::<MemoryPage>("{\"bytes\": 3}").unwrap_err();
        let text = format!("{error:#}");
        assert!(text.contains("this version of tensord") && text.contains("`bytes`"), "{text}");
    }
}
