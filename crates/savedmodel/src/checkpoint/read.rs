//! Reading the bytes of tensors: straight into their place, checksums verified on the way.

use storage::File;
use tensor::Shape;

use super::crc::Crc;
use super::slice::{Region, Runs, Slice};
use super::{Checkpoint, Entry};
use crate::error::{Error, Fault, Result};

/// The bytes that are read at once: few enough to be still in the cache when their checksum is
/// computed.
const CHUNK_LEN: usize = 1 << 20;

impl Checkpoint {
    /// Reads a tensor, or a part of it, into `into`, in row-major order and little endian. Nothing
    /// else of its size is allocated.
    ///
    /// A tensor that is stored in slices is put together from those that the part touches, however
    /// it was cut when it was written.
    ///
    /// # Errors
    /// If the tensor is missing, has no plain dtype, does not fit `into`, or is damaged: then
    /// `into` holds anything.
    pub fn read_into(&self, key: &str, part: Option<&Slice>, into: &mut [u8]) -> Result<()> {
        let entry = self.entry(key)?;
        let error = |fault| self.error(key, fault);
        if !entry.dtype().is_plain() {
            let reason = format!("elements of dtype {} have no fixed size", entry.dtype());
            return Err(error(Fault::Dtype(reason)));
        }
        let region = self.region(key, entry, part)?;
        let n_bytes = region.n_elements() * entry.dtype().size();
        if into.len() != n_bytes {
            let (expected, got) = (n_bytes as u64, into.len() as u64);
            return Err(error(Fault::Buffer { expected, got }));
        }
        for (source, stored) in self.sources(entry, key, &region).map_err(error)? {
            if let Some(part) = stored.intersection(&region) {
                let file = self.shard(key, source)?;
                let transfer = Transfer { checkpoint: self, key, entry: source, file: &file };
                transfer.run(&stored, &region, part, into)?;
            }
        }
        Ok(())
    }

    /// The shape of a tensor, or of a part of it. The data files are known to be long enough to
    /// hold it, so that memory for it may be allocated.
    ///
    /// # Errors
    /// If the tensor is missing, the part is not in it, or its bytes are not there.
    pub fn shape(&self, key: &str, part: Option<&Slice>) -> Result<Shape> {
        let entry = self.entry(key)?;
        let region = self.region(key, entry, part)?;
        let sources = self.sources(entry, key, &region).map_err(|fault| self.error(key, fault))?;
        for (source, stored) in sources {
            if stored.intersection(&region).is_some() {
                self.shard(key, source)?;
            }
        }
        Ok(region.shape())
    }

    fn region(&self, key: &str, entry: &Entry, part: Option<&Slice>) -> Result<Region> {
        let Some(part) = part else { return Ok(Region::whole(entry.shape())) };
        part.region(entry.shape()).ok_or_else(|| {
            let reason = format!("slice {part} is not within shape {}", entry.shape());
            self.error(key, Fault::Shape(reason))
        })
    }

    /// The entries that hold the bytes of a tensor, with their places in it, checked to hold every
    /// element of `wanted` exactly once.
    fn sources<'a>(
        &'a self,
        entry: &'a Entry,
        key: &str,
        wanted: &Region,
    ) -> Result<Vec<(&'a Entry, Region)>, Fault> {
        if !entry.is_sliced() {
            return Ok(vec![(entry, Region::whole(entry.shape()))]);
        }
        let mut sources: Vec<(&Entry, Region)> = Vec::new();
        let mut n_elements = 0;
        for slice in &entry.slices {
            let fault = |reason: &str| Fault::Slices(format!("slice {slice} {reason}"));
            let region =
                slice.region(entry.shape()).ok_or_else(|| fault("is not within the tensor"))?;
            let Some(part) = region.intersection(wanted) else { continue };
            if sources.iter().any(|(_, other)| other.intersection(&region).is_some()) {
                return Err(fault("overlaps another"));
            }
            let source = match self.lookup(&slice.key(key.as_bytes())) {
                Ok(source) => source,
                Err(Fault::Missing) => return Err(fault("is not in the checkpoint")),
                Err(other) => return Err(fault(&other.to_string())),
            };
            let same = source.dtype() == entry.dtype() && *source.shape() == region.shape();
            if !same || source.is_sliced() {
                return Err(fault("has another dtype or shape than the tensor gives it"));
            }
            n_elements += part.n_elements();
            sources.push((source, region));
        }
        if n_elements != wanted.n_elements() {
            let wanted = wanted.n_elements();
            return Err(Fault::Slices(format!("slices hold {n_elements} of {wanted} elements")));
        }
        Ok(sources)
    }
}

/// The copying of one entry's bytes from its file.
struct Transfer<'a> {
    checkpoint: &'a Checkpoint,
    key: &'a str,
    entry: &'a Entry,
    file: &'a File,
}

impl Transfer<'_> {
    /// Copies `part` of what is stored for region `stored` to its place in region `wanted`.
    fn run(&self, stored: &Region, wanted: &Region, part: Region, into: &mut [u8]) -> Result<()> {
        let width = self.entry.dtype().size();
        if part == *stored && wanted.is_run(&part) {
            let start = wanted.offset_of(&part) * width;
            return self.straight(&mut into[start..start + part.n_elements() * width]);
        }
        self.scattered(Runs::new(stored, wanted, part), width, into)
    }

    /// Reads all of the entry into one run of bytes.
    fn straight(&self, into: &mut [u8]) -> Result<()> {
        let mut crc = Crc::default();
        let mut offset = self.entry.offset;
        for chunk in into.chunks_mut(CHUNK_LEN) {
            self.read(chunk, offset)?;
            crc.update(chunk);
            offset += chunk.len() as u64;
        }
        self.check(crc)
    }

    /// Reads all of the entry, as its checksum demands, and copies the runs that are wanted.
    fn scattered(&self, mut runs: Runs<'_>, width: usize, into: &mut [u8]) -> Result<()> {
        let mut crc = Crc::default();
        let size = usize::try_from(self.entry.size).expect("a shape's bytes fit in memory");
        let mut buffer = vec![0; size.min(CHUNK_LEN)];
        let mut run = runs.next();
        let mut start = 0;
        while start < size {
            let chunk_len = (size - start).min(CHUNK_LEN);
            let chunk = &mut buffer[..chunk_len];
            self.read(chunk, self.entry.offset + start as u64)?;
            crc.update(chunk);
            let end = start + chunk.len();
            while let Some(current) = run {
                let (from, len) = (current.from * width, current.len * width);
                // A run may begin in one chunk and end in another.
                let (first, last) = (from.max(start), (from + len).min(end));
                if first < last {
                    let to = current.into * width + (first - from);
                    into[to..to + (last - first)]
                        .copy_from_slice(&chunk[first - start..last - start]);
                }
                if from + len > end {
                    break;
                }
                run = runs.next();
            }
            start = end;
        }
        self.check(crc)
    }

    fn read(&self, into: &mut [u8], offset: u64) -> Result<()> {
        self.file
            .read_exact_at(into, offset)
            .map_err(|source| Error::Shard { tensor: self.key.to_owned(), source })?;
        if let Some(headway) = &self.checkpoint.headway {
            headway.add(into.len() as u64);
        }
        Ok(())
    }

    fn check(&self, crc: Crc) -> Result<()> {
        if !crc.is(self.entry.crc) {
            let (expected, got) = (self.entry.crc, crc.masked());
            return Err(self.checkpoint.error(self.key, Fault::Checksum { expected, got }));
        }
        Ok(())
    }
}
