//! Replays the inputs that the fuzz targets in `fuzz/` found worth keeping.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may panic")]

use std::fs;

#[path = "../../../fuzz/harness.rs"]
mod harness;

#[track_caller]
fn replay(target: &str, run: fn(&[u8])) {
    let folder = format!("{}/../../testdata/fuzz/{target}", env!("CARGO_MANIFEST_DIR"));
    let mut n_inputs = 0;
    for entry in fs::read_dir(folder).unwrap() {
        run(&fs::read(entry.unwrap().path()).unwrap());
        n_inputs += 1;
    }
    assert!(n_inputs > 0, "the corpus is there");
}

#[test]
fn models_do_no_harm() {
    replay("saved_model", harness::saved_model);
}

#[test]
fn indexes_do_no_harm() {
    replay("index", harness::index);
}

#[test]
fn data_files_do_no_harm() {
    replay("data", harness::data);
}
