//! The Python tools: each compiles, and says what it is without TensorFlow.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Started by `tools/zoo/verdict.py` alone. Its text is part of the stamp of every converted model,
/// so that a change of it converts all of them anew.
const NO_COMMAND: &str = "tools/zoo/answers.py";

/// All Python files below a folder.
fn scripts(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the tools are there");
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.expect("it is listed").path()).collect();
    paths.sort();
    let (folders, files): (Vec<_>, Vec<_>) = paths.into_iter().partition(|path| path.is_dir());
    let own = files.into_iter().filter(|path| path.extension().is_some_and(|end| end == "py"));
    own.chain(folders.iter().flat_map(|folder| scripts(folder))).collect()
}

/// Runs Python without installed packages, and gives what it said if it failed.
fn python(arguments: &[&str]) -> Result<(), String> {
    let mut command = Command::new("python3");
    // No environment is found there, and nothing is written beside the sources.
    command.env("XDG_CACHE_HOME", "/nonexistent").env("PYTHONDONTWRITEBYTECODE", "1");
    let output = command.arg("-S").args(arguments).output().expect("python3 starts");
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

#[test]
fn every_script_compiles() {
    let compile = "import sys\nfor name in sys.argv[1:]: compile(open(name).read(), name, 'exec')";
    let paths = scripts(&crate::root().join("tools"));
    assert!(paths.len() > 50, "{} scripts", paths.len());
    let names = paths.iter().map(|path| path.to_str().expect("our names are plain"));
    let arguments: Vec<&str> = ["-c", compile].into_iter().chain(names).collect();
    assert_eq!(python(&arguments), Ok(()));
}

#[test]
fn every_tool_says_what_it_is_without_tensorflow() {
    let mut failures = Vec::new();
    for path in scripts(&crate::root().join("tools")) {
        let is_tool = fs::read_to_string(&path).expect("it is text").contains("\"__main__\"");
        let name = path.to_str().expect("our names are plain");
        if is_tool
            && !name.ends_with(NO_COMMAND)
            && let Err(error) = python(&[name, "--help"])
        {
            failures.push(format!("{name}: {error}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
