//! From the words on the command line to a command.

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, FromArgMatches as _, Parser};

use crate::arguments::{self, Known, Takes};
use crate::commands;
use crate::commands::plan::Asked;
use crate::flags::Flags;
use crate::model_config::Mistake;

/// Under which name the program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persona {
    /// Our own, with our own defaults.
    Tensord,
    /// TensorFlow Serving's, with its command line and its defaults.
    TensorFlowModelServer,
}

/// Serve TensorFlow SavedModels, and know every byte of their memory
#[derive(Debug, Parser)]
#[command(name = "tensord", version, max_term_width = 100, after_help = COMMANDS)]
#[command(args_override_self = true)]
struct Serve {
    #[command(flatten)]
    flags: Flags,
}

const COMMANDS: &str = "Commands:
  serve    [flags] DIR...   serve models (this is what happens without a command)
  predict  DIR              run a model on NumPy archives
  inspect  DIR              show the signatures, ops and weights of a model
  bench    DIR              measure a model in this process, or a running server
  profile  DIR              show where the time of a model goes
  selftest                  try TensorFlow in a worker on this machine, with its GPUs
  plan     [--json] [--length=N] [flags] DIR...   say what fits where, and how often, before
                            anything is served; N: other sizes that are open, such as of sequences
  memory   URL              show who holds which bytes of a running server
  top      URL              the same, again and again
  keys new NAME             make a key for --api_keys_file
  devices  [flags]          show the devices, and what the flags make of them
Each has its own --help.";

/// The exit status of TensorFlow Serving when it cannot start.
const REFUSED: u8 = 255;

/// The exit status when the command line is wrong.
const USAGE: u8 = 2;

/// Runs the program under a name, with the arguments of the process.
pub fn main(persona: Persona) -> ExitCode {
    let args: Vec<String> = std::env::args_os().map(|arg| arg.to_string_lossy().into()).collect();
    let command = args.get(1).map(String::as_str);
    let result = match (persona, command) {
        (Persona::Tensord, Some("predict")) => {
            done(commands::predict::main(rest(&args, "predict")))
        }
        (Persona::Tensord, Some("inspect")) => {
            done(commands::inspect::main(rest(&args, "inspect")))
        }
        (Persona::Tensord, Some("bench")) => done(commands::bench::main(rest(&args, "bench"))),
        (Persona::Tensord, Some("profile")) => {
            done(commands::profile::main(rest(&args, "profile")))
        }
        (Persona::Tensord, Some("selftest")) => {
            done(commands::selftest::main(rest(&args, "selftest")))
        }
        (_, Some("worker")) if is_worker(&args) => {
            done(tensorflow::worker_main(&args[2..]).map_err(anyhow::Error::from))
        }
        (Persona::Tensord, Some("plan")) => {
            let mut args = rest(&args, "plan");
            Asked::take(&mut args).and_then(|asked| {
                with_flags(persona, args, |flags| done(commands::plan::main(flags, asked)))
            })
        }
        (Persona::Tensord, Some("memory")) => done(commands::memory::main(rest(&args, "memory"))),
        (Persona::Tensord, Some("keys")) => done(commands::keys::main(rest(&args, "keys"))),
        (Persona::Tensord, Some("top")) => done(commands::memory::top(rest(&args, "top"))),
        (Persona::Tensord, Some("devices")) => {
            let show = |flags: &Flags| done(commands::devices::main(flags));
            with_flags(persona, rest(&args, "devices"), show)
        }
        (Persona::Tensord, Some("serve")) => serve(persona, rest(&args, "serve")),
        _ => serve(persona, args),
    };
    result.unwrap_or_else(|error| failed(persona, &error))
}

fn done(result: anyhow::Result<()>) -> anyhow::Result<ExitCode> {
    result.map(|()| ExitCode::SUCCESS)
}

/// Whether the server started this process as a worker. A model's folder may have that name too.
fn is_worker(args: &[String]) -> bool {
    args.get(2).is_some_and(|arg| arg.starts_with("--socket="))
}

/// The arguments of a command, with the program's name and the command's as one.
fn rest(args: &[String], command: &str) -> Vec<String> {
    let mut rest = vec![format!("tensord {command}")];
    rest.extend(args.iter().skip(2).cloned());
    rest
}

