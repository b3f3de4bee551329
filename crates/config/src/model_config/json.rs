//! A `ModelServerConfig` as JSON: protobuf's own mapping, or a plain list of models as people write
//! it. Mistakes keep the line and column of the text as it was written.

use std::collections::BTreeMap;

use proto::serving::ModelServerConfig;
use serde_json::value::RawValue;

/// The text that turns a plain list into the message that it stands for, with [`CLOSE`].
const OPEN: &str = "{\"config\":";
const CLOSE: &str = "}";

/// An error and its place: line and column from 1.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct At {
    pub(super) line: usize,
    pub(super) column: usize,
    pub(super) message: String,
}

pub(super) fn parse(text: &str) -> Result<ModelServerConfig, At> {
    // Broken JSON is told as such: read as a message, half of a list is a value of another type.
    serde_json::from_str::<&RawValue>(text).map_err(|error| broken(text, &error.to_string()))?;
    let Some((start, end)) = plain_list(text) else {
        return proto::json::parse(text).map_err(|error| at(&error.to_string()));
    };
    let full = [&text[..start], OPEN, &text[start..end], CLOSE, &text[end..]].concat();
    proto::json::parse(&full).map_err(|error| {
        let mut found = at(&error.to_string());
        // What was put in is on one line, before everything that can be wrong there.
        let (line, column) = place(text, start);
        if found.line == line && found.column > column {
            found.column = found.column.saturating_sub(OPEN.len()).max(column);
        }
        found
    })
}

/// A mistake in the syntax. A comma before the end of a list or an object is called so.
fn broken(text: &str, message: &str) -> At {
    let found = at(message);
    let line = text.lines().nth(found.line.saturating_sub(1)).unwrap_or_default();
    let here = line.get(found.column.saturating_sub(1)..).unwrap_or_default();
    let before = text.lines().take(found.line.saturating_sub(1)).collect::<Vec<_>>().join("\n");
    let before = before + line.get(..found.column.saturating_sub(1)).unwrap_or_default();
    match here.starts_with([']', '}']) && before.trim_end().ends_with(',') {
        true => At { message: "trailing comma".to_owned(), ..found },
        false => found,
    }
}

/// Returns the range in bytes of a list that is the value of `model_config_list`.
fn plain_list(text: &str) -> Option<(usize, usize)> {
    // A text that is no JSON is told to be so by the one that reads the message.
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(text).ok()?;
    let list = fields.get("model_config_list").or_else(|| fields.get("modelConfigList"))?.get();
    // It is a part of the text, so that its address tells its place.
    let start = list.as_ptr() as usize - text.as_ptr() as usize;
    list.starts_with('[').then_some((start, start + list.len()))
}

fn place(text: &str, offset: usize) -> (usize, usize) {
    let before = &text[..offset];
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before.len() - start + 1)
}

/// The place that the reader's message ends with.
fn at(text: &str) -> At {
    let parse = || {
        let (message, place) = text.rsplit_once(" at line ")?;
        let (line, column) = place.split_once(" column ")?;
        Some(At {
            line: line.parse().ok()?,
            column: column.parse().ok()?,
            message: message.to_owned(),
        })
    };
    parse().unwrap_or_else(|| At { line: 1, column: 1, message: text.to_owned() })
}
