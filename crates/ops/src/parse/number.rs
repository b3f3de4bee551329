//! Numbers out of text, as `numbers.cc` of TensorFlow reads them.

use std::ops::Neg;

/// A float: blanks around it do not count, `inf`, `infinity` and `nan` in any case do, and so do
/// hexadecimal integers.
pub(super) fn parse_float(text: &[u8]) -> Option<f64> {
    parse(text, |text| text.parse().ok(), |value| value as f64)
}

/// The same with the precision of `f32`, rounded once.
pub(super) fn parse_float32(text: &[u8]) -> Option<f32> {
    parse(text, |text| text.parse().ok(), |value| value as f32)
}

/// An integer: blanks around it do not count; one that does not fit is none.
pub(super) fn parse_int<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(strip(text)).ok()?.parse().ok()
}

fn parse<T: Neg<Output = T>>(
    text: &[u8],
    number: impl Fn(&str) -> Option<T>,
    round: impl Fn(u128) -> T,
) -> Option<T> {
    let text = std::str::from_utf8(strip(text)).ok()?;
    let (is_negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let hexadecimal = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let value = match hexadecimal {
        Some(digits) => round(hexadecimal_value(digits)?),
        // Rust would take a second sign.
        None if digits.starts_with(['+', '-']) => return None,
        None => number(digits)?,
    };
    Some(if is_negative { -value } else { value })
}

/// A hexadecimal integer; one of more than 32 digits is none.
fn hexadecimal_value(digits: &str) -> Option<u128> {
    if digits.starts_with('+') { None } else { u128::from_str_radix(digits, 16).ok() }
}

fn strip(text: &[u8]) -> &[u8] {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let start = text.iter().position(|byte| !is_space(byte)).unwrap_or(text.len());
    let end = text.iter().rposition(|byte| !is_space(byte)).map_or(start, |last| last + 1);
    &text[start..end]
}
