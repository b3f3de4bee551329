//! `tensord migrate`: reads how another server is started or configured, and prints how tensord is,
//! with notes on all that has no meaning here.

mod ovms;
mod tfs;
mod triton;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{ArgAction, Parser};
use proto::serving::model_server_config::Config;
use proto::serving::{ModelConfig, ModelConfigList, ModelServerConfig};
use serde::Serialize;
use server::say;

use crate::table::Perform;

/// Print the flags and the config of another server as ours
///
/// Takes a command line of TensorFlow Serving (`tensord migrate -- tensorflow_model_server
/// --port=8500 …`), a model repository or config.pbtxt of Triton, or a config.json of OpenVINO
/// Model Server. Notes on what has no meaning here go to standard error.
#[derive(Debug, Parser)]
#[command(rename_all = "snake_case")]
pub(crate) struct Migrate {
    /// A Triton repository or config.pbtxt, or an OpenVINO Model Server config.json
    #[arg(value_name = "PATH", required_unless_present = "command")]
    path: Option<String>,
    /// A command line of TensorFlow Serving, behind --
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
    /// Print JSON
    #[arg(long, action = ArgAction::SetTrue)]
    json: bool,
}

/// The same server as ours.
#[derive(Debug, Default, Serialize)]
struct Migrated {
    /// The command line.
    command: Vec<String>,
    /// The model config file as text proto; empty if none is needed.
    config: String,
    /// The batching parameters file as text proto; empty if none is needed.
    batching: String,
    notes: Vec<Note>,
}

/// A setting that has no meaning here, or another one.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Note {
    /// The file, or the command line.
    place: String,
    /// The line in the file from 1; 0 for a command line.
    line: usize,
    text: String,
}

impl Perform for Migrate {
    fn perform(self) -> Result<ExitCode> {
        let migrated = match &self.path {
            Some(path) => of_path(Path::new(path))?,
            None => tfs::migrate(&self.command)?,
        };
        if self.json {
            say!("{}", serde_json::to_string_pretty(&migrated)?);
        } else {
            migrated.print();
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Reads the config of another server, which its path tells.
fn of_path(path: &Path) -> Result<Migrated> {
    if path.is_dir() || path.extension().is_some_and(|ending| ending == "pbtxt") {
        return triton::migrate(path);
    }
    if path.extension().is_some_and(|ending| ending == "json") {
        return ovms::migrate(path);
    }
    if !path.exists() {
        bail!("{} is not there", path.display());
    }
    bail!(
        "{}: expected a folder or a config.pbtxt of Triton, or a config.json of OpenVINO Model \
         Server; a command line of TensorFlow Serving goes behind `--`",
        path.display()
    )
}

impl Migrated {
    /// Prints the files that are needed, then the command.
    fn print(&self) {
        for (name, text) in [("models.config", &self.config), ("batching.config", &self.batching)] {
            if !text.is_empty() {
                say!("# {name}\n{}\n", text.trim_end());
            }
        }
        let words: Vec<String> = self.command.iter().map(|word| shell_word(word)).collect();
        say!("{}", words.join(" \\\n  "));
        for note in &self.notes {
            eprintln!("note: {}", note.line());
        }
    }

    fn note(&mut self, place: &str, line: usize, text: impl Into<String>) {
        self.notes.push(Note { place: place.to_owned(), line, text: text.into() });
    }
}

impl Note {
    fn line(&self) -> String {
        match self.line {
            0 => format!("{}: {}", self.place, self.text),
            line => format!("{}:{line}: {}", self.place, self.text),
        }
    }
}

/// A word as a shell takes it.
fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@+%".contains(c);
    match word.chars().all(is_plain) && !word.is_empty() {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// A model config file of some models.
fn model_config_file(models: Vec<ModelConfig>) -> String {
    let list = Config::ModelConfigList(ModelConfigList { config: models });
    proto::text::print(&ModelServerConfig { config: Some(list) })
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// The line, from 1, of the first place of a word in a text that is a word there; 0 if it is
/// nowhere.
fn line_of(text: &str, word: &str) -> usize {
    let has_word = |line: &str| {
        line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|found| found == word)
    };
    text.lines().position(has_word).map_or(0, |line| line + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell_where_they_must_be() {
        assert_eq!(shell_word("--port=8500"), "--port=8500");
        assert_eq!(shell_word("/a b"), "'/a b'");
        assert_eq!(shell_word("it's"), "'it'\\''s'");
    }

    #[test]
    fn a_word_is_found_in_its_line() {
        assert_eq!(line_of("a: 1\nabc: 2\nab: 3", "ab"), 3);
        assert_eq!(line_of("a: 1", "b"), 0);
    }
}