/// Says why the program ends, under TensorFlow Serving's name as that does.
fn failed(persona: Persona, error: &anyhow::Error) -> ExitCode {
    match persona {
        Persona::Tensord => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
        Persona::TensorFlowModelServer => {
            let (mut code, mut text) = ("INVALID_ARGUMENT", format!("{error:#}"));
            if let Some(error) = error.downcast_ref::<lifecycle::Error>() {
                code = error.code().name();
            }
            if let Some(commands::serve::Refused(status)) = error.downcast_ref() {
                code = status.code.name();
            }
            if let Some(Mistake { file, line, column, message }) = error.downcast_ref() {
                // What the protobuf library writes, and TensorFlow Serving after it.
                let kind = "tensorflow.serving.ModelServerConfig";
                eprintln!("Error parsing text-format {kind}: {line}:{column}: {message}");
                text = format!("Invalid protobuf file: '{file}'");
            }
            say!("Failed to start server. Error: {code}: {text}");
            ExitCode::from(REFUSED)
        }
    }
}

fn serve(persona: Persona, args: Vec<String>) -> anyhow::Result<ExitCode> {
    if persona == Persona::TensorFlowModelServer && args.iter().any(|arg| arg == "--version") {
        say!("TensorFlow ModelServer: {0}\nTensorFlow Library: {0}", env!("CARGO_PKG_VERSION"));
        return Ok(ExitCode::SUCCESS);
    }
    with_flags(persona, args, |flags| commands::serve::main(persona, flags))
}

/// Does `work` with what the flags of `serve` were set to.
fn with_flags(
    persona: Persona,
    args: Vec<String>,
    work: impl FnOnce(&Flags) -> anyhow::Result<ExitCode>,
) -> anyhow::Result<ExitCode> {
    let typed = arguments::sort(persona, args, &known());
    typed.remarks.iter().for_each(|remark| eprintln!("warning: {remark}"));
    let matches = Serve::command().try_get_matches_from(typed.args);
    match matches.and_then(|matches| Serve::from_arg_matches(&matches)) {
        Ok(serve) => work(&serve.flags),
        Err(error) => Ok(misused(persona, &error)),
    }
}

/// Shows help, or what is wrong with the command line.
fn misused(persona: Persona, error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // A reader that has had enough is no error.
        drop(error.print());
        return ExitCode::SUCCESS;
    }
    match persona {
        Persona::Tensord => {
            drop(error.print());
            ExitCode::from(USAGE)
        }
        Persona::TensorFlowModelServer => {
            say!("{}", error.render());
            ExitCode::from(REFUSED)
        }
    }
}

/// The flags that we have, and which of them may have their value in the next word.
fn known() -> Known {
    let mut known =
        Known::from([("help".to_owned(), Takes::OwnWord), ("version".to_owned(), Takes::OwnWord)]);
    for arg in Serve::command().get_arguments() {
        let takes = if arg.is_require_equals_set() { Takes::OwnWord } else { Takes::NextWord };
        let aliases = arg.get_visible_aliases().unwrap_or_default();
        known.extend(arg.get_long().into_iter().chain(aliases).map(|n| (n.to_owned(), takes)));
    }
    known
}

/// The flags among some words, for tests.
#[cfg(test)]
pub(crate) fn parse(args: &[&str]) -> Flags {
    let args = ["tensord"].into_iter().chain(args.iter().copied());
    Serve::try_parse_from(args).expect("a test's flags are right").flags
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every flag of TensorFlow Serving 2.21 is one of ours, or is told to have no effect.
    #[test]
    fn every_flag_of_tensorflow_serving_is_accepted() {
        let flags = include_str!("../../../testdata/requirements/flags.txt");
        let known = known();
        let tables = crate::flags::IGNORED.iter().map(|row| row.0);
        let tables: Vec<&str> = tables.chain(crate::flags::LATER.iter().copied()).collect();
        for flag in flags.lines().filter(|line| !line.starts_with('#')) {
            assert!(known.contains_key(flag) || tables.contains(&flag), "--{flag}");
        }
    }

    #[test]
    fn the_last_of_a_repeated_flag_counts() {
        let flags = |args: &[&str]| Serve::try_parse_from(args).unwrap().flags;
        let given = flags(&["x", "--port=1", "--port=2", "--model_name=a", "--model_name=b"]);
        assert_eq!((given.port, given.model_name.len()), (2, 2));
        let given = flags(&["x", "--enable_model_warmup=false", "--enable_grpc_reflection"]);
        assert!(!given.enable_model_warmup && given.enable_grpc_reflection);
    }

    #[test]
    fn an_unknown_flag_is_refused_and_the_nearest_named() {
        let error = Serve::try_parse_from(["x", "--modle_name=a"]).unwrap_err();
        assert!(error.to_string().contains("--model_name"), "{error}");
    }
}
