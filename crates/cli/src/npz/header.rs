//! The header of an `.npy` member: a Python dictionary with `descr`, `fortran_order` and `shape`.

use anyhow::{Context, Result, bail, ensure};

/// The contents of a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    /// The element type, such as `<f4` or `|S5`.
    pub(super) descr: String,
    pub(super) is_fortran: bool,
    pub(super) shape: Vec<i64>,
}

const MAGIC: &[u8] = b"\x93NUMPY";

/// Splits a member into its header and its elements.
pub(super) fn parse(bytes: &[u8]) -> Result<(Header, &[u8])> {
    let rest = bytes.strip_prefix(MAGIC).context("not an .npy file")?;
    let (version, rest) = rest.split_at_checked(2).context("the header is cut short")?;
    let n_length_bytes = if version[0] == 1 { 2 } else { 4 };
    let (length, rest) =
        rest.split_at_checked(n_length_bytes).context("the header is cut short")?;
    let length = length.iter().rev().fold(0usize, |sum, byte| sum << 8 | usize::from(*byte));
    let (text, elements) = rest.split_at_checked(length).context("the header is cut short")?;
    Ok((dictionary(std::str::from_utf8(text)?)?, elements))
}

/// Reads `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }`.
fn dictionary(text: &str) -> Result<Header> {
    let value = |key: &str| {
        let (_, rest) =
            text.split_once(&format!("'{key}':")).with_context(|| format!("no {key}"))?;
        Ok::<_, anyhow::Error>(rest.trim_start())
    };
    let descr = value("descr")?;
    ensure!(descr.starts_with('\''), "records are not supported");
    let descr = descr[1..].split('\'').next().unwrap_or_default().to_owned();
    let is_fortran = value("fortran_order")?.starts_with("True");
    let shape = value("shape")?.strip_prefix('(').context("no shape")?;
    let Some((shape, _)) = shape.split_once(')') else { bail!("the shape does not end") };
    let dims = shape.split(',').map(str::trim).filter(|dim| !dim.is_empty());
    let shape = dims.map(|dim| dim.trim_end_matches('L').parse().context("a dimension"));
    Ok(Header { descr, is_fortran, shape: shape.collect::<Result<_>>()? })
}

/// Writes a header, padded so that the elements are aligned.
pub(super) fn write(descr: &str, shape: &[usize]) -> Vec<u8> {
    let dims: Vec<String> = shape.iter().map(|dim| format!("{dim},")).collect();
    let mut text =
        format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}), }}", dims.join(" "));
    // The magic, the version and the length take 12 bytes in version 2.
    while (text.len() + 13) % 64 != 0 {
        text.push(' ');
    }
    text.push('\n');
    let length = u32::try_from(text.len()).expect("a header is short");
    [MAGIC, &[2, 0], &length.to_le_bytes(), text.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_header_is_read_back() {
        for shape in [&[][..], &[3], &[2, 0, 7]] {
            let bytes = write("<f4", shape);
            assert_eq!(bytes.len() % 64, 0);
            let (header, rest) = parse(&bytes).unwrap();
            assert!(rest.is_empty());
            assert_eq!((header.descr.as_str(), header.is_fortran), ("<f4", false));
            assert_eq!(header.shape, shape.iter().map(|d| *d as i64).collect::<Vec<_>>());
        }
    }

    #[test]
    fn damaged_headers_are_refused() {
        let good = write("<f4", &[3]);
        for length in 0..good.len() {
            assert!(parse(&good[..length]).is_err());
        }
    }
}
