//! Batching, from outside: flags, files that change, and what the scheduler says.

use std::fs;
use std::process::Command;

use crate::support::{Server, model_server, root, tensord};

fn half_plus_two() -> String {
    let path = root().join("models/half_plus_two");
    format!("--model_base_path={}", path.to_string_lossy())
}

fn predict(server: &Server, n_rows: usize) -> (u16, String) {
    let rows = vec!["2.0"; n_rows].join(", ");
    let body = format!("{{\"instances\": [{rows}]}}");
    server.rest("POST", "/v1/models/default:predict", &body)
}

#[track_caller]
fn is_batched(server: &Server, expected: bool) {
    assert_eq!(predict(server, 1).0, 200);
    let page = server.rest_until("/v1/scheduler", &format!("\"is_batched\": {expected}"));
    assert!(page.contains("\"utilisation\""), "{page}");
}

#[test]
fn tensord_batches_where_rows_are_independent_and_the_other_name_when_asked() {
    is_batched(&Server::start(tensord(), &[&half_plus_two()]), true);
    is_batched(&Server::start(tensord(), &[&half_plus_two(), "--enable_batching=false"]), false);
    is_batched(&Server::start(model_server(), &[&half_plus_two()]), false);
    is_batched(&Server::start(model_server(), &[&half_plus_two(), "--enable_batching"]), true);
}

#[test]
fn the_parameters_file_is_followed_and_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("parameters");
    fs::write(&file, "max_batch_size { value: 2 }").unwrap();
    let parameters = format!("--batching_parameters_file={}", file.to_string_lossy());
    let server =
        Server::start(model_server(), &[&half_plus_two(), "--enable_batching", &parameters]);
    assert_eq!(predict(&server, 2).0, 200);
    let (status, body) = predict(&server, 3);
    assert_eq!(status, 400);
    assert!(body.contains("Task size 3 is larger than maximum input batch size 2"), "{body}");
    fs::write(&file, "max_batch_size { value: 3 }").unwrap();
    server.rest_until("/v1/scheduler", "\"max_batch_size\": 3,");
    assert_eq!(predict(&server, 3).0, 200);
    let (_, metrics) = server.rest("GET", "/metrics", "");
    assert!(metrics.contains(":tensorflow:serving:batching_session:input_batch_size_count{"));
}

#[test]
fn contradictions_stop_the_server_before_it_starts() {
    let said = |mut command: Command, args: &[&str]| {
        let output = command.args(args).output().unwrap();
        assert!(!output.status.success());
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        out + &String::from_utf8_lossy(&output.stderr)
    };
    let text = said(model_server(), &[&half_plus_two(), "--batching_parameters_file=/nowhere"]);
    let expected = "server_options.batching_parameters_file is set without setting \
                    server_options.enable_batching to true.";
    assert!(text.contains(expected), "{text}");
    let missing = ["--enable_batching", "--batching_parameters_file=/nowhere"];
    let text = said(model_server(), &[&half_plus_two(), missing[0], missing[1]]);
    assert!(text.contains("Invalid protobuf file: '/nowhere'"), "{text}");
}

#[test]
fn a_running_server_is_measured_over_both_faces() {
    let server = Server::start(tensord(), &[&half_plus_two()]);
    for (port, face) in [(server.grpc, None), (server.rest, Some("--rest"))] {
        let output = tensord()
            .args(["bench", "--target", &format!("127.0.0.1:{port}"), "--model", "default"])
            .args(["--concurrency", "2", "--duration", "0.2", "--json"])
            .args(face)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text} {}", String::from_utf8_lossy(&output.stderr));
        let report: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(report["answers"].as_u64().unwrap() > 0, "{report}");
        assert_eq!(report["failed"], 0, "{report}");
    }
}
