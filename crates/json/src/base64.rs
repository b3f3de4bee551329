//! Base64 as `absl::Base64Unescape` reads it: blanks are skipped, padding may be left out but must
//! be right if it is there, and bits that are left over are not looked at.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

const ENGINE: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_encode_padding(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(true),
);

/// Appends what a base64 text stands for. Whether it is one.
pub(crate) fn decode(text: &[u8], out: &mut Vec<u8>) -> bool {
    let is_blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0B;
    if text.iter().any(is_blank) {
        let dense: Vec<u8> = text.iter().copied().filter(|byte| !is_blank(byte)).collect();
        return decode_dense(&dense, out);
    }
    decode_dense(text, out)
}

fn decode_dense(text: &[u8], out: &mut Vec<u8>) -> bool {
    let n_data = text.iter().rposition(|b| *b != b'=' && *b != b'.').map_or(0, |last| last + 1);
    let (data, padding) = text.split_at(n_data);
    let n_missing = (4 - data.len() % 4) % 4;
    if !padding.is_empty() && padding.len() != n_missing {
        return false;
    }
    ENGINE.decode_vec(data, out).is_ok()
}

/// Appends bytes in base64, with padding.
pub(crate) fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    let written = ENGINE.encode_slice(bytes, &mut out[start..]);
    out.truncate(start + written.expect("four bytes for each three are enough"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<&[u8]>) {
        let mut out = Vec::new();
        let decoded = decode(text.as_bytes(), &mut out).then_some(&out[..]);
        assert_eq!(decoded, expected, "{text}");
    }

    #[test]
    fn padding_may_be_left_out_but_not_be_wrong() {
        check("", Some(b""));
        check("aGVsbG8=", Some(b"hello"));
        check("aGVsbG8", Some(b"hello"));
        check(" aGVs\nbG8 = ", Some(b"hello"));
        check("aGVsbG9=", Some(b"hello")); // Bits left over.
        check("aGVsbG8==", None);
        check("aGVs=", None);
        check("a", None);
        check("aGVs-G8=", None);
        check("=aGV", None);
        check("====", None);
    }

    #[test]
    fn what_is_written_is_read_back() {
        for length in 0..70 {
            let bytes: Vec<u8> = (0..length).map(|i: u8| i.wrapping_mul(37)).collect();
            let mut text = Vec::new();
            encode(&bytes, &mut text);
            check(std::str::from_utf8(&text).unwrap(), Some(&bytes));
        }
    }
}
