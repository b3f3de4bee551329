//! `tensord memory` and `tensord top`: who holds which bytes of a running server, and what its
//! queues and lanes do, as tables.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use serde_json::Value;

use super::top::Look;

/// Show who holds which bytes of a running server
#[derive(Debug, Parser)]
#[command(name = "tensord memory")]
struct Memory {
    /// The server's REST address, as in localhost:8501
    url: String,
    /// Print the JSON that the server gives
    #[arg(long)]
    json: bool,
    /// The key, if the server wants one; it needs the right read, for all models
    #[arg(long, env = "TENSORD_API_KEY", hide_env_values = true)]
    api_key: Option<String>,
    /// Seconds between two looks of `top`
    #[arg(long, default_value_t = 1.0)]
    every: f64,
    /// How often `top` looks; 0 means until it is stopped
    #[arg(long, default_value_t = 0)]
    times: u64,
}

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The characters of the longest bar.
const BAR: u64 = 30;

/// Runs `tensord memory`.
pub(crate) fn main(args: Vec<String>) -> Result<()> {
    let args = Memory::parse_from(args);
    let text = get(&args, "/v1/memory")?;
    if args.json {
        say!("{}", text.trim_end());
        return Ok(());
    }
    say!("{}", table(&serde_json::from_str(&text)?).trim_end());
    Ok(())
}

