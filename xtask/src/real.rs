//! `cargo xtask real`: models that other people published, compared with TensorFlow and timed.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::venv;
use crate::zoo::{release_binary, succeed};

/// Downloads and converts what is not there yet (the user's cache folder), builds the release
/// binary, and lets `tools/zoo/real.py` compare and measure. `arguments` are that script's: names
/// of models, `--small`, `--no-speed`, `--markdown FILE`.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let mut script = script(root)?;
    succeed(script.arg(release_binary(root)?).args(arguments))
}

/// Downloads and converts the small models, which the tests compare.
pub(crate) fn make_small(root: &Path) -> Result<()> {
    succeed(script(root)?.args(["--make", "--small"]))
}

fn script(root: &Path) -> Result<Command> {
    let mut command = Command::new(venv::ensure()?);
    command.arg(root.join("tools").join("zoo").join("real.py"));
    Ok(command)
}
