//! Reading string tensors: their lengths as varints, a checksum of the lengths, then the bytes.

use tensor::{DType, Strings};

use super::crc::Crc;
use super::varint::{take, take_varint};
use super::{Checkpoint, Entry};
use crate::error::{Error, Fault, Result};

impl Checkpoint {
    /// Reads a string tensor, its elements in row-major order. Takes twice its stored size while it
    /// reads.
    ///
    /// # Errors
    /// If the tensor is missing, is not of strings, is stored in slices, or is damaged.
    pub fn read_strings(&self, key: &str) -> Result<Strings> {
        let entry = self.entry(key)?;
        let error = |fault| self.error(key, fault);
        if entry.dtype() != DType::String {
            return Err(error(Fault::Dtype(format!("expected string, got {}", entry.dtype()))));
        }
        if entry.is_sliced() {
            return Err(error(Fault::Dtype("slices of strings are not supported".to_owned())));
        }
        let file = self.shard(key, entry)?;
        // The file has as many bytes, so there is no harm in believing the length.
        let size = usize::try_from(entry.size)
            .map_err(|_| error(Fault::Strings("too large for this machine".to_owned())))?;
        let mut bytes = device::BookedVec::filled(0, size)
            .map_err(|refused| error(Fault::Memory(refused.to_string())))?;
        file.read_exact_at(&mut bytes, entry.offset)
            .map_err(|source| Error::Shard { tensor: key.to_owned(), source })?;
        decode(&bytes, entry).map_err(error)
    }
}

fn decode(bytes: &[u8], entry: &Entry) -> Result<Strings, Fault> {
    let damaged = |reason: &str| Fault::Strings(format!("its strings are damaged: {reason}"));
    let n_strings = entry.shape().n_elements();
    let mut rest = bytes;
    let mut crc = Crc::default();
    let mut lens = Vec::with_capacity(n_strings.min(bytes.len()));
    let mut total = 0_u64;
    for _ in 0..n_strings {
        let len = take_varint(&mut rest).ok_or_else(|| damaged("a length is cut off"))?;
        // The checksum is of the lengths in a fixed width.
        match u32::try_from(len) {
            Ok(len) => crc.update(&len.to_le_bytes()),
            Err(_) => crc.update(&len.to_le_bytes()),
        }
        total = total.checked_add(len).ok_or_else(|| damaged("the lengths overflow"))?;
        lens.push(len);
    }
    let stored = take(&mut rest, 4)
        .and_then(|stored| stored.first_chunk())
        .ok_or_else(|| damaged("the checksum is cut off"))?;
    if !crc.is(u32::from_le_bytes(*stored)) {
        return Err(damaged("the checksum of the lengths does not match"));
    }
    if total != rest.len() as u64 {
        return Err(damaged(&format!("{total} bytes expected, got {}", rest.len())));
    }
    crc.update(stored);
    crc.update(rest);
    if !crc.is(entry.crc) {
        return Err(Fault::Checksum { expected: entry.crc, got: crc.masked() });
    }
    let memory = |error: tensor::Error| Fault::Memory(error.to_string());
    let mut strings = Strings::with_capacity(lens.len(), rest.len()).map_err(memory)?;
    for len in lens {
        let len = usize::try_from(len).expect("the lengths sum to those of a slice");
        let string = take(&mut rest, len).expect("the lengths sum to those of a slice");
        strings.push(string).map_err(memory)?;
    }
    Ok(strings)
}
