//! `cargo xtask fuzz`: runs the targets of `fuzz/` under libFuzzer, one after another.
//!
//! The targets need neither a nightly compiler nor cargo-fuzz: coverage comes from flags of the
//! stable compiler, and `RUSTC_BOOTSTRAP` lets it take those that it might call unstable. Below
//! `target/fuzz`, new inputs are kept in `corpus/<target>`, failing ones in `artifacts/<target>`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// The time that each target runs unless `--seconds` says otherwise.
const SECONDS: u64 = 180;

/// The most memory that a target may take, the longest input, and the longest time for one input.
const RSS_LIMIT_MB: u32 = 2048;
const LEN_MAX: u32 = 64 << 10;
const INPUT_SECONDS_MAX: u32 = 20;

/// The folder of files in memory.
const MEMORY_FILES: &str = "/dev/shm";

/// The flags that make the compiler count the edges that are taken, as cargo-fuzz does.
const RUSTFLAGS: &[&str] = &[
    "--cfg fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Ccodegen-units=1",
];

/// Runs the targets that the arguments name, or all of them, and prints a table. Fails if one of
/// them crashes, hangs or takes too much memory.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let all = targets(root)?;
    let Wanted { names, seconds } = Wanted::parse(arguments, &all)?;
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let folder = target.join("fuzz");
    let programs = build(root, &folder, &names)?;
    let mut rows = Vec::new();
    for name in &names {
        println!("fuzz: {name}, {seconds} s");
        let seeds = root.join("testdata/fuzz").join(name);
        let run = Run { program: programs.join(name), seeds, seconds };
        rows.push((name.as_str(), run.fuzz(&folder, name)?));
    }
    println!("\n{}", table(&rows));
    let failed: Vec<&str> =
        rows.iter().filter(|(_, row)| row.failure.is_some()).map(|(name, _)| *name).collect();
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

/// The targets and the time that the arguments ask for.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    names: Vec<String>,
    seconds: u64,
}

impl Wanted {
    fn parse(arguments: &[String], all: &[String]) -> Result<Self> {
        let mut wanted = Self { names: Vec::new(), seconds: SECONDS };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            if argument == "--seconds" {
                let value = rest.next().context("--seconds: expected a number behind it")?;
                wanted.seconds = value
                    .parse()
                    .with_context(|| format!("--seconds {value}: expected a number"))?;
            } else if all.contains(argument) {
                wanted.names.push(argument.clone());
            } else {
                bail!("{argument}: no such target; there are {}", all.join(", "));
            }
        }
        if wanted.names.is_empty() {
            wanted.names = all.to_vec();
        }
        Ok(wanted)
    }
}

/// The names of all targets: those of the files in `fuzz/fuzz_targets`.
fn targets(root: &Path) -> Result<Vec<String>> {
    let folder = root.join("fuzz/fuzz_targets");
    let entries =
        fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        let path = entry?.path();
        names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
    }
    names.sort();
    Ok(names)
}

/// Builds the targets in a folder. Gives the folder below it that their programs are in.
fn build(root: &Path, folder: &Path, names: &[String]) -> Result<PathBuf> {
    let host = host()?;
    let mut cargo = Command::new("cargo");
    // With `--target`, the flags are not those of build scripts.
    cargo.args(["build", "--release", "--target", &host, "--manifest-path"]);
    cargo.arg(root.join("fuzz/Cargo.toml")).arg("--target-dir").arg(folder);
    cargo.args(names.iter().flat_map(|name| ["--bin", name]));
    cargo.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", RUSTFLAGS.join(" "));
    let status = cargo.status().context("cannot start cargo")?;
    ensure!(status.success(), "the targets cannot be built");
    Ok(folder.join(host).join("release"))
}

/// The platform of the compiler, such as `x86_64-unknown-linux-gnu`.
fn host() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("cannot start rustc")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV: expected a line with the host")?.to_owned())
}

/// A run of one target.
struct Run {
    program: PathBuf,
    /// The folder of the inputs that are committed.
    seeds: PathBuf,
    seconds: u64,
}

impl Run {
    /// Runs a target. New inputs and its log lie below a folder.
    fn fuzz(&self, folder: &Path, name: &str) -> Result<Row> {
        let (corpus, artifacts) = (folder.join("corpus").join(name), folder.join("artifacts"));
        let failing = artifacts.join(name);
        for made in [&corpus, &failing] {
            fs::create_dir_all(made).with_context(|| format!("cannot make {}", made.display()))?;
        }
        let log = artifacts.join(format!("{name}.log"));
        let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut fuzzer = Command::new(&self.program);
        fuzzer.arg(&corpus).arg(&self.seeds).args([
            format!("-max_total_time={}", self.seconds),
            format!("-rss_limit_mb={RSS_LIMIT_MB}"),
            format!("-max_len={LEN_MAX}"),
            format!("-timeout={INPUT_SECONDS_MAX}"),
            format!("-artifact_prefix={}/", failing.display()),
            "-print_final_stats=1".to_owned(),
        ]);
        // Some targets read files, which are fastest in memory.
        if Path::new(MEMORY_FILES).is_dir() {
            fuzzer.env("TMPDIR", MEMORY_FILES);
        }
        let status = fuzzer.stdout(file.try_clone()?).stderr(file).status();
        let status = status.with_context(|| format!("cannot start {}", self.program.display()))?;
        let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
        let is_ok = status.success();
        if !is_ok {
            println!("{}", tail(&text));
        }
        Ok(Row { failure: (!is_ok).then(|| log.display().to_string()), ..Row::read(&text) })
    }
}

