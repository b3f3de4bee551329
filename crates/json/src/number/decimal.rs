//! Decimals as most numbers of a tensor are written: some digits, a point, some digits. They are
//! read without a loop over the digits and with few branches; everything else is left to `read`.

use super::POWERS;

/// The number of bytes that are looked at.
pub(super) const BLOCK_BYTES: usize = 32;

/// The most digits before and behind the point that fit the block.
const WHOLE_MAX: usize = 8;
const FRACTION_MAX: usize = 15;

/// Digits of which the mantissa is made; more could overflow it.
const DIGITS_MAX: usize = 19;

const ZEROS: u64 = 0x3030_3030_3030_3030;

const TENS: [u64; FRACTION_MAX + 1] = tens();

const fn tens() -> [u64; FRACTION_MAX + 1] {
    let mut tens = [1; FRACTION_MAX + 1];
    let mut place = 1;
    while place < tens.len() {
        tens[place] = 10 * tens[place - 1];
        place += 1;
    }
    tens
}

/// The decimal at the beginning of a block and its length, if there is one that ends in the block,
/// has no exponent, and whose value is the quotient of two numbers that a double holds exactly:
/// then it is rounded once.
#[inline(always)]
pub(super) fn read(block: &[u8; BLOCK_BYTES]) -> Option<(f64, usize)> {
    // One digit before the point is what the elements of images and probabilities have.
    if block[1] == b'.' {
        let digit = block[0].wrapping_sub(b'0');
        return if digit < 10 { fraction(block, u64::from(digit), 2) } else { None };
    }
    read_longer(block)
}

/// A decimal with a sign, or with several digits before the point.
#[inline(never)]
fn read_longer(block: &[u8; BLOCK_BYTES]) -> Option<(f64, usize)> {
    let is_negative = block[0] == b'-';
    let start = usize::from(is_negative);
    let (whole, at) = whole(block, start)?;
    let (value, end) = fraction(block, whole, at)?;
    Some((if is_negative { -value } else { value }, end))
}

/// The digits before the point, and where those behind it begin. They are no more than
/// `WHOLE_MAX`, and the first of several is no zero.
#[inline]
fn whole(block: &[u8; BLOCK_BYTES], start: usize) -> Option<(u64, usize)> {
    let mut whole = 0;
    for (place, byte) in block[start..start + WHOLE_MAX + 1].iter().enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit < 10 {
            whole = 10 * whole + u64::from(digit);
            continue;
        }
        let is_right = *byte == b'.' && (place == 1 || (place > 1 && block[start] != b'0'));
        return is_right.then_some((whole, start + place + 1));
    }
    None
}

/// The digits behind the point, at `at`, and the value of all digits. At `at` are `FRACTION_MAX`
/// bytes and one more.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the halves of sixteen digits")]
fn fraction(block: &[u8; BLOCK_BYTES], whole: u64, at: usize) -> Option<(f64, usize)> {
    let (low, high) = (load(block, at)?, load(block, at + 8)?);
    // Whether there are more than eight digits is as good as random, so it must not be a branch.
    let (low_ends, high_ends) = (ends(low), ends(high));
    let is_long = u32::from(low_ends == 0).wrapping_neg();
    let n_bits = low_ends.trailing_zeros() + (high_ends.trailing_zeros() & is_long);
    let n_digits = (n_bits / 8) as usize;
    let end = at + n_digits;
    let is_short = (1..=FRACTION_MAX).contains(&n_digits) && end <= DIGITS_MAX + 1;
    if !is_short || block[end] | 0x20 == b'e' {
        return None;
    }
    // The digits move to the end of sixteen; what is moved in before them are zeros.
    let digits = u128::from(low ^ ZEROS) | u128::from(high ^ ZEROS) << 64;
    let digits = digits << (128 - 8 * n_digits);
    let fraction = eight(digits as u64) * 100_000_000 + eight((digits >> 64) as u64);
    let mantissa = whole * TENS[n_digits] + fraction;
    (mantissa < 1 << 53).then(|| (mantissa.cast_signed() as f64 / POWERS[n_digits], end))
}

#[inline]
fn load(block: &[u8; BLOCK_BYTES], at: usize) -> Option<u64> {
    block.get(at..at + 8).map(from_bytes)
}

#[inline]
fn from_bytes(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// The high bit of every byte that is no digit.
#[inline]
fn ends(text: u64) -> u64 {
    const LOW: u64 = 0x7F7F_7F7F_7F7F_7F7F;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let digits = text ^ ZEROS;
    // 0x76 and more than nine is 0x80 and more.
    ((digits & LOW).wrapping_add(0x7676_7676_7676_7676) | digits) & HIGH
}

/// The value of eight digits, a byte each, the first in the lowest.
#[inline]
pub(super) fn eight(digits: u64) -> u64 {
    // Neighbours are joined: digits to pairs, pairs to fours, fours to the whole.
    let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8);
    let low = (pairs & 0x0000_00FF_0000_00FF).wrapping_mul(100 + (1_000_000 << 32));
    let high = ((pairs >> 16) & 0x0000_00FF_0000_00FF).wrapping_mul(1 + (10_000 << 32));
    low.wrapping_add(high) >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a number with something behind it.
    fn value(text: &str, behind: u8) -> Option<(f64, usize)> {
        let mut block = [behind; BLOCK_BYTES];
        block[..text.len()].copy_from_slice(text.as_bytes());
        read(&block)
    }

    #[track_caller]
    fn check(text: &str) {
        let expected: f64 = text.parse().unwrap();
        for behind in [b',', b']', b' ', 0, 0xFF, b'/', b':', b'p', b'.', b'-'] {
            let (got, length) = value(text, behind).expect(text);
            assert_eq!((got.to_bits(), length), (expected.to_bits(), text.len()), "{text}");
        }
    }

    #[track_caller]
    fn check_left(text: &str, behind: u8) {
        assert_eq!(value(text, behind), None, "{text}");
    }

    #[test]
    fn decimals_are_the_nearest_doubles() {
        for text in ["0.0", "-0.0", "0.1", "9.9", "-1.5", "12.25", "-12345678.5", "0.12345678"] {
            check(text);
        }
        for text in ["0.123456789012345", "1.123456789", "89999999.0000001", "-0.000000000000001"] {
            check(text);
        }
    }

    #[test]
    fn every_number_of_digits_is_read() {
        for n_whole in 1..=WHOLE_MAX {
            for n_fraction in 1..=FRACTION_MAX.min(15 - n_whole) {
                let (whole, fraction) = (&"987654321"[..n_whole], &"123456789012345"[..n_fraction]);
                check(&format!("{whole}.{fraction}"));
                check(&format!("-{whole}.{fraction}"));
            }
        }
    }

    #[test]
    fn all_else_is_left_to_others() {
        for text in ["1", "", "-", ".5", "1.", "-.5", "00.5", "01.5", "-01.5", "123456789.5", "x.5"]
        {
            check_left(text, b',');
        }
        // Beyond what is exact, or with an exponent.
        for text in ["9.999999999999999", "0.1234567890123456", "12345678.123456789012"] {
            check_left(text, b',');
        }
        check_left("1.5", b'e');
        check_left("1.5", b'E');
        // The block is too short to see the end.
        check_left("12345678.90123456789012345678901", b'2');
        check_left("0.0", b'0');
    }
}
