//! Quotes of values in messages: pretty-printed with lists on one line, and cut off near 256 bytes
//! (`JsonValueToDebugString` in `json_tensor.cc`).

use super::cursor::{Cursor, Kind, Raw};
use super::number::Number;
use super::pretty::{Lists, Pretty};
use super::scan::{self, end_of_element, end_of_member};
use super::syntax::Syntax;

/// Nothing more is written behind so many bytes.
const QUOTE_MAX: usize = 256;

/// A single string is cut at so many bytes. Upstream writes all of it.
const STRING_MAX: usize = 1024;

/// The value at a cursor, as messages quote it. Its syntax is known to be right.
pub(crate) fn quoted(value: Cursor<'_>) -> String {
    let mut out = Pretty::new(Lists::OneLine);
    let mut open = Vec::new();
    // An error means that the end is reached early: what there is will do for a message.
    let _ = write(value, &mut out, &mut open);
    String::from_utf8_lossy(&out.into_bytes()).into_owned()
}

/// Writes a value until the limit. `open` holds which of the objects and lists around are lists.
fn write(mut cursor: Cursor<'_>, out: &mut Pretty, open: &mut Vec<bool>) -> Result<(), Syntax> {
    while out.len() < QUOTE_MAX {
        match Kind::of(cursor.skip_blanks()) {
            kind @ (Kind::Array | Kind::Object) => {
                let is_list = kind == Kind::Array;
                cursor.at += 1;
                open.push(is_list);
                if is_list {
                    out.start_list()
                } else {
                    out.start_object()
                }
                let is_empty = cursor.skip_blanks() == if is_list { b']' } else { b'}' };
                if !is_empty {
                    if !is_list && !name(&mut cursor, out)? {
                        return Ok(());
                    }
                    continue;
                }
            }
            scalar => {
                if !write_scalar(&mut cursor, scalar, out)? {
                    return Ok(());
                }
            }
        }
        if !close(&mut cursor, out, open)? {
            return Ok(());
        }
    }
    Ok(())
}

/// Writes the name of a member. Whether there was room.
fn name(cursor: &mut Cursor<'_>, out: &mut Pretty) -> Result<bool, Syntax> {
    if out.len() >= QUOTE_MAX {
        return Ok(false);
    }
    let name = scan::key(cursor)?;
    write_string(name, out);
    Ok(true)
}

/// Writes the ends of lists and objects, up to the next value. Whether there is one, and room.
fn close(cursor: &mut Cursor<'_>, out: &mut Pretty, open: &mut Vec<bool>) -> Result<bool, Syntax> {
    while let Some(is_list) = open.last().copied() {
        if out.len() >= QUOTE_MAX {
            return Ok(false);
        }
        let is_end = if is_list { end_of_element(cursor)? } else { end_of_member(cursor)? };
        if !is_end {
            return if is_list { Ok(true) } else { name(cursor, out) };
        }
        open.pop();
        if is_list { out.end_list() } else { out.end_object() }
    }
    Ok(false)
}

/// Writes a value without parts. Fails quietly at what RapidJSON's writer refuses: NaN and the
/// infinities, of which only what comes before them is written.
fn write_scalar(cursor: &mut Cursor<'_>, kind: Kind, out: &mut Pretty) -> Result<bool, Syntax> {
    match kind {
        Kind::Null => {
            cursor.word(b"null")?;
            out.raw(b"null");
        }
        Kind::False => {
            cursor.word(b"false")?;
            out.raw(b"false");
        }
        Kind::True => {
            cursor.word(b"true")?;
            out.raw(b"true");
        }
        Kind::String => write_string(cursor.string()?, out),
        Kind::Number | Kind::Array | Kind::Object => match cursor.number()? {
            Number::Natural(value) => out.raw(value.to_string().as_bytes()),
            Number::Negative(value) => out.raw(value.to_string().as_bytes()),
            Number::Real(value) if value.is_finite() => out.raw(double(value).as_bytes()),
            Number::Real(_) => {
                out.raw(b"");
                return Ok(false);
            }
        },
    }
    Ok(true)
}

fn write_string(string: Raw<'_>, out: &mut Pretty) {
    let mut scratch = Vec::new();
    let meant = string.decode(&mut scratch);
    out.string(&meant[..meant.len().min(STRING_MAX)]);
}

/// A double as RapidJSON writes it (`internal/dtoa.h`).
fn double(value: f64) -> String {
    if value == 0.0 {
        return if value.is_sign_negative() { "-0.0".to_owned() } else { "0.0".to_owned() };
    }
    let magnitude = value.abs();
    let sign = if value < 0.0 { "-" } else { "" };
    // Rust's plain form has all digits, and no point if there is no fraction.
    if (1e-6..1e21).contains(&magnitude) {
        let plain = format!("{magnitude}");
        let point = if plain.contains('.') { "" } else { ".0" };
        return format!("{sign}{plain}{point}");
    }
    format!("{sign}{magnitude:e}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(quoted(Cursor::new(text.as_bytes())), expected, "{text}");
    }

    #[test]
    fn lists_stand_on_one_line_and_objects_on_several() {
        check("[1,-2, 2.50,null,true,false]", "[1, -2, 2.5, null, true, false]");
        check(
            r#"{"a":[ ],"b":{},"c":"\n/é"}"#,
            "{\n    \"a\": [],\n    \"b\": {},\n    \"c\": \"\\n/é\"\n}",
        );
        check(r#"[{"a":[1]}]"#, "[{\n        \"a\": [1]\n    }]");
    }

    #[test]
    fn numbers_look_as_rapidjson_prints_them() {
        check(
            "[1e2,1e20,1e21,1.5e300,1e-5,1e-7,-0.0,0.1]",
            "[100.0, 100000000000000000000.0, 1e21, 1.5e300, 0.00001, 1e-7, -0.0, 0.1]",
        );
        check("[1,NaN,2]", "[1, ");
    }

    #[test]
    fn nothing_is_begun_behind_256_bytes() {
        let numbers = format!("[{}1]", "1,".repeat(1000));
        assert_eq!(quoted(Cursor::new(numbers.as_bytes())).len(), 257);
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        assert_eq!(quoted(Cursor::new(deep.as_bytes())), "[".repeat(256));
        let long = format!("[\"{}\",1]", "a".repeat(5000));
        assert_eq!(quoted(Cursor::new(long.as_bytes())).len(), 1 + 2 + 1024);
    }
}
