//! The Python environment of the tests that use TensorFlow's own clients.
//!
//! It lies in the user's cache folder, so that every checkout shares one. A stamp with the
//! requirements makes a second call free.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Packages that are installed together with their dependencies.
const WITH_DEPENDENCIES: &[&str] = &["tensorflow-cpu==2.21.0", "scikit-learn"];

/// Packages that would pull in a second TensorFlow or another protobuf if they could.
const WITHOUT_DEPENDENCIES: &[&str] = &[
    "tensorflow-serving-api==2.21.0",
    "tensorflow-text==2.21.1",
    "tf_keras==2.21.0",
    "ovmsclient==2023.1",
];

/// Makes the environment unless it is there already, and returns its interpreter.
///
/// The first call downloads some 300 MB.
pub(crate) fn ensure() -> Result<PathBuf> {
    let folder = crate::user_cache()?.join("tensord").join("venv");
    let python = folder.join("bin").join("python");
    let stamp = folder.join("tensord-requirements.txt");
    let wanted = [WITH_DEPENDENCIES, WITHOUT_DEPENDENCIES].concat().join("\n");
    if python.exists() && fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return Ok(python);
    }
    if !python.exists() {
        println!("venv: making {}", folder.display());
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
    }
    pip(&python, &[], WITH_DEPENDENCIES)?;
    pip(&python, &["--no-deps"], WITHOUT_DEPENDENCIES)?;
    fs::write(&stamp, wanted).with_context(|| format!("cannot write {}", stamp.display()))?;
    Ok(python)
}

fn pip(python: &Path, options: &[&str], packages: &[&str]) -> Result<()> {
    println!("venv: installing {}", packages.join(" "));
    let quiet = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    run(Command::new(python).args(quiet).args(options).args(packages))
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    if !status.success() {
        bail!("{command:?} failed: {status}");
    }
    Ok(())
}
