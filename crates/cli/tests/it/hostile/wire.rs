//! Hostile bodies over REST.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::support::{Server, until};

const PREDICT: &str = "/v1/models/half_plus_two:predict";
const CLASSIFY: &str = "/v1/models/half_plus_two:classify";

/// The longest time that anything may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(120);

pub(super) fn empty_lists(server: &Server) {
    let body = format!("{{\"instances\": [{}[]]}}", "[],".repeat(10_000_000));
    let (code, text) = server.rest("POST", PREDICT, &body);
    assert!(matches!(code, 400 | 429), "{code} {text}");
}

pub(super) fn small_rows(server: &Server) {
    let body = format!("{{\"instances\": [{}0]}}", "{\"x\":[0]},".repeat(4_000_000));
    let (code, text) = server.rest("POST", PREDICT, &body);
    assert!(matches!(code, 400 | 429), "{code} {text}");
}

pub(super) fn numbers(server: &Server) {
    let body = format!("{{\"instances\": [{}0]}}", "0,".repeat(50_000_000));
    let (code, text) = server.rest("POST", PREDICT, &body);
    assert_eq!(code, 429, "{text}");
}

pub(super) fn examples(server: &Server) {
    let body = format!(
        "{{\"signature_name\": \"classify_x_to_y\", \"examples\": [{}{{}}]}}",
        "{\"\":1},".repeat(1_000_000)
    );
    let (code, text) = server.rest("POST", CLASSIFY, &body);
    assert_eq!(code, 429, "{text}");
}

pub(super) fn unfolding_body(server: &Server) {
    let text = vec![b' '; 99 << 20];
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packed.write_all(&text).unwrap();
    let packed = packed.finish().unwrap();
    // Several at once, each of which would fit alone.
    let mut streams: Vec<TcpStream> = Vec::new();
    for _ in 0..12 {
        let mut stream = connect(server);
        write!(stream, "POST {PREDICT} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n").unwrap();
        write!(stream, "Content-Encoding: gzip\r\nContent-Length: {}\r\n\r\n", packed.len())
            .unwrap();
        stream.write_all(&packed).unwrap();
        streams.push(stream);
    }
    for mut stream in streams {
        let code = code(&mut stream);
        assert!(matches!(code, Some(400 | 429)), "{code:?}");
    }
}

pub(super) fn unfinished_bodies(server: &Server) {
    let part = vec![b' '; 1 << 20];
    let mut open = Vec::new();
    for _ in 0..40 {
        let mut stream = connect(server);
        let head =
            format!("POST {PREDICT} HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        // What is refused is read all the same, so that its answer is seen.
        (0..50).try_for_each(|_| stream.write_all(&part)).unwrap();
        stream.set_nonblocking(true).unwrap();
        open.push(stream);
    }
    let is_refused = |stream: &TcpStream| {
        let mut start = [0; 12];
        stream.peek(&mut start).is_ok_and(|n| start[..n] == *b"HTTP/1.1 429")
    };
    until("some bodies find no room", || open.iter().any(is_refused));
}

pub(super) fn unread_answers(server: &Server) {
    let body = format!("{{\"instances\": [{}0.5]}}", "0.1234567,".repeat(1_000_000));
    let mut open = Vec::new();
    for _ in 0..60 {
        let mut stream = connect(server);
        write!(
            stream,
            "POST {PREDICT} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n",
            body.len()
        )
        .unwrap();
        // Nothing is ever read of the answer.
        if stream.write_all(body.as_bytes()).is_ok() {
            open.push(stream);
        }
    }
    // All were looked at when each has something to read.
    for stream in &open {
        let mut byte = [0; 1];
        let looked = stream.peek(&mut byte);
        assert!(looked.is_ok(), "{looked:?}");
    }
}

pub(super) fn long_names(server: &Server) {
    let name = "x".repeat(20 << 20);
    let mut open = Vec::new();
    for number in 0..80 {
        let (path, rest) = match number % 2 {
            0 => (PREDICT, "\"instances\": [1]"),
            _ => (CLASSIFY, "\"examples\": [{}]"),
        };
        let body = format!("{{\"signature_name\": \"{name}\", {rest}}}");
        let mut stream = connect(server);
        let length = body.len();
        let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        // Nothing is ever read of the answer.
        if stream.write_all(body.as_bytes()).is_ok() {
            let looked = stream.peek(&mut [0]);
            assert!(looked.is_ok(), "{looked:?}");
            open.push(stream);
        }
    }
}

pub(super) fn large_heads(server: &Server) {
    let mut open = Vec::new();
    let head = format!("GET /healthz HTTP/1.1\r\nHost: x\r\nX: {}", "x".repeat(60_000));
    for _ in 0..500 {
        let mut stream = connect(server);
        stream.write_all(head.as_bytes()).unwrap();
        open.push(stream);
    }
    // One more kilobyte at a time is too much for each.
    for stream in &mut open {
        drop(stream.write_all(&[b'x'; 6000]));
        let mut answer = [0; 12];
        // A server that hangs up with bytes unread may reset the connection.
        let read = stream.read_exact(&mut answer);
        assert!(read.is_err() || &answer == b"HTTP/1.1 431", "{answer:?}");
    }
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", server.rest)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// The status of an answer.
fn code(stream: &mut TcpStream) -> Option<u16> {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split(' ').nth(1)?.parse().ok()
}
