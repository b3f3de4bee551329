//! NumPy archives: `.npz` files of named arrays, read and written.
//!
//! An archive is a zip of `.npy` members; a member is a magic, a header that is a Python
//! dictionary, and the elements. Strings are `S` arrays: fixed width, padded with NUL bytes.

mod header;
pub(crate) mod npy;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Read, Seek, Write};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use tensor::Tensor;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

/// The most bytes that one array of an archive may unfold to.
const ARRAY_BYTES_MAX: u64 = 8 << 30;

/// Reads all arrays of an archive.
pub fn read(path: &Path) -> Result<BTreeMap<String, Tensor>> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    read_from(file, path)
}

/// Reads all arrays of an archive that was opened. Errors name it by its path.
pub(crate) fn read_from(file: impl Read + Seek, path: &Path) -> Result<BTreeMap<String, Tensor>> {
    let mut archive = ZipArchive::new(file)
        .with_context(|| format!("{} is no NumPy archive (.npz)", path.display()))?;
    let mut arrays = BTreeMap::new();
    for number in 0..archive.len() {
        let member = archive.by_index(number)?;
        let name = member.name().trim_end_matches(".npy").to_owned();
        let mut bytes = Vec::new();
        member.take(ARRAY_BYTES_MAX).read_to_end(&mut bytes)?;
        ensure!((bytes.len() as u64) < ARRAY_BYTES_MAX, "array {name} is too large");
        let array = npy::decode(&bytes);
        let array = array.with_context(|| format!("array {name} of {}", path.display()))?;
        arrays.insert(name, array);
    }
    Ok(arrays)
}

/// Writes arrays to a new archive.
pub fn write(path: &Path, arrays: &BTreeMap<String, Tensor>) -> Result<()> {
    let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
    let mut archive = ZipWriter::new(BufWriter::new(file));
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    for (name, tensor) in arrays {
        archive.start_file(format!("{name}.npy"), options.large_file(true))?;
        archive.write_all(&npy::encode(tensor)?)?;
    }
    archive.finish()?.flush()?;
    Ok(())
}
