//! The end of the process: requests in flight finish, nobody new is let in, and it does not take
//! for ever.

use std::io::{self, BufRead, BufReader, Read, Write};
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

/// A client with one connection that it keeps.
struct Client {
    stream: BufReader<TcpStream>,
}

/// The answer that a client sees.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    /// An answer, after which the connection stays open.
    Answer,
    /// An answer that says that the connection is closed.
    LastAnswer,
}

impl Client {
    fn connect(server: &Server) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", server.rest)).unwrap();
        Self { stream: BufReader::new(stream) }
    }

    fn send(&mut self, text: &str) -> io::Result<()> {
        self.stream.get_mut().write_all(text.as_bytes())
    }

    /// Reads an answer.
    fn receive(&mut self) -> io::Result<Seen> {
        let (mut length, mut seen, mut line) = (0, Seen::Answer, String::new());
        loop {
            line.clear();
            if self.stream.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let line = line.trim().to_ascii_lowercase();
            if line.starts_with("http/") {
                assert!(line.starts_with("http/1.1 200"), "{line}");
            }
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.parse().unwrap();
            }
            if line == "connection: close" {
                seen = Seen::LastAnswer;
            }
            if line.is_empty() {
                break;
            }
        }
        self.stream.read_exact(&mut vec![0; length])?;
        Ok(seen)
    }

    fn ask(&mut self) -> io::Result<Seen> {
        self.send(ASKED)?;
        self.receive()
    }

    /// Returns whether the other side closes the connection without an error and without another
    /// byte.
    fn is_closed_cleanly(&mut self) -> bool {
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).is_ok() && rest.is_empty()
    }
}

const ASKED: &str = "POST /v1/models/half_plus_two:predict HTTP/1.1\r\nHost: x\r\n\
    Content-Length: 20\r\n\r\n{\"instances\": [1.0]}";

#[test]
fn clients_that_keep_their_connections_are_answered_until_they_are_told_of_the_end() {
    const N_CLIENTS: usize = 16;
    const N_ANSWERS: usize = 20;
    let mut server = start(&[]);
    let (ready, answered) = std::sync::mpsc::channel();
    let clients: Vec<_> = (0..N_CLIENTS).map(|_| Client::connect(&server)).collect();
    let clients = clients.into_iter().map(|mut client| {
        let ready = ready.clone();
        std::thread::spawn(move || {
            let mut n_answers = 0;
            while client.ask()? == Seen::Answer {
                n_answers += 1;
                if n_answers == N_ANSWERS {
                    ready.send(()).expect("the test listens");
                }
            }
            assert!(client.is_closed_cleanly());
            Ok::<usize, io::Error>(n_answers)
        })
    });
    let clients: Vec<_> = clients.collect();
    (0..N_CLIENTS).for_each(|_| answered.recv().unwrap());
    server.signal("TERM");
    for client in clients {
        let n_answers = client.join().unwrap().expect("every request that was sent is answered");
        assert!(n_answers >= N_ANSWERS);
    }
    assert!(server.wait().success());
}

#[test]
fn requests_on_idle_connections_are_answered_and_idle_ones_are_closed() {
    let mut server = start(&[]);
    let mut clients = [(); 4].map(|()| Client::connect(&server));
    for client in &mut clients[..3] {
        assert_eq!(client.ask().unwrap(), Seen::Answer);
    }
    let [late, half, idle, fresh] = &mut clients;
    // Half of a head has come when the signal does.
    half.send(&ASKED[..20]).unwrap();
    server.signal("TERM");
    server.logs("stopping");
    assert_eq!(late.ask().unwrap(), Seen::LastAnswer);
    assert!(late.is_closed_cleanly());
    assert!(idle.is_closed_cleanly());
    assert!(fresh.is_closed_cleanly());
    // By now those that are idle were closed; this one is not.
    half.send(&ASKED[20..]).unwrap();
    assert_eq!(half.receive().unwrap(), Seen::LastAnswer);
    assert!(half.is_closed_cleanly());
    assert!(server.wait().success());
}

#[test]
fn a_lame_duck_is_not_ready_and_serves_on() {
    let mut server = start(&["--lame_duck_seconds=3600"]);
    let mut client = Client::connect(&server);
    assert_eq!(client.ask().unwrap(), Seen::Answer);
    assert_eq!(server.rest("GET", "/readyz", "").0, 200);
    server.signal("TERM");
    server.logs("not ready any more; requests are taken for another 3600s");
    assert_eq!(server.rest("GET", "/readyz", "").0, 503);
    assert_eq!(server.rest("GET", "/healthz", "").0, 200);
    crate::support::check_half_plus_two(&server, "half_plus_two");
    assert_eq!(client.ask().unwrap(), Seen::Answer);
    // As ever, the second signal is the last.
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(1));
}

#[test]
fn a_lame_duck_drains_when_its_time_is_over() {
    let mut server = start(&["--lame_duck_seconds=1"]);
    let request = HalfRequest::new(&server);
    server.signal("TERM");
    server.logs("not ready any more");
    server.logs("stopping");
    let answer = request.finish();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("connection: close"), "{answer}");
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
