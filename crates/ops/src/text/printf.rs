//! Numbers as C's `printf` writes them.

/// The format of a number.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Format {
    /// `' '`, `'+'`, `'-'`, `'0'` or `'#'`.
    pub(super) flag: Option<char>,
    pub(super) width: usize,
    pub(super) precision: Option<usize>,
    pub(super) notation: Notation,
}

/// The conversions of floats.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Notation {
    /// `%f`
    #[default]
    Fixed,
    /// `%e`
    Scientific,
    /// `%g`
    Shortest,
}

impl Format {
    /// An integer, given as its sign and digits.
    pub(super) fn integer(self, is_negative: bool, digits: &str) -> String {
        let digits = match self.precision {
            Some(0) if digits == "0" => String::new(),
            Some(precision) => format!("{digits:0>precision$}"),
            None => digits.to_owned(),
        };
        self.pad(self.sign(is_negative), &digits, self.precision.is_none())
    }

    /// A float.
    pub(super) fn float(self, value: f64) -> String {
        let sign = self.sign(value.is_sign_negative());
        if !value.is_finite() {
            return self.pad(sign, if value.is_nan() { "nan" } else { "inf" }, false);
        }
        let keeps_point = self.flag == Some('#');
        let precision = self.precision.unwrap_or(6);
        let digits = match self.notation {
            Notation::Fixed => fixed(value.abs(), precision, keeps_point),
            Notation::Scientific => scientific(value.abs(), precision, keeps_point),
            Notation::Shortest => shortest(value.abs(), precision, keeps_point),
        };
        self.pad(sign, &digits, true)
    }

    /// A text, which may be of any bytes.
    pub(super) fn padded(self, text: &[u8]) -> Vec<u8> {
        let blanks = vec![b' '; self.width.saturating_sub(text.len())];
        match self.flag {
            Some('-') => [text, &blanks].concat(),
            _ => [&blanks, text].concat(),
        }
    }

    fn sign(self, is_negative: bool) -> &'static str {
        match self.flag {
            _ if is_negative => "-",
            Some('+') => "+",
            Some(' ') => " ",
            _ => "",
        }
    }

    fn pad(self, sign: &str, digits: &str, may_be_zeros: bool) -> String {
        let missing = self.width.saturating_sub(sign.len() + digits.len());
        match self.flag {
            Some('-') => format!("{sign}{digits}{}", " ".repeat(missing)),
            Some('0') if may_be_zeros => format!("{sign}{}{digits}", "0".repeat(missing)),
            _ => format!("{}{sign}{digits}", " ".repeat(missing)),
        }
    }
}

fn fixed(value: f64, precision: usize, keeps_point: bool) -> String {
    let point = if precision == 0 && keeps_point { "." } else { "" };
    format!("{value:.precision$}{point}")
}

fn scientific(value: f64, precision: usize, keeps_point: bool) -> String {
    let text = format!("{value:.precision$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let point = if precision == 0 && keeps_point { "." } else { "" };
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}{point}e{sign}{:02}", exponent.abs())
}

/// As many digits as the precision, in the notation that is shorter, without zeros at the end.
fn shortest(value: f64, precision: usize, keeps_point: bool) -> String {
    let n_digits = precision.max(1);
    // The exponent that it has when rounded to as many digits.
    let rounded = format!("{value:.*e}", n_digits - 1);
    let exponent: i32 = rounded.split_once('e').and_then(|(_, e)| e.parse().ok()).unwrap_or(0);
    let is_fixed = exponent >= -4 && i64::from(exponent) < n_digits as i64;
    if is_fixed {
        let decimals = (n_digits as i64 - 1 - i64::from(exponent)).max(0) as usize;
        let text = fixed(value, decimals, keeps_point);
        return if keeps_point { text } else { without_zeros(&text).to_owned() };
    }
    let text = scientific(value, n_digits - 1, keeps_point);
    if keeps_point {
        return text;
    }
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "+00"));
    format!("{}e{exponent}", without_zeros(digits))
}

fn without_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(notation: Notation, precision: Option<usize>, value: f64, expected: &str) {
        let format = Format { notation, precision, ..Format::default() };
        assert_eq!(format.float(value), expected);
    }

    #[test]
    fn the_shortest_notation_is_that_of_c() {
        check(Notation::Shortest, None, 0.0, "0");
        check(Notation::Shortest, None, 100_000.0, "100000");
        check(Notation::Shortest, None, 1_000_000.0, "1e+06");
        check(Notation::Shortest, None, 0.0001, "0.0001");
        check(Notation::Shortest, None, 0.000_012_34, "1.234e-05");
        check(Notation::Shortest, Some(2), 99.9, "1e+02");
        check(Notation::Shortest, Some(0), 0.5, "0.5");
    }

    #[test]
    fn exponents_have_two_digits_and_a_sign() {
        check(Notation::Scientific, None, -1.5, "-1.500000e+00");
        check(Notation::Scientific, Some(0), 1e100, "1e+100");
        check(Notation::Fixed, Some(1), 0.25, "0.2");
        check(Notation::Fixed, None, f64::NEG_INFINITY, "-inf");
    }
}
