//! Entry points of the fuzz targets in `fuzz/`: files of a SavedModel that may hold anything.
//!
//! There is nothing to compare with: a target fails if reading panics, hangs or takes all memory.

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

use std::fs;
use std::path::Path;

use storage::Storage;

use crate::{Checkpoint, SavedModel, Warmup};

/// The most bytes of a variable that are read: the index may say any number.
const VARIABLE_BYTES_MAX: usize = 64 << 20;

/// Reads a `saved_model.pb`.
pub fn saved_model(bytes: &[u8]) {
    let dir = folder(&[("saved_model.pb", bytes)]);
    let storage = open(dir.path());
    for tags in [&["serve"][..], &[]] {
        if let Ok(model) = SavedModel::open(&storage, tags) {
            drop(model.restore());
        }
    }
}

/// Reads a `variables.index` beside a kilobyte of data.
pub fn index(bytes: &[u8]) {
    let data = [7; 1024];
    read_all(&[("variables.index", bytes), ("variables.data-00000-of-00001", &data)]);
}

/// Reads a data file beside the index of a variable of every dtype.
pub fn data(bytes: &[u8]) {
    const INDEX: &[u8] =
        include_bytes!("../../../testdata/models/dtypes/1/variables/variables.index");
    read_all(&[("variables.index", INDEX), ("variables.data-00000-of-00001", bytes)]);
}

/// Reads a file of warm-up requests.
pub fn warmup(bytes: &[u8]) {
    let dir = folder(&[("assets.extra/tf_serving_warmup_requests", bytes)]);
    if let Ok(Some(records)) = Warmup::open(&open(dir.path())) {
        records.for_each(drop);
    }
}

fn read_all(files: &[(&str, &[u8])]) {
    let dir = folder(files);
    let Ok(checkpoint) = Checkpoint::open(&open(dir.path()), "variables") else { return };
    for (key, entry) in checkpoint.entries() {
        drop(checkpoint.read_strings(key));
        let Ok(shape) = checkpoint.shape(key, None) else { continue };
        let n_bytes = shape.n_elements().saturating_mul(entry.dtype().size());
        if n_bytes <= VARIABLE_BYTES_MAX {
            drop(checkpoint.read_into(key, None, &mut vec![0; n_bytes]));
        }
    }
}

/// A temporary folder with these files.
fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a temporary folder");
    for (name, bytes) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().expect("it is in a folder")).expect("a writable folder");
        fs::write(path, bytes).expect("a writable folder");
    }
    dir
}

fn open(dir: &Path) -> Storage {
    storage::open(dir.to_str().expect("a plain path")).expect("a temporary folder")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_do_no_harm() {
        replay::replay("saved_model", saved_model);
    }

    #[test]
    fn indexes_do_no_harm() {
        replay::replay("index", index);
    }

    #[test]
    fn data_files_do_no_harm() {
        replay::replay("data", data);
    }

    #[test]
    fn warm_up_files_do_no_harm() {
        replay::replay("warmup", warmup);
    }
}
