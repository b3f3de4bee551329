//! The digits of a float by arithmetic on doubles, for all but a few in a million floats: those
//! where the error of a double could decide are left to exact arithmetic.

use super::super::number::POWERS;
use super::{ALL_F32, FEW};

/// Nine digits of a float: `0.d₁d₂d₃… × 10^point`. If six are enough, the others are zeros.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Digits {
    /// Nine decimal digits as a number.
    pub(super) digits: u32,
    /// The largest number of digits that is written: six or nine.
    pub(super) n_max: usize,
    pub(super) point: i32,
}

/// The least distance from a tie that a scaled double must have, below 10⁹; the double's error is
/// a thousandth of that.
const DOUBT: f64 = 1e-4;

const ALL: u32 = 1_000_000_000;
const FEWER: f64 = 1000.0;

/// Powers of ten of which the doubles beside a float can be multiplied or divided exactly enough.
const LEAST: f64 = 1e-8;
const MOST: f64 = 1e15;

/// The digits of a positive float, if they are beyond doubt.
#[inline]
pub(super) fn digits(value: f32) -> Option<Digits> {
    let wide = f64::from(value);
    if !(LEAST..MOST).contains(&wide) {
        return None;
    }
    let point = point_of(wide);
    let shift = i32::try_from(ALL_F32).unwrap_or(0) - point;
    // Both factors are exact and the product is rounded once.
    let scale = |value: f64| {
        if shift >= 0 { value * power(shift) } else { value / power(-shift) }
    };
    let scaled = scale(wide);
    // The distance to the next float is 2^-23 of the power of two at or below it; half that far,
    // texts still lead back. Below a power of two itself it is half again.
    let half_step = scale(f64::from_bits(wide.to_bits() >> 52 << 52) / 16_777_216.0);
    let is_power_of_two = value.to_bits().trailing_zeros() >= 23;
    let surely = if is_power_of_two { half_step * 0.499 } else { half_step * 0.999 };
    let few = round(scaled / FEWER)? * FEWER;
    let distance = (few - scaled).abs();
    if distance < surely {
        return settled(few, point, FEW);
    }
    if distance < half_step * 1.001 {
        return None;
    }
    settled(round(scaled)?, point, ALL_F32)
}

/// Rounds to an integer, unless it is close to a tie.
#[inline]
fn round(value: f64) -> Option<f64> {
    let floor = value.floor();
    let rest = value - floor;
    let is_clear = (rest - 0.5).abs() > DOUBT;
    is_clear.then_some(if rest > 0.5 { floor + 1.0 } else { floor })
}

/// Rounding up may have made one digit more: then all others are zeros.
#[inline]
fn settled(digits: f64, point: i32, n_max: usize) -> Option<Digits> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below 2^32")]
    let digits = digits as u32;
    if digits >= ALL {
        return Some(Digits { digits: digits / 10, n_max, point: point + 1 });
    }
    (digits >= ALL / 10).then_some(Digits { digits, n_max, point })
}

/// Returns how many digits of a double stand before the point; 0 or less for those below one.
#[inline]
fn point_of(value: f64) -> i32 {
    let exponent = i32::try_from(value.to_bits() >> 52).unwrap_or(0) - 1023;
    // 1233 / 4096 is a little less than the logarithm of two: it may be one too few.
    let guess = (exponent * 1233) >> 12;
    let next = if guess + 1 >= 0 { power(guess + 1) } else { 1.0 / power(-guess - 1) };
    guess + 1 + i32::from(value >= next)
}

#[inline]
fn power(exponent: i32) -> f64 {
    POWERS[usize::try_from(exponent).map_or(0, |place| place.min(22))]
}

/// The most bytes of a float that `write` writes.
const TEXT_BYTES: usize = 16;

impl Digits {
    /// Appends the number as C's `%g` does where that takes no exponent; else it does nothing and
    /// says so. What would look like an integer gets a `.0`.
    #[inline]
    pub(super) fn write(&self, is_negative: bool, out: &mut Vec<u8>) -> bool {
        let n_max = i32::try_from(self.n_max).unwrap_or(0);
        if !(-3..=n_max).contains(&self.point) {
            return false;
        }
        let (text, n_digits) = text(self.digits);
        let mut bytes = [b'0'; TEXT_BYTES];
        let length = match usize::try_from(self.point) {
            Ok(n_whole @ 1..) => {
                bytes[1..10].copy_from_slice(&text);
                bytes[..n_whole].copy_from_slice(&text[..n_whole]);
                bytes[n_whole] = b'.';
                1 + n_digits.max(n_whole + 1)
            }
            _ => {
                bytes[1] = b'.';
                let at = 2 + self.point.unsigned_abs() as usize;
                bytes[at..at + 9].copy_from_slice(&text);
                at + n_digits
            }
        };
        if is_negative {
            out.push(b'-');
        }
        // A copy of a fixed size is one store; most of the time there is room.
        let start = out.len();
        out.extend_from_slice(&bytes);
        out.truncate(start + length);
        true
    }
}

/// Nine digits as a text, and how many there are without the zeros at their end.
#[inline]
fn text(digits: u32) -> ([u8; 9], usize) {
    let (first, last) = (u64::from(digits / 10), digits % 10);
    // The eight digits are taken apart in halves of halves, those of one size at once.
    let fours = (first / 10_000) | (first % 10_000) << 32;
    let hundreds = ((fours * 5243) >> 19) & 0x0000_007F_0000_007F;
    let pairs = hundreds | (fours - 100 * hundreds) << 16;
    let tens = ((pairs * 103) >> 10) & 0x000F_000F_000F_000F;
    let ones = tens | (pairs - 10 * tens) << 8;
    let mut text = [b'0'; 9];
    text[..8].copy_from_slice(&(ones | 0x3030_3030_3030_3030).to_le_bytes());
    text[8] |= last.to_le_bytes()[0];
    let n_digits = if last == 0 { 8 - ones.leading_zeros() as usize / 8 } else { 9 };
    (text, n_digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_become_text_without_the_zeros_at_their_end() {
        for (digits, expected, n_digits) in [
            (123_456_789, b"123456789", 9),
            (100_000_000, b"100000000", 1),
            (987_654_320, b"987654320", 8),
            (999_900_000, b"999900000", 4),
            (909_090_909, b"909090909", 9),
        ] {
            assert_eq!(text(digits), (*expected, n_digits), "{digits}");
        }
    }

    #[test]
    fn the_point_stands_where_it_belongs() {
        for exponent in -8..15 {
            let power: f64 = format!("1e{exponent}").parse().unwrap();
            assert_eq!(point_of(power), exponent + 1, "{power:e}");
            assert_eq!(point_of(power.next_down()), exponent, "below {power:e}");
            assert_eq!(point_of(power * 9.9), exponent + 1, "above {power:e}");
        }
    }
}
