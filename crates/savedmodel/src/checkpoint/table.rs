//! The index of a checkpoint: a LevelDB table, read in one pass
//! (`tensorflow/core/lib/io/{table,block,format}.cc`).
//!
//! Nothing is believed before it is checked against the length of the file: blocks follow one
//! another without overlap, keys ascend, and neither the keys that share prefixes nor compressed
//! blocks may expand to more than an honest writer could have put there.

use super::crc::Crc;
use super::varint::{take, take_len, take_varint};

const FOOTER_LEN: usize = 48;
const TRAILER_LEN: usize = 5;
const MAGIC: u64 = 0xdb47_7524_8b80_fb57;
/// Of its elements a copy of 64 bytes in three is the shortest.
const SNAPPY_RATIO_MAX: usize = 22;
/// Every 16th key of TensorFlow's tables is written in full, so 16 is the most keys can expand.
const KEY_RATIO_MAX: usize = 16;

/// The reason that a table is damaged.
pub(crate) type Reason = String;

/// Calls `visit` with each key and value of the table, in the order of the keys.
pub(crate) fn read(table: &[u8], mut visit: impl FnMut(&[u8], &[u8])) -> Result<(), Reason> {
    let index = index_handle(table)?;
    let (index, _) = block(table, index)?;
    let mut entries = Entries::of(&index)?;
    let mut read = Progress::default();
    while let Some(mut value) = entries.next()? {
        let handle = Handle::take(&mut value).ok_or("a block handle is cut off")?;
        if handle.offset < read.end {
            return Err(format!("the block at {} overlaps the one before", handle.offset));
        }
        let (contents, end) = block(table, handle)?;
        read.end = end;
        read.n_bytes += contents.len();
        read.block(&contents, &mut visit)?;
    }
    Ok(())
}

#[derive(Debug, Clone, Copy)]
struct Handle {
    offset: usize,
    size: usize,
}

impl Handle {
    fn take(bytes: &mut &[u8]) -> Option<Self> {
        Some(Self { offset: take_len(bytes)?, size: take_len(bytes)? })
    }
}

fn index_handle(table: &[u8]) -> Result<Handle, Reason> {
    let start = table.len().checked_sub(FOOTER_LEN);
    let start = start.ok_or_else(|| format!("{} bytes are too few for a table", table.len()))?;
    let mut footer = &table[start..];
    let magic = footer.last_chunk().map(|magic| u64::from_le_bytes(*magic));
    if magic != Some(MAGIC) {
        return Err("not a table: bad magic number at the end".to_owned());
    }
    let _meta = Handle::take(&mut footer).ok_or("the footer is damaged")?;
    Handle::take(&mut footer).ok_or_else(|| "the footer is damaged".to_owned())
}

/// The contents of a block, its checksum verified, and where it ends in the file.
fn block(table: &[u8], handle: Handle) -> Result<(Vec<u8>, usize), Reason> {
    let limit = table.len() - FOOTER_LEN;
    let stored_end = handle.offset.checked_add(handle.size);
    let end = stored_end.and_then(|end| end.checked_add(TRAILER_LEN)).filter(|end| *end <= limit);
    let (Some(stored_end), Some(end)) = (stored_end, end) else {
        let Handle { offset, size } = handle;
        return Err(format!("a block of {size} bytes at {offset} ends behind byte {limit}"));
    };
    let stored = &table[handle.offset..stored_end];
    let kind = table[stored_end];
    let crc = table[stored_end + 1..end].first_chunk().map(|crc| u32::from_le_bytes(*crc));
    if !crc.is_some_and(|crc| Crc::of(&table[handle.offset..=stored_end]).is(crc)) {
        return Err(format!("checksum mismatch in the block at {}", handle.offset));
    }
    match kind {
        0 => Ok((stored.to_vec(), end)),
        1 => Ok((decompress(stored, handle.offset)?, end)),
        _ => Err(format!("the block at {} has an unknown compression {kind}", handle.offset)),
    }
}

fn decompress(stored: &[u8], offset: usize) -> Result<Vec<u8>, Reason> {
    let damaged = |err: snap::Error| format!("the block at {offset} is damaged: {err}");
    let len = snap::raw::decompress_len(stored).map_err(damaged)?;
    if len > stored.len().saturating_mul(SNAPPY_RATIO_MAX) {
        return Err(format!(
            "the block at {offset} claims to expand from {} to {len} bytes",
            stored.len()
        ));
    }
    snap::raw::Decoder::new().decompress_vec(stored).map_err(damaged)
}

/// The part of the table that has been read so far.
#[derive(Default)]
struct Progress {
    end: usize,
    n_bytes: usize,
    n_key_bytes: usize,
    last: Option<Vec<u8>>,
}

impl Progress {
    fn block(
        &mut self,
        contents: &[u8],
        visit: &mut impl FnMut(&[u8], &[u8]),
    ) -> Result<(), Reason> {
        let mut entries = Entries::of(contents)?;
        while let Some(value) = entries.next()? {
            let key = &entries.key;
            if self.last.as_ref().is_some_and(|last| key <= last) {
                return Err("the keys do not ascend".to_owned());
            }
            self.n_key_bytes += key.len();
            if self.n_key_bytes > self.n_bytes.saturating_mul(KEY_RATIO_MAX) {
                return Err("the keys expand to more than was written".to_owned());
            }
            visit(key, value);
            self.last.get_or_insert_default().clone_from(key);
        }
        Ok(())
    }
}

/// The entries of a block, one after another.
struct Entries<'a> {
    rest: &'a [u8],
    key: Vec<u8>,
}

impl<'a> Entries<'a> {
    fn of(contents: &'a [u8]) -> Result<Self, Reason> {
        let n_restarts = contents.last_chunk().map(|n| u32::from_le_bytes(*n) as usize);
        let rest = n_restarts
            .and_then(|n| n.checked_add(1)?.checked_mul(4))
            .and_then(|len| contents.len().checked_sub(len))
            .map(|end| &contents[..end]);
        let rest = rest.ok_or("a block has no room for its restart points")?;
        Ok(Self { rest, key: Vec::new() })
    }

    /// Steps to the next entry: gives its value, and has its key in `self.key`.
    fn next(&mut self) -> Result<Option<&'a [u8]>, Reason> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        self.step().map(Some).ok_or_else(|| "an entry of a block is damaged".to_owned())
    }

    fn step(&mut self) -> Option<&'a [u8]> {
        let n_shared = u32::try_from(take_varint(&mut self.rest)?).ok()? as usize;
        let n_fresh = u32::try_from(take_varint(&mut self.rest)?).ok()? as usize;
        let n_value = u32::try_from(take_varint(&mut self.rest)?).ok()? as usize;
        if n_shared > self.key.len() {
            return None;
        }
        self.key.truncate(n_shared);
        self.key.extend_from_slice(take(&mut self.rest, n_fresh)?);
        take(&mut self.rest, n_value)
    }
}
