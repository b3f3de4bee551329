//! `cargo xtask zoo`: the full-size models of `tools/zoo/make.py`, compared with TensorFlow.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::venv;

/// Makes the models that are not there yet (several GB in the user's cache folder), builds the
/// release binary, and compares its answers with TensorFlow's. `models` are some of them, or all if
/// it is empty.
pub(crate) fn run(root: &Path, models: &[String]) -> Result<()> {
    let python = venv::ensure()?;
    let folder = crate::user_cache()?.join("tensord").join("zoo-full");
    let script = |name: &str| {
        let mut command = Command::new(&python);
        command.arg(root.join("tools").join(name));
        command
    };
    succeed(script("zoo/make.py").arg(&folder).args(models))?;
    let mut compare = script("zoo/compare.py");
    compare.arg(release_binary(root)?).arg(&folder);
    compare.args(models.iter().flat_map(|model| ["--model", model]));
    succeed(&mut compare)
}

/// Builds `tensord` as it is released, and returns where it is.
pub(crate) fn release_binary(root: &Path) -> Result<PathBuf> {
    let mut build = Command::new("cargo");
    succeed(build.args(["build", "--release", "--bin", "tensord"]).current_dir(root))?;
    Ok(crate::target_folder().join("release").join("tensord"))
}

/// Runs a command; fails unless it succeeds.
pub(crate) fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(())
}
