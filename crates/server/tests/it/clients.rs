//! Real clients get TensorFlow's own answers from every demo model.

use std::process::Command;

use crate::support::{Server, python, root, tensord};

/// Runs a client script against a server of the demo models; its checks must all pass.
fn check(script: &str, address: impl Fn(&Server) -> String) {
    let models = root().join("models");
    let server =
        Server::start(tensord(), &[&models.to_string_lossy(), "--file_system_poll_wait_seconds=0"]);
    let mut command: Command = python();
    command.current_dir(root()).arg(format!("tools/clients/{script}"));
    command.arg(address(&server)).arg(&models);
    let run = command.output().expect("Python runs");
    let text = String::from_utf8_lossy(&run.stdout);
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{script} failed:\n{text}\n{errors}");
    println!("{}", text.lines().last().unwrap_or_default());
}

#[test]
fn the_client_of_tensorflow_serving_gets_tensorflows_answers_over_grpc() {
    check("grpc_all.py", |server| format!("localhost:{}", server.grpc));
}

#[test]
fn plain_http_gets_tensorflows_answers_over_rest() {
    check("rest_all.py", |server| format!("http://localhost:{}", server.rest));
}

#[test]
fn ovmsclient_gets_tensorflows_answers() {
    check("ovms.py", |server| format!("localhost:{}", server.grpc));
}
