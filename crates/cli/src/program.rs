//! From the words on the command line to a command.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::FromArgMatches as _;
use clap::error::ErrorKind;
use config::Persona;
use config::model_config::Mistake;
use server::{Refused, say};

use crate::arguments::{self, Known, Takes};
use crate::commands::serve::Serve;
use crate::help;
use crate::table::{Entry, Words};

/// The exit status of TensorFlow Serving when it cannot start.
const REFUSED: u8 = 255;

/// The exit status when the command line is wrong.
const USAGE: u8 = 2;

/// Runs the program with the arguments of the process, under the name that it was started with.
pub fn main() -> ExitCode {
    let args: Vec<String> = std::env::args_os().map(|arg| arg.to_string_lossy().into()).collect();
    let persona = Persona::of(args.first().map_or("", String::as_str));
    let result = match persona {
        _ if is_worker(&args) => worker(&args),
        Persona::Tensord => tensord(&args),
        Persona::TensorFlowModelServer => model_server(args),
    };
    result.unwrap_or_else(|error| failed(persona, &error))
}

/// Runs a command, or serves without one.
fn tensord(args: &[String]) -> Result<ExitCode> {
    let words = args.get(1..).unwrap_or_default();
    let (first, rest) = words.split_first().map_or(("", words), |(word, rest)| (&**word, rest));
    match (first, rest) {
        ("-h" | "--help" | "help", []) => {
            say!("{}", help::screen());
            Ok(ExitCode::SUCCESS)
        }
        ("help", [name, rest @ ..]) => {
            let mut words = rest.to_vec();
            words.push("--help".to_owned());
            match Entry::get(name) {
                Some(entry) => run(entry, entry.name, &words),
                None => Ok(no_command("command", name)),
            }
        }
        _ => match Entry::get(first) {
            Some(entry) => run(entry, entry.name, rest),
            None if is_no_folder(first) => Ok(no_command("command or folder", first)),
            None => run(&Entry::of_server(), "", words),
        },
    }
}

/// Runs a command on words. It is called `name` on the command line; nothing if it was left out.
fn run(entry: &Entry, name: &str, words: &[String]) -> Result<ExitCode> {
    let mut args = vec![format!("tensord {name}").trim_end().to_owned()];
    args.extend_from_slice(words);
    // As `--version` has it.
    let definition = entry.define().display_name("tensord");
    let args = arguments::underscored(args, &known(&definition));
    let args = match entry.words {
        Words::Plain => args,
        Words::OfServer => remarked(Persona::Tensord, args, &definition),
    };
    match definition.try_get_matches_from(args) {
        Ok(matches) => entry.run(&matches),
        Err(error) => Ok(misused(Persona::Tensord, &error)),
    }
}

/// Serves under TensorFlow Serving's name.
fn model_server(args: Vec<String>) -> Result<ExitCode> {
    let persona = Persona::TensorFlowModelServer;
    if args.iter().any(|arg| arg == "--version") {
        say!("TensorFlow ModelServer: {0}\nTensorFlow Library: {0}", env!("CARGO_PKG_VERSION"));
        return Ok(ExitCode::SUCCESS);
    }
    let definition = Entry::of_server().define();
    let args = remarked(persona, args, &definition);
    let matches = definition.try_get_matches_from(args);
    match matches.and_then(|matches| Serve::from_arg_matches(&matches)) {
        Ok(serve) => server::serve(persona, &serve.flags),
        Err(error) => Ok(misused(persona, &error)),
    }
}

/// The words that are left of those of `serve`, after remarks on the others.
fn remarked(persona: Persona, args: Vec<String>, definition: &clap::Command) -> Vec<String> {
    let typed = arguments::sort(persona, args, &known(definition));
    typed.remarks.iter().for_each(|remark| eprintln!("warning: {remark}"));
    typed.args
}

/// Returns whether a word in the place of a command can only be a mistake: it is the name of no
/// file, and neither a flag, a path, a blank nor our own name.
fn is_no_folder(word: &str) -> bool {
    let is_name = !word.trim().is_empty() && !word.starts_with('-') && !word.contains('/');
    is_name && !arguments::is_own_name(word) && !Path::new(word).exists()
}

/// Says that nothing of a kind has this name, and which command has nearly the same.
fn no_command(kind: &str, name: &str) -> ExitCode {
    let hint = match help::nearest(name) {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => "`tensord help` lists the commands".to_owned(),
    };
    eprintln!("error: no {kind} is called `{name}`; {hint}");
    ExitCode::from(USAGE)
}

fn worker(args: &[String]) -> Result<ExitCode> {
    tensorflow::worker_main(&args[2..])?;
    Ok(ExitCode::SUCCESS)
}

/// Returns whether the server started this process as a worker. A model's folder may have that name
/// too.
fn is_worker(args: &[String]) -> bool {
    args.get(1).is_some_and(|arg| arg == "worker")
        && args.get(2).is_some_and(|arg| arg.starts_with("--socket="))
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
            if let Some(Refused(status)) = error.downcast_ref() {
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

/// The flags of a command, and which of them may have their value in the next word.
fn known(definition: &clap::Command) -> Known {
    let mut known =
        Known::from([("help".to_owned(), Takes::OwnWord), ("version".to_owned(), Takes::OwnWord)]);
    for arg in definition.get_arguments() {
        let is_own = arg.is_require_equals_set() || !arg.get_action().takes_values();
        let takes = if is_own { Takes::OwnWord } else { Takes::NextWord };
        let aliases = arg.get_visible_aliases().unwrap_or_default();
        known.extend(arg.get_long().into_iter().chain(aliases).map(|n| (n.to_owned(), takes)));
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every flag of TensorFlow Serving 2.21 is one of ours, or is told to have no effect.
    #[test]
    fn every_flag_of_tensorflow_serving_is_accepted() {
        let flags = include_str!("../../../testdata/requirements/flags.txt");
        let known = known(&Entry::of_server().define());
        let ignored: Vec<&str> = config::flags::IGNORED.iter().map(|row| row.0).collect();
        for flag in flags.lines().filter(|line| !line.starts_with('#')) {
            assert!(known.contains_key(flag) || ignored.contains(&flag), "--{flag}");
        }
    }

    #[test]
    fn the_last_of_a_repeated_flag_counts() {
        let flags = |args: &[&str]| Entry::of_server().define().try_get_matches_from(args).unwrap();
        let given = flags(&["x", "--port=1", "--port=2", "--model_name=a", "--model_name=b"]);
        let names = given.get_many::<String>("model_name").unwrap();
        assert_eq!((given.get_one::<u16>("port"), names.len()), (Some(&2), 2));
        let given = flags(&["x", "--enable_model_warmup=false", "--enable_grpc_reflection"]);
        assert_eq!(given.get_one::<bool>("enable_model_warmup"), Some(&false));
        assert_eq!(given.get_one::<bool>("enable_grpc_reflection"), Some(&true));
    }

    #[test]
    fn an_unknown_flag_is_refused_and_the_nearest_named() {
        let serve = Entry::of_server().define();
        let error = serve.try_get_matches_from(["x", "--modle_name=a"]).unwrap_err();
        assert!(error.to_string().contains("--model_name"), "{error}");
    }
}
