//! Numbers, as RapidJSON's `ParseNumber` types them: without point and exponent they are integers
//! as far as 64 bits go, everything else is a double. `NaN`, `Inf` and `Infinity` are numbers.

mod decimal;

use super::cursor::Cursor;
use super::syntax::{self, Syntax};

/// A number of a JSON text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Number {
    /// An integer of zero or more.
    Natural(u64),
    /// An integer below zero.
    Negative(i64),
    /// Anything else.
    Real(f64),
}

impl Number {
    /// As a double.
    #[inline]
    #[expect(clippy::cast_precision_loss, reason = "as RapidJSON: the nearest double")]
    pub(crate) fn to_f64(self) -> f64 {
        match self {
            Self::Natural(value) => value as f64,
            Self::Negative(value) => value as f64,
            Self::Real(value) => value,
        }
    }

    /// As an integer of some type, if it is an integer that fits.
    #[inline]
    pub(crate) fn to_integer<T: TryFrom<u64> + TryFrom<i64>>(self) -> Option<T> {
        match self {
            Self::Natural(value) => T::try_from(value).ok(),
            Self::Negative(value) => T::try_from(value).ok(),
            Self::Real(_) => None,
        }
    }
}

/// The parts of a number as they were written.
struct NumberParts {
    start: usize,
    is_negative: bool,
    /// All digits, without the point. Wraps around beyond 19 of them.
    mantissa: u64,
    n_whole: usize,
    n_fraction: usize,
    exponent: i32,
    has_point: bool,
    has_exponent: bool,
}

/// Powers of ten that a double holds exactly.
pub(super) const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// Up to so many digits, the mantissa has not wrapped around.
const DIGITS_MAX: usize = 19;

/// The greatest exponent that RapidJSON takes behind a mantissa without fraction.
const EXPONENT_MAX: i32 = 308;

/// Reads the number at a cursor.
#[inline]
pub(crate) fn read(cursor: &mut Cursor<'_>) -> Result<Number, Syntax> {
    if let Some((value, end)) = decimal(cursor.text, cursor.at) {
        cursor.at = end;
        return Ok(Number::Real(value));
    }
    read_any(cursor)
}

/// The number at a place of a text and where it ends, if it is one of the most common kind.
#[inline(always)]
pub(crate) fn decimal(text: &[u8], at: usize) -> Option<(f64, usize)> {
    let block = text.get(at..)?.first_chunk()?;
    let (value, length) = decimal::read(block)?;
    Some((value, at + length))
}

fn read_any(cursor: &mut Cursor<'_>) -> Result<Number, Syntax> {
    let start = cursor.at;
    let is_negative = cursor.take(b'-');
    let mut parts = NumberParts {
        start,
        is_negative,
        mantissa: 0,
        n_whole: 0,
        n_fraction: 0,
        exponent: 0,
        has_point: false,
        has_exponent: false,
    };
    if cursor.peek() == b'0' {
        // Nothing may follow a leading zero: `01` is a 0 with a stray 1 behind it.
        cursor.at += 1;
        parts.n_whole = 1;
    } else {
        parts.n_whole = digits(cursor, &mut parts.mantissa);
    }
    if parts.n_whole == 0 {
        return word(cursor, is_negative).map(Number::Real);
    }
    if cursor.take(b'.') {
        parts.has_point = true;
        parts.n_fraction = digits(cursor, &mut parts.mantissa);
        if parts.n_fraction == 0 {
            return Err(Syntax::new(syntax::FRACTION, cursor.at));
        }
    }
    if matches!(cursor.peek(), b'e' | b'E') {
        cursor.at += 1;
        parts.has_exponent = true;
        parts.exponent = exponent(cursor, &parts)?;
    }
    parts.value(cursor)
}

impl NumberParts {
    #[inline]
    fn value(&self, cursor: &Cursor<'_>) -> Result<Number, Syntax> {
        let n_digits = self.n_whole + self.n_fraction;
        let is_real = self.has_point || self.has_exponent;
        if n_digits > DIGITS_MAX {
            return self.long(cursor, is_real);
        }
        if !is_real {
            return Ok(integer(self.mantissa, self.is_negative));
        }
        let scale = i64::from(self.exponent) - self.n_fraction as i64;
        // Both factors are exact, so that their product is rounded once: to the nearest double.
        if self.mantissa < 1 << 53 && (-22..=22).contains(&scale) {
            let power = POWERS[usize::try_from(scale.abs()).unwrap_or(0)];
            let mantissa = self.mantissa as f64;
            let value = if scale < 0 { mantissa / power } else { mantissa * power };
            return Ok(Number::Real(if self.is_negative { -value } else { value }));
        }
        Ok(Number::Real(self.exact(cursor)))
    }

