//! The command lines and configs that the requirement documents show are taken as they stand there.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{
    Server, check_half_plus_two, model_server, model_with_versions, python, root,
};
use crate::tensorflow::{with_tensorflow, workers};

fn excerpt(name: &str) -> String {
    let path = root().join("testdata/requirements").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Starts the server with an argument list of a document, whose models are below `written`, and
/// predicts through every model it names.
fn check(argv: &[String], environment: &(String, String), written: &str) {
    check_on(model_server(), argv, environment, written);
}

/// The same with the command of a server.
fn check_on(mut command: Command, argv: &[String], environment: &(String, String), written: &str) {
    let argv: Vec<String> = argv.iter().map(|word| word.trim_end().to_owned()).collect();
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path().to_string_lossy().into_owned();
    let ours = |word: &String| match word == IMAGE_PATH {
        true => word.clone(),
        false => word.replace(written, &here),
    };
    let argv: Vec<String> = argv.iter().map(ours).collect();
    let names: Vec<&str> =
        argv.iter().filter_map(|word| word.trim().strip_prefix("--model_name=")).collect();
    assert!(names.ends_with(&["model1", "model2"]), "{names:?}");
    for name in ["model1", "model2"] {
        model_with_versions(&folder.path().join(name), &[1]);
    }
    command.env(&environment.0, &environment.1);
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    let server = Server::spawn(command, &argv);
    // The environment's word on memory reaches the models.
    server.logs("memory settings");
    server.logs("Exporting HTTP/REST API at");
    for name in ["model1", "model2"] {
        check_half_plus_two(&server, name);
    }
}

/// Joins lines that end with a backslash, as systemd and the shell do.
fn joined(text: &str) -> String {
    text.replace("\\\n", " ")
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// `NAME=value`, with or without quotes around.
fn assignment(text: &str) -> (String, String) {
    let (name, value) = text.trim().trim_matches('"').split_once('=').unwrap();
    (name.to_owned(), value.to_owned())
}

#[test]
fn the_systemd_unit_starts_two_models() {
    let unit = joined(&excerpt("growth.service"));
    let value = |key: &str| unit.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    let argv = words(value("ExecStart="));
    assert!(argv[0].ends_with("/tensorflow_model_server"), "{argv:?}");
    check(&argv[1..], &assignment(value("Environment=")), "/path/to");
}

#[test]
fn the_shell_command_starts_two_models() {
    let script = joined(&excerpt("growth.sh"));
    let export = script.lines().find_map(|line| line.strip_prefix("export ")).unwrap();
    let line = script.lines().find(|line| line.starts_with("tensorflow_model_server")).unwrap();
    check(&words(line)[1..], &assignment(export), "/path/to");
}

#[test]
fn the_shell_command_starts_two_models_on_tensorflow() {
    let script = joined(&excerpt("growth.sh"));
    let export = script.lines().find_map(|line| line.strip_prefix("export ")).unwrap();
    let line = script.lines().find(|line| line.starts_with("tensorflow_model_server")).unwrap();
    let mut argv = words(line);
    argv.push("--engine=tensorflow".to_owned());
    check_on(with_tensorflow(model_server()), &argv[1..], &assignment(export), "/path/to");
}

#[test]
fn the_compose_file_starts_two_models() {
    let yaml = excerpt("growth.compose.yaml");
    let mut lines = yaml.lines().skip_while(|line| !line.trim().starts_with("command:"));
    let first = lines.next().unwrap().trim().strip_prefix("command:").unwrap().trim();
    // A plain scalar goes on while lines are indented deeper; its lines are folded into one.
    let more = lines.take_while(|line| !line.trim().starts_with("environment:"));
    let folded: Vec<&str> = std::iter::once(first).chain(more.map(str::trim)).collect();
    let command = split_as_a_shell(&folded.join(" "));
    assert!(command[1].starts_with(' '), "a backslash keeps its blank: {command:?}");
    let environment = yaml.lines().find_map(|line| line.trim().strip_prefix("- TF_")).unwrap();
    let environment = assignment(&format!("TF_{environment}"));
    check(&[entry_point(), command].concat(), &environment, "/models");
}

/// The base path that the container image serves unless it is told otherwise.
const IMAGE_PATH: &str = "--model_base_path=/models/model";

/// Returns the arguments that the container image's entry point gives before the command.
fn entry_point() -> Vec<String> {
    ["--port=8500", "--rest_api_port=8501", "--model_name=model", IMAGE_PATH]
        .map(str::to_owned)
        .into()
}

/// Compose splits a command as a shell does: a backslash keeps the character after it.
fn split_as_a_shell(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        let last = words.last_mut().unwrap();
        match character {
            '\\' => last.extend(characters.next()),
            ' ' if last.is_empty() => {}
            ' ' => words.push(String::new()),
            other => last.push(other),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The JSON config that a document's program writes, and the command that serves it.
fn concurrency_server(folder: &Path) -> Server {
    concurrency_server_on(model_server(), folder, &[])
}

/// The same with the command of a server, and flags beside those of the document.
fn concurrency_server_on(mut command: Command, folder: &Path, more: &[&str]) -> Server {
    model_with_versions(&folder.join("my/model"), &[1, 2]);
    let program = excerpt("concurrency_config.py.txt");
    let program = program.replace("/path/to", &folder.to_string_lossy());
    let run = python().current_dir(folder).arg("-c").arg(program).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let line = excerpt("concurrency.sh");
    let argv = words(&line);
    let argv: Vec<&str> =
        argv[1..].iter().map(String::as_str).chain(more.iter().copied()).collect();
    command.current_dir(folder);
    Server::spawn(command, &argv)
}

#[test]
fn the_json_config_with_its_memory_settings_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let server = concurrency_server(folder.path());
    let line = server.logs("memory settings");
    assert!(line.contains("growth=true") && line.contains("fraction=0.7"), "{line}");
    server.logs("Exporting HTTP/REST API at");
    check_half_plus_two(&server, "my_model");
    // The policy names version 1 alone.
    let (_, states) = server.rest("GET", "/v1/models/my_model", "");
    assert!(states.contains("\"1\"") && !states.contains("\"2\""), "{states}");
}

#[test]
fn the_json_config_grows_within_its_share_of_a_gpu() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = model_server();
    command.env_remove("TF_FORCE_GPU_ALLOW_GROWTH");
    let server = concurrency_server_on(command, folder.path(), &["--simulated_gpus=4GiB"]);
    server.logs("Exporting HTTP/REST API at");
    check_half_plus_two(&server, "my_model");
    let gpu = crate::memory::device(&server, "gpu:0");
    assert_eq!((gpu.growth, &*gpu.growth_setting), (pages::GrowthMode::OnDemand, "default"));
    assert!(gpu.reserved_bytes <= 8 << 20, "{gpu:#?}");
    // 0.7 of the GPU.
    assert_eq!(gpu.models[0].limit_bytes.unwrap() >> 20, 2867, "{gpu:#?}");
}

#[test]
fn the_json_config_with_its_memory_settings_is_served_on_tensorflow() {
    let folder = tempfile::tempdir().unwrap();
    let command = with_tensorflow(model_server());
    let server = concurrency_server_on(command, folder.path(), &["--engine=tensorflow"]);
    server.logs("Exporting HTTP/REST API at");
    check_half_plus_two(&server, "my_model");
    // It has memory settings of its own, and so a worker of its own.
    let (_, page) = server.rest("GET", "/v1/memory", "");
    assert!(page.contains("\"name\": \"my_model/1\""), "{page}");
    assert_eq!(workers(server.id()).len(), 1);
}

#[test]
fn the_example_of_batching_on_the_client_s_side_runs() {
    let folder = tempfile::tempdir().unwrap();
    let server = concurrency_server(folder.path());
    server.logs("Running gRPC ModelServer at");
    let mut command = python();
    command.arg(root().join("examples/batching_client.py"));
    command.arg(format!("localhost:{}", server.grpc)).arg("my_model");
    let run = command.output().unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{said}{}", String::from_utf8_lossy(&run.stderr));
    assert!(said.contains("[[2.5]\n [3. ]\n [4.5]]") || said.contains("[2.5 3.  4.5]"), "{said}");
}
