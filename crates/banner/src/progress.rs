//! The progress of loads: one line on a terminal, rewritten in place.

use std::io::{IsTerminal as _, Write};
use std::time::Duration;

use api::Models;
use lifecycle::State;
use metrics::HeadwaySnapshot;
use pages::human_bytes;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// The time between two drawings of the line.
const INTERVAL: Duration = Duration::from_millis(100);

/// The columns of the narrowest terminal that is thought of.
const COLUMNS: usize = 79;

/// The columns of the bar.
const BAR: usize = 20;

/// Goes to the beginning of the line, and empties it.
const CLEAR: &str = "\r\x1b[K";

/// Set if a line without an end stands on the terminal. Held while anything is written, so that
/// nothing comes between the line and its end.
static IS_DRAWN: Mutex<bool> = Mutex::new(false);

/// Standard error, which has the line of progress and the lines of the log.
#[derive(Debug, Clone, Copy)]
pub struct Screen;

impl Screen {
    /// Takes the line of progress away, so that another can be written in its place.
    pub fn clear() {
        clear_line(&mut IS_DRAWN.lock());
    }

    fn draw(line: &str) {
        let mut is_drawn = IS_DRAWN.lock();
        *is_drawn = true;
        // A terminal that is gone shows nothing.
        drop(std::io::stderr().write_all(format!("{CLEAR}{line}").as_bytes()));
    }
}

fn clear_line(is_drawn: &mut bool) {
    if std::mem::take(is_drawn) {
        drop(std::io::stderr().write_all(CLEAR.as_bytes()));
    }
}

/// Lines of the log take the place of the line of progress.
impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut is_drawn = IS_DRAWN.lock();
        clear_line(&mut is_drawn);
        std::io::stderr().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().flush()
    }
}

/// Until the token is cancelled: shows how far loads are, on a terminal and nowhere else.
pub async fn watch(models: Models, token: CancellationToken) {
    if !std::io::stderr().is_terminal() {
        return;
    }
    let mut changes = models.changes();
    loop {
        let is_idle = loads(&models).is_empty();
        let wait = async {
            if is_idle {
                // While nothing is loaded, nothing is looked at.
                drop(changes.changed().await);
            }
            tokio::time::sleep(INTERVAL).await;
        };
        if token.run_until_cancelled(wait).await.is_none() {
            return Screen::clear();
        }
        // What is done by now was not worth a line.
        let loads = loads(&models);
        match loads.is_empty() {
            true => Screen::clear(),
            false => Screen::draw(&line(&loads)),
        }
    }
}

/// The loads under way, by model.
fn loads(models: &Models) -> Vec<(String, HeadwaySnapshot)> {
    let mut loads = Vec::new();
    for model in models.snapshot() {
        for status in model.versions.iter().filter(|status| status.state == State::Loading) {
            if let Some(headway) = models.headway(&model.name, status.version) {
                loads.push((format!("{} {}", model.name, status.version), headway));
            }
        }
    }
    loads
}

/// The line: the load that is furthest from its end, and how many others there are.
fn line(loads: &[(String, HeadwaySnapshot)]) -> String {
    let left = |load: &&(String, HeadwaySnapshot)| {
        load.1.total_bytes - load.1.done_bytes.min(load.1.total_bytes)
    };
    let Some((name, headway)) = loads.iter().max_by_key(left) else { return String::new() };
    let HeadwaySnapshot { phase, done_bytes, total_bytes } = *headway;
    let phase = if phase.is_empty() { "waiting" } else { phase };
    let mut text = format!("loading {name}: {phase}");
    let share = done_bytes.saturating_mul(BAR as u64).checked_div(total_bytes);
    if let Some(share) = share {
        let filled = usize::try_from(share).map_or(BAR, |filled| filled.min(BAR));
        let (done, total) = (human_bytes(done_bytes), human_bytes(total_bytes));
        let bar = format!("{}{}", "#".repeat(filled), ".".repeat(BAR - filled));
        text += &format!(" [{bar}] {done} of {total}");
    }
    if loads.len() > 1 {
        text += &format!(", {} more", loads.len() - 1);
    }
    match text.char_indices().nth(COLUMNS) {
        Some((end, _)) => text[..end].to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_tells_phase_and_bytes_and_fits_a_terminal() {
        let reading = |done_bytes, total_bytes| HeadwaySnapshot {
            phase: "reading weights",
            done_bytes,
            total_bytes,
        };
        let one = ("big 1".to_owned(), reading(512 << 20, 1 << 30));
        let expected = "loading big 1: reading weights [##########..........] 512.0 MiB of 1.0 GiB";
        assert_eq!(line(&[one]), expected);
        let small = ("small 2".to_owned(), reading(1, 2));
        let none = ("new 3".to_owned(), HeadwaySnapshot::default());
        let expected = "loading small 2: reading weights [##########..........] 1 B of 2 B, 1 more";
        assert_eq!(line(&[small, none.clone()]), expected);
        assert_eq!(line(&[none]), "loading new 3: waiting");
        let long = ("n".repeat(200), reading(1, 2));
        assert_eq!(line(&[long]).chars().count(), COLUMNS);
    }
}
