//! `cargo xtask ci`: everything that must pass before a change lands, step by step.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::{tidy, venv};

/// One step: what it is called, and what it does in the root folder.
type Step = (&'static str, fn(&Path) -> Result<()>);

const STEPS: &[Step] = &[
    ("format", |root| cargo(root, &["fmt", "--all", "--check"])),
    ("clippy", |root| {
        cargo(root, &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])
    }),
    ("tidy", tidy::run),
    ("docs", docs),
    ("doc tests", |root| cargo(root, &["test", "--workspace", "--doc"])),
    ("venv", |_| venv::ensure().map(drop)),
    // Last, so that its summary is what a reader sees first.
    ("tests", tests),
];

/// Runs all steps in order, and stops at the first that fails.
pub(crate) fn run(root: &Path) -> Result<()> {
    let mut times = Vec::new();
    for (name, step) in STEPS {
        println!("\n── {name}");
        let start = Instant::now();
        let outcome = step(root);
        times.push((*name, start.elapsed(), outcome.is_ok()));
        if let Err(error) = outcome {
            report(&times);
            return Err(error.context(format!("step `{name}` failed")));
        }
    }
    report(&times);
    Ok(())
}

fn report(times: &[(&str, Duration, bool)]) {
    println!("\n── summary");
    for (name, time, passed) in times {
        let mark = if *passed { "ok" } else { "FAILED" };
        println!("{name:<10} {:>7.1} s  {mark}", time.as_secs_f64());
    }
}

fn tests(root: &Path) -> Result<()> {
    let known = Command::new("cargo").args(["nextest", "--version"]).output();
    if !known.is_ok_and(|output| output.status.success()) {
        println!("installing cargo-nextest, which this machine lacks");
        cargo(root, &["install", "--locked", "cargo-nextest"])?;
    }
    cargo(root, &["nextest", "run", "--workspace"])
}

fn docs(root: &Path) -> Result<()> {
    let mut command = Command::new("cargo");
    command.args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings");
    succeed(command.current_dir(root))
}

fn cargo(root: &Path, arguments: &[&str]) -> Result<()> {
    succeed(Command::new("cargo").args(arguments).current_dir(root))
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(())
}
