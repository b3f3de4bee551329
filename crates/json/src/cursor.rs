//! `Cursor`: a place in a JSON text, and the reading of what is no list and no object.

use super::number::{self, Number};
use super::syntax::{self, Syntax};

/// A place in a JSON text. A NUL byte ends the text, as in RapidJSON.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor<'a> {
    pub(crate) text: &'a [u8],
    pub(crate) at: usize,
}

/// The kind of value that begins at a byte. Anything that begins no other value is taken for a
/// number, and found not to be one when it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Null,
    False,
    True,
    Object,
    Array,
    String,
    Number,
}

impl Kind {
    /// The kind of a value by its first byte.
    pub(crate) fn of(first: u8) -> Self {
        match first {
            b'n' => Self::Null,
            b'f' => Self::False,
            b't' => Self::True,
            b'{' => Self::Object,
            b'[' => Self::Array,
            b'"' => Self::String,
            _ => Self::Number,
        }
    }

    /// TensorFlow Serving's name for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Null => "Null",
            Self::False => "False",
            Self::True => "True",
            Self::Object => "Object",
            Self::Array => "Array",
            Self::String => "String",
            Self::Number => "Number",
        }
    }
}

impl<'a> Cursor<'a> {
    /// The start of a text, behind a byte order mark.
    pub(crate) fn new(text: &'a [u8]) -> Self {
        let at = if text.starts_with(b"\xEF\xBB\xBF") { 3 } else { 0 };
        Self { text, at }
    }

    /// The byte here; 0 at the end.
    #[inline]
    pub(crate) fn peek(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or(0)
    }

    /// Goes past the byte if it is this one.
    #[inline]
    pub(crate) fn take(&mut self, byte: u8) -> bool {
        let is_it = self.peek() == byte && self.at < self.text.len();
        self.at += usize::from(is_it);
        is_it
    }

    /// Goes past blanks, and says what comes then; 0 at the end.
    #[inline]
    pub(crate) fn skip_blanks(&mut self) -> u8 {
        loop {
            match self.peek() {
                b' ' | b'\n' | b'\r' | b'\t' => self.at += 1,
                byte => return byte,
            }
        }
    }

    /// The kind of the value here.
    pub(crate) fn kind(&self) -> Kind {
        Kind::of(self.peek())
    }

    /// Reads a number.
    #[inline]
    pub(crate) fn number(&mut self) -> Result<Number, Syntax> {
        number::read(self)
    }

    /// Goes past `null`, `true` or `false`, of which the first letter is here.
    pub(crate) fn word(&mut self, word: &[u8]) -> Result<(), Syntax> {
        for byte in word {
            if !self.take(*byte) {
                return Err(Syntax::new(syntax::VALUE, self.at));
            }
        }
        Ok(())
    }

    /// Goes past a string, whose quotation mark is here. Gives what stands between the marks, as
    /// written.
    pub(crate) fn string(&mut self) -> Result<Raw<'a>, Syntax> {
        assert!(self.take(b'"'), "a string begins with a quotation mark");
        let start = self.at;
        let mut is_plain = true;
        loop {
            match self.peek() {
                b'"' => {
                    let raw = Raw { bytes: &self.text[start..self.at], is_plain };
                    self.at += 1;
                    return Ok(raw);
                }
                b'\\' => {
                    is_plain = false;
                    self.escape()?;
                }
                0 => return Err(Syntax::new(syntax::QUOTE, self.at)),
                1..0x20 => return Err(Syntax::new(syntax::ESCAPE, self.at)),
                _ => self.at += 1,
            }
        }
    }

    /// Goes past an escape sequence. Errors are where it begins.
    fn escape(&mut self) -> Result<(), Syntax> {
        let start = self.at;
        let fail = |text| Err(Syntax::new(text, start));
        self.at += 1;
        match self.peek() {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.at += 1,
            b'u' => {
                self.at += 1;
                let Some(first) = self.hex() else { return fail(syntax::HEX) };
                if (0xDC00..0xE000).contains(&first) {
                    return fail(syntax::SURROGATE);
                }
                if (0xD800..0xDC00).contains(&first) {
                    if !self.take(b'\\') || !self.take(b'u') {
                        return fail(syntax::SURROGATE);
                    }
                    let Some(second) = self.hex() else { return fail(syntax::HEX) };
                    if !(0xDC00..0xE000).contains(&second) {
                        return fail(syntax::SURROGATE);
                    }
                }
            }
            _ => return fail(syntax::ESCAPE),
        }
        Ok(())
    }

    /// Reads four hexadecimal digits.
    fn hex(&mut self) -> Option<u32> {
        let digits = self.text.get(self.at..self.at + 4)?;
        self.at += 4;
        hex4(digits)
    }
}

/// A string as it is written between its quotation marks; its escapes are known to be right.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Raw<'a> {
    bytes: &'a [u8],
    is_plain: bool,
}

impl<'a> Raw<'a> {
    /// Returns the characters that the string means, in `scratch` if it has escapes.
    pub(crate) fn decode<'s>(self, scratch: &'s mut Vec<u8>) -> &'s [u8]
    where
        'a: 's,
    {
        if self.is_plain {
            return self.bytes;
        }
        scratch.clear();
        let mut rest = self.bytes;
        while let Some(backslash) = rest.iter().position(|byte| *byte == b'\\') {
            scratch.extend_from_slice(&rest[..backslash]);
            let (meant, length) = unescape(&rest[backslash + 1..]);
            let mut utf8 = [0; 4];
            scratch.extend_from_slice(meant.encode_utf8(&mut utf8).as_bytes());
            rest = &rest[backslash + 1 + length..];
        }
        scratch.extend_from_slice(rest);
        scratch
    }

    /// Returns the characters that the string means, as a text of its own. Bytes that are not
    /// UTF-8 are replaced.
    pub(crate) fn to_text(self) -> String {
        String::from_utf8_lossy(self.decode(&mut Vec::new())).into_owned()
    }

    /// Returns whether the string means `text`.
    pub(crate) fn is(self, text: &str) -> bool {
        if self.is_plain {
            return self.bytes == text.as_bytes();
        }
        self.decode(&mut Vec::new()) == text.as_bytes()
    }
}

/// The character that an escape stands for, and how many bytes it takes behind the backslash.
fn unescape(escape: &[u8]) -> (char, usize) {
    let hex = |at: usize| escape.get(at..at + 4).and_then(hex4).unwrap_or(0);
    match escape.first() {
        Some(b'b') => ('\u{8}', 1),
        Some(b'f') => ('\u{c}', 1),
        Some(b'n') => ('\n', 1),
        Some(b'r') => ('\r', 1),
        Some(b't') => ('\t', 1),
        Some(b'u') => {
            let first = hex(1);
            if !(0xD800..0xDC00).contains(&first) {
                return (char::from_u32(first).unwrap_or('\u{FFFD}'), 5);
            }
            // The second half of the pair stands behind another `\u`.
            let code = 0x10000 + ((first - 0xD800) << 10) + hex(7).saturating_sub(0xDC00);
            (char::from_u32(code).unwrap_or('\u{FFFD}'), 11)
        }
        Some(other) => (char::from(*other), 1),
        None => unreachable!("an escape has a character"),
    }
}

fn hex4(digits: &[u8]) -> Option<u32> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    digits.iter().try_fold(0, |code, byte| Some(code * 16 + digit(byte)?))
}
