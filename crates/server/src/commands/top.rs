//! The queues and lanes of a running server, as `tensord top` shows them beside the memory.

use std::fmt::Write as _;
use std::time::Instant;

use serde_json::Value;

use super::memory::shorten;

/// The characters of the names of queues.
const NAME: usize = 46;

/// The characters of the longest bar.
const BAR: usize = 20;

/// What the scheduler said when it was looked at last.
pub(super) struct Look {
    page: Value,
    at: Instant,
}

impl Look {
    pub(super) fn new(page: Value) -> Self {
        Self { page, at: Instant::now() }
    }

    /// Lanes and queues as a table: what they have done since an earlier look, or in all.
    pub(super) fn table(&self, before: Option<&Self>) -> String {
        let mut text = String::new();
        let seconds = before.map(|before| (self.at - before.at).as_secs_f64());
        for (number, lane) in list(&self.page, "lanes").enumerate() {
            let earlier = before.and_then(|before| before.page["lanes"].get(number));
            let busy = lane["busy_seconds"].as_f64().unwrap_or(0.0);
            let busy_before = earlier.and_then(|lane| lane["busy_seconds"].as_f64()).unwrap_or(0.0);
            let share = match seconds {
                Some(seconds) if seconds > 0.0 => ((busy - busy_before) / seconds).clamp(0.0, 1.0),
                _ => lane["utilisation"].as_f64().unwrap_or(0.0),
            };
            let name = format!("{} lane {}", word(lane, "device"), lane["lane"]);
            let _ = writeln!(text, "{name:<16} {} {:>5.1} % busy", bar(share), share * 100.0);
        }
        let _ = writeln!(
            text,
            "{:<NAME$} {:>7} {:>8} {:>9} {:>9} {:>7} {:>8} {:>9} {:>9} {:>8}",
            "queue",
            "waiting",
            "oldest",
            "answers/s",
            "batches/s",
            "rows",
            "padding",
            "queued",
            "computing",
            "refused"
        );
        for queue in list(&self.page, "queues") {
            let earlier = before.and_then(|before| before.queue_like(queue));
            let _ = writeln!(text, "{}", row(queue, earlier, seconds));
        }
        text
    }

    /// The same queue in this look.
    fn queue_like(&self, queue: &Value) -> Option<&Value> {
        const KEYS: [&str; 5] = ["model", "version", "signature", "device", "is_batched"];
        list(&self.page, "queues").find(|other| KEYS.iter().all(|key| other[*key] == queue[*key]))
    }
}

/// A queue: its length, and what it has done a second.
fn row(queue: &Value, before: Option<&Value>, seconds: Option<f64>) -> String {
    let since = |path: [&str; 2]| {
        let now = queue[path[0]][path[1]].as_f64().unwrap_or(0.0);
        let then = before.and_then(|before| before[path[0]][path[1]].as_f64()).unwrap_or(0.0);
        (now - then).max(0.0)
    };
    let (tasks, batches, rows) =
        (since(["tasks", "asked"]), since(["batches", "run"]), since(["rows", "run"]));
    let padding = since(["rows", "padding"]);
    let rate = |count: f64| seconds.filter(|s| *s > 0.0).map_or(count, |seconds| count / seconds);
    let per = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
    let name =
        format!("{}:{} {}", word(queue, "model"), queue["version"], word(queue, "signature"));
    let name = shorten(&format!("{name} {}", word(queue, "device")), NAME);
    let micros = |value: &Value| micros(value.as_f64().unwrap_or(0.0));
    format!(
        "{name:<NAME$} {:>7} {:>8} {:>9.1} {:>9.1} {:>7.1} {:>6.1} % {:>9} {:>9} {:>8}",
        queue["waiting"]["tasks"].as_u64().unwrap_or(0),
        micros(&queue["waiting"]["oldest_micros"]),
        rate(tasks),
        rate(batches),
        per(rows, batches),
        per(padding, rows + padding) * 100.0,
        micros(&queue["queue_micros"]["p99"]),
        micros(&queue["compute_micros"]["p99"]),
        since(["tasks", "refused"]) + since(["tasks", "expired"]),
    )
}

fn micros(micros: f64) -> String {
    if micros < 1000.0 {
        format!("{micros:.0} us")
    } else if micros < 1e6 {
        format!("{:.1} ms", micros / 1e3)
    } else {
        format!("{:.1} s", micros / 1e6)
    }
}

fn bar(share: f64) -> String {
    let n = (1..=BAR).filter(|n| *n as f64 <= share * BAR as f64 + 0.5).count();
    format!("[{:<BAR$}]", "#".repeat(n))
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().into_iter().flatten()
}

fn word<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or("?")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn page(busy: f64, asked: u64, batches: u64) -> Value {
        json!({
            "lanes": [{"device": "gpu:0", "lane": 0, "busy_seconds": busy, "utilisation": 0.1}],
            "queues": [{
                "model": "m", "version": 3, "signature": "serving_default", "device": "gpu:0",
                "is_batched": true, "waiting": {"tasks": 7, "rows": 9, "oldest_micros": 1500},
                "tasks": {"asked": asked, "refused": 2, "expired": 1},
                "batches": {"run": batches}, "rows": {"run": batches * 4, "padding": batches},
                "queue_micros": {"p99": 2048}, "compute_micros": {"p99": 512},
            }],
        })
    }

    #[test]
    fn a_look_shows_what_was_done_since_the_last() {
        let before = Look::new(page(1.0, 100, 10));
        let mut now = Look::new(page(2.0, 300, 60));
        now.at = before.at + Duration::from_secs(2);
        let table = now.table(Some(&before));
        let shown = |text: &str| assert!(table.contains(text), "{text} in\n{table}");
        shown("gpu:0 lane 0     [##########          ]  50.0 % busy");
        shown("m:3 serving_default gpu:0");
        // 200 answers and 50 batches of 4 rows in two seconds.
        for text in ["7", "1.5 ms", "100.0", "25.0", "4.0", "20.0 %", "2.0 ms", "512 us"] {
            shown(text);
        }
        let first = now.table(None);
        assert!(first.contains("10.0 % busy"), "{first}");
    }

    #[test]
    fn long_names_keep_the_columns_and_what_tells_queues_apart() {
        let mut page = page(1.0, 1, 1);
        page["queues"][0]["model"] = json!("long_".repeat(40));
        let table = Look::new(page).table(None);
        let lines: Vec<&str> = table.lines().collect();
        let widths: Vec<usize> = lines[1..].iter().map(|line| line.chars().count()).collect();
        assert_eq!(widths[0], widths[1], "{table}");
        assert!(table.contains("long_long_") && table.contains("serving_default gpu:0"), "{table}");
        let none = Look::new(json!({"lanes": [], "queues": []})).table(None);
        assert_eq!(none.lines().count(), 1, "{none}");
    }
}
