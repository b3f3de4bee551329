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
    ("book", book),
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
    ensure_tool(root, &["cargo", "nextest", "--version"], &["cargo-nextest"])?;
    cargo(root, &["nextest", "run", "--workspace"])
}

/// Builds the book of `docs/`. Whatever mdBook warns of is a failure.
fn book(root: &Path) -> Result<()> {
    ensure_tool(root, &["mdbook", "--version"], &["mdbook", "--no-default-features"])?;
    let output = Command::new("mdbook")
        .args(["build", "."])
        .current_dir(root)
        .output()
        .context("cannot start mdbook")?;
    let text = String::from_utf8_lossy(&output.stderr);
    print!("{text}");
    if !output.status.success() || text.contains("WARN") || text.contains("ERROR") {
        bail!("the book does not build cleanly");
    }
    Ok(())
}

/// Installs a tool from its crate, unless the command that asks for its version works.
fn ensure_tool(root: &Path, version: &[&str], package: &[&str]) -> Result<()> {
    let [program, arguments @ ..] = version else { bail!("no program is named") };
    let known = Command::new(program).args(arguments).output();
    if known.is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    println!("installing {}, which this machine lacks", package[0]);
    cargo(root, &[&["install", "--locked"], package].concat())
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
