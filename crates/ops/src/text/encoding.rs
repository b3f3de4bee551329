//! `Encoding`: how strings hold Unicode text.

/// An encoding that TensorFlow's string ops know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Utf8,
    Utf16Be,
    Utf32Be,
}

impl Encoding {
    /// The encoding of a name as TensorFlow writes it.
    pub(super) fn parse(name: &str) -> Option<Self> {
        match name {
            "utf-8" | "UTF-8" => Some(Self::Utf8),
            "UTF-16-BE" => Some(Self::Utf16Be),
            "UTF-32-BE" => Some(Self::Utf32Be),
            _ => None,
        }
    }
}
