//! The queues and lanes of a running server as text, as `tensord top` prints them beside the memory
//! where there is no terminal.

use std::fmt::Write as _;
use std::time::Instant;

use pages::{QueueEntry, SchedulerPage};

use crate::commands::memory::shorten;

/// The characters of the names of queues.
const NAME: usize = 46;

/// The characters of the longest bar.
const BAR: usize = 20;

/// The scheduler's page at the last look.
pub(super) struct Look {
    page: SchedulerPage,
    at: Instant,
}

impl Look {
    pub(super) fn new(page: SchedulerPage, at: Instant) -> Self {
        Self { page, at }
    }

    /// Lanes and queues as a table: what they have done since an earlier look, or in all.
    pub(super) fn table(&self, before: Option<&Self>) -> String {
        let mut text = String::new();
        let seconds = before.map(|before| (self.at - before.at).as_secs_f64());
        for (number, lane) in self.page.lanes.iter().enumerate() {
            let earlier = before.and_then(|before| before.page.lanes.get(number));
            let busy_before = earlier.map_or(0.0, |lane| lane.busy_seconds);
            let busy = lane.busy_seconds - busy_before;
            let share = match seconds {
                Some(seconds) if seconds > 0.0 => (busy / seconds).clamp(0.0, 1.0),
                _ => lane.utilisation,
            };
            let name = format!("{} lane {}", lane.device, lane.lane);
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
        for queue in &self.page.queues {
            let earlier = before.and_then(|before| before.queue_like(queue));
            let _ = writeln!(text, "{}", row(queue, earlier, seconds));
        }
        text
    }

    /// The same queue in this look.
    fn queue_like(&self, queue: &QueueEntry) -> Option<&QueueEntry> {
        let is_it = |other: &&QueueEntry| {
            (&other.model, other.version) == (&queue.model, queue.version)
                && (&other.signature, &other.device) == (&queue.signature, &queue.device)
                && other.is_batched == queue.is_batched
        };
        self.page.queues.iter().find(is_it)
    }
}

/// A queue: its length, and what it has done a second.
fn row(queue: &QueueEntry, before: Option<&QueueEntry>, seconds: Option<f64>) -> String {
    let since =
        |count: fn(&QueueEntry) -> u64| count(queue).saturating_sub(before.map_or(0, count)) as f64;
    let (tasks, batches) = (since(|queue| queue.tasks.asked), since(|queue| queue.batches.run));
    let (rows, padding) = (since(|queue| queue.rows.run), since(|queue| queue.rows.padding));
    let rate = |count: f64| seconds.filter(|s| *s > 0.0).map_or(count, |seconds| count / seconds);
    let per = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
    let QueueEntry { model, version, signature, device, .. } = queue;
    let name = shorten(&format!("{model}:{version} {signature} {device}"), NAME);
    format!(
        "{name:<NAME$} {:>7} {:>8} {:>9.1} {:>9.1} {:>7.1} {:>6.1} % {:>9} {:>9} {:>8}",
        queue.waiting.tasks,
        micros(queue.waiting.oldest_micros),
        rate(tasks),
        rate(batches),
        per(rows, batches),
        per(padding, rows + padding) * 100.0,
        micros(queue.queue_micros.p99),
        micros(queue.compute_micros.p99),
        since(|queue| queue.tasks.refused) + since(|queue| queue.tasks.expired),
    )
}

/// A time with a unit, as in `1.5 ms`.
pub(super) fn micros(micros: u64) -> String {
    let micros = micros as f64;
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pages::{BatchCounts, Distribution, LaneEntry, RowCounts, TaskCounts, WaitingTasks};

    use super::*;

    fn p99(p99: u64) -> Distribution {
        Distribution { p99, ..Distribution::default() }
    }

    fn page(busy_seconds: f64, asked: u64, batches: u64) -> SchedulerPage {
        let lane = LaneEntry {
            device: "gpu:0".to_owned(),
            busy_seconds,
            utilisation: 0.1,
            ..LaneEntry::default()
        };
        let queue = QueueEntry {
            model: "m".to_owned(),
            version: 3,
            signature: "serving_default".to_owned(),
            device: "gpu:0".to_owned(),
            is_batched: true,
            waiting: WaitingTasks { tasks: 7, rows: 9, oldest_micros: 1500 },
            tasks: TaskCounts { asked, refused: 2, expired: 1, cancelled: 0 },
            batches: BatchCounts { run: batches, ..BatchCounts::default() },
            rows: RowCounts { run: batches * 4, padding: batches, ..RowCounts::default() },
            queue_micros: p99(2048),
            compute_micros: p99(512),
            ..QueueEntry::default()
        };
        SchedulerPage { queues: vec![queue], lanes: vec![lane] }
    }

    #[test]
    fn a_look_shows_what_was_done_since_the_last() {
        let start = Instant::now();
        let before = Look::new(page(1.0, 100, 10), start);
        let now = Look::new(page(2.0, 300, 60), start + Duration::from_secs(2));
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
        page.queues[0].model = "long_".repeat(40);
        let table = Look::new(page, Instant::now()).table(None);
        let lines: Vec<&str> = table.lines().collect();
        let widths: Vec<usize> = lines[1..].iter().map(|line| line.chars().count()).collect();
        assert_eq!(widths[0], widths[1], "{table}");
        assert!(table.contains("long_long_") && table.contains("serving_default gpu:0"), "{table}");
        let none = Look::new(SchedulerPage::default(), Instant::now()).table(None);
        assert_eq!(none.lines().count(), 1, "{none}");
    }
}
