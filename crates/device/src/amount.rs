//! Amounts of memory as people write them.

/// A part of a device's memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Amount {
    /// So many bytes.
    Bytes(u64),
    /// This share of what the device has in all, from 0 to 1.
    Fraction(f64),
}

impl Amount {
    /// Reads `4GiB`, `512 MB`, `1048576` (bytes) or `0.7` (a fraction); `None` if it is none of
    /// these.
    pub fn parse(text: &str) -> Option<Amount> {
        if let Some(bytes) = parse_bytes(text) {
            return Some(Amount::Bytes(bytes));
        }
        let fraction: f64 = text.trim().parse().ok()?;
        (fraction > 0.0 && fraction <= 1.0).then_some(Amount::Fraction(fraction))
    }

    /// The bytes it is of a device with `total_bytes`.
    pub fn bytes_of(self, total_bytes: u64) -> u64 {
        match self {
            Amount::Bytes(bytes) => bytes,
            Amount::Fraction(fraction) => scale(total_bytes, fraction),
        }
    }
}

/// Reads a number of bytes with an optional unit: `kB`, `MB`, `GB`, `TB` count in thousands, `KiB`,
/// `MiB`, `GiB`, `TiB` in 1024s. `None` if it is none, or more than 64 bits hold.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = unit.trim().to_ascii_lowercase();
    let factor: u64 = match unit.as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return None,
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor);
    }
    let number: f64 = number.parse().ok()?;
    (factor > 1 && number * (factor as f64) < 1.8e19).then(|| scale(factor, number))
}

/// `fraction × bytes`, rounded down; 0 if that is negative or no number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast from a float saturates, which is what is wanted"
)]
pub(crate) fn scale(bytes: u64, fraction: f64) -> u64 {
    (bytes as f64 * fraction) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_units() {
        let cases = [
            ("0", Some(0)),
            ("1048576", Some(1 << 20)),
            ("4GiB", Some(4 << 30)),
            (" 512 MiB ", Some(512 << 20)),
            ("1.5GiB", Some(3 << 29)),
            ("2kB", Some(2000)),
            ("8g", Some(8 << 30)),
            ("", None),
            ("GiB", None),
            ("0.5", None),
            ("-1", None),
            ("1.2.3GiB", None),
            ("4 parsecs", None),
            ("99999999TiB", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_bytes(text), expected, "{text}");
        }
    }

    #[test]
    fn amounts_are_bytes_or_fractions() {
        assert_eq!(Amount::parse("0.25").map(|a| a.bytes_of(1 << 30)), Some(1 << 28));
        assert_eq!(Amount::parse("1MiB").map(|a| a.bytes_of(1 << 30)), Some(1 << 20));
        for text in ["1.5", "0.0", "-0.5", "NaN", "half"] {
            assert_eq!(Amount::parse(text), None, "{text}");
        }
    }
}
