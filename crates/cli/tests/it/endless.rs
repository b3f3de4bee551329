//! Runs that never end, and the models beside them.

use std::io::Write as _;
use std::net::TcpStream;

use pages::SchedulerPage;

use crate::page::Shown as _;
use crate::support::{Server, check_half_plus_two, model_server, root, tensord};

const PATH: &str = "/v1/models/checks:predict";

/// Counts down to zero in steps of one, which half never gets to.
const ENDLESS: &str = r#"{"signature_name": "count_down", "inputs": [0.5]}"#;

/// A server with two lanes, a model that can loop for ever, and one that answers at once. REST
/// requests have no deadline.
fn start(command: std::process::Command, args: &[&str]) -> Server {
    let path = |name: &str| format!("--model_base_path={}", root().join(name).display());
    let (checks, plain) = (path("testdata/models/checks"), path("models/half_plus_two"));
    let models = ["--model_name=checks", &checks, "--model_name=half_plus_two", &plain];
    let lanes = ["--tensorflow_inter_op_parallelism=2", "--rest_api_timeout_in_ms=0"];
    Server::start(command, &[&models[..], &lanes, args].concat())
}

/// Sends a request and does not read the answer.
fn send(server: &Server) -> TcpStream {
    send_to(server, PATH)
}

fn send_to(server: &Server, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", server.rest)).unwrap();
    let length = ENDLESS.len();
    let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}");
    stream.write_all(format!("{head}\r\n\r\n{ENDLESS}").as_bytes()).unwrap();
    stream
}

/// Asks until as many tasks of the endless signature were asked for, and wait.
fn wait_for_tasks(server: &Server, n_asked: u64, n_waiting: usize) {
    let is_so = |page: &SchedulerPage| {
        page.queues.iter().any(|queue| {
            queue.signature == "count_down"
                && queue.tasks.asked == n_asked
                && queue.waiting.tasks == n_waiting
        })
    };
    for _ in 0..100_000 {
        if is_so(&SchedulerPage::get(server)) {
            return;
        }
    }
    panic!("the requests never came");
}

#[test]
fn endless_runs_on_every_lane_keep_no_other_model_waiting() {
    let server = start(model_server(), &[]);
    // Both lanes are taken, and the third waits for one.
    let clients = [send(&server), send(&server), send(&server)];
    wait_for_tasks(&server, 3, 1);
    for _ in 0..3 {
        check_half_plus_two(&server, "half_plus_two");
    }
    // Runs whose clients go are stopped, and the model itself answers again.
    drop(clients);
    let ends = r#"{"signature_name": "count_down", "inputs": [3.0]}"#;
    let (status, body) = server.rest("POST", PATH, ends);
    assert_eq!(status, 200, "{body}");
}

/// Three models, each of which is asked for more endless runs than there are lanes.
#[test]
fn endless_runs_of_several_models_keep_no_other_model_waiting() {
    let checks = root().join("testdata/models/checks");
    let checks = format!("--model_base_path={}", checks.display());
    let plain = format!("--model_base_path={}", root().join("models/half_plus_two").display());
    let hostile = ["--model_name=one", "--model_name=two", "--model_name=three"];
    let mut args: Vec<&str> = hostile.iter().flat_map(|name| [*name, &*checks]).collect();
    args.extend(["--model_name=half_plus_two", &plain]);
    args.extend(["--tensorflow_inter_op_parallelism=2", "--rest_api_timeout_in_ms=0"]);
    let server = Server::start(model_server(), &args);
    let path = |name: &str| format!("/v1/models/{name}:predict");
    let mut clients = Vec::new();
    for name in ["one", "two", "three"] {
        clients.extend((0..5).map(|_| send_to(&server, &path(name))));
        // While the hostile models come, and when all have their runs.
        check_half_plus_two(&server, "half_plus_two");
    }
    for _ in 0..20 {
        check_half_plus_two(&server, "half_plus_two");
    }
    let ends = r#"{"signature_name": "count_down", "inputs": [3.0]}"#;
    drop(clients);
    for name in ["one", "two", "three"] {
        let answers = || server.rest("POST", &path(name), ends).0 == 200;
        assert!((0..100_000).any(|_| answers()), "{name} never answers again");
    }
}

#[test]
fn a_run_that_takes_longer_than_the_flag_says_is_stopped() {
    let server = start(tensord(), &["--max_run_seconds=1"]);
    let (status, body) = server.rest("POST", PATH, ENDLESS);
    assert_eq!(status, 504, "{body}");
    assert!(body.contains("the run was stopped after 1 s"), "{body}");
    check_half_plus_two(&server, "half_plus_two");
}

#[test]
fn a_model_whose_runs_were_short_is_not_trusted_with_the_threads_that_read_requests() {
    let server = start(tensord(), &[]);
    let short = r#"{"signature_name": "count_down", "inputs": [1.0]}"#;
    for _ in 0..50 {
        assert_eq!(server.rest("POST", PATH, short).0, 200);
    }
    let _clients: Vec<TcpStream> = (0..8).map(|_| send(&server)).collect();
    wait_for_tasks(&server, 58, 6);
    assert_eq!(server.rest("GET", "/healthz", "").0, 200);
    check_half_plus_two(&server, "half_plus_two");
}
