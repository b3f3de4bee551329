//! A model cannot do what it should not.

use std::fs;

use tensor::{Shape, Strings, Tensor};

use super::{fallback, predict, spec, with_tensorflow};
use crate::support::{Server, tensord};

fn path(path: &std::path::Path) -> Tensor {
    let strings: Strings = [path.to_string_lossy().as_bytes()].into_iter().collect();
    Tensor::from_strings(Shape::scalar(), strings).unwrap()
}

/// Whether a model can write a file and read one outside its folder.
fn try_files(flags: &[&str]) -> (bool, bool) {
    let folder = tempfile::tempdir().unwrap();
    let model = fallback().join("writer").to_string_lossy().into_owned();
    let args: Vec<&str> = flags.iter().copied().chain([model.as_str()]).collect();
    let server = Server::start(with_tensorflow(tensord()), &args);
    let written = folder.path().join("written");
    let read = folder.path().join("secret");
    fs::write(&read, "secret").unwrap();
    let write = predict(&server, spec("writer", ""), &[("path", path(&written))]);
    assert_eq!(write.is_ok(), written.exists());
    let read = predict(&server, spec("writer", "read"), &[("path", path(&read))]);
    (write.is_ok(), read.is_ok())
}

#[test]
fn a_model_writes_no_files_and_reads_only_its_own() {
    assert_eq!(try_files(&[]), (false, false));
}

#[test]
fn without_the_sandbox_a_model_is_free() {
    assert_eq!(try_files(&["--tensorflow_sandbox=false"]), (true, true));
}
