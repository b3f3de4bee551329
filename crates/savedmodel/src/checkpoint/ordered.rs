//! The keys of slices: TensorFlow's ordered code (`lib/strings/ordered_code.cc`), which sorts
//! bytewise as the values do.

/// Appends a number that is not negative: its length in bytes, then the bytes, highest first.
pub(crate) fn write_number(out: &mut Vec<u8>, value: u64) {
    let bytes = value.to_be_bytes();
    let start = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len());
    out.push(u8::try_from(bytes.len() - start).expect("eight bytes at most"));
    out.extend_from_slice(&bytes[start..]);
}

/// Appends a byte string with an end mark that no string can hold.
pub(crate) fn write_string(out: &mut Vec<u8>, value: &[u8]) {
    for byte in value {
        match byte {
            0 => out.extend_from_slice(&[0, 0xff]),
            0xff => out.extend_from_slice(&[0xff, 0]),
            _ => out.push(*byte),
        }
    }
    out.extend_from_slice(&[0, 1]);
}

/// Appends a number that may be negative: as many leading bits as it has bytes, a bit of the other
/// sense, then the number. All of it is inverted for a negative one.
pub(crate) fn write_signed(out: &mut Vec<u8>, value: i64) {
    let magnitude = if value < 0 { !value } else { value };
    let n_bits = 64 - magnitude.leading_zeros() as usize;
    // Each byte holds seven bits beside its share of the length; one of them all is the sign.
    let len = (n_bits / 7 + 1).min(10);
    let sign = if value < 0 { 0xff } else { 0 };
    let mut bytes = [sign; 10];
    bytes[2..].copy_from_slice(&value.to_be_bytes());
    let bytes = &mut bytes[10 - len..];
    let [.., first, second] = (0xffff_0000_u32 >> len).to_be_bytes();
    for (byte, header) in bytes.iter_mut().zip([first, second]) {
        *byte ^= header;
    }
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(value: i64, expected: &[u8]) {
        let mut out = Vec::new();
        write_signed(&mut out, value);
        assert_eq!(out, expected, "{value}");
    }

    #[test]
    fn signed_numbers_have_tensorflows_bytes() {
        check(0, &[0x80]);
        check(63, &[0xbf]);
        check(64, &[0xc0, 64]);
        check(-1, &[0x7f]);
        check(-64, &[0x40]);
        check(-65, &[0x3f, 0xbf]);
        check(8191, &[0xdf, 0xff]);
        check(8192, &[0xe0, 0x20, 0]);
        check(i64::MAX, &[0xff, 0xc0, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
        check(i64::MIN, &[0, 0x3f, 0x80, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn signed_numbers_sort_as_their_bytes() {
        let mut values: Vec<i64> = (0..63).flat_map(|bit| [1 << bit, (1 << bit) - 1]).collect();
        values.extend(values.clone().iter().map(|value| -value));
        values.sort_unstable();
        values.dedup();
        let keys: Vec<Vec<u8>> = values
            .iter()
            .map(|value| {
                let mut out = Vec::new();
                write_signed(&mut out, *value);
                out
            })
            .collect();
        assert!(keys.is_sorted());
    }

    #[test]
    fn numbers_and_strings_have_tensorflows_bytes() {
        let mut out = Vec::new();
        write_number(&mut out, 0);
        write_number(&mut out, 2);
        write_number(&mut out, 0x0001_0203);
        write_string(&mut out, b"a\0\xff");
        assert_eq!(out, [0, 1, 2, 3, 1, 2, 3, b'a', 0, 0xff, 0xff, 0, 0, 1]);
    }
}
