//! What is done with a file that may hold anything: it is read, as far as it goes. The fuzz targets
//! and the test that replays `testdata/fuzz/` share it. There is nothing to compare with: what
//! counts is that nothing panics, hangs or takes all memory.

use std::fs;
use std::path::Path;

use savedmodel::{Checkpoint, SavedModel};

/// A `saved_model.pb`.
pub(crate) fn saved_model(bytes: &[u8]) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    write(dir.path(), "saved_model.pb", bytes);
    let storage = open(dir.path());
    for tags in [&["serve"][..], &[]] {
        if let Ok(model) = SavedModel::open(&storage, tags) {
            drop(model.restore());
        }
    }
}

/// A `variables.index`, beside a kilobyte of data.
pub(crate) fn index(bytes: &[u8]) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    write(dir.path(), "variables.index", bytes);
    write(dir.path(), "variables.data-00000-of-00001", &[7; 1024]);
    read_all(dir.path());
}

/// A data file, beside the index of a variable of every dtype.
pub(crate) fn data(bytes: &[u8]) {
    const INDEX: &[u8] = include_bytes!("../testdata/models/dtypes/1/variables/variables.index");
    let dir = tempfile::tempdir().expect("a temporary directory");
    write(dir.path(), "variables.index", INDEX);
    write(dir.path(), "variables.data-00000-of-00001", bytes);
    read_all(dir.path());
}

fn read_all(dir: &Path) {
    let Ok(checkpoint) = Checkpoint::open(&open(dir), "variables") else { return };
    for (key, entry) in checkpoint.entries() {
        drop(checkpoint.read_strings(key));
        if let Ok(shape) = checkpoint.shape(key, None) {
            let mut into = vec![0; shape.n_elements() * entry.dtype().size()];
            drop(checkpoint.read_into(key, None, &mut into));
        }
    }
}

fn write(dir: &Path, name: &str, bytes: &[u8]) {
    fs::write(dir.join(name), bytes).expect("a temporary file");
}

fn open(dir: &Path) -> storage::Storage {
    storage::open(dir.to_str().expect("a plain path")).expect("a temporary directory")
}
