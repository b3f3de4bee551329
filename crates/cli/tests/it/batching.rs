//! Batching, from outside: flags, files that change, and what the scheduler says.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use pages::{BatchCounts, LeftCounts, QueueEntry, SchedulerPage, TaskCounts, WaitingTasks};

use crate::page::Page as _;
use crate::support::{Server, model_server, model_with_versions, root, tensord, until};

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
fn the_page_and_the_metrics_count_every_task_batch_and_row() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("parameters");
    let text = "max_batch_size { value: 4 } allowed_batch_sizes: 2 allowed_batch_sizes: 4
                batch_timeout_micros { value: 1000 }";
    fs::write(&file, text).unwrap();
    let parameters = format!("--batching_parameters_file={}", file.to_string_lossy());
    let server =
        Server::start(model_server(), &[&half_plus_two(), "--enable_batching", &parameters]);
    let statuses: Vec<u16> = [1, 3, 4, 5].iter().map(|n| predict(&server, *n).0).collect();
    assert_eq!(statuses, [200, 200, 200, 400]);
    // The answer is sent before the books are closed.
    let page = server.rest_until("/v1/scheduler", "\"run\": 8");
    let page = SchedulerPage::read(&page);
    let is_it = |queue: &&QueueEntry| queue.signature == "serving_default" && queue.is_batched;
    let queue = page.queues.iter().find(is_it).unwrap();
    assert_eq!((&*queue.model, queue.version, &*queue.device), ("default", 123, "cpu:0"));
    assert_eq!(queue.waiting, WaitingTasks { tasks: 0, rows: 0, oldest_micros: 0 });
    assert_eq!(queue.tasks, TaskCounts { asked: 4, refused: 1, expired: 0, cancelled: 0 });
    let left = LeftCounts { full: 1, timeout: 2, idle: 0, deadline: 0 };
    assert_eq!(queue.batches, BatchCounts { run: 3, left, rerun_one_by_one: 0 });
    assert_eq!((queue.rows.padding, queue.rows.padding_share), (2, 0.2));
    assert_eq!(queue.rows.per_task.count, 4);
    assert_eq!(queue.rows.per_batch.up_to, BTreeMap::from([(1, 1), (4, 2)]));
    assert_eq!(queue.rows.per_run.up_to, BTreeMap::from([(2, 1), (4, 2)]));
    let counts = [&queue.queue_micros, &queue.compute_micros, &queue.refusal_micros];
    assert_eq!(counts.map(|one| one.count), [3, 3, 1]);
    let (_, metrics) = server.rest("GET", "/metrics", "");
    let value = |name: &str, label: &str| -> f64 {
        let is_it = |line: &&str| {
            line.starts_with(&format!("{name}{{"))
                && line.contains("serving_default")
                && line.contains(label)
        };
        let lines = metrics.lines().filter(is_it);
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
    };
    for (name, label, expected) in [
        (":tensorflow:serving:batching_session:wrapped_run_count", "", 3.0),
        (":tensorflow:serving:batching_session:queuing_latency_count", "", 3.0),
        (":tensorflow:serving:batching_session:input_batch_size_count", "", 4.0),
        (":tensorflow:serving:batching_session:processed_batch_size_sum", "", 10.0),
        ("tensord_batch_rows_sum", "", 8.0),
        ("tensord_batch_run_seconds_count", "", 3.0),
        ("tensord_queue_refusal_seconds_count", "", 1.0),
        ("tensord_queue_tasks_total", "", 4.0),
        ("tensord_queue_refused_tasks_total", "", 1.0),
        ("tensord_queue_expired_tasks_total", "", 0.0),
        ("tensord_queue_cancelled_tasks_total", "", 0.0),
        ("tensord_queue_rows_total", "", 8.0),
        ("tensord_queue_padding_rows_total", "", 2.0),
        ("tensord_queue_batches_total", "reason=\"full\"", 1.0),
        ("tensord_queue_batches_total", "reason=\"timeout\"", 2.0),
        ("tensord_queue_waiting_tasks", "", 0.0),
        ("tensord_queue_oldest_task_seconds", "", 0.0),
    ] {
        assert!(metrics.contains(&format!("{name}{{")), "{name}");
        assert!((value(name, label) - expected).abs() < 1e-9, "{name} {label}\n{metrics}");
    }
    assert!(metrics.contains("tensord_lane_busy_seconds_total{"));
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

/// A config file with one model and what it says of its scheduling.
fn config(file: &Path, scheduling: &str) -> String {
    let path = root().join("models/half_plus_two");
    let text = format!(
        "model_config_list {{ config {{ name: 'default' base_path: '{}' \
         scheduling {{ {scheduling} }} }} }}",
        path.display()
    );
    fs::write(file, text).unwrap();
    format!("--model_config_file={}", file.display())
}

#[test]
fn weights_and_priorities_are_set_in_the_model_config_and_change_while_serving() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("models");
    let flag = config(
        &file,
        "weight: 3 default_priority: 1 level {} level { max_enqueued_batches { value: 5 } \
         queue_timeout_micros { value: 7000000 } } mixed_priority_policy: PRIORITY_ISOLATION",
    );
    let server = Server::start(tensord(), &[&flag, "--model_config_file_poll_wait_seconds=1"]);
    assert_eq!(predict(&server, 1).0, 200);
    let page = server.rest_until("/v1/scheduler", "\"weight\": 3");
    for said in ["\"default_priority\": 1", "\"queue_timeout_micros\": 7000000", "\"isolate\""] {
        assert!(page.contains(said), "{said} in {page}");
    }
    config(&file, "weight: 5");
    // Weights are set first, then the queues.
    let page = server.rest_until("/v1/scheduler", "\"default_priority\": 0");
    assert!(page.contains("\"weight\": 5"), "{page}");
}