/// The figures that libFuzzer prints of a target at its end.
#[derive(Debug, Default, PartialEq, Eq)]
struct Row {
    runs: u64,
    /// The edges that were taken.
    covered: u64,
    peak_mb: u64,
    /// The log of a run that failed.
    failure: Option<String>,
}

impl Row {
    fn read(log: &str) -> Self {
        let number = |text: &str| text.split_whitespace().next().and_then(|word| word.parse().ok());
        let last = |key: &str| log.rsplit_once(key).and_then(|(_, behind)| number(behind));
        Self {
            runs: last("stat::number_of_executed_units:").unwrap_or(0),
            covered: last(" cov:").unwrap_or(0),
            peak_mb: last("stat::peak_rss_mb:").unwrap_or(0),
            failure: None,
        }
    }
}

fn table(rows: &[(&str, Row)]) -> String {
    let mut text = format!("{:<14} {:>10} {:>8} {:>8}  result", "target", "runs", "edges", "MB");
    for (name, Row { runs, covered, peak_mb, failure }) in rows {
        let result = match failure {
            None => "ok".to_owned(),
            Some(log) => format!("FAILED, see {log}"),
        };
        text += &format!("\n{name:<14} {runs:>10} {covered:>8} {peak_mb:>8}  {result}");
    }
    text
}

/// The last lines of a log.
fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The inputs that a target starts from at least.
    const SEEDS_MIN: usize = 4;

    fn wanted(arguments: &[&str]) -> Result<Wanted> {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let all: Vec<String> = owned(&["index", "regex"]);
        let arguments: Vec<String> = owned(arguments);
        Wanted::parse(&arguments, &all)
    }

    #[test]
    fn all_targets_run_unless_some_are_named() {
        let all = wanted(&[]).unwrap();
        assert_eq!((all.names.join(" "), all.seconds), ("index regex".to_owned(), SECONDS));
        let some = wanted(&["regex", "--seconds", "5"]).unwrap();
        assert_eq!((some.names.join(" "), some.seconds), ("regex".to_owned(), 5));
    }

    #[test]
    fn wrong_arguments_are_told() {
        let told = |arguments: &[&str]| wanted(arguments).unwrap_err().to_string();
        assert_eq!(told(&["regexp"]), "regexp: no such target; there are index, regex");
        assert_eq!(told(&["--seconds"]), "--seconds: expected a number behind it");
        assert_eq!(told(&["--seconds", "x"]), "--seconds x: expected a number");
    }

    #[test]
    fn every_target_has_inputs_that_tests_replay() {
        let root = crate::root();
        let names = targets(root).unwrap();
        assert!(names.len() >= 12, "{names:?}");
        for name in names {
            let folder = root.join("testdata/fuzz").join(&name);
            let n_inputs = fs::read_dir(&folder).map_or(0, Iterator::count);
            assert!(n_inputs >= SEEDS_MIN, "{name} has {n_inputs} inputs");
        }
    }

    /// Nobody builds `fuzz/` but `cargo xtask fuzz`, so this keeps a target from being lost: the
    /// workspace has the function that it calls, and a test that gives it the inputs.
    #[test]
    fn every_target_is_listed_and_calls_a_function_that_a_test_replays() {
        let root = crate::root();
        let read = |path: &str| fs::read_to_string(root.join(path)).expect(path);
        let manifest = read("fuzz/Cargo.toml");
        for name in targets(root).unwrap() {
            let listed = format!("name = \"{name}\"\npath = \"fuzz_targets/{name}.rs\"\n");
            assert!(manifest.contains(&listed), "fuzz/Cargo.toml lists no {name}");
            let target = read(&format!("fuzz/fuzz_targets/{name}.rs"));
            let called = format!("::fuzz::{name}(");
            let before = target.split_once(&called).expect(&name).0;
            let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let krate = before.rsplit(|c| !word(c)).next().expect(&name);
            let needs = format!("\n{krate} = {{ path = \"../crates/{krate}\" }}\n");
            assert!(manifest.contains(&needs), "fuzz/Cargo.toml does not need {krate}");
            let entries = read(&format!("crates/{krate}/src/fuzz.rs"));
            assert!(entries.contains(&format!("pub fn {name}(bytes: &[u8]")), "{krate}: {name}");
            let replayed = format!("replay::replay(\"{name}\",");
            assert!(entries.contains(&replayed), "no test of {krate} replays {name}");
        }
        let n_listed = manifest.matches("[[bin]]").count();
        assert_eq!(n_listed, targets(root).unwrap().len(), "targets that have no file");
    }

    #[test]
    fn the_last_figures_of_a_log_count() {
        let log = "#2 INITED cov: 10 ft: 11 corp: 1/1b\n#9 DONE   cov: 25 ft: 40 corp: 3/9b\n\
                   stat::number_of_executed_units: 1234\nstat::peak_rss_mb:              56\n";
        let row = Row::read(log);
        assert_eq!((row.runs, row.covered, row.peak_mb), (1234, 25, 56));
        let shown = table(&[("regex", row)]);
        assert!(shown.contains("1234") && shown.ends_with("ok"), "{shown}");
    }
}
