//! The table of models.

use lifecycle::{Handle, ModelSnapshot, VersionStatus};
use metrics::HeadwaySnapshot;
use pages::{MemoryPage, human_bytes};
use session::Servable;

/// The number of characters of an error that are shown.
const ERROR_CHARS_MAX: usize = 200;

/// The number of signatures that are named.
const SIGNATURES_MAX: usize = 1;

const HEAD: [&str; 7] = ["model", "version", "state", "engine", "device", "memory", "signatures"];

/// The columns of numbers, which end where their heads do.
const NUMBERS: [bool; 7] = [false, true, false, false, false, true, false];

/// The facts about models beyond their states.
pub(super) struct Seen<'a> {
    pub(super) available: &'a [Handle<Servable>],
    pub(super) memory: &'a MemoryPage,
    pub(super) headway: &'a dyn Fn(&str, i64) -> Option<HeadwaySnapshot>,
}

/// A version of a model, or a model without versions yet.
struct Row {
    cells: [String; 7],
    /// The reason that it is not served.
    error: Option<String>,
}

/// The table, with the reason under each version that failed.
pub(super) fn lines(models: &[&std::sync::Arc<ModelSnapshot>], seen: &Seen<'_>) -> Vec<String> {
    let rows: Vec<Row> = models.iter().flat_map(|model| rows(model, seen)).collect();
    let mut widths = HEAD.map(str::len);
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(&row.cells) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut lines = vec![line(&HEAD.map(str::to_owned), &widths)];
    for row in &rows {
        lines.push(line(&row.cells, &widths));
        lines.extend(row.error.iter().map(|error| format!("    {error}")));
    }
    lines
}

fn line(cells: &[String; 7], widths: &[usize; 7]) -> String {
    let aligned = cells.iter().zip(widths).zip(NUMBERS);
    let cells = aligned.map(|((cell, width), is_number)| match is_number {
        true => format!("{cell:>width$}"),
        false => format!("{cell:<width$}"),
    });
    cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
}

fn rows(model: &ModelSnapshot, seen: &Seen<'_>) -> Vec<Row> {
    if !model.versions.is_empty() {
        return model.versions.iter().map(|status| row(model, status, seen)).collect();
    }
    let (state, error) = match &model.problem {
        Some(problem) => ("missing", Some(first_line(&problem.to_string()))),
        None => ("waiting", None),
    };
    let cells = [&*model.name, "-", state, "-", "-", "-", ""].map(str::to_owned);
    vec![Row { cells, error }]
}

fn row(model: &ModelSnapshot, status: &VersionStatus, seen: &Seen<'_>) -> Row {
    let mut handles = seen.available.iter();
    let handle = handles
        .find(|handle| *handle.id().model == *model.name && handle.version() == status.version);
    let headway = (seen.headway)(&model.name, status.version);
    let state = match (&status.error, headway) {
        (Some(_), _) => "failed".to_owned(),
        (None, Some(HeadwaySnapshot { done_bytes, total_bytes, .. })) if total_bytes > 0 => {
            format!("loading {}%", done_bytes.saturating_mul(100) / total_bytes)
        }
        (None, _) => status.state.name().to_lowercase(),
    };
    let engine = handle.map_or("-", |handle| handle.engine.name());
    let (devices, bytes) = held(seen.memory, &model.name, status.version);
    let or_dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    let cells = [
        model.name.clone(),
        status.version.to_string(),
        state,
        engine.to_owned(),
        or_dash(devices.join(",")),
        if bytes > 0 { human_bytes(bytes) } else { "-".to_owned() },
        handle.map(|handle| signatures(handle)).unwrap_or_default(),
    ];
    Row { cells, error: status.failure().map(|error| first_line(&error.to_string())) }
}

/// The devices that a version holds memory of, and how much altogether.
fn held<'a>(page: &'a MemoryPage, model: &str, version: i64) -> (Vec<&'a str>, u64) {
    let (mut devices, mut bytes) = (Vec::new(), 0);
    for device in &page.devices {
        let is_it = |one: &&pages::VersionMemory| {
            one.name == model && one.version == version && one.bytes > 0
        };
        if let Some(one) = device.models.iter().find(is_it) {
            devices.push(&*device.name);
            bytes += one.bytes;
        }
    }
    (devices, bytes)
}

fn signatures(servable: &Servable) -> String {
    let names: Vec<&str> = servable.signatures.keys().map(String::as_str).collect();
    // The one that is asked without a name first.
    let (default, others): (Vec<&str>, Vec<&str>) =
        names.iter().partition(|name| **name == session::DEFAULT_SIGNATURE);
    let all = [default, others].concat();
    let mut text = all.iter().take(SIGNATURES_MAX).copied().collect::<Vec<_>>().join(", ");
    if all.len() > SIGNATURES_MAX {
        text += &format!(" +{}", all.len() - SIGNATURES_MAX);
    }
    text
}

/// The beginning of a text that may be long.
fn first_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    match line.char_indices().nth(ERROR_CHARS_MAX) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line.to_owned(),
    }
}
