//! The first screen of help: the commands, and where to read on. It fits 80 columns and 24 lines.

use std::fmt::Write as _;

use crate::table::COMMANDS;

/// The lines above the commands.
const HEAD: &str = "\
tensord serves TensorFlow SavedModels, and knows every byte of their memory

Usage: tensord COMMAND ...
       tensord [FLAGS] DIR...   the same as `tensord serve`
Commands:
";

/// The lines below them.
const FOOT: &str = "
Serve a folder of models (gRPC on port 8500, REST on 8501):  tensord models
`tensord serve --help` shows the flags of the server in groups; `tensord help
COMMAND` those of a command; `tensord --version` the version.";

/// The screen, without a line break at its end.
pub(crate) fn screen() -> String {
    let mut text = HEAD.to_owned();
    for entry in COMMANDS {
        let about = entry.define().get_about().map(ToString::to_string).unwrap_or_default();
        let _ = writeln!(text, "  {:<12} {about}", entry.name);
    }
    text + FOOT
}

/// The command whose name is nearest to a mistyped one, if any is near.
pub(crate) fn nearest(typed: &str) -> Option<&'static str> {
    status::nearest(typed, COMMANDS.iter().map(|entry| entry.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_command_is_near_to_the_one_that_was_meant() {
        let check = |typed: &str, expected| assert_eq!(nearest(typed), expected, "{typed}");
        check("insepct", Some("inspect"));
        check("prdict", Some("predict"));
        check("device", Some("devices"));
        check("mem", Some("memory"));
        check("tpo", Some("top"));
        check("models", None);
        check("x", None);
    }

    /// `docs/commands.md` says of each command what help says.
    #[test]
    fn the_book_lists_every_command() {
        let book = include_str!("../../../docs/commands.md");
        for entry in COMMANDS {
            let about = entry.define().get_about().map(ToString::to_string).unwrap_or_default();
            let row = format!("| `{}` | {about}", entry.name);
            assert!(book.contains(&row), "{row}");
        }
    }

    /// The screen that people see first, as it is in a terminal of 80×24.
    #[test]
    fn the_first_screen_is_the_golden_one_and_fits_a_terminal() {
        let golden = include_str!("../../../testdata/screens/help.txt");
        assert_eq!(screen() + "\n", golden);
        assert!(golden.lines().count() < 24, "{} lines and a prompt", golden.lines().count());
        let widest = golden.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(80), "{widest:?} columns");
    }
}