#[test]
fn a_request_names_its_priority_over_both_faces() {
    let server = Server::start(tensord(), &[&half_plus_two()]);
    let ask = |priority: &str| {
        let mut stream = TcpStream::connect(("127.0.0.1", server.rest)).unwrap();
        let body = r#"{"instances": [2.0]}"#;
        let head = format!(
            "POST /v1/models/default:predict HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
             tensord-priority: {priority}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(ask("3").starts_with("HTTP/1.1 200"));
    let refused = ask("urgent");
    assert!(refused.starts_with("HTTP/1.1 400"), "{refused}");
    assert!(refused.contains("tensord-priority is a number from 0"), "{refused}");
}

#[test]
fn an_unknown_key_or_a_bad_limit_of_a_priority_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (scheduling, expected) in [
        ("wait: 3", "wait"),
        ("default_priority: 99", "priorities go from 0 to 15"),
        ("level { max_enqueued_batches { value: 0 } }", "max_enqueued_batches must be positive"),
    ] {
        let flag = config(&dir.path().join("models"), scheduling);
        let output = tensord().arg(flag).arg("--rest_api_port=0").output().unwrap();
        assert!(!output.status.success());
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        let text = out + &String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn top_shows_queues_and_lanes_beside_the_memory() {
    let server = Server::start(tensord(), &[&half_plus_two()]);
    assert_eq!(predict(&server, 2).0, 200);
    let url = format!("127.0.0.1:{}", server.rest);
    let output = tensord().args(["top", &url, "--times", "2", "--every", "0.1"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    for shown in ["cpu:0 lane 0", "% busy", "default:123 serving_default", "batches/s", "server"] {
        assert!(text.contains(shown), "{shown} in {text}");
    }
}

#[test]
fn a_server_is_driven_at_a_rate_with_inputs_from_a_file_and_shown_as_a_table() {
    let server = Server::start(tensord(), &[&half_plus_two()]);
    let inputs = root().join("testdata/golden/half_plus_two/123/serving_default/batch3.in.npz");
    for (port, door) in [(server.grpc, None), (server.rest, Some("--rest"))] {
        let output = tensord()
            .args(["bench", "--target", &format!("127.0.0.1:{port}"), "--model", "default"])
            .args(["--rate", "50", "--duration", "1.5", "--inputs"])
            .arg(&inputs)
            .args(door)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let progress = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text} {progress}");
        for shown in ["answers", "throughput", "50 %", "99.9 %", "failed                 0"] {
            assert!(text.contains(shown), "{shown} in {text}");
        }
        assert!(progress.contains("answers/s, 99 % within"), "{progress}");
    }
}

/// Returns how many threads of a server have names that begin so.
fn n_threads(server: &Server, name: &str) -> usize {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.id())).unwrap().flatten();
    let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|comm| comm.starts_with(name) && !comm.contains("clock")).count()
}

/// Asserts how many lanes and compute threads there are. A thread has its name when it first runs.
#[track_caller]
fn has_threads(server: &Server, n_lanes: usize, n_compute: usize) {
    let now = || (n_threads(server, "lane-"), n_threads(server, "compute-"));
    let what = format!("{n_lanes} lanes and {n_compute} compute threads run");
    until(&what, || now() == (n_lanes, n_compute));
}

#[test]
fn lanes_and_compute_threads_are_as_many_as_the_flags_say_and_by_default_as_cores() {
    let n_cpus = std::thread::available_parallelism().unwrap().get();
    let server = Server::start(tensord(), &[&half_plus_two()]);
    // A lane computes too: with it, all compute threads of a run are as many as there are cores.
    has_threads(&server, n_cpus, n_cpus - 1);
    let flags = ["--tensorflow_inter_op_parallelism=3", "--tensorflow_intra_op_parallelism=4"];
    let server = Server::start(model_server(), &[&half_plus_two(), flags[0], flags[1]]);
    has_threads(&server, 3, 3);
}

#[test]
fn each_version_is_batched_as_the_file_in_its_folder_says() {
    let dir = tempfile::tempdir().unwrap();
    let versions = dir.path().join("m");
    model_with_versions(&versions, &[1]);
    let file = versions.join("1/batching_params.pbtxt");
    fs::write(&file, "max_batch_size { value: 2 }").unwrap();
    let path = format!("--model_base_path={}", versions.display());
    let flags = ["--enable_batching", "--enable_per_model_batching_parameters"];
    let server = Server::start(model_server(), &[&path, flags[0], flags[1]]);
    let (status, body) = predict(&server, 3);
    assert_eq!(status, 400);
    assert!(body.contains("Task size 3 is larger than maximum input batch size 2"), "{body}");
    fs::remove_file(&file).unwrap();
    server.rest_until("/v1/scheduler", "batching is off");
    assert_eq!(predict(&server, 3).0, 200, "without the file it is not batched");
}
