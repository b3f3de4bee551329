//! The end of the process: requests in flight finish, nobody new is let in, and it does not take
//! for ever.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::support::{Server, half_plus_two, model_server, tensord};

/// A request of which the body has only begun.
struct HalfRequest {
    stream: TcpStream,
    rest: &'static str,
}

impl HalfRequest {
    fn new(server: &Server) -> Self {
        let mut stream = TcpStream::connect(("127.0.0.1", server.rest)).unwrap();
        let (body, rest) = (r#"{"instances": [1.0, "#, "2.0]}");
        let length = body.len() + rest.len();
        let path = "/v1/models/half_plus_two:predict";
        let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n");
        // Told to go on, so that the server is known to have taken the request.
        write!(stream, "{head}Expect: 100-continue\r\n\r\n").unwrap();
        let mut go_on = [0; 25];
        stream.read_exact(&mut go_on).unwrap();
        assert!(go_on.starts_with(b"HTTP/1.1 100 Continue"));
        write!(stream, "{body}").unwrap();
        Self { stream, rest }
    }

    fn finish(mut self) -> String {
        self.stream.write_all(self.rest.as_bytes()).unwrap();
        let mut answer = String::new();
        self.stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

fn start(flags: &[&str]) -> Server {
    let model = half_plus_two().to_string_lossy().into_owned();
    Server::start(tensord(), &[flags, &[&model]].concat())
}

#[test]
fn a_request_in_flight_is_answered_and_nobody_new_is_let_in() {
    let mut server = start(&[]);
    let request = HalfRequest::new(&server);
    server.signal("TERM");
    server.logs("stopping");
    // The listener closes soon after; whoever was quick enough is closed on.
    while let Ok(mut stream) = TcpStream::connect(("127.0.0.1", server.rest)) {
        let closed = write!(stream, "GET /healthz HTTP/1.0\r\n\r\n");
        let mut answer = Vec::new();
        if closed.is_err() || stream.read_to_end(&mut answer).is_err() {
            break;
        }
    }
    let answer = request.finish();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("[2.5, 3.0"), "{answer}");
    assert!(server.wait().success());
}

#[test]
fn a_request_that_does_not_end_is_given_its_grace_and_no_more() {
    let mut server = start(&["--shutdown_grace_seconds=1"]);
    let request = HalfRequest::new(&server);
    server.signal("TERM");
    server.logs("requests were still in flight after 1s");
    assert!(server.wait().success());
    drop(request);
}

#[test]
fn a_second_signal_ends_the_process_at_once() {
    let mut server = start(&["--shutdown_grace_seconds=3600"]);
    let request = HalfRequest::new(&server);
    server.signal("TERM");
    server.logs("stopping");
    server.signal("INT");
    assert_eq!(server.wait().code(), Some(1));
    drop(request);
}

#[test]
fn a_signal_while_models_load_ends_the_process_cleanly() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().join("m");
    let version = base.join("1");
    std::fs::create_dir_all(&version).unwrap();
    std::fs::write(version.join("saved_model.pb"), "no model").unwrap();
    let base = base.to_string_lossy().into_owned();
    // It will be tried again in a minute; the ports are not open until then.
    let mut server = Server::spawn(model_server(), &[&format!("--model_base_path={base}")]);
    server.logs("loading failed");
    server.signal("TERM");
    assert!(server.wait().success());
}

#[test]
fn a_port_that_is_taken_is_told() {
    let server = start(&[]);
    let model = half_plus_two().to_string_lossy().into_owned();
    let flag = format!("--port={}", server.grpc);
    let run = tensord().args([&flag, "--rest_api_port=0", &model]).output().unwrap();
    assert!(!run.status.success());
    let text = String::from_utf8_lossy(&run.stderr);
    assert!(text.contains("choose another with --port"), "{text}");
}
