//! Integers of variable length and other small pieces of a byte string.

/// Takes a varint off the front; `None` if it is cut off or too long.
pub(crate) fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for (i, byte) in bytes.iter().enumerate().take(10) {
        let bits = u64::from(byte & 0x7f);
        if i == 9 && bits > 1 {
            return None;
        }
        value |= bits << (7 * i);
        if byte & 0x80 == 0 {
            *bytes = &bytes[i + 1..];
            return Some(value);
        }
    }
    None
}

/// Takes a varint that is a length or an offset.
pub(crate) fn take_len(bytes: &mut &[u8]) -> Option<usize> {
    usize::try_from(take_varint(bytes)?).ok()
}

/// Takes `len` bytes off the front.
pub(crate) fn take<'a>(bytes: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (front, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(front)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &[u8], expected: Option<(u64, usize)>) {
        let mut rest = bytes;
        let value = take_varint(&mut rest);
        assert_eq!(value.map(|value| (value, rest.len())), expected);
    }

    #[test]
    fn varints_end_at_the_first_byte_below_128() {
        check(&[0], Some((0, 0)));
        check(&[0x96, 1, 7], Some((150, 1)));
        check(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], Some((u64::MAX, 0)));
    }

    #[test]
    fn varints_that_are_cut_off_or_too_long_are_refused() {
        check(&[], None);
        check(&[0x80], None);
        check(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2], None);
        check(&[0x80; 11], None);
    }
}
