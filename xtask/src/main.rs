//! The chores of the workspace: `cargo xtask ci`, and `tidy`, `venv` and `zoo`.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a command-line tool talks on its standard output")]

mod ci;
mod tidy;
mod venv;
mod zoo;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};

const USAGE: &str = "\
Usage: cargo xtask <chore>

  ci      format, clippy, tidy, tests, doc tests and docs: what must pass before a change lands
  tidy    the house rules that neither rustfmt nor clippy knows
  venv    makes the Python environment of the real-client tests, once; prints its interpreter
  zoo     makes full-size models of every kind (several GB, once) and compares them with TensorFlow;
          `cargo xtask zoo resnet50 lstm` takes only some";

fn main() -> ExitCode {
    let chore = std::env::args().nth(1).unwrap_or_default();
    let rest: Vec<String> = std::env::args().skip(2).collect();
    match run(&chore, &rest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask {chore}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(chore: &str, rest: &[String]) -> Result<()> {
    match chore {
        "ci" => ci::run(root()),
        "tidy" => tidy::run(root()),
        "venv" => venv::ensure().map(|python| println!("{}", python.display())),
        "zoo" => zoo::run(root(), rest),
        "" | "help" | "--help" | "-h" => {
            println!("{USAGE}");
            Ok(())
        }
        _ => bail!("no such chore\n{USAGE}"),
    }
}

/// The workspace's root folder.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies below the root")
}

/// Where this user's caches lie: `$XDG_CACHE_HOME`, else `~/.cache`.
fn user_cache() -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os("XDG_CACHE_HOME").filter(|folder| !folder.is_empty()) {
        return Ok(folder.into());
    }
    match std::env::home_dir() {
        Some(home) => Ok(home.join(".cache")),
        None => bail!("neither XDG_CACHE_HOME nor HOME is set"),
    }
}
