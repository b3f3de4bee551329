//! An open file, read at positions.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt as _;

use crate::error::{Error, Result};

/// A file that is open for reading. Several threads may read it at once.
#[derive(Debug)]
pub struct File {
    file: fs::File,
    path: String,
    len: u64,
}

impl File {
    pub(crate) fn new(file: fs::File, path: &str, len: u64) -> Self {
        Self { file, path: path.to_owned(), len }
    }

    /// The length when it was opened.
    #[expect(clippy::len_without_is_empty, reason = "a length in bytes, not a collection")]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The path it was opened by.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Fills `into` with the bytes at `offset`.
    ///
    /// # Errors
    /// [`Error::Truncated`] if the file ends before.
    pub fn read_exact_at(&self, into: &mut [u8], offset: u64) -> Result<()> {
        self.check_range(offset, into.len() as u64)?;
        self.file.read_exact_at(into, offset).map_err(|err| {
            if err.kind() == ErrorKind::UnexpectedEof {
                return self.truncated(offset, into.len() as u64);
            }
            Error::io(&self.path, err)
        })
    }

    /// Checks that the file is long enough to hold `wanted` bytes at `offset`, without reading.
    ///
    /// # Errors
    /// [`Error::Truncated`] if it is not.
    pub fn check_range(&self, offset: u64, wanted: u64) -> Result<()> {
        match offset.checked_add(wanted) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(self.truncated(offset, wanted)),
        }
    }

    fn truncated(&self, offset: u64, wanted: u64) -> Error {
        let len = self.file.metadata().map_or(self.len, |metadata| metadata.len());
        Error::Truncated { path: self.path.clone(), offset, wanted, len }
    }
}
