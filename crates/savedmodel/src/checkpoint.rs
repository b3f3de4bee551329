//! `Checkpoint`: the values of variables on disk, a "tensor bundle" of an index and data files
//! (`tensorflow/core/util/tensor_bundle/tensor_bundle.cc`).

mod crc;
mod entry;
mod ordered;
mod read;
mod slice;
mod strings;
mod table;
mod varint;

use std::collections::BTreeMap;
use std::sync::Arc;

use metrics::Headway;
use prost::Message as _;
use proto::tensorflow::BundleHeaderProto;
use proto::tensorflow::bundle_header_proto::Endianness;
use storage::Storage;

pub(crate) use crc::Crc;
pub use entry::Entry;
pub use slice::Slice;

use crate::error::{Error, Fault, Result};

/// The index holds about a hundred bytes a tensor.
const INDEX_LIMIT_BYTES: u64 = 1 << 30;
/// The version of the format that we know.
const VERSION: i32 = 1;

/// An open checkpoint. Several threads may read from it at once.
#[derive(Debug)]
pub struct Checkpoint {
    dir: Storage,
    prefix: String,
    n_shards: i32,
    headway: Option<Arc<Headway>>,
    /// By key. A damaged entry does no harm as long as nobody wants it.
    entries: BTreeMap<Vec<u8>, Result<Entry, Fault>>,
}

impl Checkpoint {
    /// Reads the index of the checkpoint at `prefix`, such as `variables/variables`. The data files
    /// are opened when a tensor is read.
    ///
    /// # Errors
    /// If the index is missing or damaged, or was written on a big-endian machine.
    pub fn open(dir: &Storage, prefix: &str) -> Result<Self> {
        let table = dir.read(&index_file(prefix), INDEX_LIMIT_BYTES)?;
        Self::of_index(dir, prefix, &table)
    }

    fn of_index(dir: &Storage, prefix: &str, table: &[u8]) -> Result<Self> {
        let file = index_file(prefix);
        let malformed = |reason: String| Error::Malformed { file: file.clone(), reason };
        let mut header: Option<Result<i32>> = None;
        let mut entries = BTreeMap::new();
        table::read(table, |key, value| match &header {
            None if key.is_empty() => header = Some(read_header(&file, value)),
            None | Some(Err(_)) => {}
            Some(Ok(n_shards)) => {
                entries.insert(key.to_vec(), Entry::decode(value, *n_shards));
            }
        })
        .map_err(malformed)?;
        let n_shards = header.ok_or_else(|| malformed("there is no header".to_owned()))??;
        let (dir, prefix, headway) = (dir.clone(), prefix.to_owned(), None);
        Ok(Self { dir, prefix, n_shards, headway, entries })
    }

    /// Counts the bytes that are read from now on in `headway`.
    #[must_use]
    pub fn counted_in(self, headway: Option<Arc<Headway>>) -> Self {
        Self { headway, ..self }
    }

    /// Returns the entry of the tensor `key` in the index.
    ///
    /// # Errors
    /// If it is not there, or its entry is damaged.
    pub fn entry(&self, key: &str) -> Result<&Entry> {
        self.lookup(key.as_bytes()).map_err(|fault| self.error(key, fault))
    }

    /// All tensors, by key; those stored in slices once, as a whole. Damaged entries are left out.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &Entry)> {
        let tensors = self.entries.iter().filter(|(key, _)| key.first() != Some(&0));
        tensors
            .filter_map(|(key, entry)| Some((std::str::from_utf8(key).ok()?, entry.as_ref().ok()?)))
    }

    fn lookup(&self, key: &[u8]) -> Result<&Entry, Fault> {
        self.entries.get(key).ok_or(Fault::Missing)?.as_ref().map_err(Clone::clone)
    }

    pub(crate) fn error(&self, key: &str, fault: Fault) -> Error {
        Error::Tensor { file: index_file(&self.prefix), tensor: key.to_owned(), fault }
    }

    /// Fails if the data file of a tensor is missing or too short; not if the tensor is stored in
    /// slices or is not there.
    ///
    /// # Errors
    /// [`Error::Shard`] names the file.
    pub fn check_data(&self, key: &str) -> Result<()> {
        match self.lookup(key.as_bytes()) {
            Ok(entry) if !entry.is_sliced() => self.shard(key, entry).map(drop),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// The data file that holds an entry's bytes, checked to be long enough for them.
    fn shard(&self, key: &str, entry: &Entry) -> Result<storage::File> {
        let path = format!("{}.data-{:05}-of-{:05}", self.prefix, entry.shard, self.n_shards);
        let failed = |source| Error::Shard { tensor: key.to_owned(), source };
        let file = self.dir.open_file(&path).map_err(failed)?;
        file.check_range(entry.offset, entry.size).map_err(failed)?;
        Ok(file)
    }
}

fn index_file(prefix: &str) -> String {
    format!("{prefix}.index")
}

/// The number of shards.
fn read_header(file: &str, bytes: &[u8]) -> Result<i32> {
    let malformed = |reason: String| Error::Malformed { file: file.to_owned(), reason };
    let header = BundleHeaderProto::decode(bytes)
        .map_err(|err| malformed(format!("the header cannot be parsed: {err}")))?;
    if header.endianness() == Endianness::Big {
        return Err(Error::Unsupported {
            file: file.to_owned(),
            reason: "written on a big-endian machine".to_owned(),
        });
    }
    let version = header.version.unwrap_or_default();
    if version.min_consumer > VERSION {
        return Err(Error::Unsupported {
            file: file.to_owned(),
            reason: format!("needs version {}, we know {VERSION}", version.min_consumer),
        });
    }
    if header.num_shards < 1 {
        return Err(malformed(format!("{} shards cannot be", header.num_shards)));
    }
    Ok(header.num_shards)
}

#[cfg(test)]
mod tests;
