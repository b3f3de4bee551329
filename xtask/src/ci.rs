//! `cargo xtask ci`: everything that must pass before a change lands, step by step.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::{disk, real, tidy, venv};

/// One step: what it is called, and what it does in the root folder.
type Step = (&'static str, fn(&Path) -> Result<()>);

const STEPS: &[Step] = &[
    ("disk", |_| disk::check(crate::target_folder(), crate::user_cache()?.join("tensord"))),
    ("format", |root| cargo(root, &["fmt", "--all", "--check"])),
    ("clippy", |root| {
        cargo(root, &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])
    }),
    ("tidy", |root| tidy::run(root, tidy::Lists::Counted)),
    ("docs", docs),
    ("doc tests", |root| cargo(root, &["test", "--workspace", "--doc"])),
    ("venv", |_| venv::ensure().map(drop)),
    // Before the tests, which then need no network for them.
    ("models", real::make_small),
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
    let mut command = cargo_command(root);
    command.args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings");
    succeed(&mut command)
}

fn cargo(root: &Path, arguments: &[&str]) -> Result<()> {
    succeed(cargo_command(root).args(arguments))
}

/// Cargo in the root folder. Where `CI` is set nothing is built twice, so that incremental files
/// would only fill the disk.
fn cargo_command(root: &Path) -> Command {
    let mut command = Command::new("cargo");
    command.current_dir(root);
    if std::env::var_os("CI").is_some() {
        command.env("CARGO_INCREMENTAL", "0");
    }
    command
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(())
}
