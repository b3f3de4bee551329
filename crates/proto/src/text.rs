//! Protobuf text format, in which TensorFlow Serving's config files and `saved_model.pbtxt` are
//! written.

use miette::Diagnostic as _;
use prost::{Message, Name};
use prost_reflect::DynamicMessage;
use prost_reflect::text_format::FormatOptions;

use crate::pool::descriptor;

/// The deepest nesting of messages that [`parse`] takes; the same as for the binary form.
pub const DEPTH_MAX: usize = 100;

/// Why a text could not be read, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {message}")]
pub struct TextError {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// What is wrong there.
    pub message: String,
}

/// Reads a message from its text form.
///
/// Takes what protobuf's own parser takes: `field {` and `field: {`, with or without commas or
/// semicolons between fields, single or double quotes, `#` comments, expanded `Any` values.
///
/// # Errors
/// Tells the place and the reason if `text` is malformed, names a field that `T` does not have, or
/// nests deeper than [`DEPTH_MAX`].
pub fn parse<T: Message + Name + Default>(text: &str) -> Result<T, TextError> {
    check_depth(text)?;
    let message = DynamicMessage::parse_text_format(descriptor::<T>(), text).map_err(|err| {
        let end = text.trim_end().len();
        let offset = err.labels().and_then(|mut labels| labels.next()).map_or(end, |l| l.offset());
        error_at(text, offset, err.to_string())
    })?;
    message.transcode_to().map_err(|err| error_at(text, 0, err.to_string()))
}

/// Writes a message in its text form, one field a line.
pub fn print<T: Message + Name>(message: &T) -> String {
    let mut dynamic = DynamicMessage::new(descriptor::<T>());
    dynamic.transcode_from(message).expect("a message is valid for its own descriptor");
    dynamic.to_text_format_with_options(&FormatOptions::new().pretty(true))
}

/// The parser calls itself for each level, so the depth is bounded before it starts.
fn check_depth(text: &str) -> Result<(), TextError> {
    let mut depth = 0_usize;
    let mut bytes = text.bytes().enumerate();
    while let Some((offset, byte)) = bytes.next() {
        match byte {
            b'{' | b'<' | b'[' => {
                depth += 1;
                if depth > DEPTH_MAX {
                    return Err(error_at(text, offset, format!("nested deeper than {DEPTH_MAX}")));
                }
            }
            b'}' | b'>' | b']' => depth = depth.saturating_sub(1),
            b'#' => while bytes.next().is_some_and(|(_, b)| b != b'\n') {},
            quote @ (b'"' | b'\'') => {
                while let Some((_, byte)) = bytes.next() {
                    match byte {
                        b'\\' => drop(bytes.next()),
                        // A string ends with its line: what follows may nest again.
                        b'\n' => break,
                        _ if byte == quote => break,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn error_at(text: &str, offset: usize, message: String) -> TextError {
    let before = text.get(..offset).unwrap_or(text);
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    TextError {
        line: before.matches('\n').count() + 1,
        column: before[start..].chars().count() + 1,
        message,
    }
}
