//! The book: every command in a `console` block of `README.md` and `docs/` runs as it stands there,
//! page by page, and prints what stands below it.
//!
//! A line that begins with `$ ` is a command; one that ends with `\` goes on in the next line. `…`
//! stands for what varies: a part of a line, or any number of lines if it is all of a line. A
//! command that ends with ` &` starts a server; the ports of the page are replaced by free ones.
//! `UPDATE_BOOK=1` writes what was printed in place of what is no longer true.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use servertest::Server;

use crate::support::root;

/// The sign for anything that varies.
const ANYTHING: &str = "…";

/// The line that ends the text of a file which a command writes (`<<'END'`).
const END_OF_FILE: &str = "END";

/// The pages of the book, and the one before it.
fn chapters() -> Vec<PathBuf> {
    let listed = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let is_text = |path: &PathBuf| path.extension().is_some_and(|end| end == "md");
    let mut pages: Vec<PathBuf> = listed.filter(is_text).collect();
    pages.push(root().join("README.md"));
    pages.sort();
    pages
}

/// A command of a page, and what the page says that it prints.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Example {
    command: String,
    printed: String,
    /// The lines of the page that hold what is printed.
    lines: std::ops::Range<usize>,
}

/// The examples of a page, in their order.
fn examples(text: &str) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    let (mut is_inside, mut goes_on, mut is_file) = (false, false, false);
    for (number, line) in text.lines().enumerate() {
        if is_file && let Some(last) = examples.last_mut() {
            last.command.push('\n');
            last.command.push_str(line);
            last.lines = number + 1..number + 1;
            is_file = line != END_OF_FILE;
        } else if line.starts_with("```") {
            is_inside = line == "```console";
        } else if is_inside && (goes_on || line.starts_with("$ ")) {
            let words = line.strip_prefix("$ ").filter(|_| !goes_on).unwrap_or(line.trim());
            let (words, more) = match words.strip_suffix('\\') {
                Some(words) => (words, true),
                None => (words, false),
            };
            let lines = number + 1..number + 1;
            match examples.last_mut().filter(|_| goes_on) {
                Some(last) => {
                    last.command.push_str(words);
                    last.lines = lines;
                }
                None => examples.push(Example {
                    command: words.to_owned(),
                    printed: String::new(),
                    lines,
                }),
            }
            goes_on = more;
            is_file = line.ends_with("<<'END'");
        } else if is_inside && let Some(last) = examples.last_mut() {
            last.printed.push_str(line);
            last.printed.push('\n');
            last.lines.end = number + 1;
        }
    }
    examples
}

/// Returns whether a text is what a page says, with its gaps filled by anything.
fn matches(expected: &str, text: &str) -> bool {
    let mut pattern = String::from(r"(?s)\A");
    for line in expected.lines() {
        if line.trim() == ANYTHING {
            pattern.push_str(r"(?:[^\n]*\n)*?");
            continue;
        }
        let parts: Vec<String> = line.trim_end().split(ANYTHING).map(regex::escape).collect();
        let _ = write!(pattern, r"{}[ \t]*\n", parts.join(r"[^\n]*?"));
    }
    pattern.push_str(r"\z");
    regex::Regex::new(&pattern).unwrap().is_match(text)
}

/// A page that is being followed: its folder, and the server that runs.
struct Reader {
    folder: tempfile::TempDir,
    server: Option<Server>,
}

impl Reader {
    /// A reader in a folder with the demo models, and the programs on the path.
    fn new() -> Reader {
        let folder = tempfile::tempdir().unwrap();
        symlink(root().join("models"), folder.path().join("models")).unwrap();
        let programs = folder.path().join("bin");
        fs::create_dir(&programs).unwrap();
        for program in
            [env!("CARGO_BIN_EXE_tensord"), env!("CARGO_BIN_EXE_tensorflow_model_server")]
        {
            let path = Path::new(program);
            symlink(path, programs.join(path.file_name().unwrap())).unwrap();
        }
        Reader { folder, server: None }
    }

