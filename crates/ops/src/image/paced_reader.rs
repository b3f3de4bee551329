//! `PacedReader`: the bytes of a file for decoders that know of no run.

use std::io::{self, BufRead, Cursor, Read, Seek, SeekFrom};

use crate::prelude::*;

/// The bytes that a decoder gets at once. Packed well they are a thousand times as many pixels,
/// which take milliseconds.
const AT_ONCE: usize = 1 << 10;

/// The elementary operations that a byte of a packed file is taken for.
const OPERATIONS_A_BYTE: usize = 256;

/// A reader of bytes that fails when the run of its thread should stop. Decoders fail then, too,
/// and [`refusal`] tells why.
pub(super) struct PacedReader<'a> {
    bytes: Cursor<&'a [u8]>,
    /// The bytes that were read since the run was told of them.
    n_new: usize,
}

impl<'a> PacedReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes: Cursor::new(bytes), n_new: 0 }
    }
}

impl BufRead for PacedReader<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if is_stopped(OPERATIONS_A_BYTE * std::mem::take(&mut self.n_new)) {
            return Err(io::Error::other("the run is stopped"));
        }
        let rest = self.bytes.fill_buf()?;
        Ok(&rest[..rest.len().min(AT_ONCE)])
    }

    fn consume(&mut self, n: usize) {
        self.bytes.consume(n);
        self.n_new += n;
    }
}

impl Read for PacedReader<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let rest = self.fill_buf()?;
        let n = rest.len().min(to.len());
        to[..n].copy_from_slice(&rest[..n]);
        self.consume(n);
        Ok(n)
    }
}

impl Seek for PacedReader<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.bytes.seek(to)
    }
}

/// The error of a file that a decoder refuses, or of the run if that is why it ended.
pub(super) fn refusal(format: &str, error: impl std::fmt::Display) -> Error {
    let invalid = || Error::InvalidArgument(format!("Invalid {format}: {error}"));
    pace(0).err().unwrap_or_else(invalid)
}
