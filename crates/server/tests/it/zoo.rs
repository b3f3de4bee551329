//! Models of every common kind, in small, give what TensorFlow gives.
//!
//! The models and TensorFlow's answers are made once, by `tools/make_zoo.py`, in the user's cache
//! folder: some two minutes. They are made again only when the scripts that make them change.

use std::path::PathBuf;
use std::process::Command;

use crate::support::{cache, python, root};

/// The folder of the small models; makes them if they are not there.
pub(crate) fn small_zoo() -> PathBuf {
    let folder = cache().join("zoo-small");
    let mut make = python();
    make.arg(root().join("tools/make_zoo.py")).arg("--small").arg(&folder);
    succeed(&mut make);
    folder
}

#[test]
fn small_models_of_every_kind_equal_tensorflow_in_batches_of_one_three_and_eight() {
    let zoo = small_zoo();
    let mut compare = python();
    compare.arg(root().join("tools/compare.py")).arg(env!("CARGO_BIN_EXE_tensord")).arg(zoo);
    let table = compare.output().unwrap();
    let table = String::from_utf8_lossy(&table.stdout);
    let rows = |verdict: &str| table.lines().filter(|line| line.starts_with(verdict)).count();
    assert_eq!(rows("FAILED"), 0, "{table}");
    assert!(rows("ok ") >= 40, "too few signatures were compared:\n{table}");
}

/// Runs a command to its end, and gives its output.
fn succeed(command: &mut Command) -> String {
    let run = command.output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(run.status.success(), "{command:?}:\n{}{}", text(&run.stdout), text(&run.stderr));
    text(&run.stdout)
}
