//! Errors in the text of a JSON document, in RapidJSON's words (`error/en.h`), which clients of
//! TensorFlow Serving know.

use status::Status;

/// A mistake in a JSON text, and the byte where it was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Syntax {
    pub(crate) text: &'static str,
    pub(crate) offset: usize,
}

pub(crate) const EMPTY: &str = "The document is empty.";
pub(crate) const VALUE: &str = "Invalid value.";
pub(crate) const NAME: &str = "Missing a name for object member.";
pub(crate) const COLON: &str = "Missing a colon after a name of object member.";
pub(crate) const OBJECT_COMMA: &str = "Missing a comma or } after an object member.";
pub(crate) const ARRAY_COMMA: &str = "Missing a comma or ] after an array element.";
pub(crate) const HEX: &str = "Incorrect hex digit after \\u escape in string.";
pub(crate) const SURROGATE: &str = "The surrogate pair in string is invalid.";
pub(crate) const ESCAPE: &str = "Invalid escape character in string.";
pub(crate) const QUOTE: &str = "Missing a closing quotation mark in string.";
pub(crate) const TOO_BIG: &str = "Number too big to be stored in double.";
pub(crate) const FRACTION: &str = "Miss fraction part in number.";
pub(crate) const EXPONENT: &str = "Miss exponent in number.";

impl Syntax {
    pub(crate) fn new(text: &'static str, offset: usize) -> Self {
        Self { text, offset }
    }
}

impl From<Syntax> for Status {
    fn from(Syntax { text, offset }: Syntax) -> Self {
        Status::invalid(format!("JSON Parse error: {text} at offset: {offset}"))
    }
}
