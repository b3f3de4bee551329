//! Real clients get TensorFlow's own answers from every demo model.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{Server, model_server, python, root};

/// The name of the UNIX socket, in a folder of its own; both signs are sent encoded.
const SOCKET: &str = "grpc + 100%.sock";

/// Runs a client script against a server of the demo models, started as TensorFlow Serving would
/// be; its checks must all pass.
fn check(script: &str, address: impl Fn(&Server, &Path) -> String) {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("models.config");
    fs::write(&config, model_config()).unwrap();
    let flag = format!("--model_config_file={}", config.display());
    let socket = format!("--grpc_socket_path={}", folder.path().join(SOCKET).display());
    let flags = [&flag, &socket, "--file_system_poll_wait_seconds=0"];
    let server = Server::start(model_server(), &flags);
    let mut command: Command = python();
    command.current_dir(root()).arg(format!("tools/clients/{script}"));
    command.arg(address(&server, folder.path())).arg(root().join("models"));
    let run = command.output().expect("Python runs");
    let text = String::from_utf8_lossy(&run.stdout);
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{script} failed:\n{text}\n{errors}");
    println!("{}", text.lines().last().unwrap_or_default());
}

/// A config of all demo models in all their versions.
fn model_config() -> String {
    let mut config = String::from("model_config_list {\n");
    for entry in fs::read_dir(root().join("models")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy();
        let path = path.display();
        config += &format!("  config {{ name: '{name}' base_path: '{path}' ");
        config += "model_platform: 'tensorflow' model_version_policy { all {} } }\n";
    }
    config + "}\n"
}

#[test]
fn the_client_of_tensorflow_serving_gets_tensorflows_answers_over_grpc() {
    check("grpc_all.py", |server, _| format!("localhost:{}", server.grpc));
}

#[test]
fn plain_http_gets_tensorflows_answers_over_rest() {
    check("rest_all.py", |server, _| format!("http://localhost:{}", server.rest));
}

#[test]
fn ovmsclient_gets_tensorflows_answers() {
    check("ovms.py", |server, _| format!("localhost:{}", server.grpc));
}

#[test]
fn the_client_of_tensorflow_serving_is_served_over_a_unix_socket() {
    check("unix_socket.py", |_, folder| format!("unix:{}", folder.join(SOCKET).display()));
}
