//! The table of commands: the program runs them, its help, the completions and the man pages list
//! them from here.

use std::process::ExitCode;

use anyhow::Result;
use clap::{ArgMatches, Parser};

use crate::commands::bench::Bench;
use crate::commands::completions::Completions;
use crate::commands::devices::Devices;
use crate::commands::doctor::Doctor;
use crate::commands::inspect::Inspect;
use crate::commands::keys::Keys;
use crate::commands::memory::Memory;
use crate::commands::migrate::Migrate;
use crate::commands::plan::Plan;
use crate::commands::predict::Predict;
use crate::commands::profile::Profile;
use crate::commands::selftest::Selftest;
use crate::commands::serve::Serve;
use crate::commands::top::Top;

/// The commands, in the order in which help shows them.
pub(crate) const COMMANDS: &[Entry] = &[
    Entry::of::<Serve>("serve", Words::OfServer),
    Entry::of::<Inspect>("inspect", Words::Plain),
    Entry::of::<Predict>("predict", Words::Plain),
    Entry::of::<Plan>("plan", Words::OfServer),
    Entry::of::<Top>("top", Words::Plain),
    Entry::of::<Memory>("memory", Words::Plain),
    Entry::of::<Devices>("devices", Words::OfServer),
    Entry::of::<Bench>("bench", Words::Plain),
    Entry::of::<Profile>("profile", Words::Plain),
    Entry::of::<Doctor>("doctor", Words::OfServer),
    Entry::of::<Migrate>("migrate", Words::Plain),
    Entry::of::<Keys>("keys", Words::Plain),
    Entry::of::<Selftest>("selftest", Words::Plain),
    Entry::of::<Completions>("completions", Words::Plain),
];

/// The columns that help is wrapped at, on a terminal that is wider.
const WIDTH_MAX: usize = 100;

/// A command: its arguments, defined by a struct, and the work that is done with them.
pub(crate) trait Perform: Parser {
    /// Runs the command, and gives the status that the process ends with.
    fn perform(self) -> Result<ExitCode>;
}

/// A row of the table.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    /// The word on the command line.
    pub(crate) name: &'static str,
    /// The way its words are read.
    pub(crate) words: Words,
    define: fn() -> clap::Command,
    run: fn(&ArgMatches) -> Result<ExitCode>,
}

/// The way the words of a command are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Words {
    /// As they stand.
    Plain,
    /// As those of `serve`, whose flags the command has: flags of TensorFlow Serving without
    /// effect are remarked on.
    OfServer,
}

impl Entry {
    const fn of<T: Perform>(name: &'static str, words: Words) -> Self {
        let run = |matches: &ArgMatches| T::from_arg_matches(matches)?.perform();
        Self { name, words, define: T::command, run }
    }

    /// The row of `serve`, which is also what is done without a command.
    pub(crate) const fn of_server() -> Self {
        COMMANDS[0]
    }

    /// The row of a command.
    pub(crate) fn get(name: &str) -> Option<&'static Self> {
        COMMANDS.iter().find(|entry| entry.name == name)
    }

    /// The definition of the command's arguments.
    pub(crate) fn define(&self) -> clap::Command {
        let command = (self.define)().name(self.name).args_override_self(true);
        command.max_term_width(WIDTH_MAX).mut_args(name_switch_values)
    }

    /// Runs the command on arguments that its definition was matched with.
    pub(crate) fn run(&self, matches: &ArgMatches) -> Result<ExitCode> {
        (self.run)(matches)
    }
}

/// Shows the values of a switch in place of a name for them: `--x[=<true|false>]`.
fn name_switch_values(arg: clap::Arg) -> clap::Arg {
    let values = arg.get_possible_values();
    let is_switch = arg.get_action().takes_values()
        && values.iter().map(clap::builder::PossibleValue::get_name).eq(["true", "false"]);
    if !is_switch {
        return arg;
    }
    arg.value_name("true|false").hide_possible_values(true)
}
