//! Everyday mistakes, and what each is answered: a table of the command line, and one of requests.
//! `docs/troubleshooting.md` lists both; `UPDATE_MISTAKES=1` writes the list anew.

mod kit;
mod wire;

use std::fmt::Write as _;

use crate::support::{root, tensord};
use kit::Kit;

/// A mistake on the command line or in a file, and a part of what the program prints.
struct Mistake {
    name: &'static str,
    /// The arguments, with blanks between them. `{kit}` is a folder of wrong things.
    args: &'static str,
    said: &'static str,
}

const fn row(name: &'static str, args: &'static str, said: &'static str) -> Mistake {
    Mistake { name, args, said }
}

/// Mistakes on the command line, in files and in folders.
const MISTAKES: &[Mistake] = &[
    row("a folder that is not there", "{kit}/nowhere", "cannot open"),
    row("a folder that cannot be read", "{kit}/loop", "cannot open"),
    row("an empty folder", "{kit}/empty", "the folder is empty"),
    row("a folder of folders of models", "{kit}/deep", "models are one level deeper: give "),
    row(
        "a folder within a SavedModel",
        "{kit}/models/good/1/variables",
        "it is a part of a SavedModel: give ",
    ),
    row(
        "a version folder called v1",
        "{kit}/named",
        "the folder of a version is a number: rename ",
    ),
    row(
        "a model without versions",
        "--check_config --model_base_path={kit}/empty",
        "has no versions; the folder is empty",
    ),
    row(
        "a base path that is not there",
        "--check_config --model_base_path={kit}/nowhere",
        "cannot read the folder ",
    ),
    row(
        "an empty saved_model.pb",
        "--check_config --model_base_path={kit}/zero/m",
        "version 1: saved_model.pb is empty",
    ),
    row(
        "a saved_model.pb that was cut",
        "--check_config --model_base_path={kit}/cut/m",
        "saved_model.pb: damaged, or truncated at ",
    ),
    row("a mistyped command", "insepct m", "did you mean `inspect`?"),
    row("a mistyped flag", "serve --modle_name=a", "'--model_name'"),
    row("a flag's value of another type", "serve --port=http", "invalid value 'http' for '--port"),
    row(
        "a mistyped field in a config",
        "--model_config_file={kit}/field.config",
        "field.config:1:30: field 'base_paht' not found",
    ),
    row(
        "a mistyped field in a JSON config",
        "--model_config_file={kit}/field.json",
        "did you mean 'base_path'?",
    ),
    row(
        "a trailing comma in a JSON config",
        "--model_config_file={kit}/comma.json",
        "comma.json:3:1: trailing comma",
    ),
    row(
        "a wrong type in a JSON config",
        "--model_config_file={kit}/type.json",
        "type.json:2:12: invalid type: integer `7`, expected a string",
    ),
    row(
        "a mistake in a device config",
        "--device_config_file={kit}/device.json {kit}/models",
        "device.json: unrecognized field name 'colour' at line 1 column 38",
    ),
    row(
        "a label for a version that is not there",
        "--check_config --model_config_file={kit}/label.config",
        "label stable points to version 9, which is not there; there are 1",
    ),
    row(
        "a model on a GPU that is not there",
        "--check_config --simulated_gpus=1GiB --model_config_file={kit}/gpu.config",
        "it may be on gpu:7, but there is no such device; there are cpu:0, gpu:0",
    ),
    row(
        "a memory limit of a device in MiB without the unit",
        "--device_config_file={kit}/limit.config {kit}/models",
        "memory_limit: 1024 is 1024 bytes, too few for any model: for MiB, write \"1024MiB\" or \
         1073741824 (bytes)",
    ),
    row(
        "a memory limit of a model in MiB without the unit",
        "--check_config --model_config_file={kit}/model_limit.config",
        "memory.limit: 512 is 512 bytes, too few for any model",
    ),
    row(
        "a TLS key given as a path",
        "--ssl_config_file={kit}/ssl.config {kit}/models",
        "server_key is \"/etc/key.pem\", but the content of that file belongs here",
    ),
    row(
        "an API keys file without keys",
        "--check_config --api_keys_file={kit}/keys {kit}/models",
        "there is no key in it",
    ),
    row(
        "a base path in a bucket",
        "--check_config --model_base_path=gs://bucket/m",
        "paths that begin with gs:// are not supported",
    ),
    row(
        "fewer base paths than names",
        "--model_name=a --model_name=b --model_base_path=/m",
        "give one base path for each name",
    ),
    row("two models of one name", "{kit}/models {kit}/deep/in", "two models are called good"),
    row("a port that is in use", "doctor --port={port} {kit}/models", "choose another with --port"),
];

/// Runs the program with the arguments of a row; gives its status and what it printed.
fn run(kit: &Kit, args: &str) -> (Option<i32>, String) {
    let args = args.split(' ').map(|word| kit.fill(word));
    let output = tensord().args(args).current_dir(kit.path()).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn each_mistake_on_the_command_line_is_told_with_how_to_mend_it() {
    let kit = Kit::new();
    let mut wrong = Vec::new();
    for Mistake { name, args, said } in MISTAKES {
        let (code, text) = run(&kit, args);
        if !text.contains(said) || (code == Some(0) && !text.contains("warning")) {
            wrong.push(format!("{name} ({args}): {code:?}\n{text}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The list in the book.
#[test]
fn the_book_lists_every_mistake() {
    let mut list = String::from("| mistake | answer |\n|---|---|\n");
    let requests = wire::REQUESTS.iter().map(|request| (request.name, request.said));
    let all = MISTAKES.iter().map(|mistake| (mistake.name, mistake.said)).chain(requests);
    let mut n_rows = 0;
    for (name, said) in all {
        let quote = if said.contains('`') { "``" } else { "`" };
        let _ = writeln!(list, "| {name} | {quote}{}{quote} |", said.trim());
        n_rows += 1;
    }
    assert!(n_rows >= 40, "{n_rows}");
    let path = root().join("docs/troubleshooting.md");
    let book = std::fs::read_to_string(&path).unwrap();
    const START: &str = "<!-- mistakes: made from crates/cli/tests/it/mistakes.rs -->\n";
    const END: &str = "<!-- end of mistakes -->";
    let (before, rest) = book.split_once(START).unwrap();
    let (found, after) = rest.split_once(END).unwrap();
    if std::env::var_os("UPDATE_MISTAKES").is_some() {
        std::fs::write(&path, format!("{before}{START}{list}{END}{after}")).unwrap();
        return;
    }
    assert_eq!(found, list, "write it anew with UPDATE_MISTAKES=1");
}
