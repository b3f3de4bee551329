//! From the words on the command line to a command.

use std::collections::BTreeSet;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser};

use crate::arguments;
use crate::commands;
use crate::flags::Flags;

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
struct Serve {
    #[command(flatten)]
    flags: Flags,
}

const COMMANDS: &str = "Commands:
  serve    [flags] DIR...   serve models (this is what happens without a command)
  predict  DIR              run a model on NumPy archives
  inspect  DIR              show the signatures, ops and weights of a model
  bench    DIR              measure a model in this process
  profile  DIR              show where the time of a model goes
Each has its own --help.";

/// The exit status of TensorFlow Serving when it cannot start.
const REFUSED: u8 = 255;

/// Runs the program under a name, with the arguments of the process.
pub fn main(persona: Persona) -> ExitCode {
    let args: Vec<String> = std::env::args_os().map(|arg| arg.to_string_lossy().into()).collect();
    let command = args.get(1).map(String::as_str);
    let result = match (persona, command) {
        (Persona::Tensord, Some("predict")) => commands::predict::main(rest(&args, "predict")),
        (Persona::Tensord, Some("inspect")) => commands::inspect::main(rest(&args, "inspect")),
        (Persona::Tensord, Some("bench")) => commands::bench::main(rest(&args, "bench")),
        (Persona::Tensord, Some("profile")) => commands::profile::main(rest(&args, "profile")),
        (_, Some("worker")) if is_worker(&args) => {
            tensorflow::worker_main(&args[2..]).map_err(anyhow::Error::from)
        }
        (Persona::Tensord, Some("serve")) => serve(persona, rest(&args, "serve")),
        _ => serve(persona, args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(if persona == Persona::Tensord { 1 } else { REFUSED })
        }
    }
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

fn serve(persona: Persona, args: Vec<String>) -> anyhow::Result<()> {
    if persona == Persona::TensorFlowModelServer && args.iter().any(|arg| arg == "--version") {
        say!("TensorFlow ModelServer: {0}\nTensorFlow Library: {0}", env!("CARGO_PKG_VERSION"));
        return Ok(());
    }
    let known: BTreeSet<String> = Serve::command()
        .get_arguments()
        .flat_map(|arg| {
            let aliases = arg.get_visible_aliases().unwrap_or_default();
            arg.get_long().into_iter().chain(aliases).map(str::to_owned).collect::<Vec<_>>()
        })
        .chain(["help".to_owned(), "version".to_owned()])
        .collect();
    let typed = arguments::sort(persona, args, &known)?;
    typed.remarks.iter().for_each(|remark| eprintln!("warning: {remark}"));
    let flags = Serve::parse_from(typed.args).flags;
    commands::serve::main(persona, &flags)
}
