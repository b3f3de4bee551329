//! The small zoo: tiny models of every kind with TensorFlow's answers beside them.
//!
//! They are made once, by `tools/zoo/make.py`, in the user's cache folder: some two minutes. They
//! are made again only when the scripts that make them change.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of the small models; makes them if they are not there. Calls of several processes
/// wait for each other.
///
/// # Panics
/// If they are not there and cannot be made.
pub fn small_zoo() -> PathBuf {
    let folder = cache().join("zoo-small");
    let mut make = python();
    succeed(make.arg(root().join("tools/zoo/make.py")).arg("--small").arg(&folder));
    folder
}

/// `tools/zoo/real.py`, without arguments yet. Downloads and converts the small models that other
/// people published, if they are not there.
///
/// # Panics
/// If they are not there and cannot be made.
pub fn small_real() -> Command {
    let script = || {
        let mut command = python();
        command.arg(root().join("tools/zoo/real.py"));
        command
    };
    succeed(script().args(["--make", "--small"]));
    script()
}

fn succeed(command: &mut Command) {
    let done = command.output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(done.status.success(), "{command:?}:\n{}{}", text(&done.stdout), text(&done.stderr));
}

/// Our folder below the user's cache folder.
///
/// # Panics
/// If the user has none.
pub fn cache() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    cache.or_else(home).expect("a cache folder").join("tensord")
}

/// The Python of the environment that `cargo xtask venv` makes.
///
/// # Panics
/// If it is not there.
pub fn python() -> Command {
    let python = cache().join("venv/bin/python");
    assert!(python.is_file(), "{} is not there: run `cargo xtask venv`", python.display());
    let mut command = Command::new(python);
    command.env("TF_CPP_MIN_LOG_LEVEL", "2").env("CUDA_VISIBLE_DEVICES", "");
    command
}

/// The project's folder.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