    /// A number of so many digits that the mantissa may have wrapped around.
    #[cold]
    fn long(&self, cursor: &Cursor<'_>, is_real: bool) -> Result<Number, Syntax> {
        let digits = &self.written(cursor)[usize::from(self.is_negative)..];
        if !is_real && let Ok(mantissa) = digits.parse::<u64>() {
            return Ok(integer(mantissa, self.is_negative));
        }
        let whole: f64 = digits[..self.n_whole].parse().unwrap_or(f64::INFINITY);
        if whole.is_infinite() {
            return Err(Syntax::new(syntax::TOO_BIG, self.start));
        }
        Ok(Number::Real(self.exact(cursor)))
    }

    /// The nearest double to what is written.
    fn exact(&self, cursor: &Cursor<'_>) -> f64 {
        self.written(cursor).parse().expect("a number in JSON is one in Rust")
    }

    fn written<'a>(&self, cursor: &Cursor<'a>) -> &'a str {
        std::str::from_utf8(&cursor.text[self.start..cursor.at]).expect("numbers are ASCII")
    }
}

/// An integer by its magnitude; a double if 64 bits do not hold it.
#[inline]
fn integer(magnitude: u64, is_negative: bool) -> Number {
    if !is_negative || magnitude == 0 {
        return Number::Natural(magnitude); // `-0` is an integer, so its sign is lost, as upstream.
    }
    match 0i64.checked_sub_unsigned(magnitude) {
        Some(value) => Number::Negative(value),
        None => Number::Real(-(magnitude as f64)),
    }
}

/// Reads digits behind those in `mantissa`, which wraps around. Gives their number.
#[inline]
fn digits(cursor: &mut Cursor<'_>, mantissa: &mut u64) -> usize {
    let start = cursor.at;
    while let Some(block) = cursor.text.get(cursor.at..).and_then(<[u8]>::first_chunk::<8>)
        && let Some(value) = eight(u64::from_le_bytes(*block))
    {
        *mantissa = mantissa.wrapping_mul(100_000_000).wrapping_add(value);
        cursor.at += 8;
    }
    while let byte @ b'0'..=b'9' = cursor.peek() {
        *mantissa = mantissa.wrapping_mul(10).wrapping_add(u64::from(byte - b'0'));
        cursor.at += 1;
    }
    cursor.at - start
}

/// The value of eight digits, the first in the lowest byte; `None` if some are no digits.
#[inline]
fn eight(text: u64) -> Option<u64> {
    const ZEROS: u64 = 0x3030_3030_3030_3030;
    let digits = text.wrapping_sub(ZEROS);
    // A byte below '0' borrows and sets its high bit; one above '9' does when 0x46 is added.
    if (text.wrapping_add(0x4646_4646_4646_4646) | digits) & 0x8080_8080_8080_8080 != 0 {
        return None;
    }
    Some(decimal::eight(digits))
}

/// Reads the sign and the digits of an exponent.
fn exponent(cursor: &mut Cursor<'_>, parts: &NumberParts) -> Result<i32, Syntax> {
    let is_negative = cursor.peek() == b'-';
    if is_negative || cursor.peek() == b'+' {
        cursor.at += 1;
    }
    if !cursor.peek().is_ascii_digit() {
        return Err(Syntax::new(syntax::EXPONENT, cursor.at));
    }
    let n_fraction = i32::try_from(parts.n_fraction).unwrap_or(i32::MAX / 2);
    let max = if is_negative { i32::MAX / 20 } else { EXPONENT_MAX + n_fraction };
    let mut value: i32 = 0;
    while let byte @ b'0'..=b'9' = cursor.peek() {
        value = value.saturating_mul(10).saturating_add(i32::from(byte - b'0')).min(i32::MAX / 20);
        if !is_negative && value > max {
            return Err(Syntax::new(syntax::TOO_BIG, parts.start));
        }
        cursor.at += 1;
    }
    Ok(if is_negative { -value } else { value })
}

