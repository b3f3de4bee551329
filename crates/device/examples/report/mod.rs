//! The options and the one line of JSON that the examples have in common.

use std::fmt::Display;
use std::process::ExitCode;
use std::str::FromStr;

/// The outcome of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It did.
    Yes,
    /// It did not.
    No,
}

/// Prints the line of a result, and exits 0 if it worked.
#[expect(clippy::print_stdout, reason = "printing is what it is for")]
pub(crate) fn print(result: Result<(String, Answer), String>) -> ExitCode {
    let (line, answer) =
        result.unwrap_or_else(|error| (format!("{{\"error\":{error:?}}}"), Answer::No));
    println!("{line}");
    if answer == Answer::Yes { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The arguments behind the program's name, and those that follow a name.
pub(crate) struct Options(Vec<String>);

impl Options {
    /// Those of this process.
    pub(crate) fn new() -> Options {
        Options(std::env::args().skip(1).collect())
    }

    /// The arguments at the beginning, as far as the first that is an option.
    pub(crate) fn first(&self) -> Vec<&str> {
        self.0.iter().map(String::as_str).take_while(|a| !a.starts_with("--")).collect()
    }

    /// The value behind a name, or `default`.
    pub(crate) fn get<T: FromStr<Err: Display>>(
        &self,
        name: &str,
        default: T,
    ) -> Result<T, String> {
        let Some(at) = self.0.iter().position(|a| a == name) else { return Ok(default) };
        let value = self.0.get(at + 1).ok_or_else(|| format!("{name} needs a value"))?;
        value.parse().map_err(|e| format!("{name} {value}: {e}"))
    }

    /// Returns whether there is an option of this name, which has no value.
    #[allow(dead_code, reason = "not every example has such options")]
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|a| a == name)
    }

    /// Refuses options that are not among the names.
    pub(crate) fn only(&self, names: &[&str]) -> Result<(), String> {
        match self.0.iter().find(|a| a.starts_with("--") && !names.contains(&a.as_str())) {
            None => Ok(()),
            Some(other) => Err(format!("{other} is none of {}", names.join(", "))),
        }
    }
}