    fn shell(&self, script: &str) -> Command {
        let path = format!(
            "{}:{}",
            self.folder.path().join("bin").display(),
            std::env::var("PATH").unwrap_or_default()
        );
        let mut shell = Command::new("sh");
        shell.args(["-c", script, "sh"]).current_dir(self.folder.path()).env("PATH", path);
        shell
    }

    /// Runs a command, and returns what it prints.
    fn run(&mut self, command: &str) -> String {
        if let Some(words) = command.strip_suffix(" &") {
            self.server = None;
            let is_setting = |word: &&str| word.contains('=') && !word.starts_with('-');
            let n_settings = words.split(' ').take_while(is_setting).count();
            let (settings, program): (Vec<_>, Vec<_>) =
                words.split(' ').enumerate().partition(|(number, _)| *number < n_settings);
            let join = |words: Vec<(usize, &str)>| {
                words.into_iter().map(|(_, word)| word).collect::<Vec<_>>().join(" ")
            };
            let script = format!("{} exec {} \"$@\"", join(settings), join(program));
            self.server = Some(Server::start(self.shell(&script), &[]));
            return String::new();
        }
        let output = self.shell(&self.with_ports(command)).output().unwrap();
        let mut text = [output.stdout, output.stderr].concat();
        if text.last().is_some_and(|last| *last != b'\n') {
            text.push(b'\n'); // REST answers end without one.
        }
        self.without_ports(&String::from_utf8_lossy(&text))
    }

    /// The ports that pages name, and those that their servers have.
    fn ports(&self) -> Vec<(&'static str, String)> {
        let Some(server) = &self.server else { return Vec::new() };
        let own = [server.grpc, server.rest, server.management()].map(|port| format!(":{port}"));
        [":8500", ":8501", ":8502"].into_iter().zip(own).collect()
    }

    fn with_ports(&self, text: &str) -> String {
        self.ports().iter().fold(text.to_owned(), |text, (named, own)| text.replace(named, own))
    }

    fn without_ports(&self, text: &str) -> String {
        self.ports().iter().fold(text.to_owned(), |text, (named, own)| text.replace(own, named))
    }
}

#[test]
fn every_example_of_the_book_prints_what_the_book_says() {
    let is_update = std::env::var_os("UPDATE_BOOK").is_some();
    let (mut n_examples, mut wrong) = (0, Vec::new());
    for path in chapters() {
        let text = fs::read_to_string(&path).unwrap();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let mut reader = Reader::new();
        let mut changes = Vec::new();
        for example in examples(&text) {
            n_examples += 1;
            let printed = reader.run(&example.command);
            if !matches(&example.printed, &printed) {
                let page = path.file_name().unwrap().to_string_lossy().into_owned();
                wrong.push(format!("{page}: $ {}\n{printed}", example.command));
                changes.push((example.lines, printed));
            }
        }
        if is_update && !changes.is_empty() {
            for (range, printed) in changes.into_iter().rev() {
                lines.splice(range, printed.lines().map(str::to_owned));
            }
            fs::write(&path, lines.join("\n") + "\n").unwrap();
        }
    }
    assert!(is_update || wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(n_examples > 20, "only {n_examples} examples");
}

#[test]
fn examples_are_found_with_what_they_print() {
    let text = "text\n```console\n$ a \\\n    b\none\n$ c\n```\n```sh\n$ no\n```\n";
    let example = |command: &str, printed: &str, lines| Example {
        command: command.to_owned(),
        printed: printed.to_owned(),
        lines,
    };
    assert_eq!(examples(text), [example("a b", "one\n", 4..5), example("c", "", 6..6)]);
}

#[test]
fn what_varies_is_left_out_and_nothing_else() {
    assert!(matches("a … b\n", "a 12 KiB b\n"));
    assert!(!matches("a … b\n", "a 12 KiB c\n"));
    assert!(!matches("a … b\n", "a\nb\n"));
    assert!(matches("a\n…\nz\n", "a\nb\nc\nz\n"));
    assert!(matches("a\n…\n", "a\n"));
    assert!(!matches("a\n", "a\nb\n"));
}