/// Runs `tensord top`.
pub(crate) fn top(args: Vec<String>) -> Result<()> {
    let args = Memory::parse_from(args);
    ensure!(args.every.is_finite() && args.every >= 0.1, "--every is at least a tenth of a second");
    let (_never, pause) = std::sync::mpsc::channel::<()>();
    let mut before = None;
    for look in 1.. {
        let memory: Value = serde_json::from_str(&get(&args, "/v1/memory")?)?;
        let scheduler = Look::new(serde_json::from_str(&get(&args, "/v1/scheduler")?)?);
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

/// Asks a server for a page.
fn get(args: &Memory, path: &str) -> Result<String> {
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
fn table(memory: &Value) -> String {
    let mut text = String::new();
    for device in list(memory, "devices") {
        let (limit, held) = (bytes(device, "limit_bytes"), bytes(device, "reserved_bytes"));
        let name = word(device, "name");
        let line = format!(
            "{name:<8} on {:<8} {} {:>10} of {:>10}  in use {}, peak {}, growth {}",
            word(device, "physical"),
            bar(held, limit),
            human(held),
            human(limit),
            human(bytes(device, "in_use_bytes")),
            human(bytes(device, "peak_in_use_bytes")),
            word(device, "growth"),
        );
        let _ = writeln!(text, "{line}");
        for model in list(device, "models") {
            let name = format!("{}:{}", word(model, "name"), model["version"]);
            let line = Line { name, held_bytes: bytes(model, "bytes"), of_bytes: held };
            // A limit of its own is worth a word.
            let own = model["limit_bytes"].as_u64().filter(|own| *own < limit);
            line.write(&mut text, own, &model["categories"]);
        }
        if list(device, "models").next().is_none() {
            let _ = writeln!(text, "  no models");
        }
        let shared = bytes(&device["shared"], "bytes");
        if shared > 0 {
            let saved = human(bytes(&device["shared"], "saved_bytes"));
            let note = format!("shared between models, saves {saved}");
            let line = Line { name: note, held_bytes: shared, of_bytes: held };
            line.write(&mut text, None, &Value::Null);
        }
        let server = &device["server"]["categories"];
        let total =
            server.as_object().map_or(0, |map| map.values().filter_map(Value::as_u64).sum());
        let line = Line { name: "server".to_owned(), held_bytes: total, of_bytes: held };
        line.write(&mut text, None, server);
        for idle in list(device, "idle").filter(|idle| bytes(idle, "bytes") > 0) {
            let idle = (human(bytes(idle, "bytes")), word(idle, "reason"));
            let _ = writeln!(text, "  {:>10} idle: {}", idle.0, idle.1);
        }
    }
    workers(&mut text, memory);
    text
}

/// A line for each of TensorFlow's workers, and one for each model that is being loaded there.
fn workers(text: &mut String, memory: &Value) {
    for worker in list(memory, "workers") {
        let (held, limit) = (bytes(worker, "resident_bytes"), bytes(worker, "limit_bytes"));
        let name = format!("worker {} on {}", word(worker, "name"), word(worker, "device"));
        let name = shorten(&name, NAME + 2);
        let over = if worker["over_limit"] == true { ", over its limit" } else { "" };
        let _ = writeln!(
            text,
            "{name:<43} {} {:>10}  {}, {} by itself, {} running{over}",
            bar(held, limit.max(held)),
            human(held),
            word(worker, "state"),
            human(bytes(worker, "base_bytes")),
            worker["running"],
        );
        for model in list(worker, "models").filter(|model| model["state"] == "loading") {
            let _ = writeln!(
                text,
                "  {:<41} loading for {:.0} of at most {:.0} s, {} of {} so far",
                shorten(&format!("{}:{}", word(model, "name"), model["version"]), NAME),
                model["loading_seconds"].as_f64().unwrap_or(0.0),
                model["loading_seconds_max"].as_f64().unwrap_or(0.0),
                human(bytes(model, "loading_grown_bytes")),
                human(bytes(model, "weights_bytes")),
            );
        }
    }
}

/// A holder of bytes.
struct Line {
    name: String,
    held_bytes: u64,
    /// What its bar is a part of.
    of_bytes: u64,
}

/// The characters of the names of holders.
const NAME: usize = 41;

impl Line {
    /// Writes a line, and one for each of the categories; nothing for a holder of nothing.
    fn write(&self, text: &mut String, limit_bytes: Option<u64>, categories: &Value) {
        let Self { name, held_bytes: held, of_bytes: of } = self;
        if *held == 0 {
            return;
        }
        let name = shorten(name, NAME);
        let limit = limit_bytes.map_or_else(String::new, |limit| format!(" of {}", human(limit)));
        let _ = writeln!(text, "  {name:<NAME$} {} {:>10}{limit}", bar(*held, *of), human(*held));
        for (category, bytes) in categories.as_object().into_iter().flatten() {
            let bytes = bytes.as_u64().unwrap_or(0);
            let _ = writeln!(text, "    {category:<39} {} {:>10}", bar(bytes, *of), human(bytes));
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

pub(super) fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().into_iter().flatten()
}

pub(super) fn bytes(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or(0)
}

pub(super) fn word<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or("?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_shown_with_what_they_load_and_whether_they_are_over_their_limit() {
        let memory = serde_json::json!({"devices": [], "workers": [{
            "name": "shared", "device": "cpu:0", "state": "up", "running": 2, "over_limit": true,
            "resident_bytes": 600 << 20, "base_bytes": 300 << 20, "limit_bytes": 500 << 20,
            "models": [{"name": "m", "version": 1, "state": "loading", "loading_seconds": 2.5,
                "loading_seconds_max": 600, "loading_grown_bytes": 10 << 20,
                "weights_bytes": 100 << 20}],
        }]});
        let text = table(&memory);
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
        let memory = serde_json::json!({"devices": [{
            "name": "gpu:0", "physical": "gpu:0", "limit_bytes": 4096, "reserved_bytes": 2048,
            "growth": "on_demand", "shared": {"bytes": 10, "saved_bytes": 20},
            "server": {"categories": {"reserve": 48}},
            "models": [{"name": "m", "version": 3, "bytes": 2000, "categories": {"weights": 2000}}],
        }]});
        let table = table(&memory);
        for expected in ["gpu:0", "m:3", "weights", "2.0 KiB", "4.0 KiB", "shared", "reserve"] {
            assert!(table.contains(expected), "{expected} in {table}");
        }
    }

    #[test]
    fn bars_stand_below_each_other_whatever_the_names_are() {
        let model = |name: &str, limit: u64| {
            serde_json::json!({"name": name, "version": 1_234_567, "bytes": 1000,
                "limit_bytes": limit, "categories": {"packed_weights": 1000}})
        };
        let (long, wide) = ("long_".repeat(40), "größer".repeat(20));
        let memory = serde_json::json!({"devices": [{
            "name": "gpu:0", "physical": "gpu:0",
            "limit_bytes": 4_u64 << 30, "reserved_bytes": 3000,
            "growth": "on_demand", "shared": {"bytes": 10, "saved_bytes": 1_u64 << 40},
            "server": {"categories": {"reserve": 48}},
            "idle": [{"bytes": 48, "reason": "kept"}, {"bytes": 0, "reason": "never"}],
            "models": [model("m", 4 << 30), model(&long, 2 << 20), model(&wide, 4 << 30)],
        }]});
        let table = table(&memory);
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
        let memory = serde_json::json!({"devices": [{"name": "cpu:0", "physical": "cpu:0",
            "limit_bytes": 4096, "reserved_bytes": 0, "in_use_bytes": 0, "peak_in_use_bytes": 0,
            "growth": "on_demand", "models": [], "server": {"categories": {}}, "idle": []}]});
        let table = table(&memory);
        assert_eq!(table.lines().count(), 2, "{table}");
        assert!(table.contains("0 B of    4.0 KiB") && table.ends_with("  no models\n"), "{table}");
    }
}