/// Reads `NaN`, `Inf` or `Infinity`; whatever else stands here is no value.
#[cold]
fn word(cursor: &mut Cursor<'_>, is_negative: bool) -> Result<f64, Syntax> {
    let value = if cursor.peek() == b'N' {
        cursor.word(b"NaN")?;
        f64::NAN
    } else {
        cursor.word(b"Inf")?;
        if cursor.peek() == b'i' {
            cursor.word(b"inity")?;
        }
        f64::INFINITY
    };
    Ok(if is_negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use Number::{Natural, Negative, Real};

    #[track_caller]
    fn check(text: &str, expected: Number) {
        let mut cursor = Cursor { text: text.as_bytes(), at: 0 };
        let number = cursor.number().unwrap();
        match (number, expected) {
            (Real(a), Real(b)) => assert_eq!(a.to_bits(), b.to_bits(), "{text}"),
            _ => assert_eq!(number, expected, "{text}"),
        }
        assert_eq!(cursor.at, text.len(), "{text}");
    }

    #[track_caller]
    fn check_error(text: &str, expected: &'static str, offset: usize) {
        let mut cursor = Cursor { text: text.as_bytes(), at: 0 };
        assert_eq!(cursor.number(), Err(Syntax::new(expected, offset)), "{text}");
    }

    #[test]
    fn numbers_without_point_and_exponent_are_integers_up_to_64_bits() {
        check("0", Natural(0));
        check("-0", Natural(0));
        check("12345678", Natural(12_345_678));
        check("18446744073709551615", Natural(u64::MAX));
        check("18446744073709551616", Real(18_446_744_073_709_551_616.0));
        check("-9223372036854775808", Negative(i64::MIN));
        check("-9223372036854775809", Real(-9_223_372_036_854_775_809.0));
        check("123456789012345678901234567890", Real(1.234_567_890_123_456_8e29));
    }

    #[test]
    fn others_are_the_nearest_double() {
        check("-0.0", Real(-0.0));
        check("0.1", Real(0.1));
        check("1e2", Real(100.0));
        check("1E+2", Real(100.0));
        check("12.5e-1", Real(1.25));
        check("0.30000000000000004", Real(0.1 + 0.2));
        check("179769313486231570000e288", Real(f64::MAX));
        check("2.2250738585072014e-308", Real(f64::MIN_POSITIVE));
        check("5e-324", Real(5e-324));
        check("1e-9999999999999", Real(0.0));
        check("9e308", Real(f64::INFINITY)); // RapidJSON looks at the exponent alone.
        check("0.00000000000000000000000000000000000001", Real(1e-38));
    }

    #[test]
    fn words_for_what_has_no_digits_are_numbers() {
        check("NaN", Real(f64::NAN));
        check("Infinity", Real(f64::INFINITY));
        check("-Infinity", Real(f64::NEG_INFINITY));
        check("-Inf", Real(f64::NEG_INFINITY));
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        check_error("-", syntax::VALUE, 1);
        check_error("x", syntax::VALUE, 0);
        check_error("Nan", syntax::VALUE, 2);
        check_error("Infinite", syntax::VALUE, 7);
        check_error("1.", syntax::FRACTION, 2);
        check_error("1.e3", syntax::FRACTION, 2);
        check_error("1e", syntax::EXPONENT, 2);
        check_error("1e+x", syntax::EXPONENT, 3);
        check_error("1e309", syntax::TOO_BIG, 0);
        check_error("1e999999999999", syntax::TOO_BIG, 0);
        check_error(&"9".repeat(400), syntax::TOO_BIG, 0);
    }

    #[test]
    fn eight_digits_are_read_at_once() {
        assert_eq!(eight(u64::from_le_bytes(*b"12345678")), Some(12_345_678));
        assert_eq!(eight(u64::from_le_bytes(*b"00000009")), Some(9));
        for (place, byte) in
            (0..8).flat_map(|place| [b'/', b':', b' ', 0, 0xB5].map(|b| (place, b)))
        {
            let mut text = *b"12345678";
            text[place] = byte;
            assert_eq!(eight(u64::from_le_bytes(text)), None, "{text:?}");
        }
    }
}
