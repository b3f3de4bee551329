//! Encodings of Unicode text in strings.
//!
//! Follows `string_util.h` of TensorFlow, and ICU for what malformed text is.

use crate::prelude::*;

/// An encoding of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Utf8,
    Utf16 { is_little: bool },
    Utf32 { is_little: bool },
    Ascii,
    Latin1,
}

impl Encoding {
    /// The encoding of a name; case, dashes and underscores do not count.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let plain: String = name.chars().filter(|c| !matches!(c, '-' | '_' | ' ')).collect();
        match plain.to_ascii_lowercase().as_str() {
            "utf8" => Some(Self::Utf8),
            "utf16be" => Some(Self::Utf16 { is_little: false }),
            "utf16le" => Some(Self::Utf16 { is_little: true }),
            "utf32be" => Some(Self::Utf32 { is_little: false }),
            "utf32le" => Some(Self::Utf32 { is_little: true }),
            "usascii" | "ascii" => Some(Self::Ascii),
            "iso88591" | "latin1" => Some(Self::Latin1),
            _ => None,
        }
    }

    /// Reads an attribute that names an encoding of input.
    pub(super) fn read_input(attrs: &Attrs<'_>) -> Result<Self> {
        let name = attrs.str("input_encoding")?;
        Self::parse(name).map_or_else(
            || {
                let text = format!("Could not create converter for input encoding: {name}");
                Err(Error::InvalidArgument(text))
            },
            Ok,
        )
    }

    /// Reads an attribute that names an encoding of output.
    pub(super) fn read_output(attrs: &Attrs<'_>) -> Result<Self> {
        match attrs.str("output_encoding")? {
            "UTF-8" => Ok(Self::Utf8),
            "UTF-16-BE" => Ok(Self::Utf16 { is_little: false }),
            "UTF-32-BE" => Ok(Self::Utf32 { is_little: false }),
            other => invalid!("output encoding {other} is not one of UTF-8, UTF-16-BE, UTF-32-BE"),
        }
    }

    /// Calls `each` with each character and the byte where it starts; `None` for a malformed part.
    pub(super) fn decode(self, bytes: &[u8], mut each: impl FnMut(Option<char>, usize)) {
        match self {
            Self::Utf8 => decode_utf8(bytes, each),
            Self::Utf16 { is_little } => decode_utf16(bytes, is_little, each),
            Self::Utf32 { is_little } => {
                for (i, unit) in bytes.chunks(4).enumerate() {
                    let unit: Option<[u8; 4]> = unit.try_into().ok();
                    let from = if is_little { u32::from_le_bytes } else { u32::from_be_bytes };
                    each(unit.and_then(|unit| char::from_u32(from(unit))), 4 * i);
                }
            }
            Self::Ascii | Self::Latin1 => {
                for (i, byte) in bytes.iter().enumerate() {
                    let is_known = byte.is_ascii() || self == Self::Latin1;
                    each(is_known.then_some(char::from(*byte)), i);
                }
            }
        }
    }

    /// The bytes of a character. Those that an encoding does not have have none.
    pub(super) fn encode(self, c: char, room: &mut [u8; 4]) -> &[u8] {
        match self {
            Self::Utf8 => c.encode_utf8(room).as_bytes(),
            Self::Utf16 { is_little } => {
                let bytes = if is_little { u16::to_le_bytes } else { u16::to_be_bytes };
                let mut units = [0; 2];
                let units = c.encode_utf16(&mut units);
                for (place, unit) in room.as_chunks_mut::<2>().0.iter_mut().zip(&*units) {
                    *place = bytes(*unit);
                }
                &room[..2 * units.len()]
            }
            Self::Utf32 { is_little } => {
                let bytes = if is_little { u32::to_le_bytes } else { u32::to_be_bytes };
                *room = bytes(u32::from(c));
                room
            }
            Self::Ascii | Self::Latin1 => match u8::try_from(c) {
                Ok(byte) => {
                    room[0] = byte;
                    &room[..1]
                }
                Err(_) => &[],
            },
        }
    }
}

