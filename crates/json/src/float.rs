//! Floats as text: with six digits if those lead back to the same float, else with as
//! many as any float needs; never without a point or an exponent (`WriteDecimal` in
//! `json_tensor.cc`).

mod quick;

/// Digits that are tried first, and that any `f32` and any `f64` needs.
const FEW: usize = 6;
const ALL_F32: usize = 9;
const ALL_F64: usize = 17;

/// Appends a float.
pub(crate) fn write_f32(value: f32, out: &mut Vec<u8>) {
    if write_special(f64::from(value), out) {
        return;
    }
    let decimal = match quick::digits(value.abs()) {
        Some(digits) if digits.write(value.is_sign_negative(), out) => return,
        Some(digits) => Decimal::from(digits),
        None => Decimal::of(value.abs()),
    };
    decimal.write(value.is_sign_negative(), out);
}

/// Appends a double.
pub(crate) fn write_f64(value: f64, out: &mut Vec<u8>) {
    if write_special(value, out) {
        return;
    }
    let few = Decimal::exact(value.abs(), FEW);
    let is_enough = few.to_text().parse() == Ok(value.abs());
    let decimal = if is_enough { few } else { Decimal::exact(value.abs(), ALL_F64) };
    decimal.write(value.is_sign_negative(), out);
}

/// Appends zeros and what has no digits. Whether it was one of those.
#[inline]
fn write_special(value: f64, out: &mut Vec<u8>) -> bool {
    if value.is_normal() {
        return false;
    }
    let text: &[u8] = if value == 0.0 {
        if value.is_sign_negative() { b"-0.0" } else { b"0.0" }
    } else if value.is_nan() {
        b"NaN"
    } else if value.is_infinite() {
        if value < 0.0 { b"-Infinity" } else { b"Infinity" }
    } else {
        return false;
    };
    out.extend_from_slice(text);
    true
}

/// `0.d₁d₂d₃… × 10^point`, with trailing zeros possible.
struct Decimal {
    digits: u64,
    n_digits: usize,
    point: i32,
}

impl From<quick::Digits> for Decimal {
    fn from(quick::Digits { digits, n_max, point }: quick::Digits) -> Self {
        let surplus = 10u64.pow(u32::try_from(ALL_F32 - n_max).unwrap_or(0));
        Self { digits: u64::from(digits) / surplus, n_digits: n_max, point }
    }
}

impl Decimal {
    /// The decimal of a positive float, with as many digits as it is written with.
    #[cold]
    fn of(value: f32) -> Self {
        let few = Self::exact(value.into(), FEW);
        let is_enough = few.to_text().parse() == Ok(value);
        if is_enough { few } else { Self::exact(value.into(), ALL_F32) }
    }

    /// The decimal of so many digits that is nearest to a positive double.
    fn exact(value: f64, n_digits: usize) -> Self {
        let text = format!("{value:.*e}", n_digits - 1);
        let (mantissa, exponent) = text.split_once('e').expect("the form has an exponent");
        let digits = mantissa.bytes().filter(u8::is_ascii_digit);
        let digits = digits.fold(0, |all, digit| all * 10 + u64::from(digit - b'0'));
        let exponent: i32 = exponent.parse().expect("the exponent is a number");
        Self { digits, n_digits, point: exponent + 1 }
    }

    fn to_text(&self) -> String {
        format!("0.{:0width$}e{}", self.digits, self.point, width = self.n_digits)
    }

    /// Appends the number as C's `%g` does, and `.0` if it would look like an integer.
    fn write(&self, is_negative: bool, out: &mut Vec<u8>) {
        if is_negative {
            out.push(b'-');
        }
        let mut buffer = [b'0'; 20];
        let mut rest = self.digits;
        for place in (0..self.n_digits).rev() {
            buffer[place] = b'0' + u8::try_from(rest % 10).unwrap_or(0);
            rest /= 10;
        }
        let mut digits = &buffer[..self.n_digits];
        while let [shorter @ .., b'0'] = digits {
            digits = shorter;
        }
        let exponent = self.point - 1;
        let n_max = i32::try_from(self.n_digits).unwrap_or(i32::MAX);
        if exponent < -4 || exponent >= n_max {
            return write_scientific(digits, exponent, out);
        }
        let Ok(n_whole) = usize::try_from(self.point) else {
            out.extend_from_slice(b"0.");
            out.resize(out.len() + self.point.unsigned_abs() as usize, b'0');
            return out.extend_from_slice(digits);
        };
        if n_whole >= digits.len() {
            out.extend_from_slice(digits);
            out.resize(out.len() + n_whole - digits.len(), b'0');
            return out.extend_from_slice(b".0");
        }
        if n_whole == 0 {
            out.push(b'0');
        }
        out.extend_from_slice(&digits[..n_whole]);
        out.push(b'.');
        out.extend_from_slice(&digits[n_whole..]);
    }
}

