//! `cargo xtask zoo`: the full-size models of `tools/make_zoo.py`, compared with TensorFlow.

use std::path::Path;
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
    succeed(script("make_zoo.py").arg(&folder).args(models))?;
    let mut build = Command::new("cargo");
    succeed(build.args(["build", "--release", "--bin", "tensord"]).current_dir(root))?;
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into);
    let mut compare = script("compare.py");
    compare.arg(target.join("release").join("tensord")).arg(&folder);
    compare.args(models.iter().flat_map(|model| ["--model", model]));
    succeed(&mut compare)
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(())
}