fn decode_utf8(bytes: &[u8], mut each: impl FnMut(Option<char>, usize)) {
    let mut at = 0;
    for chunk in bytes.utf8_chunks() {
        for (i, c) in chunk.valid().char_indices() {
            each(Some(c), at + i);
        }
        at += chunk.valid().len();
        if !chunk.invalid().is_empty() {
            each(None, at);
            at += chunk.invalid().len();
        }
    }
}

fn decode_utf16(bytes: &[u8], is_little: bool, mut each: impl FnMut(Option<char>, usize)) {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let from = if is_little { u16::from_le_bytes } else { u16::from_be_bytes };
    let mut at = 0;
    let mut ends_halfway = false;
    for unit in char::decode_utf16(pairs.iter().map(|pair| from(*pair))) {
        // A high surrogate with half of a low one is one malformed part.
        ends_halfway = unit.as_ref().is_err_and(|half| half.unpaired_surrogate() < 0xdc00);
        let c = unit.ok();
        each(c, at);
        at += 2 * c.map_or(1, char::len_utf16);
    }
    if !rest.is_empty() && !ends_halfway {
        each(None, at);
    }
}

/// The treatment of malformed text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Errors {
    policy: EncodingPolicy,
    replacement: char,
    replaces_control: bool,
}

#[derive(Debug, Clone, Copy)]
enum EncodingPolicy {
    Strict,
    Replace,
    Ignore,
}

impl Errors {
    /// Reads the attributes about errors.
    pub(super) fn read(attrs: &Attrs<'_>) -> Result<Self> {
        let policy = match attrs.str_or("errors", "replace")? {
            "strict" => EncodingPolicy::Strict,
            "replace" => EncodingPolicy::Replace,
            "ignore" => EncodingPolicy::Ignore,
            other => return invalid!("errors is {other}, not one of strict, replace, ignore"),
        };
        let replacement = u32::try_from(attrs.int_or("replacement_char", 0xfffd)?);
        let Some(replacement) = replacement.ok().and_then(char::from_u32) else {
            return invalid!("replacement_char out of unicode codepoint range");
        };
        let replaces_control = attrs.bool_or("replace_control_characters", false)?;
        Ok(Self { policy, replacement, replaces_control })
    }

    /// The character to use for one that was read, or for a malformed part; `None` to leave it
    /// out. Fails with `what` if no malformed text is allowed.
    pub(super) fn apply(self, c: Option<char>, what: &str) -> Result<Option<char>> {
        let is_control = c.is_some_and(|c| self.replaces_control && u32::from(c) <= 0x1f);
        match (c.filter(|_| !is_control), self.policy) {
            // Well-formed, though unwanted.
            (None, EncodingPolicy::Strict) if is_control => Ok(Some(self.replacement)),
            (Some(c), _) => Ok(Some(c)),
            (None, EncodingPolicy::Strict) => invalid!("{what}"),
            (None, EncodingPolicy::Replace) => Ok(Some(self.replacement)),
            (None, EncodingPolicy::Ignore) => Ok(None),
        }
    }
}

/// The unit of lengths and positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Byte,
    Utf8Character,
}

impl Unit {
    /// Reads the attribute `unit`.
    pub(super) fn read(attrs: &Attrs<'_>) -> Result<Self> {
        match attrs.str_or("unit", "BYTE")? {
            "BYTE" => Ok(Self::Byte),
            "UTF8_CHAR" => Ok(Self::Utf8Character),
            other => invalid!("unit is {other}, not one of BYTE, UTF8_CHAR"),
        }
    }
}

/// The number of characters of UTF-8 text: the bytes that continue none.
pub(super) fn n_characters(text: &[u8]) -> usize {
    text.iter().filter(|byte| !is_continuation(**byte)).count()
}

/// Returns whether a byte of UTF-8 text continues a character.
pub(super) fn is_continuation(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}
