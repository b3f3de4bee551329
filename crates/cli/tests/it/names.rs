//! The two names of the program, and how the second finds the first.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

const TENSORD: &str = env!("CARGO_BIN_EXE_tensord");
const MODEL_SERVER: &str = env!("CARGO_BIN_EXE_tensorflow_model_server");

/// The answer to `--version` of a program that finds others below `path` alone.
fn version(program: &Path, path: &Path) -> Output {
    Command::new(program).arg("--version").env("PATH", path).output().unwrap()
}

#[track_caller]
fn check_is_model_server(output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("TensorFlow ModelServer: "), "{output:?}");
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn the_second_name_starts_the_program_beside_it() {
    check_is_model_server(&version(Path::new(MODEL_SERVER), Path::new("/nowhere")));
    let own = version(Path::new(TENSORD), Path::new("/nowhere"));
    assert!(String::from_utf8_lossy(&own.stdout).starts_with("tensord "), "{own:?}");
}

#[test]
fn the_second_name_finds_the_program_on_the_path() {
    let (alone, bin) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let program = alone.path().join("tensorflow_model_server");
    std::fs::copy(MODEL_SERVER, &program).unwrap();
    symlink(TENSORD, bin.path().join("tensord")).unwrap();
    check_is_model_server(&version(&program, bin.path()));
}

#[test]
fn the_second_name_alone_says_what_it_looked_for() {
    let alone = tempfile::tempdir().unwrap();
    let program = alone.path().join("tensorflow_model_server");
    std::fs::copy(MODEL_SERVER, &program).unwrap();
    let output = version(&program, Path::new("/nowhere"));
    assert_eq!(output.status.code(), Some(255), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("starts tensord"), "{text}");
    assert!(text.contains(&*alone.path().join("tensord").to_string_lossy()), "{text}");
}

#[test]
fn a_link_of_the_second_name_is_enough() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("tensorflow_model_server");
    symlink(TENSORD, &link).unwrap();
    check_is_model_server(&version(&link, Path::new("/nowhere")));
}
