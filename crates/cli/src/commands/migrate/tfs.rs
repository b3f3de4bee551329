//! The command line of TensorFlow Serving: the flags are ours too, so that it stays as it is but
//! for the name of the program, the defaults that differ, and flags without effect.

use anyhow::{Result, bail, ensure};
use clap::CommandFactory as _;
use config::flags::IGNORED;

use super::Migrated;
use crate::arguments::is_own_name;
use crate::commands::serve::Serve;

/// The command line in notes.
const PLACE: &str = "command line";

/// Flags whose default is another one under our own name, with TensorFlow Serving's.
const DEFAULTS: &[(&str, &str)] = &[
    ("rest_api_port", "0"),
    ("model_config_file_poll_wait_seconds", "0"),
    ("start_when", "all"),
    ("max_run_seconds", "0"),
    ("management_address", "off"),
];

/// Flags of other programs that start containers, which stand before the name of the program.
const CONTAINER: [&str; 2] = ["docker", "podman"];

/// Our command line for a command line of TensorFlow Serving.
pub(super) fn migrate(words: &[String]) -> Result<Migrated> {
    let mut migrated = Migrated::default();
    let rest = flags_of(words)?;
    let definition = Serve::command();
    let is_known = |name: &str| {
        let is_it = |arg: &clap::Arg| {
            let aliases = arg.get_visible_aliases().unwrap_or_default();
            arg.get_long() == Some(name) || aliases.contains(&name)
        };
        definition.get_arguments().any(is_it)
    };
    let mut command = vec!["tensord".to_owned(), "serve".to_owned()];
    let mut given = Vec::new();
    let mut is_value_dropped = false;
    for word in rest {
        let Some(flag) = word.strip_prefix("--") else {
            // A value in a word of its own belongs to the flag before it.
            if !std::mem::take(&mut is_value_dropped) {
                command.push(word.clone());
            }
            continue;
        };
        let name = flag.split('=').next().unwrap_or_default();
        is_value_dropped = false;
        if let Some((_, why)) = IGNORED.iter().find(|row| row.0 == name) {
            migrated.note(PLACE, 0, format!("--{name} is left out: {why}"));
            is_value_dropped = !flag.contains('=');
        } else if is_known(name) {
            given.push(name.to_owned());
            command.push(word.clone());
        } else {
            migrated.note(PLACE, 0, format!("--{name} is left out: there is no such flag"));
            is_value_dropped = !flag.contains('=');
        }
    }
    add_defaults(&mut migrated, &mut command, &given);
    migrated.command = command;
    Ok(migrated)
}

/// The words behind the name of the program.
fn flags_of(words: &[String]) -> Result<&[String]> {
    ensure!(!words.is_empty(), "a command line of TensorFlow Serving goes behind `--`");
    if words.first().is_some_and(|word| CONTAINER.contains(&&**word)) {
        bail!(
            "give what TensorFlow Serving itself is started with: the words behind the name of the \
             image, with --model_name and --model_base_path in place of -e MODEL_NAME and of the \
             mounted folder"
        );
    }
    let program = words
        .iter()
        .position(|word| is_own_name(word) || word.ends_with("/tensorflow_model_server"));
    Ok(program.map_or(words, |at| &words[at + 1..]))
}

/// Keeps the defaults of TensorFlow Serving where ours are others, and says so.
fn add_defaults(migrated: &mut Migrated, command: &mut Vec<String>, given: &[String]) {
    for (name, value) in DEFAULTS {
        if !given.iter().any(|flag| flag == name) {
            command.push(format!("--{name}={value}"));
        }
    }
    migrated.note(
        PLACE,
        0,
        "the last flags keep TensorFlow Serving's defaults; without them tensord serves REST on \
         port 8501, looks at the model config file every second and is ready at the first model",
    );
    if !given.iter().any(|flag| flag == "enable_batching") {
        command.push("--enable_batching=false".to_owned());
        migrated.note(
            PLACE,
            0,
            "without --enable_batching=false requests are merged where rows are proved to be \
             independent, which is faster",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn flags_stay_and_what_has_no_effect_is_noted() {
        let line = "/usr/bin/tensorflow_model_server --port=8500 --rest_api_port=8501 \
                    --model_name=m --model_base_path=/models/m --grpc_max_threads=4 --nonsense 1";
        let migrated = migrate(&words(line)).unwrap();
        let command = migrated.command.join(" ");
        let start = "tensord serve --port=8500 --rest_api_port=8501 --model_name=m \
                     --model_base_path=/models/m --model_config_file_poll_wait_seconds=0";
        assert!(command.starts_with(start), "{command}");
        let notes: Vec<String> = migrated.notes.iter().map(super::super::Note::line).collect();
        assert!(notes[0].contains("--grpc_max_threads is left out: requests"), "{notes:?}");
        assert!(notes[1].contains("--nonsense is left out: there is no such flag"), "{notes:?}");
        assert!(!command.contains("nonsense") && !command.contains(" 1 "), "{command}");
    }

    /// The command that is printed is one that the server takes.
    #[test]
    fn what_is_printed_is_understood() {
        let migrated = migrate(&words("tensorflow_model_server --enable_batching")).unwrap();
        let matches = Serve::command().try_get_matches_from(&migrated.command[1..]);
        assert!(matches.is_ok(), "{matches:?}");
    }

    #[test]
    fn a_container_is_refused_with_what_to_give() {
        let error = migrate(&words("docker run tensorflow/serving")).unwrap_err();
        assert!(error.to_string().contains("--model_base_path in place of"), "{error}");
        assert!(migrate(&[]).is_err());
    }
}