fn write_scientific(digits: &[u8], exponent: i32, out: &mut Vec<u8>) {
    out.push(digits[0]);
    if digits.len() > 1 {
        out.push(b'.');
        out.extend_from_slice(&digits[1..]);
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    out.extend_from_slice(format!("e{sign}{:02}", exponent.unsigned_abs()).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(value: f32, expected: &str) {
        let mut out = Vec::new();
        write_f32(value, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), expected, "{value:e}");
    }

    #[track_caller]
    fn check_f64(value: f64, expected: &str) {
        let mut out = Vec::new();
        write_f64(value, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), expected, "{value:e}");
    }

    #[test]
    fn floats_have_six_digits_or_nine() {
        check(3.0, "3.0");
        check(-2.5, "-2.5");
        check(0.2, "0.2");
        check(9_000_000.0, "9e+06");
        check(123_456.0, "123456.0");
        check(123_456_792.0, "123456792.0");
        check(1_234_567_890.0, "1.23456794e+09");
        check(0.000_03, "3e-05");
        check(0.000_1, "0.0001");
        check(1.0 / 3.0, "0.333333343");
        check(f32::MAX, "3.40282347e+38");
        check(f32::MIN_POSITIVE, "1.17549435e-38");
        check(1e-45, "1.4013e-45");
        check(999_999.5, "999999.5");
        check(0.999_999_94, "0.99999994");
        check(1_000_000.0, "1e+06");
    }

    #[test]
    fn doubles_have_six_digits_or_seventeen() {
        check_f64(0.1, "0.1");
        check_f64(1.0 / 3.0, "0.33333333333333331");
        check_f64(1e300, "1e+300");
        check_f64(123_456_789.0, "123456789.0");
        check_f64(-0.0, "-0.0");
    }

    #[test]
    fn what_has_no_digits_is_a_word() {
        check(f32::NAN, "NaN");
        check(f32::INFINITY, "Infinity");
        check(f32::NEG_INFINITY, "-Infinity");
        check(-0.0, "-0.0");
        check(0.0, "0.0");
    }

    /// The text of the slow and sure way.
    fn exactly(value: f32) -> String {
        let mut out = Vec::new();
        Decimal::of(value.abs()).write(value.is_sign_negative(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn arithmetic_and_exact_digits_agree() {
        let mut bits: u32 = 12345;
        let mut n_quick = 0;
        for round in 0..200_000 {
            bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // All floats, those around one, and those with few digits.
            let value = match round % 4 {
                0 => f32::from_bits(bits),
                1 => f32::from_bits(bits & 0x81FF_FFFF | 0x3E00_0000),
                2 => (bits >> 12) as f32 / 1000.0,
                _ => (bits >> 8) as f32 / 16_777_216.0,
            };
            if value.is_finite() && value != 0.0 {
                n_quick += usize::from(quick::digits(value.abs()).is_some());
                check(value, &exactly(value));
            }
        }
        assert!(n_quick > 150_000, "only {n_quick} of them were quick");
    }

    #[test]
    fn powers_of_two_and_ten_and_their_neighbours_are_exact() {
        let powers_of_two = (0..=254).map(|exponent| f32::from_bits(exponent << 23));
        let powers_of_ten = (-38..=38).map(|exponent| format!("1e{exponent}").parse().unwrap());
        for power in powers_of_two.chain(powers_of_ten).filter(|power| *power > 0.0) {
            for value in [power, power.next_up(), power.next_down(), -power, power * 1.5] {
                if value != 0.0 {
                    check(value, &exactly(value));
                }
            }
        }
    }
}
